// The owner of an executor: no other login can claim, send heartbeats or report results for it, or
// block its owner.

package schema_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestExecutorBelongsToARole(t *testing.T) {
	c := newCore(t)
	admin := c.as("workflow_admin")
	group := pgtest.Login(t, c.db)
	rightful := c.db.Pool(t, pgtest.Login(t, c.db, "dot_executor", group))
	stranger := c.db.Pool(t, pgtest.Login(t, c.db, "dot_executor", "queue_viewer"))
	got := call(t, admin, "public.fn_queue_executor_register('mine', 'DOT', '{}', 30, 600, $1::text, 'ann')", group)
	require.Equal(t, true, got["registered"], got)
	require.Equal(t, group, get[string](c, "SELECT after ->> 'owner_role' FROM public.queue_operator_action WHERE action = 'executor_register'"))
	call(t, admin, "public.fn_queue_heartbeat_register('open', 'DOT', '{}', 30, 600, 'ann')")
	require.Equal(t, "dot_executor", get[string](c, "SELECT owner_role FROM public.queue_heartbeat WHERE executor_id = 'open'"))
	for _, bad := range []string{"''", "NULL", "'no_such_role'"} {
		fails(t, admin, "22023", "SELECT public.fn_queue_executor_register('bad', 'DOT', '{}', 30, 600, "+bad+", 'ann')")
	}
	for _, id := range []string{"mine", "open"} {
		call(t, admin, "public.fn_job_subscription_set($1, 'k', NULL, 0, 100, true, NULL, 'ann', 'test')", id)
	}
	c.exec("SELECT public.fn_job_enqueue('k', 'iu', 'DOT') FROM generate_series(1, 10)")

	claim := func(pool *pgxpool.Pool, id string) int {
		t.Helper()
		var n int
		require.NoError(t, pool.QueryRow(context.Background(), "SELECT count(*) FROM public.fn_job_claim($1::text, NULL, 2)", id).Scan(&n))
		return n
	}
	require.Zero(t, claim(stranger, "mine"))
	require.Equal(t, 2, claim(stranger, "open"), "an executor of dot_executor is open to all of them")
	require.Equal(t, 2, claim(rightful, "mine"))

	// Another login that has got hold of a lease token cannot report a result with it.
	var jobs, tokens []string
	require.NoError(t, c.root.QueryRow(context.Background(), "SELECT array_agg(job_id::text), array_agg(lease_token::text) FROM public.job_queue WHERE lease_owner = 'mine'").Scan(&jobs, &tokens))
	require.Len(t, jobs, 2)
	results := []string{
		"SELECT * FROM public.fn_job_start($1::uuid[], $2::uuid[])", "SELECT * FROM public.fn_job_renew($1::uuid[], $2::uuid[])",
		"SELECT * FROM public.fn_job_fail($1::uuid[], $2::uuid[], ARRAY['A', 'A'], ARRAY['a', 'a'], ARRAY[true, true])",
		"SELECT * FROM public.fn_job_locked($1::uuid[], $2::uuid[])",
		"SELECT * FROM public.fn_job_release($1::uuid[], $2::uuid[])", "SELECT * FROM public.fn_job_ack($1::uuid[], $2::uuid[])",
	}
	for _, sql := range results {
		fails(t, stranger, "42501", sql, jobs, tokens)
	}
	fails(t, stranger, "42501", "SELECT * FROM public.fn_job_payload($1::uuid, $2::uuid, 1000)", jobs[0], tokens[0])

	// A transaction of the other login in which every call was refused, and which stays open,
	// blocks nobody.
	tx := c.begin(stranger)
	for _, sql := range append(results, "SELECT public.fn_job_claim('mine')", "SELECT public.fn_queue_heartbeat_write('mine', '{}', 'eve')") {
		_, err := tx.Exec(context.Background(), "SAVEPOINT s")
		require.NoError(t, err)
		var args []any
		if sql[7] == '*' {
			args = []any{jobs, tokens}
		}
		if _, err := tx.Exec(context.Background(), sql, args...); err != nil {
			_, err = tx.Exec(context.Background(), "RELEASE SAVEPOINT s")
			if err != nil { // aborted: its locks remain until the rollback, so it must hold none
				_, err = tx.Exec(context.Background(), "ROLLBACK TO SAVEPOINT s")
			}
			require.NoError(t, err)
		}
	}
	// A rollback to a savepoint releases locks; a call that was answered without an error keeps its
	// locks until the transaction ends.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := rightful.Exec(ctx, "SELECT public.fn_queue_heartbeat_write('mine', '{}', 'w')")
	require.NoError(t, err, "the beat of the rightful host waits for nobody")
	require.Equal(t, 2, claim(rightful, "mine"))
	for _, sql := range results[:2] {
		_, err := rightful.Exec(ctx, sql, jobs, tokens)
		require.NoError(t, err)
	}
	_, err = rightful.Exec(ctx, results[len(results)-1], jobs, tokens)
	require.NoError(t, err)
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.job_history WHERE status = 'succeeded'"))
	require.NoError(t, tx.Rollback(context.Background()))

	// After the executor is given to another role, only that role may use it, at once.
	other := pgtest.Login(t, c.db, "dot_executor")
	set := call(t, admin, "public.fn_queue_executor_owner_set('mine', $1::text, 'ann', 'moved')", other)
	require.Equal(t, []any{group, other}, []any{set["before"], set["after"]})
	require.Zero(t, claim(rightful, "mine"))
	require.Equal(t, 2, claim(c.db.Pool(t, other), "mine"))
	require.Equal(t, "tick_worker", call(t, admin, "public.fn_queue_executor_owner_set('webhook_router', $1::text, 'ann', 'x')", other)["rule"])
	require.Equal(t, "not_found", call(t, admin, "public.fn_queue_executor_owner_set('none', $1::text, 'ann', 'x')", other)["rule"])
	fails(t, stranger, "42501", "SELECT public.fn_queue_executor_owner_set('mine', 'dot_executor', 'eve', 'x')")
}

