package tui

// The keys that move the cursor, and those that select rows.

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// move moves the cursor, or scrolls the page, by d rows.
func (m *deck) move(d int) tea.Cmd {
	l := m.pane().top()
	defer m.sayStuck(l, d > 0, l.position())
	switch {
	case l.board != nil:
		m.moveOverview(l, d)
	case l.page != nil:
		l.scrollTo(l.offset+d, m.pageRows(l))
	default:
		l.grid.move(d, m.rows)
		return m.more()
	}
	return nil
}

// moveTo moves the cursor to row i, or scrolls the page there.
func (m *deck) moveTo(i int) tea.Cmd {
	l := m.pane().top()
	defer m.sayStuck(l, i > 0, l.position())
	switch {
	case l.board != nil:
		m.moveOverview(l, queue.Choose(i == 0, -1<<20, 1<<20))
	case l.page != nil:
		l.scrollTo(i, m.pageRows(l))
	default:
		l.grid.place(i, m.rows)
		return m.more()
	}
	return nil
}

// position returns where the cursor of the level or the scroll offset of its
// page is. Two calls return different values if a key moved something in
// between.
func (l *level) position() [2]any {
	if l.board != nil {
		return [2]any{l.target, l.armed}
	}
	return [2]any{[2]int{l.offset, l.grid.cursor}, l.grid.gone}
}

// sayStuck says in the status line why a key moved nothing. was is the
// position before the key; if it has changed, sayStuck does nothing.
func (m *deck) sayStuck(l *level, down bool, was [2]any) {
	switch {
	case l.position() != was:
	case l.page != nil && len(l.built.Lines) <= m.pageRows(l):
		m.inform("this is the whole page")
	case l.page != nil:
		m.inform(queue.Choose(down, "this is the end of the page", "this is the top of the page"))
	case l.table != nil && len(l.grid.order) == 0, l.board != nil && len(m.rowsOfBoard(l)) == 0:
		m.inform("there are no rows to move to")
	case down && l.list.page.Next != "":
		m.inform(m.moreComing())
	case down && l.list.join == nil && l.list.unread() > 0:
		m.inform(m.atLeast(l.list.page.TotalBound) + views.Plural(l.list.unread(), "more row is", "more rows are") + " not read; / filters")
	case down && l.grid.src.Second.AtLeast > 0:
		m.inform("this is the last row that is read under " + l.grid.src.Second.Heading())
	default:
		m.inform(queue.Choose(down, "this is the last row", "this is the first row"))
	}
}

func (m *deck) moreComing() string { return "more rows are being read" + m.display.theme.G.Ellipsis }

func (m *deck) moveOverview(l *level, d int) {
	board := l.board(m.scene(), m.body(), l.cursor)
	targets := board.Targets
	if len(targets) == 0 {
		return
	}
	at := l.place
	if i := slices.Index(targets, l.cursor); i >= 0 {
		at = i
	}
	m.placeOnBoard(l, board, min(max(at+d, 0), len(targets)-1))
}

// placeOnBoard puts the cursor on a row of the drawn Overview; drawing it again would double the cost of the key.
func (m *deck) placeOnBoard(l *level, board views.OverviewView, row int) {
	l.place, l.target, l.cursor, l.moved = row, board.Targets[row], board.Targets[row], true
	m.settleOn(l, board)
}

// selectKey handles space, v and ctrl+a.
func (m *deck) selectKey(k string) tea.Cmd {
	g := &m.pane().top().grid
	if g.selected == nil {
		m.warn("select rows in " + m.selectablePanes() + "; here a key acts on the row under the cursor")
		return nil
	}
	if g.all && k != "ctrl+a" {
		m.warn("all " + m.totalWords(m.pane().top()) + " matching rows are selected; esc clears the selection")
		return nil
	}
	if i, ok := g.current(); ok && k != "ctrl+a" && !g.selectable(i) {
		also := ""
		if n := m.pane().nested; n != nil {
			also = "; " + n.what() + " after enter"
		}
		m.warn("only rows under " + g.src.Second.Heading() + " can be selected" + also)
		return nil
	}
	if len(g.order) == 0 {
		m.warn("there are no rows to select")
		return nil
	}
	if g.gone && k != "ctrl+a" {
		m.warn(m.pane().top().moveFirst())
		return nil
	}
	switch k {
	case "space":
		if g.toggle() {
			g.move(1, m.rows)
			return m.more()
		}
	case "v":
		g.toggleRange()
	case "ctrl+a":
		g.selectAll(m.pane().top().list.takesAll())
		m.informSelected()
	}
	return nil
}

// informSelected shows how many rows are selected.
func (m *deck) informSelected() {
	l := m.pane().top()
	n := int64(len(l.grid.selectedIDs()))
	switch {
	case l.grid.all:
		m.inform("all " + m.totalWords(l) + " matching rows selected")
	case l.list.byFilter && l.list.page.Total > n && !l.list.takesAll():
		m.inform(views.Count(n) + " selected; all " + m.totalWords(l) + " need a filter: press / first")
	case l.list.byFilter && l.list.page.Total > n:
		m.inform(views.Count(n) + " selected; ctrl+a again selects all " + m.totalWords(l) + " matching rows")
	default:
		m.inform(views.Count(n) + " selected")
	}
}

// totalWords returns the number of matching rows as text, with ≥ if the
// database stopped counting at its limit.
func (m *deck) totalWords(l *level) string {
	return m.atLeast(l.list.page.TotalBound) + views.Count(l.list.page.Total)
}

// atLeast returns the sign in front of a number that may be greater, or "".
func (m *deck) atLeast(bound bool) string { return queue.Choose(bound, m.display.theme.G.AtLeast, "") }

// selectablePanes returns the names of the panes in which rows can be selected.
func (m *deck) selectablePanes() string {
	var names []string
	for _, p := range Panes() {
		if m.panes[p.ID].selectable {
			names = append(names, p.Title+" ("+p.Keys+")")
		}
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
