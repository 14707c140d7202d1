package tui

// This file is how the console is left: at once where no loop runs here, else
// only after its operator has said what becomes of the work.

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
)

type leaveHow int

const (
	leaveDrain leaveHow = iota
	leaveHandBack
)

// leaving is where a quit has got to.
type leaving struct {
	draining bool
	forced   bool
}

// running tells whether loops run in this process.
func (m *root) running() bool { return m.host != nil && m.local != nil && m.local.Running }

func (m *root) quit() tea.Cmd {
	if !m.running() {
		return m.exit()
	}
	m.raise(&quitter{loops: m.running1(), inFlight: m.local.InFlight, gate: newGate(m.o.Now())})
	return later(quietFor, armMsg{})
}

func (m *root) running1() (n int) {
	for _, l := range m.local.Loops {
		if l.State == "running" || l.State == "draining" {
			n++
		}
	}
	return n
}

func (m *root) exit() tea.Cmd {
	m.cancel()
	return tea.Quit
}

// interrupt is ctrl+c: once drains, twice hands back at once.
func (m *root) interrupt() tea.Cmd {
	switch {
	case m.leave.forced:
		return m.exit()
	case m.leave.draining:
		m.leave.forced = true
		return m.handBack()
	case !m.running():
		return m.exit()
	}
	return m.leaveNow(leaveDrain)
}

func (m *root) leaveNow(how leaveHow) tea.Cmd {
	m.leave.draining = true
	m.over = []overlay{&drainer{m: func() int {
		if m.local == nil {
			return 0
		}
		return m.local.InFlight
	}}}
	if how == leaveHandBack {
		m.leave.forced = true
		return m.handBack()
	}
	return m.drainAll()
}

func (m *root) drained(msg drainedMsg) tea.Cmd {
	if msg.err != nil && !m.leave.forced {
		m.leave.forced = true
		return m.handBack()
	}
	return m.exit()
}

// suspend would freeze the loops with the console: their leases would run out.
func (m *root) suspend() tea.Cmd {
	m.mask()
	m.settle()
	if m.running() {
		m.warn("ctrl+z is off: loops run in this process and would freeze; gw stops them")
		return nil
	}
	return tea.Suspend
}

// quitter asks what becomes of the work of this process.
type quitter struct {
	loops, inFlight int
	focus           int
	gate            gate
}

func (q *quitter) update(msg tea.Msg, at place) (overlay, effect) {
	k, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return q, nil
	}
	if k.String() == "esc" {
		return nil, nil
	}
	if !q.gate.passes(at.now) {
		return q, nil
	}
	switch k.String() {
	case "q":
		return nil, nil
	case "tab", "right", "l", "down", "j":
		q.focus = (q.focus + 1) % 3
	case "shift+tab", "left", "h", "up", "k":
		q.focus = (q.focus + 2) % 3
	case "enter":
		switch q.focus {
		case 0:
			return nil, nil
		case 1:
			return nil, effLeave{leaveDrain}
		default:
			return nil, effLeave{leaveHandBack}
		}
	}
	return q, nil
}

func (q *quitter) lines(at place) []string {
	d := views.Dialog{
		Title: "Quit?",
		Intro: []string{
			fmt.Sprintf("%d of this process's loops run, with %d in flight.", q.loops, q.inFlight),
			"Draining lets them finish and takes nothing new. Handing back stops at once; other hosts take the work over at their next poll.",
		},
		Buttons: []string{"Stay", "Drain and quit", "Hand back and quit"}, Focus: q.focus,
		Quiet: q.gate.waits(at.now), Hint: "tab goes to the other buttons, enter presses",
	}
	return d.Lines(at.env, at.size)
}

// drainer shows that the loops are ending; only ctrl+c hurries them.
type drainer struct{ m func() int }

func (d *drainer) update(tea.Msg, place) (overlay, effect) { return d, nil }

func (d *drainer) lines(at place) []string {
	return views.Dialog{
		Title:    "Draining",
		Intro:    []string{"The loops finish what they have and take nothing new."},
		Progress: fmt.Sprintf("%d in flight", d.m()),
		Hint:     "ctrl+c hands the rest back at once and quits",
	}.Lines(at.env, at.size)
}
