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
	roleLife    = 5 * time.Second        // the shorter interval while snapshot and session disagree whether the server is a standby
)

// feed decides when the console reads the snapshot, and holds the last one. To
// spare the database it reads one snapshot at a time, less often when the
// database is slow, and at most every 250 ms for change hints (signals that
// something changed).
type feed struct {
	refresh  time.Duration
	snapshot *queue.Snapshot
	received time.Time // when the snapshot arrived, by the operator's clock
	started  time.Time // when the last refresh started
	took     time.Duration
	inFlight bool
	waiting  bool // a refresh is scheduled, because a change hint arrived
	again    bool // a refresh was requested while another was in flight
	acted    bool // an action of this console was applied after the last snapshot was requested
	err      error
	failing  time.Time // since when refreshes fail; zero: the last one succeeded
	link     queue.Link
	linkAt   time.Time // since when the connection is in this state
	asked    time.Time // when the session was last requested

	asking     bool // a read of the session is in progress
	sessionDue bool // read the session when the snapshot that is in flight has arrived
	paused     bool
	past       past
}

// interval returns the time between the starts of two refreshes. It is at least five
// times the duration of the last one, so the console loads the database at most a fifth
// of the time.
func (f feed) interval() time.Duration { return min(max(f.refresh, 5*f.took), slowest) }

// reading reports whether a read of the snapshot or of the session is in
// progress. Lists do not count.
func (f feed) reading() bool { return f.inFlight || f.asking }

// due reports whether the next regular refresh should start.
func (f feed) due(now time.Time) bool {
	return !f.reading() && !f.paused && now.Sub(f.started) >= f.interval()-50*time.Millisecond
}

// shareable returns the greatest age at which a regular refresh accepts a
// snapshot that the database computed for another console. It is just below
// the interval: consoles with the same interval together cause one computation
// per interval, and a single console never gets its own previous snapshot
// again.
func (f feed) shareable() time.Duration { return f.interval() * 9 / 10 }

// hintDelay returns how long a refresh for a change hint has to wait; 0: it
// may start now.
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
// two intervals plus 2 s. Of refreshes that fail, only the interval that the
// operator set counts: the time that they took excuses no old snapshot.
func (f feed) old(now time.Time) bool {
	every := queue.Choose(f.err == nil, f.interval(), f.refresh)
	return f.snapshot != nil && !f.paused && f.age(now) > 2*every+2*time.Second
}

func (f feed) lost() bool { return f.link.State == "lost" }

// setLink stores the state of the connection and since when it holds. back is
// true if the connection was lost and works again.
func (f *feed) setLink(l queue.Link, now time.Time) (back bool) {
	if l.State != f.link.State {
		back = f.link.State == "lost" && l.State != "lost"
		f.linkAt = now
	}
	f.link = l
	return back
}

// receive stores the answer of a refresh: a snapshot or an error.
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
		return // while paused, the console keeps the snapshot that it shows
	}
	p := msg.snapshot
	f.snapshot, f.received = &p, now
}

// past is the state of looking back: which stored snapshot the console shows,
// and the reads of others.
type past struct {
	live   *queue.Snapshot // the live snapshot to return to; nil: the console shows the present
	liveAt time.Time       // when live was received
	steps  int             // keys [ and ] pressed while a stored snapshot is being read, to be taken after it
	asking bool            // a read of a stored snapshot is in progress
	visit  int             // counts the returns to the present and the times asked for; the answer to a read from an earlier visit is dropped
}

// backToLive shows the live snapshot again if a stored one is shown. If a read
// of a stored snapshot is in progress, its answer will be dropped.
func (f *feed) backToLive() {
	if f.past.live != nil {
		f.snapshot, f.received = f.past.live, f.past.liveAt
	}
	f.past = past{visit: f.past.visit + 1}
}
