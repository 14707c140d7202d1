// A webhook event is deleted with all its rows when its retention is over, and its content can be
// erased before; nothing else changes or deletes these rows.

package schema_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// backdate makes webhook rows older, which no role can do.
func (h *hooks) backdate(age string) {
	h.t.Helper()
	require.NoError(h.t, pgx.BeginFunc(context.Background(), h.root, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `SET LOCAL session_replication_role = replica;
			UPDATE public.events SET created_at = created_at - interval '`+age+`';
			UPDATE public.webhook_delivery_sagas SET updated_at = updated_at - interval '`+age+`';
			UPDATE public.dead_letter_resolutions SET at = at - interval '`+age+`'`)
		return err
	}))
}

// retain runs the sweep and returns how many events it deleted.
func (h *hooks) retain() int {
	h.t.Helper()
	h.route() // routes all events, since the sweep keeps unrouted ones
	got, err := tryCall(h.root, "public.fn_queue_retention_sweep()")
	require.NoError(h.t, err)
	require.Contains(h.t, got, "webhooks", got)
	return num(got, "webhooks")
}

// counted requires that the counters agree with the tables after rows are deleted.
func (h *hooks) counted() {
	h.t.Helper()
	for scope, sql := range map[string]string{
		"saga":         "SELECT subscription_id::text k1, status::text k2, count(*) n FROM public.webhook_delivery_sagas GROUP BY 1, 2",
		"webhook_job":  "SELECT status::text k1, '' k2, count(*) n FROM public.webhook_delivery_jobs GROUP BY 1",
		"dead_webhook": "SELECT final_error_code::text k1, subscription_id::text k2, count(*) n FROM public.dead_letter_open GROUP BY 1, 2",
	} {
		require.Zero(h.t, one[int](h, `SELECT count(*) FROM (`+sql+`) t FULL JOIN
			(SELECT k1, k2, n FROM public.v_queue_counter WHERE scope = $1 AND n <> 0) c USING (k1, k2) WHERE t.n IS DISTINCT FROM c.n`, scope), scope)
	}
	require.Zero(h.t, one[int](h, "SELECT count(*) FROM public.dead_letter_open o WHERE NOT EXISTS (SELECT FROM public.dead_letters d WHERE d.id = o.dead_letter_id)"))
}

