// Alerts other than silence, and how they are folded: one cause makes one alert.

package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// alertsOf lists kind, subject, severity and cause of the alerts whose subject matches the regular
// expression like.
func alertsOf(c *core, like string) string {
	return get[string](c, `SELECT COALESCE(string_agg(concat_ws(' ', subject, severity, NULLIF('<' || cause, '<')), ', ' ORDER BY subject), '')
		FROM public.v_queue_alert WHERE subject ~ $1`, like)
}

// live registers a worker host that runs these loops and was seen just now.
func (c *core) live(id, loops, progress string) {
	c.exec(`INSERT INTO public.queue_host (host_id, instance, loops, last_loops, progress, last_seen_at, stopped_at)
		VALUES ($1, gen_random_uuid(), $2, $2, $3, now(), NULL) ON CONFLICT (host_id) DO UPDATE SET loops = excluded.loops,
		last_loops = excluded.last_loops, progress = excluded.progress, last_seen_at = now(), stopped_at = NULL, stop_reason = NULL`, id, loops, progress)
}

// aged runs sql without triggers: the guards let no role make work older than it is.
func (c *core) aged(sql string) {
	c.t.Helper()
	c.exec("BEGIN; SET LOCAL session_replication_role = replica; " + sql + "; COMMIT")
}

const allLoops = `(SELECT array_agg(worker_name ORDER BY worker_name) FROM public.queue_tick_worker)`

