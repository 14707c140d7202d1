// A claim can run in the transaction that enqueues jobs: each claimed job is leased and
// delivered once, even if the caller that enqueued it has gone; no wake signal is sent for
// a job that is already claimed; and a claim that fails does not stop jobs from being
// enqueued.
package pgclient_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/work"
)

// taker is a claimer that claims for executor "mine", unless its previous claim is still under way.
type taker struct {
	mu     sync.Mutex
	busy   bool // a claim is under way
	takes  bool // while busy: whether it promises to look for the job after the commit
	looked int
	claims chan claimed

	offered func() // called when it has made a claim of an offer; may be nil
}

type claimed struct {
	jobs []work.Job
	left bool
	err  error
}

func attach(t *testing.T, p *enqueue.Producer) *taker {
	t.Helper()
	k := &taker{claims: make(chan claimed, 1000)}
	p.Attach(k)
	t.Cleanup(func() { p.Detach(k) })
	return k
}

func (k *taker) Offer([]enqueue.Job) (*work.Claim, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy {
		return nil, k.takes
	}
	k.busy = true
	if k.offered != nil {
		k.offered()
	}
	return &work.Claim{Executor: "mine", Kinds: []string{"a", `odd "kind", {} \`}, Most: 3}, true
}

func (k *taker) Claimed(jobs []work.Job, left bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
	k.claims <- claimed{jobs, left, err}
}

func (k *taker) Look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked++
}

func (k *taker) looks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looked
}

// next returns the jobs of the next claim.
func (k *taker) next(t *testing.T) claimed {
	t.Helper()
	select {
	case c := <-k.claims:
		require.NoError(t, c.err)
		return c
	case <-time.After(20 * time.Second):
		require.Fail(t, "no claim came")
		return claimed{}
	}
}

// wakes counts the wake signals for job domains so far. It waits until at least this many have
// arrived, and then for a marker that is sent last.
func wakes(t *testing.T, conn *pgx.Conn, least int) (n int) {
	t.Helper()
	hear := func() string {
		wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		heard, err := conn.WaitForNotification(wait)
		require.NoError(t, err)
		return heard.Payload
	}
	for ; n < least; n++ {
		hear()
	}
	time.Sleep(30 * time.Millisecond) // three times as long as owed jobs wait: a surplus signal would arrive in this time
	_, err := conn.Exec(t.Context(), "NOTIFY queue_wake_work, 'last word'")
	require.NoError(t, err)
	for hear() != "last word" {
		n++
	}
	return n
}

func TestClaimWithAJob(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			jobClient(t, db)
			c, err := pgclient.Open(t.Context(), pgclient.Options{
				DSN: db.DSN(pgtest.Login(t, db, "dot_executor", "event_ingest_writer")) + "&default_query_exec_mode=" + mode, WorkConns: 4,
			})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			conn := db.Conn(t, "")
			for _, sql := range []string{"SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'test', 'test')", "LISTEN queue_wake_work"} {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			p := enqueue.New(c)
			k := attach(t, p)
			job := enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT", Payload: []byte(`{"n": 1.50}`)}
			state := func(id string) (s string) {
				t.Helper()
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT status || ' ' || COALESCE(lease_token::text, '') FROM public.job_queue WHERE job_id = $1", id).Scan(&s))
				return s
			}

			id, created, err := p.Enqueue(t.Context(), job)
			require.NoError(t, err)
			require.True(t, created)
			got := k.next(t)
			require.False(t, got.left)
			require.Len(t, got.jobs, 1)
			j := got.jobs[0]
			require.Equal(t, []any{id, "a", "work", `{"n": 1.50}`}, []any{j.ID.String(), j.Kind, j.Domain, string(j.Payload)})
			require.InDelta(t, 300, j.Lease.Seconds(), 5)
			require.Equal(t, "leased "+j.Token.String(), state(id))
			require.Zero(t, wakes(t, conn, 0), "it is taken already")

			// a job that the claim does not lease: its wake signal is sent, and Claimed reports
			// that a job is left
			other := job
			other.Kind = "b"
			id, _, err = p.Enqueue(t.Context(), other)
			require.NoError(t, err)
			got = k.next(t)
			require.True(t, got.left)
			require.Empty(t, got.jobs)
			require.Equal(t, "queued ", state(id))
			require.Equal(t, 1, wakes(t, conn, 1))

			// a refused job rolls the claim back too; then the taker looks for other jobs
			wrong := job
			wrong.Executor = "nobody"
			_, _, err = p.Enqueue(t.Context(), wrong)
			require.ErrorContains(t, err, "p_executor must be")
			got = k.next(t)
			require.False(t, got.left)
			require.Empty(t, got.jobs)
			require.Equal(t, 1, k.looks())
			require.Zero(t, wakes(t, conn, 0))

			// somebody is changing the job subscription: the claim fails, the job is enqueued
			tx, err := db.Conn(t, "").Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE public.job_subscription SET max_parallel = max_parallel")
			require.NoError(t, err)
			began := time.Now()
			id, created, err = p.Enqueue(t.Context(), job)
			require.NoError(t, err)
			require.Less(t, time.Since(began), 5*time.Second, "half of what a statement waits otherwise")
			require.True(t, created)
			got = k.next(t)
			require.True(t, got.left)
			require.Empty(t, got.jobs)
			require.Equal(t, "queued ", state(id))
			require.Equal(t, 1, wakes(t, conn, 1), "it is owed one, and nobody claimed it")
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, 2, k.looks())
			var patience string
			require.NoError(t, c.Work().QueryRow(t.Context(), "SHOW lock_timeout").Scan(&patience))
			require.Equal(t, "10s", patience, "of the next transaction")

			// the caller gives up while the job and the claim wait for the lock: the job is not
			// enqueued a second time
			tx, err = db.Conn(t, "").Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE public.job_subscription SET max_parallel = max_parallel")
			require.NoError(t, err)
			soon, cancel := context.WithCancel(t.Context())
			k.mu.Lock()
			k.offered = cancel // both statements are sent after it
			k.mu.Unlock()
			_, _, err = p.Enqueue(soon, job)
			require.Error(t, err)
			require.True(t, k.next(t).left)
			k.mu.Lock()
			k.offered = nil
			k.mu.Unlock()
			require.Eventually(t, func() bool { // the server has ended the waiting session: none of its statements runs after the lock is released
				var sessions int32
				require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_catalog.pg_stat_activity
					WHERE datname = current_database() AND application_name LIKE '% ' || $1`, c.SessionTag()).Scan(&sessions))
				return c.Work().Stat().AcquiredConns() == 0 && sessions == c.Work().Stat().TotalConns()
			}, 20*time.Second, time.Millisecond)
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, 3, k.looks())
			var queued int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.job_queue WHERE status = 'queued'").Scan(&queued))
			require.Equal(t, 2, queued, "b, and the one that was made alone")

			// while a claim is under way: the wake signal stays pending until the job is claimed
			k.mu.Lock()
			k.busy, k.takes = true, true
			k.mu.Unlock()
			_, _, err = p.Enqueue(t.Context(), job)
			require.NoError(t, err)
			require.Equal(t, 1, wakes(t, conn, 1))
			looked := 4
			require.Eventually(t, func() bool { // repeated, because on a slow machine more than 8 ms may pass before the claim
				_, _, err = p.Enqueue(t.Context(), job)
				require.NoError(t, err)
				jobs, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Kinds: []string{"a"}, Most: 10})
				require.NoError(t, err)
				p.Claimed(jobs)
				looked++
				return wakes(t, conn, 0) == 0
			}, 30*time.Second, time.Millisecond)

			// without a promise to look (no free slot), the wake signal is sent at once
			k.mu.Lock()
			k.takes = false
			k.mu.Unlock()
			_, _, err = p.Enqueue(t.Context(), job)
			require.NoError(t, err)
			require.Equal(t, 1, wakes(t, conn, 1))
			require.Equal(t, looked, k.looks())
		})
	}
}

