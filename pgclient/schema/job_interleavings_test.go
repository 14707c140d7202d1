// Random interleavings of everything that happens to jobs: no job is lost or done twice under one
// lease, no watermark passes a job, and the counters equal the tables at every moment.

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// momentary are conditions that hold in every snapshot; each query returns what is wrong, and
// no text if nothing is.
var momentary = map[string]string{
	"counters":  "SELECT COALESCE(string_agg(d::text, ' '), '') FROM public.fn_queue_counter_drift(NULL) d",
	"lane":      "SELECT COALESCE(NULLIF((" + belowWatermarks + "), 0)::text, '')",
	"delayed":   "SELECT COALESCE(string_agg(concat_ws(' ', job_id, process_after), '; '), '') FROM public.job_queue WHERE NOT ready AND process_after < (SELECT public.fn_job_unready_from())",
	"deltas":    "SELECT COALESCE(NULLIF((SELECT count(*) FROM public.queue_counter_recent) + (SELECT count(*) FROM public.queue_counter_delta) - (SELECT count(*) FROM public.fn_queue_counter_unfolded(NULL)), 0)::text, '')",
	"leases":    "SELECT COALESCE(string_agg(lease_token::text, ' '), '') FROM (SELECT lease_token FROM public.job_lease EXCEPT ALL SELECT lease_token FROM public.fn_job_leases()) x",
	"live jobs": "SELECT COALESCE(string_agg(concat_ws(' ', lease_token, l.live, q.n), '; '), '') FROM public.job_lease l FULL JOIN (SELECT lease_token, count(*) AS n FROM public.job_queue WHERE status IN ('leased', 'in_progress') GROUP BY 1) q USING (lease_token) WHERE l.live IS DISTINCT FROM q.n",
	"in parallel": `SELECT COALESCE(string_agg(concat_ws(' ', s.executor_id, s.job_kind, s.max_parallel, l.n), '; '), '') FROM public.job_subscription s
		JOIN (SELECT subscription_id, sum(live) AS n FROM public.job_lease GROUP BY 1) l USING (subscription_id) WHERE l.n > s.max_parallel`,
}

// ledger holds what committed transactions did and were told.
type ledger struct {
	mu       sync.Mutex
	jobs     map[string]bool              // jobs that exist; false = its replay was undone
	keys     map[string]string            // key → its first job
	told     map[string]map[string]string // job → token → the report that was answered "done"
	failures map[string]int               // job → failed attempts
	broken   []string
	commits  map[string]int
}

func (l *ledger) bad(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = append(l.broken, fmt.Sprintf(format, args...))
}

// actor is one session. The facts of its open transaction become true at its commit.
type actor struct {
	*ledger
	j        *jobs
	rng      *rand.Rand
	conn     *pgxpool.Pool
	executor string
	held     []held
	tx       pgx.Tx
	facts    []func()
	lone     bool // each transaction has one call: then none may end with a deadlock
}

func (a *actor) exec(sql string, args ...any) error {
	_, err := a.tx.Exec(context.Background(), sql, args...)
	return err
}

// call runs a function that returns jsonb.
func (a *actor) call(expr string, args ...any) (out map[string]any, err error) {
	err = a.tx.QueryRow(context.Background(), "SELECT "+expr, args...).Scan(&out)
	return out, err
}

