// Metric samples and marks: they show what the tables contain, are written once a minute, never
// change, and are kept for a number of days.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// asReplica runs sql without triggers, so that a test can change recorded times, which no role may.
func (c *core) asReplica(sql string, args ...any) {
	c.t.Helper()
	require.NoError(c.t, pgx.BeginFunc(context.Background(), c.root, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), sql, args...)
		return err
	}))
}

// later makes the samples older by so many minutes and runs the sampler.
func (c *core) later(minutes int) map[string]any {
	c.t.Helper()
	c.asReplica("UPDATE public.queue_metric_sample SET at = at - make_interval(mins => $1)", minutes)
	return call(c.t, c.root, "public.fn_metrics_sampler_run()")
}

// leaves makes the partitions of queue_metric_sample for the days that are back days ago.
func (c *core) leaves(back ...int) {
	c.t.Helper()
	for _, n := range back {
		c.exec(get[string](c, `SELECT format('CREATE TABLE IF NOT EXISTS public.queue_metric_sample_%s PARTITION OF public.queue_metric_sample FOR VALUES FROM (%L) TO (%L); ALTER TABLE public.queue_metric_sample_%1$s OWNER TO queue_owner',
			to_char(d, 'YYYY_MM_DD'), d || ' 00:00Z', d + 1 || ' 00:00Z') FROM (SELECT (now() AT TIME ZONE 'UTC')::date - $1::int) x (d)`, n))
	}
}

// samples returns the newest samples of a metric, by labels.
func (c *core) samples(metric string) map[string]float64 {
	c.t.Helper()
	rows, err := c.root.Query(context.Background(), `SELECT labels::text, value FROM public.queue_metric_sample
		WHERE metric = $1 AND at = (SELECT max(at) FROM public.queue_metric_sample WHERE metric = $1)`, metric)
	require.NoError(c.t, err)
	out := map[string]float64{}
	var labels string
	var value float64
	_, err = pgx.ForEachRow(rows, []any{&labels, &value}, func() error { out[labels] = value; return nil })
	require.NoError(c.t, err)
	return out
}

func TestSamplesAreWhatTheTablesHold(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now()")
	h.die("dead", 3)
	h.subscribe("waits")
	h.emit("waits", 4)
	h.step()
	c.exec("SELECT public.fn_job_enqueue('kg.reindex', 'kg', 'external_worker') FROM generate_series(1, 5)")
	c.executor("quiet", 60, 300, 900)
	c.executor("dead_for_days", 60, 300, 90000)
	c.executor("fine", 60, 300, 1)
	c.exec("SELECT public.fn_queue_host_register('h1', gen_random_uuid(), 'v', '{webhook_worker}'), public.fn_queue_host_register('h2', gen_random_uuid(), 'v', '{}')")
	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '1 hour' WHERE host_id = 'h2'")
	got := call(t, c.as("dot_executor"), "public.fn_queue_tick_request('metrics_sampler')")
	require.Equal(t, true, got["ran"], got)

	label := func(queue, domain string) string { return fmt.Sprintf(`{"queue": %q, "domain": %q}`, queue, domain) }
	waiting, age := c.samples("waiting"), c.samples("oldest_age_seconds")
	require.InDelta(t, get[float64](c, "SELECT count(*)::float8 FROM public.job_queue"), waiting[label("job kg.reindex", "kg")], 0)
	hook := label("webhook 127.0.0.1:1", "webhook")
	require.Contains(t, waiting, hook)
	require.InDelta(t, get[float64](c, "SELECT sum(waiting)::float8 FROM public.v_webhook_backlog"), waiting[hook], 0)
	require.Len(t, age, len(waiting))
	require.Equal(t, map[string]float64{`{"source": "webhook"}`: 3, `{"source": "job"}`: 0, `{"source": "event"}`: 0}, c.samples("dead_open"))
	require.Equal(t, map[string]float64{"{}": 2}, c.samples("silent_executors"))
	require.Equal(t, map[string]float64{"{}": 1}, c.samples("hosts_alive"))
	silent := c.samples("silent_age_seconds")
	require.Len(t, silent, 2)
	for labels, seconds := range silent {
		want := 900.0
		if strings.Contains(labels, "dead_for_days") {
			want = 90000
		}
		require.InDelta(t, want, seconds, 60)
		require.True(t, get[bool](c, "SELECT $1::text::jsonb ->> 'alert' IN (SELECT alert_key FROM public.v_queue_alert)", labels))
	}
	require.Positive(t, c.samples("picture_ms")["{}"])
	require.True(t, get[bool](c, "SELECT bool_and(at = date_trunc('minute', at)) FROM public.queue_metric_sample"))

	// With more groups of dead letters than a snapshot has, the samples are exact, folded or not.
	pgtest.FillDead(t, c.root, 300, 2)
	for range 2 {
		c.later(1)
		for source, table := range map[string]string{"webhook": "dead_letter_open", "job": "job_dead_letter WHERE resolved_at IS NULL", "event": "iu_route_dead_letter WHERE resolved_at IS NULL"} {
			require.InDelta(t, get[float64](c, "SELECT count(*)::float8 FROM public."+table), c.samples("dead_open")[fmt.Sprintf(`{"source": %q}`, source)], 0, source)
		}
		c.exec("SELECT public.fn_queue_counter_compact()")
	}
}

