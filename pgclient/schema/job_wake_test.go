// Wake signals of jobs: none while the bridge is off, one per domain and statement while it is on,
// none for a producer that sends its own.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// woken returns the payloads of the signals by channel.
func woken(t *testing.T, got []*pgconn.Notification) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, n := range got {
		require.NotContains(t, out, n.Channel, "one per channel")
		var p map[string]any
		require.NoError(t, json.Unmarshal([]byte(n.Payload), &p))
		require.Equal(t, n.Channel, fmt.Sprint("queue_wake_", p["event_domain"]), "a signal says for which domain")
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(p["occurred_at"]))
		require.NoError(t, err, "and when")
		require.WithinDuration(t, time.Now(), at, time.Hour)
		out[n.Channel] = p
	}
	return out
}

const manyJobs = `public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'k', 'event_domain', (ARRAY['iu', 'kg'])[1 + i % 2],
	'executor', 'external_worker', 'payload', '{"n": 1}'::jsonb)) FROM generate_series(1, 100) i))`

func TestJobWakeOff(t *testing.T) {
	j := newJobs(t)
	conn := j.ear()
	call(t, j.work, manyJobs)
	call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() + '1 hour')")
	j.exec("UPDATE public.job_queue SET process_after = now() WHERE NOT ready")
	call(t, j.work, "public.fn_job_tick()")
	j.jobSubscription("w", "", "", 0, 100)
	j.take("w", 5)
	j.expire()
	j.reap()
	require.Empty(t, j.heard(conn))
}

// A signal says how many jobs of the statement become due later, so that a host looks at them although others of them
// are due already.
func TestJobWakeCountsDelayed(t *testing.T) {
	j := newJobs(t)
	setFlag(t, j.work, "queue.notify.bridge_enabled", "true")
	conn := j.ear()
	call(t, j.work, `public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "external_worker"},
		{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "process_after": "2099-01-01"}]')`)
	got := woken(t, j.heard(conn))["queue_wake_iu"]
	require.EqualValues(t, []any{2.0, 1.0}, []any{got["count"], got["delayed"]})
}

func TestJobWakeOn(t *testing.T) {
	j := newJobs(t)
	conn := j.ear()
	setFlag(t, j.work, "queue.notify.bridge_enabled", "true")
	j.heard(conn)
	call(t, j.work, manyJobs)
	got := woken(t, j.heard(conn))
	require.Len(t, got, 2)
	for _, domain := range []string{"iu", "kg"} {
		p := got["queue_wake_"+domain]
		require.EqualValues(t, 50, p["count"])
		require.Equal(t, []any{"job", "k", "job_executor"}, []any{p["layer"], p["job_kind"], p["worker_hint"]})
		for _, key := range []string{"layer", "job_id", "job_kind", "process_after", "delayed", "worker_hint", "count"} {
			require.Contains(t, p, key)
		}
		require.NotContains(t, p, "payload", "a signal carries no content")
		require.Equal(t, domain, get[string](j.core, "SELECT event_domain FROM public.job_queue WHERE job_id = $1", p["job_id"]))
	}
	// A writer that sends its own wake signal: the bridge sends none for it.
	require.NoError(t, pgx.BeginFunc(context.Background(), j.work, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), "SET LOCAL qtop.doorbell = 'on'"); err != nil {
			return err
		}
		_, err := tx.Exec(context.Background(), "SELECT "+manyJobs)
		return err
	}))
	require.Empty(t, j.heard(conn))
	call(t, j.work, "public.fn_queue_doorbell('iu')")
	require.Len(t, woken(t, j.heard(conn)), 1)

	// Jobs that become due, and jobs whose lease is returned, are signalled too.
	call(t, j.work, "public.fn_job_enqueue('k', 'kg', 'external_worker', p_process_after => now() + '1 hour')")
	j.heard(conn)
	call(t, j.work, "public.fn_job_tick()")
	require.Empty(t, j.heard(conn), "nothing was due")
	j.exec("UPDATE public.job_queue SET process_after = now() WHERE NOT ready")
	call(t, j.work, "public.fn_job_tick()")
	got = woken(t, j.heard(conn))
	require.Len(t, got, 1)
	require.EqualValues(t, 1, got["queue_wake_kg"]["count"])
	require.Equal(t, "job", got["queue_wake_kg"]["layer"])
	j.jobSubscription("w", "", "iu", 0, 100)
	j.take("w", 7)
	j.heard(conn)
	j.expire()
	j.reap()
	got = woken(t, j.heard(conn))
	require.EqualValues(t, 7, got["queue_wake_iu"]["count"])
	deadLetter := j.deadLetter("dead", "kg", "TIMEOUT")
	j.heard(conn)
	call(t, j.work, replay, []string{deadLetter}, "ann")
	require.Contains(t, woken(t, j.heard(conn)), "queue_wake_kg", "a replayed job wakes too")
}

// Jobs are written even if the function that sends wake signals fails.
func TestJobWakeNeverRaises(t *testing.T) {
	j := newJobs(t)
	j.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'queue.notify.bridge_enabled'")
	j.exec("CREATE OR REPLACE FUNCTION public.fn_queue_wake(p_channel text, p_payload jsonb) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'broken'; END $$")
	call(t, j.work, manyJobs)
	require.Equal(t, 100, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
	j.balanced()
}
