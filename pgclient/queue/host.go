package queue

import "time"

// HostStatus is the status of the worker host inside this process, as pane gw shows it.
type HostStatus struct {
	ID       string
	Instance string // a UUID of this process
	Running  bool   // at least one loop runs
	Refused  string // why the host may not start here, such as another live instance with its id
	Failing  Text   // since when and why no heartbeat can be recorded; empty = the last one was
	Loops    []LoopStatus
	Listener ListenerStatus
	Wakes    []Wake   // newest first, bounded
	InFlight int      // items of all loops
	Executor string   // the executor as which the host claims jobs
	Kinds    []string // the job kinds for which it has handlers
}

// LoopStatus is the status of one loop of the host.
type LoopStatus struct {
	Name     string
	State    string        // stopped, running, draining, failed
	What     string        // one line: what the loop does
	Every    time.Duration // the interval
	LastTick time.Time
	InFlight int        // items that it is working on
	Done     int64      // items finished since the host started
	Errors   int64      // failed ticks or items since the host started
	LastErr  Text       // empty = no error yet
	PerSec   float64    // finished items per second, mean of the last minute
	Unsigned []Unsigned // only of the webhook sender
	Role     string     // the role that the loop needs beside dot_executor; empty = none
}

// Unsigned is a webhook subscription to which this host delivers nothing, because the
// subscription's secret is missing or invalid on this host; another host may have the secret.
type Unsigned struct {
	Subscription int64     `json:"subscription"`
	What         Text      `json:"what"`  // what is wrong with the secret
	Do           Text      `json:"do"`    // the remedy
	Since        time.Time `json:"since"` // since when this host cannot sign for it
}

// ListenerStatus is the state of a LISTEN connection.
type ListenerStatus struct {
	State    string    // off, connecting, listening, polling (LISTEN cannot work), lost
	Since    time.Time // when State began
	Reason   Text      // why it is polling or lost
	Channels int       // number of channels that it listens to
	LastPing time.Time
	Heard    int64 // number of wake signals
	Resyncs  int64 // how often listening began, and everything was read again
}

// Wake is one notification that was received. Its fields are untrusted: any login can send a
// notification.
type Wake struct {
	At      time.Time
	Channel Text
	Layer   Text    // which programs it wakes: event, saga, job, or all of them
	Hint    Text    // what it is about, such as a job kind
	Count   int64   // number of items that the sender named
	LagMS   float64 // milliseconds from occurred_at in the signal to its arrival; negative = unknown
	Delayed *int64  // how many of the jobs become due later; nil = unknown
}
