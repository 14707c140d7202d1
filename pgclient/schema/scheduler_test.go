// The scheduler: which callers may run which tick worker when, what is recorded about an operator's
// run, and how workers are switched off.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// cronJobs is copied from the documents DP1 §4.3 and P3D4C1, not from the code.
var cronJobs = map[string][2]string{
	"queue_iu_outbound_default":   {"iu_outbound_default", "* * * * *"},
	"queue_job_queue_default":     {"job_queue_default", "* * * * *"},
	"queue_stale_heartbeat_check": {"stale_heartbeat_check", "*/2 * * * *"},
	"queue_staging_cleanup_sweep": {"staging_cleanup_sweep", "0 * * * *"},
	"queue_lease_reaper":          {"lease_reaper", "* * * * *"},
	"iu-notification-worker":      {"iu_notification_worker", "*/2 * * * *"},
}

// tickWorkers is copied from the contract: the six of DP1 §4.2, and those that qtop adds.
var tickWorkers = []string{
	"iu_outbound_default", "staging_outbound", "job_queue_default", "stale_heartbeat_check", "staging_cleanup_sweep", "lease_reaper",
	"iu_notification_worker", "webhook_router", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner", "metrics_sampler",
	"counter_compactor", "bulk_operation_runner", "config_expiry", "retention_sweep",
}

func TestSchedulerCatalogue(t *testing.T) {
	c := newCore(t)
	for _, name := range tickWorkers {
		require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.dot_config_rule WHERE key = 'queue.tick.' || $1 || '.interval_seconds'", name), name)
	}
	there := get[[]string](c, "SELECT array_agg(worker_name::text) FROM public.queue_tick_worker")
	require.ElementsMatch(t, tickWorkers, there, "a new tick worker: add it to tickWorkers")
	for name, job := range cronJobs {
		require.Equal(t, job[0]+" "+job[1], get[string](c, "SELECT worker_name || ' ' || schedule FROM public.queue_cron_job WHERE job_name = $1", name))
	}
	require.Equal(t, len(cronJobs), get[int](c, "SELECT count(*) FROM public.queue_cron_job"))
	c.none("a worker says otherwise than the list of cron jobs", `SELECT w.worker_name FROM public.queue_tick_worker w
		WHERE w.cron_job <> EXISTS (SELECT 1 FROM public.queue_cron_job j WHERE j.worker_name = w.worker_name)`)
	c.none("a tick worker without a cadence", `SELECT w.worker_name FROM public.queue_tick_worker w WHERE NOT EXISTS (
		SELECT 1 FROM public.dot_config_rule r WHERE r.key = 'queue.tick.' || w.worker_name || '.interval_seconds' AND r.kind = 'integer' AND r.switch)`)
	c.none("a tick worker without its lease or heartbeat", `SELECT w.worker_name FROM public.queue_tick_worker w WHERE NOT EXISTS (
		SELECT 1 FROM public.dot_iu_runtime_lease l WHERE l.lease_name = w.worker_name) OR NOT EXISTS (
		SELECT 1 FROM public.queue_heartbeat h WHERE h.executor_id = w.worker_name AND h.tick_worker)`)
	c.none("a cron job whose schedule is no multiple of its worker's interval", `SELECT j.job_name FROM public.queue_cron_job j
		JOIN public.dot_config d ON d.key = 'queue.tick.' || j.worker_name || '.interval_seconds'
		WHERE d.value::int > CASE j.schedule WHEN '* * * * *' THEN 60 WHEN '*/2 * * * *' THEN 120 WHEN '0 * * * *' THEN 3600 END`)
	require.Equal(t, []string{"worker_name", "configured_interval_seconds", "last_run_at", "age_seconds", "stale", "mode"}, get[[]string](c,
		`SELECT (array_agg(attname::text ORDER BY attnum))[1:6] FROM pg_attribute WHERE attrelid = 'public.v_queue_scheduler_status'::regclass AND attnum > 0`), "DP1 §10")
}