// Every host's login can read the instance of a live host, but another login can neither stop the
// host, nor send a heartbeat for it, nor take its id, nor block its heartbeats.
func TestHostBelongsToItsLogin(t *testing.T) {
	c := newCore(t)
	mine := c.db.Pool(t, pgtest.Login(t, c.db, "dot_executor"))
	stranger := c.db.Pool(t, pgtest.Login(t, c.db, "dot_executor"))
	const instance = "00000000-0000-0000-0000-000000000001"
	require.Equal(t, "h", call(t, mine, "public.fn_queue_host_register('h', $1::uuid, 'v', '{}')", instance)["host_id"])
	tx := c.begin(stranger)
	var stopped, rule, taken, again string
	require.NoError(t, tx.QueryRow(context.Background(), `SELECT public.fn_queue_host_stop('h', $1::uuid) ->> 'stopped',
		public.fn_queue_host_beat('h', $1::uuid, '{}', 9, '{}') ->> 'rule', public.fn_queue_host_register('h', gen_random_uuid(), 'v', '{}') ->> 'rule',
		public.fn_queue_host_register('h', $1::uuid, 'v', '{}') ->> 'rule'`, instance).Scan(&stopped, &rule, &taken, &again))
	require.Equal(t, []string{"false", "lost", "held", "held"}, []string{stopped, rule, taken, again})
	// while the other login's transaction is open
	c.exec("ALTER FUNCTION public.fn_queue_host_beat SET lock_timeout = '2s'")
	require.Equal(t, "h", call(t, mine, "public.fn_queue_host_beat('h', $1::uuid, '{}', 1, '{}')", instance)["host_id"])
	require.Equal(t, true, call(t, mine, "public.fn_queue_host_stop('h', $1::uuid)", instance)["stopped"])
}

