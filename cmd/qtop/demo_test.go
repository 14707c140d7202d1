package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/demo"
)

type endingServer chan struct{}

func (s endingServer) Done() <-chan struct{} { return s }
func (endingServer) LogFile() string         { return "/demo/postgresql.log" }

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
