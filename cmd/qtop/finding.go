package main

import (
	"context"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// The findings of `qtop doctor`: a line each, with its remedy.

// finding is one line of the doctor. ok, note (works, with less), bad.
type finding struct {
	State  string     `json:"state"`
	Check  string     `json:"check"`
	Found  queue.Text `json:"found"`
	Remedy string     `json:"remedy"`
}

// patient is what the doctor looks at.
type patient struct {
	client   *pgclient.Client
	session  queue.Session
	settings config.Settings
	files    []fileFinding
}

// check looks at one thing.
type check func(context.Context, patient) []finding

// unread is the finding of a check that could not look: a right that a host or a producer has no use for is nothing bad.
func unread(check string, err error) finding {
	if queue.KindOf(err) == queue.KindPermission {
		return finding{"note", check, queue.Clean("not looked at: this login may not read it"), "ask with the role queue_viewer"}
	}
	return finding{"bad", check, queue.Said(err), ""}
}
