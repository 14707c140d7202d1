// The actions of operators on dead letters: each takes effect once, is refused with a reason, and
// can be undone.

package schema_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWebhookRequeue(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 3)
	old := one[string](h, "SELECT s::text FROM public.webhook_delivery_sagas s WHERE id = 1")

	dry := h.call("public.fn_dead_letter_requeue($1, 'ann', NULL, true)", deadLetters)
	require.Equal(t, 3, num(dry, "requeued"))
	require.Equal(t, "would_requeue", results(t, dry)[0]["outcome"])
	require.Nil(t, dry["audit_id"])
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM public.dead_letter_open"), "a dry run changes nothing")
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.queue_operator_action WHERE action LIKE 'dead_letter%'"))

	got := h.requeue(deadLetters[2], deadLetters[0], deadLetters[0], 9999)
	require.Equal(t, 2, num(got, "requeued"), got)
	require.Equal(t, 1, num(got, "skipped"))
	list := results(t, got)
	require.Equal(t, "no such dead letter: never written, or removed by retention", list[2]["why"])
	require.Equal(t, "requeued", list[0]["outcome"])
	newID := int64(list[0]["new_id"].(float64))
	require.Equal(t, "Pending 0 1 t 0", one[string](h, `SELECT concat_ws(' ', s.status, attempt_count, requeue_generation,
		next_attempt_at = s.created_at, (SELECT count(*) FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id))
		FROM public.webhook_delivery_sagas s WHERE id = $1`, newID))
	require.Equal(t, old, one[string](h, "SELECT s::text FROM public.webhook_delivery_sagas s WHERE id = 1"), "the old saga stays as it was")
	require.Equal(t, []string{"ann", "receiver is back"}, one[[]string](h,
		"SELECT array_agg(DISTINCT a) FROM public.dead_letter_requeues, unnest(ARRAY[requeued_by, reason]) a"))

	again := h.requeue(deadLetters...)
	require.Equal(t, 1, num(again, "requeued"))
	require.Contains(t, results(t, again)[0]["why"], "already requeued by ann at 20")
	none := h.requeue(deadLetters...)
	require.Zero(t, num(none, "requeued"))
	require.Equal(t, "refused", one[string](h, "SELECT outcome FROM public.queue_operator_action WHERE id = $1", int64(num(none, "audit_id"))))

	require.Equal(t, 3, num(h.step(), "jobs_created"))
	for _, l := range h.claim(10) {
		require.Equal(t, 1, l.Attempt)
		require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas s JOIN public.dead_letters d USING (event_id, subscription_id) "+
			"JOIN public.webhook_delivery_sagas old ON old.id = d.saga_id WHERE s.id = $1 AND old.webhook_id::text = $2", l.Saga, l.WebhookID), "the same webhook id again")
		h.finish("HTTP_500", l)
	}
	h.step()
	second := one[[]int64](h, "SELECT array_agg(dead_letter_id ORDER BY dead_letter_id) FROM public.dead_letter_open")
	require.Len(t, second, 3, "it may die again")
	require.Equal(t, 3, num(h.requeue(second...), "requeued"))
	require.Equal(t, 2, one[int](h, "SELECT max(requeue_generation) FROM public.webhook_delivery_sagas"))
}