func TestSchedulerStatusStale(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{}';", true)
	admin := c.as("workflow_admin")
	for _, x := range []struct {
		interval, threshold string
		age                 int // of the last heartbeat, in seconds
		want                string
	}{
		{"60", "300", 295, "false ok"}, {"60", "300", 301, "true stale"}, {"200", "300", 301, "false ok"},
		{"200", "300", 595, "false ok"}, {"200", "300", 601, "true stale"}, {"60", "9000", 300, "false ok"}, {"60", "9000", 306, "true stale"},
		{"1", "300", 5, "false ok"}, {"1", "300", 11, "true stale"}, {"5", "1", 10, "false ok"}, {"5", "1", 16, "true stale"},
		{"0", "300", 99999, "false off"}, {"60", "1000000", 295, "false ok"}, {"60", "1000000", 1000100, "false unwatched"},
		{"999999999", "300", 400, "false ok"}, {"60", "300", -60, "true stale"}, {"60", "300", -1, "false ok"},
	} {
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.tick.w.interval_seconds'", x.interval)
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.heartbeat.stale_threshold_seconds'", x.threshold)
		c.exec("UPDATE public.queue_heartbeat SET counted_from = NULL, last_beat_at = now() - make_interval(secs => $1::int) WHERE executor_id = 'w'", x.age)
		require.Equal(t, x.want, get[string](c, "SELECT stale || ' ' || state FROM public.v_queue_scheduler_status WHERE worker_name = 'w'"), "%+v", x)
	}
	c.exec("UPDATE public.dot_config SET value = '60' WHERE key = 'queue.tick.w.interval_seconds'")
	c.exec("UPDATE public.dot_config SET value = '300' WHERE key = 'queue.heartbeat.stale_threshold_seconds'")
	require.Equal(t, true, tick(t, c, "w", "external")["ran"])
	require.Equal(t, "ok external external 60", get[string](c, `SELECT concat_ws(' ', state, last_source, mode, extract(epoch FROM next_due_at - last_run_at)::int)
		FROM public.v_queue_scheduler_status WHERE worker_name = 'w'`))
	setFlag(t, admin, "queue.job_substrate.enabled", "false") // the flag of the worker
	require.Equal(t, "off", get[string](c, "SELECT state FROM public.v_queue_scheduler_status WHERE worker_name = 'w' AND next_due_at IS NULL"))
	setFlag(t, admin, "queue.job_substrate.enabled", "true")
	c.exec("CREATE OR REPLACE FUNCTION public.fn_test_w() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN jsonb_build_object('x', 1 / 0); END $$")
	require.Equal(t, true, tick(t, c, "w", "wake")["failed"])
	require.Equal(t, "failed true", get[string](c, "SELECT state || ' ' || (next_due_at > now() + interval '50 seconds') FROM public.v_queue_scheduler_status WHERE worker_name = 'w'"))
}

// due returns why a worker would not run now if its last run had begun ago seconds ago; "" = it
// would run.
func (c *core) due(worker, source string, ago float64) string {
	c.t.Helper()
	tx := c.begin(c.root)
	_, err := tx.Exec(context.Background(), "UPDATE public.queue_tick_worker SET last_run_at = clock_timestamp() - make_interval(secs => $2), last_attempt_at = NULL WHERE worker_name = $1", worker, ago)
	require.NoError(c.t, err)
	var why string
	require.NoError(c.t, tx.QueryRow(context.Background(), "SELECT public.fn_queue_tick_due($1, $2)", worker, source).Scan(&why))
	require.NoError(c.t, tx.Rollback(context.Background()))
	return why
}

// Cron jobs that start up to a tenth of the interval late all run, whatever came before. In hybrid
// mode, in which worker hosts tick at other times too, no two runs are closer together than 0.9 of
// the interval.
func TestSchedulerJitter(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{}';", true)
	setFlag(t, c.as("workflow_admin"), "queue.scheduler.mode", "hybrid")
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, interval := range []float64{60, 120} {
		setFlag(t, c.as("workflow_admin"), "queue.tick.w.interval_seconds", fmt.Sprint(interval))
		last := 0.0
		for mark := 1; mark <= 40; mark++ {
			at := float64(mark)*interval + rnd.Float64()*(0.1*interval-0.5) // 0.5 s for the time between two statements on a slow machine
			if mark%5 == 0 {
				at = float64(mark) * interval // on time, after a late one
			}
			require.Empty(t, c.due("w", "pg_cron", at-last), "mark %d of every %v s, %v s after the last", mark, interval, at-last)
			last = at
		}
		// In addition, hosts tick at three other times.
		type request struct {
			at     float64
			source string
		}
		var all []request
		for mark := range 30 {
			all = append(all, request{float64(mark) * interval, "pg_cron"})
			for host := range 3 {
				all = append(all, request{(float64(mark) + 0.17 + 0.3*float64(host)) * interval, "external"})
			}
		}
		var runs []float64
		last = -interval
		for _, r := range all {
			switch why := c.due("w", r.source, r.at-last); why {
			case "":
				require.GreaterOrEqual(t, r.at-last, 0.9*interval)
				runs, last = append(runs, r.at), r.at
			default:
				require.Equal(t, "not_due", why)
				require.Less(t, r.at-last, 0.9*interval+0.5)
			}
		}
		require.GreaterOrEqual(t, len(runs), 24, "it goes on at about its interval: %v", runs)
	}
	require.Empty(t, c.due("w", "external", -3600), "a clock that was set back holds nothing up")
}