// A host that dies makes one alert, however many executors and tick workers fall silent with it.
// Each silence still has its row and its event.
func TestOneCauseOneAlert(t *testing.T) {
	c := newCore(t)
	c.live("ops-1", get[string](c, "SELECT "+allLoops+"::text"), `{"job_executor": {"executor": "kg"}}`)
	c.executor("kg", 60, 300, 400)
	c.executor("other", 60, 300, 400)
	n := get[int](c, "SELECT count(*) FROM public.queue_tick_worker")
	silent := func() {
		c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE tick_worker")
		c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '1 day'")
	}
	silent()
	require.Equal(t, n+2, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE cause = ''"), "its host lives and runs them: each is stuck for itself")

	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '2 hours'")
	require.Equal(t, "no_host critical, other warning", get[string](c, "SELECT string_agg(subject || ' ' || severity, ', ' ORDER BY subject) FROM public.v_queue_alert WHERE cause = ''"))
	require.Equal(t, n+1, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE cause = 'no_host'"))
	detail := get[string](c, "SELECT detail FROM public.v_queue_alert WHERE kind = 'no_host'")
	require.Regexp(t, `^no host runs (\w+, )*config_expiry, .*; ops-1 was last seen at 20\d\d-.*Z$`, detail)
	require.Contains(t, detail, "kg")
	// a live host of a login that is no member of the owner role does not work as the executor
	c.live("theirs", "{job_executor}", `{"job_executor": {"executor": "kg"}}`)
	c.exec("UPDATE public.queue_host SET db_role = $1 WHERE host_id = 'theirs'", pgtest.Login(t, c.db, "dot_executor"))
	c.exec("UPDATE public.queue_heartbeat SET owner_role = $1 WHERE executor_id = 'kg'", pgtest.Login(t, c.db, "dot_executor"))
	require.Equal(t, n+1, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE cause = 'no_host'"))
	c.exec("DELETE FROM public.queue_host WHERE host_id = 'theirs'")
	require.EqualValues(t, n+2, call(t, c.as("dot_executor"), "public.fn_queue_stale_check()")["emitted"], "DP4: an event per executor")

	// The alert shows who acknowledged it, and the snapshot folds its row in the same way as the
	// view.
	ann := c.as("workflow_admin")
	call(t, ann, "public.fn_queue_alert_ack('no_host', 'ann', 'restarting it', '1 hour')")
	require.Equal(t, "acked ann", get[string](c, "SELECT state || ' ' || acked_by FROM public.v_queue_alert WHERE subject = 'no_host'"))
	s := snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	var own []string
	for _, a := range s.Alerts {
		if a.Cause.Empty() {
			own = append(own, a.Kind+" "+a.State)
		}
	}
	require.ElementsMatch(t, []string{"no_host acked", "silence open"}, own)

	// The next death of a host is another alert; the acknowledgement ends when that alert is over.
	c.live("ops-1", "{}", "{}")
	c.exec("UPDATE public.queue_host SET loops = " + allLoops + ", last_seen_at = now()")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() WHERE tick_worker")
	require.Equal(t, "", alertsOf(c, "^no_host"))
	call(t, c.as("dot_executor"), "public.fn_queue_stale_check()")
	require.Equal(t, "ended", get[string](c, "SELECT cleared_reason FROM public.queue_alert_ack ORDER BY ack_id DESC LIMIT 1"))
}

// A single silent tick worker that no host runs makes its own alert, without a cause.
func TestOneSilentTickWorker(t *testing.T) {
	c := newCore(t)
	c.live("ops-1", get[string](c, "SELECT array_remove("+allLoops+", 'iu_outbound_default')::text"), "{}")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '95 hours' WHERE executor_id = 'iu_outbound_default'")
	require.Equal(t, "iu_outbound_default critical no live host runs it", get[string](c, "SELECT concat_ws(' ', subject, severity, NULLIF(cause, ''), detail) FROM public.v_queue_alert"))
	// If pg_cron or an operator runs the tick worker, there is no alert.
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() WHERE worker_name = 'iu_outbound_default'")
	require.Equal(t, "", get[string](c, "SELECT string_agg(detail, '') FROM public.v_queue_alert"))
	// A run of before the clock was set back is no such run.
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() + interval '1 day' WHERE worker_name = 'iu_outbound_default'")
	require.Equal(t, "no live host runs it", get[string](c, "SELECT string_agg(detail, '') FROM public.v_queue_alert"))
}

// A host that stopped is an alert only if work waits that no live host does.
func TestStopAlertsWhereWorkWaits(t *testing.T) {
	c := newCore(t)
	host := c.as("dot_executor")
	loops := get[string](c, "SELECT "+allLoops+"::text")
	hostRuns(t, host, "ops-1", instanceA, loops)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_payload = '{\"state\": \"idle\"}', last_beat_at = now() WHERE tick_worker")
	call(t, host, "public.fn_queue_host_stop('ops-1', "+instanceA+", 'SIGTERM')")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '2 hours' WHERE tick_worker")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert"))

	c.exec("INSERT INTO public.dot_config_revert (key, revert_to, set_value, set_at, set_by, reason, revert_at) VALUES ('webhook.max_attempts', '10', '9', now(), 'x', 'x', now() - interval '50 seconds')")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert"), "a host may be on its way")
	c.exec("UPDATE public.dot_config_revert SET revert_at = now() - interval '2 minutes'")
	require.Equal(t, "no_host warning", alertsOf(c, "."))
	require.Regexp(t, `^no host runs config_expiry; ops-1 stopped at .*Z: SIGTERM$`, get[string](c, "SELECT detail FROM public.v_queue_alert"))
	c.exec("UPDATE public.dot_config_revert SET revert_at = now() - interval '2 hours'")
	require.Equal(t, "no_host critical", alertsOf(c, "."))
	hostRuns(t, host, "ops-2", instanceB, "{config_expiry}")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert"))
}

// A queue lane whose jobs no live executor can claim is an alert with the reason.
func TestUnclaimedLane(t *testing.T) {
	j := newJobs(t)
	c := j.core
	aged := func(by string) {
		c.aged(fmt.Sprintf("UPDATE public.job_queue SET process_after = now() - interval '%[1]s', enqueued_at = now() - interval '%[1]s'", by))
	}
	j.put("mail", "kg", 3)
	require.Equal(t, "", alertsOf(c, "."), "they came this instant")
	for _, step := range []struct{ do, why string }{
		{"", "no external_worker executor subscribes to it"},
		{"INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds, registered_by) " +
			"VALUES ('e1', 'external_worker', '{}', now(), 60, 300, 'x'), ('e2', 'external_worker', '{}', now(), 60, 300, 'x')", "no external_worker executor subscribes to it"},
		{"INSERT INTO public.job_subscription (executor_id, executor_kind, job_kind, max_parallel, enabled, registered_by, updated_by) SELECT e, 'external_worker', 'mail', 9, true, 'x', 'x' FROM unnest('{e1,e2}'::text[]) e", ""},
		{`UPDATE public.queue_heartbeat SET last_beat_payload = '{"state": "stopped"}' WHERE executor_id IN ('e1', 'e2')`, "every subscribed executor is stopped: e1, e2"},
		{`UPDATE public.queue_heartbeat SET last_beat_payload = '{}', last_beat_at = now() - interval '400 seconds' WHERE executor_id = 'e2'`, "every subscribed executor is silent or stopped: e1, e2"},
		{`UPDATE public.queue_heartbeat SET last_beat_payload = '{}', last_beat_at = now() WHERE executor_id = 'e1'`, "1 of 2 executors are silent"},
	} {
		if step.do != "" {
			c.exec(step.do)
		}
		aged("2 minutes")
		want, blocked := "", step.why != "" && !strings.Contains(step.why, "of 2")
		if blocked {
			want = "unclaimed:kg/mail warning"
		}
		require.Equal(t, step.why, get[string](c, "SELECT public.fn_queue_why('job mail in kg') ->> 'why'"), step.do)
		require.Equal(t, want, alertsOf(c, "^unclaimed"), step.do)
		if blocked {
			require.Equal(t, "3 wait; "+step.why, get[string](c, "SELECT detail FROM public.v_queue_alert WHERE kind = 'unclaimed'"))
		}
	}
	// The silence of an executor is shown as the cause of an alert that is no more severe than the
	// silence.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '400 seconds' WHERE executor_id IN ('e1', 'e2')")
	require.Equal(t, "e1 warning, e2 warning, unclaimed:kg/mail warning <e1", alertsOf(c, "."))
	aged("2 hours")
	require.Equal(t, "e1 warning, e2 warning, unclaimed:kg/mail critical", alertsOf(c, "."), "one alert for the lane: its backlog is no second one")
	// While jobs are switched off nobody can claim them: the lane is no alert then, but its backlog
	// is.
	j.flag("queue.job_substrate.enabled", "false")
	require.Equal(t, "backlog:job mail in kg critical, e1 warning, e2 warning", alertsOf(c, "."))
}

// The age from which a backlog is an alert follows the flags in force; 0 = never an alert.
func TestBacklogAge(t *testing.T) {
	j := newJobs(t)
	c := j.core
	c.executor("e1", 60, 300, 0)
	j.jobSubscription("e1", "mail", "kg", 0, 9)
	j.put("mail", "kg", 1)
	c.aged("UPDATE public.job_queue SET process_after = now() - interval '15 minutes', enqueued_at = now() - interval '15 minutes'")
	const lane = "backlog:job mail in kg "
	require.Equal(t, lane+"warning", alertsOf(c, "."))
	for _, step := range [][3]string{
		{"warn_seconds", "1000", ""}, {"critical_seconds", "800", lane + "critical"}, {"critical_seconds", "0", ""},
		{"warn_seconds", "0", ""}, {"critical_seconds", "800", lane + "critical"}, {"warn_seconds", "600", lane + "critical"},
	} {
		j.flag("queue.backlog."+step[0], step[1])
		require.Equal(t, step[2], alertsOf(c, "."), fmt.Sprint(step))
	}
	ann := c.as("workflow_admin")
	call(t, ann, "public.fn_queue_alert_ack('backlog:job mail in kg', 'ann', 'more workers are coming', '1 hour')")
	tx := c.begin(ann)
	_, err := tx.Exec(t.Context(), "SELECT public.fn_queue_alert_unack('backlog:job mail in kg', 'ann', 'mine no longer')")
	require.NoError(t, err)
	second := meanwhile(t, ann, c.root, tx, "public.fn_queue_alert_unack('backlog:job mail in kg', 'bob', 'nor mine')")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "not_acked", second.got(t)["rule"], "one of two withdrawals at once")
	call(t, ann, "public.fn_queue_alert_ack('backlog:job mail in kg', 'ann', 'more workers are coming', '1 hour')")
	require.Equal(t, "already_acked", call(t, ann, "public.fn_queue_alert_ack('backlog:job mail in kg', 'bob', 'me too', '1 hour')")["rule"])
	j.take("e1", 1)
	require.Equal(t, "", alertsOf(c, "."))
	call(t, c.as("dot_executor"), "public.fn_queue_stale_check()")
	require.Equal(t, "ended", get[string](c, "SELECT cleared_reason FROM public.queue_alert_ack ORDER BY ack_id DESC LIMIT 1"))
	require.Equal(t, "not_found", call(t, ann, "public.fn_queue_alert_ack('backlog:job mail in kg', 'ann', 'c', '1 hour')")["rule"])
}

