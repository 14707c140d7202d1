// Silence: which executors are silent, how often an event reports this, and how an alert is
// acknowledged.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const emitted = `SELECT count(*) FROM public.event_outbox WHERE event_type = 'queue_worker_silent' AND event_subject_ref = $1`

func TestStaleSeverity(t *testing.T) {
	c := newCore(t)
	// With a cadence of a day, a slow test run of some seconds moves no ratio over its threshold.
	const day = 86400
	for id, ratio := range map[string]float64{"r3": 3, "r99": 9.9, "r10": 10} {
		c.executor(id, day, day, int(ratio*day))
	}
	c.executor("fresh", day, day, 100)
	require.Equal(t, "r10 critical 10.0,r3 warning 3.0,r99 warning 9.9", get[string](c, `SELECT string_agg(subject || ' ' ||
		severity || ' ' || round(ratio, 1), ',' ORDER BY subject) FROM public.v_queue_alert`), "seen although no check ran")
	require.EqualValues(t, 3, call(t, c.as("dot_executor"), "public.fn_queue_stale_check()")["emitted"])
	require.Equal(t, "r10 critical 10.0,r3 warning 3.0,r99 warning 9.9", get[string](c, `SELECT string_agg(event_subject_ref || ' ' ||
		event_severity || ' ' || round((safe_payload ->> 'gap_ratio')::numeric, 1), ',' ORDER BY event_subject_ref) FROM public.event_outbox`))
	require.Equal(t, "system queue_worker_silent alert immediate queue_heartbeat agent:queue_stale_check", get[string](c, `SELECT DISTINCT
		concat_ws(' ', event_domain, event_type, event_stream, delivery_lane, event_subject_table, actor_ref) FROM public.event_outbox`))
	require.Equal(t, get[string](c, "SELECT id::text FROM public.event_outbox WHERE event_subject_ref = 'r3'"),
		get[string](c, "SELECT event_ids[1]::text FROM public.v_queue_alert WHERE subject = 'r3'"))
}

func TestStaleOncePerTwoThresholds(t *testing.T) {
	for _, n := range []int32{2, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCore(t)
			pool := c.wide(n, "dot_executor")
			for i := range 5 {
				c.executor(fmt.Sprint("e", i), 60, 300, 4000)
			}
			race := func() {
				together(t, int(n), func(int) (map[string]any, error) { return tryCall(pool, "public.fn_queue_stale_check()") })
			}
			race()
			race()
			require.Equal(t, 5, get[int](c, "SELECT count(*) FROM public.event_outbox"))
			c.exec("UPDATE public.queue_heartbeat SET silent_event_at = silent_event_at - interval '590 seconds' WHERE NOT tick_worker")
			race()
			require.Equal(t, 5, get[int](c, "SELECT count(*) FROM public.event_outbox"), "not before 2 × threshold")
			c.exec("UPDATE public.queue_heartbeat SET silent_event_at = silent_event_at - interval '11 seconds' WHERE NOT tick_worker")
			race()
			require.Equal(t, 10, get[int](c, "SELECT count(*) FROM public.event_outbox"))
			require.Equal(t, 2, get[int](c, "SELECT cardinality(event_ids) FROM public.v_queue_alert WHERE subject = 'e0'"), "one silence, two events")
		})
	}
}

func TestStaleExceptions(t *testing.T) {
	c := newCore(t)
	c.executor("stopped", 60, 300, 4000)
	c.executor("gone", 60, 300, 4000)
	c.executor("silent", 60, 300, 4000)
	c.exec(`UPDATE public.queue_heartbeat SET last_beat_payload = '{"state": "stopped"}' WHERE executor_id = 'stopped'`)
	c.exec(`UPDATE public.queue_heartbeat SET deregistered_at = now(), deregistered_by = 'x' WHERE executor_id = 'gone'`)
	admin := c.as("workflow_admin")
	setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "1000000")
	got := call(t, c.root, "public.fn_queue_stale_check()")
	require.Equal(t, false, got["monitoring"])
	require.Zero(t, get[int](c, emitted, "silent"))
	require.Equal(t, true, call(t, c.root, "public.fn_queue_snapshot('0')")["monitoring_off"])
	setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "999999")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_queue_stale_check()")["emitted"])
	require.Equal(t, false, call(t, c.root, "public.fn_queue_snapshot('0')")["monitoring_off"])
	require.Equal(t, "silent", get[string](c, "SELECT string_agg(subject, ',') FROM public.v_queue_alert"))
	require.Equal(t, "stopped,deregistered,stale", get[string](c, `SELECT string_agg(status_hint, ',' ORDER BY position(subject IN 'stopped gone silent'))
		FROM public.v_queue_health WHERE source = 'heartbeat' AND subject IN ('stopped', 'gone', 'silent')`))
}

// A tick worker that is switched off counts as stopped. Once it is switched on again, its silence
// counts from that moment, even if no host runs it.
func TestStaleAfterSwitchOn(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	const key = "queue.tick.config_expiry.interval_seconds"
	setFlag(t, admin, key, "0")
	require.Equal(t, "off", call(t, c.root, "public.fn_queue_tick_request('config_expiry')")["skipped"])
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'config_expiry'")
	const alerts = "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'config_expiry'"
	require.Zero(t, get[int](c, alerts))
	setFlag(t, admin, key, "30")
	require.Zero(t, get[int](c, alerts), "it counts from the switch on")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'config_expiry'")
	require.Equal(t, 1, get[int](c, alerts))
}

