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

// locked tells whether the production name must be typed for an action on so
// many rows. An acknowledgement needs only its comment.
func (m *root) locked(a queue.Action, count int64) bool {
	if m.o.Production == "" || a.ID == queue.ActAck || a.ID == queue.ActUnack {
		return false
	}
	return count > 1 || m.o.Now().After(m.me.unlocked)
}

// off is why an action cannot be used now; "" = it can. What the database would
// refuse is not offered, and says so before it is asked.
func (m *root) off(a queue.Action) string {
	s := m.me.session
	here := a.Danger == queue.DangerLocal
	switch {
	case m.feed.past.live != nil:
		return "the picture is of " + m.pastClock() + "; p goes back to now"
	case m.feed.paused:
		return "the picture is paused; p goes on"
	case m.o.ReadOnly || (s != nil && s.ReadOnly):
		return "this console is read-only"
	case here && m.host == nil:
		return "no worker host can run in this process"
	case here && m.local != nil && m.local.Refused != "":
		return m.local.Refused
	case here:
		return ""
	case m.feed.lost():
		return "the connection to the database is lost"
	case m.feed.picture == nil || s == nil:
		if m.me.err != nil && m.feed.picture != nil {
			return "the rights of this login are not known: " + why(m.me.err)
		}
		return "the database has not answered yet"
	case s.InRecovery:
		return "this is a standby; it takes no changes"
	case !s.Rights[a.ID]:
		need := s.Needs[a.ID]
		if need == "" {
			need = a.Role
		}
		return s.User.String() + " lacks the role " + need
	}
	return ""
}
