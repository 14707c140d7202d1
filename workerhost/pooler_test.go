package workerhost_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// A worker host behind a PgBouncer with default settings polls and delivers, in session and
// transaction mode.
func TestDeliversThroughPooler(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			u, err := url.Parse(w.dsn)
			require.NoError(t, err)
			b := pgtest.NewBouncer(t, w.db, mode, []string{u.User.Username()})
			r := receive(t, ok)
			w.subscribe("pooled", r.URL, nil)
			h := runHost(t, b.DSN(u.User.Username()), workerhost.Options{})
			const n = 200
			w.events("pooled", n)
			w.becomes(n, completed)
			require.Empty(t, w.text("SELECT session_tag FROM public.queue_host"), "a pooler's sessions say nothing of a host")
			require.NoError(t, h.stop())
			once := map[string]bool{}
			for _, got := range r.all() {
				require.Contains(t, string(got.body), "ü 日本", fmt.Sprintf("%q", got.body))
				once[got.id] = true
			}
			require.Len(t, once, n)
		})
	}
}

// A host refuses a pooler in statement mode, and a standby (directly or through a pooler), before
// it takes its id or claims.
func TestPoolerThatCannotBeServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, err := url.Parse(w.dsn)
	require.NoError(t, err)
	b := pgtest.NewBouncer(t, w.db, "statement", []string{u.User.Username()})
	h := runHost(t, b.DSN(u.User.Username()), workerhost.Options{})
	<-h.done
	require.ErrorContains(t, h.err, "the pooler is in statement mode")
	require.Equal(t, queue.KindConfig, queue.KindOf(h.err))
	require.Zero(t, w.int("SELECT count(*) FROM public.queue_host"))

	// Through a pooler the level of the login applies, and in no other than READ COMMITTED a job can be claimed.
	login := pgx.Identifier{u.User.Username()}.Sanitize()
	w.exec("ALTER ROLE " + login + " SET default_transaction_isolation = 'repeatable read'")
	for _, mode := range []string{"session", "transaction"} {
		h := runHost(t, pgtest.NewBouncer(t, w.db, mode, []string{u.User.Username()}).DSN(u.User.Username()), workerhost.Options{})
		<-h.done
		require.ErrorContains(t, h.err, "no job can be claimed")
		require.ErrorContains(t, h.err, "ALTER ROLE "+login+" SET default_transaction_isolation = 'read committed'")
		require.Equal(t, queue.KindConfig, queue.KindOf(h.err))
	}
	require.Zero(t, w.int("SELECT count(*) FROM public.queue_host"))

	s := pgtest.OwnInstalled(t, "postgres", nil)
	dsn := s.DSN("postgres", "postgres")
	require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o644)) //nolint:gosec // the server runs as another user
	require.NoError(t, s.Restart(t.Context()))
	behind := &pgtest.DB{Name: "postgres", Server: s}
	for _, mode := range []string{"", "session", "transaction"} {
		at := dsn
		if mode != "" {
			at = pgtest.NewBouncer(t, behind, mode, []string{"postgres"}).DSN("postgres")
		}
		h := runHost(t, at, workerhost.Options{})
		<-h.done
		require.ErrorContains(t, h.err, "this server is a standby", mode)
		require.ErrorContains(t, h.err, "connect to the primary", mode)
		c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: at, Actor: "ann"})
		require.NoError(t, err)
		pic, err := c.Snapshot(t.Context(), 0)
		require.NoError(t, err, mode)
		require.True(t, pic.Server.InRecovery, mode)
		c.Close()
	}
}

// A host that cannot listen logs that once and finds work by polling.
func TestPollingIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u, err := url.Parse(w.dsn)
	require.NoError(t, err)
	b := pgtest.NewBouncer(t, w.db, "transaction", []string{u.User.Username()})
	log := &lines{}
	h := runHost(t, b.DSN(u.User.Username()), workerhost.Options{Log: slog.New(slog.NewJSONHandler(log, nil))})
	polls := func() []map[string]any { return log.of(t, "no wake signals arrive: the host polls") }
	eventually(t, func() bool { return len(polls()) > 0 }, "it logs nothing")
	require.Contains(t, polls()[0]["reason"], "set listen_dsn to a direct connection")
	require.NoError(t, h.stop())
	require.Len(t, polls(), 1)
}
