// The clock of the server is set back, or was ahead for a while: no work waits for a time that the
// clock wrote while it was ahead.

package schema_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clocked are the columns whose times the clock of the server writes and something waits for.
var clocked = []string{
	"queue_host.last_seen_at", "queue_host.started_at", "queue_tick_worker.last_run_at", "queue_tick_worker.last_attempt_at", "job_lease.lease_until", "job_lease.claimed_at",
	"job_queue.updated_at", "webhook_delivery_jobs.lease_until", "webhook_delivery_jobs.started_at", "webhook_endpoint_suspensions.since", "subscriptions.created_at", "webhook_delivery_sagas.next_attempt_at", "webhook_delivery_sagas.updated_at", "webhook_endpoint_suspensions.until",
	"webhook_endpoint_suspensions.probe_until", "queue_quarantine.last_failed_at", "queue_quarantine.first_failed_at", "queue_quarantine.next_try_at", "queue_alert_ack.acked_at",
	"queue_alert_ack.expires_at", "queue_heartbeat.silent_event_at", "webhook_rate_bucket.refilled_at", "webhook_operation_bucket.refilled_at", "webhook_slow_start.began_at",
	"webhook_slow_start.step_at", "webhook_slow_start.refilled_at", "queue_bulk_operation.watch_since", "queue_bulk_operation.credited_at", "queue_bulk_operation_item.at", "queue_bulk_operation_item.first_at", "queue_metric_sample.at",
	"queue_heartbeat.counted_from", "queue_broadcast_share.event_at", "queue_broadcast_share.over_since", "webhook_endpoint_state.failing_since", "webhook_endpoint_state.last_failure_at",
	"webhook_endpoint_state.last_success_at", "dot_config.updated_at", "dot_config_revert.set_at", "dot_config_revert.revert_at", "iu_notification_pending.created_at",
	"iu_route_worker_cursor.restored_at", "event_class_state.restored_at",
}

// back sets the clock back, seen from the rows: it moves all times that were written into the
// future.
func (c *core) back(by string) {
	c.t.Helper()
	var all strings.Builder
	for _, col := range clocked {
		table, name, _ := strings.Cut(col, ".")
		all.WriteString("UPDATE public." + table + " SET " + name + " = " + name + " + interval '" + by + "' WHERE isfinite(" + name + ");\n")
	}
	all.WriteString("UPDATE public.job_queue SET process_after = process_after + interval '" + by + "' WHERE status = 'retry_waiting'")
	c.asReplica(all.String())
}

// Events that are written after the clock went back are older, by their times, than every subscription. They reach
// those that were written before them, also when the clock goes forward again and no check has seen that.
func TestEventsAfterTheClockWentBack(t *testing.T) {
	j := newJobs(t)
	c, h := j.core, j.hooks()
	subscribe := func() {
		c.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'https://h.test/', true, true)")
	}
	h.emit("order", 1)
	subscribe()
	c.back("1 day")
	h.emit("order", 3)
	require.Equal(t, 3, h.route(), "not the event before the subscription")
	fails(t, c.as("router_worker"), "42501", "INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT min(e.id), max(s.id) FROM public.events e, public.subscriptions s")

	// in a restored copy the transaction numbers of the subscriptions are those of the other cluster
	c.asReplica("UPDATE public.subscriptions SET created_xid = '9000000000'; UPDATE public.events SET created_xid = '9000000001'")
	c.exec("UPDATE public.router_offsets SET system_identifier = 1")
	require.Zero(t, h.route())
	h.emit("order", 5)
	require.Equal(t, 5, h.route())
	subscribe()
	c.asReplica("UPDATE public.subscriptions SET created_at = created_at + interval '1 day'")
	h.emit("order", 2)
	require.Equal(t, 4, h.route())
}

// A check of the clock changes nothing that has not a time ahead.
func TestClockCheckLeavesEmptyTimes(t *testing.T) {
	j := newJobs(t)
	c := j.core
	c.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'https://h.test/', true, true)")
	c.exec("INSERT INTO public.queue_host (host_id, instance, version, loops) VALUES ('here', gen_random_uuid(), 'v', '{webhook_router}')")
	c.exec("UPDATE public.webhook_endpoint_state SET last_success_at = now()")
	c.back("1 day")
	c.repaired("1 day")
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.queue_host WHERE stopped_at IS NOT NULL"), "the host still runs")
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.webhook_endpoint_state WHERE num_nonnulls(failing_since, last_failure_at) > 0"), "nothing has failed")
}

