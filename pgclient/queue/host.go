package queue

import "time"

// HostStatus is the status of the worker host inside this process, as pane gw shows it.
type HostStatus struct {
	ID       string
	Instance string
	Running  bool   // at least one loop runs
	Refused  string // why the host may not start here, such as another live instance that holds its id
	Loops    []LoopStatus
	Listener ListenerStatus
	Wakes    []Wake // newest first, bounded
	InFlight int
}

// LoopStatus is the status of one loop of the host.
type LoopStatus struct {
	Name     string
	State    string // stopped, running, draining, failed
	What     string // one line: what the loop does
	Every    time.Duration
	LastTick time.Time
	InFlight int
	Done     int64
	Errors   int64
	LastErr  Text
	PerSec   float64 // finished items per second, mean of the last minute
	Unsigned []Unsigned
}

// Unsigned is a webhook subscription to which this host delivers nothing, because the
// subscription's secret is missing or invalid on this host; another host may have the secret.
type Unsigned struct {
	Subscription int64     `json:"subscription"`
	What         Text      `json:"what"`
	Do           Text      `json:"do"`
	Since        time.Time `json:"since"`
}

// ListenerStatus is the state of a LISTEN connection.
type ListenerStatus struct {
	State    string // off, connecting, listening, polling, lost
	Since    time.Time
	Reason   Text
	Channels int
	LastPing time.Time
	Heard    int64
	Resyncs  int64 // full refreshes after a (re)subscription
}

// Wake is one notification that was received. Its fields are untrusted: any login can send a
// notification.
type Wake struct {
	At      time.Time
	Channel Text
	Layer   Text
	Hint    Text
	Count   int64
	LagMS   float64 // milliseconds from occurred_at to arrival; negative = unknown
	Delayed *int64  // how many of the jobs become due later; nil = unknown
}
