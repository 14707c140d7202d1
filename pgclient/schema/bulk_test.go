// Operations over many dead letters: an operation processes its frozen items canary first, then at
// its rate, until it is done or its brake pauses it. Each item is processed once and has an
// outcome, and an operation can be undone.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	bulkRun = "public.fn_queue_bulk_run($1::bigint, 'ann')"
	// $1 = the ids of webhook dead letters, in the order of the operation
	plan = "public.fn_queue_bulk_plan('requeue_webhook', $1::text[], 'code:HTTP_500', $2, $3, $4, 'ann', 'receiver is back')"
)

type bulk struct {
	*hooks
	id int
}

// planned plans an operation with these dead letters as its frozen items.
func (h *hooks) planned(deadLetters []int64, rate float64, brake, canary int) *bulk {
	h.t.Helper()
	ids := make([]string, len(deadLetters))
	for i, l := range deadLetters {
		ids[i] = fmt.Sprint(l)
	}
	got := h.call(plan, ids, rate, brake, canary)
	require.EqualValues(h.t, len(deadLetters), got["frozen_count"], got)
	return &bulk{h, num(got, "operation_id")}
}

func (h *hooks) started(deadLetters []int64, rate float64, brake, canary int) *bulk {
	h.t.Helper()
	b := h.planned(deadLetters, rate, brake, canary)
	require.Equal(h.t, "running", h.call(bulkRun, b.id)["state"])
	return b
}

// tick runs one tick as if seconds had passed since the operation last ran; it returns how many
// items were done, skipped and failed.
func (b *bulk) tick(seconds float64) string {
	b.t.Helper()
	require.NoError(b.t, b.asOwner("UPDATE public.queue_bulk_operation SET credited_at = clock_timestamp() - make_interval(secs => $2) WHERE operation_id = $1", b.id, seconds))
	got, err := tryCall(b.root, "public.fn_queue_bulk_tick()")
	require.NoError(b.t, err)
	return fmt.Sprintf("%d %d %d", num(got, "done"), num(got, "skipped"), num(got, "failed"))
}

func (b *bulk) state() string {
	b.t.Helper()
	return one[string](b.hooks, "SELECT concat_ws(' ', state, state_why) FROM public.queue_bulk_operation WHERE operation_id = $1", b.id)
}

// attempt makes the first attempts of the waiting webhooks, in the order in which they are
// claimed, and settles each with the next one of codes; "" = delivered.
func (b *bulk) attempt(codes ...string) {
	b.t.Helper()
	b.step()
	for _, code := range codes {
		require.NoError(b.t, b.asOwner("UPDATE public.webhook_operation_bucket SET refilled_at = '-infinity'"))
		ls := b.claim(1)
		require.Len(b.t, ls, 1)
		b.finish(code, ls[0])
	}
	b.call("public.fn_saga_orchestrator_run(100000)")
}

// counted requires that the counters of the operation equal a count of its items.
func (b *bulk) counted() {
	b.t.Helper()
	require.Equal(b.t, one[string](b.hooks, `SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE outcome = 'done'),
		count(*) FILTER (WHERE outcome = 'done' AND (first_result IS NOT NULL OR o.kind = 'resolve')), count(*) FILTER (WHERE outcome = 'skipped'),
		count(*) FILTER (WHERE outcome = 'failed'), count(*) FILTER (WHERE outcome = 'undone'), count(*) FILTER (WHERE first_result = 'ok'),
		count(*) FILTER (WHERE first_result = 'failed')) FROM public.queue_bulk_operation_item JOIN public.queue_bulk_operation o USING (operation_id)
		WHERE operation_id = $1`, b.id),
		one[string](b.hooks, `SELECT concat_ws(' ', frozen_count, requeued, done, skipped, failed, undone, first_ok, first_failed)
			FROM public.queue_bulk_operation WHERE operation_id = $1`, b.id))
	require.Zero(b.t, one[int](b.hooks, `SELECT count(*) FROM public.queue_bulk_operation_item i JOIN public.queue_bulk_operation o USING (operation_id)
		WHERE i.item_no >= o.next_item AND i.outcome IS NOT NULL`))
}

func TestBulkCanaryThenRate(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 40)
	b := h.started(deadLetters, 2.5, 50, 3)
	_, late := h.die("late", 2)
	require.Equal(t, "3 0 0", b.tick(10), "the canary, whatever the rate")
	require.Equal(t, "0 0 0", b.tick(10), "and then nothing until it is known")
	b.attempt("", "", "")
	require.Equal(t, "0 0 0", b.tick(10), "the rate begins when it has succeeded")
	require.Equal(t, "2 0 0", b.tick(1))
	require.Equal(t, "3 0 0", b.tick(1), "halves carry over")
	require.Equal(t, "5 0 0", b.tick(3600), "a host that was away does not make up for it")
	got := h.call("public.fn_queue_bulk_set_rate($1::bigint, 1000, 'ben')", b.id)
	require.EqualValues(t, 2.5, got["before"])
	require.Equal(t, "27 0 0", b.tick(1))
	require.Equal(t, "running", b.state(), "done is what was attempted")
	require.Equal(t, "37 requeued items wait: no live host runs webhook_worker", one[string](h, "SELECT waits FROM public.queue_bulk_operation"))
	b.counted()
	require.Equal(t, len(deadLetters), one[int](h, `SELECT count(DISTINCT s.requeued_from_dead_letter_id) FROM public.webhook_delivery_sagas s
		JOIN public.queue_bulk_operation_item i ON i.new_id = s.id::text AND i.target = s.requeued_from_dead_letter_id::text
		JOIN public.dead_letter_requeues q ON q.new_saga_id = s.id WHERE q.operation_id = $1 AND q.requeued_by = 'ann'`, b.id))
	require.Equal(t, len(late), one[int](h, "SELECT count(*) FROM public.dead_letter_open"), "what died after the freeze is not in it")
	require.Equal(t, "bulk_plan ann, bulk_run ann, bulk_rate ben", one[string](h, `SELECT string_agg(action || ' ' || actor, ', ' ORDER BY id)
		FROM public.queue_operator_action WHERE action ~ '^bulk_'`))
	b.attempt("", "HTTP_503")
	b.tick(1)
	require.Equal(t, "4 1 5", one[string](h, "SELECT concat_ws(' ', first_ok, first_failed, done) FROM public.queue_bulk_operation"))
	b.attempt(make([]string, 35)...)
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "completed", b.state())
	b.counted()
}

