package tui

// This file is when the picture is read: one refresh in flight at a time, the
// interval stretched when the database is slow, hints from the bridge taken at
// most every 250 ms. The console must never become the incident.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

const (
	hintEvery   = 250 * time.Millisecond
	slowest     = 30 * time.Second
	sessionLife = time.Minute
	kindLife    = 5 * time.Second // of a session whose kind of server is in doubt
)

type feed struct {
	refresh  time.Duration
	picture  *queue.Snapshot
	received time.Time // by the operator's clock
	started  time.Time // of the last refresh
	took     time.Duration
	inFlight bool
	waiting  bool // a hint waits for its 250 ms
	again    bool // a hint came while a refresh was in flight
	err      error
	failing  time.Time // since when; zero: it is not
	link     queue.Link
	linkAt   time.Time // since when the link is in its state
	asked    time.Time // when the session was asked for
	paused   bool
	past     past
}

// interval is the time between the starts of two refreshes: at least four
// fifths of it the database has rest from this console.
func (f feed) interval() time.Duration { return min(max(f.refresh, 5*f.took), slowest) }

// due tells whether the next refresh by the clock is to start.
func (f feed) due(now time.Time) bool {
	return !f.inFlight && !f.paused && now.Sub(f.started) >= f.interval()-50*time.Millisecond
}

// hinted tells when a refresh that a hint asks for may start; now is zero.
func (f feed) hinted(now time.Time) time.Duration {
	return max(f.started.Add(max(hintEvery, f.took)).Sub(now), 0)
}

// age is how old the picture is.
func (f feed) age(now time.Time) time.Duration {
	if f.picture == nil {
		return 0
	}
	return max(now.Sub(f.received), 0)
}

// old tells that the picture is older than its interval explains.
func (f feed) old(now time.Time) bool {
	return f.picture != nil && !f.paused && f.age(now) > 2*f.interval()+2*time.Second
}

func (f feed) lost() bool { return f.link.State == "lost" }

// setLink notes since when the link is as it is; true: it has just come back.
func (f *feed) setLink(l queue.Link, now time.Time) (back bool) {
	if l.State != f.link.State {
		back = f.link.State == "lost" && l.State != "lost"
		f.linkAt = now
	}
	f.link = l
	return back
}

// take takes a refresh in that came back.
func (f *feed) take(msg pictureMsg, now time.Time) {
	f.inFlight, f.took = false, msg.took
	if msg.err != nil {
		f.err = msg.err
		if f.failing.IsZero() {
			f.failing = now
		}
		return
	}
	f.err, f.failing = nil, time.Time{}
	if f.paused {
		return // the picture that was frozen stays
	}
	p := msg.picture
	f.picture, f.received = &p, now
}

// past is where one is in time.
type past struct {
	live   *queue.Snapshot // the picture to go back to; nil: one is not in the past
	liveAt time.Time       // when that was received
	steps  int             // asked for while a picture is being read
	asking bool
	trip   int // changes on going back to now, so that what comes late is dropped
}

// returned goes back to the live picture, if one is in the past.
func (f *feed) returned() {
	if f.past.live != nil {
		f.picture, f.received = f.past.live, f.past.liveAt
	}
	f.past = past{trip: f.past.trip + 1}
}
