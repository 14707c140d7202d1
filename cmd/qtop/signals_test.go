package main

// Tests of the second signal: it ends a worker that drains, whatever its grace
// time, unless it is the first one once more.

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestSecondSignalAborts(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http notices a closed connection only after the body was read
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	defer stuck.Close()
	defer stuck.CloseClientConnections()
	db := pgtest.New(t)
	admin := db.Pool(t, "")
	_, err := admin.Exec(t.Context(), "INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('stuck', $1, true, true)", stuck.URL)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('stuck', '{}')")
	require.NoError(t, err)
	login := pgtest.Login(t, db, "dot_executor", "router_worker", "saga_orchestrator", "webhook_worker", "lease_reset_cleaner")
	cmd := qtop(t, db.DSN(login), "worker", "--host-id", "w1", "--grace", "5m")
	cmd.Env = append(cmd.Env, "QTOP_DELIVERY_ALLOW_NETWORKS=127.0.0.0/8", "QTOP_DELIVERY_ALLOW_PLAIN_HTTP=127.0.0.0/8")
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	select {
	case <-arrived:
	case <-time.After(patience):
		require.FailNow(t, "no request")
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT)) // a parent passes on what the whole group has got
	require.Eventually(t, func() bool {
		var state *string
		err := admin.QueryRow(t.Context(), "SELECT progress -> 'webhook_worker' ->> 'state' FROM public.queue_host").Scan(&state)
		return err == nil && state != nil && *state == "draining"
	}, patience, 50*time.Millisecond)
	select {
	case <-ended:
		require.FailNow(t, "it did not drain")
	case <-time.After(sameStop):
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-ended:
	case <-time.After(patience):
		require.FailNow(t, "the second signal does not end it")
	}
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
}