func TestBulkCanaryFails(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 20)
	b := h.started(deadLetters, 1000, 0, 3)
	require.Equal(t, "3 0 0", b.tick(1))
	b.attempt("", "HTTP_503")
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "paused the canary failed: 1 of 2 first attempts (HTTP_503)", b.state())
	require.Equal(t, "0 0 0", b.tick(1), "paused is paused")
	require.Equal(t, "running", h.call("public.fn_queue_bulk_resume($1::bigint, 'ben')", b.id)["state"])
	require.Equal(t, "3 0 0", b.tick(1), "the canary goes first again")
	require.Equal(t, "bulk_plan, bulk_run, bulk_brake, bulk_resume", one[string](h, `SELECT string_agg(action, ', ' ORDER BY id)
		FROM public.queue_operator_action WHERE action ~ '^bulk_'`))
	b.counted()
}

// A canary item that is skipped proves nothing about the receiver: the next item takes its place.
func TestBulkCanarySkipped(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 6)
	h.requeue(deadLetters[0])
	b := h.started(deadLetters, 1, 0, 2)
	require.Equal(t, "1 1 0", b.tick(1))
	require.Equal(t, "1 0 0", b.tick(1))
	require.Equal(t, "0 0 0", b.tick(1))
	b.counted()
}

// The operation runs at the rate that was asked for, however unevenly the ticks are spaced.
func TestBulkRates(t *testing.T) {
	for _, c := range []struct {
		rate, seconds float64
	}{{0.1, 100}, {0.5, 40}, {3, 20}, {20, 20}, {137, 4}, {500, 3}} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			h := newHooks(t)
			rng := rand.New(rand.NewPCG(1, 2))
			want := c.rate * c.seconds
			_, deadLetters := h.die("e", int(want*1.2)+2)
			b := h.started(deadLetters, c.rate, 0, 0)
			done, passed := 0, 0.0
			for passed < c.seconds {
				step := 0.2 + 1.6*rng.Float64()
				passed += step
				var n, skipped, failed int
				_, err := fmt.Sscan(b.tick(step), &n, &skipped, &failed)
				require.NoError(t, err)
				require.Zero(t, skipped+failed)
				done += n
			}
			require.InDelta(t, c.rate*passed, done, max(1, want/10), "in %.1f s", passed)
			b.counted()
		})
	}
}

func TestBulkBrake(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 40)
	b := h.started(deadLetters, 5, 30, 0)
	const away = 10 // more than the two seconds that a tick makes up for, so that each tick does exactly ten items
	require.Equal(t, "10 0 0", b.tick(away))
	b.attempt("HTTP_503", "HTTP_503", "HTTP_503", "", "", "", "", "", "")
	require.Equal(t, "10 0 0", b.tick(away), "nine first attempts are too few to judge")
	b.attempt("")
	require.Equal(t, "0 0 0", b.tick(away))
	require.Equal(t, "paused the brake: 3 of the last 10 first attempts failed (mostly HTTP_503)", b.state())
	require.Equal(t, "bulk_operation_runner", one[string](h, "SELECT actor FROM public.queue_operator_action WHERE action = 'bulk_brake'"))
	require.Equal(t, "true", one[string](h, "SELECT (reason = after ->> 'why' AND reason <> '')::text FROM public.queue_operator_action WHERE action = 'bulk_brake'"), "the cause, not the reason of the person who planned it")
	require.Equal(t, "20 10", one[string](h, "SELECT concat_ws(' ', after ->> 'requeued', after ->> 'done') FROM public.queue_operator_action WHERE action = 'bulk_brake'"), "what was done until then")
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ann')", b.id)
	require.Equal(t, "10 0 0", b.tick(away), "it judges anew from where it was started")
	b.counted()
}

// Switching requeueing off pauses an operation; no item is skipped or failed because of it.
func TestBulkSwitchedOff(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 4)
	b := h.started(deadLetters, 1000, 0, 0)
	h.flag("queue.dlq.replay_enabled", "false")
	require.Equal(t, "0 0 0", b.tick(1))
	require.Equal(t, "paused requeueing is switched off: queue.dlq.replay_enabled is not true; qtop flag set queue.dlq.replay_enabled true --reason R switches it on", b.state())
	h.flag("queue.dlq.replay_enabled", "true")
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ann')", b.id)
	require.Equal(t, "4 0 0", b.tick(1))
	b.counted()
}

