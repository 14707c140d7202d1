package tui

// This file is looking back: a picture that was kept stands in place of the live
// one. It is a pause, so nothing is read by the clock and no action works; what
// the picture does not hold stays as it was last read, and the screen says so.

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// past is where one is in time.
type past struct {
	live   *queue.Snapshot // the picture to go back to; nil: one is not in the past
	liveAt time.Time       // when that was received
	steps  int             // asked for while a picture is being read
	asking bool
	trip   int // changes on going back to now, so that what comes late is dropped
}

// returned goes back to the live picture, if one is in the past.
func (f *feed) returned() {
	if f.past.live != nil {
		f.picture, f.received = f.past.live, f.past.liveAt
	}
	f.past = past{trip: f.past.trip + 1}
}

// travel goes so many kept pictures back or forward. Keys that come while one is
// being read add up.
func (m *root) travel(steps int) tea.Cmd {
	f := &m.feed
	switch {
	case f.picture == nil:
		m.warn("there is no picture yet to go back from")
		return nil
	case f.past.live == nil && steps > 0:
		m.tell("this is now; [ goes back")
		return nil
	case f.past.asking:
		f.past.steps += steps
		return nil
	}
	f.past.asking = true
	return m.readPast(f.picture.TakenAt, steps)
}

// travelTo goes to the picture of a time that was typed.
func (m *root) travelTo(text string) tea.Cmd {
	f := &m.feed
	if text == "now" || text == "" {
		if f.past.live == nil {
			m.tell("this is now")
			return nil
		}
		return m.pause()
	}
	if f.picture == nil {
		m.warn("there is no picture yet to go back from")
		return nil
	}
	at, ok := queue.ParseWhen(text, m.serverNow(), m.env().Loc)
	if !ok {
		m.warn(":at takes a time such as 02:14, 45m or 2026-01-31T02:14, not " + text)
		return nil
	}
	f.past.steps, f.past.asking = 0, true
	return m.readPast(at, 0)
}

// arrived shows a kept picture, or says why there is none.
func (m *root) arrived(msg pastMsg) tea.Cmd {
	f := &m.feed
	if msg.trip != f.past.trip {
		return nil
	}
	steps := f.past.steps
	f.past.asking, f.past.steps = false, 0
	switch {
	case msg.err != nil:
		m.warn("the past could not be read: " + why(msg.err))
		return nil
	case msg.picture.TakenAt.IsZero() && msg.steps > 0:
		return m.pause()
	case msg.picture.TakenAt.IsZero() && msg.first.IsZero():
		m.warn("no picture is kept yet; metrics_sampler keeps one a minute")
		return nil
	case msg.picture.TakenAt.IsZero():
		m.warn("no earlier picture is kept; the oldest is of " + m.env().Stamp(msg.first))
		return nil
	}
	if f.past.live == nil {
		f.past.live, f.past.liveAt = f.picture, f.received
		m.mask()
	}
	f.paused, f.picture = true, &msg.picture
	m.said = notice{}
	m.stamp++
	m.settle()
	if steps != 0 {
		return m.travel(steps)
	}
	return nil
}

// serverNow is the server's time as far as the last live picture tells.
func (m *root) serverNow() time.Time {
	live, at := m.feed.past.live, m.feed.past.liveAt
	if live == nil {
		live, at = m.feed.picture, m.feed.received
	}
	return live.TakenAt.Add(m.o.Now().Sub(at))
}

// pastAge is how long ago the picture was taken that one looks back at.
func (m *root) pastAge() time.Duration {
	if m.feed.past.live == nil {
		return 0
	}
	return max(m.serverNow().Sub(m.feed.picture.TakenAt), time.Second)
}

// pastClock is when it was taken, with the day where that is another.
func (m *root) pastClock() string {
	e := m.env()
	at := m.feed.picture.TakenAt.In(e.Loc)
	if now := m.serverNow().In(e.Loc); at.YearDay() != now.YearDay() {
		return at.Format("01-02 15:04:05")
	}
	return at.Format("15:04:05")
}

func (m *root) pastWords() string {
	dot := " " + m.look.theme.G.Dot + " "
	text := m.pastClock() + ", " + views.Age(int64(m.pastAge().Seconds())) + " ago" + dot
	if p := m.pane(); p.top().list.asks() || p.here {
		return text + "but this list is as last read" + dot + "p now"
	}
	return text + "[ ] back and forward" + dot + "p now" + dot + "actions off"
}
