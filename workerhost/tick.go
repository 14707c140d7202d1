package workerhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/loop"
)

// minGap is the least time between two ticks of a worker.
const minGap = 10 * time.Millisecond

// retryLeaseHeld is the pause before a tick is repeated. A tick that a wake
// signal caused is repeated if another session was running the same tick
// worker, because that run may have begun before the new row was visible.
const retryLeaseHeld = 100 * time.Millisecond

// fullRunAfter is the pause between a quick run (which reads new rows only)
// and the full run that follows it.
const fullRunAfter = time.Second

// retryFailed is the first pause after a failure. It doubles with each failure that follows, until
// it is as long as the interval of the worker.
const retryFailed = time.Second

// lookEvery is how often a host looks for jobs that become due before its next tick. No tick knows of
// a job with a short delay that was enqueued after it, and a job may be enqueued without a wake signal.
// If looks take long, they take at most a tenth of the time.
const lookEvery = time.Second

// lookSpread spreads the looks that hosts make when a job becomes due: the first of them makes a tick,
// and the others then no longer find the job.
const lookSpread = 200 * time.Millisecond

// firstTickWait is how long the first tick waits at most until the listener
// listens. A tick that starts after LISTEN sees all rows that were committed
// before, so their signals, which nobody heard, are not needed.
const firstTickWait = 500 * time.Millisecond

// ticker runs tick workers: each at its interval, and sooner after a wake signal. The database
// decides whether a worker is due.
type ticker struct {
	listening  <-chan struct{} // closed when the listener listens
	client     *work.Client
	loops      loops
	settings   *settings
	log        *slog.Logger
	outcomeLog *slog.Logger // without the field worker_id of this host, because each line has the worker_id of the host that made the attempt
	calls      tickCalls
}

func (t *ticker) run(ctx context.Context, l *loop.Loop) error {
	drain := l.Draining()
	// asWake: run the next tick like one after a wake signal, so that the database does not check the
	// interval. The first tick stands for the signals that no host heard, such as between two hosts.
	asWake := handsOn(l.Name)
	select {
	case <-t.listening:
	case <-time.After(firstTickWait):
	case <-drain:
		return nil
	case <-ctx.Done():
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	looks := time.NewTimer(rand.N(lookEvery))
	defer looks.Stop()
	if l.Name != loopDue {
		looks.Stop()
	}
	looking := false                // a look is of use: the last tick did not fail, and its worker is on
	secondLook := false             // the last look found that a job becomes due, and planned the next one for that time
	byLook := false                 // a look has caused the next tick
	var dueTold, toldAt time.Time   // the next due time that the last tick told, and when it did, by the server's clock; zero = none
	var dueAt time.Time             // the next due time that the last run told which read everything, by this machine's clock; zero = none
	var started, nextTick time.Time // when the last tick began, and when the next one is due
	afterQuick := false             // the next tick of the timer follows a quick run
	overduePause := minGap          // doubles while work is due but the tick does not find it yet
	failedPause := retryFailed      // doubles while runs fail; the cause may be gone at once, and due work must not wait for the interval
	var failedAt time.Time          // when the last failed run ended
	byMode := false                 // the last tick of the interval was skipped, because pg_cron runs the worker
	for {
		source, follows, looked := "external", afterQuick, byLook
		select {
		case <-ctx.Done():
			return nil
		case <-drain:
			return nil
		case <-l.Kicked():
			source, follows, looked = "wake", false, false
		case <-l.IntervalChanged():
			if at := started.Add(t.settings.every(l.Name)); at.Before(nextTick) {
				asWake, nextTick = false, at
				timer.Reset(time.Until(at))
			}
			continue
		case <-looks.C:
			pause, planned := lookEvery, secondLook
			secondLook = false
			if looking {
				began := time.Now()
				due, in, err := t.client.JobNextDue(ctx, dueTold, toldAt) // after an error, the next tick finds the job
				if pgerror.NoFunction(err) {                              // the database is of an older release: no look any more
					continue
				}
				switch {
				// the next tick is soon enough; a job that stays due is left to the pauses after ticks
				case err != nil || due.IsZero() || due.Equal(dueTold) || in >= time.Until(nextTick):
				case in <= 0:
					asWake, byLook, afterQuick, nextTick = true, true, false, time.Now()
					timer.Reset(0)
				case in < lookEvery && !planned: // after a planned look, another host is at work on these jobs
					secondLook, pause = true, in+rand.N(lookSpread)
				}
				pause = max(pause, 10*time.Since(began))
			}
			looks.Reset(pause)
			continue
		case <-timer.C:
			if asWake {
				source = "wake"
			}
		}
		asWake, byLook, afterQuick, looking, dueTold, toldAt = false, false, false, false, time.Time{}, time.Time{}
		started = time.Now()
		every := t.settings.every(l.Name)
		next, foundWork, retry := every, false, false
		res, err := t.tick(ctx, l.Name, source)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			retry = true
			l.RecordError(err)
			t.log.Warn("tick failed", "loop", l.Name, "error", err.Error())
		case res.Failed:
			l.RecordError(fmt.Errorf("%s", res.Error))
			t.log.Error("tick worker failed", "loop", l.Name, "error", res.Error)
			if res.Quick { // a quick run ends at a row that fails; a full run puts that row in quarantine and goes on
				asWake, next = true, 0
			}
			retry = !res.Quick
		default:
			if source == "external" {
				byMode = res.Skipped == "mode"
			}
			looking = res.Skipped != "off" && res.Skipped != "clone"
			l.RecordTick(res.Work(), next)
			foundWork, retry = res.Work() > 0, res.Unfinished
			t.loops.notifyNext(l.Name, res.Result)
			t.logOutcomes(ctx, res.Log)
			switch {
			case res.Skipped != "lease_held" || source != "wake":
			case looked: // the next look shows whether that tick was enough
				looks.Reset(retryLeaseHeld + rand.N(lookSpread))
			default: // the tick that holds the lease may have checked before the new row was visible
				asWake, afterQuick, next = true, follows, min(next, retryLeaseHeld)
			}
			if res.Quick && needsFullRun(follows || looked, res) {
				asWake, afterQuick, next = true, true, min(next, fullRunAfter)
			}
			due, remaining, after := untilDue(res)
			switch {
			case !due.IsZero():
				dueTold, toldAt, dueAt = due, due.Add(-remaining), time.Now().Add(remaining)
				overduePause = min(2*overduePause, time.Minute)
				if remaining > 0 || res.Work() > 0 {
					overduePause = minGap
				}
				// due work that somebody has locked does not delay what becomes due later
				if remaining = max(min(max(remaining, overduePause), after), minGap); remaining < next {
					asWake, afterQuick, next = true, false, remaining // sooner than a full run can have come between
				}
			case res.Ran && !res.Quick:
				dueAt = time.Time{}
			default: // this tick has not read everything
				if in := time.Until(dueAt); in > 0 && in < next {
					asWake, afterQuick, next = true, false, max(in, minGap)
				}
			}
		}
		if retry {
			if started.Sub(failedAt) > 2*max(failedPause, every) { // other hosts ran it well meanwhile
				failedPause = retryFailed
			}
			failedAt = time.Now()
			if failedPause < next { // a longer pause would let many hosts make more than one run per interval
				asWake, next = asWake || !byMode, failedPause
				failedPause *= 2
			}
		} else if res.Ran {
			failedPause = retryFailed
		}
		l.RecordCheck(foundWork)
		select {
		case <-time.After(time.Until(started.Add(minGap))):
		case <-ctx.Done():
			return nil
		}
		nextTick = time.Now().Add(next)
		if next == every {
			nextTick = loop.Following(started, every)
		}
		timer.Reset(time.Until(nextTick))
	}
}

