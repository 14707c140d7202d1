// Silence has one definition, whatever the order in which settings are changed; and locks of other
// sessions do not stop workers.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

const (
	flagThreshold = "queue.heartbeat.stale_threshold_seconds"
	flagJobs      = "queue.job_substrate.enabled" // the flag of the workers that core.worker makes
)

// watched is the model's record of an executor or a tick worker.
type watched struct {
	tick, gone, stopped  bool
	beat, counted, event time.Time
	cadence, threshold   int // in seconds; a tick worker's cadence is its interval, and its threshold follows from it
	off                  bool
}

// model predicts which executors and tick workers are silent.
type model struct {
	flag int
	jobs bool
	all  map[string]*watched
}

func (m *model) after(w *watched, cadence, flag int) time.Duration {
	if w.tick {
		return time.Duration(max(10, min(max(flag, 3*cadence), 5*cadence+5))) * time.Second
	}
	return time.Duration(w.threshold) * time.Second
}

func (m *model) judge(w *watched, now time.Time) (state, severity string) {
	from := w.beat
	if w.counted.After(from) {
		from = w.counted
	}
	late := w.beat.Sub(now) > 5*time.Second || now.Sub(from) > m.after(w, w.cadence, min(m.flag, 999999))
	switch {
	case w.gone:
		return "deregistered", ""
	case w.tick && (w.off || !m.jobs), !w.tick && w.stopped:
		return "stopped", ""
	case !late:
		return "fresh", ""
	case m.flag >= 1000000 || !w.tick && w.threshold >= 1000000:
		return "unwatched", ""
	case now.Sub(w.beat) >= 10*time.Duration(w.cadence)*time.Second:
		return "silent", "critical"
	}
	return "silent", "warning"
}

// interval sets the interval of a tick worker, in seconds, at a time; 0 = off.
func (m *model) interval(w *watched, n int, at time.Time) {
	was := !w.off && m.jobs
	old := w.cadence
	w.off = n == 0
	if n > 0 {
		w.cadence = n
	}
	switch is := !w.off && m.jobs; {
	case is && !was:
		w.beat = at
	case is && n != old:
		from := w.beat
		if w.counted.After(from) {
			from = w.counted
		}
		w.counted = from.Add(m.after(w, old, min(m.flag, 999999)) - m.after(w, n, min(m.flag, 999999)))
		if w.counted.After(at) {
			w.counted = at
		}
	}
}

// repeat returns how long after an event about a silence the next event reports this silence again.
func (m *model) repeat(w *watched) time.Duration {
	return 2 * max(m.after(w, w.cadence, m.flag), time.Duration(min(m.flag, 300))*time.Second)
}

// margin is the minimum distance of a check from any moment at which a state changes, since model
// and server do not read the clock at the same instant.
const margin = 4 * time.Second

// near reports whether a state changes within margin of now.
func (m *model) near(now time.Time) bool {
	for _, w := range m.all {
		for _, at := range []time.Time{
			w.beat.Add(-5 * time.Second), w.beat.Add(m.after(w, w.cadence, min(m.flag, 999999))), w.counted.Add(m.after(w, w.cadence, min(m.flag, 999999))),
			w.beat.Add(10 * time.Duration(w.cadence) * time.Second), w.event.Add(m.repeat(w)),
		} {
			if d := now.Sub(at); d > -margin && d < margin {
				return true
			}
		}
	}
	return false
}