// A circuit that stays open is an alert, and the cause of the alert about the backlog of its
// endpoint. A viewer needs no right on the queues to see both.
func TestCircuitStaysOpen(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	c.live("ops-1", get[string](c, "SELECT "+allLoops+"::text"), "{}")
	sub := h.subscribe("t")
	h.emit("t", 2)
	h.route()
	c.aged("UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() - interval '20 minutes'")
	c.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, since, until, by) VALUES ($1, 'circuit', now() - interval '5 minutes', now() + interval '1 minute', 'w')", sub)
	require.Equal(t, "backlog:webhook 127.0.0.1:1 warning", alertsOf(c, "."))
	for _, step := range [][2]string{{"11 minutes", "warning"}, {"2 hours", "critical"}} {
		c.exec("UPDATE public.webhook_endpoint_suspensions SET since = now() - $1::interval", step[0])
		require.Equal(t, fmt.Sprintf("backlog:webhook 127.0.0.1:1 warning <circuit:%d, circuit:%d %s", sub, sub, step[1]), alertsOf(c, "."))
	}
	viewer := c.as("queue_viewer")
	var n int
	require.NoError(t, viewer.QueryRow(t.Context(), "SELECT pg_catalog.count(*) FROM public.v_queue_alert").Scan(&n))
	require.Equal(t, 2, n)
}

