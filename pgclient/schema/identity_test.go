// A copy of a database recognises that it is a clone: it hands out no work until it is adopted.

package schema_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// busy is a database with work of each kind waiting: jobs queued and leased, webhooks, events to be routed, staged
// notifications, a running bulk operation, dead letters of jobs.
func busy(t *testing.T) *jobs {
	t.Helper()
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	j.put("mail", "kg", 5)
	require.Len(t, j.take("w", 2), 2)
	dead := j.put("dead", "kg", 3)
	for range dead {
		h, err := tryTake(j.work, "w", []string{"dead"}, 1, nil)
		require.NoError(t, err)
		_, err = tell(context.Background(), j.work, "BROKEN!", h...)
		require.NoError(t, err)
	}
	j.exec(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified) SELECT 'order', 'https://h' || i || '.test/', true, true FROM generate_series(1, 3) i`)
	j.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	eventually(t, "sagas", func() bool {
		j.exec("SELECT public.fn_webhook_router_run()")
		return get[int](j.core, "SELECT count(*)::int FROM public.webhook_delivery_sagas") == 3
	})
	j.exec("SELECT public.fn_saga_orchestrator_run()")
	j.exec(`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, since, until, by) SELECT min(id), 'operator', now(), now() + interval '1 hour', 'ann' FROM public.subscriptions`)
	j.exec("UPDATE public.dot_config SET value = 'true' WHERE key LIKE 'iu_core.rout%enabled'")
	j.root.Reset()
	j.work.Reset()
	return j
}

// clone copies the database and connects to the copy.
func (j *jobs) clone(t *testing.T) *jobs {
	t.Helper()
	j.root.Reset()
	j.work.Reset()
	db := j.db.Clone(t)
	c := &jobs{core: &core{t: t, db: db, root: db.Pool(t, "")}}
	c.work = c.as("event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin", "webhook_worker", "router_worker", "saga_orchestrator", "queue_viewer")
	return c
}

const cloneOf = "SELECT COALESCE(public.fn_queue_clone_of(), '')"

func adopted(pool *pgxpool.Pool, waiting, name string, dry bool) (map[string]any, error) {
	return tryCall(pool, "public.fn_queue_adopt($1, $2, 'ann', 'mine', $3)", waiting, name, dry)
}

func TestCloneHandsOutNothing(t *testing.T) {
	j := busy(t)
	require.Empty(t, get[string](j.core, cloneOf), "a fresh database is no clone")
	c := j.clone(t)
	said := get[string](c.core, cloneOf)
	require.Contains(t, said, "CLONE OF "+j.db.Name+" (recorded ")
	require.Contains(t, said, "run qtop adopt")
	require.Contains(t, said, "pg_upgrade")
	conn := c.db.Conn(t, "")
	columns := pgtest.Columns(t, conn)
	before := pgtest.RowSums(t, conn, columns)

	require.Empty(t, c.take("w", 10))
	require.Zero(t, get[int](c.core, "SELECT count(*)::int FROM public.fn_webhook_job_claim('w'::text, 10::int, NULL::bigint[], NULL::int)"))
	require.Equal(t, said, get[string](c.core, "SELECT public.fn_job_refusal('w'::text)"))
	for _, worker := range get[[]string](c.core, "SELECT array_agg(worker_name ORDER BY worker_name) FROM public.queue_tick_worker") {
		if slices.Contains([]string{"config_expiry", "counter_compactor", "metrics_sampler", "retention_sweep", "staging_cleanup_sweep"}, worker) {
			continue // these only maintain the database and send nothing
		}
		for _, source := range []string{"external", "wake"} {
			got := call(t, c.work, "public.fn_queue_tick_request($1::text, $2::text)", worker, source)
			require.Equal(t, "clone", got["skipped"], "%s %s: %v; a worker that may run in a clone: add it to the list here and in upgrading.md", worker, source, got)
			require.Equal(t, said, got["reason"])
		}
	}
	for _, direct := range []string{"public.fn_webhook_router_run(10::int)", "public.fn_saga_orchestrator_run(10::int)", "public.fn_queue_bulk_tick()", "public.fn_iu_staging_route_worker_run()",
		"public.fn_iu_route_worker_run('iu_outbound_default'::text, 10::int)", "public.fn_iu_notification_worker_tick()"} {
		require.Equal(t, "clone", call(t, c.work, direct)["rule"], direct)
	}
	host := call(t, c.work, "public.fn_queue_host_register('h'::text, gen_random_uuid(), ''::text, '{}'::text[])")
	require.Equal(t, "clone", host["rule"])
	require.Equal(t, "clone", call(t, c.work, "public.fn_queue_host_beat('h'::text, gen_random_uuid(), '{}'::text[], 0::int, '{}'::jsonb)")["rule"])
	require.Equal(t, before, pgtest.RowSums(t, conn, columns), "nothing was claimed, made or taken back")

	for _, requeue := range []string{"public.fn_dead_letter_requeue(ARRAY[1]::bigint[], 'a'::text, 'r'::text, %s)", "public.fn_job_dead_letter_replay(ARRAY[gen_random_uuid()], 'a'::text, 'r'::text, %s)",
		"public.fn_iu_route_dead_letter_replay(ARRAY[gen_random_uuid()], 'a'::text, 'r'::text, %s)", "public.fn_iu_notification_requeue(ARRAY[gen_random_uuid()], 'a'::text, 'r'::text, %s)"} {
		dry := call(t, c.work, fmt.Sprintf(requeue, "true"))
		require.Equal(t, "clone", dry["rule"], requeue)
		require.Nil(t, dry["audit_id"])
		require.NotNil(t, call(t, c.work, fmt.Sprintf(requeue, "false"))["audit_id"])
	}
	why := call(t, c.work, "public.fn_queue_why('mail'::text)")
	require.Equal(t, said, why["why"])
	require.Equal(t, said, get[string](c.core, "SELECT (public.fn_queue_snapshot(interval '0')) -> 'server' ->> 'clone_of'"))
	// A clone accepts new work: it must only not hand work out.
	c.put("mail", "kg", 1)

	// After migrate up a clone is still a clone, and migrate up prints a line about it.
	var told []string
	require.NoError(t, schema.Up(context.Background(), c.db.DSN(""), func(line string) { told = append(told, line) }))
	require.Contains(t, told, said)
	require.Equal(t, said, get[string](c.core, cloneOf))
	// A database without its row in queue_identity counts as a clone too.
	c.exec("DELETE FROM public.queue_identity")
	require.Contains(t, get[string](c.core, cloneOf), "CLONE OF a database whose name is not recorded: run qtop adopt")
	require.Empty(t, c.take("w", 10))
}

func TestAdoptKeep(t *testing.T) {
	c := busy(t).clone(t)
	dry, err := adopted(c.work, "keep", c.db.Name, true)
	require.NoError(t, err)
	require.EqualValues(t, 3, dry["jobs"])
	require.EqualValues(t, 2, dry["jobs_leased"])
	require.EqualValues(t, 3, dry["webhooks"])
	require.EqualValues(t, 3, dry["endpoints"])
	require.NotEmpty(t, get[string](c.core, cloneOf), "a dry run changes nothing")

	wrong, err := adopted(c.work, "keep", c.db.Name+"x", false)
	require.NoError(t, err)
	require.Equal(t, "name", wrong["rule"])
	require.NotEmpty(t, get[string](c.core, cloneOf))
	got, err := adopted(c.work, "keep", c.db.Name, false)
	require.NoError(t, err)
	require.Nil(t, got["refused"], got)
	require.Empty(t, get[string](c.core, cloneOf))
	require.Empty(t, differences(t, c.db.Conn(t, "")))
	require.Equal(t, "ann|adopt|database "+c.db.Name+"|mine|done|keep", get[string](c.core, `SELECT concat_ws('|', actor, action, target, reason, outcome, after ->> 'waiting')
		FROM public.queue_operator_action WHERE id = $1::int`, got["audit_id"]))
	require.Len(t, c.take("w", 10), 3)
	require.Equal(t, 2, get[int](c.core, "SELECT count(*)::int FROM public.fn_webhook_job_claim('w'::text, 10::int, NULL::bigint[], NULL::int)"), "the third is behind a suspension")

	again, err := adopted(c.work, "keep", c.db.Name, false)
	require.NoError(t, err)
	require.Equal(t, "no_clone", again["rule"])
	require.NotContains(t, again["reason"], "\n")
	require.Equal(t, 2, get[int](c.core, "SELECT count(*)::int FROM public.queue_operator_action WHERE action = 'adopt' AND outcome LIKE 'refused: %'"))
	_, err = adopted(c.work, "sell", c.db.Name, false)
	refused(t, "22023", err, "sell")
}

func TestAdoptSuspendAndCancel(t *testing.T) {
	for _, waiting := range []string{"suspend", "cancel"} {
		t.Run(waiting, func(t *testing.T) {
			j := busy(t)
			j.exec(`INSERT INTO public.queue_bulk_operation (kind, filter, frozen_count, rate_per_second, brake_percent, canary, canary_passed, created_by, reason, state, state_by)
				VALUES ('resolve', '', 1, 1, 50, 0, true, 'ann', 'r', 'running', 'ann')`)
			c := j.clone(t)
			dry, err := adopted(c.work, waiting, c.db.Name, true)
			require.NoError(t, err)
			got, err := adopted(c.work, waiting, c.db.Name, false)
			require.NoError(t, err)
			require.Nil(t, got["refused"], got)
			for _, key := range []string{"jobs", "jobs_leased", "webhooks", "endpoints", "operations", "cancelled", "suspended", "paused", "switched_off"} {
				require.Equal(t, dry[key], got[key], "the dry run said what would be done: %s", key)
			}
			require.EqualValues(t, 3, got["suspended"], "the one that ended by itself too")
			require.EqualValues(t, 1, got["paused"])
			require.Empty(t, get[string](c.core, cloneOf))
			require.Empty(t, c.take("w", 10))
			require.Zero(t, get[int](c.core, "SELECT count(*)::int FROM public.fn_webhook_job_claim('w'::text, 10::int, NULL::bigint[], NULL::int)"))
			require.Equal(t, 3, get[int](c.core, "SELECT count(*)::int FROM public.v_webhook_gate WHERE gate = 'suspended' AND suspended_until IS NULL"))
			require.Equal(t, 3, get[int](c.core, "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE status IN ('Pending', 'InProgress')"), "they wait")
			require.Equal(t, "paused", get[string](c.core, "SELECT state FROM public.queue_bulk_operation"))
			require.Equal(t, "false", get[string](c.core, "SELECT value FROM public.dot_config WHERE key = 'iu_core.routes_master_enabled'"))
			live, history := 5, 0
			if waiting == "cancel" {
				live, history = 0, 5
			}
			require.EqualValues(t, history, got["cancelled"])
			require.Equal(t, live, get[int](c.core, "SELECT count(*)::int FROM public.job_queue"))
			require.Equal(t, history, get[int](c.core, "SELECT count(*)::int FROM public.job_history WHERE status = 'cancelled'"))
			require.Equal(t, fmt.Sprint(waiting != "suspend"), get[string](c.core, "SELECT value FROM public.dot_config WHERE key = 'queue.job_substrate.enabled'"))
			if waiting == "cancel" {
				require.Zero(t, get[int](c.core, "SELECT count(*)::int FROM public.job_lease"))
				c.put("mail", "kg", 1)
				require.Len(t, c.take("w", 10), 1, "new work is worked on")
			}
		})
	}
}

// A flag that the original switched off for a while stays off in a copy whose work is held back: its
// end is removed too.
func TestAdoptKeepsTimedFlagsOff(t *testing.T) {
	for _, waiting := range []string{"suspend", "cancel"} {
		t.Run(waiting, func(t *testing.T) {
			flags := []string{"iu_core.routes_master_enabled"}
			if waiting == "suspend" {
				flags = append(flags, "queue.job_substrate.enabled")
			}
			j := busy(t)
			for _, flag := range flags {
				call(t, j.work, "public.fn_dot_config_set($1::text, 'false', 'ann', 'incident', now() + interval '1 hour')", flag)
			}
			c := j.clone(t)
			dry, err := adopted(c.work, waiting, c.db.Name, true)
			require.NoError(t, err)
			require.Len(t, dry["switched_off"], len(flags))
			got, err := adopted(c.work, waiting, c.db.Name, false)
			require.NoError(t, err)
			require.Equal(t, dry["switched_off"], got["switched_off"])
			c.exec("UPDATE public.dot_config_revert SET revert_at = now()")
			call(t, c.work, "public.fn_dot_config_expire()")
			for _, flag := range flags {
				require.Equal(t, "false", get[string](c.core, "SELECT value FROM public.dot_config WHERE key = $1", flag), flag)
			}
			require.Empty(t, c.take("w", 10))
		})
	}
}

// If several sessions adopt a clone at once, one succeeds; the others are refused, because the
// database is no clone any more.
func TestAdoptTogether(t *testing.T) {
	c := busy(t).clone(t)
	pool := c.wide(4, "workflow_admin")
	answers := together(t, 4, func(int) (map[string]any, error) { return adopted(pool, "cancel", c.db.Name, false) })
	require.Equal(t, 1, count(answers, "refused", nil), answers)
	require.Equal(t, 3, count(answers, "rule", "no_clone"), answers)
	require.Equal(t, 5, get[int](c.core, "SELECT count(*)::int FROM public.job_history WHERE status = 'cancelled'"))
}

func TestAdoptNeedsItsRight(t *testing.T) {
	c := busy(t).clone(t)
	for _, role := range []string{"queue_viewer", "dot_executor", "dead_letter_operator", "subscription_admin"} {
		_, err := adopted(c.as(role), "keep", c.db.Name, false)
		refused(t, "42501", err, role)
		fails(t, c.as(role), "42501", "UPDATE public.queue_identity SET system_identifier = 1")
	}
	require.NotEmpty(t, get[string](c.core, cloneOf))
}

// Renaming a database does not make it a clone.
func TestRenameIsNoClone(t *testing.T) {
	j := busy(t)
	j.root.Close()
	j.work.Close()
	old := j.db.Name
	j.db.Rename(t, old+"_new")
	c := &core{t: t, db: j.db, root: j.db.Pool(t, "")}
	require.Empty(t, get[string](c, cloneOf))
	c.exec("ALTER DATABASE " + j.db.Name + " SET work_mem = '5MB'")
	c.root.Reset()
	require.Empty(t, get[string](c, cloneOf))
}

// An upgrade from the release before records the identity of the database, once. If its rows came
// from another cluster and nothing has run since, it is recorded as a clone.
func TestUpgradeRecordsTheIdentity(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		db := pgtest.Released(t)
		c := &core{t: t, db: db, root: db.Pool(t, "")}
		if restored {
			c.exec("UPDATE public.router_offsets SET system_identifier = 1; UPDATE public.event_class_state SET system_identifier = 1; UPDATE public.iu_route_worker_cursor SET system_identifier = 1")
		}
		require.NoError(t, schema.Up(context.Background(), db.DSN(""), func(string) {}))
		if restored {
			require.Contains(t, get[string](c, cloneOf), "CLONE OF a database whose name is not recorded")
			continue
		}
		require.Empty(t, get[string](c, cloneOf))
		require.Equal(t, db.Name, get[string](c, "SELECT database_name FROM public.queue_identity"))
	}
}

func BenchmarkCloneCheck(b *testing.B) {
	db := pgtest.New(b)
	conn := db.Conn(b, "")
	for b.Loop() {
		if _, err := conn.Exec(context.Background(), "DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM public.fn_queue_clone_of(); END LOOP; END $$"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "µs/check")
}