// Intervals count from the start of a run: after a run that takes longer than a tenth of the
// interval, the next scheduled start is not too early.
func TestSchedulerStartToStart(t *testing.T) {
	c := newCore(t)
	c.worker("slow", "PERFORM pg_sleep(0.3); RETURN '{}';", true)
	require.Equal(t, true, tick(t, c, "slow", "external")["ran"])
	require.True(t, get[bool](c, `SELECT l.expires_at - w.last_run_at > interval '0.29 seconds' FROM public.queue_tick_worker w
		JOIN public.dot_iu_runtime_lease l ON l.lease_name = w.worker_name WHERE w.worker_name = 'slow'`), "the lease ended 0.3 s after last_run_at")
}

func TestTickByOperatorIsAudited(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{\"done\": 2}';", true)
	c.worker("broken", "RETURN jsonb_build_object('x', 1 / 0);", true)
	admin := c.as("workflow_admin")
	trail := func(worker string) string {
		t.Helper()
		return get[string](c, `SELECT concat_ws('|', actor, reason, outcome, after -> 'ran', db_role <> 'queue_owner') FROM public.queue_operator_action
			WHERE action = 'tick' AND target = $1 ORDER BY id DESC LIMIT 1`, worker)
	}
	got := call(t, admin, "public.fn_queue_tick_now('w', 'ann', 'see whether it works')")
	require.Equal(t, true, got["ran"])
	require.EqualValues(t, get[int](c, "SELECT max(id) FROM public.queue_operator_action"), got["audit_id"])
	require.Equal(t, "ann|see whether it works|done|true|t", trail("w"))
	require.Equal(t, true, call(t, admin, "public.fn_queue_tick_now('w', 'bob')")["ran"], "whatever the interval")
	require.Equal(t, "bob|done|true|t", trail("w"))
	require.Equal(t, true, call(t, admin, "public.fn_queue_tick_now('broken', 'ann')")["failed"])
	require.Equal(t, "ann|failed|false|t", trail("broken"))
	setFlag(t, admin, "queue.tick.w.interval_seconds", "0")
	require.Equal(t, "off", call(t, admin, "public.fn_queue_tick_now('w', 'ann')")["skipped"])
	require.Equal(t, "ann|skipped: off|false|t", trail("w"))
	require.Equal(t, "off", call(t, admin, "public.fn_queue_tick_request('w', 'operator')")["skipped"])
	require.Regexp(t, `^\w+\|skipped: off\|false\|t$`, trail("w"))
	require.NotContains(t, trail("w"), "ann", "also through the guard itself, with the login as actor")
	n := get[int](c, "SELECT count(*) FROM public.queue_operator_action")
	call(t, admin, "public.fn_queue_tick_request('w', 'external')")
	call(t, admin, "public.fn_queue_tick_request('w', 'wake')")
	require.Equal(t, n, get[int](c, "SELECT count(*) FROM public.queue_operator_action"), "a host's ticks are no operator's")
	fails(t, admin, "22023", "SELECT public.fn_queue_tick_now('w', ' ')")
	fails(t, admin, "22023", "SELECT public.fn_queue_tick_now('no_such', 'ann')")
	fails(t, c.as("queue_viewer", "dead_letter_operator"), "42501", "SELECT public.fn_queue_tick_now('w', 'eve')")
}

