// Jobs that are enqueued at the same time are sent in one batch, and callers notice no
// difference: each gets the id of its job, or the refusal of its job.
package pgclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestJobsEnqueuedAtOnceGoTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := enqueue.New(jobClient(t, db))
	conn := db.Conn(t, "")
	const n = 400
	ids, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			job := enqueue.Job{Kind: fmt.Sprint("k", i%3), Domain: fmt.Sprint("d", i%2), Executor: "DOT", Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i))}
			switch i % 50 {
			case 7:
				job.Executor = "nobody"
			case 8:
				job.Payload = json.RawMessage("{")
			case 9:
				job.IdempotencyKey, job.Payload = "one", json.RawMessage(`{"n": 9}`)
				job.Kind = "keyed"
			}
			ids[i], _, errs[i] = p.Enqueue(t.Context(), job)
		})
	}
	wg.Wait()
	rows, err := conn.Query(t.Context(), "SELECT job_id::text, job_kind || ' ' || event_domain || ' ' || (payload ->> 'n') FROM public.job_queue")
	require.NoError(t, err)
	in := map[string]string{}
	var id, what string
	_, err = pgx.ForEachRow(rows, []any{&id, &what}, func() error { in[id] = what; return nil })
	require.NoError(t, err)
	keyed := map[string]bool{}
	for i := range n {
		switch i % 50 {
		case 7:
			require.ErrorContains(t, errs[i], "p_executor must be DOT")
		case 8:
			require.ErrorContains(t, errs[i], "json")
		case 9:
			require.NoError(t, errs[i])
			keyed[ids[i]] = true
		default:
			require.NoError(t, errs[i])
			require.Equal(t, fmt.Sprintf("k%d d%d %d", i%3, i%2, i), in[ids[i]])
		}
	}
	require.Len(t, keyed, 1)
	require.Len(t, in, n-3*n/50+1)

	for i := range n { // jobs that only the server can refuse, beside valid ones
		wg.Go(func() {
			job := enqueue.Job{Kind: "beside", Domain: "d", Executor: []string{"DOT", "nobody"}[i%2]}
			_, _, errs[i] = p.Enqueue(t.Context(), job)
		})
	}
	wg.Wait()
	for i, err := range errs {
		require.Equal(t, i%2 == 1, err != nil, "%v", err)
	}

	for _, sql := range []string{
		`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'the site refuses it' USING ERRCODE = upper(substr(NEW.job_kind, 5)); END $$`,
		`CREATE TRIGGER refuse BEFORE INSERT ON public.job_queue FOR EACH ROW WHEN (NEW.job_kind LIKE 'bad_%') EXECUTE FUNCTION public.refuse()`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, bad := range []string{"bad_p0001", "bad_23514", "bad_55p03"} { // jobs that a trigger of the site refuses, beside valid ones
		for i := range n {
			wg.Go(func() {
				_, _, errs[i] = p.Enqueue(t.Context(), enqueue.Job{Kind: []string{"beside", bad}[i%2], Domain: "d", Executor: "DOT"})
			})
		}
		wg.Wait()
		for i, err := range errs {
			require.Equal(t, i%2 == 1, err != nil, "%s: %v", bad, err)
		}
	}

	for range n { // valid jobs only
		wg.Go(func() {
			_, _, _ = p.Enqueue(t.Context(), enqueue.Job{Kind: "right", Domain: "d", Executor: "DOT"})
		})
	}
	wg.Wait()
	var jobs, transactions int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*), count(DISTINCT xmin::text) FROM public.job_queue WHERE job_kind = 'right'").Scan(&jobs, &transactions))
	require.Equal(t, n, jobs)
	require.Less(t, transactions, n/2)
}

// A caller that gives up before its job is sent has not enqueued that job.
func TestJobThatWaitsForOthersCanBeLeft(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := enqueue.New(jobClient(t, db))
	conn := db.Conn(t, "")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.job_queue IN SHARE MODE")
	require.NoError(t, err)
	var wg sync.WaitGroup
	job := func(kind string) enqueue.Job { return enqueue.Job{Kind: kind, Domain: "d", Executor: "DOT"} }
	wg.Go(func() { // waits for the lock that the test holds
		_, _, err := p.Enqueue(context.WithoutCancel(t.Context()), job("first"))
		require.NoError(t, err)
	})
	other := db.Conn(t, "")
	require.Eventually(t, func() bool {
		var waiting int
		err := other.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waiting)
		return err == nil && waiting == 1
	}, 30*time.Second, 20*time.Millisecond)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, _, err = p.Enqueue(ctx, job("left"))
	require.Error(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	wg.Wait()
	_, _, err = p.Enqueue(t.Context(), job("after"))
	require.NoError(t, err)
	var kinds string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT string_agg(job_kind, ' ' ORDER BY job_kind) FROM public.job_queue").Scan(&kinds))
	require.Equal(t, "after first", kinds)
}
