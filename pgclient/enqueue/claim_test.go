package enqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/work"
)

// ended is a claimer that offers a claim, for which the network answers no more, and sends the error
// of its end.
type ended struct {
	path *pgtest.Path
	errs chan error
}

func (e ended) Offer([]enqueue.Job) (*work.Claim, bool) {
	e.path.Hole(true)
	return &work.Claim{Executor: "x", Most: 1}, true
}

func (e ended) Claimed(_ []work.Job, _ bool, err error) { e.errs <- err }

func (ended) Look() {}

// A connection that answers no more ends the claim in the transaction of a producer soon, so that the
// host can claim on its other connections.
func TestClaimInTransactionWithoutAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	path := pgtest.NewPath(t, pgtest.TCP(t, db.Server))
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: pgtest.OverTCP(t, db.DSN(pgtest.Login(t, db)), path.Addr()), WorkConns: 1})
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Work().Ping(t.Context()))
	p := enqueue.New(client)
	p.SetClaimWithin(10 * time.Millisecond)
	claims := ended{path, make(chan error, 2)}
	p.Attach(claims)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := p.Enqueue(ctx, enqueue.Job{Kind: "k", Domain: "d", Executor: "DOT"})
		gone <- err
	}()
	select {
	case err := <-claims.errs:
		require.True(t, pgerror.MayHaveCommitted(err), "%v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the claim has not ended")
	}
	require.Empty(t, gone, "the producer waits on for its jobs")
	cancel()
	require.Error(t, <-gone)
	path.Cut(true)
}
