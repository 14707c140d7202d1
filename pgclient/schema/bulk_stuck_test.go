// What must not stop, lose or finish wrongly: operations beside closed circuits, flags that are off,
// items that were recalled, and a clock that went back.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// halfOpen makes the circuit of a subscription half open: one probe decides.
func (h *hooks) halfOpen(sub int64) {
	h.t.Helper()
	require.NoError(h.t, h.asOwner("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'circuit', now(), 'webhook_worker')", sub))
	require.NoError(h.t, h.asOwner("UPDATE public.webhook_endpoint_state SET consecutive_failures = 5 WHERE subscription_id = $1", sub))
}

// Work of a paused operation is not sent, so it keeps neither live deliveries nor other operations
// from probing a half-open circuit.
func TestBulkPausedLeavesTheProbeToOthers(t *testing.T) {
	h := newHooks(t)
	sub, deadLetters := h.die("e", 10)
	a := h.started(deadLetters[:7], 1, 0, 7)
	require.Equal(t, "7 0 0", a.tick(1))
	require.Equal(t, 5, num(h.step(), "jobs_created"), "two of its sagas have no job yet")
	h.call("public.fn_queue_bulk_pause($1::bigint, 'ann')", a.id)
	closes := func(what string) {
		t.Helper()
		require.Equal(t, 1, num(h.step(), "jobs_created"), what)
		probe := h.claim(10)
		require.Len(t, probe, 1, what)
		h.finish("", probe...)
		require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions"), what)
		h.step()
	}
	h.halfOpen(sub)
	h.emit("e", 1)
	closes("a live delivery")
	h.halfOpen(sub)
	b := h.started(deadLetters[7:], 1000, 0, 0)
	require.Equal(t, "1 0 0", b.tick(1), "a probe of the other operation")
	closes("the other operation")
}

// bulkTick runs a tick as if a second had passed since each operation last ran.
func (c *core) bulkTick() string {
	c.t.Helper()
	c.exec("UPDATE public.queue_bulk_operation SET credited_at = clock_timestamp() - interval '1 second'")
	got := call(c.t, c.root, "public.fn_queue_bulk_tick()")
	return fmt.Sprintf("%d %d %d", num(got, "done"), num(got, "skipped"), num(got, "failed"))
}

// A flag that is off skips no item, whenever it was switched off: before a tick, while one runs, or
// before an item that failed in a batch is tried alone.
func TestBulkRefusedItemsStay(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 4)
	b := h.started(deadLetters, 4, 0, 0)
	state := func() string {
		return one[string](h, `SELECT concat_ws(' ', state, requeued, skipped, next_item, credit >= 1, (SELECT count(*) FROM public.queue_bulk_operation_item WHERE outcome IS NULL))
			FROM public.queue_bulk_operation`)
	}
	h.flag("queue.dlq.replay_enabled", "false")
	require.NoError(t, h.asOwner("INSERT INTO public.queue_quarantine (step, target, attempts, code, error, next_try_at) VALUES ('bulk_item', $1 || '/1', 1, '40001', 'e', now())", fmt.Sprint(b.id)))
	halt := one[string](h, "SELECT pg_get_functiondef('public.fn_queue_bulk_halt(public.queue_bulk_operation)'::regprocedure)")
	h.exec("CREATE OR REPLACE FUNCTION public.fn_queue_bulk_halt(p_operation public.queue_bulk_operation) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'") // the flag changes after the check
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "running 0 0 1 t 4", state())
	h.exec(halt)
	require.Equal(t, "0 0 0", b.tick(1))
	require.Contains(t, b.state(), "paused requeueing is switched off")
	h.flag("queue.dlq.replay_enabled", "true")
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ann')", b.id)
	require.Equal(t, "4 0 0", b.tick(1))
	b.counted()
}

func TestBulkRefusedEventsStay(t *testing.T) {
	c := newRoutes(t)
	events := c.deadLetters("1", "2")
	c.exec("DELETE FROM public.test_poison")
	call(t, c.root, "public.fn_queue_bulk_run((public.fn_queue_bulk_plan('replay_event', ARRAY['event:' || $1, 'event:' || $2], 'x', 1000, 0, 0, 'ann', 'r') ->> 'operation_id')::bigint, 'ann')", events[0], events[1])
	setFlag(t, c.as("workflow_admin"), "iu_core.routes_master_enabled", "false")
	require.Equal(t, "0 0 0", c.bulkTick())
	require.Equal(t, "paused 0 requeueing is switched off: iu_core.routes_master_enabled is not true; qtop flag set iu_core.routes_master_enabled true --reason R switches it on",
		get[string](c, "SELECT concat_ws(' ', state, skipped, state_why) FROM public.queue_bulk_operation"))
	setFlag(t, c.as("workflow_admin"), "iu_core.routes_master_enabled", "true")
	call(t, c.root, "public.fn_queue_bulk_resume(1, 'ann')")
	require.Equal(t, "2 0 0", c.bulkTick())
	require.Equal(t, "completed", get[string](c, "SELECT state FROM public.queue_bulk_operation"))
}

