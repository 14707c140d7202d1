package tui

// A payload may contain personal data, so it is masked until the operator
// reveals it (key V). The console keeps a revealed payload only in the level
// whose page requested it, and masks it again when its time is over, when the
// page is left, and when the console is paused.

import (
	"math"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// shown returns what the page draws: the payload, the reason why there is
// none, and the seconds until a revealed payload is masked again (0: it is
// masked). masked and whyNot are the first two values for a payload that is
// not revealed.
func (l *level) shown(now time.Time, masked, whyNot queue.Text) (queue.Text, queue.Text, int) {
	left := int(math.Ceil(l.revealedUntil.Sub(now).Seconds()))
	if l.revealed.Empty() || left <= 0 {
		return masked, whyNot, 0
	}
	return l.revealed, queue.Text{}, left
}

// reveal shows the payload that the action returned, if the page that
// requested it is still open.
func (m *deck) reveal(r queue.Result) {
	l := m.pane().top()
	if l.page == nil || len(r.Results) != 1 || r.Results[0].ID != l.id || m.feed.paused {
		m.warn("payload not shown: its page was closed before the payload arrived; open the page and press V again")
		return
	}
	l.revealed, l.revealedUntil = r.Payload, m.o.Now().Add(queue.RevealFor)
	m.revision++
	m.settle()
	if i := slices.IndexFunc(l.built.Lines, func(line string) bool { return views.Contains(line, "UNMASKED: masked again in") }); i >= 0 {
		l.scrollTo(i-1, m.pageRows(l))
	}
}

// mask drops every revealed payload.
func (m *deck) mask() {
	for _, p := range m.panes {
		for i := range p.levels {
			if l := &p.levels[i]; !l.revealed.Empty() {
				l.revealed, l.revealedUntil, l.built, l.revision = queue.Text{}, time.Time{}, views.Page{}, 0
				m.revision++
			}
		}
	}
}

// countDown redraws the remaining time of a revealed payload, or masks the
// payload when the time is over.
func (m *deck) countDown(now time.Time) {
	l := m.pane().top()
	switch {
	case l.revealed.Empty():
		return
	case !now.Before(l.revealedUntil):
		m.mask()
		m.inform("payload masked again")
	default:
		m.revision++
	}
	m.settle()
}
