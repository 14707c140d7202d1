// After a worker host stopped cleanly, its tick workers count as stopped, not as silent.

package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

const (
	tickState = "SELECT COALESCE(last_beat_payload ->> 'state', '') FROM public.queue_heartbeat WHERE executor_id = $1"
	instanceA = "'00000000-0000-0000-0000-00000000000a'"
	instanceB = "'00000000-0000-0000-0000-00000000000b'"
)

// hostRuns registers a host and sends a heartbeat that it runs these loops.
func hostRuns(t *testing.T, host *pgxpool.Pool, id, instance, loops string) {
	t.Helper()
	require.Nil(t, call(t, host, "public.fn_queue_host_register('"+id+"', "+instance+", 'v', '{}')")["refused"])
	require.Nil(t, call(t, host, "public.fn_queue_host_beat('"+id+"', "+instance+", '"+loops+"', 0, '{}')")["refused"])
}

func TestCleanStopIsNotSilence(t *testing.T) {
	c := newCore(t)
	host := c.as("dot_executor")
	hostRuns(t, host, "a", instanceA, "{config_expiry,counter_compactor}")
	hostRuns(t, host, "b", instanceB, "{counter_compactor}")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_payload = '{\"state\": \"idle\"}', last_beat_at = now() WHERE tick_worker")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'metrics_sampler'")

	call(t, host, "public.fn_queue_host_stop('a', "+instanceA+", 'SIGTERM')")
	require.Equal(t, "SIGTERM {config_expiry,counter_compactor} {}", get[string](c, "SELECT concat_ws(' ', stop_reason, last_loops, loops) FROM public.queue_host WHERE host_id = 'a'"))
	require.Equal(t, "stopped", get[string](c, tickState, "config_expiry"), "nobody runs it any more")
	require.Equal(t, "idle", get[string](c, tickState, "counter_compactor"), "host b runs it")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'config_expiry'")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'config_expiry'"))
	call(t, host, "public.fn_queue_stale_check()")
	require.Zero(t, get[int](c, emitted, "config_expiry"), "a stop is not silence")
	require.Equal(t, 1, get[int](c, emitted, "metrics_sampler"))

	// A loop that one host ends counts as stopped, if no other host runs it; a loop that begins is
	// watched again.
	call(t, host, "public.fn_queue_host_beat('b', "+instanceB+", '{config_expiry}', 0, '{}')")
	require.Equal(t, "stopped", get[string](c, tickState, "counter_compactor"))
	require.Equal(t, "idle", get[string](c, tickState, "config_expiry"))
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'config_expiry'"), "it counts from the start on")

	// A stop does not hide a silence: the worker was silent before its host stopped.
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day' WHERE executor_id = 'config_expiry'")
	call(t, host, "public.fn_queue_host_stop('b', "+instanceB+")")
	require.Equal(t, "idle", get[string](c, tickState, "config_expiry"))
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE subject = 'config_expiry'"))
	require.True(t, get[bool](c, "SELECT stop_reason IS NULL FROM public.queue_host WHERE host_id = 'b'"), "a host of the release before gives no reason")
}

// A database in which no host has run yet has no silent tick worker, however long ago it was
// installed. Once a host has registered, the tick workers that it runs are watched.
func TestNothingIsSilentBeforeTheFirstHost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := &core{t: t, db: db, root: db.Pool(t, "")}
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day'")
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert"))
	require.Equal(t, 1, get[int](c, "SELECT count(DISTINCT state) FROM public.v_queue_watch"))
	call(t, c.as("dot_executor"), "public.fn_queue_host_register('a', gen_random_uuid(), '1', ARRAY['webhook_worker', 'config_expiry'])")
	c.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 day'")
	require.Equal(t, []string{"config_expiry", "webhook_worker"}, get[[]string](c, "SELECT array_agg(executor_id ORDER BY 1) FROM public.v_queue_watch WHERE state = 'silent'"))
}

// If two hosts stop at once, the second one to commit sees that the first has stopped.
func TestTwoHostsStopAtOnce(t *testing.T) {
	c := newCore(t)
	host := c.wide(2, "dot_executor")
	for range 20 {
		hostRuns(t, host, "a", instanceA, "{config_expiry}")
		hostRuns(t, host, "b", instanceB, "{config_expiry}")
		c.exec("UPDATE public.queue_heartbeat SET last_beat_payload = '{\"state\": \"idle\"}', last_beat_at = now() WHERE executor_id = 'config_expiry'")
		together(t, 2, func(i int) (map[string]any, error) {
			return tryCall(host, "public.fn_queue_host_stop("+[]string{"'a', " + instanceA, "'b', " + instanceB}[i]+", 'SIGTERM')")
		})
		require.Equal(t, "stopped", get[string](c, tickState, "config_expiry"))
	}
}

