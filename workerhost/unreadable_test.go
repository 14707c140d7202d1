package workerhost_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// longAsText is a payload of 2.5 kB as jsonb, whose text form has 1.2 GB.
const longAsText = "jsonb_build_object('n', (SELECT jsonb_agg('1e131000'::numeric) FROM generate_series(1, 9000)))"

// asOlderRelease runs a statement without triggers, and so without the limit
// on the length of payloads, which older releases did not have.
func (w *world) asOlderRelease(sql string) {
	w.t.Helper()
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), "SET LOCAL session_replication_role = replica")
		if err == nil {
			_, err = tx.Exec(w.t.Context(), sql)
		}
		return err
	}))
}

// A webhook whose payload the database cannot return becomes a dead letter at once, with the
// cause. Other webhooks are delivered, and the endpoint does not count as failing.
func TestUnreadablePayloadOfWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "webhook.circuit_failures", "1")
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	w.asOlderRelease("INSERT INTO public.events (event_type, payload) VALUES ('order', " + longAsText + ")")
	w.asOlderRelease("INSERT INTO public.events (event_type, payload) SELECT 'order', jsonb_build_object('n', jsonb_agg(1e300::numeric / g)) FROM generate_series(1, 2000) g")
	w.events("order", 20)
	h := w.run(workerhost.Options{})
	w.becomes(21, completed)
	w.becomes(1, "SELECT count(*)::int FROM public.dead_letters WHERE final_error_code = 'PROTOCOL_ERROR'")
	require.Equal(t, 1, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE error_code = 'PROTOCOL_ERROR' AND response_excerpt LIKE 'not sent: as text the payload is longer%'"))
	require.Zero(t, w.int("SELECT count(*)::int FROM public.webhook_endpoint_suspensions"), "the endpoint knows nothing of it")
	require.Equal(t, 21, r.count())
	require.NoError(t, h.stop())
}

// A job whose payload the database cannot return becomes a dead letter at once too.
func TestUnreadablePayloadOfJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	executor(t, w.admin, "ex", "k", 10)
	w.set("queue.job_substrate.enabled", "true")
	w.asOlderRelease("SELECT public.fn_job_enqueue('k', 'system', 'DOT', " + longAsText + ", 900)") // first of all jobs in the queue
	for range 5 {
		w.exec("SELECT public.fn_job_enqueue('k', 'system', 'DOT', jsonb_build_object('text', repeat('x', 100000)))")
	}
	done := make(chan int, 100)
	h := w.run(workerhost.Options{Executor: "ex", Handlers: map[string]handler.Handler{"k": handler.Func(func(_ context.Context, j handler.Job) error {
		done <- len(j.Payload)
		return nil
	})}})
	eventually(t, func() bool { return len(done) == 5 }, "the others do not run")
	for range 5 {
		require.Greater(t, <-done, 100000)
	}
	w.becomes(1, "SELECT count(*)::int FROM public.job_history WHERE status = 'failed' AND failure_code = 'PAYLOAD_UNREADABLE' AND last_error LIKE '%not run: as text the payload is longer%'")
	require.NoError(t, h.stop())
}

// A job whose payload cannot be read at present is handed back, said, and claimed again after pauses that grow: no
// attempt is counted. It runs once its payload can be read.
func TestPayloadThatCannotBeReadAtPresent(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	w.exec("CREATE SEQUENCE public.reads")
	w.exec("GRANT ALL ON SEQUENCE public.reads TO PUBLIC")
	whole := w.text("SELECT pg_get_functiondef('public.fn_job_payload'::regproc)")
	w.exec(strings.Replace(whole, "BEGIN", "BEGIN PERFORM nextval('public.reads'); RAISE EXCEPTION 'out of memory' USING ERRCODE = '53200';", 1))
	s := &seen{}
	h := w.jobs(workerhost.Options{}, map[string]handler.Handler{"k": s})
	began := time.Now()
	w.exec("SELECT public.fn_job_enqueue('k', 'work', 'DOT', jsonb_build_object('text', repeat('x', 100000)), p_max_attempts => 1)")
	eventually(t, func() bool { return w.int("SELECT (last_value - 1 + is_called::int)::int FROM public.reads") >= 4 }, "it is not tried again")
	require.Greater(t, time.Since(began), 1750*time.Millisecond, "without pauses of 250, 500 and 1000 ms")
	eventually(t, func() bool { return strings.Contains(h.status("job_executor").LastErr.String(), "out of memory") }, "the loop does not say it")
	w.exec(whole)
	w.becomes(1, jobsOf, "succeeded")
	require.Equal(t, 1, s.count())
	require.Equal(t, "0 0", w.text("SELECT attempts || ' ' || lost_leases FROM public.job_history"))
}

