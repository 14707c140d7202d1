package main

// The limit that is set by qtop's tables with their checks, triggers and leases. Single
// statements without qtop's functions use them, so no function of qtop can be faster.

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const tablesName = "qtop's tables, bare statements"

const (
	tablesInsert = `
INSERT INTO public.job_queue (job_kind, event_domain, executor, payload)
SELECT 'noop', '` + qtopDomain + `', 'DOT', jsonb_build_object('n', $1::int) WHERE set_config('qtop.doorbell', 'on', true) = 'on'`

	// tablesClaim is the claim statement at the end of fn_job_claim, for a job subscription that
	// is known and not locked.
	tablesClaim = `
WITH lease AS MATERIALIZED (SELECT gen_random_uuid() AS token, s.subscription_id, s.executor_id FROM public.job_subscription s LIMIT 1),
claimed AS (
  UPDATE public.job_queue q SET status = 'leased', lease_owner = (SELECT executor_id FROM lease), lease_until = now() + interval '5 minutes',
    lease_token = (SELECT token FROM lease), picked_at = clock_timestamp(), updated_at = now()
  WHERE q.ctid = ANY (ARRAY(
    SELECT w.ctid FROM public.job_queue w
    WHERE w.event_domain = '` + qtopDomain + `' AND w.job_kind = 'noop' AND w.ready AND w.status IN ('queued', 'retry_waiting')
    ORDER BY w.priority DESC, w.process_after, w.job_id LIMIT 100 FOR UPDATE SKIP LOCKED))
  RETURNING q.*
), leased AS (
  INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
  SELECT l.token, l.executor_id, l.subscription_id, now() + interval '5 minutes', c.ids, c.n
  FROM lease l CROSS JOIN (SELECT array_agg(job_id) AS ids, count(*)::int AS n FROM claimed) c WHERE c.n > 0
)
SELECT job_id, lease_token, (payload ->> 'n')::int FROM claimed`

	tablesDone = "SELECT count(*) FROM public.fn_job_ack($1::uuid[], $2::uuid[]) a WHERE a.outcome = 'done'"
)

func tablesSystem() system {
	s := qtopSystem(qtopName)
	s.name = tablesName
	s.open = tablesOpen
	return s
}

func tablesOpen(ctx context.Context, d *database, handled func(n int)) (session, error) {
	cfg, err := pgxpool.ParseConfig(d.dsn("postgres"))
	if err != nil {
		return session{}, err
	}
	for _, off := range []string{"enable_seqscan", "enable_bitmapscan", "jit"} { // the functions have the same settings
		cfg.ConnConfig.RuntimeParams[off] = "off"
	}
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return session{}, err
	}
	step := func(ctx context.Context, _ int) (int, error) {
		rows, _ := pool.Query(ctx, tablesClaim)
		type job struct {
			ID, Token [16]byte
			N         int
		}
		jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
		if err != nil || len(jobs) == 0 {
			return 0, err
		}
		var ids, tokens [][16]byte
		for _, j := range jobs {
			ids, tokens = append(ids, j.ID), append(tokens, j.Token)
			handled(j.N)
		}
		_, err = pool.Exec(ctx, tablesDone, ids, tokens)
		return len(jobs), err
	}
	insert := func(ctx context.Context, n int) error {
		if _, err := pool.Exec(ctx, tablesInsert, n); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, "SELECT public.fn_queue_wake_signal($1::text, 'job'::text)", qtopDomain)
		return err
	}
	run, err := loops(ctx, d, 1, "queue_wake_"+qtopDomain, step, insert)
	stop := run.stop
	run.stop = func() error {
		defer pool.Close()
		return stop()
	}
	return run, err
}