// Random settings, heartbeats, ticks, clock steps and checks: alerts, health, scheduler status,
// executors, the heartbeat rows that readers of DP4 use, and events all agree with the model.
func TestWatchModel(t *testing.T) {
	c := newCore(t)
	steps := 150
	if os.Getenv("QTOP_TEST_FULL") != "" {
		steps = 10_000
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &model{flag: 300, jobs: true, all: map[string]*watched{}}
	now := func() time.Time { return get[time.Time](c, "SELECT clock_timestamp()") }
	workers, executors := []string{"w1", "w2"}, []string{"e1", "e2"}
	for _, id := range workers {
		c.worker(id, "RETURN '{}';", false)
		m.all[id] = &watched{tick: true, beat: now(), cadence: 3600}
	}
	register := func(id string, cadence int, threshold any) {
		t.Helper()
		got := call(t, c.root, "public.fn_queue_executor_register($1, 'Agent', '{}', $2, $3, 'dot_executor', 'ann')", id, cadence, threshold)
		require.Equal(t, true, got["registered"], got)
		w := &watched{beat: now(), cadence: cadence, threshold: m.flag}
		if given, ok := threshold.(int); ok {
			w.threshold = given
		} else if m.flag >= 1000000 {
			w.threshold = 300
		}
		m.all[id] = w
	}
	for _, id := range executors {
		register(id, 60, nil)
	}
	pass := func(d time.Duration) { // time passes: all recorded times become older
		for _, w := range m.all {
			w.beat, w.counted, w.event = w.beat.Add(-d), w.counted.Add(-d), w.event.Add(-d)
		}
		c.exec(`UPDATE public.queue_heartbeat SET last_beat_at = last_beat_at - d, counted_from = counted_from - d, silent_event_at = silent_event_at - d, silent_since = silent_since - d
			FROM make_interval(secs => $1) d WHERE executor_id IN ('w1', 'w2', 'e1', 'e2')`, d.Seconds())
	}
	pick := func(from ...int) int { return from[rnd.IntN(len(from))] }
	silences := 0
	for step := range steps {
		w, e := workers[rnd.IntN(2)], executors[rnd.IntN(2)]
		what := ""
		switch rnd.IntN(9) {
		case 0, 1:
			n := pick(0, 1, 2, 5, 30, 60, 61, 120, 3600, 86400)
			what = fmt.Sprint("interval of ", w, " = ", n)
			if got := setFlag(t, c.root, "queue.tick."+w+".interval_seconds", strconv.Itoa(n)); got["refused"] == nil {
				m.interval(m.all[w], n, now())
			}
		case 2:
			n := pick(241, 300, 301, 1000, 9000, 999999, 1000000, 999999999)
			what = fmt.Sprint("flag = ", n)
			if got := setFlag(t, c.root, flagThreshold, strconv.Itoa(n)); got["refused"] == nil {
				m.flag = n
			}
		case 3:
			what = fmt.Sprint("jobs = ", !m.jobs)
			require.Nil(t, setFlag(t, c.root, flagJobs, strconv.FormatBool(!m.jobs))["refused"])
			m.jobs = !m.jobs
			for _, id := range workers {
				if x := m.all[id]; m.jobs && !x.off {
					x.beat = now()
				}
			}
		case 4:
			what = "tick " + w
			// within a second of the last run it would be a quick run, which writes no heartbeat
			c.exec("UPDATE public.queue_tick_worker SET last_run_at = last_run_at - interval '2 seconds' WHERE worker_name = $1", w)
			if got := tick(t, c, w, "wake"); got["ran"] == true {
				m.all[w].beat = now()
			}
		case 5:
			if m.all[e].gone {
				what = "register " + e
				cadence := pick(1, 60, 240)
				register(e, cadence, []any{nil, 300, cadence, 1000000}[rnd.IntN(4)])
			} else if rnd.IntN(8) == 0 {
				what = "deregister " + e
				call(t, c.root, "public.fn_queue_heartbeat_deregister($1, 'ann', 'x')", e)
				m.all[e].gone = true
			}
		case 6:
			if !m.all[e].gone {
				stopped := rnd.IntN(4) == 0
				what = fmt.Sprint("beat ", e, " stopped ", stopped)
				payload := map[bool]string{true: `{"state": "stopped"}`, false: `{"state": "working"}`}[stopped]
				require.Nil(t, call(t, c.root, "public.fn_queue_heartbeat_write($1, $2, 'ann')", e, payload)["refused"])
				m.all[e].beat, m.all[e].stopped = now(), stopped
			}
		case 7:
			d := pick(3, 8, 20, 100, 299, 400, 4000, 20000, 500000, 1500000, -60, -4000)
			what = fmt.Sprint("clock ", d)
			pass(time.Duration(d) * time.Second)
		}
		at := now()
		for ; m.near(at); at = now() {
			pass(margin)
		}
		if rnd.IntN(3) == 0 {
			what += ", check"
			want := map[string]string{}
			for id, x := range m.all {
				state, severity := m.judge(x, at)
				if state == "silent" && at.Sub(x.event) >= m.repeat(x) {
					want[id] = severity
				}
			}
			before := get[int](c, "SELECT count(*) FROM public.event_outbox")
			call(t, c.root, "public.fn_queue_stale_check()")
			got := get[map[string]string](c, `SELECT COALESCE(jsonb_object_agg(event_subject_ref, event_severity), '{}') FROM (SELECT * FROM public.event_outbox
				ORDER BY created_at DESC, id LIMIT (SELECT count(*) FROM public.event_outbox) - $1) x WHERE event_subject_ref IN ('w1', 'w2', 'e1', 'e2')`, before)
			if now().Sub(at) < margin { // on a slow machine more time has passed, and both results may be right
				require.Equal(t, want, got, "seed %d step %d: %s: the events", seed, step, what)
			}
			for id := range got {
				m.all[id].event = now()
			}
		}
		want, got := map[string]string{}, map[string]string{}
		rows, err := c.root.Query(t.Context(), `SELECT now(), h.executor_id, format('alert %s, health %s, executor %s, scheduler %s, row %s',
			(SELECT a.severity FROM public.v_queue_alert a WHERE a.subject = h.executor_id),
			(SELECT x.status_hint FROM public.v_queue_health x WHERE x.source = 'heartbeat' AND x.subject = h.executor_id),
			(SELECT CASE WHEN e ->> 'state' IN ('idle', 'working') THEN 'live' ELSE e ->> 'state' END
				FROM json_array_elements(public.fn_snapshot_executors(ARRAY(SELECT a FROM public.v_queue_alert a), ARRAY(SELECT w FROM public.v_queue_watch w))) e WHERE e ->> 'executor_id' = h.executor_id),
			(SELECT s.state || ' ' || s.stale FROM public.v_queue_scheduler_status s WHERE s.worker_name = h.executor_id),
			CASE WHEN h.tick_worker AND public.fn_cfg_int('queue.tick.' || h.executor_id || '.interval_seconds', 0) = 0 THEN 'off'
				ELSE h.expected_cadence_seconds || ' ' || h.stale_threshold_seconds END)
			FROM public.queue_heartbeat h WHERE h.executor_id IN ('w1', 'w2', 'e1', 'e2')`)
		require.NoError(t, err)
		var id, said string
		_, err = pgx.ForEachRow(rows, []any{&at, &id, &said}, func() error { got[id] = said; return nil })
		require.NoError(t, err)
		for id, x := range m.all {
			state, severity := m.judge(x, at)
			hint, executor, scheduler := state, state, ""
			switch state {
			case "silent":
				silences++
				hint, executor = "stale", map[string]string{"critical": "dead", "warning": "stale"}[severity]
			case "fresh":
				executor = "live"
			}
			row := fmt.Sprint(x.cadence, " ", x.threshold)
			if x.tick {
				scheduler = map[string]string{"silent": "stale true", "fresh": "ok false", "stopped": "off false", "unwatched": "unwatched false"}[state]
				threshold := int(m.after(x, x.cadence, m.flag) / time.Second)
				if m.flag >= 1000000 {
					threshold = m.flag
				}
				row = fmt.Sprint(x.cadence, " ", threshold)
				if x.off { // the row keeps the last interval and threshold
					row = "off"
				}
			}
			want[id] = fmt.Sprintf("alert %s, health %s, executor %s, scheduler %s, row %s", severity, hint, executor, scheduler, row)
		}
		require.Equal(t, want, got, "seed %d step %d: %s", seed, step, what)
	}
	require.Positive(t, silences)
}

// For every pair of intervals: a worker that kept to the old interval is not silent after the
// change; a worker that was silent by both intervals stays silent; and no silence is hidden for
// longer than the new threshold.
func TestWatchEveryPairOfIntervals(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{}';", false)
	all := []int{1, 5, 60, 119, 3600, 86400}
	threshold := func(n int) int { return max(10, min(max(300, 3*n), 5*n+5)) }
	state := func() string {
		t.Helper()
		return get[string](c, `SELECT v.state || ' ' || (SELECT count(*) FROM public.v_queue_alert a WHERE a.subject = 'w') || ' ' || s.stale
			FROM public.v_queue_watch v JOIN public.v_queue_scheduler_status s ON s.worker_name = v.executor_id WHERE v.executor_id = 'w'`)
	}
	ago := func(seconds int) {
		t.Helper()
		c.exec(`UPDATE public.queue_heartbeat SET last_beat_at = last_beat_at - d, counted_from = counted_from - d FROM make_interval(secs => $1) d WHERE executor_id = 'w'`, seconds)
	}
	change := func(was, is, silentFor int) {
		t.Helper()
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.tick.w.interval_seconds'", strconv.Itoa(was))
		c.exec("UPDATE public.queue_heartbeat SET counted_from = NULL, last_beat_at = now() - make_interval(secs => $1) WHERE executor_id = 'w'", silentFor)
		c.exec("UPDATE public.dot_config SET value = $1 WHERE key = 'queue.tick.w.interval_seconds'", strconv.Itoa(is))
		require.Equal(t, fmt.Sprint(is, " ", threshold(is)), get[string](c, "SELECT concat_ws(' ', expected_cadence_seconds, stale_threshold_seconds) FROM public.queue_heartbeat WHERE executor_id = 'w'"), "DP4's readers")
	}
	for _, was := range all {
		for _, is := range all {
			change(was, is, was)
			require.Equal(t, "fresh 0 false", state(), "%d to %d: it keeps to its interval", was, is)
			ago(threshold(is) + 2)
			require.Equal(t, "silent 1 true", state(), "%d to %d: it is dead since", was, is)
			change(was, is, max(threshold(was), threshold(is))+2)
			require.Equal(t, "silent 1 true", state(), "%d to %d: it was dead before", was, is)
		}
	}
	c.exec("UPDATE public.dot_config SET value = '0' WHERE key = 'queue.tick.w.interval_seconds'")
	require.Equal(t, "stopped 0 false", state(), "off at once, whether or not anybody ticks")
	require.Equal(t, "stopped", get[string](c, "SELECT last_beat_payload ->> 'state' FROM public.queue_heartbeat WHERE executor_id = 'w'"))
}

// After monitoring was switched off and on again, all executors are watched at once, also those
// that were registered meanwhile.
func TestWatchOnAgain(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	c.executor("before", 60, 300, 4000)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'lease_reaper'")
	silent := func() string {
		return get[string](c, "SELECT COALESCE(string_agg(subject, ',' ORDER BY subject), '') FROM public.v_queue_alert")
	}
	require.Equal(t, "before,lease_reaper", silent())
	setFlag(t, admin, flagThreshold, "1000000")
	require.Empty(t, silent())
	require.Equal(t, "unwatched", get[string](c, "SELECT DISTINCT status_hint FROM public.v_queue_health WHERE source = 'heartbeat' AND subject IN ('before', 'lease_reaper')"), "it is not called fresh")
	require.Equal(t, 1000000, get[int](c, "SELECT stale_threshold_seconds FROM public.queue_heartbeat WHERE executor_id = 'lease_reaper'"))
	require.Nil(t, call(t, admin, "public.fn_queue_heartbeat_register('meanwhile', 'Agent', '{}', 60, NULL, 'ann')")["refused"])
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour' WHERE executor_id = 'meanwhile'")
	setFlag(t, admin, flagThreshold, "300")
	require.Equal(t, "before,lease_reaper,meanwhile", silent())
	require.EqualValues(t, 3, call(t, c.root, "public.fn_queue_stale_check()")["emitted"])
}

// A heartbeat whose time is in the future is no sign of life, except within a few seconds.
func TestWatchBeatsAheadOfTheClock(t *testing.T) {
	c := newCore(t)
	for id, ahead := range map[string]string{"ahead": "1 minute", "far": "infinity", "skewed": "1 second"} {
		c.executor(id, 60, 300, 0)
		c.exec("UPDATE public.queue_heartbeat SET last_beat_at = CASE $2 WHEN 'infinity' THEN 'infinity' ELSE now() + $2::interval END WHERE executor_id = $1", id, ahead)
	}
	require.Equal(t, "ahead warning 0,far warning 0", get[string](c, "SELECT string_agg(concat_ws(' ', subject, severity, age_seconds), ',' ORDER BY subject) FROM public.v_queue_alert"))
	require.EqualValues(t, 2, call(t, c.root, "public.fn_queue_stale_check()")["emitted"])
}

// A blocked worker is shown as silent, with the reason and the session that blocks it.
func TestWatchSaysWhy(t *testing.T) {
	c := newCore(t)
	c.worker("w", "RETURN '{}';", true)
	why := func() (s string) {
		t.Helper()
		return get[string](c, "SELECT state || ': ' || why FROM public.v_queue_scheduler_status WHERE worker_name = 'w'")
	}
	silent := func() {
		t.Helper()
		c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'w'")
	}
	require.Equal(t, "ok: no live host runs it", why(), "at once, before it is silent")
	c.exec("INSERT INTO public.queue_host (host_id, instance, loops) VALUES ('h', gen_random_uuid(), '{w}')")
	require.Equal(t, "ok: ", why())

	silent()
	holder := c.db.Conn(t, pgtest.Login(t, c.db, "dot_executor"))
	tx, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT public.fn_queue_tick_request('w', 'wake')")
	require.NoError(t, err)
	who := fmt.Sprintf("pid %d, login %s", holder.PgConn().PID(), holder.Config().User)
	got := tick(t, c, "w", "external")
	require.Equal(t, "lease_held", got["skipped"])
	require.Contains(t, got["reason"], who)
	c.exec("UPDATE public.dot_config SET value = '60' WHERE key = 'queue.tick.w.interval_seconds'") // does not wait for the locked heartbeat row
	var reason string
	require.NoError(t, c.as("queue_viewer").QueryRow(t.Context(), "SELECT state || ': ' || why FROM public.v_queue_scheduler_status WHERE worker_name = 'w'").Scan(&reason))
	require.Contains(t, reason, "stale: its lease is held by "+who)
	require.EqualValues(t, 0, call(t, c.root, "public.fn_queue_stale_check()")["emitted"], "whoever holds the row may be about to beat")
	require.NoError(t, tx.Rollback(t.Context()))
	require.EqualValues(t, 1, call(t, c.root, "public.fn_queue_stale_check()")["emitted"])

	c.exec("CREATE OR REPLACE FUNCTION public.fn_test_w() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN jsonb_build_object('x', 1 / 0); END $$")
	tick(t, c, "w", "wake")
	require.Equal(t, "failed: its last run failed: 22012 division by zero", why())
	c.exec("CREATE OR REPLACE FUNCTION public.fn_test_w() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '{}'; END $$")
	require.Equal(t, true, tick(t, c, "w", "wake")["ran"])
	require.Equal(t, "ok: ", why())

	// Scheduler mode pg_cron in a database without pg_cron.
	admin := c.as("workflow_admin")
	refused := setFlag(t, admin, "queue.scheduler.mode", "pg_cron")
	require.Equal(t, "conflict", refused["rule"])
	require.Contains(t, refused["reason"], "pg_cron is not installed in this database")
	c.exec("UPDATE public.dot_config SET value = 'pg_cron' WHERE key = 'queue.scheduler.mode'")
	require.Equal(t, "mode", tick(t, c, "w", "external")["skipped"])
	require.Equal(t, "ok: queue.scheduler.mode is pg_cron, and pg_cron is not in this database", why(), "at once")
	silent()
	require.Equal(t, "stale: queue.scheduler.mode is pg_cron, and pg_cron is not in this database", why())
	c.exec("UPDATE public.queue_heartbeat SET silent_event_at = NULL WHERE executor_id = 'w'")
	call(t, c.root, "public.fn_queue_stale_check()")
	require.Equal(t, "queue.scheduler.mode is pg_cron, and pg_cron is not in this database", get[string](c, `SELECT safe_payload ->> 'reason' FROM public.event_outbox
		WHERE event_subject_ref = 'w' ORDER BY created_at DESC LIMIT 1`))
	// pg_cron of another database ticks: mode hybrid accepts its ticks, and after such a tick mode
	// pg_cron can be set.
	c.exec("UPDATE public.dot_config SET value = 'hybrid' WHERE key = 'queue.scheduler.mode'")
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = NULL, last_attempt_at = NULL WHERE worker_name = 'w'")
	require.Equal(t, true, tick(t, c, "w", "pg_cron")["ran"])
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = last_run_at + interval '1 day' WHERE worker_name = 'w'")
	require.Equal(t, "conflict", setFlag(t, admin, "queue.scheduler.mode", "pg_cron")["rule"], "a tick of before the clock was set back")
	c.exec("UPDATE public.queue_tick_worker SET last_run_at = last_attempt_at WHERE worker_name = 'w'")
	require.Nil(t, setFlag(t, admin, "queue.scheduler.mode", "pg_cron")["refused"])
	require.Equal(t, "ok: ", why())
}

// A worker can be stopped neither by a lock that a login without the right to tick can take, nor by
// the locks of an operator's transaction that stays open.
func TestWorkersRunBesideEveryLock(t *testing.T) {
	c := newCore(t)
	c.none("a function of ours takes an advisory lock, which any login can take", `SELECT proname FROM pg_proc p
		WHERE p.`+publicFunctions+` AND p.prosrc ~ 'pg_(try_)?advisory_'`)
	require.Equal(t, "subscription_admin subscriptions", get[string](c, `SELECT string_agg(r || ' ' || c.relname, ',') FROM pg_class c,
		unnest('{queue_viewer,event_ingest_writer,dead_letter_operator,subscription_admin}'::text[]) r
		WHERE c.relkind IN ('r', 'p') AND c.`+publicRelations+` AND (has_any_column_privilege(r, c.oid, 'UPDATE') OR has_table_privilege(r, c.oid, 'DELETE, TRUNCATE'))`),
		"roles that may not tick can lock rows of these alone")
	for _, role := range []string{"queue_viewer", "event_ingest_writer", "dead_letter_operator", "workflow_admin", "dot_executor", "subscription_admin"} {
		pool := c.as(role)
		for _, table := range []string{"dot_iu_runtime_lease", "queue_tick_worker", "queue_heartbeat", "dot_config", "queue_counter", "queue_partitioned"} {
			for _, lock := range []string{"UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"} {
				fails(t, pool, "42501", "SELECT 1 FROM public."+table+" FOR "+lock)
			}
			fails(t, pool, "42501", "DO $$ BEGIN LOCK TABLE public."+table+" IN ROW EXCLUSIVE MODE; END $$")
		}
	}
	workers := get[[]string](c, "SELECT array_agg(worker_name::text) FROM public.queue_tick_worker")
	c.executor("kg", 60, 300, 4000)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'counter_compactor'")
	c.exec("ALTER DATABASE " + pgx.Identifier{c.db.Name}.Sanitize() + " SET lock_timeout = '2s'")
	ticker := c.as("dot_executor")
	for _, held := range []struct{ role, sql string }{
		{"dead_letter_operator", "SELECT public.fn_queue_alert_ack('counter_compactor', 'ann', 'looking', '1 hour')"},
		{"workflow_admin", "SELECT public.fn_dot_config_set('queue.heartbeat.stale_threshold_seconds', '9000', 'ann', 'x')"},
		{"workflow_admin", "SELECT public.fn_dot_config_set('queue.tick.counter_compactor.interval_seconds', '2', 'ann', 'x')"},
		{"workflow_admin", "SELECT public.fn_queue_heartbeat_deregister('counter_compactor', 'ann', 'x')"},
		{"workflow_admin", "SELECT public.fn_queue_executor_owner_set('counter_compactor', 'dot_executor', 'ann', 'x')"},
		{"dot_executor", "SELECT public.fn_queue_heartbeat_write('counter_compactor', '{}', 'x')"},
		{"queue_viewer", "SELECT public.fn_queue_snapshot('0')"},
		{"event_ingest_writer", "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(n)) FROM pg_catalog.unnest('{iu_notification_worker,qtop.partitions,qtop.queue_snapshot}'::text[]) n"},
	} {
		tx := c.begin(c.as(held.role))
		_, err := tx.Exec(context.Background(), held.sql)
		require.NoError(t, err, held.sql)
		some := workers
		if held.role != "event_ingest_writer" { // these sessions lock rows of one worker only
			some = []string{"counter_compactor"}
		}
		for _, w := range some {
			c.exec("UPDATE public.queue_tick_worker SET last_run_at = NULL, last_attempt_at = NULL WHERE worker_name = $1", w)
			require.Equal(t, true, call(t, ticker, "public.fn_queue_tick_request($1)", w)["ran"], "%s beside %s", w, held.sql)
		}
		require.NoError(t, tx.Rollback(context.Background()))
	}
}

// The silence of a worker with a short interval is shown at once, but events report it no more
// often than that of a worker with the flag's threshold.
func TestWatchTellsOfAFastWorker(t *testing.T) {
	c := newCore(t)
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '15 seconds' WHERE executor_id = 'counter_compactor'")
	check := func() any { return call(t, c.root, "public.fn_queue_stale_check()")["emitted"] }
	require.EqualValues(t, 1, check())
	for _, x := range []struct {
		ago  string
		want int
	}{{"300 seconds", 0}, {"301 seconds", 1}, {"1 second", 0}} { // the intervals add up
		c.exec("UPDATE public.queue_heartbeat SET silent_event_at = silent_event_at - $1::text::interval WHERE executor_id = 'counter_compactor'", x.ago)
		require.EqualValues(t, x.want, check(), "%+v", x)
	}
}