func TestWebhookRequeueSkips(t *testing.T) {
	h := newHooks(t)
	sub, deadLetters := h.die("order", 1)
	why := func() string {
		t.Helper()
		dry := h.call("public.fn_dead_letter_requeue($1, 'ann', '', true)", deadLetters)
		real := h.requeue(deadLetters...)
		require.Equal(t, 1, num(real, "skipped"), real)
		require.Equal(t, results(t, dry)[0]["why"], results(t, real)[0]["why"], "dry run and real agree")
		return results(t, real)[0]["why"].(string)
	}
	h.exec("UPDATE public.subscriptions SET active = false")
	require.Equal(t, "webhook subscription 1 is inactive: enable it first", why())
	h.exec("UPDATE public.subscriptions SET active = true")
	h.call("public.fn_endpoint_suspend($1, 'ben', 'down')", sub)
	require.Contains(t, why(), "endpoint suspended (operator) by ben since 20")
	h.call("public.fn_endpoint_resume($1, 'ben', 'up')", sub)
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', 'not worth it', 'eve')", deadLetters)
	require.Contains(t, why(), "resolved as abandoned by eve at 20")
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	require.Equal(t, 1, num(h.call("public.fn_dead_letter_reopen($1, 'eve', 'second thoughts')", deadLetters), "reopened"))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))

	h.flag("queue.dlq.replay_enabled", "false")
	got := h.requeue(deadLetters...)
	require.Equal(t, true, got["refused"])
	require.Equal(t, "refused: disabled", one[string](h, "SELECT outcome FROM public.queue_operator_action WHERE id = $1", int64(num(got, "audit_id"))))
	h.flag("queue.dlq.replay_enabled", "true")

	h.flag("webhook.circuit_failures", "1")
	h.exec(`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) VALUES ($1, 'circuit', now() + interval '1 hour', 'x')`, sub)
	require.Equal(t, 1, num(h.requeue(deadLetters...), "requeued"), "an open circuit only makes it wait")
	require.Zero(t, num(h.step(), "jobs_created"))

	for what, args := range map[string]string{"no actor": "'{1}', ' ', 'r'", "no reason": "'{1}', 'ann', ''",
		"no ids": "'{}', 'ann', 'r'", "null ids": "NULL, 'ann', 'r'", "a null id": "'{1,NULL}', 'ann', 'r'"} {
		_, err := tryCall(h.work, "public.fn_dead_letter_requeue("+args+")")
		refused(t, "22023", err, what)
	}
	_, err := tryCall(h.work, "public.fn_dead_letter_resolve('{1}', 'shredded', '', 'ann')")
	refused(t, "22023", err, "an unknown resolution")
}

func TestWebhookRequeueUndo(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 3)
	h.requeue(deadLetters[0], deadLetters[1])
	h.exec("UPDATE public.subscriptions SET active = false")
	dry := h.call("public.fn_dead_letter_requeue_undo($1, 'ann', '', true)", deadLetters)
	require.Equal(t, 2, num(dry, "recalled"))
	require.Equal(t, "not requeued: there is nothing to undo", results(t, dry)[2]["why"])
	sagas := one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas")
	got := h.call("public.fn_dead_letter_requeue_undo($1, 'ann', 'wrong group')", deadLetters[:1])
	require.Equal(t, 1, num(got, "recalled"))
	require.Equal(t, sagas-1, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas"))
	require.Equal(t, 2, one[int](h, "SELECT count(*) FROM public.dead_letter_open"), "open again")
	audit := one[string](h, "SELECT after ->> 'letters' FROM public.queue_operator_action WHERE id = $1", int64(num(got, "audit_id")))
	require.Equal(t, fmt.Sprintf("[[%d, %v]]", deadLetters[0], results(t, got)[0]["new_id"]), audit, "both ids stay in the audit")

	h.exec("UPDATE public.subscriptions SET active = true")
	h.step()
	late := h.call("public.fn_dead_letter_requeue_undo($1, 'ann', 'too late')", deadLetters[1:2])
	require.Contains(t, results(t, late)[0]["why"], "has started (InProgress)")
	require.Equal(t, 1, num(h.requeue(deadLetters[0]), "requeued"), "what was recalled may be requeued again")
}

