package main

// The limits: simple loops on four connections without a host, on separate tables. rawSystem
// claims and completes as in qtop's design; rawDelete does the least work that takes each row
// once.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	rawName  = "raw loop"
	rawConns = 4
	rawBatch = 1000
)

// A claim changes no indexed column, so that its update can stay on the same page (HOT). Finished
// rows are moved out of the table.
const rawTables = `
CREATE SCHEMA raw;
CREATE TABLE raw.job (
  job_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind          text NOT NULL DEFAULT 'noop',
  priority      int NOT NULL DEFAULT 100,
  process_after timestamptz NOT NULL DEFAULT now(),
  enqueued_at   timestamptz NOT NULL DEFAULT now(),
  attempts      int NOT NULL DEFAULT 0,
  lease_owner   text,
  lease_until   timestamptz,
  payload       jsonb NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON raw.job (priority, process_after, job_id);
CREATE TABLE raw.history (LIKE raw.job, finished_at timestamptz NOT NULL);
CREATE FUNCTION raw.wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('raw_wake', '');
  RETURN NULL;
END $$;
CREATE TRIGGER wake AFTER INSERT ON raw.job FOR EACH STATEMENT EXECUTE FUNCTION raw.wake();
CREATE TABLE raw.plain (job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload jsonb NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);`

const (
	rawClaim = `
UPDATE raw.job SET lease_owner = $2, lease_until = now() + interval '1 minute', attempts = attempts + 1
WHERE job_id = ANY (ARRAY(
  SELECT job_id FROM raw.job
  WHERE process_after <= now() AND (lease_until IS NULL OR lease_until < now())
  ORDER BY priority, process_after, job_id
  LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING job_id, (payload ->> 'n')::int`

	rawComplete = `
WITH d AS (DELETE FROM raw.job WHERE job_id = ANY ($1) AND lease_owner = $2 RETURNING *)
INSERT INTO raw.history SELECT d.*, clock_timestamp() FROM d`

	rawDelete = `
DELETE FROM raw.plain WHERE job_id = ANY (ARRAY(
  SELECT job_id FROM raw.plain ORDER BY job_id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING job_id, payload`
)

func rawTemplate() *template {
	return &template{"raw", nil, func(ctx context.Context, d *database) error { return d.exec(ctx, rawTables) }}
}

func rawSystem() system {
	return system{
		name: rawName, template: rawTemplate(),
		fill: func(ctx context.Context, d *database, n int) error {
			return d.exec(ctx, "INSERT INTO raw.job (payload) SELECT jsonb_build_object('n', g) FROM generate_series(0, $1 - 1) g", n)
		},
		open: rawOpen,
		none: "SELECT NOT EXISTS (SELECT FROM raw.job)",
		done: "SELECT count(*)::int FROM raw.history",
	}
}

func rawOpen(ctx context.Context, d *database, handled func(n int)) (session, error) {
	return loops(ctx, d, rawConns, "raw_wake", func(ctx context.Context, worker int) (int, error) {
		return rawStep(ctx, d.pool, fmt.Sprint("loop ", worker), rawBatch, handled)
	}, func(ctx context.Context, n int) error {
		return d.exec(ctx, "INSERT INTO raw.job (payload) VALUES (jsonb_build_object('n', $1::int))", n)
	})
}

// loops runs step in each worker until the session is stopped. After a step that found no job,
// the worker waits for a signal or for the poll.
func loops(ctx context.Context, d *database, conns int, channel string, step func(ctx context.Context, worker int) (int, error),
	insert func(ctx context.Context, n int) error) (session, error) {
	ctx, cancel := context.WithCancel(ctx)
	listener, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err == nil {
		_, err = listener.Exec(ctx, "LISTEN "+channel)
	}
	if err != nil {
		cancel()
		return session{}, err
	}
	wake := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer listener.Close(context.WithoutCancel(ctx))
		for {
			if _, err := listener.WaitForNotification(ctx); err != nil {
				return
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})
	failed := make([]error, conns)
	for i := range conns {
		wg.Go(func() {
			for ctx.Err() == nil && failed[i] == nil {
				n, err := step(ctx, i)
				if err != nil && ctx.Err() == nil {
					failed[i] = err
				}
				if n == 0 {
					select {
					case <-wake:
					case <-time.After(20 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	return session{
		insert: func(ctx context.Context, n int) (time.Time, error) { return time.Time{}, insert(ctx, n) },
		stop: func() error {
			cancel()
			wg.Wait()
			return errors.Join(failed...)
		},
	}, nil
}

// rawStep claims up to limit jobs and completes them. It calls handled only after the claim has
// committed, because otherwise a completion could be sent before the commit.
func rawStep(ctx context.Context, pool *pgxpool.Pool, owner string, limit int, handled func(n int)) (int, error) {
	rows, _ := pool.Query(ctx, rawClaim, limit, owner)
	type job struct {
		ID int64
		N  int
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	if err != nil || len(jobs) == 0 {
		return 0, err
	}
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
		handled(j.N)
	}
	tag, err := pool.Exec(ctx, rawComplete, ids, owner)
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		err = fmt.Errorf("%d of %d completions were lost", int64(len(ids))-tag.RowsAffected(), len(ids))
	}
	return len(ids), err
}

// drain runs steps on all connections until total rows were taken, and returns the rate. The
// limit of a step prevents that more than total rows are taken.
func drain(ctx context.Context, conns, total int, step func(ctx context.Context, worker int) (int, error)) (rate float64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var taken atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for w := range conns {
		wg.Go(func() {
			for taken.Load() < int64(total) && ctx.Err() == nil {
				n, err := step(ctx, w)
				if err != nil {
					cancel(err)
				} else if n == 0 {
					_ = pause(ctx, time.Millisecond)
				}
				taken.Add(int64(n))
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if n := taken.Load(); n != int64(total) {
		return 0, fmt.Errorf("the raw loop took %d rows of %d", n, total)
	}
	return float64(total) / took.Seconds(), nil
}