// If the connection that runs a tick is lost, nothing remains that would prevent the next run.
func TestTickConnectionLost(t *testing.T) {
	c := newCore(t)
	c.worker("endless", "PERFORM pg_sleep(600); RETURN '{}';", true)
	conn := c.db.Conn(t, pgtest.Login(t, c.db, "dot_executor"))
	pid := conn.PgConn().PID()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT public.fn_queue_tick_request('endless', 'wake')")
		done <- err
	}()
	eventually(t, "it runs", func() bool {
		return get[bool](c, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep')", pid)
	})
	require.Equal(t, "lease_held", tick(t, c, "endless", "operator")["skipped"])
	c.exec("SELECT pg_terminate_backend($1)", pid)
	require.Error(t, <-done)
	c.exec("CREATE OR REPLACE FUNCTION public.fn_test_endless() RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$")
	eventually(t, "the next one runs", func() bool { return tick(t, c, "endless", "operator")["ran"] == true })
	require.True(t, get[bool](c, "SELECT last_run_at IS NOT NULL AND last_result ->> 'source' = 'operator' FROM public.queue_tick_worker WHERE worker_name = 'endless'"))
}

// Without pg_cron, installing cron jobs is refused with one line that says what is missing. Nothing
// is changed, and the refusal is in the audit.
func TestSchedulerInstallWithoutCron(t *testing.T) {
	c := newCore(t)
	if get[bool](c, "SELECT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron')") {
		t.Skip("this server has pg_cron")
	}
	admin := c.as("workflow_admin")
	for _, expr := range []string{"public.fn_queue_scheduler_install('ann', 'try')", "public.fn_queue_scheduler_install('ann', 'try', true)"} {
		got := call(t, admin, expr)
		require.Equal(t, "no_pg_cron", got["rule"])
		require.Regexp(t, `^pg_cron is not (on this server|loaded): .*shared_preload_libraries = 'pg_cron' and cron\.database_name = '`+c.db.Name+
			`' and restart the server.* as a superuser: CREATE EXTENSION pg_cron in `+c.db.Name+`$`, got["reason"])
		require.NotContains(t, got["reason"], "\n")
	}
	require.Nil(t, call(t, admin, "public.fn_queue_scheduler_install('ann', 'try', NULL)")["audit_id"], "NULL is a dry run")
	require.NotNil(t, call(t, admin, "public.fn_queue_scheduler_install('ann', 'try', false)")["audit_id"])
	require.Equal(t, "2 refused: no_pg_cron", get[string](c, "SELECT count(*) || ' ' || max(outcome) FROM public.queue_operator_action WHERE action = 'scheduler_install'"))
	require.Zero(t, get[int](c, "SELECT count(run_as) FROM public.queue_cron_job"))
	removed := call(t, admin, "public.fn_queue_scheduler_remove('ann', 'tidy')")
	require.Len(t, removed["results"], 6)
	require.Contains(t, fmt.Sprint(removed["results"]), "absent")
	for _, bad := range []string{"install('', 'r')", "install('ann', '')", "remove('ann', NULL)"} {
		fails(t, admin, "22023", "SELECT public.fn_queue_scheduler_"+bad)
	}
	viewer := c.as("queue_viewer", "dot_executor", "dead_letter_operator")
	fails(t, viewer, "42501", "SELECT public.fn_queue_scheduler_install('eve', 'r')")
	fails(t, viewer, "42501", "SELECT public.fn_queue_scheduler_remove('eve', 'r')")
	fails(t, viewer, "42501", "SELECT public.fn_queue_scheduler_claim(true, 'eve', 'eve', 'r', '[]', 'done')")
	claimedAlone(t, c, admin)
	require.Equal(t, "3 ann", get[string](c, "SELECT count(*) || ' ' || string_agg(DISTINCT actor, ',') FROM public.queue_operator_action WHERE action LIKE 'scheduler%'"))
	require.NotNil(t, call(t, quoting(t, c, admin), "public.fn_queue_scheduler_remove('ann', 'tidy')")["audit_id"], "with quote_all_identifiers")
	var found *bool
	require.NoError(t, viewer.QueryRow(context.Background(), "SELECT bool_or(found) FROM public.fn_queue_cron_jobs()").Scan(&found))
	require.False(t, *found)

	// migrate down warns a login that cannot see the cron jobs of another login, and names that
	// login, since their functions are about to be dropped.
	c.exec("UPDATE public.queue_cron_job SET run_as = 'ops', installed_at = now(), installed_by = 'ann'")
	var dry steps
	require.NoError(t, schema.Down(t.Context(), c.root.Config().ConnString(), schema.DownOptions{DryRun: true}, dry.add))
	require.Contains(t, strings.Join(dry.lines, "\n"), "cron jobs that run as ops are not visible to this login")
}

