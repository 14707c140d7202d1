package views

// The names of filter fields of panes. A name has the same kind of value in every pane.

import "github.com/qtop/qtop/pgclient/queue"

// fields makes the fields of a filter. A field that is neither a number nor a duration is text.
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
