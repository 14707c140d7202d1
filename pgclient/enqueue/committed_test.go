package enqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

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