// With the largest and smallest values that flags may have, workers and the snapshot still work.
func TestNumbersAtTheirEnds(t *testing.T) {
	for _, value := range []string{"999999999", "0"} {
		t.Run(value, func(t *testing.T) {
			c := newRoutes(t)
			c.exec("UPDATE public.dot_config c SET value = $1 FROM public.dot_config_rule r WHERE r.key = c.key AND r.kind = 'integer'", value)
			c.emit("iu", "a")
			for _, w := range tickWorkers {
				got := call(t, c.root, "public.fn_queue_tick_request($1, 'wake')", w)
				require.Equal(t, value != "0", got["ran"], "%s: %v", w, got)
			}
			for _, w := range []string{"iu_outbound_default", "staging_outbound"} {
				require.Equal(t, value != "0", call(t, c.root, "public.fn_iu_route_worker_health($1)", w)["healthy"], w)
			}
			require.NotEmpty(t, call(t, c.root, "public.fn_queue_snapshot('0')")["health"])
			require.NotZero(t, get[int](c, "SELECT count(*) FROM public.v_queue_health"))
			get[int](c, "SELECT count(*) FROM public.v_queue_alert")
		})
	}
}

// An installation older than queue_heartbeat kept the time of its executor's last run in the flag
// hc_executor_last_run (DP4 §3.4). migrate up registers that executor, with the time as its last
// heartbeat.
func TestMigrateAdoptsHCExecutor(t *testing.T) {
	const written = "2026-05-26T07:00:00Z"
	for value, want := range map[string]string{
		"2026-05-22T11:31:41Z": "2026-05-22T11:31:41Z", "2026-05-22 11:31:41.5+02": "2026-05-22T09:31:41Z", `"2026-05-22T11:31:41Z"`: "2026-05-22T11:31:41Z",
		"2026-05-22 11:31:41": "2026-05-22T11:31:41Z", "1779449501": "2026-05-22T11:31:41Z",
		"soon": written, "": written, "infinity": written, "-infinity": written, "9999-01-01": written, "99999999999999999999": written, "{}": written, "2026-13-45": written,
	} {
		t.Run(value, func(t *testing.T) {
			c := newCore(t)
			c.exec("ALTER TABLE public.dot_config DISABLE TRIGGER USER") // otherwise the trigger would set updated_at to now
			c.exec("INSERT INTO public.dot_config (key, value, updated_at) VALUES ('hc_executor_last_run', $1, $2)", value, written)
			c.exec("ALTER TABLE public.dot_config ENABLE TRIGGER USER")
			var said steps
			require.NoError(t, schema.Up(t.Context(), c.db.DSN(""), said.add))
			require.Contains(t, strings.Join(said.lines, "\n"), "hc_executor")
			require.Equal(t, want+" external_worker 60 300", get[string](c, `SELECT to_char(last_beat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || ' ' ||
				executor_kind || ' ' || expected_cadence_seconds || ' ' || stale_threshold_seconds FROM public.queue_heartbeat WHERE executor_id = 'hc_executor' AND NOT tick_worker`))
			require.Zero(t, get[int](c, "SELECT count(*) FROM public.dot_config WHERE key = 'hc_executor_last_run'"))
			require.Equal(t, "silence", get[string](c, "SELECT kind FROM public.v_queue_alert WHERE subject = 'hc_executor'"), "its silence shows at once")
			said = steps{}
			require.NoError(t, schema.Up(t.Context(), c.db.DSN(""), said.add))
			require.NotContains(t, strings.Join(said.lines, "\n"), "hc_executor", "once")
		})
	}
}

func TestMigrateAdoptsHCExecutorThatBeats(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	call(t, admin, "public.fn_queue_heartbeat_register('hc_executor', 'Hermes', '{iu}', 30, 90, 'ann')")
	adopt := func(value string) {
		t.Helper()
		c.exec("INSERT INTO public.dot_config (key, value) VALUES ('hc_executor_last_run', $1)", value)
		require.NoError(t, schema.Up(t.Context(), c.db.DSN(""), nil))
	}
	adopt("2026-05-22T11:31:41Z")
	require.True(t, get[bool](c, "SELECT last_beat_at > now() - interval '1 minute' AND executor_kind = 'Hermes' FROM public.queue_heartbeat WHERE executor_id = 'hc_executor'"), "an older time does not make it silent")
	call(t, admin, "public.fn_queue_heartbeat_deregister('hc_executor', 'ann', 'gone')")
	adopt("2026-05-22T11:31:41Z")
	require.True(t, get[bool](c, "SELECT deregistered_at IS NOT NULL FROM public.queue_heartbeat WHERE executor_id = 'hc_executor'"), "a tombstone stays one")
}

