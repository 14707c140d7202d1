package tui

// This file asks once who acts, where the account is one that many share: an
// audit row that says root helps nobody.

import (
	"cmp"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

type namer struct {
	action queue.Action
	req    queue.Request
	was    string
	field  *field
}

func newNamer(a queue.Action, req queue.Request, was string) *namer {
	return &namer{action: a, req: req, was: was, field: newField(queue.Arg{
		Name: "your name", Label: "Your name", Required: true, Help: "audit rows will carry it; asked once",
	})}
}

func (n *namer) update(msg tea.Msg, _ place) (overlay, effect) {
	switch pressed(msg) {
	case "esc":
		return nil, nil
	case "enter":
		switch {
		case !n.field.check():
		case shared(n.field.value()):
			n.field.problem = "that is an account, not a person"
		default:
			return nil, effNamed{n.field.value(), n.action, n.req}
		}
	default:
		n.field.edit(msg)
	}
	return n, nil
}

func (n *namer) lines(at place) []string {
	was := cmp.Or(n.was, "nobody in particular")
	return views.Dialog{
		Title: "Who are you?", Fields: []views.Field{n.field.shown()},
		Intro: []string{"This session acts as " + was + ". Say once who you are, so that the audit names a person."},
		Hint:  "enter goes on to " + n.action.Verb + ", esc leaves it",
	}.Lines(at.env, at.size)
}