// Every whole minute is counted once, even if the sampler did not run in that minute, and before
// its counters are deleted.
func TestSamplesCountEveryMinute(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	h.die("dead", 2)
	h.subscribe("fine")
	h.emit("fine", 3)
	h.step()
	h.finish("", h.claim(3)...)
	h.call("public.fn_saga_orchestrator_run()")
	c.exec("UPDATE public.queue_counter_recent SET k3 = (k3::bigint - 600)::text WHERE scope ~ '_1m$'") // as if counted ten minutes ago
	// A minute is counted from 10 s after its end: all samples must be taken between two such
	// moments.
	require.Eventually(t, func() bool { now := time.Now().Second(); return now > 11 && now < 50 }, patience, 100*time.Millisecond)
	counted := func() string {
		return get[string](c, `SELECT COALESCE(string_agg(metric || ' ' || x, ', ' ORDER BY metric), '') FROM (SELECT metric, count(*) || ' ' || count(DISTINCT at) || ' ' || sum(value) AS x
			FROM public.queue_metric_sample WHERE metric ~ 'per_minute$' GROUP BY metric) s`)
	}
	call(t, c.root, "public.fn_metrics_sampler_run()")
	minutes := get[int](c, "SELECT count(DISTINCT at) FROM public.queue_metric_sample WHERE metric = 'dead_per_minute'")
	require.Contains(t, []int{8, 9, 10, 11}, minutes, "from the first minute that is known to the last that is over")
	require.Equal(t, fmt.Sprintf("dead_per_minute %[1]d %[1]d 2, delivered_per_minute %[1]d %[1]d 3, jobs_done_per_minute %[1]d %[1]d 0", minutes), counted())

	// The sampler does not run for half an hour. Meanwhile one more event is delivered, and the
	// counters are folded.
	h.emit("fine", 1)
	h.step()
	h.finish("", h.claim(1)...)
	h.call("public.fn_saga_orchestrator_run()")
	c.exec("UPDATE public.queue_counter_recent SET k3 = (k3::bigint - 300)::text WHERE scope = 'delivered_1m' AND k3::bigint > extract(epoch FROM now()) - 120")
	c.exec("SELECT public.fn_queue_counter_compact()")
	c.later(30)
	require.Equal(t, fmt.Sprintf("dead_per_minute %[1]d %[1]d 4, delivered_per_minute %[1]d %[1]d 7, jobs_done_per_minute %[1]d %[1]d 0", minutes+30), counted(),
		"the sums of before, which the test moved back in time, and those of the minutes between")

	// After three hours without a run, the counters have only the last two.
	c.later(180)
	require.LessOrEqual(t, get[int](c, "SELECT count(DISTINCT at) FROM public.queue_metric_sample WHERE metric = 'dead_per_minute' AND at > now() - interval '170 minutes'"), 120)
	require.Zero(t, get[int](c, "SELECT count(*) FROM (SELECT 1 FROM public.queue_metric_sample GROUP BY at, metric, labels HAVING count(*) > 1) x"))
}