// The waiting time of work whose lease has expired counts from the time at which the work was due. It
// is shown even if no host runs the tick worker that returns expired leases.
func TestBacklogOnExpiredLeases(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	h.subscribe("t")
	h.emit("t", 2)
	h.route()
	h.step()
	require.Len(t, h.claim(10), 2)
	const age = `SELECT COALESCE(age_seconds, -1) FROM public.v_queue_health WHERE source = 'backlog_webhook'`
	require.EqualValues(t, -1, get[int64](c, age), "both are at work")
	c.aged("UPDATE public.webhook_delivery_jobs SET attempt_at = now() - interval '20 minutes', lease_until = now() - interval '1 second'")
	require.InDelta(t, 1200, get[int64](c, age), 60)
	require.Equal(t, "backlog:webhook 127.0.0.1:1 warning <no_host, no_host warning", alertsOf(c, "."))
}

// NO HOST is as old as the wait of the work that a host would do: since the last tick of a bulk
// operation, and without the deliveries that are suspended.
func TestNoHostIsAsOldAsItsWork(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	c.live("ops-1", get[string](c, "SELECT array_remove(array_remove("+allLoops+", 'bulk_operation_runner'), 'saga_orchestrator')::text"), "{}")
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - interval '2 minutes'")
	c.exec(`INSERT INTO public.queue_bulk_operation (kind, filter, created_by, reason, state_by, state, started_at, rate_per_second, brake_percent, canary, canary_passed, frozen_count)
		VALUES ('resolve', 'f', 'ann', 'r', 'ann', 'running', now() - interval '2 hours', 1, 0, 0, true, 1)`)
	for _, s := range [][2]string{
		{"now() - interval '5 seconds'", ""}, {"now() - interval '70 seconds'", "no_host warning"}, {"'-infinity'", "no_host critical"},
		{"now() + interval '1 hour'", ""},
	} {
		c.exec("UPDATE public.queue_bulk_operation SET credited_at = " + s[0])
		require.Equal(t, s[1], alertsOf(c, "no_host"), s[0])
	}
	c.exec("DELETE FROM public.queue_bulk_operation")

	sub, other := h.subscribe("t"), h.subscribe("u")
	c.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'operator', 'infinity', 'ann')", other)
	h.emit("t", 1)
	h.emit("u", 1)
	h.route()
	const backlog = "backlog:webhook 127.0.0.1:1 critical"
	for _, s := range [][2]string{{"5 seconds", backlog}, {"2 minutes", backlog + ", no_host warning"}, {"3 hours", backlog + " <no_host, no_host critical"}} {
		c.aged(fmt.Sprintf("UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() - CASE subscription_id WHEN %d THEN interval '%s' ELSE '2 hours' END", sub, s[0]))
		require.Equal(t, s[1], alertsOf(c, "^(no_host|backlog)"), s[0])
	}
}
