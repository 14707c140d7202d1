package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// PaneFilter is the words of the filter of one list of the console.
type PaneFilter struct {
	Pane   queue.Pane
	List   string // "" = the pane's own table; else the list below one of its rows
	Fields []queue.Field
}

// Filters returns the filters of all lists, in menu order: those of tables that the panes declare, and those of the
// lists below a row of theirs.
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
