package main

// qtop's database: logins with only the privileges that each needs, one executor with one job
// subscription, and statements that fill the queue.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/qtop/qtop/pgclient/schema"
)

const (
	qtopName          = "qtop"
	qtopElsewhereName = "qtop, producer elsewhere" // the producer is another process, with the Go client
	qtopSQLName       = "qtop, SQL producer"       // the producer uses SQL only: the trigger sends the wake signal
	qtopOneName       = "qtop, one program"        // the producer is in the program of the host
	qtopDomain        = "bench"
	qtopExecutor      = "bench_executor"
	hostLogin         = "bench_host"
	writerLogin       = "bench_writer"
	bothLogin         = "bench_both"
	viewerLogin       = "bench_viewer"
)

func qtopTemplate() *template { return &template{"qtop", nil, qtopPrepare} }

// qtopPrepare installs the schema and makes the logins. It runs once per server, because logins
// belong to the whole server.
func qtopPrepare(ctx context.Context, d *database) error {
	if err := schema.Current().Up(ctx, d.dsn("postgres"), schema.UpOptions{AdoptRoles: true}); err != nil {
		return err
	}
	const host, writer = "dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner", "event_ingest_writer"
	for login, groups := range map[string]string{
		hostLogin: host, writerLogin: writer, bothLogin: host + ", " + writer, viewerLogin: "queue_viewer",
	} {
		if err := d.exec(ctx, "CREATE ROLE "+login+" LOGIN IN ROLE "+groups); err != nil {
			return err
		}
	}
	for _, sql := range []string{
		"SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'bench', 'measured with wakes', NULL::timestamptz, NULL::timestamptz)",
		"SELECT public.fn_queue_heartbeat_register('" + qtopExecutor + "', 'DOT', ARRAY['" + qtopDomain + "'], 10, 3600, 'bench')",
		"SELECT public.fn_job_subscription_set('" + qtopExecutor + "', 'noop', '" + qtopDomain + "', 0::smallint, 1000000, true, " +
			"'bench', 'bench', 'measured without a ceiling', false)",
	} {
		var answer string
		if err := d.pool.QueryRow(ctx, sql).Scan(&answer); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		} else if err := refusal(answer); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// refusal returns the error in the JSON answer of a call that was refused; nil if the call
// succeeded.
func refusal(answer string) error {
	var a struct {
		Refused bool   `json:"refused"`
		Reason  string `json:"reason"`
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		return err
	}
	if a.Refused {
		return errors.New("qtop refused the call: " + a.Reason)
	}
	return nil
}

// qtopSystem returns qtop with the producer that name names: JobEnqueue in another process,
// JobEnqueue in the host's program, or SQL only.
func qtopSystem(name string) system {
	return system{
		name: name, template: qtopTemplate(), fill: qtopFill,
		open: func(ctx context.Context, d *database, handled func(int)) (session, error) {
			return qtopOpen(ctx, d, handled, name)
		},
		none: "SELECT NOT EXISTS (SELECT FROM public.job_queue WHERE ready AND event_domain = '" + qtopDomain + "')",
		done: "SELECT count(*)::int FROM public.job_history WHERE status = 'succeeded'",
	}
}

// manyJobs calls fn_job_enqueue_many for generated jobs with the numbers $1 to $2.
const manyJobs = `SELECT public.fn_job_enqueue_many(jsonb_agg(jsonb_build_object('job_kind', 'noop', 'event_domain', '` + qtopDomain + `',
	'executor', 'DOT', 'payload', jsonb_build_object('n', g))))::text FROM generate_series($1::int, $2::int) g`

func qtopFill(ctx context.Context, d *database, n int) error {
	for at := 0; at < n; at += fillBatch {
		var answer string
		if err := d.pool.QueryRow(ctx, manyJobs, at, min(n, at+fillBatch)-1).Scan(&answer); err != nil {
			return err
		} else if err := refusal(answer); err != nil {
			return err
		}
	}
	return nil
}

const oneJob = `SELECT public.fn_job_enqueue('noop', '` + qtopDomain + `', 'DOT', jsonb_build_object('n', $1::int), 100, now(), NULL::text, NULL::int, NULL::text)::text`
