package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// PaneFilter describes the filter of one list of the console: the fields that
// it accepts.
type PaneFilter struct {
	Pane   queue.Pane
	List   string // "" = the pane's own table; else a list that enter opens from a row
	Fields []queue.Field
}

// Filters returns the filters of all lists in menu order: for each pane the
// filter of its table, then those of the lists that enter opens from its rows.
func Filters() (all []PaneFilter) {
	at := scene{snap: &queue.Snapshot{}, env: views.Env{}}
	for _, p := range declared() {
		if p.board == nil {
			p.begin()
			at.pane, at.level = &p, p.top()
			if fields := p.source(at).Fields; len(fields) > 0 {
				all = append(all, PaneFilter{p.Pane, "", fields})
			}
		}
		switch p.ID {
		case queue.PaneDead:
			all = append(all, PaneFilter{p.Pane, "dead letters of a group", queue.DeadLetterFields()})
		case queue.PaneQueues:
			all = append(all, PaneFilter{p.Pane, "jobs of a lane", queue.JobFields()})
		}
	}
	return all
}