// An item that a person recalls is undone: its operation goes on without it and ends.
func TestBulkGoesOnWithoutWhatIsRecalled(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 3)
	b := h.started(deadLetters, 1000, 0, 1)
	require.Equal(t, "1 0 0", b.tick(1))
	require.Equal(t, 1, num(h.call("public.fn_dead_letter_requeue_undo($1, 'ben', 'not this one')", deadLetters[:1]), "recalled"))
	h.requeue(deadLetters[0]) // by somebody else, as another saga
	require.Equal(t, "1 0 0", b.tick(1), "the next item is the canary")
	b.attempt("", "")
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "1 0 0", b.tick(1))
	b.attempt("")
	b.tick(1)
	require.Equal(t, "completed 2 1", one[string](h, "SELECT concat_ws(' ', state, requeued, undone) FROM public.queue_bulk_operation"))
	require.Equal(t, "undone recalled outside this operation", one[string](h, "SELECT outcome || ' ' || why FROM public.queue_bulk_operation_item WHERE item_no = 1"))
	b.counted()
}

func TestBulkGoesOnWithoutARecalledJob(t *testing.T) {
	j := newJobs(t)
	ids := []string{"job:" + j.deadLetter("k", "iu", "TIMEOUT"), "job:" + j.deadLetter("k", "iu", "TIMEOUT")}
	call(t, j.work, bulkRun, num(call(t, j.work, "public.fn_queue_bulk_plan('replay_job', $1::text[], 'x', 1000, 0, 0, 'ann', 'r')", ids), "operation_id"))
	require.Equal(t, "2 0 0", j.bulkTick())
	call(t, j.work, "public.fn_job_dead_letter_replay_undo(ARRAY[$1]::uuid[], 'ben', 'not this one')", ids[0][len("job:"):])
	require.Equal(t, "done", j.outcome("ack", j.one("undertaker")))
	require.Equal(t, "0 0 0", j.bulkTick())
	require.Equal(t, "completed 1 1", get[string](j.core, "SELECT concat_ws(' ', state, requeued, undone) FROM public.queue_bulk_operation"))
	j.balanced()
}

// A replayed job that ended before the time at which it was replayed, because the clock of the server
// went back in between, has ended.
func TestBulkEndsAfterTheClockWentBack(t *testing.T) {
	j := newJobs(t)
	id := "job:" + j.deadLetter("k", "iu", "TIMEOUT")
	call(t, j.work, bulkRun, num(call(t, j.work, "public.fn_queue_bulk_plan('replay_job', $1::text[], 'x', 1000, 0, 0, 'ann', 'r')", []string{id}), "operation_id"))
	require.Equal(t, "1 0 0", j.bulkTick())
	j.exec("UPDATE public.queue_bulk_operation_item SET at = at + interval '1 year'")
	require.Equal(t, "done", j.outcome("ack", j.one("undertaker")))
	require.Equal(t, "0 0 0", j.bulkTick())
	require.Equal(t, "completed", get[string](j.core, "SELECT state FROM public.queue_bulk_operation"))
}

// The outcomes of a last batch whose items were carried out alone, because the batch took too long,
// are listed like the others.
func TestBulkItemsAloneAreListed(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 4)
	b := h.started(deadLetters, 1000, 0, 0)
	require.NoError(t, h.asOwner("INSERT INTO public.queue_quarantine (step, target, attempts, code, error, next_try_at) SELECT 'bulk_item', $1 || '/' || i, 1, '57014', 'e', now() FROM generate_series(1, 4) i", fmt.Sprint(b.id)))
	b.tick(1)
	require.Equal(t, "4 5", one[string](h, "SELECT concat_ws(' ', requeued, next_item) FROM public.queue_bulk_operation"))
	b.counted()
}