// 50 items in a row that are skipped for the same reason pause the operation with that reason:
// nobody needs 50,000 refusals. Once resumed, the operation tries the next 50.
func TestBulkPausesWhatIsSkipped(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 160)
	for _, l := range deadLetters[10:155] {
		h.requeue(l)
	}
	// At most 2 s are credited at once, so that a slow machine earns 30 as well.
	b := h.started(deadLetters, 15, 100, 0)
	require.Equal(t, "10 20 0", b.tick(2))
	require.Equal(t, "0 30 0", b.tick(2))
	require.Equal(t, "0 30 0", b.tick(2), "30 in a row: those beside an item that was done do not count")
	require.Equal(t, "0 0 0", b.tick(2))
	require.Regexp(t, "^paused 60 items in a row were skipped, the latest: .*requeued", b.state())
	require.Equal(t, "bulk_brake", one[string](h, "SELECT action FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
	require.Equal(t, "running", h.call("public.fn_queue_bulk_resume($1::bigint, 'ben')", b.id)["state"])
	require.Equal(t, "0 30 0", b.tick(2), "items from before it was resumed do not count")
	require.Equal(t, "0 30 0", b.tick(2))
	require.Equal(t, "0 0 0", b.tick(2))
	require.Regexp(t, "^paused 60 items in a row", b.state())
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ben')", b.id)
	require.Equal(t, "5 5 0", b.tick(2), "the last 5 are no row of 50")
	require.Equal(t, "running", b.state())
	b.counted()
}

// The due sagas of operations whose rate was lowered do not use up the share of their subscription:
// the newer sagas of live events get the rest of it.
func TestBulkSagasLeaveTheShareOfLiveOnes(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 60)
	for _, part := range [][]int64{deadLetters[:30], deadLetters[30:]} {
		b := h.started(part, 1000, 0, 0)
		require.Equal(t, "30 0 0", b.tick(1))
		h.call("public.fn_queue_bulk_set_rate($1::bigint, 0.4, 'ann')", b.id)
	}
	h.emit("e", 20)
	h.route()
	const jobs = "SELECT concat_ws(' ', count(*), count(operation_id)) FROM public.webhook_delivery_jobs WHERE status = 'Pending'"
	got := h.call("public.fn_saga_orchestrator_run(10)")
	require.Equal(t, 10, num(got, "jobs_created"), got)
	require.Nil(t, got["made_through"])
	require.Equal(t, "10 4", one[string](h, jobs), "two of each operation, the rest of live events")
	got = h.call("public.fn_saga_orchestrator_run(1000)")
	require.Equal(t, 14, num(got, "jobs_created"), got)
	require.NotNil(t, got["made_through"], "what is left waits for the rates")
	require.Equal(t, "24 4", one[string](h, jobs))
}

// If two operations have the same dead letters, each dead letter is requeued by one of them, and
// the other operation shows which one.
func TestBulkOverlap(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 60)
	a := h.started(deadLetters[:40], 1000, 0, 0)
	h.started(deadLetters[20:], 1000, 0, 0)
	require.NoError(t, h.asOwner("UPDATE public.queue_bulk_operation SET credited_at = now() - interval '1 second'"))
	together(t, 8, func(int) (map[string]any, error) { return tryCall(h.root, "public.fn_queue_bulk_tick()") })
	require.Equal(t, 60, one[int](h, "SELECT count(*) FROM public.dead_letter_requeues"))
	require.Equal(t, "60 20", one[string](h, "SELECT sum(requeued) || ' ' || sum(skipped) FROM public.queue_bulk_operation"))
	require.Regexp(t, `^already requeued by ann at .* as saga \d+$`, one[string](h, "SELECT min(why) FROM public.queue_bulk_operation_item WHERE outcome = 'skipped'"))
	a.counted()
}

func TestBulkUndo(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 10)
	b := h.started(deadLetters, 4, 0, 0)
	require.Equal(t, "4 0 0", b.tick(1))
	b.attempt("", "")
	require.Equal(t, "4 0 0", b.tick(1))
	refusal := h.call("public.fn_queue_bulk_undo($1::bigint, 'ben')", b.id)
	require.Equal(t, "state", refusal["rule"], refusal)
	require.Equal(t, "aborted", h.call("public.fn_queue_bulk_abort($1::bigint, 'ben')", b.id)["state"])
	got := h.call("public.fn_queue_bulk_undo($1::bigint, 'ben')", b.id)
	require.Equal(t, 4, num(got, "undone"), got)
	require.Equal(t, 2, num(got, "skipped"), "their sagas have jobs: %v", got)
	require.Equal(t, 6, one[int](h, "SELECT count(*) FROM public.dead_letter_open"), "two never tried, four taken back")
	b.counted()
	got = h.call("public.fn_queue_bulk_undo($1::bigint, 'ben')", b.id)
	require.Equal(t, []any{0, 2, "nothing", "nothing was undone: 2 attempted already, 0 requeued or resolved again by others since"},
		[]any{num(got, "undone"), num(got, "skipped"), got["rule"], got["reason"]}, "once more changes nothing")
	require.Equal(t, []string{"refused: state", "done", "refused: nothing"},
		one[[]string](h, "SELECT array_agg(outcome ORDER BY id) FROM public.queue_operator_action WHERE action = 'bulk_undo'"))
	require.Equal(t, "0 0 0", b.tick(10))
	b.counted()
}

