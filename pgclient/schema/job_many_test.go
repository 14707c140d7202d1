// Many queue lanes and many job subscriptions: the snapshot gives each lane the reason that follows
// from its subscriptions one by one, and the number of rows that it reads grows linearly.

package schema_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// crowd registers executors e<from> to e<to> and gives them random job subscriptions: to a kind, a
// domain, both or neither, for this executor kind or another, with priority floors and low limits,
// some disabled. Some executors are silent, some deregistered, some have a host.
func (j *jobs) crowd(from, to, lanes int) {
	j.t.Helper()
	j.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
			stale_threshold_seconds, registered_by, deregistered_at, deregistered_by)
		SELECT 'e' || i, 'external_worker', '{}', CASE WHEN random() < 0.5 THEN now() ELSE now() - interval '1 hour' END,
			60, 300, 'test', CASE WHEN i % 9 = 0 THEN now() END, CASE WHEN i % 9 = 0 THEN 'test' END FROM generate_series($1::int, $2::int) i`, from, to)
	j.exec(`INSERT INTO public.job_subscription (executor_id, executor_kind, job_kind, event_domain, priority_floor, max_parallel, enabled, registered_by)
		SELECT 'e' || i, CASE WHEN random() < 0.1 THEN 'Agent' ELSE 'external_worker' END,
			CASE WHEN random() < 0.6 THEN 'k' || floor(random() * $3) END, CASE WHEN random() < 0.6 THEN 'd' || floor(random() * 3) END,
			(ARRAY[0, 50, 100, 101, 200])[1 + floor(random() * 5)::int], 1 + floor(random() * 2), random() < 0.8, 'test'
		FROM generate_series($1::int, $2::int) i, generate_series(1, 3) n ON CONFLICT DO NOTHING`, from, to, lanes)
	j.exec(`INSERT INTO public.queue_host (host_id, instance, last_seen_at, loops, progress)
		SELECT 'h' || i, gen_random_uuid(), now() + interval '4 seconds', '{job_executor}', jsonb_build_object('job_executor',
			jsonb_build_object('executor', 'e' || i, 'kinds', (SELECT jsonb_agg('k' || k) FROM generate_series(0, $3) k WHERE random() < 0.3)))
		FROM generate_series($1::int, $2::int) i WHERE random() < 0.5`, from, to, lanes)
}

// told computes the reason that the snapshot should show for each queue lane, from every job
// subscription one by one.
const told = `
	WITH lane AS (
		SELECT b.*, (SELECT max(q.priority) FROM public.job_queue q WHERE q.event_domain = b.event_domain AND q.job_kind = b.job_kind AND q.ready
			AND q.status IN ('queued', 'retry_waiting')) AS highest
		FROM public.fn_job_backlog() b WHERE b.queued + b.retry_waiting > 0
	), rule AS (
		SELECT DISTINCT ON (l.job_kind, l.event_domain, s.executor_id) l.job_kind AS kind, l.event_domain AS domain, s.executor_id, s.priority_floor,
			h.last_beat_at < now() - interval '5 minutes' AS silent, s.max_parallel <= (SELECT COALESCE(sum(x.live), 0) FROM public.job_lease x
				WHERE x.subscription_id = s.subscription_id) AS full, l.job_kind <> ALL (k.kinds) AS unhandled
		FROM lane l JOIN public.job_subscription s ON s.enabled AND COALESCE(s.job_kind, l.job_kind) = l.job_kind
			AND COALESCE(s.event_domain, l.event_domain) = l.event_domain AND s.executor_kind = COALESCE(l.executor, s.executor_kind)
		JOIN public.queue_heartbeat h ON h.executor_id = s.executor_id AND h.executor_kind = s.executor_kind AND h.deregistered_at IS NULL
		LEFT JOIN public.v_job_handlers k ON k.executor_id = s.executor_id
		ORDER BY 1, 2, 3, num_nonnulls(s.job_kind, s.event_domain) DESC, s.job_kind
	), sum AS (
		SELECT kind, domain, bool_and(silent) AS silent, bool_and("full") FILTER (WHERE NOT silent) AS full, bool_and(COALESCE(unhandled, false)) FILTER (WHERE NOT silent) AS unhandled,
			min(priority_floor) FILTER (WHERE NOT silent) AS floor, left(string_agg(executor_id, ', ' ORDER BY executor_id), 200) AS who,
			left(string_agg(executor_id, ', ' ORDER BY executor_id) FILTER (WHERE NOT silent), 200) AS alive FROM rule GROUP BY 1, 2
	)
	SELECT jsonb_object_agg(l.event_domain || '/' || l.job_kind, CASE
		WHEN s.kind IS NULL THEN concat_ws(' ', 'no', l.executor, 'executor subscribes to it')
		WHEN s.silent THEN 'every subscribed executor is silent: ' || s.who
		WHEN s.unhandled THEN 'no live host has a handler for it'
		WHEN l.oldest_at IS NULL THEN 'all due later'
		WHEN s.full THEN 'parallel limit reached: ' || s.alive
		WHEN l.highest < s.floor THEN 'priority floor ' || s.floor || ' of ' || s.alive
		ELSE '' END)
	FROM lane l LEFT JOIN sum s ON s.kind = l.job_kind AND s.domain = l.event_domain`

func TestJobSnapshotSubscriptionBySubscription(t *testing.T) {
	j := newJobs(t)
	lanes := 12
	var whys []string
	for i := range 9 {
		j.exec("SELECT setseed($1)", float64(i)/10)
		j.exec("DELETE FROM public.queue_host")
		j.exec("DELETE FROM public.job_subscription")
		j.exec("DELETE FROM public.queue_heartbeat WHERE executor_id ~ '^e[0-9]'")
		j.exec(`SELECT public.fn_job_enqueue('k' || k, 'd' || d, CASE WHEN k % 5 = 0 THEN 'Agent' ELSE 'external_worker' END,
				p_priority => (ARRAY[100, 10, 150])[1 + k % 3], p_process_after => CASE WHEN k % 6 = 1 THEN now() + interval '1 hour' ELSE now() END)
			FROM generate_series(0, $1::int) k, generate_series(0, 3) d`, lanes)
		crowd := map[bool]int{true: 4, false: 60}[i < 5 || i == 8] // with few subscriptions many different reasons apply; with many, the list of executors reaches its limit of 200 characters
		j.crowd(1, crowd, lanes)
		j.exec(`UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour' WHERE executor_id ~ '^e' AND $1`, i == 7)
		if i == 8 { // every executor is alive and has a handler for another kind only
			j.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() WHERE executor_id ~ '^e'")
			j.exec("DELETE FROM public.queue_host")
			j.exec(`INSERT INTO public.queue_host (host_id, instance, last_seen_at, loops, progress)
				SELECT 'h' || i, gen_random_uuid(), now() + interval '4 seconds', '{job_executor}', jsonb_build_object('job_executor',
					jsonb_build_object('executor', 'e' || i, 'kinds', '["other"]'::jsonb)) FROM generate_series(1, $1::int) i`, crowd)
		}
		j.exec("SELECT public.fn_job_claim('e' || i, NULL, 3) FROM generate_series(1, $1::int) i WHERE i % 2 = 0", crowd)
		j.exec(`INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
			SELECT gen_random_uuid(), executor_id, subscription_id, now() + interval '1 hour', '{}', 1 FROM public.job_subscription, generate_series(1, 2) WHERE $1 AND random() < 0.7`, i%2 == 0)
		want, got := get[map[string]string](j.core, told), map[string]string{}
		for _, l := range j.snapshot().Queues {
			if l.Queued+l.RetryWaiting > 0 {
				got[l.Domain.String()+"/"+l.Kind.String()] = l.Why.String()
				whys = append(whys, l.Why.String())
			}
		}
		require.Equal(t, want, got, "%d", i)
	}
	for _, why := range []string{"", "no external_worker executor", "no Agent executor", "every subscribed", "no live host", "all due later", "parallel limit", "priority floor"} {
		require.True(t, slices.ContainsFunc(whys, func(w string) bool { return strings.HasPrefix(w, why) && (why != "" || w == "") }), "the job subscriptions never make the picture say %q", why)
	}
}

