package tui

// This file reads lists: on opening, when the screen has scrolled near their
// end, and again when the picture changed while only the first page is loaded.

import (
	"context"
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
func (m *deck) read(l *level) tea.Cmd {
	if !l.list.asks() || l.list.reading != 0 {
		return nil
	}
	q := l.list.query
	q.After, q.Limit = "", min(max(l.list.rows(), pageRows), rereadMax)
	l.list.query, l.list.readAt = q, m.o.Now()
	return m.startRead(l, q, false)
}

// startRead begins the one read that a level may have; it ends with the level.
func (m *deck) startRead(l *level, q queue.Query, more bool) tea.Cmd {
	m.serial++
	ctx, stop := context.WithTimeout(m.ctx, listDeadline)
	l.list.reading, l.list.stop = m.serial, stop
	return m.readList(ctx, m.serial, q, more)
}

// reread reads the open list again when it is due; now asks for it at once.
func (m *deck) reread(now bool) []tea.Cmd {
	p := m.pane()
	l := p.top()
	if !l.list.asks() || l.list.reading != 0 || m.feed.paused || m.feed.lost() || l.list.rows() > rereadMax {
		return nil
	}
	gap := queue.Choose(p.often, 0, rereadGap)
	if !now && m.o.Now().Sub(l.list.readAt) < max(gap, m.feed.interval()) {
		return nil
	}
	return []tea.Cmd{m.read(l)}
}

// more reads the following page when the cursor nears the end of what is loaded.
func (m *deck) more() tea.Cmd {
	l := m.pane().top()
	if l.list.reading != 0 || l.list.page.Next == "" || l.page != nil || l.grid.cursor < len(l.grid.order)-50 {
		return nil
	}
	q := l.list.query
	q.After, q.Limit = l.list.page.Next, pageRows
	return m.startRead(l, q, true)
}

// paged takes a list in for the level that asked, if it still waits for it.
func (m *deck) paged(msg pageMsg) {
	for _, p := range m.panes {
		for i := range p.levels {
			l := &p.levels[i]
			if msg.read == 0 || l.list.reading != msg.read {
				continue
			}
			l.list.end()
			if l.list.err = msg.err; msg.err == nil {
				l.list.take(msg.page, msg.more)
			}
			m.stamp++
			m.settle()
		}
	}
}
