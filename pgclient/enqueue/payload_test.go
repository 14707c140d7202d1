package enqueue_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// json.Marshal of a nil map or pointer is null. It means {} in each way to enqueue: alone, with others
// in one statement, and in a transaction.
func TestPayloadNull(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client := producerClient(t, db)
	p := enqueue.New(client)
	job := func(payload string) enqueue.Job {
		return enqueue.Job{Kind: "k", Domain: "shop", Executor: "DOT", Payload: json.RawMessage(payload)}
	}
	for _, payload := range []string{"", "null", " null\n"} {
		_, _, err := p.Enqueue(t.Context(), job(payload))
		require.NoError(t, err, "%q", payload)
	}
	keyed := job("null")
	keyed.IdempotencyKey = "key"
	_, created, err := p.Enqueue(t.Context(), keyed)
	require.NoError(t, err)
	require.True(t, created)
	keyed.Payload = json.RawMessage("{}")
	_, created, err = p.Enqueue(t.Context(), keyed)
	require.NoError(t, err)
	require.False(t, created, "the same content")
	_, err = p.EnqueueMany(t.Context(), []enqueue.Job{job("null"), job("null")})
	require.NoError(t, err)
	errs := make([]error, 8) // more than one waits while the first is sent
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, _, errs[i] = p.Enqueue(t.Context(), job("null")) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	var jobs, empty int
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE payload = '{}') FROM public.job_queue").Scan(&jobs, &empty))
	require.Equal(t, []int{14, 14}, []int{jobs, empty})

	for _, payload := range []string{"17", "[]", "{'order': 1}", " ", `{"order"`} {
		_, _, err = p.Enqueue(t.Context(), job(payload))
		require.Error(t, err, "%q", payload)
		require.False(t, enqueue.MayHaveCommitted(err), "%v", err)
		_, err = p.EnqueueMany(t.Context(), []enqueue.Job{job(payload)})
		require.ErrorContains(t, err, "p_jobs[0].payload", "%q", payload)
		require.False(t, enqueue.MayHaveCommitted(err), "%v", err)
	}
	// The server, which would quote it in an error and in its log, gets no text that is not JSON.
	_, _, err = p.Enqueue(t.Context(), job(`{"note": "hunter2`))
	require.EqualError(t, err, "the payload is not JSON: nothing was enqueued; make it with json.Marshal")
	require.Equal(t, queue.KindUsage, queue.KindOf(err))
	var refused *pgconn.PgError
	_, err = client.Act().Exec(t.Context(), "SELECT public.fn_job_enqueue('k', 'shop', 'DOT', $1::text::jsonb)", `{"note": "hunter2`)
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Where, "hunter2", "docs/producers.md warns of it")
}
