package workerhost

// This file drives one tick worker: by its interval as the floor, at once when
// something woke it. The database decides whether it is due. The intervals are read
// again every second, and at once when a flag changes; one that became shorter ends the
// wait under way.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/loop"
)

// minGap is the least time between two ticks, whatever asks for them.
const minGap = 10 * time.Millisecond

// leaseHeldAgain is when a wake that found the lease held looks again.
const leaseHeldAgain = 100 * time.Millisecond

// fullAgain is when a quick run is followed by a full one.
const fullAgain = time.Second

// firstTickWait is how long the first tick waits for the listener: what came before it listens, that tick sees, and
// need not look again.
const firstTickWait = 500 * time.Millisecond

// ticker drives tick workers.
type ticker struct {
	listens  <-chan struct{} // closed when the listener has subscribed
	client   *work.Client
	loops    loops
	settings *settings
	log      *slog.Logger
	outcomes *slog.Logger // without a worker_id: each line has that of the attempt
}

func (t *ticker) run(ctx context.Context, l *loop.Loop) error {
	drain := l.Draining()
	select {
	case <-t.listens:
	case <-time.After(firstTickWait):
	case <-drain:
		return nil
	case <-ctx.Done():
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var started, due time.Time // of the last tick, and of the next
	again := false             // the next look is a wake, though nothing kicked
	overdue := minGap          // doubles while what this clock calls due is not due over there
	for {
		source := "external"
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			return nil
		case <-l.Kicked():
			source = "wake"
		case <-l.IntervalChanged():
			if at := started.Add(t.settings.every(l.Name)); at.Before(due) {
				again, due = false, at
				timer.Reset(time.Until(at))
			}
			continue
		case <-timer.C:
			if again {
				source = "wake" // its interval has not passed, and need not
			}
		}
		again = false
		started = time.Now()
		next := t.settings.every(l.Name)
		worked := false
		res, err := t.client.Tick(ctx, l.Name, source)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			l.RecordError(err)
			t.log.Warn("tick failed", "loop", l.Name, "error", err.Error())
		case res.Failed:
			l.RecordError(fmt.Errorf("%s", res.Error))
			t.log.Error("tick worker failed", "loop", l.Name, "error", res.Error)
			if res.Quick { // a full run goes on without the row that fails
				again, next = true, 0
			}
		default:
			l.RecordTick(res.Work(), next)
			worked = res.Work() > 0
			t.loops.handOn(l.Name, res.Result)
			t.logOutcomes(ctx, res.Log)
			if res.Skipped == "lease_held" && source == "wake" {
				// whoever holds the lease may have looked before the row came
				again, next = true, min(next, leaseHeldAgain)
			}
			if res.Quick {
				again, next = true, min(next, fullAgain)
			}
			if at, known := nextDue(res); known {
				overdue = min(2*overdue, time.Minute)
				if left := time.Until(at); left > 0 || res.Result["promoted"] > 0 {
					overdue = minGap
				}
				if left := max(time.Until(at), overdue); left < next {
					again, next = true, left
				}
			}
		}
		l.RecordCheck(worked)
		select {
		case <-time.After(time.Until(started.Add(minGap))):
		case <-ctx.Done():
			return nil
		}
		due = time.Now().Add(next)
		timer.Reset(next)
	}
}

// logOutcomes logs what a tick decided of jobs that did not succeed (R02 §5.3).
func (t *ticker) logOutcomes(ctx context.Context, all []work.Outcome) {
	for _, o := range all {
		attrs := []slog.Attr{
			slog.Any("job_id", o.JobID), slog.String("error_code", o.ErrorCode), slog.Any("lease_expiration", o.LeaseExpiration),
			slog.String("worker_id", o.WorkerID),
		}
		if o.SagaID != 0 {
			attrs = append(attrs, slog.Int64("saga_id", o.SagaID))
		}
		t.outcomes.LogAttrs(ctx, slog.LevelInfo, o.Outcome, attrs...)
	}
}

// nextDue is when the next late work falls due, by the server's clock.
func nextDue(res work.TickResult) (time.Time, bool) {
	var body struct {
		Result struct {
			NextDue *time.Time `json:"next_due"`
		} `json:"result"`
	}
	if len(res.Raw) == 0 || json.Unmarshal(res.Raw, &body) != nil || body.Result.NextDue == nil {
		return time.Time{}, false
	}
	return *body.Result.NextDue, true
}

// offEvery is how often a worker that is switched off is still asked for: its
// tick then beats as stopped, so that being off is no silence.
const offEvery = 10 * time.Second

// settingsEvery is how often the intervals are read: a change of which no wake tells is honoured within this.
const settingsEvery = time.Second

type settings struct {
	pool     *pgpool.Pool
	loops    loops
	changed  chan struct{} // of one
	mu       sync.Mutex
	interval map[string]time.Duration
}

func (s *settings) invalidate() { loop.Signal(s.changed) }

// watch reads the intervals until ctx ends, while any loop runs.
func (s *settings) watch(ctx context.Context) {
	t := time.NewTicker(settingsEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-t.C:
		}
		if len(s.loops.running()) > 0 {
			s.refresh(ctx)
		}
	}
}

// refresh reads the intervals, and tells each loop whose interval has changed.
func (s *settings) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	next := map[string]time.Duration{}
	var name string
	var secs int
	err := pgrow.Visit(ctx, s.pool, []any{&name, &secs}, func() { next[name] = time.Duration(secs) * time.Second },
		`SELECT split_part(key, '.', 3), n FROM public.v_dot_config_number WHERE key LIKE 'queue.tick.%.interval_seconds' AND n IS NOT NULL`)
	if err != nil {
		return // the last known intervals stand
	}
	s.mu.Lock()
	last := s.interval
	s.interval = next
	s.mu.Unlock()
	for name, d := range next {
		if was, known := last[name]; known && was != d {
			if l := s.loops.get(name); l != nil {
				l.NotifyInterval()
			}
		}
	}
}

func (s *settings) every(worker string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, known := s.interval[worker]
	switch {
	case !known:
		return 5 * time.Second
	case d == 0:
		return offEvery
	}
	return d
}
