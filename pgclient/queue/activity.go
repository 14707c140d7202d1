package queue

import (
	"strconv"
	"strings"
	"time"
)

// Activity is a session, a WAL sender of a standby, a replication slot or a prepared
// transaction that may block the queues. It never contains the text of a statement.
type Activity struct {
	ID        string     `json:"id"`   // PID@START, unique per session; for an entry without a session, its name
	Kind      string     `json:"kind"` // session, sender, slot, prepared
	Pid       *int64     `json:"pid"`
	Started   *time.Time `json:"started_at"`
	Login     Text       `json:"login"`
	Program   Text       `json:"program"`
	Client    Text       `json:"client"`            // the address of the client; empty = a local socket
	State     Text       `json:"state"`             // as in pg_stat_activity
	Since     *time.Time `json:"state_since"`       // when State began
	Begun     *time.Time `json:"transaction_since"` // nil: no open transaction
	Snapshot  *int64     `json:"snapshot_age"`      // transactions begun since the oldest snapshot that it holds, or since it began to write; nil = neither
	Oldest    bool       `json:"oldest_snapshot"`   // it holds the server's oldest snapshot, so vacuum cannot remove dead rows
	Waits     Text       `json:"waits_for"`         // the event it waits for
	BlockedBy []int64    `json:"blocked_by"`        // pids of the sessions that block it
	Blocks    []int64    `json:"blocks"`            // pids of the sessions that it blocks
	Tables    []Text     `json:"tables"`            // tables of qtop on which its locks block writers, at most five
	Listens   bool       `json:"listens"`           // its last statement was LISTEN
	Ours      bool       `json:"qtop"`              // its application_name is qtop's
	Seen      bool       `json:"seen"`              // false: this login sees only that the session exists
}

// Field returns the value of a field that a filter of sessions names; false if there is no value.
func (a Activity) Field(name string) (any, bool) {
	switch name {
	case "pid":
		if a.Pid != nil {
			return *a.Pid, true
		}
	case "kind":
		return a.Kind, true
	case "login":
		return a.Login, true
	case "program":
		return a.Program, true
	case "client":
		return a.Client, true
	case "state":
		return a.State, true
	case "waits":
		return a.Waits, true
	}
	return nil, false
}

// ActivityFields returns the fields that a filter of sessions may name.
func ActivityFields() []Field {
	return []Field{
		{Name: "pid", Kind: FieldText, Help: "the process of the session"},
		{Name: "kind", Kind: FieldText, Help: "session, sender, slot or prepared"},
		{Name: "login", Kind: FieldText, Help: "who logged in"},
		{Name: "program", Kind: FieldText, Help: "its application_name"},
		{Name: "client", Kind: FieldText, Help: "the address of the client; empty = a local socket"},
		{Name: "state", Kind: FieldText, Help: "as in pg_stat_activity"},
		{Name: "waits", Kind: FieldText, Help: "the event that it waits for"},
	}
}

// SessionID names a session by its pid and its start time, because the server reuses pids.
func SessionID(pid int64, started time.Time) string {
	return strconv.FormatInt(pid, 10) + "@" + started.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}

// ParseSessionID parses an id made by SessionID.
func ParseSessionID(id string) (pid int64, started time.Time, ok bool) {
	number, at, ok := strings.Cut(id, "@")
	if !ok {
		return 0, time.Time{}, false
	}
	pid, err := strconv.ParseInt(number, 10, 32)
	if err != nil || pid <= 0 {
		return 0, time.Time{}, false
	}
	started, err = time.Parse(time.RFC3339Nano, at)
	return pid, started, err == nil
}
