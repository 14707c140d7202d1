package tui

// This file is a revealed payload: it stands on the page it was asked for, counts
// down, and is masked again after its time, when the page is left, and when the
// picture is paused. It is kept nowhere else.

import (
	"math"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// shown is the payload of a page: the revealed one and the seconds it has left, or
// as it came.
func (l *level) shown(now time.Time, masked, whyNot queue.Text) (queue.Text, queue.Text, int) {
	left := int(math.Ceil(l.revealedUntil.Sub(now).Seconds()))
	if l.revealed.Empty() || left <= 0 {
		return masked, whyNot, 0
	}
	return l.revealed, queue.Text{}, left
}

// reveal puts what was revealed on its page, if that is still the open one.
func (m *deck) reveal(r queue.Result) {
	l := m.pane().top()
	if l.page == nil || len(r.Results) != 1 || r.Results[0].ID != l.id || m.feed.paused {
		m.warn("its page was left before the payload came: it is not shown; open it and ask again")
		return
	}
	l.revealed, l.revealedUntil = r.Payload, m.o.Now().Add(queue.RevealFor)
	m.stamp++
	m.settle()
	for i, line := range l.built.Lines {
		if views.Contains(line, "UNMASKED") {
			l.scrollTo(i-1, m.body().H)
		}
	}
}

// mask hides again what was revealed anywhere.
func (m *deck) mask() {
	for _, p := range m.panes {
		for i := range p.levels {
			if l := &p.levels[i]; !l.revealed.Empty() {
				l.revealed, l.revealedUntil, l.built, l.stamp = queue.Text{}, time.Time{}, views.Page{}, 0
				m.stamp++
			}
		}
	}
}

// countDown takes a second off a revealed payload, or masks it.
func (m *deck) countDown(now time.Time) {
	l := m.pane().top()
	switch {
	case l.revealed.Empty():
		return
	case !now.Before(l.revealedUntil):
		m.mask()
		m.tell("masked again")
	default:
		m.stamp++
	}
	m.settle()
}