// Settled events are deleted with all generations of their sagas. Events stay if a dead letter is
// open, a delivery is under way, an operation has one of their items, or if they are young or not
// routed.
func TestRetentionOfWebhooks(t *testing.T) {
	h := newHooks(t)
	sub, deadLetters := h.die("order", 6) // events 1 to 6
	answer := func(code string) {
		h.step()
		h.finish(code, h.claim(100)...)
		h.call("public.fn_saga_orchestrator_run(1000)")
	}
	h.requeue(deadLetters[0], deadLetters[1])
	answer("HTTP_500") // a second generation, dead too
	second := one[[]int64](h, "SELECT array_agg(id ORDER BY id) FROM public.dead_letters WHERE id <> ALL ($1)", deadLetters)
	h.requeue(second[0])
	answer("") // event 1: dead, dead, delivered; event 2: dead, open
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", []int64{deadLetters[2], deadLetters[4], deadLetters[5]})
	// event 3: resolved; event 4: open; event 5: resolved, but an item of a planned operation
	h.call("public.fn_queue_bulk_plan('resolve', $1, 'code:HTTP_500', 1, 0, 0, 'ann', 'r')", []string{strconv.FormatInt(deadLetters[4], 10)})
	h.emit("nobody", 1) // event 7: has no recipient
	h.emit("order", 1)  // event 8: under way
	h.step()
	h.backdate("25 hours")
	h.exec("SET session_replication_role = replica; UPDATE public.dead_letter_resolutions SET at = now() - interval '23 hours' WHERE dead_letter_id = " +
		strconv.FormatInt(deadLetters[5], 10) + "; RESET session_replication_role") // event 6: resolved within the day
	h.emit("nobody", 1) // event 9: young
	left := func() []int64 { return one[[]int64](h, "SELECT array_agg(id ORDER BY id) FROM public.events") }

	require.Zero(t, h.retain(), "0 days keep everything")
	h.flag("retention.webhooks_days", "2")
	require.Zero(t, h.retain())
	h.flag("retention.webhooks_days", "1")
	holder, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "SELECT 1 FROM public.dead_letters WHERE id = $1 FOR UPDATE", deadLetters[2])
	require.NoError(t, err)
	require.Equal(t, 2, h.retain(), "1 and 7; 3 is in somebody's hands")
	require.NoError(t, holder.Rollback(t.Context()))
	require.Equal(t, []int64{2, 3, 4, 5, 6, 8, 9}, left())
	require.Equal(t, 1, h.retain())
	require.Equal(t, []int64{2, 4, 5, 6, 8, 9}, left())
	h.call("public.fn_queue_bulk_abort(1, 'ann')")
	require.Equal(t, 1, h.retain())
	h.counted()
	h.finish("", h.claim(10)...)
	h.call("public.fn_saga_orchestrator_run(1000)")
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", []int64{deadLetters[3], second[1]})
	h.backdate("25 hours")
	require.Equal(t, 5, h.retain())
	require.Zero(t, one[int](h, `SELECT (SELECT count(*) FROM public.events) + (SELECT count(*) FROM public.webhook_delivery_sagas) + (SELECT count(*) FROM public.webhook_delivery_jobs)
		+ (SELECT count(*) FROM public.dead_letters) + (SELECT count(*) FROM public.dead_letter_requeues) + (SELECT count(*) FROM public.dead_letter_resolutions)`))
	h.counted()
	h.exec("SELECT public.fn_queue_counter_compact()")
	h.counted()
	require.NotZero(t, sub)
}

// An event older than its retention is kept whole while a later generation is young, here because
// its dead letter was requeued today, by a person or by an operation.
func TestRetentionOfWebhooksOverTheLine(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 3)
	h.backdate("25 hours")
	h.call("public.fn_queue_bulk_plan('requeue_webhook', $1, 'code:HTTP_500', 1000, 0, 0, 'ann', 'r')", []string{strconv.FormatInt(deadLetters[2], 10)})
	h.requeue(deadLetters[0], deadLetters[1])
	h.step()
	leases := h.claim(1)
	h.finish("", leases...)
	h.call("public.fn_saga_orchestrator_run(1000)")
	stays := func(why string) {
		t.Helper()
		for _, days := range []string{"0", "1"} {
			h.flag("retention.webhooks_days", days)
			require.Zero(t, h.retain(), "%s, %s days", why, days)
		}
		require.Equal(t, 3, one[int](h, "SELECT count(*)::int FROM public.events"))
	}
	stays("one was delivered today, one is under way, one is planned")
	h.call("public.fn_queue_bulk_run(1, 'ann')")
	eventually(t, "carried out", func() bool {
		h.exec("SELECT public.fn_queue_bulk_tick()")
		return one[int](h, "SELECT count(*)::int FROM public.dead_letter_requeues") == 3
	})
	stays("all are requeued")
	h.step()
	h.finish("HTTP_500", h.claim(10)...)
	h.call("public.fn_saga_orchestrator_run(1000)")
	second := one[[]int64](h, "SELECT array_agg(dead_letter_id) FROM public.dead_letter_open")
	require.Len(t, second, 2)
	stays("two are dead again")
	h.backdate("25 hours")
	h.flag("retention.webhooks_days", "1")
	require.Equal(t, 1, h.retain(), "what was delivered")
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", second)
	require.Zero(t, h.retain(), "resolved today")
	h.counted()
	h.backdate("25 hours")
	require.Equal(t, 2, h.retain())
	require.Zero(t, one[int](h, `SELECT (SELECT count(*) FROM public.events) + (SELECT count(*) FROM public.webhook_delivery_sagas) + (SELECT count(*) FROM public.webhook_delivery_jobs)
		+ (SELECT count(*) FROM public.dead_letters) + (SELECT count(*) FROM public.dead_letter_requeues) + (SELECT count(*) FROM public.dead_letter_resolutions)`))
	h.counted()
}