func TestSamplesOncePerMinute(t *testing.T) {
	c := newCore(t)
	pool := c.wide(8, "dot_executor")
	// All eight calls must be made within the same minute.
	require.Eventually(t, func() bool { return time.Now().Second() < 50 }, patience, 100*time.Millisecond)
	for _, how := range []string{"public.fn_metrics_sampler_run()", "public.fn_queue_tick_request('metrics_sampler', 'wake')"} {
		together(t, 8, func(int) (map[string]any, error) { return tryCall(pool, how) })
		require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.queue_metric_sample WHERE metric = 'hosts_alive'"), how)
	}
	require.Positive(t, num(c.later(1), "samples"))
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.queue_metric_sample WHERE metric = 'hosts_alive'"))
}

// A run writes a bounded number of rows; with too many subjects, those that wait longest are kept.
func TestSamplesAreBounded(t *testing.T) {
	c := newCore(t)
	c.exec(`SELECT public.fn_job_enqueue('k' || i, 'kg', 'external_worker') FROM generate_series(1, 150) i`)
	c.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds, registered_by)
		SELECT 'x' || i, 'Agent', '{}', now() - make_interval(hours => i), 60, 300, 'test' FROM generate_series(1, 130) i`)
	require.Less(t, num(call(t, c.root, "public.fn_metrics_sampler_run()"), "samples"), 350)
	require.Len(t, c.samples("waiting"), 100)
	silent := c.samples("silent_age_seconds")
	require.Len(t, silent, 100)
	require.Equal(t, map[string]float64{"{}": 130}, c.samples("silent_executors"), "the count is of all")
	require.True(t, get[bool](c, "SELECT min(value) > 30 * 3600 FROM public.queue_metric_sample WHERE metric = 'silent_age_seconds'"), "the longest")
}

// A run reads almost no rows of the history, however long the history is.
func TestSamplesScanNoHistory(t *testing.T) {
	j := newJobs(t)
	j.past(50000)
	j.leaves(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	j.exec(`INSERT INTO public.queue_metric_sample (at, metric, labels, value)
		SELECT date_trunc('minute', now()) - i * interval '1 minute', m, '{}', i FROM generate_series(1, 9 * 1440) i,
			unnest('{hosts_alive,delivered_per_minute,dead_per_minute,waiting,oldest_age_seconds}'::text[]) m`)
	j.exec("INSERT INTO public.queue_operator_action (actor, action, target, outcome) SELECT 'ann', 'mark', 'mark ' || i, 'done' FROM generate_series(1, 20000) i")
	j.exec("ANALYZE")
	conn := j.db.Conn(t, "")
	require.NoError(t, pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		var written int
		if err := tx.QueryRow(context.Background(), "SELECT (public.fn_metrics_sampler_run() ->> 'samples')::int").Scan(&written); err != nil {
			return err
		}
		require.Positive(t, written)
		var read int64
		err := tx.QueryRow(context.Background(), `SELECT COALESCE(sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_xact_user_tables
			WHERE relname ~ '^(queue_metric_sample|job_history|dead_letters|events|event_outbox|queue_operator_action)'`).Scan(&read)
		require.Less(t, read, int64(100))
		return err
	}))
}

// One snapshot a minute is kept for a day, so that a console can step through past snapshots.
func TestPastSnapshots(t *testing.T) {
	c := newCore(t)
	at := func(expr string, steps int) *time.Time {
		return get[*time.Time](c, "SELECT taken_at FROM public.fn_queue_picture_at("+expr+", $1)", steps)
	}
	require.Nil(t, at("now()", -1))
	require.Nil(t, get[*time.Time](c, "SELECT first_at FROM public.fn_queue_picture_at(now())"))
	c.executor("quiet", 60, 300, 900)
	for n := range 4 {
		if n == 2 {
			c.exec("SELECT public.fn_queue_heartbeat_deregister('quiet', 'ann', 'gone')")
		}
		c.exec("DELETE FROM public.queue_snapshot") // otherwise the sampler would use the snapshot that was just taken
		require.Positive(t, num(c.later(10), "samples"))
		c.exec("UPDATE public.queue_past_picture SET taken_at = taken_at - interval '10 minutes'")
	}
	rows, err := c.root.Query(context.Background(), "SELECT taken_at FROM public.queue_past_picture ORDER BY 1")
	require.NoError(t, err)
	taken, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	require.NoError(t, err)
	require.Len(t, taken, 4)

	require.Equal(t, taken[3], *at("now()", 0))
	require.Equal(t, taken[3], *at("now()", -1))
	require.Equal(t, taken[2], *at("now()", -2))
	require.Equal(t, taken[0], *at("now()", -9), "or the oldest of fewer")
	oldest, newest := "(SELECT min(taken_at) FROM public.queue_past_picture)", "(SELECT max(taken_at) FROM public.queue_past_picture)"
	require.Equal(t, taken[0], *at(oldest, 0))
	require.Nil(t, at(oldest, -1))
	require.Equal(t, taken[0], *at("'-infinity'", 1))
	require.Nil(t, at("'-infinity'", 0))
	require.Equal(t, taken[2], *at(oldest, 2))
	require.Nil(t, at(newest, 1))
	require.Equal(t, taken[0], get[time.Time](c, "SELECT first_at FROM public.fn_queue_picture_at(now(), 1)"))
	silent := "SELECT count(*) FROM public.fn_queue_picture_at(now(), $1) p, jsonb_array_elements(p.body::jsonb -> 'alerts') a WHERE a ->> 'subject' = 'quiet'"
	require.Equal(t, 0, get[int](c, silent, 0))
	require.Equal(t, 1, get[int](c, silent, -3))
	for _, bad := range []string{"NULL", "now(), NULL", "now(), 100001", "now(), -100001"} {
		fails(t, c.root, "22023", "SELECT public.fn_queue_picture_at("+bad+")")
	}

	c.exec("UPDATE public.queue_past_picture SET taken_at = taken_at - interval '23 hours 35 minutes'")
	require.Positive(t, num(c.later(10), "samples"))
	require.Equal(t, 3, get[int](c, "SELECT count(*) FROM public.queue_past_picture"), "two are older than a day, one is new")
}

func TestSamplesArePartitioned(t *testing.T) {
	c := newCore(t)
	call(t, c.root, "public.fn_metrics_sampler_run()")
	leaf := get[string](c, "SELECT DISTINCT tableoid::regclass::text FROM public.queue_metric_sample WHERE metric = 'hosts_alive'")
	require.Regexp(t, `^public\.queue_metric_sample_\d{4}_\d\d_\d\d$`, leaf)
	require.GreaterOrEqual(t, get[int](c, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.queue_metric_sample'::regclass"), 36)
	c.exec("SELECT public.fn_queue_mark('deploy 4.2', 'ann')")
	for table, column := range map[string]string{"public.queue_metric_sample": "value", leaf: "value", "public.queue_mark": "label"} {
		for _, sql := range []string{"UPDATE " + table + " SET " + column + " = " + column, "DELETE FROM " + table, "TRUNCATE " + table} {
			fails(t, c.root, "42501", sql)
			refused(t, "42501", (&hooks{t: t, root: c.root}).asOwner(sql), sql)
		}
	}

	// A row in the default partition is shown in the health view.
	c.exec("INSERT INTO public.queue_metric_sample (at, metric, value) VALUES ('2020-05-05', 'hosts_alive', 1)")
	require.Equal(t, "stale", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE source = 'default_partition' AND subject = 'queue_metric_sample_default'"))
}

func TestMark(t *testing.T) {
	c := newCore(t)
	op := c.as("dead_letter_operator")
	got := call(t, op, "public.fn_queue_mark('  deploy 4.2 ', 'ann')")
	require.Equal(t, "deploy 4.2", got["label"])
	require.Equal(t, "mark ann deploy 4.2 done", get[string](c, `SELECT concat_ws(' ', action, actor, reason, outcome) FROM public.queue_operator_action WHERE id = $1::bigint AND after ->> 'label' = reason`,
		num(got, "audit_id")))
	call(t, c.as("workflow_admin"), "public.fn_queue_mark('rollback', 'ben')")
	for _, role := range []string{"queue_viewer", "dot_executor", "event_ingest_writer", "webhook_worker", "subscription_admin"} {
		fails(t, c.as(role), "42501", "SELECT public.fn_queue_mark('x', 'eve')")
		fails(t, c.as(role), "42501", "INSERT INTO public.queue_mark (label, created_by) VALUES ('x', 'eve')")
		fails(t, c.as(role), "42501", "INSERT INTO public.queue_metric_sample (at, metric, value) VALUES (now(), 'x', 1)")
	}
	for _, role := range []string{"queue_viewer", "workflow_admin", "dead_letter_operator"} {
		_, err := c.as(role).Exec(context.Background(), "SELECT * FROM public.queue_mark, public.queue_metric_sample")
		require.NoError(t, err, role)
		fails(t, c.as(role), "42501", "SELECT public.fn_metrics_sampler_run()")
	}
	for _, bad := range []string{"'', 'ann'", "'  ', 'ann'", "NULL, 'ann'", "repeat('x', 201), 'ann'", "'x', ''", "'x', NULL"} {
		fails(t, op, "22023", "SELECT public.fn_queue_mark("+bad+")")
	}
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'mark'"), "what was not done is not audited")

	// The same mark by the same person is made only once, even by calls at the same time.
	pool := c.wide(8, "dead_letter_operator")
	for round := range 5 {
		again := together(t, 8, func(int) (map[string]any, error) {
			return tryCall(pool, "public.fn_queue_mark('retry', 'ann' || $1::int)", round)
		})
		require.Equal(t, 7, count(again, "rule", "repeated"), again)
	}
	require.Equal(t, 2+5, get[int](c, "SELECT count(*) FROM public.queue_mark"))
	require.Equal(t, 5*7, get[int](c, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'mark' AND outcome = 'refused: repeated'"))
	c.asReplica("DELETE FROM public.queue_mark WHERE label = 'retry'")

	for i := range 30 {
		c.asReplica("INSERT INTO public.queue_mark (at, label, created_by) VALUES (now() - make_interval(mins => 2 * $1), 'm' || $1, 'cy')", i+1)
	}
	// A mark that was set before the clock was set back by a day neither prevents the same mark nor
	// takes a place among the marks of the last hour.
	c.asReplica("INSERT INTO public.queue_mark (at, label, created_by) SELECT now() + interval '1 day', 'm2', 'cy' FROM generate_series(1, 20)")
	s := snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	require.Len(t, s.Marks, 20)
	require.Equal(t, "rollback ben", s.Marks[0].Label.String()+" "+s.Marks[0].By.String())
	require.Equal(t, "m18", s.Marks[19].Label.String(), "newest first")
	c.asReplica("UPDATE public.queue_mark SET at = at - interval '58 minutes'")
	require.Len(t, snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')")).Marks, 2, "of the last hour")
	require.NotContains(t, call(t, op, "public.fn_queue_mark('m2', 'cy')"), "refused")
	require.Equal(t, "repeated", call(t, op, "public.fn_queue_mark('m2', 'cy')")["rule"])
}
