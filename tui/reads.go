package tui

// When lists are read: when a level opens; when the cursor
// comes near the end of the loaded rows; after an action; and again at
// intervals, while at most rereadMax rows are loaded. A page may also need the
// list of the level below: then both are read in turn, never at once.

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

const (
	pageRows  = 200
	rereadMax = 1000 // a list with more loaded rows is read again only after an action of this console, to spare the database
	rereadGap = 5 * time.Second
)

// read reads the list of a level from its beginning, as many rows as are
// loaded (at least one page), and a page more than it takes to have the
// selected rows: rows that come before these must not push them out.
func (m *deck) read(l *level) tea.Cmd {
	if !l.list.queried() || l.list.reading != 0 {
		return nil
	}
	q := l.list.query
	most := queue.Choose(l.list.acted, queue.MostPage, rereadMax)
	q.After, q.Limit = "", min(max(l.list.rows(), pageRows, l.list.least), most)
	if n := l.grid.lastSelected(); n >= 0 && l.list.join != nil {
		q.Limit = max(q.Limit, min(n+1+pageRows, most))
	}
	l.list.query, l.list.readAt = q, m.o.Now()
	return m.startRead(l, q, false)
}

// startRead starts a read for a level, which must have none in progress.
// Leaving the level cancels the read. more is true for a further page.
func (m *deck) startRead(l *level, q queue.Query, more bool) tea.Cmd {
	m.serial++
	ctx, stop := context.WithTimeout(m.ctx, listDeadline)
	l.list.reading, l.list.stop = m.serial, stop
	return m.readList(ctx, m.serial, q, more)
}

// shown returns the levels whose lists level i of the pane shows: itself and, for a page that shows
// its row as the level below has it, that level.
func (p *pane) shown(i int) []*level {
	if i > 0 && p.levels[i].rowBelow {
		return append(p.shown(i-1), &p.levels[i])
	}
	return []*level{&p.levels[i]}
}

// needed returns the levels whose lists are read while the pane is open: those that the open level
// shows and, on the page of :why, those that show the row on which its keys work.
func (p *pane) needed() []*level {
	i := len(p.levels) - 1
	if i > 0 && p.levels[i].isWhy && p.rowBehindWhy {
		return append(p.shown(i-1), p.shown(i)...)
	}
	return p.shown(i)
}

// fromList reports whether level i of the pane shows rows that were read with a query, not rows of
// the snapshot. A page without a list shows a row of the level below.
func (p *pane) fromList(i int) bool {
	if l := &p.levels[i]; i == 0 || l.list.queried() && !l.rowBelow {
		return l.list.queried()
	}
	return p.fromList(i - 1)
}

// reread reads the list again that the open level needs and that was read longest ago, if the
// interval since then is over, or if now is true.
func (m *deck) reread(now bool) []tea.Cmd {
	p := m.pane()
	if m.feed.paused || m.feed.lost() || !now && m.feed.reading() {
		return nil // when that read ends, rested calls reread again: so one connection is enough for both
	}
	var due *level
	for _, l := range p.needed() {
		if l.list.reading != 0 {
			return nil
		}
		if l.list.queried() && !l.list.tooLong() && (due == nil || l.list.readAt.Before(due.list.readAt)) {
			due = l
		}
	}
	if due == nil {
		return nil
	}
	gap := queue.Choose(p.rereadOften && due.list.rows() <= pageRows, 0, rereadGap)
	if !now && m.o.Now().Sub(due.list.readAt) < max(gap, m.feed.interval()) {
		return nil
	}
	return []tea.Cmd{m.read(due)}
}

// readActed reads the lists of the open level after an action of this console, the second one with the
// next heartbeat. It marks every list, so that those that are not open are read when they are opened. A
// read that began before the action is given up: its rows may not have the change.
func (m *deck) readActed() []tea.Cmd {
	for _, p := range m.panes {
		p.cancelReads()
		for i := range p.levels {
			p.levels[i].list.acted, p.levels[i].list.readAt = true, time.Time{}
		}
	}
	return m.reread(true)
}

// cancelReads cancels the reads of all levels of the pane.
func (p *pane) cancelReads() {
	for i := range p.levels {
		p.levels[i].list.cancel()
	}
}

// behind returns the list that the open level shows and that is much older than the snapshot: it was
// not read since its pane was left, or its reads take long or fail. nil: there is none.
func (m *deck) behind() *list {
	p := m.pane()
	for _, l := range p.shown(len(p.levels) - 1) {
		if l.list.queried() && l.list.read && m.feed.received.Sub(l.list.asOf) > 2*max(rereadGap, m.feed.interval())+2*time.Second {
			return &l.list
		}
	}
	return nil
}

// tooLong reports whether the list is not read again by itself.
func (l *list) tooLong() bool { return l.rows() > rereadMax && !l.acted }

// more reads the next page when the cursor is within 50 rows of the end of the loaded rows.
func (m *deck) more() tea.Cmd {
	l := m.pane().top()
	if l.list.reading != 0 || l.list.page.Next == "" || l.page != nil || l.grid.cursor < len(l.grid.order)-50 {
		return nil
	}
	q := l.list.query
	q.After, q.Limit = l.list.page.Next, pageRows
	return m.startRead(l, q, true)
}

// paged stores a page in the level that waits for this read, if it is still
// open.
func (m *deck) paged(msg pageMsg) {
	for _, p := range m.panes {
		for i := range p.levels {
			l := &p.levels[i]
			if msg.read == 0 || l.list.reading != msg.read {
				continue
			}
			l.list.cancel()
			l.list.further = msg.more
			if l.list.err = msg.err; msg.err == nil {
				l.list.add(msg.page, msg.more)
			}
			if msg.err == nil && !msg.more {
				l.list.acted, l.list.asOf = false, l.list.readAt
			}
			m.revision++
			m.settle()
		}
	}
}