// planned is a node of a plan that EXPLAIN printed, with its row counts and conditions.
type planned struct {
	Rows     float64   `json:"Actual Rows"`
	Loops    float64   `json:"Actual Loops"`
	Filtered float64   `json:"Rows Removed by Filter"`
	Unjoined float64   `json:"Rows Removed by Join Filter"`
	Index    string    `json:"Index Cond"`
	Filter   string    `json:"Filter"`
	Join     string    `json:"Join Filter"`
	Output   []string  `json:"Output"`
	Plans    []planned `json:"Plans"`
}

// inList matches a comparison with each value of a list that the plan receives as a parameter.
var inList = regexp.MustCompile(`(= ANY|<> ALL) \((COALESCE\()?\$`)

// object matches a jsonb object that has the values of a list; in queries it has the name "of".
var object = regexp.MustCompile(`\.of\b`)

// rows returns how many rows the node and those below it returned or discarded. A row that is
// compared with each value of a list, which has list values, counts once per value; so does a row that
// carries the object of a list, and each run of an index scan that looks up the values of a list.
func (p planned) rows(list float64) float64 {
	lists := func(conditions ...string) float64 {
		return list * float64(len(inList.FindAllString(strings.Join(conditions, " "), -1)))
	}
	rows := p.Loops * (p.Rows + p.Filtered + p.Unjoined)
	carried := list * float64(len(object.FindAllString(strings.Join(p.Output, " "), -1)))
	n := rows*(1+lists(p.Filter, p.Join)+lists(p.Output...)+carried) + p.Loops*lists(p.Index)
	for _, q := range p.Plans {
		n += q.rows(list)
	}
	return n
}

// touched returns how many rows the plan nodes of all statements within sql returned or discarded.
func (j *jobs) touched(sql string) float64 {
	j.t.Helper()
	return touched(j.t, j.db, sql, 0)
}

