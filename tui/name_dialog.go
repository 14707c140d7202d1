package tui

import (
	"cmp"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// nameDialog is the overlay that asks for the operator's name before the first
// action, if the actor is a shared account: an audit row by "root" says
// nothing about the person.
type nameDialog struct {
	asked asked
	was   string
	field *field
}

func newNameDialog(x asked, was string) *nameDialog {
	return &nameDialog{asked: x, was: was, field: newField(queue.Arg{
		Name: "name", Label: "Your name", Required: true, Max: queue.MostActor, Help: "recorded in the audit; asked once",
	})}
}

func (n *nameDialog) update(msg tea.Msg, _ overlayContext) (overlay, effect) {
	switch pressed(msg) {
	case "esc":
		return nil, nil
	case "enter":
		switch {
		case !n.field.check(nil):
		case shared(n.field.value()):
			n.field.problem = "this is a shared account; enter a person's name"
		default:
			return nil, effNamed{n.field.value(), n.asked}
		}
	default:
		n.field.edit(msg)
	}
	return n, nil
}

func (n *nameDialog) writing() bool { return true }

func (n *nameDialog) lines(at overlayContext) []string {
	was := cmp.Or(n.was, "an unnamed user")
	return views.Dialog{
		Title: "Who are you?", Fields: []views.Field{n.field.shown()},
		Intro: []string{"This session acts as " + was + ". Enter your name so that the audit names a person."},
		Hint:  "enter continues to " + n.asked.action.Verb + ", esc closes",
	}.Lines(at.env, at.size)
}
