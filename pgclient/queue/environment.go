package queue

import (
	"cmp"
	"strings"
)

// Environment is the environment of a database, as the flag queue.environment names it.
type Environment struct {
	Name     Text // name of the environment; empty = the flag is unset
	Guarded  bool // every change requires the name to be typed
	Database Text // name of the database
}

// EnvironmentFlag is the flag that holds the name and the guard of the environment.
const EnvironmentFlag = "queue.environment"

// ReadEnvironment parses the flag's value: NAME guarded, NAME open, or unset. A value that
// cannot be parsed counts as guarded, so that a typing error does not remove the guard.
func ReadEnvironment(database, value string) Environment {
	e := Environment{Database: Clean(database)}
	if value == "" || value == "unset" {
		return e
	}
	name, open := strings.CutSuffix(value, " open")
	e.Name, e.Guarded = Clean(strings.TrimSpace(strings.TrimSuffix(name, " guarded"))), !open
	return e
}

// Guard returns the name that must be typed for a change: the name of the environment, or of the
// database if the environment has no name; "" if the database is not guarded. production is set
// in the profile; it can guard a database but never removes a guard.
func (e Environment) Guard(production bool) string {
	if !e.Guarded && !production {
		return ""
	}
	return cmp.Or(e.Name.String(), e.Database.String(), "production")
}

// Guards reports whether the action, in a guarded database, requires that the name is typed. All
// actions do, except those that change this process only, acknowledgements (Open), and those that
// require the name of the database anyway.
func (a Action) Guards() bool {
	return !a.Open && a.Danger != DangerLocal && a.Danger != DangerDatabase
}