// A job for whose payload there is no room is handed back after a second: short jobs run in its slot. It runs when
// there is room.
func TestPayloadWithoutRoomKeepsNoSlot(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	w.exec("UPDATE public.dot_config SET value = '999999999' WHERE key = 'queue.payload.max_bytes'")
	enqueue := func(kind string, bytes int) {
		w.exec("SELECT public.fn_job_enqueue($1, 'work', 'DOT', jsonb_build_object('text', repeat('x', $2::int)), p_max_attempts => 1)", kind, bytes)
	}
	end := make(chan struct{})
	long, other, short := &seen{then: func(context.Context, handler.Job) error { <-end; return nil }}, &seen{}, &seen{}
	h := w.jobs(workerhost.Options{Concurrency: 2}, map[string]handler.Handler{"long": long, "other": other, "short": short})
	enqueue("long", 17_000_000) // fills the memory for payloads
	eventually(t, func() bool { return long.count() == 1 }, "it does not run")
	enqueue("other", 100_000)
	eventually(t, func() bool {
		return strings.Contains(h.status("job_executor").LastErr.String(), "another long payload")
	}, "the loop does not say it")
	enqueue("short", 10)
	w.becomes(1, jobsOf, "succeeded")
	require.Equal(t, 1, short.count())
	close(end)
	w.becomes(3, jobsOf, "succeeded")
	require.Equal(t, []int{1, 1}, []int{long.count(), other.count()})
	require.Equal(t, "0 0", w.text("SELECT max(attempts) || ' ' || max(lost_leases) FROM public.job_history"))
}

// damage removes what a table stores of long values apart from its rows, as a damaged disk does.
func (w *world) damage(table string) {
	w.t.Helper()
	w.exec(`DO $$
		DECLARE v_toast oid;
		BEGIN
			SET LOCAL allow_system_table_mods = on;
			FOR v_toast IN SELECT c.reltoastrelid FROM pg_class c WHERE c.reltoastrelid <> 0
				AND (c.oid = 'public.` + table + `'::regclass OR c.oid IN (SELECT p.relid FROM pg_partition_tree('public.` + table + `') p)) LOOP
				UPDATE pg_class SET relkind = 'r' WHERE oid = v_toast; -- PostgreSQL refuses to change rows of a TOAST table
				EXECUTE format('TRUNCATE %s', v_toast::regclass); -- rows that are deleted can be read until VACUUM
				UPDATE pg_class SET relkind = 't' WHERE oid = v_toast;
			END LOOP;
		END $$`)
}

// storedApart is a payload of 4 kB that is stored apart from its row, and not compressed.
const storedApart = "jsonb_build_object('t', (SELECT string_agg(md5(g || ' ' || random()), '') FROM generate_series(1, 125) g))"

// The payloads of some jobs are damaged: each of these jobs fails with the error, is cancelled, or ends when its lease
// is lost, and the other jobs of the executor run.
func TestDamagedPayloadOfJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	executor(t, w.admin, "ex", "k", 10)
	w.set("queue.job_substrate.enabled", "true")
	enqueue := func(kind string, most int) string {
		return w.text("SELECT public.fn_job_enqueue($1, 'system', 'DOT', "+storedApart+", 900, p_max_attempts => $2) ->> 'job_id'", kind, most)
	}
	// first of all jobs in the queue
	lost := enqueue("k", 2)
	w.exec("SELECT public.fn_job_claim('ex')")
	w.exec("UPDATE public.job_queue SET lost_leases = 2, lease_until = now() - interval '1 hour'")
	w.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 hour'")
	retried, failed, cancelled := enqueue("k", 2), enqueue("k", 1), enqueue("other", 2)
	w.damage("job_queue")
	for range 5 {
		enqueue("k", 5)
	}
	done := make(chan int, 100)
	h := w.run(workerhost.Options{Executor: "ex", Handlers: map[string]handler.Handler{"k": handler.Func(func(_ context.Context, j handler.Job) error {
		done <- len(j.Payload)
		return nil
	})}})
	eventually(t, func() bool { return len(done) == 5 }, "the others do not run")
	for range 5 {
		require.Greater(t, <-done, 4000)
	}
	w.becomes(1, "SELECT count(*)::int FROM public.job_queue WHERE job_id = '"+retried+"' AND status = 'retry_waiting' AND failure_code = 'PAYLOAD_UNREADABLE' AND last_error LIKE '%missing chunk%'")
	for _, id := range []string{failed, lost} {
		w.becomes(1, "SELECT count(*)::int FROM public.job_history WHERE job_id = '"+id+"' AND status = 'failed' AND failure_code = 'PAYLOAD_UNREADABLE' AND payload = '{}' AND last_error LIKE 'the payload cannot be read and is not kept: missing chunk%'")
	}
	w.exec("SELECT public.fn_job_cancel(ARRAY[$1::uuid], 'anna', 'damaged')", cancelled)
	w.becomes(1, "SELECT count(*)::int FROM public.job_history WHERE job_id = '"+cancelled+"' AND status = 'cancelled' AND payload = '{}'")
	require.Equal(t, "0", w.text("SELECT count(*) FROM public.job_dead_letter"))
	require.NoError(t, h.stop())
}

// The payload of one event is damaged: the other webhooks are delivered.
func TestDamagedPayloadOfWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	w.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', " + storedApart + ")")
	w.damage("events")
	w.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', " + storedApart + ")")
	w.events("order", 20)
	h := w.run(workerhost.Options{})
	w.becomes(21, completed)
	w.becomes(1, "SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE error_code = 'PROTOCOL_ERROR' AND response_excerpt LIKE 'not sent: %missing chunk%'")
	require.Equal(t, 21, r.count())
	require.NoError(t, h.stop())
}
