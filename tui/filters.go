package tui

import "github.com/qtop/qtop/pgclient/queue"

// PaneFilter names the fields that the filter of one list of the console
// accepts.
type PaneFilter struct {
	Pane   queue.Pane
	List   string // a list that enter opens from a row of the pane; "": the pane's own table
	Fields []queue.Field
}

// Filters returns the filters of all lists in menu order: for each pane the
// filter of its table, then those of the lists that enter opens from its rows.
func Filters() (all []PaneFilter) {
	for _, p := range declared() {
		p.begin()
		at := scene{snap: &queue.Snapshot{}, pane: &p, level: p.top()}
		for _, t := range []table{at.level.table, p.nested} {
			if t == nil {
				continue
			}
			if fields := t.rows(at).Fields; len(fields) > 0 {
				all = append(all, PaneFilter{p.Pane, t.what(), fields})
			}
		}
	}
	return all
}
