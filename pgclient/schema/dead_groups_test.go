// With 100,000 groups of dead letters, the snapshot shows the largest and the newest groups, and
// how many more there are.

package schema_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// The snapshot shows all groups up to allShown. With more, it shows the groupsShown largest groups
// of each source, and the groups of the newestShown newest dead letters of each source; its section
// health then has the subjectsShown subjects of each source with the most open dead letters.
const (
	allShown      = 200
	groupsShown   = 10
	newestShown   = 5
	subjectsShown = 10
)

// deadTruth counts the dead letters themselves, group by group, the largest group of each source
// first.
func (c *core) deadTruth() (groups []queue.DeadGroup) {
	c.t.Helper()
	rows, err := c.root.Query(context.Background(), `SELECT * FROM (
		SELECT 'job', failure_code, job_kind, event_domain, 0::bigint, count(*), min(last_failed_at), max(last_failed_at)
		FROM public.job_dead_letter WHERE resolved_at IS NULL GROUP BY 2, 3, 4
		UNION ALL SELECT 'event', failure_code, event_type, event_domain, 0, count(*), min(last_failed_at), max(last_failed_at)
		FROM public.iu_route_dead_letter WHERE resolved_at IS NULL GROUP BY 2, 3, 4
		UNION ALL SELECT 'webhook', o.final_error_code, s.endpoint, 'webhook', s.id, count(*), min(o.failed_at), max(o.failed_at)
		FROM public.dead_letter_open o JOIN public.subscriptions s ON s.id = o.subscription_id GROUP BY 2, 3, 5) g ORDER BY 1, 6 DESC`)
	require.NoError(c.t, err)
	groups, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (g queue.DeadGroup, err error) {
		var code, endpoint, domain string
		err = r.Scan(&g.Source, &code, &endpoint, &domain, &g.SubscriptionID, &g.Open, &g.FirstAt, &g.LastAt)
		g.Code, g.Endpoint, g.Domain = queue.Clean(code), queue.Clean(endpoint), queue.Clean(domain)
		return g, err
	})
	require.NoError(c.t, err)
	return groups
}

