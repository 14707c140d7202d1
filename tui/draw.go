package tui

import (
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// draw returns the lines of the pane's area, at most s.H: the open level,
// drawn.
func (at scene) draw(s views.Size) []string {
	l, p := at.level, at.pane
	own := l == at.base()
	switch {
	case l.board != nil:
		return l.board(at, s, l.cursor).Lines
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

// above returns the lines above a table: the title of a level that enter
// opened, or the pane's own header.
func (at scene) above(w int) []string {
	switch {
	case at.level.isNested():
		return []string{at.env.Theme.Title.Paint(at.env.Theme.Cut("   "+theme.Safe(views.Plain(at.level.title)), w))}
	case at.level.table != nil && at.pane.header != nil:
		return at.pane.header(at)
	}
	return nil
}

// tableSize returns the size that the table gets in an area of size s; the
// rest is for the page below it.
func (at scene) tableSize(s views.Size) views.Size {
	l := at.level
	s.H -= len(at.above(s.W))
	switch {
	case l != at.base():
	case at.pane.tableLines != nil:
		s.H = at.pane.tableLines(at, s)
	case len(l.grid.order) == 0: // an empty table shows a text instead, which may use the whole area
	default:
		s.H, _ = views.TableLines(l.grid.view().Need(), s.H)
	}
	return s
}

// beneath draws the page of the row under the cursor below its table, if there is room.
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
