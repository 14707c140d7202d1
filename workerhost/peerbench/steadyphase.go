package main

// The phases, their effects on a contestant, and the courses that consist of them.

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const idleInTx = "idle-in-tx"

// phase is one kind of load or fault during a course.
type phase struct {
	name string
	// during runs beside the load for the duration length. It returns when the last disturbance
	// ended, from which the recovery is measured; zero = there was no disturbance.
	during func(ctx context.Context, w *world, length time.Duration) (time.Time, error)
}

// course is a sequence of phases on one server.
type course []phase

// courses returns the courses that every contestant runs.
func courses() []course {
	return []course{
		{{"clean", undisturbed}},
		{{idleInTx, heldTransaction}, {"recovery", recovering}},
		{{"active-readers", activeReaders}},
		{{"high-load", highLoad}},
		{{"burst", burst}},
		{{"postgres-restart", serverRestart}},
		{{"backends-killed", backendsKilled}},
		{{"pool-exhausted", poolExhausted}, {"pool-recovery", recovering}},
		{{"host-killed", hostKilled}},
		{{"host-killed-repeatedly", hostKilledRepeatedly}},
	}
}

func (c course) name() string {
	var names []string
	for _, p := range c {
		names = append(names, p.name)
	}
	return strings.Join(names, " + ")
}

func (c course) matches(re *regexp.Regexp) bool {
	for _, p := range c {
		if re.MatchString(p.name) {
			return true
		}
	}
	return false
}

func undisturbed(ctx context.Context, _ *world, length time.Duration) (time.Time, error) {
	return time.Time{}, pause(ctx, length)
}

// recovering does nothing for the length of a phase. The disturbance ended with the phase before, so
// the recovery is measured from the beginning.
func recovering(ctx context.Context, _ *world, length time.Duration) (time.Time, error) {
	return time.Now(), pause(ctx, length)
}

// heldTransaction holds a transaction open that has written something. Until
// it ends, vacuum can remove no row that died after its start.
func heldTransaction(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return time.Time{}, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_catalog.txid_current()"); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, pause(ctx, length)
}

// activeReaders runs four REPEATABLE READ transactions that count the rows of the hot table ten
// times a second.
func activeReaders(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			conn, err := w.connect(ctx)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close(context.WithoutCancel(ctx))
			_, errs[i] = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ")
			for errs[i] == nil && ctx.Err() == nil {
				if _, err := conn.Exec(ctx, "SELECT count(*) FROM "+w.who.hot); ctx.Err() == nil {
					errs[i] = err
				}
				_ = pause(ctx, 100*time.Millisecond)
			}
		})
	}
	wg.Wait()
	return time.Time{}, errors.Join(errs...)
}

// highLoad sets the producer to 1.5 times the rate.
func highLoad(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	w.producer.setRate(w.rate * 3 / 2)
	defer w.producer.setRate(w.rate)
	return time.Time{}, pause(ctx, length)
}

// burst sets the producer to three times the rate for a third of the phase, and then to the rate
// again.
func burst(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	w.producer.setRate(w.rate * 3)
	err := pause(ctx, length/3)
	w.producer.setRate(w.rate)
	over := time.Now()
	return over, errors.Join(err, pause(ctx, length-length/3))
}

// serverRestart stops PostgreSQL for half of the phase and then starts it again.
func serverRestart(ctx context.Context, w *world, length time.Duration) (up time.Time, err error) {
	end := time.Now().Add(length)
	if err := w.stopServer(ctx); err != nil {
		return up, err
	}
	if err := pause(ctx, time.Until(end.Add(-length/2))); err != nil {
		return up, err
	}
	err = w.server.Restart(ctx)
	return time.Now(), errors.Join(err, pause(ctx, time.Until(end)))
}

// backendsKilled ends one session of the contestant, of its host or producer, each second during
// the first two thirds of the phase. It spares the sessions of viewers, which no peer has.
func backendsKilled(ctx context.Context, w *world, length time.Duration) (last time.Time, err error) {
	end := time.Now().Add(length)
	for until := time.Now().Add(length * 2 / 3); err == nil && time.Now().Before(until); {
		_, err = w.admin.Exec(ctx, `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> $1 AND usename <> $2
			ORDER BY random() LIMIT 1`, observer, viewerLogin)
		last = time.Now()
		err = errors.Join(err, pause(ctx, time.Second))
	}
	return last, errors.Join(err, pause(ctx, time.Until(end)))
}

// poolExhausted opens connections until the server refuses more, at most 300, and holds them until
// the end of the phase.
func poolExhausted(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	var held []*pgx.Conn
	defer func() {
		for _, conn := range held {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for until := time.Now().Add(length); time.Now().Before(until) && ctx.Err() == nil; {
		conn, err := w.connectAs(ctx, peerLogin)
		if err == nil && len(held) < 300 {
			held = append(held, conn)
			continue
		}
		if err == nil {
			_ = conn.Close(ctx)
		}
		_ = pause(ctx, 200*time.Millisecond) // then also take connections that the contestant has closed
	}
	w.say("held %d connections", len(held))
	return time.Time{}, ctx.Err()
}

// hostKilled kills the host after a third of the phase's length.
func hostKilled(ctx context.Context, w *world, length time.Duration) (time.Time, error) {
	if err := pause(ctx, length/3); err != nil {
		return time.Time{}, err
	}
	at, err := w.hosts.kill(ctx)
	return at, errors.Join(err, pause(ctx, length-time.Since(at)-length/3))
}

// hostKilledRepeatedly kills the host again and again during the first two thirds of the phase:
// each tenth of that time, at most every 10 s.
func hostKilledRepeatedly(ctx context.Context, w *world, length time.Duration) (at time.Time, err error) {
	end := time.Now().Add(length)
	for until := time.Now().Add(length * 2 / 3); err == nil && time.Now().Before(until); {
		if at, err = w.hosts.kill(ctx); err == nil {
			err = pause(ctx, min(max(length/15, 10*time.Second), time.Until(until)))
		}
	}
	return at, errors.Join(err, pause(ctx, time.Until(end)))
}