func TestWebhookUndoAgainstOrchestrator(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 200)
	require.Equal(t, 200, num(h.requeue(deadLetters...), "requeued"))
	var wg sync.WaitGroup
	var undone map[string]any
	var undoErr, runErr error
	made := 0
	wg.Go(func() {
		undone, undoErr = tryCall(h.work, "public.fn_dead_letter_requeue_undo($1, 'ann', 'race')", deadLetters)
	})
	wg.Go(func() {
		for range 10 {
			var got map[string]any
			if got, runErr = tryCall(h.root, "public.fn_saga_orchestrator_run(20)"); runErr != nil {
				return
			}
			made += num(got, "jobs_created")
		}
	})
	wg.Wait()
	require.NoError(t, undoErr)
	require.NoError(t, runErr)
	for range 10 {
		made += num(h.call("public.fn_saga_orchestrator_run(100)"), "jobs_created")
	}
	require.Equal(t, 200, made+num(undone, "recalled"), "each was either recalled or started")
}

func TestWebhookRequeueRace(t *testing.T) {
	for _, n := range []int{16, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			h := newHooks(t)
			_, deadLetters := h.die("order", 5)
			pool := h.manyOperators(n)
			answers := make([]map[string]any, n)
			errs := make([]error, n)
			start := make(chan struct{})
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					ids := append([]int64(nil), deadLetters...)
					if i%2 == 1 { // opposite orders must not deadlock
						ids[0], ids[4], ids[1], ids[3] = ids[4], ids[0], ids[3], ids[1]
					}
					<-start
					answers[i], errs[i] = tryCall(pool, "public.fn_dead_letter_requeue($1, $2, 'race')", ids, fmt.Sprintf("op%d", i))
				})
			}
			close(start)
			wg.Wait()
			winner := ""
			for i := range n {
				require.NoError(t, errs[i])
				if num(answers[i], "requeued") == 5 {
					require.Empty(t, winner, "one winner")
					winner = fmt.Sprintf("op%d", i)
				}
			}
			require.NotEmpty(t, winner)
			for i := range n {
				if winner != fmt.Sprintf("op%d", i) {
					for _, r := range results(t, answers[i]) {
						require.Contains(t, r["why"], "already requeued by "+winner+" at 20")
					}
				}
			}
			require.Equal(t, 5, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status <> 'DeadLettered'"))
			require.Equal(t, n, one[int](h, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'dead_letter_requeue'"))
		})
	}
}

func TestWebhookRequeueMany(t *testing.T) {
	h := newHooks(t)
	n := 4000
	if full() {
		n = 40000
	}
	_, deadLetters := h.die("order", n)
	require.Len(t, deadLetters, n)
	got := h.requeue(deadLetters...)
	require.Equal(t, n, num(got, "requeued"))
	require.Zero(t, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	require.Equal(t, n, num(h.call("public.fn_dead_letter_requeue_undo($1, 'ann', 'all of it')", deadLetters), "recalled"))
	require.Equal(t, n, one[int](h, "SELECT count(*) FROM public.dead_letter_open"))
	require.Equal(t, n, num(h.call("public.fn_dead_letter_resolve($1, 'duplicate', NULL, 'ann')", deadLetters), "resolved"))
	require.Equal(t, n, num(h.call("public.fn_dead_letter_reopen($1, 'ann', 'no')", deadLetters), "reopened"))
	h.checkCounters()
}

// A setting of the session does not determine which operation a requeue belongs to: only an
// operation itself writes its id.
func TestWebhookRequeueNamesNoOperationThatASessionClaims(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 1)
	tx, err := h.work.Begin(context.Background())
	require.NoError(t, err)
	_, err = tx.Exec(context.Background(), "SELECT set_config('qtop.operation_id', '77', true)")
	require.NoError(t, err)
	_, err = tx.Exec(context.Background(), "SELECT public.fn_dead_letter_requeue($1, 'ann', 'bulk')", deadLetters)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(context.Background()))
	require.Equal(t, 1, one[int](h, "SELECT count(*) FROM public.dead_letter_requeues WHERE operation_id IS NULL"))
	fails(t, h.work, "42501", "SELECT public.fn_dead_letter_requeue_as($1, 'ann', 'bulk', false, 77)", deadLetters)
}
