package tui

// Keys [ and ] show the past: a snapshot that the database stored within the
// last 24 hours, instead of the live one. As in a pause, nothing is read
// automatically and no action works. Lists that are not part of a snapshot
// keep the rows of their last read, and a banner reports that.

import (
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// travel goes steps stored snapshots forward, or back if steps is negative.
// Steps requested during a read are added up and made when it has ended.
func (m *deck) travel(steps int) tea.Cmd {
	f := &m.feed
	switch {
	case f.snapshot == nil:
		m.warnWhile("no snapshot has been read yet", func() bool { return f.snapshot == nil })
		return nil
	case f.past.asking:
		f.past.steps += steps
		return nil
	case f.past.live == nil && steps > 0 && f.paused:
		m.inform("paused at the last snapshot that was read; p resumes, [ goes back")
		return nil
	case f.past.live == nil && steps > 0:
		m.inform("already at the live snapshot; [ goes back")
		return nil
	}
	f.past.asking = true
	return m.readPast(f.past.visit, f.snapshot.TakenAt, steps)
}

// travelTo goes to the stored snapshot of a typed time; "now" returns to the live one.
func (m *deck) travelTo(text string) tea.Cmd {
	f := &m.feed
	if text == "now" || text == "" {
		if f.past.live == nil && !f.paused {
			f.backToLive() // drops a read that [ has started
			m.inform("already at the live snapshot")
			return nil
		}
		return m.pause()
	}
	if f.snapshot == nil {
		m.warnWhile("no snapshot has been read yet", func() bool { return f.snapshot == nil })
		return nil
	}
	at, ok := queue.ParseWhen(text, m.serverNow(), m.env().Loc)
	if !ok {
		m.warn(":at needs a time such as 02:14, 45m or 2026-01-31T02:14, not " + text)
		return nil
	}
	f.past.steps, f.past.asking = 0, true
	f.past.visit++ // if another stored snapshot is being read, its answer is dropped, even if it comes later
	return m.readPast(f.past.visit, at, 0)
}

// arrived shows the stored snapshot that was read, or says why there is none.
// If the operator has returned to the present or asked for another time
// meanwhile, it drops the answer.
func (m *deck) arrived(msg pastMsg) tea.Cmd {
	f := &m.feed
	if msg.visit != f.past.visit {
		return nil
	}
	steps := f.past.steps
	f.past.asking, f.past.steps = false, 0
	switch {
	case msg.err != nil:
		m.warn("cannot read the stored snapshot: " + why(msg.err))
		return nil
	case f.past.live == nil && msg.steps < 0 && msg.steps+steps >= 0: // [ and, before the answer, ] as often
		m.inform("at the live snapshot again; [ goes back")
		return nil
	case msg.snapshot.TakenAt.IsZero() && msg.steps > 0:
		back := m.pause()
		if steps < 0 {
			f.past.asking = true
			back = tea.Batch(back, m.readPast(f.past.visit, m.serverNow(), steps))
		}
		return back
	case msg.snapshot.TakenAt.IsZero() && msg.first.IsZero():
		m.warn("no snapshot is stored yet; the tick worker metrics_sampler stores one per minute")
		return nil
	case msg.snapshot.TakenAt.IsZero():
		m.warn("no earlier snapshot is stored; the oldest is from " + m.env().Stamp(msg.first))
		if steps > 0 && f.past.live != nil {
			return m.travel(steps)
		}
		return nil
	}
	if f.past.live == nil {
		f.past.live, f.past.liveAt = f.snapshot, f.received
		m.mask()
	}
	f.paused, f.snapshot = true, &msg.snapshot
	m.notice = notice{}
	m.revision++
	m.settle()
	if steps != 0 {
		return m.travel(steps)
	}
	return nil
}

// pause stops the refreshes, so that the screen stays as it is. If they are
// stopped already, or a stored snapshot is shown, it returns to the present
// and reads a new snapshot at once.
func (m *deck) pause() tea.Cmd {
	m.feed.paused = !m.feed.paused
	m.feed.backToLive()
	if m.feed.paused {
		m.mask()
		m.settle()
		m.inform("paused: the snapshot is frozen and all actions are off; p resumes")
		return nil
	}
	m.notice = notice{}
	m.revision++
	m.settle()
	return tea.Batch(append(m.reread(true), m.refresh(fresh))...)
}
