// Rows that were loaded without triggers are counted, shown and claimed after a recount, even if
// other sessions write meanwhile.

package schema_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// load runs statements without triggers, as logical replication does on a subscriber.
func (h *hooks) load(sqls ...string) {
	h.t.Helper()
	require.NoError(h.t, pgx.BeginFunc(context.Background(), h.root, func(tx pgx.Tx) error {
		for _, sql := range append([]string{"SET LOCAL session_replication_role = replica"}, sqls...) {
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		return nil
	}))
}

// exact requires that counters and derived rows agree with the tables.
func (h *hooks) exact() {
	h.t.Helper()
	require.Empty(h.t, one[string](h, "SELECT COALESCE(string_agg(d::text, ' '), '') FROM public.fn_queue_counter_drift(NULL) d"))
	h.counted()
}

func TestRecountUnderLoad(t *testing.T) {
	h := newHooks(t)
	j := &jobs{core: &core{t: t, db: h.db, root: h.root}, work: h.db.Pool(t, pgtest.Login(t, h.db, "event_ingest_writer", "dot_executor", "workflow_admin"))}
	admin := h.db.Pool(t, pgtest.Login(t, h.db, "workflow_admin"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for range 4 {
		h.subscribe("order")
	}
	h.flag("webhook.max_attempts", "2")
	j.jobSubscription("x1", "", "", 0, 1000)
	j.put("stormy", "iu", 1) // opens the queue lane of these jobs
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for w := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for !stop.Load() {
				if err := h.anything(rng); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			if _, err := j.work.Exec(context.Background(), "SELECT public.fn_job_enqueue('stormy', 'iu', 'external_worker')"); err != nil {
				errs <- err
				return
			}
			if _, err := j.work.Exec(context.Background(), "SELECT public.fn_queue_counter_compact()"); err != nil {
				errs <- err
				return
			}
			hs, err := tryTake(j.work, "x1", []string{"stormy"}, 5, nil)
			if err == nil && len(hs) > 0 {
				_, err = tell(context.Background(), j.work, "ack", hs...)
			}
			if err != nil {
				errs <- err
				return
			}
		}
	})
	recount := func() map[string]any {
		got, err := tryCall(admin, "public.fn_queue_recount('ann', 'loaded', false)")
		require.NoError(t, err)
		return got
	}
	h.load(
		`INSERT INTO public.job_queue (job_kind, event_domain, executor) SELECT 'loaded', 'kg', 'external_worker' FROM generate_series(1, 20)`,
		`INSERT INTO public.job_queue (job_kind, event_domain, executor) SELECT 'stormy', 'iu', 'external_worker' FROM generate_series(1, 20)`,
		`INSERT INTO public.subscriptions (id, event_type, callback_url, verified) OVERRIDING SYSTEM VALUE VALUES (100, 'loaded', 'http://127.0.0.1:1/hook', true)`,
		`INSERT INTO public.events (id, event_type, payload) OVERRIDING SYSTEM VALUE SELECT 1000000 + i, 'loaded', '{}' FROM generate_series(1, 20) i`,
		`INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) SELECT 1000000 + i, 100 FROM generate_series(1, 10) i`,
		`INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id, status, attempt_count, next_attempt_at, final_error_code)
			SELECT 1000000 + i, 100, 'DeadLettered', 1, NULL, 'TIMEOUT' FROM generate_series(11, 20) i`,
		`INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot)
			SELECT id, event_id, 100, 'TIMEOUT', '{}' FROM public.webhook_delivery_sagas WHERE event_id > 1000010`,
		`INSERT INTO public.dead_letter_open SELECT 2000000, 'TIMEOUT', 100, now()`, // an entry without its dead letter
	)
	dry, err := tryCall(admin, "public.fn_queue_recount('ann', NULL, true)")
	require.NoError(t, err)
	require.EqualValues(t, []any{1.0, 11.0, 1.0, 1.0}, []any{dry["job_lane"], dry["dead_letter_open"], dry["webhook_endpoint_state"], dry["webhook_rate_bucket"]})
	require.GreaterOrEqual(t, num(dry, "counters"), 4)
	answers := together(t, 4, func(int) (map[string]any, error) {
		return tryCall(admin, "public.fn_queue_recount('ann', 'loaded', false)")
	})
	require.Equal(t, 1, count(answers, "job_lane", 1.0), "of several at once one corrects")
	for range 5 {
		require.Zero(t, num(recount(), "counters"), "counters stay exact while others write")
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	h.exact()
	j.balanced()
	require.Equal(t, 9, one[int](h, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'recount' AND reason = 'loaded'"))

	// loaded jobs can now be claimed
	hs, err := tryTake(j.work, "x1", []string{"loaded"}, 100, nil)
	require.NoError(t, err)
	require.Len(t, hs, 20)
	h.exec("DELETE FROM public.webhook_endpoint_suspensions")
	h.exec("DELETE FROM public.webhook_slow_start") // the load made a backlog for this endpoint too
	eventually(t, "every saga that was loaded is sent", func() bool {
		h.call("public.fn_saga_orchestrator_run(10000)")
		h.claim(10000)
		return one[bool](h, `SELECT bool_and(EXISTS (SELECT FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id AND j.started_at IS NOT NULL))
			FROM public.webhook_delivery_sagas s WHERE s.event_id BETWEEN 1000001 AND 1000010`)
	})
	h.exact()
}

// A recount waits for no session that only reads or writes rows. In a transaction with an old
// snapshot it is refused, since it would count rows twice.
func TestRecountLocks(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 2)
	h.load("DELETE FROM public.dead_letter_open", "DELETE FROM public.queue_counter", "DELETE FROM public.queue_counter_recent")
	writer, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = writer.Exec(t.Context(), "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}'); SELECT public.fn_job_enqueue('k', 'kg', 'Agent'), public.fn_webhook_router_run()")
	require.NoError(t, err)
	tx, err := h.root.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT public.fn_queue_recount('ann', 'r', false)")
	refused(t, "25001", err, "an old snapshot")
	require.NoError(t, tx.Rollback(t.Context()))
	h.exec("SET lock_timeout = '1ms'; SELECT public.fn_queue_recount('ann', 'r', false); RESET lock_timeout")
	require.NoError(t, writer.Commit(t.Context()))
	require.Len(t, deadLetters, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	h.exact()
	_, err = h.root.Exec(t.Context(), "DELETE FROM public.dead_letter_open")
	refused(t, "42501", err, "by hand")

	require.Equal(t, "job_queue", one[string](h, "SELECT scope FROM public.fn_queue_counter_drift(1) WHERE scope = 'job_queue' AND found IS NULL"), "larger than one byte: not compared")
	h.load("INSERT INTO public.job_queue (job_kind, event_domain, executor) VALUES ('k', 'kg', 'Agent')")
	require.Equal(t, "kg 2 1", one[string](h, "SELECT concat_ws(' ', k2, found, counted) FROM public.fn_queue_counter_drift(1000000) WHERE scope = 'job'"))
}

// Leases that a partial restore left out, or brought in an older state, are written again as their
// jobs say: who holds a token goes on, and the other jobs run again once their lease is over.
func TestRecountWritesLeases(t *testing.T) {
	j := newJobs(t)
	wide := j.jobSubscription("w", "k", "", 0, 1000)
	j.jobSubscription("gone", "left", "", 0, 1000)
	j.put("k", "iu", 6)
	j.put("left", "kg", 1)
	held, dead := j.take("w", 3), j.take("w", 3)
	left := j.one("gone")
	require.Equal(t, "done", j.outcome("start", held...))
	j.exec("UPDATE public.job_queue SET lease_until = now() - interval '1 second' WHERE lease_token = ANY ($1)", []string{dead[0].Token, left.Token})
	j.exec("DELETE FROM public.job_lease")
	j.exec("DELETE FROM public.job_subscription WHERE executor_id = 'gone'")
	require.EqualValues(t, 0, j.reap()["reaped"], "without their lease nobody returns them")
	require.Equal(t, "job_lease 3", get[string](j.core, "SELECT concat_ws(' ', scope, found) FROM public.fn_queue_counter_drift(NULL)"))
	recount := func(want int) {
		t.Helper()
		require.EqualValues(t, want, call(t, j.work, "public.fn_queue_recount('ann', 'restored', false)")["job_lease"])
	}

	working := j.begin(j.work) // a worker is reporting while the recount runs
	_, err := tell(t.Context(), working, "ack", held[0])
	require.NoError(t, err)
	recount(3)
	require.NoError(t, working.Commit(t.Context()))
	recount(1)
	j.balanced()
	require.Equal(t, 2, get[int](j.core, "SELECT live FROM public.job_lease WHERE subscription_id = $1 AND lease_until > now()", wide))
	require.Equal(t, "done", j.outcome("renew", held[1]))
	require.Equal(t, "done", j.outcome("ack", held[1:]...))
	require.EqualValues(t, 4, j.reap()["returned"])
	require.Equal(t, "lease_lost", j.outcome("ack", dead...))
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_lease"))

	// leases of an older state
	j.put("k", "iu", 1)
	held = j.take("w", 3)
	more := j.one("w")
	j.exec("UPDATE public.job_lease SET live = 1, job_ids = job_ids[1:1] WHERE lease_token = $1", held[0].Token)
	j.exec("INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live) VALUES (gen_random_uuid(), 'w', $1, 'infinity', ARRAY[gen_random_uuid()], 1)", wide)
	recount(2)
	recount(0)
	j.balanced()
	require.Equal(t, "done", j.outcome("ack", held...))
	require.Equal(t, "done", j.outcome("ack", more))
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_lease"))
}
