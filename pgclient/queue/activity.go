package queue

// This file is what pane gl lists: the sessions that may hold queues up.

import (
	"strconv"
	"strings"
	"time"
)

// Activity is a session, a standby's sender, a replication slot or a prepared
// transaction of which the queues may have to wait. No text of a statement is in it.
type Activity struct {
	ID        string     `json:"id"`   // PID@START, which names one session for ever; of what has no session its name
	Kind      string     `json:"kind"` // session, sender, slot, prepared
	Pid       *int64     `json:"pid"`
	Started   *time.Time `json:"started_at"`
	Login     Text       `json:"login"`
	Program   Text       `json:"program"`
	Client    Text       `json:"client"` // its address; empty = a local socket
	State     Text       `json:"state"`  // as pg_stat_activity has it
	Since     *time.Time `json:"state_since"`
	Begun     *time.Time `json:"transaction_since"` // nil: none is open
	Snapshot  *int64     `json:"snapshot_age"`      // transactions begun since the oldest snapshot it holds, or since it began to write; nil: neither
	Oldest    bool       `json:"oldest_snapshot"`   // no other holds an older one: dead rows stay because of it
	Waits     Text       `json:"waits_for"`         // the event it waits for
	BlockedBy []int64    `json:"blocked_by"`
	Blocks    []int64    `json:"blocks"`
	Tables    []Text     `json:"tables"` // of ours that it has locked against writers, at most five
	Listens   bool       `json:"listens"`
	Ours      bool       `json:"qtop"` // its program says that it is qtop
	Seen      bool       `json:"seen"` // false: this server does not show qtop more of it than that it is there
}

// SessionID names a session: its pid, and when it began, since pids come again.
func SessionID(pid int64, started time.Time) string {
	return strconv.FormatInt(pid, 10) + "@" + started.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}

// ParseSessionID reads what SessionID wrote.
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