// First attempts are counted for a week after the end of an operation, because a receiver may be away
// for hours: at every tick for an hour, then once a minute.
func TestBulkWatchesWhatEndedLongAgo(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 4)
	b := h.started(deadLetters, 1000, 0, 0)
	require.Equal(t, "4 0 0", b.tick(1))
	require.Equal(t, "aborted", h.call("public.fn_queue_bulk_abort($1::bigint, 'ann')", b.id)["state"])
	for _, c := range []struct {
		ended, ticked string // how long ago
		settled       int
	}{
		{"2 hours", "-1 minute", 0}, // in this minute, even if one begins now
		{"2 hours", "1 minute", 2},
		{"30 minutes", "-1 minute", 3},
		{"8 days", "1 minute", 3},
	} {
		require.NoError(t, b.asOwner("UPDATE public.queue_bulk_operation SET state_at = now() - $1::interval", c.ended))
		h.exec("UPDATE public.queue_tick_worker SET last_run_at = now() - $1::interval WHERE worker_name = 'bulk_operation_runner'", c.ticked)
		b.attempt("")
		require.Equal(t, "0 0 0", b.tick(1))
		require.Equal(t, c.settled, one[int](h, "SELECT first_ok FROM public.queue_bulk_operation"), c)
	}
}

// What somebody else did with a dead letter after the operation is not undone with the operation.
func TestBulkUndoLeavesWhatOthersDid(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 2)
	b := h.started(deadLetters, 1000, 0, 0)
	require.Equal(t, "2 0 0", b.tick(1))
	h.call("public.fn_queue_bulk_abort($1::bigint, 'ann')", b.id)
	require.Equal(t, 1, num(h.call("public.fn_dead_letter_requeue_undo($1, 'ben', 'wait')", deadLetters[:1]), "recalled"))
	require.Equal(t, 1, num(h.call("public.fn_dead_letter_requeue($1, 'ben', 'now')", deadLetters[:1]), "requeued"))
	got := h.call("public.fn_queue_bulk_undo($1::bigint, 'ann')", b.id)
	require.Equal(t, []int{1, 1, 1}, []int{num(got, "undone"), num(got, "skipped"), num(got, "others")}, got)
	require.Equal(t, "ben", one[string](h, "SELECT string_agg(requeued_by, ' ') FROM public.dead_letter_requeues"))
	require.Equal(t, `{"undone": 1, "started_already": 0, "closed_by_others": 1}`, one[string](h, "SELECT after::text FROM public.queue_operator_action WHERE action = 'bulk_undo'"))
	b.counted()
}

func TestBulkUndoLeavesJobsOfOthers(t *testing.T) {
	j := newJobs(t)
	var deadLetters, targets []string
	for range 2 {
		deadLetters = append(deadLetters, j.deadLetter("k", "iu", "TIMEOUT"))
		targets = append(targets, "job:"+deadLetters[len(deadLetters)-1])
	}
	for _, c := range []struct {
		kind, take, again string
	}{
		{"replay_job", "public.fn_job_dead_letter_replay_undo($1::uuid[], 'ben', 'wait')", "public.fn_job_dead_letter_replay($1::uuid[], 'ben', 'now')"},
		{"resolve", "public.fn_job_dead_letter_reopen($1::uuid[], 'ben', 'wait')", "public.fn_job_dead_letter_resolve($1::uuid[], 'duplicate', 'came twice', 'ann')"},
		{"resolve", "public.fn_job_dead_letter_reopen($1::uuid[], 'ben', 'wait')", "public.fn_job_dead_letter_resolve($1::uuid[], 'abandoned', 'later', 'ann')"},
	} {
		id := num(call(t, j.work, "public.fn_queue_bulk_plan($1, $2::text[], 'all', 1000, 0, 0, 'ann', 'test')", c.kind, targets), "operation_id")
		call(t, j.work, bulkRun, id)
		j.exec("UPDATE public.queue_bulk_operation SET credited_at = now() - interval '1 second'")
		require.Equal(t, 2, num(call(t, j.root, "public.fn_queue_bulk_tick()"), "done"), c.again)
		if c.kind == "replay_job" {
			call(t, j.work, "public.fn_queue_bulk_abort($1::bigint, 'ann')", id)
		}
		call(t, j.work, c.take, deadLetters[:1])
		call(t, j.work, c.again, deadLetters[:1])
		got := call(t, j.work, "public.fn_queue_bulk_undo($1::bigint, 'ann')", id)
		require.Equal(t, []int{1, 1, 1}, []int{num(got, "undone"), num(got, "skipped"), num(got, "others")}, "%s: %v", c.again, got)
		require.Equal(t, deadLetters[:1], get[[]string](j.core, "SELECT array_agg(dead_letter_id::text) FROM public.job_dead_letter WHERE resolved_at IS NOT NULL"), c.again)
		call(t, j.work, c.take, deadLetters[:1])
	}
	j.balanced()
}

