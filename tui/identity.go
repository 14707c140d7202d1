package tui

import (
	"cmp"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// unlockedFor is how long actions on one row need no name on a production
// database after its name was typed, while it is the same place.
const unlockedFor = 15 * time.Minute

// identity describes the operator: the database login with its rights (the
// session), and the name that the audit records (the actor).
type identity struct {
	session  *queue.Session
	err      error // why the session could not be read
	actor    string
	askName  bool      // the actor is a shared account: ask for the operator's name before the first action
	unlocked time.Time // until when the place is unlocked
	place    place     // the place whose name was typed last
}

// place is the database on which an action acts. A database that is renamed, or another server, as
// after a failover, is another place.
type place struct{ name, database, address string }

func (i *identity) receive(msg sessionMsg) {
	i.err = msg.err
	if msg.err == nil && msg.session != nil {
		i.session = msg.session
	}
}

// lacks says which role is missing for an action that this session may not use, and to whom.
func (i *identity) lacks(a queue.Action) string {
	return i.session.Holder() + " lacks the role " + cmp.Or(i.session.Needs[a.ID], a.Role)
}

// shared reports whether a name is a shared account such as root, which does
// not say who the person is.
func shared(actor string) bool {
	switch strings.ToLower(strings.TrimSpace(actor)) {
	case "", "root", "postgres", "admin", "administrator", "ubuntu", "debian", "ec2-user", "centos", "user", "nobody", "deploy", "operator", "ops":
		return true
	}
	return false
}

// production returns the name that the operator must type to confirm an
// action; "" if this is not a production database. The database decides that;
// until it has answered, the profile of the configuration does.
func (m *shell) production() string {
	if m.me.session == nil {
		return m.o.Production
	}
	return m.me.session.Environment.Guard(m.o.Production != "")
}

// place returns the place of this session.
func (m *shell) place() place {
	p := place{name: m.production()}
	if s := m.me.session; s != nil {
		p.database, p.address = s.Database.String(), s.Address.String()
	}
	return p
}

// locked reports whether an action on count rows must be confirmed with the
// name of the production database. An acknowledgement changes no work, so a
// comment is enough.
func (m *shell) locked(a queue.Action, count int64) bool {
	if m.production() == "" || a.Open {
		return false
	}
	return count > 1 || m.me.place != m.place() || m.o.Now().After(m.me.unlocked)
}