// snapshotAgrees requires that the groups of the snapshot equal those that deadTruth counts.
func (c *core) snapshotAgrees(why string) {
	c.t.Helper()
	s := snapshotOf(c.t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	type key struct {
		source, code, endpoint, domain string
		sub                            int64
	}
	keyOf := func(g queue.DeadGroup) key {
		return key{g.Source, g.Code.String(), g.Endpoint.String(), g.Domain.String(), g.SubscriptionID}
	}
	truth := c.deadTruth()
	byKey, smallest, newest, open := map[key]queue.DeadGroup{}, map[string]int64{}, map[string]queue.DeadGroup{}, int64(0)
	subjects := map[string]int64{}
	places := map[string]int{}
	for _, g := range truth {
		byKey[keyOf(g)], open = g, open+g.Open
		if places[g.Source]++; places[g.Source] <= groupsShown {
			smallest[g.Source] = g.Open
		}
		if g.LastAt.After(newest[g.Source].LastAt) {
			newest[g.Source] = g
		}
		subjects["dead_letter_"+g.Source+" "+queue.Choose(g.Source == "job", g.Endpoint, g.Code).String()+" "+g.Domain.String()] += g.Open
	}
	shown, shownOpen := map[key]bool{}, int64(0)
	larger := map[string]int{}
	for _, g := range s.DeadGroups {
		want, ok := byKey[keyOf(g)]
		require.True(c.t, ok, "%s: %v is no group", why, keyOf(g))
		require.False(c.t, shown[keyOf(g)], "%s: twice", why)
		require.Equal(c.t, []any{want.Open, want.FirstAt.UTC(), want.LastAt.UTC()}, []any{g.Open, g.FirstAt.UTC(), g.LastAt.UTC()}, why)
		shown[keyOf(g)], shownOpen = true, shownOpen+g.Open
		if g.Open >= smallest[g.Source] {
			larger[g.Source]++
		}
	}
	for source, n := range places {
		require.GreaterOrEqual(c.t, larger[source], min(n, groupsShown), "%s: the largest groups of %s", why, source)
		require.True(c.t, shown[keyOf(newest[source])], "%s: the group that failed last of %s", why, source)
	}
	require.LessOrEqual(c.t, len(s.DeadGroups), max(allShown, 3*(groupsShown+newestShown)), why)
	if len(truth) <= allShown {
		require.Len(c.t, s.DeadGroups, len(truth), why)
	}
	require.Equal(c.t, open, s.Flow.DeadOpen, why)
	require.Equal(c.t, open-shownOpen, s.DeadMore.Open, why)
	require.Equal(c.t, len(truth) > 1000, s.DeadMore.GroupsBound, why)
	require.EqualValues(c.t, min(len(truth), 1000)-len(shown), s.DeadMore.Groups, why)
	bySource := map[string][]int64{} // the counts of all subjects of a source
	for subject, n := range subjects {
		source, _, _ := strings.Cut(subject, " ")
		bySource[source] = append(bySource[source], n)
	}
	health, counts := 0, map[string][]int64{}
	for _, h := range s.Health {
		if !strings.HasPrefix(h.Source.String(), "dead_letter_") {
			continue
		}
		health++
		require.NotNil(c.t, h.DeadLettered, why)
		require.Equal(c.t, subjects[h.Source.String()+" "+h.Subject.String()+" "+h.Domain.String()], *h.DeadLettered, "%s: %s", why, h.Subject)
		counts[h.Source.String()] = append(counts[h.Source.String()], *h.DeadLettered)
	}
	require.Positive(c.t, health, why)
	if len(shown) == len(truth) {
		require.Equal(c.t, len(subjects), health, why)
	} else {
		for source, all := range bySource {
			slices.SortFunc(all, func(a, b int64) int { return int(b - a) })
			slices.SortFunc(counts[source], func(a, b int64) int { return int(b - a) })
			require.Equal(c.t, all[:min(len(all), subjectsShown)], counts[source], "%s: the largest subjects of %s", why, source)
		}
	}
	require.Zero(c.t, get[int](c, "SELECT count(*) FROM public.fn_queue_counter_drift(NULL)"), why)
}

func TestDeadGroupsOfTheSnapshot(t *testing.T) {
	j := newJobs(t)
	require.Zero(t, j.snapshot().DeadMore.Groups)
	j.deadLetter("k", "iu", "FEW")
	j.snapshotAgrees("one group")
	pgtest.FillDead(t, j.root, 700, 1)
	j.snapshotAgrees("loaded")
	j.exec("SELECT public.fn_queue_counter_compact()")
	j.snapshotAgrees("folded")
	require.Equal(t, 701, get[int](j.core, "SELECT count(*) FROM public.v_dead_letter_group"), "the view has all of them")

	for range 9 {
		j.deadLetter("k", "iu", "GREW") // its counter is not folded yet, and it is among the largest groups
	}
	j.deadLetter("k", "iu", "LAST") // in the smallest group, and the newest failure
	j.snapshotAgrees("not folded")
	closed := func(n int) {
		_, err := j.root.Exec(t.Context(), `SELECT public.fn_job_dead_letter_resolve(ARRAY(SELECT dead_letter_id FROM public.job_dead_letter
			WHERE resolved_at IS NULL ORDER BY failure_code LIMIT $1), 'abandoned', 'over', 'ann', false)`, n)
		require.NoError(t, err)
	}
	closed(900)
	j.snapshotAgrees("closed, not folded")
	j.exec("SELECT public.fn_queue_counter_compact()")
	j.snapshotAgrees("closed")
	j.exec("SELECT public.fn_queue_counter_compact()")
	require.Zero(t, get[int](j.core, "SELECT (SELECT count(*) FROM public.queue_counter WHERE scope ~ '^dead_[a-z]*$' AND n = 0) + (SELECT count(*) FROM public.queue_counter_rank WHERE n = 0)"),
		"nothing stays of a group that is closed")
	closed(10000)
	j.exec("SELECT public.fn_queue_counter_compact(), public.fn_queue_counter_compact()")
	j.snapshotAgrees("no job")

	pgtest.FillDead(t, j.root, 1500, 1) // in addition to the dead letters of these groups
	j.snapshotAgrees("more than are counted")
}

// The ranks of groups are derived data: a recount repairs lost ranks, even while other sessions
// fold counters.
func TestCounterRankRecounted(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	h.die("order", 3)
	h.exec("SELECT public.fn_queue_counter_compact()")
	h.exact()
	h.load("DELETE FROM public.queue_counter_rank WHERE scope = 'dead_webhook'", "UPDATE public.queue_counter_rank SET n = n + 7 WHERE scope = 'open_dead_webhook'",
		"INSERT INTO public.queue_counter_rank (scope, k1, n) VALUES ('dead_job', 'gone', 3)")
	require.Equal(t, "queue_counter_rank 3", one[string](h, "SELECT scope || ' ' || found FROM public.fn_queue_counter_drift(NULL)"))
	require.EqualValues(t, 3, call(t, h.root, "public.fn_queue_recount('ann', 'r', false)")["queue_counter_rank"])
	h.exact()
	c.snapshotAgrees("recounted")

	// A recount beside an open fold: whichever commits first, the sum is right.
	h.die("order", 2)
	fold, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = fold.Exec(t.Context(), "SELECT public.fn_queue_counter_compact()")
	require.NoError(t, err)
	h.load("DELETE FROM public.queue_counter_rank WHERE scope LIKE 'subject%' AND n > 99")
	require.Zero(t, call(t, h.root, "public.fn_queue_recount('ann', 'r', false)")["queue_counter_rank"])
	require.NoError(t, fold.Commit(t.Context()))
	h.exact()
	c.snapshotAgrees("folded beside it")
}

// refresh is how a console reads a new snapshot.
const refresh = "SELECT taken_at, took_ms::float8, shared, body FROM public.fn_queue_picture('0')"

// A refresh of the snapshot stays fast with 100,000 groups of dead letters.
func TestDeadGroupsLarge(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: 1,000,000 dead letters in 100,000 groups")
	}
	c := newCore(t)
	pgtest.FillDead(t, c.root, 100_000, 7)
	c.exec("SET statement_timeout = 0; SELECT public.fn_queue_counter_compact(); RESET statement_timeout")
	c.exec("VACUUM ANALYZE")
	c.snapshotAgrees("large")
	t.Logf("a refresh: %.1f ms", medianMS(t, c.root, refresh, 20))
}

