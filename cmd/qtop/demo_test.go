package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/demo"
)

type endingServer chan struct{}

func (s endingServer) Done() <-chan struct{} { return s }
func (endingServer) LogFile() string         { return "/demo/postgresql.log" }

func (endingServer) Stop(context.Context) error { return errors.New("LOG: \x1b[2J\nbye") }

// What the server of the demo says cannot control a terminal.
func TestDemoCleansWhatItsServerSays(t *testing.T) {
	var errs strings.Builder
	a := &app{writer: writer{errs: &errs}}
	a.notice("log: \x1b[2J")
	a.stopServer(endingServer(nil))
	require.Equal(t, "qtop: log: ␛[2J\nqtop: LOG: ␛[2J␊bye\n", errs.String())
}

// The settings of the user's own worker host have no effect on the host of the demo.
func TestDemoIgnoresTheHostOfTheUser(t *testing.T) {
	t.Setenv(demo.SecretEnv, "")
	a := &app{settings: config.Settings{
		HostID: strings.Repeat("x", 300), Concurrency: 1, Grace: time.Hour, Loops: []string{"no_such_loop"},
		Handlers: []config.Handler{{Kind: "mail.render", Command: []string{"/no/such/program"}}},
		Delivery: config.Delivery{PerEndpoint: 1, Secrets: []config.Secret{{Ref: "a b", Env: "X"}}},
	}}
	client, host, err := a.demoHost(t.Context(), "postgres://nobody@127.0.0.1:1/none", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	client.Close()
	require.NotNil(t, host)
	require.Equal(t, 20*time.Second, a.settings.Grace)
	require.Equal(t, 64, a.settings.Concurrency)
	require.Equal(t, 8, a.settings.Delivery.PerEndpoint)
}

// The demo is not the database of the user's profile: it has neither its name nor its guards. What a
// flag, a variable of qtop or the top of the file says is about the person, and stays. Variables of
// libpq are for other servers.
func TestDemoIsNotTheProfileOfTheUser(t *testing.T) {
	for _, v := range os.Environ() { // so that each has its value again after this test
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, value)
		}
	}
	t.Setenv("PGOPTIONS", "-c statement_timeout=1")
	t.Setenv("PGSERVICE", "none")
	t.Setenv("PG_OTHER", "kept")
	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, "qtop"), 0o700))
	file := filepath.Join(home, "qtop", "config.yaml")
	for top, want := range map[string]config.Settings{
		"":                                     {},
		"read_only: true\nproduction: false\n": {ReadOnly: true},
	} {
		profile := "profile: prod\nprofiles:\n  prod: {production: true, theme: light, refresh: 2s}\n"
		if top == "" {
			profile = strings.Replace(profile, "{", "{read_only: true, ", 1)
		}
		require.NoError(t, os.WriteFile(file, []byte(top+profile), 0o600))
		a := &app{}
		var err error
		a.settings, err = config.Load(config.Sources{ConfigHome: home, Hostname: "here"})
		require.NoError(t, err)
		require.True(t, a.settings.Production)
		require.True(t, a.settings.ReadOnly)
		a.leaveUsersDatabase()
		require.Equal(t, want, config.Settings{ReadOnly: a.settings.ReadOnly, Production: a.settings.Production, Profile: a.settings.Profile})
		require.Equal(t, "light", a.settings.Theme)
		require.Equal(t, 2*time.Second, a.settings.Refresh)
	}
	a := &app{}
	var err error
	a.settings, err = config.Load(config.Sources{ConfigHome: home, Hostname: "here", Environ: []string{"QTOP_PRODUCTION=true"}, Flags: map[string]string{"read-only": "true"}})
	require.NoError(t, err)
	a.leaveUsersDatabase()
	require.True(t, a.settings.Production)
	require.True(t, a.settings.ReadOnly)
	require.Equal(t, []string{"", "", "kept"}, []string{os.Getenv("PGOPTIONS"), os.Getenv("PGSERVICE"), os.Getenv("PG_OTHER")})
	parsed, err := pgx.ParseConfig("postgres://demo_operator@127.0.0.1:1/qtop")
	require.NoError(t, err)
	require.Empty(t, parsed.RuntimeParams)
}

