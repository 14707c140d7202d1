package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

func TestMayHaveCommitted(t *testing.T) {
	t.Parallel()
	of := func(severity, code string) error {
		return pgerror.Translate(&pgconn.PgError{SeverityUnlocalized: severity, Code: code, Message: "m"})
	}
	for _, err := range []error{nil, of("ERROR", "22023"), of("ERROR", "57014"), queue.NewError(queue.KindUsage, "p_jobs[0].kind is not UTF-8", "", "")} {
		require.False(t, enqueue.MayHaveCommitted(err), "%v", err)
	}
	for _, err := range []error{of("FATAL", "08P01"), of("FATAL", "57P01"), of("ERROR", "40003"), pgerror.Translate(context.DeadlineExceeded), errors.New("unexpected EOF")} {
		require.True(t, enqueue.MayHaveCommitted(err), "%v", err)
	}
}

// PgBouncer itself answers with an error when the server dies after the commit and before its
// answer.
func TestPoolerAnswersForACommittedJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "event_ingest_writer")
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	host, port, err := net.SplitHostPort(path.Addr())
	require.NoError(t, err)
	b := pgtest.NewBouncerAt(t, fmt.Sprintf("host=%s port=%s", host, port), db.Name, "transaction", []string{login})
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: b.DSN(login)})
	require.NoError(t, err)
	defer client.Close()
	p := enqueue.New(client)
	job := enqueue.Job{Kind: "k", Domain: "shop", Executor: "DOT"}
	_, _, err = p.Enqueue(t.Context(), job)
	require.NoError(t, err)
	for made, call := range []func() error{
		func() error { _, _, err := p.Enqueue(t.Context(), job); return err },
		func() error { _, err := p.EnqueueMany(t.Context(), []enqueue.Job{job}); return err },
	} {
		path.DropReplyWith("job_id")
		err = call()
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "08P01", pg.Code)
		require.True(t, enqueue.MayHaveCommitted(err), "%v", err)
		var jobs int
		require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT count(*) FROM public.job_queue").Scan(&jobs))
		require.Equal(t, made+2, jobs)
	}
}

// producerClient returns a client with the rights of a producer.
func producerClient(t *testing.T, db *pgtest.DB) *pgclient.Client {
	t.Helper()
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "event_ingest_writer"))})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// While somebody has locked a table that an enqueue reads, it ends after a second. Callers whose jobs wait to be sent
// together get the answer soon too, not after a second for each.
func TestLockedTableOfManyCallers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client := producerClient(t, db)
	p := enqueue.New(client)
	job := enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT"}
	_, _, err := p.Enqueue(t.Context(), job)
	require.NoError(t, err)
	tx, err := db.Conn(t, "").Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE public.executor_producer IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	const callers = 30
	made := make(chan error, callers)
	began := time.Now()
	for range callers {
		go func() {
			_, _, err := p.Enqueue(t.Context(), job)
			made <- err
		}()
	}
	for range callers {
		err := <-made
		require.ErrorContains(t, err, "SQLSTATE 55P03")
		require.False(t, enqueue.MayHaveCommitted(err))
	}
	require.Less(t, time.Since(began), callers/2*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	_, _, err = p.Enqueue(t.Context(), job)
	require.NoError(t, err)
}

// One job of many that fails as if it had waited in vain, such as by a trigger of the site, keeps no other from being enqueued.
func TestJobThatWaitsInVainBesideOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	client := producerClient(t, db)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		"CREATE FUNCTION public.vain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.payload ? 'vain' THEN RAISE 'no lock' USING ERRCODE = '55P03'; END IF; RETURN NEW; END $$",
		"CREATE TRIGGER vain BEFORE INSERT ON public.job_queue FOR EACH ROW EXECUTE FUNCTION public.vain()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	p := enqueue.New(client)
	const callers = 60
	var failed atomic.Int32
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			job := enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT"}
			if n == callers/2 {
				job.Payload = []byte(`{"vain": 1}`)
			}
			if _, _, err := p.Enqueue(t.Context(), job); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, failed.Load())
}