func TestClockThatGoesBack(t *testing.T) {
	j := busy(t)
	c := j.core
	h := j.hooks()
	j.exec("DELETE FROM public.webhook_endpoint_suspensions")
	j.exec("INSERT INTO public.queue_host (host_id, instance, version, loops, last_seen_at) VALUES ('gone', gen_random_uuid(), 'v', '{webhook_router}', now() - interval '20 seconds'), ('here', '00000000-0000-0000-0000-000000000001', 'v', '{job_executor}', now())")
	j.exec("UPDATE public.queue_host SET db_role = session_user")
	leased := h.claim(1)
	require.Len(t, leased, 1)
	h.expireLeases()
	rest := get[[]int64](c, "SELECT array_agg(id) FROM public.subscriptions WHERE id <> $1", leased[0].Subscribed)
	j.exec("UPDATE public.subscriptions SET rate_limit_per_second = 50 WHERE id = $1", rest[0])
	j.exec("INSERT INTO public.webhook_rate_bucket (subscription_id, tokens, refilled_at) VALUES ($1, 0, now()) ON CONFLICT (subscription_id) DO UPDATE SET tokens = 0, refilled_at = now()", rest[0])
	j.exec("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, since, until, by) VALUES ($1, 'circuit', now() - interval '1 minute', now() - interval '1 second', 'webhook_worker')", rest[1])
	c.asReplica("UPDATE public.webhook_delivery_jobs SET controlled = true WHERE subscription_id = ANY ($1)", rest)
	j.expire()
	require.Len(t, j.take("w", 1), 1)
	j.exec("UPDATE public.job_lease SET lease_until = now() + interval '100 seconds' WHERE lease_until > now()")
	j.exec(`INSERT INTO public.queue_alert_ack (alert_key, subject, severity, acked_by, comment, expires_at) VALUES ('k', 's', 'warning', 'ann', 'c', now() - interval '1 second')`)
	c.executor("silent", 60, 300, 4000)
	j.exec("UPDATE public.queue_heartbeat SET silent_event_at = now() - interval '1 hour', silent_since = last_beat_at WHERE executor_id = 'silent'")
	require.Contains(t, call(t, c.root, "public.fn_metrics_sampler_run()"), "broadcast")
	j.exec("UPDATE public.queue_tick_worker SET last_run_at = clock_timestamp(), last_attempt_at = clock_timestamp() WHERE worker_name = 'config_expiry'")

	h.emit("order", 1) // three webhooks of which no attempt has been made
	require.Equal(t, 3, h.route())

	j.exec(`WITH u AS (INSERT INTO public.information_unit (canonical_address, created_by) VALUES ('a', 'user:ann') RETURNING id)
		INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) SELECT u.id, 1, 'b', 'user:ann' FROM u`)
	c.asReplica("UPDATE public.iu_notification_pending SET created_at = now() - interval '10 minutes'")
	temporary := func(key, value string) {
		t.Helper()
		require.Nil(t, call(t, c.root, "public.fn_dot_config_set($1, $2, 'ann', 'r', now() + interval '1 hour')", key, value)["refused"])
	}
	temporary("webhook.max_attempts", "4")
	temporary("retention.samples_days", "29")
	j.exec("UPDATE public.queue_heartbeat SET counted_from = now() - interval '1 hour' WHERE executor_id = 'silent'")
	j.exec("INSERT INTO public.webhook_endpoint_state (subscription_id, failing_since, last_success_at) VALUES ($1, now() - interval '1 hour', now()) ON CONFLICT (subscription_id) DO UPDATE SET failing_since = EXCLUDED.failing_since, last_success_at = EXCLUDED.last_success_at", rest[0])
	j.exec("UPDATE public.queue_broadcast_share SET event_at = now() - interval '1 hour', over_since = now() - interval '1 hour' WHERE event_domain = ''")

	c.back("1 day")
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.v_live_loop"), "whoever is seen tomorrow is not alive")
	require.Empty(t, h.claim(10), "all wait for tomorrow")
	got := call(t, c.root, "public.fn_queue_tick_request('config_expiry', 'wake')")
	require.Equal(t, true, got["ran"], got)

	require.Regexp(t, `^a time lies (1 day|23:59:[0-9]+) ahead of the clock of the server: the clock was set back`, get[string](c, "SELECT label FROM public.queue_mark WHERE created_by = 'system:clock' AND at <= clock_timestamp()"))
	require.Equal(t, "here", get[string](c, "SELECT string_agg(q.host_id, ' ') FROM public.queue_host q WHERE q.last_seen_at > now() - interval '15 seconds' AND q.last_seen_at <= clock_timestamp()"))
	held := call(t, c.root, "public.fn_queue_host_register('gone', gen_random_uuid(), 'v', '{webhook_router}')")
	require.Equal(t, "gone", held["host_id"], held)
	require.EqualValues(t, 2, j.reap()["reaped"], "the lease that was over is; the other has what it had left")
	require.InDelta(t, 100, get[float64](c, "SELECT extract(epoch FROM lease_until - now())::float8 FROM public.job_lease WHERE live > 0"), 30)
	require.EqualValues(t, 1, call(t, c.root, "public.fn_lease_reset_cleaner_run()")["reset"])
	require.Eventually(t, func() bool {
		h.claim(10)
		return get[int](c, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Leased'") == 3
	}, patience, 20*time.Millisecond,
		"the lease that was over, the endpoint with a rate, the probe of the circuit")
	h.emit("order", 1)
	h.step()
	require.Equal(t, 6, get[int](c, "SELECT count(DISTINCT saga_id)::int FROM public.webhook_delivery_jobs WHERE saga_id <= 6"), "what was due is due")
	require.Equal(t, 9, get[int](c, "SELECT count(*)::int FROM public.webhook_delivery_sagas"), "what came since goes to whoever subscribed before")
	call(t, c.root, "public.fn_queue_stale_check()")
	require.Equal(t, "expired", get[string](c, "SELECT cleared_reason FROM public.queue_alert_ack"))
	require.Equal(t, true, get[bool](c, "SELECT silent_event_at > now() - interval '1 minute' AND silent_event_at <= clock_timestamp() FROM public.queue_heartbeat WHERE executor_id = 'silent'"))
	require.InDelta(t, 3600, get[float64](c, "SELECT extract(epoch FROM max(revert_at) - now())::float8 FROM public.dot_config_revert"), 60, "a flag reverts when it was to revert")
	temporary("retention.samples_days", "28")
	j.exec("UPDATE public.dot_config_revert SET revert_at = now()")
	require.EqualValues(t, 2, call(t, c.root, "public.fn_dot_config_expire()")["reverted"], "also one that was extended")
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.dot_config c JOIN public.dot_config_rule r USING (key) WHERE key IN ('webhook.max_attempts', 'retention.samples_days') AND c.value <> r.default_value"))
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.queue_operator_action WHERE reason = 'written to the table by hand' AND target = 'webhook.max_attempts'"))
	require.EqualValues(t, 1, call(t, c.root, "public.fn_iu_notification_worker_tick()")["rows_marked"], "what was staged is told after its debounce")
	require.Zero(t, get[int](c, `SELECT (SELECT count(*) FROM public.queue_heartbeat WHERE counted_from > clock_timestamp())
		+ (SELECT count(*) FROM public.queue_broadcast_share WHERE greatest(event_at, over_since) > clock_timestamp())
		+ (SELECT count(*) FROM public.webhook_endpoint_state WHERE greatest(failing_since, last_success_at, last_failure_at) > clock_timestamp())`), "silence, shares and failures are counted from now at the latest")
	require.NotContains(t, call(t, c.root, "public.fn_metrics_sampler_run()"), "skipped", "the samples of tomorrow are not those of this minute")
	call(t, c.root, "public.fn_queue_tick_request('config_expiry', 'wake')")
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.queue_mark"), "said once")
}

// Events that wait to be routed are counted after the clock went back, before and after the times
// are repaired, whatever the cursor of their route began with.
func TestWaitingEventsAreCountedAfterTheClockWentBack(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	call(t, c.root, "public.fn_iu_route_worker_run()")
	call(t, c.root, "public.fn_metrics_sampler_run()")
	c.exec("UPDATE public.iu_outbound_route SET enabled = false WHERE event_domain = 'iu'")
	c.back("1 day")
	waiting := func() int {
		c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
		return get[int](c, "SELECT waiting::int FROM public.fn_iu_route_backlog() WHERE event_domain = 'iu'")
	}
	require.Equal(t, 1, waiting())
	c.repaired("1 day")
	require.Zero(t, get[int](c, `SELECT (SELECT count(*) FROM public.iu_route_worker_cursor WHERE isfinite(restored_at) AND restored_at > clock_timestamp())
		+ (SELECT count(*) FROM public.event_class_state WHERE isfinite(restored_at) AND restored_at > clock_timestamp())`))
	require.Equal(t, 2, waiting())
}

// repaired makes the clock check run with a time that lies this far ahead.
func (c *core) repaired(ahead string) {
	c.t.Helper()
	c.exec("SELECT public.fn_queue_clock_check(clock_timestamp() + $1::interval)", ahead)
}

// The clock check that an old time starts moves everything by the distance of the newest time, and
// a second one moves nothing again.
func TestClockIsRepairedOnce(t *testing.T) {
	j := busy(t)
	c := j.core
	require.Len(t, j.hooks().claim(1), 1)
	c.asReplica(`INSERT INTO public.queue_host (host_id, instance, version, loops, last_seen_at) VALUES ('h', gen_random_uuid(), 'v', '{}', now() + interval '1 day');
		UPDATE public.job_queue SET status = 'retry_waiting', ready = false, process_after = now() + interval '25 hours', updated_at = now() + interval '1 day' WHERE status = 'queued';
		UPDATE public.job_lease SET lease_until = now() + interval '1 day 100 seconds' WHERE live > 0;
		UPDATE public.webhook_delivery_jobs SET lease_until = now() + interval '1 day 40 seconds' WHERE status = 'Leased'`)
	left := func() []float64 {
		return get[[]float64](c, `SELECT ARRAY[(SELECT max(extract(epoch FROM process_after - now())) FROM public.job_queue WHERE status = 'retry_waiting'),
			(SELECT max(extract(epoch FROM lease_until - now())) FROM public.job_lease WHERE live > 0),
			(SELECT max(extract(epoch FROM lease_until - now())) FROM public.webhook_delivery_jobs WHERE status = 'Leased')]::float8[]`)
	}
	c.repaired("23 hours")
	require.InDeltaSlice(t, []float64{3600, 100, 40}, left(), 30)
	c.asReplica("UPDATE public.queue_tick_worker SET last_run_at = now() + interval '1 day' WHERE worker_name = 'config_expiry'")
	c.repaired("1 day")
	require.InDeltaSlice(t, []float64{3600, 100, 40}, left(), 30)
	// a lease that is longer than any lease can be, after a distance that was too short
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = NULL")
	c.asReplica(`UPDATE public.job_lease SET lease_until = now() + interval '1 day 100 seconds' WHERE live > 0;
		UPDATE public.webhook_delivery_jobs SET lease_until = now() + interval '1 day 40 seconds' WHERE status = 'Leased'`)
	c.repaired("23 hours")
	c.repaired("1 day")
	require.InDeltaSlice(t, []float64{3600, 305, 65}, left(), 30)

	// Also the times of tick workers that do not run are moved back, and keep their distance: they
	// would make the next step of seconds one of hours, which ends the leases of running jobs.
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() + interval '23 hours', last_attempt_at = now() - interval '2 hours' WHERE worker_name = 'config_expiry'")
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = 'infinity' WHERE worker_name = 'lease_reaper'")
	c.repaired("1 day")
	require.Equal(t, "2 true", get[string](c, `SELECT string_agg(CASE WHEN isfinite(last_run_at) THEN round(extract(epoch FROM (now() - least(last_run_at, last_attempt_at))) / 3600)::text END
			|| ' ' || (SELECT last_run_at <= clock_timestamp() FROM public.queue_tick_worker WHERE worker_name = 'lease_reaper'), '')
		FROM public.queue_tick_worker WHERE worker_name = 'config_expiry' AND last_run_at BETWEEN now() - interval '61 minutes' AND now() - interval '59 minutes'`))
	c.asReplica("UPDATE public.job_lease SET lease_until = now() + interval '310 seconds' WHERE live > 0")
	c.repaired("10 seconds")
	require.InDelta(t, 300, left()[1], 30)

	// A tick worker that another session runs is not waited for; it writes its times at its end.
	tx := c.begin(c.root)
	_, err := tx.Exec(t.Context(), "SELECT FROM public.dot_iu_runtime_lease WHERE lease_name = 'config_expiry' FOR UPDATE")
	require.NoError(t, err)
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() + interval '1 hour' WHERE worker_name IN ('config_expiry', 'lease_reaper')")
	c.repaired("2 hours")
	require.Equal(t, "config_expiry", get[string](c, "SELECT string_agg(worker_name, ' ') FROM public.queue_tick_worker WHERE last_run_at > clock_timestamp()"))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, true, tick(t, c, "config_expiry", "external")["ran"], "a last run ahead of the clock delays no run")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.queue_tick_worker WHERE last_run_at > clock_timestamp()"))
}

