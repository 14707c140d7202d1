package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// quitDialog is the overlay that asks what to do with the claimed work before quitting.
type quitDialog struct {
	now   func() localWork // may change while the dialog is open
	focus int
	gate  keyGate
}

// localWork is what the loops of this process do.
type localWork struct {
	loops, inFlight int
	only            []string // those of the loops that no other live host runs
}

func (q *quitDialog) update(msg tea.Msg, at overlayContext) (overlay, effect) {
	key := pressed(msg)
	switch {
	case key == "esc":
		return nil, nil
	case key == "" || !q.gate.allows(at.now):
		return q, nil
	}
	switch key {
	case "q":
		return nil, nil
	case "tab", "right", "l", "down", "j":
		q.focus = (q.focus + 1) % 3
	case "shift+tab", "left", "h", "up", "k":
		q.focus = (q.focus + 2) % 3
	case "enter":
		return nil, []effect{nil, effShutdown{shutdownDrain}, effShutdown{shutdownHandBack}}[q.focus]
	}
	return q, nil
}

func (q *quitDialog) lines(at overlayContext) []string {
	w := q.now()
	intro := []string{
		fmt.Sprintf("Loops running in this process: %d. Items in flight: %d.", w.loops, w.inFlight),
		"Draining finishes the claimed work and claims nothing new. Handing back stops at once and returns the claimed work; other hosts claim it at their next poll.",
	}
	if one := len(w.only) == 1; len(w.only) > 0 {
		intro = append(intro, "No other live host runs "+firstFew(w.only)+": what "+queue.Choose(one, "it does", "they do")+" waits until one runs "+queue.Choose(one, "it", "them")+".")
	}
	d := views.Dialog{
		Title: "Quit?", Intro: intro,
		Buttons: []string{"Stay", "Drain and quit", "Hand back and quit"}, Focus: q.focus,
		Quiet: q.gate.closed(at.now), Hint: "tab moves to the other buttons, enter presses the button",
	}
	return d.Lines(at.env, at.size)
}

// drainDialog is the overlay shown during a drain, with the number of jobs and
// requests that still run. Only ctrl+c ends the drain early.
type drainDialog struct{ now func() localWork }

func (d *drainDialog) update(tea.Msg, overlayContext) (overlay, effect) { return d, nil }

func (d *drainDialog) lines(at overlayContext) []string {
	return views.Dialog{
		Title:    "Draining",
		Intro:    []string{"The loops finish the claimed work and claim nothing new."},
		Progress: fmt.Sprintf("%d in flight", d.now().inFlight),
		Hint:     "ctrl+c hands back the rest at once and quits",
	}.Lines(at.env, at.size)
}

type shutdownMode int

// shutdownState says how far quitting is.
type shutdownState struct {
	draining bool // loops are being drained or stopped
	forced   bool // claimed work is returned to the queue without waiting for it
}

const (
	shutdownDrain shutdownMode = iota
	shutdownHandBack
)
