// A real standby that is promoted, and the errors where PostgreSQL accepts no writes.

package pgclient_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
	"github.com/qtop/qtop/pgclient/work"
)

func TestPromotedStandby(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := pgtest.OwnInstalled(t, "postgres", nil)
	dsn := s.DSN("postgres", "postgres")
	require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o644)) //nolint:gosec // the server runs as another user
	require.NoError(t, s.Restart(ctx))

	c := open(t, pgclient.Options{DSN: dsn, Actor: "ann", WorkConns: 1})
	pic, err := c.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.True(t, pic.Server.InRecovery)
	page, err := c.List(ctx, queue.Query{Kind: queue.ListSession})
	require.NoError(t, err)
	require.True(t, queue.Of[*queue.Session](page).InRecovery)
	p, err := c.Plan(ctx, queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
	require.NoError(t, err)
	_, err = c.Apply(ctx, p)
	require.ErrorContains(t, err, "this server is a standby")
	require.ErrorContains(t, err, "connect to the primary")
	err = schema.Up(ctx, dsn, nil)
	require.ErrorContains(t, err, "this server is a standby")
	listening, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- c.Listen(listening) }()
	defer func() { stop(); <-done }()
	require.Eventually(t, func() bool { return c.Link().State == "polling" }, 30*time.Second, 10*time.Millisecond)

	root, err := pgsession.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = root.Close(ctx) }()
	_, err = root.Exec(ctx, "SELECT pg_promote()")
	require.NoError(t, err)
	promoted := time.Now()
	require.Eventually(t, func() bool {
		pic, err := c.Snapshot(ctx, 0)
		page, bad := c.List(ctx, queue.Query{Kind: queue.ListSession})
		return err == nil && bad == nil && !pic.Server.InRecovery && !queue.Of[*queue.Session](page).InRecovery && c.Link().State == "live"
	}, 10*time.Second, 50*time.Millisecond, "%v", c.Link())
	_, err = c.Apply(ctx, p)
	require.NoError(t, err, "the connections of before the promotion take changes")
	require.Less(t, time.Since(promoted), 10*time.Second)
}

// The error names the cause that makes a session read-only.
func TestReadOnlyCauses(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	ask := func(o pgclient.Options) error {
		o.Actor, o.WorkConns = "ann", 1
		c := open(t, o)
		p, err := c.Plan(ctx, queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
		require.NoError(t, err)
		_, err = c.Apply(ctx, p)
		kind(t, queue.KindFailed, err)
		_, other := work.New(c.Client).HostRegister(ctx, "h", "00000000-0000-0000-0000-000000000001", "v", nil)
		require.Error(t, other)
		require.Equal(t, err.Error(), other.Error(), "the same of each pool")
		require.NotContains(t, err.Error(), "primary", "it is one")
		return err
	}
	login := pgtest.Login(t, w.db, "workflow_admin", "queue_viewer", "dot_executor", "webhook_worker")
	require.ErrorContains(t, ask(pgclient.Options{DSN: w.db.DSN(login), ReadOnly: true}), "read_only")
	w.exec("ALTER ROLE " + pgx.Identifier{login}.Sanitize() + " SET default_transaction_read_only = on")
	err := ask(pgclient.Options{DSN: w.db.DSN(login)})
	require.ErrorContains(t, err, "default_transaction_read_only is on for the login "+login)
	require.ErrorContains(t, err, "doctor")
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{login})
	require.ErrorContains(t, ask(pgclient.Options{DSN: b.DSN(login), ReadOnly: true}), "read_only")
	require.ErrorContains(t, ask(pgclient.Options{DSN: b.DSN(login)}), "read-only")
}