// A result or a claim that began before the clock went back may be committed after the times were moved. Its
// times are moved soon after.
func TestClockIsRepairedAgainForLateCommits(t *testing.T) {
	j := busy(t)
	c := j.core
	j.hooks().claim(1)
	tx := c.begin(c.root)
	_, err := tx.Exec(t.Context(), "SET LOCAL session_replication_role = replica")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `WITH q AS (UPDATE public.job_queue SET status = 'retry_waiting', ready = false, process_after = now() + interval '25 hours', updated_at = now() + interval '1 day' WHERE status = 'queued'),
			w AS (UPDATE public.webhook_delivery_jobs SET lease_until = now() + interval '1 day 55 seconds' WHERE status = 'Leased')
		UPDATE public.job_lease SET lease_until = now() + interval '1 day 290 seconds' WHERE live > 0`)
	require.NoError(t, err)
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = now() + interval '1 day' WHERE worker_name = 'config_expiry'")
	c.repaired("23 hours")
	require.NoError(t, tx.Commit(t.Context()))
	left := func() string {
		return get[string](c, `SELECT concat_ws(' ', (SELECT ceil(max(extract(epoch FROM process_after - now())) / 60) FROM public.job_queue WHERE status = 'retry_waiting'),
			(SELECT ceil(max(extract(epoch FROM lease_until - now())) / 60) FROM public.job_lease WHERE live > 0),
			(SELECT ceil(max(extract(epoch FROM lease_until - now())) / 60) FROM public.webhook_delivery_jobs WHERE status = 'Leased'))`)
	}
	require.Equal(t, "1500 1445 1441", left())
	j.reap()
	require.Equal(t, "60 5 1", left())
	j.reap()
	require.Equal(t, "60 5 1", left(), "moved once")
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.queue_mark"))

	late := "UPDATE public.webhook_delivery_jobs SET lease_until = now() + interval '1 day 30 seconds' WHERE status = 'Leased'"
	c.asReplica(late)
	call(t, c.root, "public.fn_lease_reset_cleaner_run()")
	require.Equal(t, "60 5 1", left())
	c.exec("UPDATE public.dot_iu_runtime_lease SET expires_at = now() - interval '1 second' WHERE lease_name = 'clock'")
	c.asReplica(late)
	j.reap()
	require.Equal(t, "60 5 1441", left(), "after two minutes nothing is looked for")
}

