package enqueue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
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

// slow is a server on which the commit of a signal takes 20 ms.
type slow struct {
	conns
	signals atomic.Int64
}

func (s *slow) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	s.signals.Add(1)
	time.Sleep(20 * time.Millisecond) // the commit
	return pgconn.CommandTag{}, nil
}

// A steady stream of signals whose commits take long occupies the server's lock of NOTIFY for half of
// the time.
func TestSlowSignalsLeaveTime(t *testing.T) {
	s := &slow{}
	r := NewNotifier(s)
	began := time.Now()
	for time.Since(began) < 300*time.Millisecond {
		r.Notify("iu")
		time.Sleep(time.Millisecond) // as a producer at 1,000 jobs a second
	}
	signals, took := s.signals.Load(), time.Since(began)
	require.Positive(t, signals)
	require.LessOrEqual(t, signals, 1+int64(took/(40*time.Millisecond)))
	r.Close(t.Context())
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
