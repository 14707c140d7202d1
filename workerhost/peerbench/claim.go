package main

// Part 3: claim and complete with qtop's functions, without a host, for several numbers of jobs
// per call. For the limit, rows are deleted from a table that has only a key column.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const bareName = "bare DELETE … RETURNING"

func (b *bench) claimRate(ctx context.Context) part {
	sizes := []struct{ batch, total int }{
		{1, b.scale(5000, 200)}, {10, b.scale(30_000, 1000)}, {100, b.scale(100_000, 5000)}, {1000, b.scale(100_000, 5000)},
	}
	figure := func(batch int) string { return fmt.Sprintf("jobs, %d a call", batch) }
	each := func(t *template, run func(ctx context.Context, d *database, batch, total int) (float64, error)) func(context.Context, put) error {
		return func(ctx context.Context, put put) error {
			for _, s := range sizes {
				d, err := b.fresh(ctx, t)
				if err != nil {
					return err
				}
				rate, err := run(ctx, d, s.batch, s.total)
				d.drop()
				if err != nil {
					return fmt.Errorf("claiming %d jobs a call: %w", s.batch, err)
				}
				put(figure(s.batch), perSecond, rate)
			}
			return nil
		}
	}
	f := b.contest(ctx,
		contender{qtopName, each(qtopTemplate(), claimAndAck)},
		contender{rawName, each(rawTemplate(), rawLoops)},
		contender{bareName, each(rawTemplate(), bareDelete)},
	)
	p := part{title: "claim and complete", figs: f, notes: []string{
		fmt.Sprintf("%d connections; a claim starts after the connection's last key, as the host's does; no goal depends on it", rawConns)}}
	for _, s := range sizes {
		p.goals = append(p.goals, goal{text: "fn_job_claim + fn_job_ack ÷ bare delete, " + figure(s.batch),
			ours: f.get(qtopName, figure(s.batch)), peer: f.get(bareName, figure(s.batch)), peerName: bareName})
	}
	return p
}

func rawLoops(ctx context.Context, d *database, batch, total int) (float64, error) {
	if err := rawSystem().fill(ctx, d, total); err != nil {
		return 0, err
	}
	if err := d.settle(ctx); err != nil {
		return 0, err
	}
	rate, err := drain(ctx, rawConns, total, func(ctx context.Context, worker int) (int, error) {
		return rawStep(ctx, d.pool, fmt.Sprint("loop ", worker), batch, func(int) {})
	})
	if err == nil {
		err = d.expect(ctx, total, rawSystem().done)
	}
	return rate, err
}

func bareDelete(ctx context.Context, d *database, batch, total int) (float64, error) {
	err := d.exec(ctx, "INSERT INTO raw.plain (payload) SELECT jsonb_build_object('n', g) FROM generate_series(0, $1 - 1) g", total)
	if err == nil {
		err = d.settle(ctx)
	}
	if err != nil {
		return 0, err
	}
	rate, err := drain(ctx, rawConns, total, func(ctx context.Context, _ int) (int, error) {
		tag, err := d.pool.Exec(ctx, rawDelete, batch)
		return int(tag.RowsAffected()), err
	})
	if err == nil {
		err = d.expect(ctx, 0, "SELECT count(*)::int FROM raw.plain")
	}
	return rate, err
}

// claimer is one connection. It holds the last key that it claimed in the benchmark's only queue
// lane.
type claimer struct{ after *string }

func claimAndAck(ctx context.Context, d *database, batch, total int) (float64, error) {
	if err := qtopFill(ctx, d, total); err != nil {
		return 0, err
	}
	if err := d.settle(ctx); err != nil {
		return 0, err
	}
	pool, err := d.login(ctx, hostLogin, rawConns, false)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	places := make([]claimer, rawConns)
	rate, err := drain(ctx, rawConns, total, func(ctx context.Context, worker int) (int, error) {
		return places[worker].step(ctx, pool, batch)
	})
	if err == nil {
		err = d.expect(ctx, total, qtopSystem(qtopName).done)
	}
	return rate, err
}

func (c *claimer) step(ctx context.Context, pool *pgxpool.Pool, batch int) (int, error) {
	type job struct {
		ID, Token [16]byte
		Priority  int
		After     time.Time
		Key       string
	}
	rows, _ := pool.Query(ctx, `SELECT job_id, lease_token, priority, process_after, job_id::text
		FROM public.fn_job_claim($1::text, NULL::text[], $2::int, $3::jsonb)`, qtopExecutor, batch, c.after)
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	if err != nil {
		return 0, err
	}
	if len(jobs) == 0 {
		c.after = nil // the next claims find jobs that became visible before the key
		return 0, nil
	}
	ids, tokens := make([][16]byte, len(jobs)), make([][16]byte, len(jobs))
	for i, j := range jobs {
		ids[i], tokens[i] = j.ID, j.Token
	}
	last := jobs[len(jobs)-1]
	key, err := json.Marshal(map[string]any{qtopDomain + "/noop": []any{last.Priority, last.After, last.Key}})
	if err != nil {
		return 0, err
	}
	c.after = new(string)
	*c.after = string(key)
	var done int
	err = pool.QueryRow(ctx, "SELECT count(*) FROM public.fn_job_ack($1::uuid[], $2::uuid[]) WHERE outcome = 'done'", ids, tokens).Scan(&done)
	if err == nil && done != len(ids) {
		err = fmt.Errorf("fn_job_ack did not complete %d of %d jobs: their leases were lost, or they had ended already", len(ids)-done, len(ids))
	}
	return len(ids), err
}