// The times of rows that the check reaches late are compared with the time at which it began: the
// clock runs on while it works.
func TestClockIsRepairedSlowly(t *testing.T) {
	j := busy(t)
	c := j.core
	h := j.hooks()
	h.emit("order", 1)
	require.Equal(t, 3, h.route())
	j.exec(`CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			PERFORM set_config('session_replication_role', 'replica', true);
			UPDATE public.webhook_delivery_sagas SET updated_at = clock_timestamp() + interval '5.000001 seconds', next_attempt_at = clock_timestamp() + interval '1 day'
			WHERE status IN ('Pending', 'PendingRetry');
			PERFORM set_config('session_replication_role', 'origin', true);
			RETURN NULL;
		END $$;
		CREATE TRIGGER late AFTER UPDATE ON public.queue_host FOR EACH STATEMENT EXECUTE FUNCTION public.late()`)
	c.repaired("1 day")
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.queue_mark"), "not rolled back")
	require.Equal(t, 3, get[int](c, "SELECT count(*)::int FROM public.webhook_delivery_sagas WHERE status = 'Pending' AND next_attempt_at <= now() + interval '1 minute' AND updated_at <= now()"))
	for _, role := range []string{"saga_orchestrator", "webhook_worker"} { // the exception is for the check alone
		c.asReplica("UPDATE public.webhook_delivery_sagas SET updated_at = now() + interval '1 day', next_attempt_at = now() + interval '1 day' WHERE status = 'Pending'")
		fails(t, c.as(role), "42501", "UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() WHERE status = 'Pending'")
	}
}