func TestAlertAck(t *testing.T) {
	c := newCore(t)
	ann, bob := c.as("workflow_admin"), c.as("dead_letter_operator")
	c.executor("kg", 60, 300, 400)
	row := func() string {
		t.Helper()
		return get[string](c, `SELECT concat_ws(' ', severity, state, acked_by, comment, last_cleared) FROM public.v_queue_alert WHERE subject = 'kg'`)
	}
	ack := func(comment, ttl string) map[string]any {
		t.Helper()
		return call(t, bob, "public.fn_queue_alert_ack('kg', 'bob', $1, $2::text::interval)", comment, ttl)
	}
	require.Equal(t, "warning open", row()[:12])
	key := get[string](c, "SELECT alert_key FROM public.v_queue_alert WHERE subject = 'kg'")
	got := call(t, ann, "public.fn_queue_alert_ack($1, 'ann', 'restarting it', '2 minutes')", key)
	require.Equal(t, key, got["alert_key"])
	require.Equal(t, "warning acked ann restarting it ", row(), "the row stays and shows who")
	second := ack("me too", "1 hour")
	require.Equal(t, "already_acked", second["rule"])
	require.Regexp(t, `^alert \S+ is acknowledged by ann since .*Z, until .*Z: restarting it$`, second["reason"])

	// An acknowledgement that has expired no longer counts, whether or not the check ran since; the
	// check clears its row.
	c.exec("UPDATE public.queue_alert_ack SET expires_at = now() - interval '1 second'")
	require.Equal(t, "warning open expired", row())
	require.EqualValues(t, 1, call(t, ann, "public.fn_queue_stale_check()")["acks_cleared"])
	require.Equal(t, "warning open expired", row())
	require.Nil(t, ack("mine now", "1 hour")["rule"])
	require.Equal(t, "warning acked bob mine now ", row())

	// An alert whose severity rises to critical is open again.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = last_beat_at WHERE executor_id = 'kg'")
	c.exec("UPDATE public.queue_heartbeat SET expected_cadence_seconds = 10 WHERE executor_id = 'kg'")
	require.Equal(t, "critical open rose_to_critical", row())
	require.EqualValues(t, 1, call(t, ann, "public.fn_queue_stale_check()")["acks_cleared"])
	require.Equal(t, "critical open rose_to_critical", row())
	require.Nil(t, ack("critical now", "1 hour")["rule"])
	require.EqualValues(t, 0, call(t, ann, "public.fn_queue_stale_check()")["acks_cleared"], "critical already: nothing to rise to")
	require.Equal(t, "critical acked bob critical now ", row())

	// The acknowledgement is given up, and the alert is acknowledged again; then a heartbeat ends
	// the silence.
	require.Equal(t, "bob", call(t, ann, "public.fn_queue_alert_unack('kg', 'ann', 'bob left')")["was_acked_by"])
	require.Equal(t, "critical open unacked", row())
	require.Equal(t, "not_acked", call(t, ann, "public.fn_queue_alert_unack('kg', 'ann', 'again')")["rule"])
	require.Nil(t, ack("back", "1 hour")["rule"])
	call(t, c.root, "public.fn_queue_heartbeat_write('kg', '{}', 'kg')")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'kg'"))
	require.Equal(t, "expired,rose_to_critical,unacked,beat_returned", get[string](c, "SELECT string_agg(cleared_reason, ',' ORDER BY ack_id) FROM public.queue_alert_ack"))
	require.Equal(t, "not_found", ack("late", "1 hour")["rule"])
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE action IN ('ack', 'unack') AND reason IS NULL"))

	// A new silence is a new alert.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour' WHERE executor_id = 'kg'")
	require.Equal(t, "critical open ", row())
}

func TestAlertAckArguments(t *testing.T) {
	c := newCore(t)
	c.executor("kg", 60, 300, 400)
	admin := c.as("workflow_admin")
	for _, bad := range []string{"'kg', 'ann', ' ', '1 hour'", "'kg', 'ann', NULL, '1 hour'", "'kg', '', 'c', '1 hour'",
		"'kg', 'ann', 'c', '0'", "'kg', 'ann', 'c', NULL", "'kg', 'ann', 'c', '8 days'", "'kg', 'ann', 'c', '-1 hour'"} {
		fails(t, admin, "22023", "SELECT public.fn_queue_alert_ack("+bad+")")
	}
	fails(t, admin, "22023", "SELECT public.fn_queue_alert_unack('kg', 'ann', '')")
	fails(t, c.as("queue_viewer", "dot_executor"), "42501", "SELECT public.fn_queue_alert_ack('kg', 'eve', 'c', '1 hour')")
}

func TestAlertAckRace(t *testing.T) {
	c := newCore(t)
	pool := c.wide(16, "workflow_admin")
	c.executor("kg", 60, 300, 400)
	got := together(t, 16, func(i int) (map[string]any, error) {
		return tryCall(pool, "public.fn_queue_alert_ack('kg', $1, 'mine', '1 hour')", fmt.Sprint("op", i))
	})
	require.Equal(t, 15, count(got, "rule", "already_acked"))
	who := get[string](c, "SELECT acked_by FROM public.v_queue_alert WHERE subject = 'kg'")
	for i, g := range got {
		if g["refused"] == nil {
			require.Equal(t, fmt.Sprint("op", i), who)
		} else {
			require.Contains(t, g["reason"], "acknowledged by "+who+" since")
		}
	}
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.queue_alert_ack"))
}
