package pgclient_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// An operation that closed dead letters is undone like one that requeued them.
func TestBulkResolveIsUndone(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	id := apply(t, op, plan(t, op, queue.Request{Action: queue.ActBulkPlan, Targets: hooks, Reason: "r", Args: map[string]string{"what": "resolve", "canary": "0", "rate": "1000"}})).Results[0].NewID
	undo := queue.Request{Action: queue.ActBulkUndo, Targets: []string{id}}
	require.Empty(t, apply(t, op, plan(t, op, queue.Request{Action: queue.ActBulkRun, Targets: []string{id}})).Refused)
	w.exec("UPDATE public.queue_bulk_operation SET credited_at = now() - interval '1 minute'")
	w.exec("SELECT public.fn_queue_bulk_tick()")
	require.Equal(t, "completed", get[string](w, "SELECT state FROM public.queue_bulk_operation"))
	require.Equal(t, 0, get[int](w, "SELECT count(*) FROM public.dead_letter_open WHERE dead_letter_id::text = ANY ($1)", hooks))
	p := plan(t, op, undo)
	require.Empty(t, p.Refused)
	require.EqualValues(t, 2, p.Count)
	require.Contains(t, lines(p), "up to 2 dead letters are opened again")
	res := apply(t, op, p)
	require.EqualValues(t, 2, res.Done)
	require.Equal(t, "2 opened again, 0 not", res.Results[0].Why.String())
	require.Equal(t, 2, get[int](w, "SELECT count(*) FROM public.dead_letter_open WHERE dead_letter_id::text = ANY ($1)", hooks))
	require.Equal(t, "all that this operation did is undone already", plan(t, op, undo).Refused)
}

// An id without a dead letter is named and left out; the others are frozen.
func TestBulkLeavesOutUnknownIDs(t *testing.T) {
	w := newWorld(t)
	hooks, jobs := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	const nobody = "job:00000000-0000-4000-8000-000000000000"
	ask := func(ids ...string) queue.Request {
		return queue.Request{Action: queue.ActBulkPlan, Targets: ids, Reason: "r", Args: map[string]string{}}
	}
	p := plan(t, op, ask(hooks[0], "999999", hooks[0], jobs[1], nobody))
	require.EqualValues(t, 2, p.Count)
	require.Contains(t, lines(p), "999999, "+nobody+": there is no such dead letter")
	require.EqualValues(t, 2, p.Skipped)
	res := apply(t, op, p)
	require.Empty(t, res.Refused)
	require.EqualValues(t, 2, res.Done)
	require.EqualValues(t, 2, res.Skipped)
	require.Len(t, res.Results, 4, "two operations and two ids")
	for i, id := range []string{"999999", nobody} {
		require.Equal(t, queue.Outcome{ID: id, Outcome: "skipped", Why: queue.Clean("no such dead letter: never written, or removed by retention")}, res.Results[2+i])
	}
	require.Equal(t, "there is no dead letter 999999, "+nobody, plan(t, op, ask("999999", nobody)).Refused)
}

