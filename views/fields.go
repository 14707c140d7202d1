package views

// Names the fields of the filters of the panes. A name means the same
// kind of value in every pane.

import "github.com/qtop/qtop/pgclient/queue"

// fields makes the fields of a filter; what is no number and no length of time
// is text.
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