// tick requests one run of a tick worker.
func (t *ticker) tick(ctx context.Context, worker, source string) (work.TickResult, error) {
	call, end := t.calls.begin(ctx, worker)
	defer end()
	res, err := t.client.Tick(call, worker, source)
	if err != nil && errors.Is(context.Cause(call), errClockSetBack) {
		err = errClockSetBack
	}
	return res, err
}

// needsFullRun reports whether a full run must follow a quick run. If the quick run follows another
// one, a full run of another host came between them: then only new work needs one. Otherwise
// all hosts that a wake signal reached would run on, until each had its turn to run in full. The same
// holds for a quick run because of a look: if it finds nothing, another host has done the work.
func needsFullRun(follows bool, res work.TickResult) bool {
	return !follows || res.Work() > 0
}

// logOutcomes logs the decisions of a tick about jobs that did not succeed (R02 §5.3).
func (t *ticker) logOutcomes(ctx context.Context, all []work.Outcome) {
	for _, o := range all {
		attrs := []slog.Attr{
			slog.Any("job_id", o.JobID), slog.String("error_code", o.ErrorCode), slog.Any("lease_expiration", o.LeaseExpiration),
			slog.String("worker_id", o.WorkerID),
		}
		if o.SagaID != 0 {
			attrs = append(attrs, slog.Int64("saga_id", o.SagaID))
		}
		t.outcomeLog.LogAttrs(ctx, slog.LevelInfo, o.Outcome, attrs...)
	}
}

// untilDue returns when the next delayed work becomes due, how long after the answer of a tick that
// is, which may be in the past, and how long after it the first work is due that is not due yet; due
// is zero if the result names no such time. The times are by the server's clock. The functions of an
// older release do not name the latter, or not the server's time; then it uses this machine's clock.
func untilDue(res work.TickResult) (due time.Time, in, after time.Duration) {
	var body struct {
		Result struct {
			NextDue   *time.Time `json:"next_due"`
			NextAfter *time.Time `json:"next_after"`
			At        *time.Time `json:"at"`
		} `json:"result"`
	}
	if len(res.Raw) == 0 || json.Unmarshal(res.Raw, &body) != nil || body.Result.NextDue == nil {
		return time.Time{}, 0, 0
	}
	due, after = *body.Result.NextDue, math.MaxInt64
	if body.Result.At == nil {
		return due, time.Until(due), after
	}
	if body.Result.NextAfter != nil {
		after = body.Result.NextAfter.Sub(*body.Result.At)
	}
	return due, due.Sub(*body.Result.At), after
}

// tickWhenOff is the interval of the ticks of a worker that is switched off: such a tick records
// a heartbeat with the state stopped, so that no alert reports the worker as silent.
const tickWhenOff = 10 * time.Second

// settingsEvery is the interval at which a host reads the intervals of its loops. A change whose
// wake signal is lost takes effect within this time.
const settingsEvery = time.Second

// settings holds the intervals of the loops. It reads them from the database every second, and at
// once when a flag changes.
type settings struct {
	pool     *pgpool.Pool
	loops    loops
	changed  chan struct{} // size 1
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

// refresh reads the intervals and notifies each loop whose interval has changed.
func (s *settings) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	next := map[string]time.Duration{}
	var name string
	var secs int
	err := pgrow.Visit(ctx, s.pool, []any{&name, &secs}, func() { next[name] = time.Duration(secs) * time.Second },
		`SELECT split_part(key, '.', 3), n FROM public.v_dot_config_number WHERE key LIKE 'queue.tick.%.interval_seconds' AND n IS NOT NULL`)
	if err != nil {
		return // the last known intervals stay in use
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
		return tickWhenOff
	}
	return d
}
