// A real standby that is promoted, and the errors where PostgreSQL accepts no writes.

package pgclient_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	l, err := c.NewListener("wake", func(queue.Wake) {}, func() {}) // as Listen's, but says since when it listens
	require.NoError(t, err)
	listening, stop := context.WithCancel(ctx)
	var listeners sync.WaitGroup
	listeners.Go(func() { _ = c.Listen(listening) })
	listeners.Go(func() { l.Run(listening) })
	defer func() { stop(); listeners.Wait() }()
	require.Eventually(t, func() bool { return c.Link().State == "polling" && l.Status().State == "polling" }, time.Minute, 10*time.Millisecond)

	root, err := pgsession.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = root.Close(ctx) }()
	_, err = root.Exec(ctx, "SELECT pg_promote()")
	require.NoError(t, err)
	promoted := time.Now()
	require.Eventually(t, func() bool {
		pic, err := c.Snapshot(ctx, 0)
		page, bad := c.List(ctx, queue.Query{Kind: queue.ListSession})
		return err == nil && bad == nil && !pic.Server.InRecovery && !queue.Of[*queue.Session](page).InRecovery
	}, 10*time.Second, 50*time.Millisecond, "it reads at once from the promoted server")
	_, err = c.Apply(ctx, p)
	require.NoError(t, err, "the connections of before the promotion take changes")
	require.Eventually(t, func() bool { return c.Link().State == "live" && l.Status().State == "listening" }, time.Minute, 50*time.Millisecond, "%v", c.Link())
	require.Less(t, l.Status().Since.Sub(promoted), 10*time.Second, "a listener tries again every 5 s")
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

// A session that began while the login was read-only takes no changes until it ends. It is replaced after
// a change was refused, so the host works again soon after the operator has reset the setting.
func TestReadOnlyThatIsReset(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "workflow_admin", "queue_viewer", "dot_executor", "webhook_worker")
	user := pgx.Identifier{login}.Sanitize()
	c := open(t, pgclient.Options{DSN: w.db.DSN(login), Actor: "ann", WorkConns: 4})
	change := func() error {
		_, err := work.New(c.Client).HostRegister(ctx, "h", "00000000-0000-0000-0000-000000000001", "v", nil)
		return err
	}
	manyAtOnce := func() (all []error) {
		var conns []*pgxpool.Conn
		for range 4 { // each session of the pool
			conn, err := c.Work().Acquire(ctx)
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_, err := conn.Exec(ctx, "SELECT public.fn_queue_host_register('h', '00000000-0000-0000-0000-000000000001', 'v', '{}', NULL)")
			all = append(all, err)
			conn.Release()
		}
		return all
	}
	require.NoError(t, change())
	w.exec("ALTER ROLE " + user + " SET default_transaction_read_only = on")
	w.exec("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = $1", login)
	require.Eventually(t, func() bool {
		err := change()
		return err != nil && strings.Contains(err.Error(), "default_transaction_read_only is on for the login "+login)
	}, 30*time.Second, 10*time.Millisecond)
	for _, err := range manyAtOnce() {
		require.ErrorContains(t, err, "25006")
	}
	w.exec("ALTER ROLE " + user + " RESET default_transaction_read_only")
	time.Sleep(time.Second) // younger sessions are not replaced
	for _, err := range manyAtOnce() {
		require.NoError(t, err)
	}
}

