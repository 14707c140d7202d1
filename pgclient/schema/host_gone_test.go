package schema_test

// When a second worker host may take a host id that is registered: at once if no session of the
// first host is left, after 15 s of silence if sessions cannot show that, otherwise never.

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// registers registers a new instance of host h.
func registers(t *testing.T, conn *pgx.Conn, tag any) (answer map[string]any) {
	t.Helper()
	var text []byte
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT public.fn_queue_host_register('h'::text, pg_catalog.gen_random_uuid(), 'v'::text, '{}'::text[],
		$1::text)::text`, tag).Scan(&text))
	require.NoError(t, json.Unmarshal(text, &answer))
	return answer
}

func TestCrashedHostGivesWay(t *testing.T) {
	c := newCore(t)
	login, other := pgtest.Login(t, c.db, "dot_executor"), pgtest.Login(t, c.db, "dot_executor")
	const tag = "0123456789abcdef"
	register := func(conn *pgx.Conn, tag any) map[string]any { return registers(t, conn, tag) }
	first := c.session(login, "qtop work "+tag)
	next := c.session(login, "qtop work fedcba9876543210")
	require.Nil(t, register(first, tag)["refused"])
	held := register(next, "fedcba9876543210")
	require.Equal(t, "held", held["rule"], "a session of it is left")
	require.NotEmpty(t, held["holder"])
	require.NotEmpty(t, held["last_seen_at"])

	c.end(first)
	require.Equal(t, "held", register(c.session(other, "qtop work "+tag), tag)["rule"], "another login takes nothing over that was seen lately")
	gone := func() bool { return get[bool](c, "SELECT public.fn_queue_host_gone(q) FROM public.queue_host q") }
	require.True(t, gone())
	c.exec("UPDATE public.queue_host SET last_seen_at = pg_postmaster_start_time() - interval '1 second'")
	require.False(t, gone(), "a restart of the server ends the sessions of those that live, too")
	c.exec("UPDATE public.queue_host SET last_seen_at = (SELECT backend_start - interval '1 microsecond' FROM pg_stat_activity WHERE backend_type = 'walwriter')")
	require.False(t, gone(), "so does the restart after a crash, and a promotion: both start the WAL writer")
	c.exec("UPDATE public.queue_host SET last_seen_at = now()")
	require.Nil(t, register(next, "fedcba9876543210")["refused"], "no session of it is left")

	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '16 seconds'")
	own := c.session(login, "an application's own name")
	require.Nil(t, register(own, tag)["refused"])
	require.NoError(t, own.Close(t.Context()))
	require.True(t, get[bool](c, "SELECT session_tag IS NULL FROM public.queue_host"))
	require.Equal(t, "held", register(next, "fedcba9876543210")["rule"], "whose sessions cannot be known is silent first")
}

// When a host registers under the id of an instance that ended without stopping cleanly, the leases
// of that instance are returned and counted as lost. Leases of others remain, and so do those of
// jobs and deliveries that have lost a lease before.
func TestTakeoverReturnsWork(t *testing.T) {
	j := newJobs(t)
	h := j.hooks()
	j.jobSubscription("w", "", "", 0, 100)
	const tag, next = "0123456789abcdef", "fedcba9876543210"
	login := pgtest.Login(t, j.db, "dot_executor", "webhook_worker")
	other := pgtest.Login(t, j.db, "dot_executor", "webhook_worker")
	j.put("k", "iu", 8)
	h.subscribe("order")
	h.emit("order", 6)
	h.step()

	first := j.session(login, "qtop work "+tag)
	instance, _ := registers(t, first, tag)["instance"].(string)
	jobs := func(conn *pgx.Conn, n int) (token string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.min(c.lease_token::text) FROM public.fn_job_claim('w'::text, NULL, $1::int) c", n).Scan(&token))
		return token
	}
	webhooks := func(conn *pgx.Conn, worker string, n int) (id int64, token string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.max(c.job_id), pg_catalog.min(c.lease_token::text) FROM public.fn_webhook_job_claim($1::text, $2::int) c", worker, n).Scan(&id, &token))
		return id, token
	}
	worker := "h/" + instance[:8]
	second := j.session(login, "qtop pool 2 "+tag) // another connection of the first instance
	token := jobs(second, 3)
	jobs(j.session(login, "qtop work "+next), 1)
	jobs(j.session(other, "qtop work "+tag), 1)
	j.exec("UPDATE public.job_queue SET lost_leases = 1 WHERE job_id = (SELECT job_ids[1] FROM public.job_lease WHERE lease_token = $1::uuid)", token)
	sent, stale := webhooks(first, worker, 2)
	webhooks(first, "h/00000000", 1)
	again, _ := webhooks(first, worker, 1)
	j.asReplica(fmt.Sprintf("UPDATE public.webhook_delivery_jobs SET lease_resets = 1 WHERE id = %d", again))

	leased := "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Leased'"
	held := "SELECT sum(live)::int FROM public.job_lease"
	successor := j.session(login, "qtop work "+next)
	j.exec("UPDATE public.queue_host SET last_seen_at = now()")
	require.Equal(t, "held", registers(t, successor, next)["rule"])
	require.Equal(t, 5, get[int](j.core, held), "it lives")
	j.end(first)
	j.exec("UPDATE public.queue_host SET last_seen_at = now()")
	require.Equal(t, "held", registers(t, successor, next)["rule"])
	j.end(second)
	answer := registers(t, successor, next)
	back, _ := answer["returned"].(map[string]any)
	require.EqualValues(t, 2, back["jobs"], answer)
	require.EqualValues(t, 2, back["webhooks"], answer)
	require.Len(t, back["log"], 4)
	require.Equal(t, 3, get[int](j.core, held), "those of others, and the one that lost a lease before")
	require.Equal(t, 2, get[int](j.core, leased), "that of another instance, and the one that lost a lease before")
	require.Equal(t, "0 1 LEASE_LOST", get[string](j.core, "SELECT max(attempts) || ' ' || max(lost_leases) || ' ' || max(failure_code) FROM public.job_queue WHERE status = 'queued'"))
	require.Equal(t, 2, get[int](j.core, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE status = 'Pending' AND lease_resets = 1"))

	// A late result of the instance that ended is refused and changes nothing.
	var outcomes []string
	require.NoError(t, successor.QueryRow(t.Context(), `SELECT pg_catalog.array_agg(r.outcome ORDER BY r.outcome) FROM public.fn_job_ack(
		(SELECT pg_catalog.array_agg(q.job_id) FROM public.job_queue q WHERE q.failure_code = 'LEASE_LOST'), pg_catalog.array_fill($1::uuid, ARRAY[2])) r`, token).Scan(&outcomes))
	require.Equal(t, []string{"lease_lost", "lease_lost"}, outcomes)
	j.balanced()

	late, err := tryReport(h.root, map[string]any{"job_id": sent, "lease_token": stale, "delivered": true, "status": 200})
	require.NoError(t, err)
	require.Equal(t, []string{"lease_lost"}, late)

	// If the tick workers that return expired leases are off, a new instance does not return the
	// leases either.
	j.flag("queue.lease.reaper_enabled", "false")
	j.flag("queue.tick.lease_reset_cleaner.interval_seconds", "0")
	require.NoError(t, successor.QueryRow(t.Context(), "SELECT public.fn_queue_host_stop('h'::text, $1::uuid, ''::text)::text", answer["instance"]).Scan(new(string)))
	last := j.session(login, "qtop work "+tag)
	registers(t, last, tag)
	jobs(last, 5)
	j.end(last)
	require.Nil(t, registers(t, successor, next)["returned"])
	require.Equal(t, 8, get[int](j.core, held))
}
