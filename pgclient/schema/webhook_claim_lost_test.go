package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// A host returns the leases of claims whose answer it never received, and no others.
func TestWebhookClaimLost(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	h.emit("order", 8)
	h.route()
	h.call("public.fn_saga_orchestrator_run(100)")
	login, other := pgtest.Login(t, h.db, "dot_executor", "webhook_worker"), pgtest.Login(t, h.db, "dot_executor", "webhook_worker")
	const a, b = "00000000-0000-4000-8000-00000000000a", "11111111-0000-4000-8000-00000000000b"
	session := func(login, id, instance string) *pgxpool.Pool {
		conn := h.db.Pool(t, login)
		require.NotContains(t, call(t, conn, "public.fn_queue_host_register($1, $2::uuid, 'v', '{webhook_worker}')", id, instance), "refused")
		return conn
	}
	mine, theirs := session(login, "a", a), session(other, "b", b)
	claim := func(conn *pgxpool.Pool, worker string, n int) (token string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.min(c.lease_token::text) FROM public.fn_webhook_job_claim($1::text, $2::int) c", worker, n).Scan(&token))
		return token
	}
	lost := func(conn *pgxpool.Pool, worker string, known ...string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT public.fn_webhook_claim_lost($1::text, $2::text[]::uuid[])::int", worker, known).Scan(&n))
		return n
	}
	known := claim(mine, "a/00000000", 1)
	claim(mine, "a/00000000", 3)
	claim(theirs, "b/11111111", 2)
	claim(mine, "program of one's own", 1)
	const held = "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Leased'"
	require.Equal(t, 7, one[int](h, held))
	require.Zero(t, lost(mine, "b/11111111"), "the host of another login")
	require.Zero(t, lost(mine, "program of one's own"), "no host")
	require.Equal(t, 3, lost(mine, "a/00000000", known))
	require.Zero(t, lost(mine, "a/00000000", known), "once")
	require.Equal(t, 4, one[int](h, held))
	require.Equal(t, 4, one[int](h, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Pending' AND lease_resets = 0"))
	require.Equal(t, 1, one[int](h, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE lease_token = $1::uuid", known))
}
