package tui

// How the filter of a level is applied and cleared, and how n finds the next match
// (key n).

import (
	"errors"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// setFilter applies text to the open level. On a page it is a search text. In
// a list that the database reads it becomes part of the query. In a table of
// the snapshot it hides the rows that do not match. Times without a zone are those that the screen
// shows.
func (m *deck) setFilter(text string) tea.Cmd {
	l := m.pane().top()
	text = strings.TrimSpace(text)
	if l.page != nil {
		l.find = text
		if text != "" {
			m.findFrom(l, l.offset)
		}
		return nil
	}
	return m.applyFilter(queue.AbsoluteTimes(text, l.grid.src.Fields, m.serverNow(), m.env().Loc))
}

// applyFilter applies a filter whose times without a zone are UTC to the open level, which is a table.
func (m *deck) applyFilter(text string) tea.Cmd {
	l := m.pane().top()
	changed := l.refilter(text)
	if l.list.queried() {
		if changed {
			l.grid.toFirst()
			m.settle()
			return m.read(l)
		}
		return nil
	}
	if text != "" {
		f, err := queue.ParseFilter(text, l.grid.src.Fields)
		if err != nil {
			_, problem := filterProblem(err)
			m.warn("filter: " + problem)
			l.refilter("")
			return nil
		}
		l.grid.filter = f
	}
	m.settle()
	if l.grid.gone { // the filter hides the row under the cursor: go to the first row
		l.grid.toFirst()
		m.settle()
	}
	return nil
}

// refilter gives a table another filter and reports whether it had a different one. Everything
// that changes or drops a filter calls it: "all that match" and an open range would otherwise stand
// for rows that the operator has not seen. Single selected rows stay selected; actions skip those
// that the filter hides, and dialogs count them. A list of the database has no rows until it is
// read again.
func (l *level) refilter(text string) bool {
	if l.grid.text == text {
		return false
	}
	l.grid.text, l.grid.filter = text, nil
	l.grid.all = false
	l.grid.endRange()
	if l.list.queried() {
		l.list.refilter(text)
	}
	return true
}

// nextMatch handles n: it goes to the next line of a page that contains the search text,
// or to the next row of a filtered table.
func (m *deck) nextMatch() tea.Cmd {
	l := m.pane().top()
	switch {
	case l.page != nil && l.find != "":
		from := l.offset + 1
		if l.found >= l.offset && l.found < l.offset+m.pageRows(l) { // visible, perhaps not as the first line
			from = l.found + 1
		}
		m.findFrom(l, from)
	case l.page != nil || l.grid.text == "":
		m.warn("no search text is set; / sets one")
	case l.grid.cursor == len(l.grid.order)-1 && l.list.page.Next != "":
		m.inform(m.moreComing())
		return m.more()
	default:
		l.grid.next(func(int) bool { return true }, m.rows)
		return m.more()
	}
	return nil
}

// findFrom scrolls a page to the first line at or after from that contains the
// search text. After the last line it goes on with the first.
func (m *deck) findFrom(l *level, from int) {
	lines := l.built.Lines
	for d := range lines {
		i := (from + d) % len(lines)
		if l.built.Has(i, l.find) {
			l.found = i
			l.scrollTo(i, m.pageRows(l))
			return
		}
	}
	m.warn("no line contains " + l.find)
}

// filterProblem returns the column (from 1) at which a filter is wrong, and
// the text of the error.
func filterProblem(err error) (column int, text string) {
	var fe *queue.FilterError
	if !errors.As(err, &fe) {
		return 1, why(err)
	}
	text = clean(fe.What)
	if do := clean(fe.Do); do != "" {
		text += "; " + do
	}
	return max(fe.Column, 1), text
}
