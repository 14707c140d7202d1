package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// Status and doctor name the tick workers that nobody runs, with the reason,
// before these workers count as silent. The doctor also finds the lease of the
// notification worker.
func TestStatusNamesWhatNobodyTicks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t, "")
	exec := func(sql string) {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	login := operator(t, db)
	status := func() (st statusJSON) {
		out, _ := qtop(t, db.DSN(login), "status", "-o", "json").Output()
		require.NoError(t, json.Unmarshal(out, &st), "%s", out)
		return st
	}
	exec("UPDATE public.queue_heartbeat SET last_beat_at = pg_catalog.now()")
	require.Empty(t, status().NotTicked, "no host at all is said by itself")
	exec(`INSERT INTO public.queue_host (host_id, instance, last_seen_at, loops) SELECT 'h', pg_catalog.gen_random_uuid(), pg_catalog.clock_timestamp() + interval '4 seconds', pg_catalog.array_agg(worker_name)
		FROM public.queue_tick_worker WHERE worker_name <> 'lease_reaper'`)
	st := status()
	require.Equal(t, "warning", st.Health)
	require.Len(t, st.NotTicked, 1)
	require.Equal(t, "lease_reaper: no live host runs it", joined(st.NotTicked[0].Workers)+": "+st.NotTicked[0].Why.String())
	out, _ := qtop(t, db.DSN(login), "status").Output()
	require.Contains(t, string(out), "NOT TICKED lease_reaper · no live host runs it\n")
	exec("UPDATE public.queue_host SET last_seen_at = pg_catalog.clock_timestamp() + interval '4 seconds'") // live for 15 s
	exec("UPDATE public.dot_config SET value = 'pg_cron' WHERE key = 'queue.scheduler.mode'")
	st = status()
	require.Len(t, st.NotTicked, 1)
	require.Len(t, st.NotTicked[0].Workers, 6)
	out, _ = qtop(t, db.DSN(login), "doctor").Output()
	require.Regexp(t, `not ticked .*iu_notification_worker, .*queue.scheduler.mode is pg_cron, and `, string(out))
	out, _ = qtop(t, db.DSN(login), "doctor", "--staging").Output()
	require.Contains(t, string(out), "worker_exception_safe=true")
}
