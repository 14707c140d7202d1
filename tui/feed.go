package tui

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

const (
	hintEvery   = 250 * time.Millisecond
	fresh       = 200 * time.Millisecond // the greatest age of a shared snapshot after a change
	slowest     = 30 * time.Second       // the longest interval between refreshes
	sessionLife = time.Minute            // interval between reads of the session
	roleLife    = 5 * time.Second        // the same while snapshot and session name different roles
)

// feed decides when the snapshot is read, so that the console never overloads
// the database: one refresh at a time, a longer interval when the database is
// slow, and at most one refresh every 250 ms for change hints.
type feed struct {
	refresh  time.Duration
	snapshot *queue.Snapshot
	received time.Time // when the snapshot arrived, by the operator's clock
	started  time.Time // when the last refresh started
	took     time.Duration
	inFlight bool
	waiting  bool // a refresh for a hint is scheduled
	again    bool // a refresh was requested while another was in flight
	acted    bool // this console has changed something since the last snapshot was asked for
	err      error
	failing  time.Time // since when refreshes fail; zero: the last one succeeded
	link     queue.Link
	linkAt   time.Time // when the link changed to its state
	asked    time.Time // when the session was read last

	asking     bool // the session is being read
	sessionDue bool // the session is to be read after the snapshot that is in flight
	paused     bool
	past       past
}

// interval returns the time between the starts of two refreshes. It is at least five
// times the duration of the last one, so the console loads the database at most a fifth
// of the time.
func (f feed) interval() time.Duration { return min(max(f.refresh, 5*f.took), slowest) }

// reading reports whether the console reads from the database by itself, lists apart.
func (f feed) reading() bool { return f.inFlight || f.asking }

// due reports whether the next regular refresh should start.
func (f feed) due(now time.Time) bool {
	return !f.reading() && !f.paused && now.Sub(f.started) >= f.interval()-50*time.Millisecond
}

// shareable returns the greatest age at which a regular refresh accepts the
// snapshot of another console. It is just below the interval: consoles with the
// same interval together compute one snapshot per interval, and a single
// console never gets its own previous snapshot again.
func (f feed) shareable() time.Duration { return f.interval() * 9 / 10 }

// hintDelay returns how long a refresh for a hint has to wait; 0: it may start now.
func (f feed) hintDelay(now time.Time) time.Duration {
	return max(f.started.Add(max(hintEvery, f.took)).Sub(now), 0)
}

// age returns how long ago the snapshot was received.
func (f feed) age(now time.Time) time.Duration {
	if f.snapshot == nil {
		return 0
	}
	return max(now.Sub(f.received), 0)
}

// old reports whether the snapshot is much older than the interval: more than
// two intervals plus 2 s.
func (f feed) old(now time.Time) bool {
	return f.snapshot != nil && !f.paused && f.age(now) > 2*f.interval()+2*time.Second
}

func (f feed) lost() bool { return f.link.State == "lost" }

// setLink stores the state of the link and when it changed. It reports true if the link
// was lost and is connected again.
func (f *feed) setLink(l queue.Link, now time.Time) (back bool) {
	if l.State != f.link.State {
		back = f.link.State == "lost" && l.State != "lost"
		f.linkAt = now
	}
	f.link = l
	return back
}

// receive stores the answer of a refresh.
func (f *feed) receive(msg snapshotMsg, now time.Time) {
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
		return // the frozen snapshot stays
	}
	p := msg.snapshot
	f.snapshot, f.received = &p, now
}

// past is the state of the view of stored snapshots.
type past struct {
	live   *queue.Snapshot // the live snapshot to return to; nil: the console shows the present
	liveAt time.Time       // when live was received
	steps  int             // steps requested while a stored snapshot is being read
	asking bool            // a stored snapshot is being read
	visit  int             // returns to the present; older answers are dropped
}

// backToLive shows the live snapshot again if a stored one is shown. Answers to
// earlier reads of stored snapshots are dropped from then on.
func (f *feed) backToLive() {
	if f.past.live != nil {
		f.snapshot, f.received = f.past.live, f.past.liveAt
	}
	f.past = past{visit: f.past.visit + 1}
}
