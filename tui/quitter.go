package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
)

// quitter asks what becomes of the work of this process.
type quitter struct {
	loops, inFlight int
	focus           int
	gate            gate
}

func (q *quitter) update(msg tea.Msg, at place) (overlay, effect) {
	key := pressed(msg)
	switch {
	case key == "esc":
		return nil, nil
	case key == "" || !q.gate.passes(at.now):
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
		return nil, []effect{nil, effLeave{leaveDrain}, effLeave{leaveHandBack}}[q.focus]
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

type leaveHow int

// leaving is where a quit has got to.
type leaving struct {
	draining bool
	forced   bool
}

const (
	leaveDrain leaveHow = iota
	leaveHandBack
)