// A session that holds locks on heartbeat rows does not prevent a host from stopping.
func TestHostStopsBesideALock(t *testing.T) {
	c := newCore(t)
	host := c.as("dot_executor")
	hostRuns(t, host, "a", instanceA, "{config_expiry}")
	tx := c.begin(c.root)
	_, err := tx.Exec(t.Context(), "SELECT 1 FROM public.queue_heartbeat FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, true, call(t, host, "public.fn_queue_host_stop('a', "+instanceA+", 'SIGTERM')")["stopped"])
}

// An executor is stopped once no host works as it any more, whichever way its hosts stop.
func TestExecutorOfTwoHosts(t *testing.T) {
	c := newCore(t)
	c.executor("kg", 60, 300, 1)
	host := c.wide(2, "dot_executor")
	ids := []string{"a", "b"}
	begin := func() {
		for i, instance := range []string{instanceA, instanceB} {
			require.Nil(t, call(t, host, "public.fn_queue_host_register('"+ids[i]+"', "+instance+", 'v', '{}')")["refused"])
			call(t, host, "public.fn_queue_host_beat('"+ids[i]+"', "+instance+`, '{job_executor}', 0, '{"job_executor": {"executor": "kg"}}')`)
		}
		call(t, host, `public.fn_queue_heartbeat_write('kg', '{"state": "working"}', 'a/00000000')`)
	}
	loopEnds := func(id string) {
		call(t, host, `public.fn_queue_heartbeat_write('kg', '{"state": "stopped"}', $1)`, id+"/00000000")
	}
	stop := func(i int) (map[string]any, error) {
		return tryCall(host, "public.fn_queue_host_stop("+[]string{"'a', " + instanceA, "'b', " + instanceB}[i]+", 'SIGTERM')")
	}
	begin()
	loopEnds("a")
	_, err := stop(0)
	require.NoError(t, err)
	require.Equal(t, "idle", get[string](c, tickState, "kg"), "host b works as it")
	loopEnds("b")
	require.Equal(t, "stopped", get[string](c, tickState, "kg"))

	begin()
	loopEnds("a")
	loopEnds("b")
	require.Equal(t, "idle", get[string](c, tickState, "kg"), "both rows stand yet")
	call(t, host, "public.fn_queue_host_beat('b', "+instanceB+", '{config_expiry}', 0, '{}')")
	require.Equal(t, "idle", get[string](c, tickState, "kg"))
	_, err = stop(0)
	require.NoError(t, err)
	require.Equal(t, "stopped", get[string](c, tickState, "kg"))

	// Both at once: the second to stop waits for the first for half a second, which is repeated
	// because a busy machine may take longer.
	state := ""
	for try := 0; state != "stopped" && try < 10; try++ {
		begin()
		loopEnds("a")
		loopEnds("b")
		tx := c.begin(host)
		_, err = tx.Exec(t.Context(), "SELECT public.fn_queue_host_stop('a', "+instanceA+", 'SIGTERM')")
		require.NoError(t, err)
		second := meanwhile(t, host, c.root, tx, "public.fn_queue_host_stop('b', "+instanceB+", 'SIGTERM')")
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, true, second.got(t)["stopped"])
		state = get[string](c, tickState, "kg")
	}
	require.Equal(t, "stopped", state, "the second to stop sees that the first has stopped")
}

// The retention deletes hosts that have not been seen for 30 days, but never the last one.
func TestRetentionOfHosts(t *testing.T) {
	c := newCore(t)
	hosts := func() string {
		return get[string](c, "SELECT string_agg(host_id, ' ' ORDER BY host_id) FROM public.queue_host")
	}
	c.exec(`INSERT INTO public.queue_host (host_id, instance, last_seen_at, stopped_at) SELECT h, gen_random_uuid(), now() - make_interval(days => d), now() - make_interval(days => d)
		FROM (VALUES ('year', 365), ('month', 31)) v (h, d)`)
	require.EqualValues(t, 1, call(t, c.root, "public.fn_queue_retention_sweep()")["hosts"])
	require.Equal(t, "month", hosts())
	c.exec("INSERT INTO public.queue_host (host_id, instance, last_seen_at) VALUES ('lately', gen_random_uuid(), now() - interval '29 days')")
	require.EqualValues(t, 1, call(t, c.root, "public.fn_queue_retention_sweep()")["hosts"])
	require.Equal(t, "lately", hosts())
}

// A host whose lists are too long for its row is alive, without these lists.
func TestHostWithLongLists(t *testing.T) {
	c := newCore(t)
	dot := c.as("dot_executor")
	id := get[string](c, newUUID)
	call(t, dot, "public.fn_queue_host_register('h', $1, 'v', '{}')", id)
	c.exec("UPDATE public.queue_host SET last_seen_at = now() - interval '1 minute'")
	for _, list := range []struct {
		secrets, kinds int
		want           string
	}{{3, 3, "3 3"}, {1450, 3, "- 3"}, {3, 1450, "- -"}} {
		call(t, dot, `public.fn_queue_host_beat('h', $1, '{webhook_worker,job_executor}', 0, jsonb_build_object(
			'webhook_worker', jsonb_build_object('secrets', (SELECT jsonb_agg('tenant-' || gen_random_uuid()) FROM generate_series(1, $2::int))),
			'job_executor', jsonb_build_object('executor', 'e', 'kinds', (SELECT jsonb_agg('tenant-' || gen_random_uuid()) FROM generate_series(1, $3::int)))))`,
			id, list.secrets, list.kinds)
		require.Equal(t, list.want+" e", get[string](c, `SELECT concat_ws(' ', COALESCE(jsonb_array_length(progress #> '{webhook_worker,secrets}')::text, '-'),
			COALESCE(jsonb_array_length(progress #> '{job_executor,kinds}')::text, '-'), progress #>> '{job_executor,executor}') FROM public.queue_host`))
	}
	require.True(t, get[bool](c, "SELECT last_seen_at > now() - interval '15 seconds' AND cardinality(loops) = 2 FROM public.queue_host"))
}
