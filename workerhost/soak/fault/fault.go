// Package fault says which faults explain work that was done twice, for the soak and the fire
// drill: those that can have kept the result of an attempt from the database.
package fault

import "time"

// Fault is something that happened to a host, to the server or to the network between them.
type Fault struct {
	Name     string
	Host     string // the host that it affected; "" = all hosts
	From, To time.Time
	// After is for how long after To it may still keep results from the database, for example
	// because a connection is broken and its end did not notice that yet.
	After time.Duration
}

// Attempt is the work of one host on one job or webhook, from its start to its end.
type Attempt struct {
	Host       string
	Start, End time.Time
	Again      time.Time // when the same work began again
}

// Explains reports whether the fault can have kept the result of the attempt from the database.
// recordedWithin is the longest time from the end of an attempt to the record of its result.
func (f Fault) Explains(a Attempt, recordedWithin time.Duration) bool {
	return (f.Host == "" || f.Host == a.Host) && f.From.Before(a.Again) &&
		!f.From.After(a.End.Add(recordedWithin)) && !f.To.Add(f.After).Before(a.Start)
}
