package views

// The names of the fields by which panes can be filtered. The same name has
// the same kind of value (text, number, duration) in every pane.

import "github.com/qtop/qtop/pgclient/queue"

// fields returns the fields of a filter. Fields that are not known as number
// or duration are text.
func fields(names ...string) []queue.Field {
	out := make([]queue.Field, len(names))
	for i, name := range names {
		out[i] = queue.Field{Name: name}
		switch name {
		case "at":
			out[i].Kind = queue.FieldTime
		case "age":
			out[i].Kind = queue.FieldDuration
		case "ratio", "open", "events", "attempts", "dead", "subscription", "queued", "priority", "jobs":
			out[i].Kind = queue.FieldNumber
		}
	}
	return out
}