func TestBulkResolve(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 3)
	got := h.call("public.fn_queue_bulk_plan('resolve', $1::text[], 'two', 1000, NULL, NULL, 'ann', 'nobody wants them')",
		[]string{fmt.Sprint(deadLetters[0]), fmt.Sprint(deadLetters[1])})
	b := &bulk{h, num(got, "operation_id")}
	h.call(bulkRun, b.id)
	require.Equal(t, "2 0 0", b.tick(1))
	require.Equal(t, "abandoned nobody wants them", one[string](h, "SELECT min(resolution || ' ' || note) FROM public.dead_letter_resolutions"))
	h.call("public.fn_dead_letter_reopen($1, 'ben', 'this one is wanted')", deadLetters[:1])
	require.Equal(t, 1, num(h.call("public.fn_queue_bulk_undo($1::bigint, 'ann')", b.id), "undone"))
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	require.Equal(t, `{"undone": 1, "not_opened": 1}`, one[string](h, "SELECT after::text FROM public.queue_operator_action WHERE action = 'bulk_undo'"))
	require.Equal(t, "nothing was undone: 1 not opened, 0 requeued or resolved again by others since", h.call("public.fn_queue_bulk_undo($1::bigint, 'ann')", b.id)["reason"])
	b.counted()
}

func TestBulkReplaysJobs(t *testing.T) {
	j := newJobs(t)
	var deadLetters []string
	for range 6 {
		deadLetters = append(deadLetters, "job:"+j.deadLetter("k", "iu", "TIMEOUT"))
	}
	got := call(t, j.work, "public.fn_queue_bulk_plan('replay_job', $1::text[], 'code:TIMEOUT', 1000, 50, 2, 'ann', 'it is mended')", deadLetters)
	id := num(got, "operation_id")
	call(t, j.work, bulkRun, id)
	tick := func() string {
		j.exec("UPDATE public.queue_bulk_operation SET credited_at = now() - interval '1 second'")
		got := call(t, j.root, "public.fn_queue_bulk_tick()")
		return fmt.Sprintf("%d %d %d", num(got, "done"), num(got, "skipped"), num(got, "failed"))
	}
	require.Equal(t, "2 0 0", tick())
	for _, h := range j.take("undertaker", 2) {
		require.Equal(t, "done", j.outcome("ack", h))
	}
	require.Equal(t, "0 0 0", tick())
	require.Equal(t, "4 0 0", tick())
	h := j.one("undertaker")
	require.Equal(t, "done", j.outcome("TIMEOUT", h))
	call(t, j.root, "public.fn_queue_bulk_tick()")
	require.Equal(t, "2 1", get[string](j.core, "SELECT first_ok || ' ' || first_failed FROM public.queue_bulk_operation"))
	call(t, j.work, "public.fn_queue_bulk_abort($1::bigint, 'ann')", id)
	undone := call(t, j.work, "public.fn_queue_bulk_undo($1::bigint, 'ann')", id)
	require.Equal(t, 3, num(undone, "undone"), undone)
	require.Equal(t, 3, get[int](j.core, `SELECT count(*) FROM public.queue_bulk_operation_item i JOIN public.job_dead_letter d ON 'job:' || d.dead_letter_id = i.target
		WHERE i.outcome = 'undone' AND d.triage_status = 'open' AND d.replayed_job_id IS NULL AND d.resolved_at IS NULL`))
	j.balanced()
	// a replay that was undone can be replayed again
	again := call(t, j.work, "public.fn_queue_bulk_plan('replay_job', $1::text[], 'code:TIMEOUT', 1000, 0, 0, 'ann', 'now really')", deadLetters)
	call(t, j.work, bulkRun, num(again, "operation_id"))
	require.Equal(t, "3 3 0", tick())
	j.balanced()
	// a direct UPDATE cannot reopen a replayed dead letter, even as the owner
	require.Equal(t, "42501", j.byHand("queue_owner", "UPDATE public.job_dead_letter SET triage_status = 'open', resolution = NULL, resolved_at = NULL, resolved_by = NULL, replayed_job_id = NULL WHERE triage_status = 'replayed'"))
}

