package tui

// This file draws the body of the screen: the open level of a pane.

import (
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

func (at scene) draw(s views.Size) []string {
	l, p := at.level, at.pane
	own := l == at.base()
	switch {
	case l.board != nil:
		cursor := l.target
		if !l.armed { // a row that is gone is not shown
			cursor = views.Target{}
		}
		return l.board(at, s, cursor).Lines
	case l.page != nil:
		return views.PageView{Page: l.built, Offset: l.offset, Find: l.find}.Visible(at.env, s)
	case own && p.body != nil:
		return p.body(at, s)
	}
	out := at.above(s.W)
	out = append(out, l.grid.view().Lines(at.env, at.tableSize(s))...)
	if own {
		out = append(out, at.beneath(views.Size{W: s.W, H: s.H - len(out)})...)
	}
	return out
}

// above is the lines over a table: the title of a level below another, or what the
// pane has there.
func (at scene) above(w int) []string {
	switch {
	case at.level.listed():
		return []string{at.env.Theme.Title.Paint(at.env.Theme.Cut("   "+theme.Safe(views.Plain(at.level.title)), w))}
	case at.level.table != nil && at.pane.above != nil:
		return at.pane.above(at)
	}
	return nil
}

// tableSize is what a table has of the body.
func (at scene) tableSize(s views.Size) views.Size {
	l := at.level
	s.H -= len(at.above(s.W))
	need := l.grid.view().Need()
	switch {
	case l != at.base():
	case at.pane.room != nil:
		s.H = at.pane.room(at, s)
	case len(l.grid.order) == 0: // the words take the room
	case need+views.PageRoom <= s.H:
		s.H = need
	}
	return s
}

// beneath draws the page of the row under the cursor under its table, where there
// is room.
func (at scene) beneath(s views.Size) []string {
	i, ok := at.level.grid.current()
	if !ok || s.H < views.PageRoom {
		return nil
	}
	next := at.level.table.under(at, i)
	if next.page == nil {
		return nil
	}
	at.level, at.env.Brief = &next, true
	page, ok := next.page(at)
	if !ok {
		return nil
	}
	return views.Beneath(page, at.env, s)
}