// A host whose last heartbeat is in the future makes the clock check run, and continues.
func TestBeatAheadOfTheClock(t *testing.T) {
	c := newCore(t)
	const beat = "public.fn_queue_host_beat('h', '00000000-0000-0000-0000-000000000001', '{job_executor}', 0, '{}')"
	require.Equal(t, "h", call(t, c.root, "public.fn_queue_host_register('h', '00000000-0000-0000-0000-000000000001', 'v', '{job_executor}')")["host_id"])
	c.exec("UPDATE public.queue_host SET last_seen_at = last_seen_at + interval '3 seconds'")
	call(t, c.root, beat)
	require.Zero(t, get[int](c, "SELECT count(*)::int FROM public.queue_mark"), "clocks are off by seconds")
	c.exec("UPDATE public.queue_host SET last_seen_at = last_seen_at + interval '1 hour'")
	call(t, c.root, beat)
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.queue_mark"))
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.v_live_loop"))
}

// A host records a step of the clock that it noticed: hosts that notice the same step make one mark
// together, and a process that is not the registered instance makes none.
func TestClockStepped(t *testing.T) {
	c := newCore(t)
	const h = "'h', '00000000-0000-0000-0000-000000000001'"
	require.Equal(t, "h", call(t, c.root, "public.fn_queue_host_register("+h+", 'v', '{job_executor}')")["host_id"])
	at, err := time.Parse(time.RFC3339Nano, call(t, c.root, "public.fn_queue_host_beat("+h+", '{job_executor}', 0, '{}')")["at"].(string))
	require.NoError(t, err)
	require.InDelta(t, 0, get[float64](c, "SELECT extract(epoch FROM clock_timestamp())::float8")-float64(at.UnixMicro())/1e6, 60)
	step := func(who, seconds string) string {
		t.Helper()
		c.exec("SELECT public.fn_queue_clock_stepped(" + who + ", " + seconds + ")")
		return get[string](c, "SELECT string_agg(label, '; ' ORDER BY mark_id) FROM (SELECT '' AS label, 0 AS mark_id UNION ALL SELECT label, mark_id FROM public.queue_mark WHERE at > clock_timestamp() - interval '15 seconds') m")
	}
	require.Equal(t, "", step("'h', gen_random_uuid()", "86400"), "not this instance")
	require.Equal(t, "; the clock of the server went forward by 1 day (noticed by host h), or another server answers now", step(h, "86399.97"))
	require.Equal(t, "; the clock of the server went forward by 1 day (noticed by host h), or another server answers now", step(h, "86399.97"), "noticed twice")
	c.asReplica("UPDATE public.queue_mark SET at = at - interval '16 seconds'")
	require.Equal(t, "; the clock of the server went back by 00:00:01.1 (noticed by host h), or another server answers now", step(h, "-1.06"))
	for _, bad := range []string{"NULL", "0", "'NaN'", "'infinity'", "1e300"} {
		fails(t, c.root, "22023", "SELECT public.fn_queue_clock_stepped("+h+", "+bad+")")
	}
}

// The clock was ahead while no host ran: the next host that registers detects this from the times
// of other rows.
func TestClockWasAheadWithoutHosts(t *testing.T) {
	c := newCore(t)
	c.exec(`WITH u AS (INSERT INTO public.information_unit (canonical_address, created_by) VALUES ('a', 'user:ann') RETURNING id)
		INSERT INTO public.unit_version (unit_id, version_seq, body, created_by) SELECT u.id, 1, 'b', 'user:ann' FROM u`)
	c.asReplica("UPDATE public.iu_notification_pending SET created_at = now() + interval '1 day'")
	require.Equal(t, "h", call(t, c.root, "public.fn_queue_host_register('h', gen_random_uuid(), 'v', '{job_executor}')")["host_id"])
	require.True(t, get[bool](c, "SELECT created_at <= clock_timestamp() FROM public.iu_notification_pending"))
	require.Equal(t, 1, get[int](c, "SELECT count(*)::int FROM public.queue_mark"))
}