func TestBulkRefuses(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 2)
	b := h.planned(deadLetters, 1, 0, 0)
	for _, turn := range []string{"pause", "resume"} {
		got := h.call("public.fn_queue_bulk_"+turn+"($1::bigint, 'ann')", b.id)
		require.Equal(t, "state", got["rule"], turn)
		require.Regexp(t, `^operation \d+ has been planned since \d{4}-.*Z, by ann: only one that is (running|paused) can become (paused|running)$`, got["reason"])
	}
	require.Equal(t, "not_found", h.call(bulkRun, 999)["rule"])
	require.Equal(t, "not_found", h.call("public.fn_queue_bulk_set_rate(999, 1, 'ann')")["rule"])
	require.Equal(t, "there is no operation 999; qtop ops lists them", h.call("public.fn_queue_bulk_set_rate(999, 1, 'ann')")["reason"])
	for what, expr := range map[string]string{
		"kind": "public.fn_queue_bulk_plan('burn', ARRAY['1'], 'x', 1, 0, 0, 'ann', 'x')", "no ids": "public.fn_queue_bulk_plan('resolve', '{}', 'x', 1, 0, 0, 'ann', 'x')",
		"null ids": "public.fn_queue_bulk_plan('resolve', NULL, 'x', 1, 0, 0, 'ann', 'x')", "filter": "public.fn_queue_bulk_plan('resolve', ARRAY['1'], ' ', 1, 0, 0, 'ann', 'x')",
		"rate": "public.fn_queue_bulk_plan('resolve', ARRAY['1'], 'x', 0, 0, 0, 'ann', 'x')", "NaN": "public.fn_queue_bulk_plan('resolve', ARRAY['1'], 'x', 'NaN', 0, 0, 'ann', 'x')",
		"brake": "public.fn_queue_bulk_plan('requeue_webhook', ARRAY['1'], 'x', 1, 101, 0, 'ann', 'x')", "canary": "public.fn_queue_bulk_plan('requeue_webhook', ARRAY['1'], 'x', 1, 0, -1, 'ann', 'x')",
		"id":           "public.fn_queue_bulk_plan('requeue_webhook', ARRAY['1; DROP TABLE x'], 'x', 1, 0, 0, 'ann', 'x')",
		"no event":     "public.fn_queue_bulk_plan('replay_event', ARRAY['1'], 'x', 1, 0, 0, 'ann', 'x')",
		"other source": "public.fn_queue_bulk_plan('requeue_webhook', ARRAY['job:00000000-0000-4000-8000-000000000000'], 'x', 1, 0, 0, 'ann', 'x')",
		"reason":       "public.fn_queue_bulk_plan('resolve', ARRAY['1'], 'x', 1, 0, 0, 'ann', '')", "actor": "public.fn_queue_bulk_plan('resolve', ARRAY['1'], 'x', 1, 0, 0, '', 'x')",
		"set rate": "public.fn_queue_bulk_set_rate(1, 1001, 'ann')",
	} {
		_, err := tryCall(h.work, expr)
		refused(t, "22023", err, what)
	}
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.queue_bulk_operation"), "nothing was planned")
}

func TestBulkRoles(t *testing.T) {
	c := newCore(t)
	for _, role := range []string{"queue_viewer", "dot_executor", "workflow_admin", "event_ingest_writer"} {
		pool := c.as(role)
		for _, sql := range []string{
			"SELECT public.fn_queue_bulk_plan('resolve', ARRAY['1'], 'x', 1, 0, 0, 'eve', 'x')", "SELECT public.fn_queue_bulk_run(1, 'eve')", "SELECT public.fn_queue_bulk_undo(1, 'eve')",
			"SELECT public.fn_queue_bulk_set_rate(1, 1, 'eve')", "UPDATE public.queue_bulk_operation SET state = 'running'", "DELETE FROM public.queue_bulk_operation_item",
			"SELECT public.fn_queue_bulk_step(1)", "SELECT * FROM public.fn_queue_bulk_apply(1, 'resolve', ARRAY['1'], 'eve', 'x', false)",
		} {
			fails(t, pool, "42501", sql)
		}
	}
	viewer := c.as("queue_viewer")
	for _, sql := range []string{"SELECT * FROM public.queue_bulk_operation", "SELECT * FROM public.queue_bulk_operation_item"} {
		_, err := viewer.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	fails(t, c.as("dead_letter_operator"), "42501", "SELECT public.fn_queue_bulk_tick()")
}

// Items of an endpoint that is suspended or whose circuit is open remain dead letters and wait,
// while the items of other endpoints are processed. The operation shows why it waits, and continues
// with them when the endpoint accepts webhooks again.
func TestBulkWaitsForEndpoints(t *testing.T) {
	h := newHooks(t)
	fine, deadLetters := h.die("fine", 4)
	for _, blocked := range []struct{ why, sql, says string }{
		{"suspension", "INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) VALUES ($1, 'operator', 'eve')", `suspended \(operator\)`},
		{"circuit", "INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'circuit', now() + interval '1 hour', 'webhook_worker')", `circuit open until \d\d:\d\d:\d\dZ`},
	} {
		sub, theirs := h.die(blocked.why, 3)
		require.NoError(t, h.asOwner(blocked.sql, sub))
		b := h.started(append(theirs, deadLetters...), 1000, 0, 0)
		require.Equal(t, "4 0 0", b.tick(1), "of the other endpoint alone")
		b.attempt("", "", "", "")
		require.Equal(t, "0 0 0", b.tick(1))
		require.Equal(t, "running", b.state())
		require.Regexp(t, fmt.Sprintf(`^items of subscription %d \(127\.0\.0\.1:1\) wait: %s$`, sub, blocked.says),
			one[string](h, "SELECT waits FROM public.queue_bulk_operation WHERE operation_id = $1", b.id))
		require.Equal(t, 3, one[int](h, "SELECT count(*) FROM public.dead_letter_open WHERE subscription_id = $1", sub))
		b.counted()
		if blocked.why == "circuit" { // half open: one item is sent as its probe
			require.NoError(t, h.asOwner("UPDATE public.webhook_endpoint_suspensions SET until = now() WHERE subscription_id = $1", sub))
			require.Equal(t, "1 0 0", b.tick(1))
			require.Equal(t, "0 0 0", b.tick(1))
			b.attempt("")
			require.Zero(t, one[int](h, "SELECT count(*) FROM public.webhook_endpoint_suspensions WHERE subscription_id = $1", sub))
			require.Equal(t, "2 0 0", b.tick(1))
			b.attempt("", "")
		} else {
			h.call("public.fn_endpoint_resume($1::bigint, 'ann', 'mended')", sub)
			require.Equal(t, "3 0 0", b.tick(1))
			b.attempt("", "", "")
		}
		require.Equal(t, "0 0 0", b.tick(1))
		require.Equal(t, "completed", b.state())
		b.counted()
		h.emit("fine", 4) // dead letters for the next case
		h.step()
		h.finish("HTTP_500", h.claim(100)...)
		h.step()
		deadLetters = one[[]int64](h, "SELECT array_agg(dead_letter_id) FROM public.dead_letter_open WHERE subscription_id = $1", fine)
	}
}

// While webhook_worker is paused, nothing is sent, and a running operation names the flag.
func TestBulkWaitsForAPausedSender(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 2)
	b := h.started(deadLetters, 1000, 0, 0)
	h.flag("queue.tick.webhook_worker.interval_seconds", "0")
	require.Equal(t, "2 0 0", b.tick(1))
	require.Equal(t, "2 requeued items wait: queue.tick.webhook_worker.interval_seconds is 0", one[string](h, "SELECT waits FROM public.queue_bulk_operation"))
}

