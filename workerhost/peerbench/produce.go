package main

// Part 4: how much wake signals cost producers, and how much one call for many jobs saves.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/enqueue"
)

const (
	wakeOff     = "bridge off"
	wakeTrigger = "bridge on, statement trigger"
	wakeSignal  = "bridge on, wake signal after commits"
	wakeRow     = "a trigger per row, as DP4 first had it"
)

// rowTrigger is the earlier design, a signal per row, for comparison.
const rowTrigger = `
CREATE FUNCTION public.bench_row_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('queue_wake_bench', NEW.job_id::text);
  RETURN NULL;
END $$;
CREATE TRIGGER bench_row_wake AFTER INSERT ON public.job_queue FOR EACH ROW EXECUTE FUNCTION public.bench_row_wake()`

func (b *bench) produceRate(ctx context.Context) part {
	clients := []int{1, 8, 32}
	span, rounds := time.Duration(b.scale(1000, 200))*time.Millisecond, b.scale(3, 1)*b.rounds
	figure := func(n int) string { return fmt.Sprintf("inserts, %d clients", n) }
	var cs []contender
	for _, n := range clients {
		for _, wake := range []string{wakeOff, wakeSignal, wakeTrigger, wakeRow} { // in this order, because contenders whose ratio is shown are measured one after the other
			cs = append(cs, contender{wake, func(ctx context.Context, put put) error {
				rate, err := b.produced(ctx, wake, n, span)
				if err == nil {
					put(figure(n), perSecond, rate)
				}
				return err
			}})
		}
	}
	f := b.contestOf(ctx, rounds, cs...)
	p := part{title: "producers", figs: f, notes: []string{fmt.Sprintf(
		"one row per transaction straight into job_queue, one listener; %d rounds of %s each; wake signals after commits are sent by the "+
			"producers' process, at most once per 2 ms", rounds, span),
	}}
	for _, n := range clients[1:] {
		p.goals = append(p.goals, goal{fmt.Sprintf("producer throughput, wake signal after commits ÷ off, %d clients", n),
			f.get(wakeSignal, figure(n)), f.get(wakeOff, figure(n)), "off", atLeast(0.9), atLeast(0.95)})
	}
	for _, wake := range []string{wakeTrigger, wakeRow} {
		for _, n := range clients[1:] {
			p.goals = append(p.goals, goal{text: fmt.Sprintf("for comparison: %s ÷ off, %d clients", wake, n),
				ours: f.get(wake, figure(n)), peer: f.get(wakeOff, figure(n)), peerName: "off"})
		}
	}
	return p
}

// produced returns the insert rate of the given number of clients during span.
func (b *bench) produced(ctx context.Context, wake string, clients int, span time.Duration) (float64, error) {
	d, err := b.fresh(ctx, qtopTemplate())
	if err != nil {
		return 0, err
	}
	defer d.drop()
	switch wake {
	case wakeRow:
		err = d.exec(ctx, rowTrigger)
		fallthrough
	case wakeOff:
		err = errors.Join(err, d.exec(ctx, "SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'false', 'bench', 'measured without', NULL::timestamptz, NULL::timestamptz)"))
	}
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deaf, err := listenTo(ctx, d, "queue_wake_"+qtopDomain)
	if err != nil {
		return 0, err
	}
	pool, err := d.login(ctx, embedded.Superuser, clients, wake == wakeSignal)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	notifier := enqueue.NewNotifier(d.pool)
	var inserted atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range clients {
		wg.Go(func() {
			for time.Since(began) < span && ctx.Err() == nil {
				_, err := pool.Exec(ctx, "INSERT INTO public.job_queue (job_kind, event_domain, executor, payload) "+
					"VALUES ('noop', '"+qtopDomain+"', 'DOT', '{\"n\": 1}')")
				if err != nil {
					cancel(err)
					return
				}
				inserted.Add(1)
				if wake == wakeSignal {
					notifier.Notify(qtopDomain)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	err = context.Cause(ctx)
	if err == nil {
		err = d.expect(ctx, int(inserted.Load()), "SELECT count(*)::int FROM public.job_queue")
	}
	cancel(nil)
	<-deaf
	return float64(inserted.Load()) / took.Seconds(), err
}

// listenTo runs LISTEN on the channel and receives notifications until ctx ends.
func listenTo(ctx context.Context, d *database, channel string) (ended <-chan struct{}, err error) {
	conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				return
			}
		}
	}()
	return done, nil
}

const (
	enqueueOne  = "fn_job_enqueue, one by one"
	enqueueMany = "fn_job_enqueue_many, one call"
)

func (b *bench) enqueueRate(ctx context.Context) part {
	n := b.scale(100_000, 1000)
	timed := func(name string, enqueue func(ctx context.Context, d *database) error) contender {
		return b.fed(name, qtopTemplate(), func(ctx context.Context, d *database, put put) error {
			began := time.Now()
			if err := enqueue(ctx, d); err != nil {
				return err
			}
			put("time", "s", time.Since(began).Seconds())
			return d.expect(ctx, n, "SELECT count(*)::int FROM public.job_queue")
		})
	}
	f := b.contest(ctx,
		timed(enqueueMany, func(ctx context.Context, d *database) error { return enqueuedAtOnce(ctx, d, n) }),
		timed(enqueueOne, func(ctx context.Context, d *database) error { return enqueuedSingly(ctx, d, n) }))
	return part{title: "enqueue", figs: f, goals: []goal{{fmt.Sprintf("%s jobs with one call ÷ one by one, time", number(float64(n))),
		f.get(enqueueMany, "time"), f.get(enqueueOne, "time"), "one by one", atMost(0.01), limit{}}},
		notes: []string{"one connection of a producer without other rights, bridge on"}}
}

func enqueuedAtOnce(ctx context.Context, d *database, n int) error {
	pool, err := d.login(ctx, writerLogin, 1, true)
	if err != nil {
		return err
	}
	defer pool.Close()
	jobs := make([]map[string]any, n)
	for i := range jobs {
		jobs[i] = map[string]any{"job_kind": "noop", "event_domain": qtopDomain, "executor": "DOT", "payload": map[string]int{"n": i}}
	}
	text, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	var answer string
	if err := pool.QueryRow(ctx, "SELECT public.fn_job_enqueue_many($1::jsonb)::text", string(text)).Scan(&answer); err != nil {
		return err
	}
	return refusal(answer)
}

func enqueuedSingly(ctx context.Context, d *database, n int) error {
	pool, err := d.login(ctx, writerLogin, 1, true)
	if err != nil {
		return err
	}
	defer pool.Close()
	for i := range n {
		if _, err := pool.Exec(ctx, oneJob, i); err != nil {
			return err
		}
	}
	return nil
}