// Many jobs are enqueued at once, and some of the callers have gone: every job is claimed
// and delivered once, and each caller gets the id of its job.
func TestClaimWithManyJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := jobClient(t, db)
	p := enqueue.New(c)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "UPDATE public.job_subscription SET max_parallel = 100000")
	require.NoError(t, err)
	k := attach(t, p)
	const n = 300
	var mu sync.Mutex
	ids := map[string]string{}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%10 == 3 {
				time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
			}
			defer cancel()
			id, _, err := p.Enqueue(ctx, enqueue.Job{Kind: "a", Domain: fmt.Sprint("d", i%3), Executor: "DOT", Payload: fmt.Appendf(nil, `{"n": %d}`, i)})
			if i%10 == 3 && err != nil {
				return
			}
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[id] = fmt.Sprintf(`{"n": %d}`, i)
		})
	}
	wg.Wait()
	told := map[string]string{}
	leased := func() (s []string) {
		rows, err := conn.Query(t.Context(), "SELECT job_id::text FROM public.job_queue WHERE status = 'leased'")
		require.NoError(t, err)
		s, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return s
	}
	quiet := 0 // consecutive checks without a new job: jobs of callers that gave up may not be sent yet
	for deadline := time.Now().Add(20 * time.Second); ; {
		select {
		case got := <-k.claims:
			require.NoError(t, got.err)
			for _, j := range got.jobs {
				require.NotContains(t, told, j.ID.String(), "told twice")
				told[j.ID.String()] = string(j.Payload)
			}
			continue
		default:
		}
		k.mu.Lock()
		if quiet++; k.busy || len(k.claims) > 0 || c.Work().Stat().AcquiredConns() > 0 {
			quiet = 0
		}
		k.mu.Unlock()
		if quiet == 50 || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Millisecond) // between two checks: statements of callers that gave up may still be running
	}
	held := leased()
	require.Len(t, held, len(told))
	for _, id := range held {
		require.Contains(t, told, id, "leased, and nobody was told")
	}
	for id, payload := range ids {
		if got, ok := told[id]; ok {
			require.Equal(t, payload, got)
		}
	}
	require.NotEmpty(t, told)
	rows, err := conn.Query(t.Context(), "SELECT job_id::text FROM public.job_queue")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for id := range ids {
		require.True(t, slices.Contains(all, id))
	}
}

// A connection that ends during the transaction of a job and a claim makes neither. The caller and
// the executor each get one error.
func TestClaimWithAJobCutOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := jobClient(t, db)
	p := enqueue.New(c)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		"CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(20); RETURN NULL; END'",
		"CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON public.job_queue DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.slowly()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	k := attach(t, p)
	made := make(chan error, 1)
	go func() {
		_, _, err := p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT"})
		made <- err
	}()
	require.Eventually(t, func() bool {
		var ended int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&ended))
		return ended == 1
	}, 20*time.Second, time.Millisecond)
	require.Error(t, <-made)
	got := <-k.claims
	require.Error(t, got.err)
	require.Empty(t, got.jobs)
	require.False(t, got.left)
	require.Empty(t, k.claims)
	var jobs int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.job_queue").Scan(&jobs))
	require.Zero(t, jobs)
}