// medianMS returns how many milliseconds a statement takes on the server: the median of n runs in
// one session that has run the statement before.
func medianMS(t testing.TB, pool *pgxpool.Pool, sql string, n int) float64 {
	t.Helper()
	conn, err := pool.Acquire(context.Background())
	require.NoError(t, err)
	defer conn.Release()
	var took []float64
	for i := range n + 3 {
		start := time.Now()
		_, err := conn.Exec(context.Background(), sql)
		require.NoError(t, err)
		if i >= 3 {
			took = append(took, float64(time.Since(start).Microseconds())/1000)
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// A snapshot reads the states of executors once for all of its sections. Of the counts of groups it
// looks up only those that it did not find together with the largest groups.
func TestSnapshotReadsItsInputsOnce(t *testing.T) {
	c := newCore(t)
	pgtest.FillDead(t, c.root, 300, 1)
	c.exec("SELECT public.fn_queue_counter_compact()")
	c.exec("VACUUM ANALYZE")
	// A new session: the counts below include what a session did before and has not reported yet.
	tx, err := c.db.Conn(t, "").Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL track_functions = 'all'")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT public.fn_queue_snapshot_parts()")
	require.NoError(t, err)
	var executors, counts int64
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(seq_scan) FILTER (WHERE relname = 'queue_heartbeat'),
		sum(idx_scan) FILTER (WHERE relname = 'queue_counter_rank')
		FROM pg_stat_xact_user_tables WHERE schemaname = 'public'`).Scan(&executors, &counts))
	require.LessOrEqual(t, executors, int64(3), "once for v_queue_watch, once for what only the section executors shows, once for reasons; it was 6")
	require.Less(t, counts, int64(40), "45 groups are shown, and 30 subjects; with 75, each of whose subjects was looked up, it was 53")
	calls := func(function string) (n int64) {
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT sum(calls) FROM pg_stat_xact_user_functions WHERE funcname = $1", function).Scan(&n), function)
		return n
	}
	require.LessOrEqual(t, calls("fn_queue_counter_unfolded"), int64(5), "once for all sections, and once for each of four views and functions that others read too; it was 11")
	require.EqualValues(t, 1, calls("fn_webhook_unrouted"), "once for alerts and waiting; it was 2")
	require.EqualValues(t, 1, calls("fn_iu_notification_backlog"), "for health; the alerts look up only the oldest; it was 2")
}

// BenchmarkDeadGroups measures with 10, 1,000 and 100,000 groups of dead letters: a refresh of the
// snapshot, a fold of one second meanwhile, v_queue_health, and a recount. The figures are in ms:
// medians of several runs, except the recount and the first fold, which run once.
func BenchmarkDeadGroups(b *testing.B) {
	for _, groups := range []int{10, 1000, 100_000} {
		b.Run(strconv.Itoa(groups), func(b *testing.B) {
			pool := pgtest.New(b).Pool(b, "")
			ctx := context.Background()
			run := func(sql string) float64 {
				start := time.Now()
				_, err := pool.Exec(ctx, sql)
				require.NoError(b, err)
				return float64(time.Since(start).Microseconds()) / 1000
			}
			pgtest.FillDead(b, pool, groups, 7)
			first := run("SELECT public.fn_queue_counter_compact()")
			run("VACUUM ANALYZE")
			for b.Loop() {
				b.ReportMetric(medianMS(b, pool, refresh, 20), "ms/refresh")
				b.ReportMetric(medianMS(b, pool, "INSERT INTO public.queue_counter_recent SELECT scope, k1, k2, k3, 0 FROM public.queue_counter LIMIT 50; SELECT public.fn_queue_counter_compact()", 20), "ms/fold")
				b.ReportMetric(medianMS(b, pool, "SELECT count(*) FROM public.v_queue_health", 3), "ms/health")
				b.ReportMetric(run("SELECT public.fn_queue_recount('test', 'nothing differs', false)"), "ms/recount")
				b.ReportMetric(first, "ms/first-fold")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
