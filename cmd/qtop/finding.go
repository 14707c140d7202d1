package main

import (
	"context"
	"strings"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/inspect"
	"github.com/qtop/qtop/pgclient/queue"
)

// The findings of `qtop doctor`: a line each, with its remedy.

// finding is one line of the doctor. State is ok, note (works, with limits) or
// bad.
type finding struct {
	State  string     `json:"state"`
	Check  string     `json:"check"`
	Found  queue.Text `json:"found"`
	Remedy string     `json:"remedy"`
}

// patient is what a check of the doctor examines: a client of the database,
// the session, and the settings of this machine.
type patient struct {
	client     *pgclient.Client
	session    queue.Session
	settings   config.Settings
	files      []fileFinding
	rolePrefix string // with which the names of qtop's roles begin in this database
	logins     []inspect.Login
	noLogins   error // why logins could not be read
}

// roles joins the names in the cluster of roles of qtop.
func (x patient) roles(names ...string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = x.rolePrefix + name
	}
	return strings.Join(all, ", ")
}

// check examines one subject and returns its findings.
type check func(context.Context, patient) []finding

// unread returns the finding of a check that could not read its data. If only
// a right is missing, that is a note: the login of a host or a producer need
// not have it.
func (x patient) unread(check string, err error) finding {
	if queue.KindOf(err) == queue.KindPermission {
		return finding{"note", check, queue.Clean("not looked at: this login may not read it"), "ask with the role " + x.roles("queue_viewer")}
	}
	return finding{"bad", check, queue.Said(err), ""}
}

// leftOut returns the finding that a check has more findings than it read; none if it read all.
func leftOut(check string, shown, of int) []finding {
	if of <= shown {
		return nil
	}
	return []finding{{"note", check, queue.Clean(queue.Plural(of-shown, "more finding like these", "more findings like these")), "fix these first"}}
}