// Each run continues where the last one stopped, and starts again from the first event once it has
// passed the last old one.
func TestRetentionOfManyWebhooks(t *testing.T) {
	h := newHooks(t)
	h.emit("nobody", 2500)
	h.backdate("25 hours")
	h.emit("nobody", 1500)
	h.flag("retention.webhooks_days", "1")
	h.route()
	step := func(after int64) (next int64, over bool, deleted int64) {
		require.NoError(t, h.root.QueryRow(t.Context(), "SELECT * FROM public.fn_webhook_purge($1, now() - interval '1 day', '{}')", after).Scan(&next, &over, &deleted))
		return next, over, deleted
	}
	next, over, deleted := step(1500)
	require.Equal(t, []any{int64(2500), false, int64(1000)}, []any{next, over, deleted})
	next, over, deleted = step(next)
	require.Equal(t, []any{int64(3500), true, int64(0)}, []any{next, over, deleted})
	h.exec("UPDATE public.queue_tick_worker SET last_result = '{\"webhooks_after\": \"1000\"}' WHERE worker_name = 'retention_sweep'")
	for _, want := range []float64{500, 1000, 0} {
		got := h.tick("retention_sweep")
		require.Equal(t, []any{want, "0"}, []any{got["webhooks"], got["webhooks_after"]})
	}
}

// tick runs a tick worker and returns its result.
func (h *hooks) tick(worker string) map[string]any {
	h.t.Helper()
	got, err := tryCall(h.root, "public.fn_queue_tick_now($1, 'ann', 'r')", worker)
	require.NoError(h.t, err)
	require.Equal(h.t, true, got["ran"], got)
	return got["result"].(map[string]any)
}

