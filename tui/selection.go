package tui

// The selection of rows: one, a range, all loaded rows and, as a separate
// step that the operator must ask for, all matching rows of the database.

import "maps"

// toggle selects the row under the cursor, or deselects it. It reports false
// if that row cannot be selected.
func (g *grid) toggle() bool {
	i, ok := g.current()
	if !ok || !g.selectable(i) {
		return false
	}
	g.endRange() // it would select again a row that is taken out
	id := g.src.ID(i)
	if g.selected[id] {
		delete(g.selected, id)
	} else {
		g.selected[id] = true
	}
	return true
}

// selectable reports whether row i can be selected. If a pane shows two
// tables, only the rows of one of them can be.
func (g *grid) selectable(i int) bool {
	return g.selected != nil && (g.src.Second.Columns == nil || g.src.Second.Selectable == g.src.Lower(i))
}

// toggleRange begins a range at the cursor, or ends the range that was begun.
func (g *grid) toggleRange() {
	if g.selected == nil {
		return
	}
	if g.anchor != "" {
		g.endRange()
		return
	}
	g.anchor, g.selectedBefore = g.at, maps.Clone(g.selected)
	g.extendRange()
}

// endRange ends the open range, if there is one. Its rows stay selected.
func (g *grid) endRange() { g.anchor, g.selectedBefore = "", nil }

// extendRange selects the rows between the row where the range began and the
// cursor. Rows that were selected before stay selected.
func (g *grid) extendRange() {
	if g.anchor == "" || g.selected == nil {
		return
	}
	from := g.index(g.anchor)
	if from < 0 {
		g.endRange()
		return
	}
	g.selected = maps.Clone(g.selectedBefore)
	from, to := min(from, g.cursor), max(from, g.cursor)
	for i := from; i <= to; i++ {
		if g.selectable(g.order[i]) {
			g.selected[g.src.ID(g.order[i])] = true
		}
	}
}

// selectAll selects every loaded row that the filter keeps. If these are
// selected already and more is true (actions can take rows that are not
// loaded), it selects all matching rows of the database.
func (g *grid) selectAll(more bool) {
	if g.selected == nil || len(g.order) == 0 {
		return
	}
	g.endRange()
	g.all = g.markAll() && more
}

// markAll selects every loaded row that the filter keeps. It reports whether
// these were selected already.
func (g *grid) markAll() bool {
	full := true
	for _, o := range g.order {
		if !g.selectable(o) {
			continue
		}
		id := g.src.ID(o)
		full = full && g.selected[id]
		g.selected[id] = true
	}
	return full
}

// lastSelected returns the index in src of the last selected row; -1 if there
// is none, or if all that match are selected, which a filter names.
func (g *grid) lastSelected() int {
	if len(g.selected) == 0 || g.all {
		return -1
	}
	for i := g.src.Len - 1; i >= 0; i-- {
		if g.selected[g.src.ID(i)] {
			return i
		}
	}
	return -1
}

// clear drops the selection and reports whether there was one.
func (g *grid) clear() bool {
	if g.selected == nil {
		return false
	}
	had := len(g.selected) > 0 || g.anchor != "" || g.all
	g.selected, g.all = map[string]bool{}, false
	g.endRange()
	return had
}

// selectedIDs returns the ids of the selected rows that the filter keeps, in
// the order of the table.
func (g *grid) selectedIDs() []string {
	ids := make([]string, 0, len(g.selected))
	for _, i := range g.selectedRows() {
		ids = append(ids, g.src.ID(i))
	}
	return ids
}

// selectedRows returns the indices of the selected rows that the filter keeps,
// in the order of the table.
func (g *grid) selectedRows() (rows []int) {
	if len(g.selected) == 0 {
		return nil
	}
	for _, o := range g.order {
		if g.selected[g.src.ID(o)] {
			rows = append(rows, o)
		}
	}
	return rows
}

// hidden returns how many selected rows the filter hides.
func (g *grid) hidden() int { return len(g.selected) - len(g.selectedRows()) }
