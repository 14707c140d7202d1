package tui

// This file reads lists: on opening, when the screen has scrolled near their
// end, and again when the picture changed while only the first page is loaded.

import (
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

const (
	pageRows  = 200
	rereadMax = 1000 // beyond this a list is not read again by itself
	rereadGap = 5 * time.Second
)

// read asks for a level's list from its beginning.
func (m *root) read(l *level) tea.Cmd {
	if l.list.query.Kind == "" || l.list.loading {
		return nil
	}
	l.list.loading = true
	q := l.list.query
	q.After, q.Limit = "", min(max(l.list.rows(), pageRows), rereadMax)
	l.list.query = q
	m.readAt(l)
	return m.readList(l.serial, q, false)
}

// readAt remembers when, so that a level is not read again too soon.
func (m *root) readAt(l *level) { m.reads[l.serial] = m.o.Now() }

// reread reads the open list again when it is due; now asks for it at once.
func (m *root) reread(now bool) []tea.Cmd {
	l := m.pane().top()
	if l.list.query.Kind == "" || l.list.loading || m.feed.paused || m.feed.lost() || l.list.rows() > rereadMax {
		return nil
	}
	gap := rereadGap
	if m.at == queue.PaneOps || m.at == queue.PaneWebhooks || m.at == queue.PaneNotify { // few rows, and their progress is what one looks for
		gap = 0
	}
	if !now && m.o.Now().Sub(m.reads[l.serial]) < max(gap, m.feed.interval()) {
		return nil
	}
	return []tea.Cmd{m.read(l)}
}

// more reads the following page when the cursor nears the end of what is loaded.
func (m *root) more() tea.Cmd {
	l := m.pane().top()
	if l.list.loading || l.list.page.Next == "" || l.kind == kindPage || l.grid.cursor < len(l.grid.order)-50 {
		return nil
	}
	l.list.loading = true
	q := l.list.query
	q.After, q.Limit = l.list.page.Next, pageRows
	return m.readList(l.serial, q, true)
}

// refilter is the filter of a list: what the level brings and what was typed.
func (l *list) refilter(typed string) {
	l.query.Filter = strings.TrimSpace(l.base + " " + typed)
	l.read, l.loading, l.page = false, false, queue.Page{}
}
