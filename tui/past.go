package tui

// This file is looking back: a picture that was kept stands in place of the live
// one. It is a pause, so nothing is read by the clock and no action works; what
// the picture does not hold stays as it was last read, and the screen says so.

import (
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// travel goes so many kept pictures back or forward. Keys that come while one is
// being read add up.
func (m *deck) travel(steps int) tea.Cmd {
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
	return m.readPast(f.past.trip, f.picture.TakenAt, steps)
}

// travelTo goes to the picture of a time that was typed.
func (m *deck) travelTo(text string) tea.Cmd {
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
	return m.readPast(f.past.trip, at, 0)
}

// arrived shows a kept picture, or says why there is none.
func (m *deck) arrived(msg pastMsg) tea.Cmd {
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

// pause freezes the picture; going on, also from the past, reads a fresh one at once.
func (m *deck) pause() tea.Cmd {
	m.feed.paused = !m.feed.paused
	m.feed.returned()
	if m.feed.paused {
		m.mask()
		m.settle()
		m.tell("paused: the picture stands and every action is off; p goes on")
		return nil
	}
	m.said = notice{}
	m.stamp++
	m.settle()
	return tea.Batch(append(m.reread(true), m.refresh())...)
}
