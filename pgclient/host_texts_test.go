package pgclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

// What the database says to a worker host is safe to print and holds no password: it gets into the
// log of the host and into /readyz.
func TestTextsForAHostAreClean(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const answer = `SELECT jsonb_build_object('refused', true, 'failed', true, 'reason', r, 'error', r) FROM (VALUES (U&'gone\009b31m \001b]0;x\0007 \202e postgres://app:hunter2@h/d' || E'\n' || 'next')) v (r)`
	for _, sql := range []string{
		"DROP FUNCTION public.fn_queue_host_register", "DROP FUNCTION public.fn_queue_host_beat", "DROP FUNCTION public.fn_queue_host_stop", "DROP FUNCTION public.fn_queue_tick_request",
		"CREATE FUNCTION public.fn_queue_host_register(text, uuid, text, text[], text) RETURNS jsonb LANGUAGE sql AS $$" + answer + "$$",
		"CREATE FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb) RETURNS jsonb LANGUAGE sql AS $$" + answer + "$$",
		"CREATE FUNCTION public.fn_queue_host_stop(text, uuid, text) RETURNS jsonb LANGUAGE sql AS $$" + answer + "$$",
		"CREATE FUNCTION public.fn_queue_tick_request(text, text) RETURNS jsonb LANGUAGE sql AS $$" + answer + "$$",
	} {
		_, err := db.Conn(t, "").Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	c := work.New(open(t, pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "dot_executor")), WorkConns: 1}).Client)
	const instance = "00000000-0000-0000-0000-000000000001"
	registered, err := c.HostRegister(t.Context(), "h", instance, "v", nil)
	require.NoError(t, err)
	_, beat, err := c.HostHeartbeat(t.Context(), "h", instance, nil, 0, nil)
	require.NoError(t, err)
	tick, err := c.Tick(t.Context(), "webhook_router", "test")
	require.NoError(t, err)
	for name, said := range map[string]string{"register": registered.Reason, "heartbeat": beat, "tick": tick.Error, "skipped tick": tick.Reason} {
		require.Contains(t, said, "gone", name)
		require.NotContains(t, said, "hunter2", name)
		require.Equal(t, queue.Clean(said).String(), said, name)
		require.NotContains(t, said, "\u009b", name)
		require.NotContains(t, said, "\x1b", name)
		require.NotContains(t, said, "\u202e", name)
		require.NotContains(t, said, "\n", name)
	}
}
