package main

// Part 5, and the databases of part 7: many finished jobs, and the duration of one refresh of the
// console's live panes.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// history returns a database with the given numbers of finished and queued jobs, in 64 queue
// lanes. All jobs finished today, so they are in one partition.
func history(finished, queued int) *template {
	name := fmt.Sprintf("finished_%d_queued_%d", finished, queued)
	return &template{name, qtopTemplate(), func(ctx context.Context, d *database) error {
		const chunk = 250_000
		for at := 0; at < finished; at += chunk {
			if err := d.exec(ctx, `
				INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, payload,
				  process_after, enqueued_at, picked_at, finished_at, updated_at)
				SELECT gen_random_uuid(), 'kind_' || g % 8, 'domain_' || g / 8 % 8, 'DOT', 'succeeded', 'leased',
				  jsonb_build_object('n', g), t, t, t, t, t
				FROM generate_series($1::int, $2::int) g
				CROSS JOIN LATERAL (SELECT date_trunc('day', now(), 'UTC') + (now() - date_trunc('day', now(), 'UTC')) * (g::float8 / $3::float8) AS t) x`,
				at, min(finished, at+chunk)-1, finished); err != nil {
				return err
			}
		}
		for at := 0; at < max(queued, 64); at += chunk {
			if err := d.exec(ctx, `INSERT INTO public.job_queue (job_kind, event_domain, executor, payload)
				SELECT 'kind_' || g % 8, 'domain_' || g / 8 % 8, 'DOT', jsonb_build_object('n', g)
				FROM generate_series($1::int, $2::int) g`, at, min(max(queued, 64), at+chunk)-1); err != nil {
				return err
			}
		}
		if err := d.exec(ctx, "SELECT public.fn_queue_counter_compact()"); err != nil {
			return err
		}
		return d.settle(ctx)
	}}
}

func (b *bench) paneTime(ctx context.Context) part {
	type size struct {
		name             string
		finished, queued int
	}
	small := size{"10 k finished", 10_000, 0}
	big := size{"1 M finished", b.scale(1_000_000, 100_000), 0}
	if b.quick {
		big.name = "100 k finished"
	}
	sizes := []size{small, big}
	if b.large {
		big = size{"10 M finished, 3 M queued", 10_000_000, 3_000_000}
		sizes = append(sizes, big)
	}
	var cs []contender
	for _, s := range sizes {
		cs = append(cs, b.fed(s.name, history(s.finished, s.queued), func(ctx context.Context, d *database, put put) error {
			if err := d.expect(ctx, s.finished, `SELECT COALESCE(sum(n), 0)::int FROM public.v_queue_counter_part WHERE scope = 'job' AND k3 = 'succeeded'`); err != nil {
				return err
			}
			return refreshes(ctx, d, b.scale(200, 30), put)
		}))
	}
	f := b.contest(ctx, cs...)
	ours := f.get(big.name, "took_ms")
	return part{title: "panes", figs: f, goals: []goal{
		{text: "one refresh of the live panes, " + big.name + ", database time", ours: ours, floor: atMost(10), stretch: atMost(5)},
		{"the same ÷ at 10 k finished", ours, f.get(small.name, "took_ms"), small.name, atMost(1.5), atMost(1.1)},
	}, notes: []string{"fn_queue_picture('0') as queue_viewer on one connection, medians; took_ms is the function's own; 64 lanes; " +
		"the counters are checked against what was filled in"}}
}

// refreshes calls fn_queue_picture n times. Each call computes the snapshot again.
func refreshes(ctx context.Context, d *database, n int, put put) error {
	pool, err := d.login(ctx, viewerLogin, 1, false)
	if err != nil {
		return err
	}
	defer pool.Close()
	var took []float64
	var trips []time.Duration
	for i := range n + n/10 + 1 {
		began := time.Now()
		var ms float64
		var body []byte
		if err := pool.QueryRow(ctx, "SELECT took_ms::float8, body FROM public.fn_queue_picture('0'::interval)", pgx.QueryExecModeCacheStatement).Scan(&ms, &body); err != nil {
			return err
		}
		trip := time.Since(began)
		if i > n/10 { // the first calls make plans and fill caches
			took, trips = append(took, ms), append(trips, trip)
		}
	}
	slices.Sort(took)
	slices.Sort(trips)
	put("took_ms", "ms", took[len(took)/2])
	put("round trip", "ms", float64(quantile(trips, 0.5).Microseconds())/1000)
	return nil
}
