package schema_test

// The retention steps, each with one row that fails, and the steps that cannot be divided into
// rows.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unsampled lets metrics_sampler take the samples of this minute again.
const unsampled = "DELETE FROM public.queue_metric_sample"

// poisonedSweeps returns the steps of retention that delete or empty each row separately.
func poisonedSweeps() []poisoned {
	// row describes one step of a worker. A trigger makes one row of its table fail at when (DELETE or UPDATE); the other
	// rows must still be swept. name is an SQL expression that identifies a row x, makes is SQL that writes n + 1 rows,
	// left is SQL that counts the rows that are left besides the failing one, flags are keys and values to set first.
	row := func(step, worker, table, when, name, makes, left string, flags ...string) poisoned {
		of := "NEW"
		if when == "DELETE" {
			of = "OLD"
		}
		return poisoned{step: step, worker: worker, table: table, when: when, row: of, left: left,
			setup: func(c *jobs, n int) (string, string) {
				for i := 0; i < len(flags); i += 2 {
					c.flag(flags[i], flags[i+1])
				}
				c.unguarded(fmt.Sprintf(makes, n))
				target := get[string](c.core, strings.Replace(left, "count(*) - 1", name, 1)+" ORDER BY 1 LIMIT 1 OFFSET 3")
				return strings.ReplaceAll(name, "x.", of+".") + " = '" + target + "'", target
			}}
	}
	snapshots := row("sweep_pictures", "metrics_sampler", "queue_past_picture", "DELETE", "x.taken_at::text",
		`INSERT INTO public.queue_past_picture (taken_at, took_ms, body) SELECT now() - interval '2 days' - i * interval '1 s', 1, '{}' FROM generate_series(0, %d) i`,
		"SELECT count(*) - 1 FROM public.queue_past_picture x WHERE taken_at < now() - interval '25 hours'")
	snapshots.again = unsampled
	return []poisoned{
		snapshots,
		row("sweep_job_dead_letters", "retention_sweep", "job_dead_letter", "DELETE", "x.dead_letter_id::text",
			`INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, executor, attempts, failure_code, payload, first_failed_at, last_failed_at,
				triage_status, resolved_at, resolved_by, resolution)
			SELECT gen_random_uuid(), 'k', 'poison_' || i %% 2, 'DOT', 1, 'X', '{}', now(), now(), 'abandoned', now() - interval '9 years', 'ann', 'abandoned'
			FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.job_dead_letter x", "retention.dead_letters_days", "1"),
		row("sweep_event_dead_letters", "retention_sweep", "iu_route_dead_letter", "DELETE", "x.dead_letter_id::text",
			`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name,
				resolved_at, resolved_by, resolution)
			SELECT gen_random_uuid(), '{}', gen_random_uuid(), 'X', 'x', 'poison_' || i %% 2, 'w', now() - interval '9 years', 'ann', 'abandoned'
			FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.iu_route_dead_letter x", "retention.dead_letters_days", "1", "retention.events_days", "1"),
		row("sweep_ended_keys", "retention_sweep", "producer_key", "UPDATE", "jsonb_build_array(x.scope, x.kind, x.key)::text",
			`INSERT INTO public.producer_key (scope, kind, key, target_id, content_hash)
			SELECT '', 'k', gen_random_uuid(), gen_random_uuid(), '' FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.producer_key x WHERE final_at IS NULL"),
		row("sweep_roots", "retention_sweep", "job_root", "DELETE", "x.job_id::text",
			`INSERT INTO public.job_root (job_id, root_job_id) SELECT gen_random_uuid(), gen_random_uuid() FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.job_root x"),
		row("sweep_reads", "retention_sweep", "event_read", "DELETE", "x.event_id || '/' || x.recipient_ref",
			`INSERT INTO public.event_read (event_id, recipient_ref, read_at) SELECT gen_random_uuid(), 'user:ann', now() - interval '9 years' FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.event_read x", "retention.events_days", "1"),
		row("sweep_hosts", "retention_sweep", "queue_host", "DELETE", "x.host_id",
			`INSERT INTO public.queue_host (host_id, instance, last_seen_at) SELECT 'old_' || i, gen_random_uuid(), now() - interval '31 days' FROM generate_series(0, %d) i;
			INSERT INTO public.queue_host (host_id, instance, last_seen_at) VALUES ('last', gen_random_uuid(), now() - interval '29 days') ON CONFLICT DO NOTHING`,
			"SELECT count(*) - 1 FROM public.queue_host x WHERE last_seen_at < now() - interval '30 days'"),
		row("sweep_history", "retention_sweep", "job_history", "UPDATE", "x.job_id::text",
			`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
			SELECT gen_random_uuid(), 'k', 'poison_' || i %% 2, 'external_worker', 'succeeded', 'leased', now() - interval '1 day 1 second' FROM generate_series(0, %d) i`,
			"SELECT count(*) - 1 FROM public.job_history x WHERE status <> 'cleaned'", "retention.jobs_days", "1"),
		{
			step: "bulk", worker: "bulk_operation_runner", table: "queue_bulk_operation", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.operations(n, "running")
				id := get[string](c.core, "SELECT operation_id::text FROM public.queue_bulk_operation WHERE state = 'running' ORDER BY operation_id LIMIT 1 OFFSET 3")
				return "NEW.state = 'completed' AND NEW.operation_id = " + id, ""
			},
			left: "SELECT count(*) - 1 FROM public.queue_bulk_operation WHERE state <> 'completed'",
			named: `SELECT count(*) FROM public.queue_bulk_operation o JOIN public.queue_operator_action a USING (operation_id) WHERE state = 'paused' AND state_why LIKE 'a step failed%'
				AND a.action = 'bulk_brake' AND a.actor = 'bulk_operation_runner' AND a.reason = left(o.state_why, 200)`,
		}, {
			step: "bulk_watch", worker: "bulk_operation_runner", table: "queue_bulk_operation", when: "UPDATE OF done", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.unguarded("DELETE FROM public.queue_bulk_operation_item; DELETE FROM public.queue_bulk_operation")
				c.operations(n, "completed")
				c.unguarded(`WITH ended AS (INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at, attempts)
						SELECT gen_random_uuid(), 'k', 'iu', 'external_worker', 'succeeded', 'leased', clock_timestamp(), 0 FROM public.queue_bulk_operation RETURNING job_id),
					jobs AS (SELECT job_id, row_number() OVER () AS n FROM ended), ops AS (SELECT operation_id, row_number() OVER () AS n FROM public.queue_bulk_operation)
					INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, outcome, new_id, at)
					SELECT o.operation_id, 1, 'job:' || gen_random_uuid(), 'done', j.job_id, now() - interval '1 s' FROM ops o JOIN jobs j USING (n);
					UPDATE public.queue_bulk_operation SET requeued = 1`)
				id := get[string](c.core, "SELECT operation_id::text FROM public.queue_bulk_operation ORDER BY operation_id LIMIT 1 OFFSET 3")
				return "NEW.operation_id = " + id, id
			},
			left: "SELECT count(*) - 1 FROM public.queue_bulk_operation WHERE done = 0",
		},
	}
}

// operations inserts n + 1 operations without items, in the given state.
func (j *jobs) operations(n int, state string) {
	j.t.Helper()
	j.unguarded(fmt.Sprintf(`INSERT INTO public.queue_bulk_operation (kind, filter, frozen_count, rate_per_second, canary, canary_passed, brake_percent, state, state_by, state_at, created_by, reason)
		SELECT 'replay_job', 'x', 1, 1, 0, true, 0, '%s', 'ann', now(), 'ann', 'x' FROM generate_series(0, %d) i`, state, n))
}

// A step that is not divided into rows has no row to set aside: it is retried, then an alert names
// it, and the other steps of its tick worker continue.
func TestPoisonOfAPart(t *testing.T) {
	for _, p := range []struct{ step, worker, target, breaks, mends, goesOn string }{
		{"sample_broadcast", "metrics_sampler", "share", `CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$;
			CREATE TRIGGER a_poison BEFORE INSERT OR UPDATE OR DELETE ON public.queue_broadcast_share EXECUTE FUNCTION public.poison()`,
			"DROP TRIGGER a_poison ON public.queue_broadcast_share",
			"SELECT count(*) FROM public.queue_metric_sample WHERE metric = 'hosts_alive'"},
		{"sample_picture", "metrics_sampler", "picture", "ALTER TABLE public.queue_past_picture RENAME COLUMN body TO gone", "ALTER TABLE public.queue_past_picture RENAME COLUMN gone TO body",
			"SELECT count(*) FROM public.queue_metric_sample WHERE metric = 'hosts_alive'"},
		{"partitions", "retention_sweep", "ensure", "ALTER TABLE public.queue_partitioned RENAME COLUMN ahead TO gone", "ALTER TABLE public.queue_partitioned RENAME COLUMN gone TO ahead",
			"SELECT 1 - count(*) FROM public.job_root"},
		{"job_lanes", "job_queue_default", "lanes", "ALTER TABLE public.job_lane RENAME COLUMN job_kind TO gone", "ALTER TABLE public.job_lane RENAME COLUMN gone TO job_kind",
			"SELECT count(*) FROM public.job_queue WHERE ready"},
	} {
		t.Run(p.step, func(t *testing.T) {
			c := newJobs(t)
			c.put("letters.send", "poison", 3)
			c.exec("UPDATE public.job_queue SET ready = false, process_after = now() - interval '1 s'")
			c.exec("INSERT INTO public.job_root SELECT gen_random_uuid(), gen_random_uuid()")
			c.exec(p.breaks)
			run := func() {
				c.unguarded(unsampled)
				c.hooks().justRan(p.worker, "2 seconds")
				c.tick(p.worker)
			}
			for tries := 0; get[int](c.core, "SELECT count(*) FROM public.queue_quarantine WHERE set_aside_at IS NOT NULL") == 0; tries++ {
				require.Less(t, tries, 12, "it is tried for ever")
				c.exec("UPDATE public.queue_quarantine SET next_try_at = now() - interval '1 s'")
				run()
			}
			require.Equal(t, []string{"quarantine:" + p.step + ":" + p.target}, get[[]string](c.core, "SELECT array_agg(subject) FROM public.v_queue_alert WHERE kind = 'quarantine'"))
			require.Positive(t, get[int](c.core, p.goesOn), "the rest of its tick worker goes on")
			c.exec(p.mends)
			call(t, c.work, "public.fn_queue_quarantine_retry((SELECT array_agg(quarantine_id) FROM public.queue_quarantine), 'ann', 'mended')")
			run()
			require.Zero(t, get[int](c.core, "SELECT count(*) FROM public.queue_quarantine"))
		})
	}
}

// Every step of the code must have a test here; a new step without one fails this test.
func TestEveryStepHasAPoison(t *testing.T) {
	t.Parallel()
	known := []string{"sample_broadcast", "sample_picture", "partitions", "job_lanes"} // tested by TestPoisonOfAPart
	for _, p := range poisonedSteps() {
		known = append(known, p.step)
	}
	code, err := filepath.Glob("code/*.sql")
	require.NoError(t, err)
	var steps []string
	for _, file := range code {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`FUNCTION public\.fn_step_(\w+)\(|WHEN '(sweep_\w+)'|fn_queue_step_failed\('(\w+)'`).FindAllStringSubmatch(string(text), -1) {
			if name := m[1] + m[2] + m[3]; !regexp.MustCompile(`_targets$`).MatchString(name) {
				steps = append(steps, name)
			}
		}
	}
	slices.Sort(known)
	slices.Sort(steps)
	require.Subset(t, known, slices.Compact(append(steps, "sweep_webhooks")), "a new step: add a row on which it fails to poisonedSteps")
}

// The result of a run says that targets of a failed batch are left, so that a host runs the tick
// worker again soon.
func TestUnfinishedRunsSaySo(t *testing.T) {
	j := newJobs(t)
	j.flag("iu_core.routes_master_enabled", "true")
	j.flag("iu_core.route_worker_enabled", "true")
	j.exec(`INSERT INTO public.queue_step_pending (step, targets, chunk) VALUES ('job_promote', ARRAY[gen_random_uuid()::text], 1),
		('event_route', ARRAY[gen_random_uuid()::text], 1), ('webhook_route', '{1/1}', 1)`)
	tx := j.begin(j.root)
	_, err := tx.Exec(t.Context(), "SELECT FROM public.queue_step_pending FOR UPDATE") // runs pass locked targets
	require.NoError(t, err)
	workers := []string{"job_queue_default", "iu_outbound_default", "webhook_router"}
	for _, name := range workers {
		require.Equal(t, true, call(t, j.work, "public.fn_queue_tick_request($1, 'wake')", name)["result"].(map[string]any)["unfinished"], name)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	j.exec("UPDATE public.queue_tick_worker SET last_run_at = last_run_at - interval '1 minute'") // no quick runs
	for _, name := range workers {
		require.NotContains(t, call(t, j.work, "public.fn_queue_tick_request($1, 'wake')", name)["result"], "unfinished", name)
	}
}
