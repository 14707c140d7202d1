package queue

import (
	"cmp"
	"strings"
)

// Environment is what a database says it is, in the flag queue.environment.
type Environment struct {
	Name     Text // of the environment; empty = the flag is unset
	Guarded  bool // whatever changes something wants the name typed
	Database Text
}

// EnvironmentFlag is the flag that names the environment.
const EnvironmentFlag = "queue.environment"

// ReadEnvironment reads the flag's value: NAME guarded, NAME open, or unset. What cannot
// be read is guarded: a guard that fell to a typing error would be none.
func ReadEnvironment(database, value string) Environment {
	e := Environment{Database: Clean(database)}
	if value == "" || value == "unset" {
		return e
	}
	name, open := strings.CutSuffix(value, " open")
	e.Name, e.Guarded = Clean(strings.TrimSuffix(name, " guarded")), !open
	return e
}

// Guard is the name that must be typed for a change: that of the environment, else the
// database's; empty where the database is not guarded. production is the profile's word,
// which can guard a database and never takes its guard away.
func (e Environment) Guard(production bool) string {
	if !e.Guarded && !production {
		return ""
	}
	return cmp.Or(e.Name.String(), e.Database.String(), "production")
}

// Guards tells whether the action wants the name typed where a database is guarded: all do
// but those of this process alone, acknowledgements, and those that want the database's
// name anyway.
func (a Action) Guards() bool {
	return !a.Open && a.Danger != DangerLocal && a.Danger != DangerDatabase
}