// some returns up to n values of the column, picked at random from what is committed.
func (a *actor) some(n int, column, from string) (out []string, err error) {
	rows, err := a.j.root.Query(context.Background(), fmt.Sprintf("SELECT %s::text FROM %s ORDER BY random() LIMIT %d", column, from, n))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (a *actor) fact(f func()) { a.facts = append(a.facts, f) }

// born notes a job that an enqueue returned.
func (a *actor) born(job, key string, created bool) {
	a.fact(func() {
		if created && key != "" && a.keys[key] != "" {
			a.broken = append(a.broken, fmt.Sprintf("key %s made job %s, and before it job %s", key, job, a.keys[key]))
		}
		if created {
			a.jobs[job] = true
			if key != "" {
				a.keys[key] = job
			}
		} else if _, known := a.jobs[job]; !known {
			a.broken = append(a.broken, fmt.Sprintf("key %s belongs to job %s, which nobody enqueued", key, job))
		}
	})
}

func (a *actor) enqueue() error {
	kind, domain := string("abc"[a.rng.IntN(3)]), []string{"iu", "kg"}[a.rng.IntN(2)]
	var after any
	switch a.rng.IntN(6) {
	case 0:
		after = time.Now().Add(time.Duration(a.rng.IntN(1500)) * time.Millisecond)
	case 1:
		after = time.Now().Add(-time.Duration(a.rng.IntN(3000)) * time.Millisecond)
	}
	var key any
	name := ""
	if a.rng.IntN(3) == 0 {
		name = kind + domain + strconv.Itoa(a.rng.IntN(100))
		key = name
	}
	priority := []int{100, 100, 100, 0, 60, 1000}[a.rng.IntN(6)]
	if n := a.rng.IntN(8) + 1; key == nil && n > 2 {
		got, err := a.call(`public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', $1::text, 'event_domain', $2::text, 'executor', 'external_worker',
			'priority', $3::int, 'process_after', $4::timestamptz, 'max_attempts', 3)) FROM generate_series(1, $5::int)))`, kind, domain, priority, after, n)
		if err != nil {
			return err
		}
		for _, id := range got["job_ids"].([]any) {
			a.born(id.(string), "", true)
		}
		return nil
	}
	got, err := a.call("public.fn_job_enqueue($1, $2, 'external_worker', '{}', $3, $4, $5, 3)", kind, domain, priority, after, key)
	if err == nil {
		a.born(got["job_id"].(string), name, got["created"].(bool))
	}
	return err
}

func (a *actor) claim() error {
	var kinds []string
	var after any
	switch a.rng.IntN(6) {
	case 0:
		kinds = []string{"b"}
	case 1:
		after = map[string]any{"refuse": "lost_lease"}
	case 2:
		after = map[string]any{"iu/a": []any{100, time.Now().Add(-time.Second), nil}}
	}
	hs, err := takeWithin(context.Background(), a.tx, a.executor, kinds, 1+a.rng.IntN(8), after)
	if err == nil {
		a.fact(func() { a.held = append(a.held, hs...) })
	}
	return err
}

// report tells something about jobs that the actor holds, or held.
func (a *actor) report() error {
	if len(a.held) == 0 {
		return nil
	}
	a.rng.Shuffle(len(a.held), func(i, k int) { a.held[i], a.held[k] = a.held[k], a.held[i] })
	var hs []held // each job once: tell returns one outcome per job
	for _, h := range a.held[:1+a.rng.IntN(min(6, len(a.held)))] {
		if !slices.Contains(ids(hs), h.Job) {
			hs = append(hs, h)
		}
	}
	what := []string{"start", "renew", "ack", "ack", "ack", "ack", "release", "TIMEOUT", "TIMEOUT", "BROKEN!"}[a.rng.IntN(10)]
	got, err := tell(context.Background(), a.tx, what, hs...)
	if err != nil || what == "start" || what == "renew" {
		return err
	}
	forget := a.rng.IntN(4) > 0 // otherwise the actor may report again
	a.fact(func() {
		for _, h := range hs {
			if got[h.Job] != "done" {
				continue
			}
			if a.told[h.Job] == nil {
				a.told[h.Job] = map[string]string{}
			}
			before, again := a.told[h.Job][h.Token]
			same := before == what || before+what == "TIMEOUTBROKEN!" || before+what == "BROKEN!TIMEOUT"
			if again && !same {
				a.broken = append(a.broken, fmt.Sprintf("job %s under lease %s: %s, then %s", h.Job, h.Token, before, what))
			}
			if !again && what != "ack" && what != "release" {
				a.failures[h.Job]++
			}
			if !again {
				a.told[h.Job][h.Token] = what
			}
		}
		if forget {
			a.held = slices.DeleteFunc(a.held, func(h held) bool { return slices.Contains(hs, h) })
		}
	})
	return nil
}

func (a *actor) lost() error {
	if len(a.held) > 0 && a.rng.IntN(2) == 0 {
		a.held = a.held[a.rng.IntN(len(a.held)):] // the actor forgets these claims
	}
	return a.exec("SELECT public.fn_job_claim_lost($1, $2)", a.executor, append([]string{}, tokens(a.held)...))
}

func (a *actor) cancel() error {
	jobs, err := a.some(2, "job_id", "public.job_queue")
	if err != nil || len(jobs) == 0 {
		return err
	}
	return a.exec("SELECT public.fn_job_cancel($1, 'ann', 'test')", jobs)
}

func (a *actor) deadLetters() error {
	dead, err := a.some(3, "dead_letter_id", "public.job_dead_letter")
	if err != nil || len(dead) == 0 {
		return err
	}
	what := []string{"replay", "replay", "replay_undo", "reopen", "resolve"}[a.rng.IntN(5)]
	if what == "resolve" {
		return a.exec("SELECT public.fn_job_dead_letter_resolve($1, 'abandoned', 'test', 'ann')", dead)
	}
	got, err := a.call("public.fn_job_dead_letter_"+what+"($1, 'ann', 'test')", dead)
	if err != nil {
		return err
	}
	for _, r := range got["results"].([]any) {
		r := r.(map[string]any)
		if job, _ := r["new_id"].(string); r["outcome"] == "replayed" || r["outcome"] == "recalled" {
			a.fact(func() { a.jobs[job] = r["outcome"] == "replayed" })
		}
	}
	return nil
}

func (a *actor) flag() error {
	return a.exec("SELECT public.fn_job_subscription_set($1, NULL, NULL, $2, 40, $3, NULL, 'ann', 'test')", a.executor, a.rng.IntN(2)*50, a.rng.IntN(4) > 0)
}

// op is something that actors do, with its share.
type op struct {
	name  string
	share int
	do    func(a *actor) error
}

func function(sql string) func(a *actor) error { return func(a *actor) error { return a.exec(sql) } }

var ops = []op{
	{"enqueue", 20, (*actor).enqueue},
	{"claim", 20, (*actor).claim},
	{"report", 30, (*actor).report},
	{"claim lost", 2, (*actor).lost},
	{"cancel", 2, (*actor).cancel},
	{"dead ids", 3, (*actor).deadLetters},
	{"subscription", 1, (*actor).flag},
	{"reap", 4, function("SELECT public.fn_job_reap_expired()")},
	{"promote", 6, function("SELECT public.fn_job_tick()")},
	{"next due", 2, function("SELECT public.fn_job_next_due(NULL, now())")},
	{"fold", 5, function("SELECT public.fn_queue_counter_compact()")},
	{"advance", 8, function("SELECT public.fn_job_watermark_advance()")},
	{"sweep", 1, function("SELECT public.fn_queue_retention_sweep()")},
	{"snapshot", 1, function("SELECT public.fn_queue_snapshot()")},
}

// transaction runs one random transaction.
func (a *actor) transaction() {
	ctx := context.Background()
	tx, err := a.conn.Begin(ctx)
	if err != nil {
		a.bad("begin: %v", err)
		return
	}
	a.tx, a.facts = tx, nil
	defer func() { _ = tx.Rollback(ctx) }()
	if a.rng.IntN(10) == 0 { // its time is long ago when it begins to write
		a.wait()
	}
	n, all := 1, 0
	if !a.lone {
		n += a.rng.IntN(3)
	}
	for _, o := range ops {
		all += o.share
	}
	var done []string
	for range n {
		pick := a.rng.IntN(all)
		i := 0
		for ; pick >= ops[i].share; i++ {
			pick -= ops[i].share
		}
		done = append(done, ops[i].name)
		back, facts := a.rng.IntN(8) == 0, len(a.facts)
		if a.rng.IntN(4) == 0 || back {
			_, err = tx.Exec(ctx, "SAVEPOINT s")
		}
		if err == nil {
			err = ops[i].do(a)
		}
		if err == nil && back {
			a.facts = a.facts[:facts]
			_, err = tx.Exec(ctx, "ROLLBACK TO s")
		}
		if err != nil {
			var pg *pgconn.PgError
			if !errors.As(err, &pg) || pg.Code != "40P01" || a.lone {
				a.bad("%v: %v", done, err)
			}
			return
		}
		a.wait()
	}
	if a.rng.IntN(6) == 0 {
		return
	}
	// under the lock, so that nobody notes another fact of a job before those of this commit
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := tx.Commit(ctx); err != nil {
		a.broken = append(a.broken, fmt.Sprintf("%v: commit: %v", done, err))
		return
	}
	for _, f := range a.facts {
		f()
	}
	for _, name := range done {
		a.commits[name]++
	}
}

// wait keeps the transaction open for a while.
func (a *actor) wait() {
	switch n := a.rng.IntN(100); {
	case n == 0:
		time.Sleep(time.Duration(a.rng.IntN(1500)) * time.Millisecond)
	case n < 6:
		time.Sleep(time.Duration(a.rng.IntN(100)) * time.Millisecond)
	case n < 30:
		time.Sleep(time.Duration(a.rng.IntN(5)) * time.Millisecond)
	}
}

// meddle changes what usually changes slowly: leases expire, old snapshots come and go, jobs are
// switched off.
func (a *actor) meddle() {
	var sql string
	switch a.rng.IntN(12) {
	case 0:
		sql = "UPDATE public.test_wanted SET wanted = NOT wanted OR random() < 0.8"
	case 1:
		sql = "UPDATE public.dot_config SET value = (random() < 0.8)::text WHERE key = 'queue.job_substrate.enabled'"
	case 2, 3:
		sql = "UPDATE public.job_lease SET lease_until = now() - interval '1 second' WHERE lease_token = (SELECT lease_token FROM public.job_lease ORDER BY random() LIMIT 1)"
	case 4:
		sql = "UPDATE public.job_watermark_state SET seen_at = seen_at - interval '10 seconds'" // an open transaction is not waited for
	case 5:
		sql = "UPDATE public.job_watermark_state SET swept_at = swept_at - interval '1 minute'"
	case 6:
		sql = "UPDATE public.queue_counter_watermark SET swept_at = swept_at - interval '1 hour'"
	default:
		sql = "UPDATE public.job_watermark_state SET at = at - interval '900 milliseconds'" // so that the next call advances
	}
	if _, err := a.j.root.Exec(context.Background(), sql); err != nil {
		a.bad("%s: %v", sql, err)
	}
}

// look checks what holds in every snapshot.
func (a *actor) look() {
	for name, sql := range momentary {
		var wrong string
		if err := a.j.root.QueryRow(context.Background(), sql).Scan(&wrong); err != nil {
			wrong = err.Error()
		}
		if wrong != "" {
			a.bad("at a moment: %s: %s", name, wrong)
		}
	}
}

// It is part of `make test-full`. QTOP_TEST_INTERLEAVINGS=10m runs it alone, for that long;
// QTOP_TEST_SEED repeats a run, as far as the database allows.
func TestJobsOfRandomInterleavings(t *testing.T) {
	if !full() && os.Getenv("QTOP_TEST_INTERLEAVINGS") == "" {
		t.Skip("full: random interleavings of jobs, or with QTOP_TEST_INTERLEAVINGS=6s")
	}
	j := newJobs(t)
	seed, lasts := uint64(time.Now().UnixNano()), 6*time.Second
	if s := os.Getenv("QTOP_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	if s := os.Getenv("QTOP_TEST_INTERLEAVINGS"); s != "" {
		var err error
		lasts, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	j.exec("ALTER DATABASE " + pgx.Identifier{j.db.Name}.Sanitize() + " SET deadlock_timeout = '20ms'")
	j.exec("CREATE TABLE public.test_wanted AS SELECT true AS wanted; GRANT SELECT ON public.test_wanted TO PUBLIC")
	j.exec("CREATE OR REPLACE FUNCTION public.fn_job_watermark_wanted() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'SELECT wanted FROM public.test_wanted'")
	j.flag("queue.retry.schedule", "0s 1s")
	j.flag("queue.lease.duration_seconds", "2")
	l := &ledger{jobs: map[string]bool{}, keys: map[string]string{}, told: map[string]map[string]string{}, failures: map[string]int{}, commits: map[string]int{}}
	for _, w := range []string{"w0", "w1"} {
		j.jobSubscription(w, "", "", 0, 40)
	}
	j.jobSubscription("w1", "a", "", 50, 3)
	j.jobSubscription("w1", "", "kg", 0, 7)

	ends := time.Now().Add(lasts)
	login := pgtest.Login(t, j.db, "event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin", "queue_viewer")
	lone := rng.IntN(2) == 0
	var wg sync.WaitGroup
	newActor := func(i int) *actor {
		cfg, err := pgxpool.ParseConfig(j.db.DSN(login))
		require.NoError(t, err)
		cfg.MaxConns = 1
		cfg.ConnConfig.RuntimeParams["application_name"] = fmt.Sprintf("actor %d", i)
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return &actor{ledger: l, j: j, rng: rand.New(rand.NewPCG(seed, uint64(i+1))), conn: pool, executor: []string{"w0", "w1"}[i%2], lone: lone}
	}
	for i := range 8 {
		a := newActor(i)
		wg.Go(func() {
			for time.Now().Before(ends) {
				a.transaction()
			}
		})
	}
	meddler, looker := newActor(8), newActor(9)
	wg.Go(func() {
		for ; time.Now().Before(ends); time.Sleep(time.Duration(meddler.rng.IntN(60)) * time.Millisecond) {
			meddler.meddle()
		}
	})
	wg.Go(func() {
		for ; time.Now().Before(ends); time.Sleep(time.Duration(looker.rng.IntN(200)) * time.Millisecond) {
			looker.look()
		}
	})
	wg.Wait()
	require.Empty(t, l.broken)
	t.Logf("one call per transaction %t; %v; watermarks valid at the end %t", lone, l.commits, get[bool](j.core, "SELECT public.fn_job_watermark_valid()"))

	// an ordinary worker claims whatever is due, whenever it asks
	j.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.job_substrate.enabled'")
	j.exec("UPDATE public.job_subscription SET enabled = true, priority_floor = 0, max_parallel = 1000")
	j.expire()
	for left := 1; left > 0; {
		j.exec("SELECT public.fn_job_watermark_advance()")
		j.reap()
		due := time.Now()
		call(t, j.work, "public.fn_job_tick()")
		require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_queue WHERE NOT ready AND process_after < $1", due.Add(-time.Second)), "jobs that are due and were not promoted")
		hs := j.take("w0", 10000)
		require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_queue WHERE ready AND status IN ('queued', 'retry_waiting')"), "jobs that the claim did not find")
		for _, h := range hs {
			l.told[h.Job] = map[string]string{h.Token: "ack"}
		}
		if len(hs) > 0 {
			require.Equal(t, "done", j.outcome("ack", hs...))
		}
		looker.look()
		require.Empty(t, l.broken)
		left = get[int](j.core, "SELECT count(*)::int FROM public.job_queue")
		require.True(t, time.Since(ends) < patience, "%d jobs are left", left)
	}
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_lease"))
	j.balanced()
	j.exec(compact)
	// a fold that waited too long for another, held open, has put counters into quarantine: readers add their deltas
	quarantined := get[string](j.core, "SELECT COALESCE(string_agg(q::text, '; '), '') FROM public.queue_quarantine q WHERE step = 'counter_fold'")
	if left := j.unfolded(); quarantined == "" {
		require.Zero(t, left)
	} else {
		t.Logf("%d deltas are not folded: %s", left, quarantined)
	}
	j.balanced()
	var exist []string
	for job, is := range l.jobs {
		if is {
			exist = append(exist, job)
		}
	}
	j.none("enqueued and gone, or there although nobody enqueued it", "SELECT COALESCE(g.id, v.job_id) FROM unnest('{"+join(exist)+"}'::uuid[]) g (id) FULL JOIN public.v_job v ON v.job_id = g.id WHERE g.id IS NULL OR v.job_id IS NULL")
	var acked, under, failed, times []string
	for job, by := range l.told {
		for token, what := range by {
			if what == "ack" {
				acked, under = append(acked, job), append(under, token)
			}
		}
	}
	for job, n := range l.failures {
		failed, times = append(failed, job), append(times, strconv.Itoa(n))
	}
	j.none("told done, but not succeeded under that lease", `SELECT g.id FROM unnest('{`+join(acked)+`}'::uuid[], '{`+join(under)+`}'::uuid[]) g (id, token)
		LEFT JOIN public.job_history h ON h.job_id = g.id AND h.lease_token = g.token AND 'succeeded' IN (h.status, h.from_status) WHERE h.job_id IS NULL`)
	j.none("attempts that are not the reported failures and the lost leases after the first", `SELECT concat_ws(' ', h.job_id, h.status, h.failure_code, h.attempts, h.lost_leases, g.n, h.lease_token, h.prior_token, h.prior_result, h.picked_at, h.finished_at)
		FROM public.job_history h LEFT JOIN unnest('{`+join(failed)+`}'::uuid[], '{`+join(times)+`}'::int[]) g (id, n) ON g.id = h.job_id
		WHERE h.attempts <> COALESCE(g.n, 0) + greatest(h.lost_leases - 1, (h.lost_leases = 1 AND h.failure_code = 'LEASE_LOST' AND h.status = 'dead_letter')::int)`)
}