// A second demo without a console joins the server before its database is made. It announces that
// database when traffic flows there.
func TestSecondDemoAnnouncesTraffic(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	out := &announcement{at: make(chan bool, 1)}
	a := &app{}
	a.out = out
	ended := make(chan error, 1)
	go func() {
		ended <- a.demoJoined(ctx, demoOptions{headless: true}, db.DSN(demo.Operator), db.DSN(""), make(endingServer))
	}()
	// It has looked in vain.
	require.Eventually(t, func() bool {
		var sessions int
		err := conn.QueryRow(ctx, "SELECT sessions FROM pg_catalog.pg_stat_database WHERE datname = $1", db.Name).Scan(&sessions)
		return err == nil && sessions > 1 || len(out.at) > 0
	}, time.Minute, 20*time.Millisecond)
	out.flows.Store(true)
	_, err := conn.Exec(ctx, "CREATE VIEW public.v_queue_counter AS SELECT 'delivered_1m'::text AS scope, 1::bigint AS n")
	require.NoError(t, err)
	require.True(t, <-out.at, "announced before traffic flowed")
	cancel()
	require.NoError(t, <-ended)
}

// announcement notes at the first write whether traffic flowed then.
type announcement struct {
	flows atomic.Bool
	at    chan bool
}

func (w *announcement) Write(p []byte) (int, error) {
	select {
	case w.at <- w.flows.Load():
	default:
	}
	return len(p), nil
}

// A demo without a console ends with one clear error when its PostgreSQL ends, at the start and
// later, also if its worker host cannot end without a database.
func TestHeadlessDemoEndsWithItsServer(t *testing.T) {
	host := func(ctx context.Context) error { <-ctx.Done(); return nil }
	ready := func(context.Context) error { return nil }
	quiet := func() {}
	refused := func(ctx context.Context) error { <-ctx.Done(); return errors.New("no traffic") }
	for name, c := range map[string]struct{ run, ready func(context.Context) error }{
		"host":    {host, ready},
		"joined":  {nil, ready},
		"start":   {host, refused},
		"failing": {host, func(context.Context) error { return errors.New("no traffic") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := make(endingServer)
				got := make(chan error, 1)
				if name == "failing" {
					close(server)
				}
				go func() { got <- whileServing(t.Context(), server, c.run, c.ready, quiet) }()
				synctest.Wait()
				if name != "failing" {
					require.Empty(t, got, "it runs while the server runs")
					close(server)
				}
				err := <-got
				require.Equal(t, queue.KindUnavailable, queue.KindOf(err))
				require.ErrorContains(t, err, "the PostgreSQL of the demo has ended")
				require.ErrorContains(t, err, "/demo/postgresql.log")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		server := make(endingServer)
		close(server)
		release := make(chan struct{})
		begun := time.Now()
		require.Error(t, whileServing(t.Context(), server, func(context.Context) error { <-release; return nil }, ready, quiet))
		require.Equal(t, hostEnd, time.Since(begun))
		close(release)
	})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, whileServing(ctx, make(endingServer), host, ready, quiet))
	down := errors.New("the host cannot start")
	require.ErrorIs(t, whileServing(t.Context(), make(endingServer), func(context.Context) error { return down }, ready, quiet), down)
	require.ErrorContains(t, whileServing(t.Context(), make(endingServer), host, func(context.Context) error { return errors.New("no traffic") }, quiet), "no traffic")
}

// A demo without a console that is stopped while it announces itself ends after the announcement: what
// the announcement has written, and whether it could be written, is judged then.
func TestHeadlessDemoEndsAfterItsAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ready := func(context.Context) error { return nil }
		announced := false
		require.NoError(t, whileServing(ctx, make(endingServer), nil, ready, func() {
			cancel()
			time.Sleep(time.Second) // as a slow reader of standard output does
			announced = true
		}))
		require.True(t, announced)
	})
}

func TestShortDSN(t *testing.T) {
	t.Parallel()
	require.Equal(t, "host=/var/lib/qtop/demo/run port=5432 user=demo_operator dbname=qtop",
		shortDSN("postgres://demo_operator@/qtop?host=%2Fvar%2Flib%2Fqtop%2Fdemo%2Frun&port=5432&sslmode=disable"))
	spaced := "postgres://demo_operator@/qtop?host=%2Ftmp%2Fa%20b&port=5432&sslmode=disable"
	require.Equal(t, spaced, shortDSN(spaced))
}