// Jobs that wait for an endpoint that is limited, suspended or has an open circuit hold back no other
// endpoint of their operation, which still runs at its own rate at most.
func TestBulkEndpointsDoNotHoldBackOthers(t *testing.T) {
	const items, rate, slice = 120, 20, 5 // a slice is 250 ms of the rate
	for what, c := range map[string]struct {
		slowed string
		sent   int // to the slowed endpoint, with each slice
	}{
		"limit":      {"UPDATE public.subscriptions SET rate_limit_per_second = 4 WHERE id = $1", 1},
		"suspension": {"INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) VALUES ($1, 'operator', 'eve')", 0},
		"circuit": {`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by)
			VALUES ($1, 'circuit', now() + interval '1 hour', 'webhook_worker')`, 0},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHooks(t)
			h.flag("webhook.slow_start.enabled", "false")
			slow, theirs := h.die("slow", items)
			fine, others := h.die("fine", items)
			h.exec("UPDATE public.subscriptions SET max_attempts = NULL")
			b := h.started(append(theirs, others...), rate, 0, 0)
			tick := func() {
				for range 3 {
					require.Equal(t, "40 0 0", b.tick(10))
				}
				h.step()
			}
			require.NoError(t, h.asOwner("INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) VALUES ($1, 'operator', 'eve')", fine))
			tick()
			waiting := func(sub int64) int {
				return one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Pending' AND subscription_id = $1", sub)
			}
			require.Equal(t, 5*rate, waiting(slow), "as many as the rate allows in 5 s")
			require.NoError(t, h.asOwner("DELETE FROM public.webhook_endpoint_suspensions"))
			require.NoError(t, h.asOwner(c.slowed, slow))
			tick()
			require.Equal(t, 5*rate, waiting(fine))

			sent := map[int64]int{}
			for slices := 0; sent[fine] < items; slices++ {
				require.Less(t, slices, items/(slice-c.sent), "sent: %v", sent)
				require.NoError(t, h.asOwner("UPDATE public.webhook_operation_bucket SET refilled_at = '-infinity'"))
				require.NoError(t, h.asOwner("UPDATE public.webhook_rate_bucket SET refilled_at = '-infinity'"))
				ls := h.claim(1000)
				require.LessOrEqual(t, len(ls), slice)
				for _, l := range ls {
					sent[l.Subscribed]++
				}
				h.finish("", ls...)
				h.step()
			}
			require.LessOrEqual(t, sent[slow], c.sent*items/(slice-c.sent))
			if c.sent > 0 {
				require.Positive(t, sent[slow])
				require.Equal(t, 5*rate-sent[slow], waiting(slow), "its rate allows fewer than that in 5 s")
			}
		})
	}
}

// An endpoint with a rate limit or in slow start takes of each tick only what may be sent to it, also if
// that is less than one item, and the others get the rest of the rate. It gets more when they have too few
// items.
func TestBulkTicksLeaveTheRestToOtherEndpoints(t *testing.T) {
	const total = 400 // items until those of the other endpoint are requeued
	const limit, slowStart = "UPDATE public.subscriptions SET rate_limit_per_second = $2 WHERE id = $1",
		`INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
			SELECT endpoint, now(), 'test', $2, now(), now() FROM public.subscriptions WHERE id = $1 ON CONFLICT DO NOTHING`
	for what, c := range map[string]struct {
		limited int // endpoints
		sql     string
		pace    float64
		rate    float64
		most    int // requeued to them while the other endpoint has items
	}{
		"limit":            {1, limit, 5, 100, 20},
		"many limits":      {9, limit, 1, 50, 72},
		"small limits":     {9, limit, 0.02, 2, 36}, // a tick takes 4 items
		"same slow start":  {3, slowStart, 6, 100, 24},
		"above the rate":   {1, limit, 200, 100, 200},
		"half of the rate": {1, limit, 50, 100, 200},
	} {
		t.Run(what, func(t *testing.T) {
			h := newHooks(t)
			n := int(2 * c.rate) // a tick takes two seconds of the rate at most
			var all []int64
			limited, theirs := map[int64]bool{}, 0
			for i := range c.limited {
				sub, deadLetters := h.die(fmt.Sprint("slow", i), c.most/c.limited+20)
				limited[sub] = true
				theirs += len(deadLetters)
				all = append(all, deadLetters...)
			}
			fine, others := h.die("fine", total-c.most)
			h.exec("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.2:1/hook' WHERE id = $1", fine)
			for sub := range limited {
				require.NoError(t, h.asOwner(c.sql, sub, c.pace))
			}
			b := h.started(append(all, others...), c.rate, 0, 0)
			for range total / n {
				require.Equal(t, fmt.Sprintf("%d 0 0", n), b.tick(10))
			}
			open := func(sub int64) int {
				return one[int](h, "SELECT count(*) FROM public.dead_letter_open WHERE subscription_id = $1", sub)
			}
			require.Zero(t, open(fine))
			for sub := range limited {
				require.Equal(t, 20, open(sub), "each gets the same")
			}
			for left := theirs - c.most; left > 0; left -= min(left, n) {
				require.Equal(t, fmt.Sprintf("%d 0 0", min(left, n)), b.tick(10))
			}
		})
	}
}