// Every off switch of DP1 §9 and DP4 §7 is set to off and on again.
func TestOffSwitches(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	off := func() []string {
		return get[[]string](c, "SELECT COALESCE(array_agg(f ->> 'key' ORDER BY f ->> 'key'), '{}') FROM jsonb_array_elements(public.fn_queue_snapshot('0') -> 'flags') f WHERE (f ->> 'off')::boolean")
	}

	// Layer 1: the flag of the route worker, and a tick interval of 0.
	emit := func() {
		c.exec("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, NULL)")
	}
	seen := func() int {
		return get[int](c, "SELECT COALESCE(sum(events_seen), 0)::int FROM public.iu_route_worker_cursor")
	}
	emit()
	setFlag(t, admin, "iu_core.route_worker_enabled", "false")
	require.Equal(t, []string{"iu_core.route_worker_enabled"}, off())
	require.Equal(t, "off", tick(t, c, "iu_outbound_default", "operator")["skipped"])
	require.Zero(t, seen())
	setFlag(t, admin, "iu_core.route_worker_enabled", "true")
	eventually(t, "routed", func() bool {
		require.Equal(t, true, tick(t, c, "iu_outbound_default", "operator")["ran"])
		return seen() == 1
	})
	const interval = "queue.tick.iu_outbound_default.interval_seconds"
	emit()
	setFlag(t, admin, interval, "0")
	require.Equal(t, []string{interval}, off(), "a paused worker stands under OFF on the first screen")
	require.Equal(t, "off", tick(t, c, "iu_outbound_default", "external")["skipped"])
	require.Equal(t, 1, seen())
	setFlag(t, admin, interval, "60")
	require.Empty(t, off())
	eventually(t, "routed", func() bool {
		tick(t, c, "iu_outbound_default", "operator")
		return seen() == 2
	})

	// Layer 2: the wake bridge.
	conn := c.db.Conn(t, pgtest.Login(t, c.db, "event_ingest_writer", "queue_viewer"))
	_, err := conn.Exec(t.Context(), "LISTEN queue_wake_system")
	require.NoError(t, err)
	heard := func(on bool) {
		t.Helper()
		emit()
		c.exec("NOTIFY queue_wake_system, 'end of this look'")
		n := next(t, conn)
		if on {
			require.Contains(t, n, `"layer": "event"`)
			n = next(t, conn)
		}
		require.Equal(t, "end of this look", n)
	}
	heard(false)
	setFlag(t, admin, "queue.notify.bridge_enabled", "true")
	c.exec("NOTIFY queue_wake_system, 'end of what setting it says'")
	for next(t, conn) != "end of what setting it says" {
	}
	heard(true)
	setFlag(t, admin, "queue.notify.bridge_enabled", "false")
	heard(false)

	// Layer 3: the stale check does nothing, and the snapshot shows that monitoring is off.
	c.executor("kg", 60, 300, 4000)
	setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "1000000")
	require.Equal(t, false, call(t, c.root, "public.fn_queue_stale_check()")["monitoring"])
	require.Equal(t, true, call(t, c.root, "public.fn_queue_snapshot('0')")["monitoring_off"])
	require.Zero(t, get[int](c, emitted, "kg"))
	setFlag(t, admin, "queue.heartbeat.stale_threshold_seconds", "300")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_queue_stale_check()")["emitted"])
	require.Equal(t, false, call(t, c.root, "public.fn_queue_snapshot('0')")["monitoring_off"])

	// migrate down drops the table only once the executors that operators registered are
	// deregistered.
	err = schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{}, nil)
	require.ErrorContains(t, err, "1 registered executor of others")
	require.True(t, get[bool](c, "SELECT to_regclass('public.queue_heartbeat') IS NOT NULL"))
	call(t, admin, "public.fn_queue_heartbeat_deregister('kg', 'ann', 'retired')")
	err = schema.Down(t.Context(), c.db.DSN(""), schema.DownOptions{}, nil)
	require.NotContains(t, fmt.Sprint(err), "registered executors")
}

// next returns the payload of the next notification.
func next(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	require.NoError(t, err)
	return n.Payload
}
