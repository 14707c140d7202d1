package tui

// This file is who acts: the login, its rights, the name that audit rows carry,
// and whether production is unlocked.

import (
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// unlockedFor is how long a production name that was typed once stands.
const unlockedFor = 15 * time.Minute

type identity struct {
	session  *queue.Session
	err      error // why the session could not be read
	actor    string
	ask      bool // the actor is a shared account's: ask before the first action
	unlocked time.Time
}

func (i *identity) take(msg sessionMsg) {
	i.err = msg.err
	if msg.err == nil && msg.session != nil {
		i.session = msg.session
	}
}

// shared tells names that say nothing about who sits there.
func shared(actor string) bool {
	switch strings.ToLower(strings.TrimSpace(actor)) {
	case "", "root", "postgres", "admin", "administrator", "ubuntu", "debian", "ec2-user", "centos", "user", "nobody", "deploy", "operator", "ops":
		return true
	}
	return false
}

// production is the name that is typed where the database, or else the profile, says that
// this is production; empty where neither does.
func (m *shell) production() string {
	if m.me.session == nil {
		return m.o.Production
	}
	return m.me.session.Environment.Guard(m.o.Production != "")
}

// locked tells whether the production name must be typed for an action on so
// many rows. An acknowledgement needs only its comment.
func (m *shell) locked(a queue.Action, count int64) bool {
	if m.production() == "" || a.Open {
		return false
	}
	return count > 1 || m.o.Now().After(m.me.unlocked)
}