// A filter that matches more dead letters than one call takes is refused with the way that takes more.
func TestFilterOfTooManyDeadLetters(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
		SELECT gen_random_uuid(), '{}', i, 'ROUTE_22P02', '', 'iu', 'iu_outbound_default' FROM generate_series(1, 100001) i`)
	op := w.client("dead_letter_operator", "queue_viewer")
	for action, do := range map[queue.ActionID]string{
		queue.ActRequeue: "narrow the filter; qtop ops plan, and requeue with --rate, take up to 1000000",
		queue.ActResolve: "narrow the filter; qtop ops plan --what resolve closes up to 1000000 as abandoned",
		queue.ActReopen:  "narrow the filter",
	} {
		_, err := op.Plan(t.Context(), queue.Request{Action: action, Filter: "source:event", Reason: "r", Args: map[string]string{}})
		require.Equal(t, queue.KindUsage, queue.KindOf(err), action)
		require.ErrorContains(t, err, "more than 100000 dead letters of source event match", action)
		var e *queue.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, do, e.Do.String(), action)
	}
}

// The operation records of very many filters the first ones; a reason that is too long is refused in
// the preview.
func TestBulkOfManyFilters(t *testing.T) {
	w := newWorld(t)
	bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	r := bulkPlan("code=HTTP_503")
	for i := range 200 {
		r.Or = append(r.Or, fmt.Sprintf("source=webhook code=HTTP_%d subscription=123456789 domain=webhook", 1000+i))
	}
	require.EqualValues(t, 2, apply(t, op, plan(t, op, r)).Done)
	recorded := get[string](w, "SELECT DISTINCT filter FROM public.queue_bulk_operation")
	require.True(t, strings.HasPrefix(recorded, "(code=HTTP_503) or ("), recorded)
	require.True(t, strings.HasSuffix(recorded, "… and 198 more"), recorded)
	r.Reason = strings.Repeat("é", queue.MostReason+1)
	_, err := op.Plan(t.Context(), r)
	require.ErrorContains(t, err, "the reason has more than 2000 characters")
}

// The preview of an operation says what its rate does not limit, and which selected dead letters are
// items of other operations.
func TestBulkSaysWhatElseIsSent(t *testing.T) {
	w := newWorld(t)
	hooks, jobs := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	acme := get[string](w, "SELECT id::text FROM public.subscriptions WHERE callback_url = $1", acmeURL)
	said := func(r queue.Request, label string) string {
		t.Helper()
		at, _ := queue.Find(plan(t, op, r).Lines, func(l queue.PlanLine) bool { return l.Label == label })
		return at.Value.String()
	}
	all := bulkPlan("age>0s")
	all.Args["rate"] = "2"
	limit := "all to subscription " + acme + " is limited by M in pane 7, or qtop webhook limit " + acme + " --per-second N"
	require.Equal(t, "other deliveries to hooks.acme.test; "+limit, said(all, "not in the rate"))
	apply(t, op, plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: w.die(deadLetter{"order", acmeURL, "HTTP_503", time.Minute}), Reason: "r"}))
	require.Equal(t, "other deliveries to hooks.acme.test: 1 that waits, and new ones; "+limit, said(all, "not in the rate"))
	require.Empty(t, said(queue.Request{Action: queue.ActBulkPlan, Targets: jobs, Reason: "r", Args: map[string]string{}}, "not in the rate"))
	closing := bulkPlan("age>0s")
	closing.Args["what"] = "resolve"
	require.Empty(t, said(closing, "not in the rate"))

	require.Equal(t, "no limit: all are due at once; at a rate: N in pane 5, or qtop requeue --rate N", said(queue.Request{Action: queue.ActRequeue, Targets: hooks, Reason: "r"}, "rate"))
	require.Empty(t, said(queue.Request{Action: queue.ActRequeue, Targets: hooks[:1], Reason: "r"}, "rate"))

	require.Empty(t, said(all, "also planned"))
	first := apply(t, op, plan(t, op, all)).Results
	require.Equal(t, "2 in operation "+first[0].NewID+" (planned), 2 in operation "+first[1].NewID+" (planned); "+
		"each dead letter is requeued or closed once, by the operation that comes to it first", said(closing, "also planned"))
	run := queue.Request{Action: queue.ActBulkRun, Targets: []string{first[0].NewID}}
	require.Equal(t, "other deliveries to hooks.acme.test: 1 that waits, and new ones; "+limit, said(run, "not in the rate"))
	apply(t, op, plan(t, op, run))
	require.Regexp(t, "^1 in operation "+first[0].NewID+" [(]running[)]; ", said(queue.Request{Action: queue.ActBulkPlan, Targets: hooks[:1], Reason: "r", Args: map[string]string{}}, "also planned"))
	for _, o := range first {
		apply(t, op, plan(t, op, queue.Request{Action: queue.ActBulkAbort, Targets: []string{o.NewID}}))
	}
	require.Empty(t, said(all, "also planned"), "an operation that has ended carries out nothing")
	w.exec("UPDATE public.subscriptions SET rate_limit_per_second = 2 WHERE id = $1::bigint", acme)
	require.Equal(t, "other deliveries to hooks.acme.test: 1 that waits, and new ones; all to subscription "+acme+" is limited to 2/s (M in pane 7, qtop webhook limit "+acme+")", said(all, "not in the rate"))
}
