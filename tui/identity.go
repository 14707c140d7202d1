package tui

import (
	"cmp"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// unlockedFor is how long production stays unlocked after its name was typed.
const unlockedFor = 15 * time.Minute

// identity describes the operator: the database login with its rights, and the
// name for the audit.
type identity struct {
	session  *queue.Session
	err      error // why the session could not be read
	actor    string
	askName  bool      // the actor is a shared account: ask for a name before the first action
	unlocked time.Time // when production is locked again
}

func (i *identity) receive(msg sessionMsg) {
	i.err = msg.err
	if msg.err == nil && msg.session != nil {
		i.session = msg.session
	}
}

// lacks returns which role the login would need for an action.
func (i *identity) lacks(a queue.Action) string {
	return i.session.User.String() + " lacks the role " + cmp.Or(i.session.Needs[a.ID], a.Role)
}

// shared reports whether a name is a shared account, which does not identify a person.
func shared(actor string) bool {
	switch strings.ToLower(strings.TrimSpace(actor)) {
	case "", "root", "postgres", "admin", "administrator", "ubuntu", "debian", "ec2-user", "centos", "user", "nobody", "deploy", "operator", "ops":
		return true
	}
	return false
}

// production returns the name that must be typed on production, or "". The
// database decides whether it is a production database; until it has answered,
// the profile decides.
func (m *shell) production() string {
	if m.me.session == nil {
		return m.o.Production
	}
	return m.me.session.Environment.Guard(m.o.Production != "")
}

// locked reports whether an action on count rows needs the production name to be typed.
// An acknowledgement needs only its comment.
func (m *shell) locked(a queue.Action, count int64) bool {
	if m.production() == "" || a.Open {
		return false
	}
	return count > 1 || m.o.Now().After(m.me.unlocked)
}