// Operators act on dead letters while the sweep deletes them: each dead letter is deleted either
// completely or not at all, and no call fails.
func TestRetentionStorm(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 60)
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", deadLetters)
	h.backdate("25 hours")
	h.flag("retention.webhooks_days", "1")
	h.route()
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for _, expr := range []string{"public.fn_dead_letter_reopen($1, 'ann', 'storm')", "public.fn_dead_letter_requeue($1, 'ann', 'storm')", "public.fn_dead_letter_requeue_undo($1, 'ann', 'storm')", ""} {
		wg.Go(func() {
			for i := range deadLetters {
				var err error
				if expr == "" {
					_, err = tryCall(h.root, "public.fn_queue_retention_sweep()")
				} else {
					_, err = tryCall(h.work, expr, deadLetters[i:i+1])
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	h.counted()
	require.Zero(t, one[int](h, `SELECT count(*) FROM public.dead_letter_open o FULL JOIN (
		SELECT id FROM public.dead_letters d WHERE NOT EXISTS (SELECT 1 FROM public.dead_letter_requeues q WHERE q.dead_letter_id = d.id)
			AND NOT EXISTS (SELECT 1 FROM public.dead_letter_resolutions x WHERE x.dead_letter_id = d.id)) d ON d.id = o.dead_letter_id
		WHERE o.dead_letter_id IS NULL OR d.id IS NULL`))
}

// The content of an erased event is nowhere in a dump and is not sent again, and the record shows
// who erased it.
func TestEraseEvent(t *testing.T) {
	h := newHooks(t)
	const secret = "plum-tree-7141"
	admin := h.db.Pool(t, pgtest.Login(t, h.db, "workflow_admin", "dead_letter_operator", "queue_viewer"))
	h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET max_attempts = 1")
	_, err := h.work.Exec(t.Context(), `INSERT INTO public.events (event_type, payload) VALUES ('order', '{"who": "`+secret+`"}'), ('order', '{"who": "somebody else"}')`)
	require.NoError(t, err)
	dump := func() string { // every row of every table, and the output of pg_dump if it is installed
		rows, err := h.root.Query(t.Context(), `SELECT format('SELECT COALESCE(string_agg(x::text, '' ''), '''') FROM %s x', oid::regclass)
			FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
		require.NoError(t, err)
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		var all strings.Builder
		for _, sql := range tables {
			all.WriteString(one[string](h, sql))
		}
		if path, err := exec.LookPath("pg_dump"); err == nil && h.db.Server != nil {
			out, err := exec.CommandContext(t.Context(), path, "--dbname", h.db.DSN("")).CombinedOutput()
			require.NoError(t, err, "%s", out)
			all.Write(out)
		}
		return all.String()
	}
	attempt := func() {
		h.step()
		for _, l := range h.claim(10) {
			r := result(l, "HTTP_500")
			if strings.Contains(l.Payload, secret) {
				r["excerpt"] = "no such customer: " + secret
			}
			h.report(r)
		}
	}
	erase := func(id int, dry bool) map[string]any {
		got, err := tryCall(admin, "public.fn_webhook_event_erase($1, 'ann', 'request 12', $2)", id, dry)
		require.NoError(t, err)
		return got
	}
	attempt()
	for _, dry := range []bool{true, false} {
		require.Equal(t, "unsettled", erase(1, dry)["rule"], "its result is not settled yet")
	}
	h.call("public.fn_saga_orchestrator_run(1000)")
	h.requeue(1)
	require.Equal(t, "unsettled", erase(1, false)["rule"])
	attempt()
	h.call("public.fn_saga_orchestrator_run(1000)")
	for i := range 2 { // the payload is revealed, an operation is planned, and samples and a snapshot are taken
		_, err = tryCall(admin, "public.fn_payload_reveal('dead_letter', $1, 'ann', 'r')", strconv.Itoa(i+1))
		require.NoError(t, err)
	}
	h.call("public.fn_queue_bulk_plan('requeue_webhook', $1, 'code:HTTP_500', 100, 0, 0, 'ann', 'r')", []string{"3"})
	h.exec("SELECT public.fn_metrics_sampler_run(), public.fn_queue_snapshot('0')")
	require.Contains(t, dump(), secret)

	plan := erase(1, true)
	require.Equal(t, []any{2.0, 2.0, 2.0}, []any{plan["deliveries"], plan["dead_letters"], plan["excerpts"]})
	require.Contains(t, dump(), secret, "a dry run erases nothing")
	require.NotZero(t, erase(1, false)["audit_id"])
	require.NotContains(t, dump(), secret)
	require.Equal(t, "erased", erase(1, false)["rule"])
	require.Equal(t, "not_found", erase(77, true)["rule"])
	require.Equal(t, "ann", one[string](h, "SELECT erased_by FROM public.webhook_erasure WHERE event_id = 1"))
	require.Equal(t, `{"who": "somebody else"}`, one[string](h, "SELECT payload::text FROM public.events WHERE id = 2"))

	for _, dry := range []bool{true, false} {
		got := h.call("public.fn_dead_letter_requeue('{3}', 'ann', 'r', $1)", dry)
		require.Contains(t, results(t, got)[0]["why"], "erased by ann at ")
	}
	h.call("public.fn_queue_bulk_run(1, 'ann')")
	eventually(t, "carried out", func() bool {
		h.exec("SELECT public.fn_queue_bulk_tick()")
		return one[bool](h, "SELECT outcome IS NOT NULL FROM public.queue_bulk_operation_item")
	})
	require.Contains(t, one[string](h, "SELECT outcome || ' ' || why FROM public.queue_bulk_operation_item"), "skipped the event was erased by ann at ")
	refused(t, "42501", h.asOwner("INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) VALUES (1, 1)"), "no saga of an erased event")
	h.call("public.fn_dead_letter_resolve('{3}', 'abandoned', '', 'ann')")
	h.counted()

	// no other statement may change these columns, even as the owner
	for _, sql := range []string{"UPDATE public.events SET payload = '{}'", "UPDATE public.dead_letters SET payload_snapshot = '{}'",
		"UPDATE public.webhook_delivery_jobs SET response_excerpt = NULL", "DELETE FROM public.webhook_delivery_jobs", "DELETE FROM public.webhook_delivery_sagas",
		"DELETE FROM public.dead_letters", "DELETE FROM public.events", "DELETE FROM public.dead_letter_requeues"} {
		_, err := h.root.Exec(t.Context(), sql)
		refused(t, "42501", err, sql)
		refused(t, "42501", h.asOwner(sql), sql)
	}
	// an orchestrator's own function with the same name and arguments is refused
	orchestrator := pgtest.Login(t, h.db, "saga_orchestrator")
	pool := h.db.Pool(t, orchestrator)
	h.exec("CREATE SCHEMA mine AUTHORIZATION " + orchestrator)
	_, err = pool.Exec(t.Context(), `CREATE FUNCTION mine.fn_webhook_event_erase(a bigint, b text, c text, d boolean) RETURNS void LANGUAGE plpgsql AS
		'BEGIN UPDATE public.webhook_delivery_jobs SET response_excerpt = NULL; END'`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SELECT mine.fn_webhook_event_erase(1, '', '', false)")
	refused(t, "42501", err, "a function of the same signature")

	h.backdate("25 hours")
	h.flag("retention.webhooks_days", "1")
	require.Equal(t, 1, h.retain(), "event 2 has an open dead letter")
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_erasure"))
}

// oldLeaf makes the partition of job_history for the day so many days ago, with that many rows.
func (j *jobs) oldLeaf(days, rows int) {
	j.t.Helper()
	j.exec(fmt.Sprintf(`SET statement_timeout = 0; DO $$ DECLARE d date := (now() AT TIME ZONE 'UTC')::date - %d; BEGIN
		EXECUTE format('CREATE TABLE public.job_history_%%s PARTITION OF public.job_history FOR VALUES FROM (%%L) TO (%%L)', to_char(d, 'YYYY_MM_DD'), d || ' 00:00Z', d + 1 || ' 00:00Z');
		EXECUTE format('ALTER TABLE public.job_history_%%s OWNER TO queue_owner', to_char(d, 'YYYY_MM_DD'));
		INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
		SELECT gen_random_uuid(), 'old', 'iu', 'DOT', 'failed', 'leased', d::timestamp AT TIME ZONE 'UTC' FROM generate_series(1, %d); END $$; RESET statement_timeout`, days, rows))
}

// newestLeaf drops the partition that is furthest ahead, so that the next sweep has to make one, as
// on a new day.
func (j *jobs) newestLeaf(parent string) {
	j.t.Helper()
	j.exec(get[string](j.core, "SELECT format('DROP TABLE %s', max(inhrelid::regclass::text)) FROM pg_inherits WHERE inhparent = ('public.' || $1)::regclass AND inhrelid::regclass::text ~ '[0-9]$'", parent))
}

// The sweep does its slow work before it takes the locks for which others wait: making a partition
// locks the default partition, which each report of a lost lease and each list of jobs reads.
func TestSweepLocksLast(t *testing.T) {
	if !full() {
		t.Skip("full: a leaf with so many rows that it takes a while to look through them")
	}
	j := newJobs(t)
	j.oldLeaf(100, 600_000)
	j.newestLeaf("job_history")
	stop, waited := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			select {
			case <-stop:
				waited <- longest
				return
			default:
			}
			began := time.Now()
			if _, err := j.root.Exec(context.Background(), "SELECT 1 FROM public.job_history_default LIMIT 1"); err != nil {
				t.Error(err)
			}
			longest = max(longest, time.Since(began))
		}
	}()
	began := time.Now()
	got := j.sweep()
	took := time.Since(began)
	close(stop)
	longest := <-waited
	t.Logf("the sweep took %v, a reader beside it waited for at most %v", took.Round(time.Millisecond), longest.Round(time.Millisecond))
	require.Len(t, got["dropped"], 1)
	require.Positive(t, got["created"])
	require.Less(t, longest, took/2)
}

// While a reader is open, the sweep waits only briefly for each lock, so that sessions that finish
// jobs do not wait long behind it. Once the reader has ended, the sweep drops old partitions, even
// while jobs are finished.
func TestSweepBesideAnOpenReader(t *testing.T) {
	const most = "1900ms" // for a busy machine; the waits to rule out are 2 s and longer
	sweeps := 2           // per reader
	if full() {
		sweeps = 30
	}
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.leaves(32, 31)
	for days := range 3 {
		j.oldLeaf(100+days, 1000)
	}
	for _, parent := range []string{"job_history", "queue_metric_sample", "event_outbox"} {
		j.newestLeaf(parent)
	}
	// A longer wait for a lock fails the statement, however loaded the machine is.
	pool := j.as("event_ingest_writer", "dot_executor")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "SELECT set_config('lock_timeout', $1, false)", most)
	require.NoError(t, err)
	stop, finished := make(chan struct{}), make(chan error, 1)
	var took []time.Duration
	go func() {
		finished <- func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if _, err := pool.Exec(context.Background(), `SELECT public.fn_job_enqueue_many((SELECT jsonb_agg('{"job_kind": "k", "event_domain": "iu", "executor": "external_worker"}'::jsonb)
					FROM generate_series(1, 20)))`); err != nil {
					return err
				}
				hs, err := tryTake(pool, "w", nil, 20, nil)
				if err != nil {
					return err
				}
				for i, h := range hs {
					sql, args := "SELECT count(*)::int FROM public.fn_job_ack($1, $2) WHERE outcome = 'done'", []any{[]string{h.Job}, []string{h.Token}}
					switch i % 3 {
					case 1: // together with a job whose lease is lost, which is searched in the whole history
						args = []any{[]string{h.Job, h.Token}, []string{h.Token, h.Token}}
					case 2:
						sql = "SELECT count(*)::int FROM public.fn_job_fail($1, $2, '{BROKEN}', '{no}', '{true}') WHERE outcome = 'done'"
					}
					var done int
					start := time.Now()
					if err := conn.QueryRow(context.Background(), sql, args...).Scan(&done); err != nil || done != 1 {
						return fmt.Errorf("%d done: %w", done, err)
					}
					took = append(took, time.Since(start))
				}
			}
		}()
	}()
	leaf := get[string](j.core, "SELECT 'job_history_' || to_char((now() AT TIME ZONE 'UTC') - interval '100 days', 'YYYY_MM_DD')")
	for _, read := range []string{"job_history", leaf, "job_history, public.queue_metric_sample, public.event_outbox"} {
		reader := j.begin(j.root)
		_, err := reader.Exec(context.Background(), "SELECT 1 FROM public."+read+" LIMIT 1")
		require.NoError(t, err)
		for range sweeps {
			require.Contains(t, j.sweep()["kept"], leaf, read)
		}
		require.NoError(t, reader.Rollback(context.Background()))
	}
	eventually(t, "what is old is dropped, what is to come is there", func() bool { return len(j.sweep()["kept"].(map[string]any)) == 0 })
	close(stop)
	require.NoError(t, <-finished)
	slices.Sort(took)
	n := len(took)
	t.Logf("%d jobs were finished beside %d sweeps, none waited longer than %s for a lock; p50 %v, p99 %v, longest %v", n, 3*sweeps, most,
		took[n/2].Round(time.Millisecond), took[n*99/100].Round(time.Millisecond), took[n-1].Round(time.Millisecond))
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_history WHERE job_kind = 'old'"))
	j.balanced()
}