// What an operation did before the clock of the server went back lies in the future. Its canary and
// its brake do not count it.
func TestBulkAfterTheClockWentBack(t *testing.T) {
	h := newHooks(t)
	c := &core{t: t, db: h.db, root: h.root}
	_, deadLetters := h.die("e", 6)
	b := h.started(deadLetters, 1000, 0, 2)
	require.Equal(t, "2 0 0", b.tick(1))
	b.attempt("", "HTTP_503")
	b.tick(1)
	require.Contains(t, b.state(), "paused the canary failed")
	c.back("1 hour")
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ann')", b.id)
	require.Equal(t, "2 0 0", b.tick(1), "the canary runs again")
	require.Equal(t, "running", b.state())
	b.attempt("", "")
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "2 0 0", b.tick(1))
	c.repaired("1 hour")
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.queue_bulk_operation_item WHERE first_at > clock_timestamp()"), "they are not the latest first attempts when the clock gets there again")
	require.Equal(t, 2, one[int](h, "SELECT count(*) FROM public.queue_bulk_operation_item WHERE at > clock_timestamp()"), "when they were carried out is a record")
	b.counted()

	for _, why := range []string{"the brake: 12 of the last 12 first attempts failed", "50 items in a row were skipped"} {
		_, deadLetters = h.die("e", 120)
		b = h.started(deadLetters, 30, 20, 0)
		require.Equal(t, "60 0 0", b.tick(10), "two seconds at most")
		require.NoError(t, h.asOwner("UPDATE public.queue_bulk_operation_item SET first_result = 'ok', first_at = at WHERE operation_id = $1 AND outcome = 'done'", b.id))
		require.NoError(t, h.asOwner("UPDATE public.queue_bulk_operation SET first_ok = 60, done = 60 WHERE operation_id = $1", b.id))
		c.back("1 hour")
		c.repaired("1 hour")
		if strings.HasPrefix(why, "the brake") {
			require.Equal(t, "60 0 0", b.tick(10))
			require.NoError(t, h.asOwner(`UPDATE public.queue_bulk_operation_item SET first_result = 'failed', first_code = 'HTTP_503', first_at = at
				WHERE operation_id = $1 AND item_no BETWEEN 61 AND 72`, b.id))
		} else {
			h.requeue(deadLetters[60:110]...)
			require.NoError(t, h.asOwner("UPDATE public.queue_bulk_operation SET rate_per_second = 25 WHERE operation_id = $1", b.id))
			require.Equal(t, "0 50 0", b.tick(10))
		}
		b.tick(1)
		require.Contains(t, b.state(), "paused "+why)
	}
}

// An item whose function raises an error fails alone; an item whose dead letter no longer exists is
// skipped.
func TestBulkPoison(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 5)
	h.exec(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no such luck'; END $$`)
	h.exec(fmt.Sprintf(`CREATE TRIGGER poison BEFORE INSERT ON public.dead_letter_requeues FOR EACH ROW WHEN (NEW.dead_letter_id = %d) EXECUTE FUNCTION public.poison()`, deadLetters[2]))
	b := h.started(append(deadLetters, 999999), 1000, 0, 0)
	require.Equal(t, "4 1 1", b.tick(1))
	require.Equal(t, "no such luck", one[string](h, "SELECT why FROM public.queue_bulk_operation_item WHERE outcome = 'failed'"))
	require.Equal(t, "no such dead letter: never written, or removed by retention", one[string](h, "SELECT why FROM public.queue_bulk_operation_item WHERE outcome = 'skipped'"))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	b.attempt("", "", "", "")
	b.tick(1)
	require.Equal(t, "completed", b.state())
	b.counted()

	// An operation whose own step fails is paused, which the audit says.
	_, deadLetters = h.die("f", 3)
	b = h.started(deadLetters[:1], 1000, 0, 0)
	h.exec(fmt.Sprintf(`CREATE TRIGGER poison BEFORE UPDATE ON public.queue_bulk_operation FOR EACH ROW
		WHEN (NEW.operation_id = %d AND NEW.next_item > OLD.next_item) EXECUTE FUNCTION public.poison()`, b.id))
	b.tick(1)
	require.Equal(t, "paused a step failed: P0001 no such luck", b.state())
	require.Equal(t, "bulk_brake bulk_operation_runner a step failed: P0001 no such luck running paused 1", one[string](h, `SELECT concat_ws(' ', action, actor, reason,
		before ->> 'state', after ->> 'state', frozen_count) FROM public.queue_operator_action WHERE operation_id = $1 ORDER BY id DESC LIMIT 1`, b.id))

	// Once statement_timeout has ended an item, it no longer limits the run: the run begins no further
	// operation.
	b = h.started(deadLetters[1:2], 1000, 0, 0)
	next := h.started(deadLetters[2:], 1000, 0, 0)
	h.exec("CREATE OR REPLACE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); END $$")
	h.exec(fmt.Sprintf(`CREATE TRIGGER slow BEFORE INSERT ON public.dead_letter_requeues FOR EACH ROW WHEN (NEW.dead_letter_id = %d) EXECUTE FUNCTION public.poison()`, deadLetters[1]))
	h.exec("UPDATE public.queue_bulk_operation SET credited_at = clock_timestamp() - interval '1 second' WHERE state = 'running'")
	limit := 250 * time.Millisecond
	eventually(t, "the item reaches statement_timeout", func() bool {
		limit = min(2*limit, 8*time.Second) // on a slow machine the timeout ends the run elsewhere
		tx, err := h.root.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT set_config('statement_timeout', $1, true)", fmt.Sprint(limit.Milliseconds()))
		require.NoError(t, err)
		var got map[string]any
		if err = tx.QueryRow(t.Context(), "SELECT public.fn_queue_bulk_tick()").Scan(&got); err != nil {
			require.ErrorContains(t, err, "57014")
			return false
		}
		var late bool
		var begun int
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM public.queue_step_pending WHERE step = 'bulk_item' AND targets = ARRAY[$1::bigint || '/1']),
			(SELECT count(*) FROM public.queue_bulk_operation_item WHERE operation_id = $2 AND outcome IS NOT NULL)`, b.id, next.id).Scan(&late, &begun))
		require.Equal(t, true, got["timed_out"], got)
		require.Zero(t, begun)
		return late
	})
}
