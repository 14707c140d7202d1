package enqueue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
)

// A steady stream of jobs that are claimed in time sends no wake signal; a job that is not claimed in
// time sends one.
func TestWakeSignalOfOwedJobs(t *testing.T) {
	r := NewNotifier(nil)
	b := &pending{}
	r.recent["iu"] = b // as while the goroutine of run is active
	advance := func(in time.Duration, now, later bool, what string) {
		t.Helper()
		gotNow, gotLater := r.advance("iu", b, time.Now().Add(in))
		require.Equal(t, [2]bool{now, later}, [2]bool{gotNow, gotLater}, what)
	}
	owe := func() work.Job {
		id := uuid.New()
		r.owe("iu", id.String())
		return work.Job{ID: pgtype.UUID{Bytes: id, Valid: true}, Domain: "iu"}
	}
	var young []work.Job
	for range 5 {
		r.claimed(young)
		young = []work.Job{owe(), owe()}
		advance(-time.Hour, false, true, "claimed before they were due")
	}
	r.claimed(young[:1])
	advance(owedFor, true, false, "one unclaimed job is due")
	require.Contains(t, r.recent, "iu")
	advance(owedFor, false, false, "nothing is pending")
	require.NotContains(t, r.recent, "iu")

	b = &pending{}
	r.recent["iu"] = b
	late := owe()
	b.again = true
	advance(0, true, false, "one signal covers the owed job too")
	advance(owedFor, false, false, "no second signal")
	r.claimed([]work.Job{late})
}

// A steady stream of signals whose commits take long occupies the server's lock of NOTIFY for half of
// the time, whether a signal has a separate statement or comes with the jobs.
func TestSlowSignalsLeaveTime(t *testing.T) {
	const commit = 15 * time.Millisecond
	var signals atomic.Int64
	r := NewNotifier(nil)
	r.signal = func(context.Context, string) (time.Duration, error) {
		signals.Add(1)
		began := time.Now()
		time.Sleep(commit)
		return time.Since(began), nil
	}
	counted := func(enqueue func()) {
		t.Helper()
		signals.Store(0)
		began := time.Now()
		for time.Since(began) < 300*time.Millisecond {
			enqueue()
		}
		n, took := signals.Load(), time.Since(began)
		require.Positive(t, n)
		require.LessOrEqual(t, n, 1+int64(took/(2*commit)))
		r.Close(t.Context())
	}
	counted(func() {
		r.Notify("iu")
		time.Sleep(time.Millisecond) // as a producer at 1,000 jobs a second
	})
	counted(func() { // one statement after the other
		ended, byTrigger := r.reserve([]string{"iu"})
		time.Sleep(commit)
		if byTrigger {
			signals.Add(1)
			ended()
		}
	})
}

// While the statement of a reserved signal waits, as for the key of another transaction, a signal of
// other jobs is sent, and the end of that statement changes nothing.
func TestReservedSignalThatWaits(t *testing.T) {
	r := NewNotifier(nil)
	sent := make(chan bool, 1)
	r.signal = func(context.Context, string) (time.Duration, error) {
		sent <- true
		return 0, nil
	}
	ended, byTrigger := r.reserve([]string{"iu"})
	require.True(t, byTrigger)
	_, byTrigger = r.reserve([]string{"shop", "iu"})
	require.False(t, byTrigger)
	r.Notify("iu")
	<-sent
	ended()
	r.Close(t.Context())
	require.Empty(t, sent)
}

// Close returns when no signal is pending any more, or when its context ends.
func TestNotifierCloses(t *testing.T) {
	r := NewNotifier(nil)
	r.Close(t.Context())
	b := &pending{again: true}
	r.recent["iu"], r.recent["shop"] = b, b // as while the goroutines of run are active
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.Close(over)
	require.Len(t, r.recent, 2)

	closed := make(chan bool, 2)
	for range 2 {
		go func() {
			r.Close(context.WithoutCancel(t.Context()))
			closed <- true
		}()
	}
	r.advance("iu", b, time.Now())
	r.advance("iu", b, time.Now())
	require.Empty(t, closed, "a signal of shop is pending")
	r.advance("shop", b, time.Now())
	<-closed
	<-closed
	r.Close(t.Context())
}
