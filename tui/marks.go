package tui

// This file is the selection: single rows, a range, all that are loaded, and, as
// a second and explicit step, all that match.

import "maps"

// toggle marks or unmarks the row under the cursor.
func (g *grid) toggle() bool {
	i, ok := g.current()
	if !ok || !g.markable(i) {
		return false
	}
	g.all = false
	id := g.src.ID(i)
	if g.marks[id] {
		delete(g.marks, id)
	} else {
		g.marks[id] = true
	}
	return true
}

// markable tells rows that can be marked: where there are two tables, those of
// one alone.
func (g *grid) markable(i int) bool {
	return g.marks != nil && (g.src.Second.Columns == nil || g.src.Second.Marks == g.src.Lower(i))
}

// ranges begins a range at the cursor, or ends it.
func (g *grid) ranges() {
	if g.marks == nil {
		return
	}
	if g.anchor >= 0 {
		g.anchor, g.before = -1, nil
		return
	}
	g.all = false
	g.anchor, g.before = g.cursor, maps.Clone(g.marks)
	g.stretch()
}

// stretch marks what lies between the anchor and the cursor, and no more.
func (g *grid) stretch() {
	if g.anchor < 0 || g.marks == nil {
		return
	}
	g.marks = maps.Clone(g.before)
	from, to := min(g.anchor, g.cursor), max(g.anchor, g.cursor)
	for i := from; i <= to && i < len(g.order); i++ {
		if g.markable(g.order[i]) {
			g.marks[g.src.ID(g.order[i])] = true
		}
	}
}

// markAll marks every row that is loaded and passes the filter; where they all
// are marked already and the rest can be asked for, it takes all that match.
func (g *grid) markAll(more bool) {
	if g.marks == nil || len(g.order) == 0 {
		return
	}
	g.anchor, g.before = -1, nil
	full := true
	for _, o := range g.order {
		if !g.markable(o) {
			continue
		}
		id := g.src.ID(o)
		full = full && g.marks[id]
		g.marks[id] = true
	}
	g.all = full && more
}

// clear drops the selection; false: there was none.
func (g *grid) clear() bool {
	if g.marks == nil {
		return false
	}
	had := len(g.marks) > 0 || g.anchor >= 0 || g.all
	g.marks = map[string]bool{}
	g.anchor, g.before, g.all = -1, nil, false
	return had
}

// marked is the ids of the selection in the order of the table.
func (g *grid) marked() []string {
	ids := make([]string, 0, len(g.marks))
	if len(g.marks) == 0 {
		return ids
	}
	for _, o := range g.order {
		if id := g.src.ID(o); g.marks[id] {
			ids = append(ids, id)
		}
	}
	return ids
}