// Where the connection string names several servers, what writes goes to the one that takes changes,
// also if a standby answers first; what reads may stay on the standby. One server says why it takes
// no changes.
func TestStandbyAnswersFirst(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	if w.db.Server == nil {
		t.Skip("SKIP: QTOP_TEST_DSN names a server without a socket of ours")
	}
	standby := pgtest.OwnInstalled(t, w.db.Name, nil)
	require.NoError(t, os.WriteFile(filepath.Join(standby.DataDir(), "standby.signal"), nil, 0o644)) //nolint:gosec // the server runs as another user
	require.NoError(t, standby.Restart(ctx))
	both := fmt.Sprintf("postgres://postgres@/%s?host=%s,%s&port=5432&sslmode=disable", w.db.Name, standby.SocketDir(), w.db.Server.SocketDir())

	host := open(t, pgclient.Options{DSN: both, Actor: "ann", WorkConns: 1})
	pic, err := host.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.True(t, pic.Server.InRecovery, "the standby answers first")
	require.NoError(t, host.Writable(ctx))
	expecting := open(t, pgclient.Options{DSN: both, WorkConns: 1, ExpectServer: []string{get[string](w, "SELECT current_setting('cluster_name')")}})
	why, err := expecting.UnexpectedServer(ctx)
	require.NoError(t, err)
	require.Empty(t, why.String(), "a host works on the primary, whatever server answers reads")
	l, err := host.NewListener("wake", func(queue.Wake) {}, func() {})
	require.NoError(t, err)
	listening, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { l.Run(listening); close(done) }()
	defer func() { stop(); <-done }()
	require.Eventually(t, func() bool { s := l.Status().State; return s != "connecting" }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, "listening", l.Status().State, l.Status().Reason.String())
	require.NoError(t, schema.Up(ctx, both, nil))

	reads := open(t, pgclient.Options{DSN: both + "&target_session_attrs=read-write", Actor: "ann", ReadOnly: true})
	pic, err = reads.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.False(t, pic.Server.InRecovery, "target_session_attrs finds the primary for a read-only console too")
	set := queue.Request{Action: queue.ActFlagSet, Actor: "ann", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"}
	p, err := reads.Plan(ctx, set)
	require.NoError(t, err)
	_, err = reads.Apply(ctx, p)
	require.ErrorContains(t, err, "read_only is set")

	local := pgtest.OverTCP(t, standby.DSN("postgres", w.db.Name), pgtest.TCP(t, standby)) // TLS is tried first, and then plain text
	local = strings.Replace(local, "sslmode=disable", "sslmode=prefer", 1)
	require.Contains(t, local, "sslmode=prefer")
	alone := open(t, pgclient.Options{DSN: local, Actor: "ann", WorkConns: 1})
	require.ErrorContains(t, alone.Writable(ctx), "this server is a standby")
	p, err = alone.Plan(ctx, set)
	require.NoError(t, err)
	_, err = alone.Apply(ctx, p)
	require.ErrorContains(t, err, "this server is a standby")
	kind(t, queue.KindFailed, err)
	none := open(t, pgclient.Options{DSN: local + "&target_session_attrs=read-write", Actor: "ann"})
	_, err = none.Snapshot(ctx, 0)
	require.ErrorContains(t, err, "no server of the connection string takes changes")
	kind(t, queue.KindUnavailable, err)
}

// A first server of the connection string that accepts connections and never answers takes only its
// share of the time of a call, in each pool, and an installation tries the next server too.
func TestFirstServerIsSilent(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	second := pgtest.TCP(t, w.db.Server)
	first := pgtest.NewPath(t, second)
	first.Hole(true)
	both := pgtest.OverTCP(t, w.db.DSN(""), first.Addr()+","+second)
	for _, more := range []string{"", "&connect_timeout=1"} {
		require.Eventually(t, func() bool { // a busy second server may take longer than its share too
			began := time.Now()
			c := open(t, pgclient.Options{DSN: both + more, Actor: "ann", WorkConns: 1})
			_, err := c.Snapshot(ctx, 0)
			if err == nil {
				err = c.Writable(ctx)
			}
			if err == nil {
				_, _, err = c.Heartbeat(ctx, "nobody", "{}")
			}
			t.Logf("connected%s after %v: %v", more, time.Since(began), err)
			return err == nil
		}, time.Minute, time.Millisecond, more)
	}
	ended, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := (&pgsession.Route{}).ConnectToWrite(ended, both)
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))
}

// A read-only console reaches the primary through a pooler too, whose settings apply to each
// transaction.
func TestReadOnlyPrimaryThroughPooler(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "queue_viewer")
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{login})
	for _, attrs := range []string{"read-write", "primary"} {
		c := open(t, pgclient.Options{DSN: b.DSN(login) + "&target_session_attrs=" + attrs, Actor: "ann", ReadOnly: true})
		_, err := c.Snapshot(context.Background(), 0)
		require.NoError(t, err, attrs)
		var readOnly string
		require.NoError(t, c.Read().QueryRow(context.Background(), "SELECT pg_catalog.current_setting('transaction_read_only')").Scan(&readOnly))
		require.Equal(t, "on", readOnly)
	}
}

// A host does not work in sessions in which no trigger runs.
func TestNoHostWithoutTriggers(t *testing.T) {
	w := newWorld(t)
	login := pgtest.Login(t, w.db, "dot_executor")
	require.NoError(t, open(t, pgclient.Options{DSN: w.db.DSN(login), WorkConns: 1}).Writable(t.Context()))
	w.exec("ALTER ROLE " + login + " SET session_replication_role = replica")
	err := open(t, pgclient.Options{DSN: w.db.DSN(login), WorkConns: 1}).Writable(t.Context())
	require.ErrorContains(t, err, "session_replication_role is replica for the sessions of a worker host")
	kind(t, queue.KindFailed, err)
}