// Subscriptions of an endpoint in slow start share its tokens, and leave those of their operation to
// other endpoints.
func TestBulkSlowStartLeavesTokensToOthers(t *testing.T) {
	h := newHooks(t)
	slow, deadLetters := h.die("slow", 10)
	_, too := h.die("too", 10)
	fine, others := h.die("fine", 10)
	b := h.started(append(append(deadLetters, too...), others...), 20, 0, 0)
	require.Equal(t, "30 0 0", b.tick(10))
	h.step()
	h.exec("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.2:1/hook' WHERE id = $1", fine)
	require.NoError(t, h.asOwner(`INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
		SELECT endpoint, now(), 'test', 4, now(), '-infinity' FROM public.subscriptions WHERE id = $1`, slow))
	require.NoError(t, h.asOwner("UPDATE public.webhook_operation_bucket SET refilled_at = '-infinity'"))
	sent := map[bool]int{}
	for _, l := range h.claim(1000) {
		sent[l.Subscribed == fine]++
	}
	require.Equal(t, map[bool]int{false: 1, true: 4}, sent)
}

// While slow starts are off, one that runs limits no endpoint of an operation.
func TestBulkWhileSlowStartsAreOff(t *testing.T) {
	h := newHooks(t)
	slow, deadLetters := h.die("slow", 40)
	fine, others := h.die("fine", 40)
	h.exec("UPDATE public.subscriptions SET callback_url = 'http://127.0.0.2:1/hook' WHERE id = $1", fine)
	require.NoError(t, h.asOwner(`INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
		SELECT endpoint, now(), 'test', 1, now(), now() FROM public.subscriptions WHERE id = $1`, slow))
	h.flag("webhook.slow_start.enabled", "false")
	b := h.started(append(deadLetters, others...), 20, 0, 0)
	require.Equal(t, "40 0 0", b.tick(10))
	require.Equal(t, 20, one[int](h, "SELECT count(*) FROM public.dead_letter_open WHERE subscription_id = $1", slow), "each gets half")
}

// Every request that an operation causes counts against its rate, retries too; while it is paused,
// no request is sent.
func TestBulkRateAtTheSend(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("e", 60)
	h.exec("UPDATE public.subscriptions SET max_attempts = 9")
	b := h.started(deadLetters, 20, 0, 0)
	require.Equal(t, "40 0 0", b.tick(10))
	h.step()
	full := func() {
		require.NoError(t, h.asOwner("UPDATE public.webhook_operation_bucket SET refilled_at = '-infinity'"))
	}
	full()
	ls := h.claim(1000)
	require.Len(t, ls, 5, "a slice is 250 ms of the rate")
	// refilled_at lies in the future, so that the bucket gains no tokens, however slow the machine
	// is.
	require.NoError(t, h.asOwner("UPDATE public.webhook_operation_bucket SET refilled_at = now() + interval '1 hour'"))
	require.Empty(t, h.claim(1000), "and once spent, it is spent")
	h.finish("HTTP_503", ls...)
	h.call("public.fn_saga_orchestrator_run()")
	require.NoError(t, h.asOwner("ALTER TABLE public.webhook_delivery_sagas DISABLE TRIGGER trg_saga_guard"))
	require.NoError(t, h.asOwner("UPDATE public.webhook_delivery_sagas SET next_attempt_at = now() WHERE status = 'PendingRetry'"))
	h.call("public.fn_saga_orchestrator_run()")
	require.Equal(t, 40, one[int](h, "SELECT count(*) FROM public.webhook_delivery_jobs WHERE status = 'Pending' AND operation_id = $1", b.id), "retries among them")
	full()
	h.call("public.fn_queue_bulk_pause($1::bigint, 'ann')", b.id)
	require.Empty(t, h.claim(1000), "paused: nothing goes out")
	h.emit("e", 3) // webhooks of other events are not delayed
	h.step()
	require.Len(t, h.claim(1000), 3)
	h.call("public.fn_queue_bulk_resume($1::bigint, 'ann')", b.id)
	require.Len(t, h.claim(1000), 5)

	// Without a row of webhook_operation_bucket an operation has no rate, and its webhooks are not
	// delayed.
	require.NoError(t, h.asOwner("DELETE FROM public.webhook_operation_bucket"))
	require.Equal(t, "20 0 0", b.tick(10))
	h.step()
	require.Len(t, h.claim(1000), 20)
}