// A live host that says it works as an executor of another role neither makes that executor live nor
// has handlers for it: the last host of the owner still marks it stopped when it ends.
func TestAnotherLoginIsNoHostOfAnExecutor(t *testing.T) {
	c := newCore(t)
	owner, stranger := pgtest.Login(t, c.db, "dot_executor"), pgtest.Login(t, c.db, "dot_executor")
	member := pgtest.Login(t, c.db, "dot_executor", owner)
	call(t, c.as("workflow_admin"), "public.fn_queue_executor_register('mine', 'external_worker', '{}', 60, 300, $1::text, 'ann')", owner)
	const id = "00000000-0000-0000-0000-000000000001"
	host := func(login, kind string) {
		t.Helper()
		pool := c.db.Pool(t, login)
		require.Equal(t, login, call(t, pool, "public.fn_queue_host_register($1::text, $2::uuid, 'v', '{}')", login, id)["host_id"])
		require.Equal(t, login, call(t, pool, "public.fn_queue_host_beat($1::text, $2::uuid, '{job_executor}', 0, jsonb_build_object('job_executor', jsonb_build_object('executor', 'mine', 'kinds', ARRAY[$3::text])))",
			login, id, kind)["host_id"])
	}
	live := func() bool { return get[bool](c, "SELECT public.fn_queue_executor_live('mine', NULL::text)") }
	handled := func() string {
		return get[string](c, "SELECT COALESCE((SELECT array_to_string(kinds, ',') FROM public.v_job_handlers WHERE executor_id = 'mine'), '')")
	}
	host(stranger, "theirs")
	require.False(t, live())
	require.Empty(t, handled())
	host(owner, "a")
	host(member, "b")
	require.True(t, live())
	require.Equal(t, "a,b", handled())
	_, err := c.db.Pool(t, owner).Exec(t.Context(), `SELECT public.fn_queue_heartbeat_write('mine', '{"state": "idle"}', 'w')`)
	require.NoError(t, err)
	for _, login := range []string{owner, member} {
		require.Equal(t, true, call(t, c.db.Pool(t, login), "public.fn_queue_host_stop($1::text, $2::uuid)", login, id)["stopped"])
	}
	require.Equal(t, "stopped", get[string](c, "SELECT last_beat_payload ->> 'state' FROM public.queue_heartbeat WHERE executor_id = 'mine'"))
	c.exec("UPDATE public.queue_heartbeat SET owner_role = NULL WHERE executor_id = 'mine'")
	require.Equal(t, "theirs", handled(), "an executor without an owner is open to all")
}

// A host that says it works as an executor of another role, as one with a wrong executor in its
// configuration does, does not mark it stopped when it ends: a stopped executor is not watched.
func TestAnotherLoginDoesNotStopAnExecutor(t *testing.T) {
	c := newCore(t)
	owner := pgtest.Login(t, c.db, "dot_executor")
	call(t, c.as("workflow_admin"), "public.fn_queue_executor_register('mine', 'external_worker', '{}', 60, 300, $1::text, 'ann')", owner)
	state := func() string {
		return get[string](c, "SELECT last_beat_payload ->> 'state' FROM public.queue_heartbeat WHERE executor_id = 'mine'")
	}
	for _, s := range []struct{ login, want string }{{pgtest.Login(t, c.db, "dot_executor"), "idle"}, {owner, "stopped"}} {
		pool := c.db.Pool(t, s.login)
		const id = "00000000-0000-0000-0000-000000000001"
		beat := func(loops string) {
			t.Helper()
			require.Equal(t, s.login, call(t, pool, "public.fn_queue_host_beat($1::text, $2::uuid, $3::text[], 0, '{\"job_executor\": {\"executor\": \"mine\"}}')", s.login, id, loops)["host_id"])
		}
		work := func() {
			t.Helper()
			_, err := c.db.Pool(t, owner).Exec(t.Context(), `SELECT public.fn_queue_heartbeat_write('mine', '{"state": "idle"}', 'w')`)
			require.NoError(t, err)
			beat("{job_executor}")
		}
		require.Equal(t, s.login, call(t, pool, "public.fn_queue_host_register($1::text, $2::uuid, 'v', '{}')", s.login, id)["host_id"])
		work()
		beat("{}")
		require.Equal(t, s.want, state(), "the loop ended")
		work()
		require.Equal(t, true, call(t, pool, "public.fn_queue_host_stop($1::text, $2::uuid)", s.login, id)["stopped"])
		require.Equal(t, s.want, state(), "the host stopped")
	}
}