// touched is the work of all statements within sql; see planned.rows.
func touched(t *testing.T, db *pgtest.DB, sql string, list float64) (n float64) {
	t.Helper()
	ctx := context.Background()
	config, err := pgsession.Parse(db.DSN(""))
	require.NoError(t, err)
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		if _, text, ok := strings.Cut(notice.Message, "plan:"); ok {
			var statement struct{ Plan planned }
			if err := json.Unmarshal([]byte(text), &statement); err != nil {
				t.Errorf("no plan: %v in %.200s", err, text)
			}
			n += statement.Plan.rows(list)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "LOAD 'auto_explain'"); err != nil {
		t.Skipf("NOT CHECKED: this server has no auto_explain: %v", err)
	}
	for _, sql := range []string{"SET auto_explain.log_format = json", "SET auto_explain.log_nested_statements = on", "SET auto_explain.log_analyze = on",
		"SET auto_explain.log_timing = off", "SET auto_explain.log_verbose = on", "SET auto_explain.log_min_duration = 0", "SET client_min_messages = log", sql} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	require.Positive(t, n, "the server tells its plans")
	return n
}

// One executor in ten subscribes to a single kind, the others to every kind. Four times the lanes
// and subscriptions are sixteen times the pairs, but reading them must cost less than five times as
// much.
func TestJobSnapshotGrowsAsLanesAndSubscriptions(t *testing.T) {
	j := newJobs(t)
	grow := func(from, to int) float64 {
		j.exec(`SELECT public.fn_job_enqueue('k' || k, 'd' || d, 'external_worker') FROM generate_series(0, 3) d, generate_series($1::int, $2::int) k`, from, to)
		j.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
			stale_threshold_seconds, registered_by) SELECT 'e' || i, 'external_worker', '{}', now(), 60, 300, 'test' FROM generate_series($1 * 10, $2 * 10 + 9) i`, from, to)
		j.exec(`INSERT INTO public.job_subscription (executor_id, executor_kind, job_kind, enabled, registered_by)
			SELECT 'e' || i, 'external_worker', CASE WHEN i % 10 = 0 THEN 'k' || i / 10 END, true, 'test' FROM generate_series($1 * 10, $2 * 10 + 9) i`, from, to)
		j.exec("SELECT public.fn_queue_counter_compact()")
		j.exec("ANALYZE")
		return j.touched("SELECT public.fn_queue_snapshot_parts()")
	}
	few, many := grow(0, 9), grow(10, 39)
	t.Logf("40 lanes, 100 subscriptions: %.0f rows; 160 lanes, 400 subscriptions: %.0f, %.1f times", few, many, many/few)
	require.Less(t, many/few, 5.0)
}

// A queue lane in which each job has another priority costs as much to read as one with a single
// priority. The backlog shows the oldest job and, if there is a priority floor, the highest
// priority, wherever in the lane those jobs are.
func TestJobBacklogOfManyPriorities(t *testing.T) {
	j := newJobs(t)
	touched := func() float64 {
		j.exec("SELECT public.fn_queue_counter_compact()")
		return j.touched("SELECT * FROM public.fn_job_backlog()")
	}
	j.jobSubscription("w", "", "", 900, 1)
	j.exec("SELECT public.fn_job_enqueue('one', 'd', 'external_worker') FROM generate_series(1, 4000)")
	one := touched()
	j.exec("SELECT public.fn_job_enqueue('each', 'd', 'external_worker', p_priority => 500)")
	j.exec("SELECT public.fn_job_enqueue('each', 'd', 'external_worker', p_priority => (i * 7919) % 1000) FROM generate_series(1, 4000) i")
	require.Less(t, touched(), one+200)
	require.True(t, get[bool](j.core, `SELECT reaches = 999 AND oldest_at = (SELECT min(enqueued_at) FROM public.job_queue WHERE job_kind = 'each')
		AND newest_at = (SELECT max(enqueued_at) FROM public.job_queue WHERE job_kind = 'each') FROM public.fn_job_backlog() WHERE job_kind = 'each'`))
}

// A claim over many lanes writes each job and each lease once. If it updated a lease lane by lane,
// later reads would go through all versions of the row.
func TestJobClaimOverManyLanesWritesOnce(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.jobSubscription("w", "k7", "", 0, 3)
	j.exec("SELECT public.fn_job_enqueue('k' || i % 20, 'd' || i % 3, 'external_worker', p_priority => i % 4) FROM generate_series(1, 600) i")
	require.NoError(t, pgx.BeginFunc(context.Background(), j.root, func(tx pgx.Tx) error {
		var claimed, jobs, grown, leases, live int
		err := tx.QueryRow(context.Background(), "SELECT count(*) FROM public.fn_job_claim('w', NULL, 500)").Scan(&claimed)
		if err == nil {
			err = tx.QueryRow(context.Background(), `SELECT (SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'job_queue'),
				(SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'job_lease'), count(*), sum(cardinality(job_ids)) FROM public.job_lease`).
				Scan(&jobs, &grown, &leases, &live)
		}
		require.Equal(t, [5]int{500, 500, 0, 2, 500}, [5]int{claimed, jobs, grown, leases, live})
		return err
	}))
}
