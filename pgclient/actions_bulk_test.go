package pgclient_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func bulkPlan(filter string) queue.Request {
	return queue.Request{Action: queue.ActBulkPlan, Filter: filter, Reason: "the receiver is back", Args: map[string]string{}}
}

// A filter selects the same dead letters in the list, in the count of the preview, and in the
// operation that is frozen and carried out. A filter with a syntax error is refused with the same
// column everywhere.
func TestFortyFilters(t *testing.T) {
	w := newWorld(t)
	const acme, slow = "https://hooks.acme.test/a", "https://slow.test/b"
	hooks := w.die(deadLetter{"order", acme, "HTTP_503", time.Minute}, deadLetter{"order", acme, "HTTP_500", 2 * time.Minute},
		deadLetter{"invoice", slow, "TIMEOUT", 10 * time.Minute}, deadLetter{"invoice", slow, "HTTP_503", 3 * time.Hour},
		deadLetter{"order", acme, "HTTP_503", 26 * time.Hour}, deadLetter{"order", acme, "CONNECTION_REFUSED", 5 * time.Minute})
	jobs := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HTTP_503", time.Minute}, jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", 3 * time.Minute},
		jobDeadLetter{"mail.send", "iu", "EXIT_7", 40 * time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	resolve := queue.Request{Action: queue.ActResolve, Targets: hooks[4:5], Reason: "r", Args: map[string]string{"resolution": "abandoned"}}
	require.EqualValues(t, 1, apply(t, op, plan(t, op, resolve)).Done)
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: hooks[5:6], Reason: "r"})).Done)
	sub := get[string](w, "SELECT id::text FROM public.subscriptions WHERE event_type = 'order'")

	list := func(filter string) (int64, error) {
		page, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetters, Filter: filter})
		if err == nil {
			require.EqualValues(t, len(queue.Of[[]queue.DeadLetter](page)), page.Total, filter)
		}
		return page.Total, err
	}
	for filter, want := range map[string]int64{
		"source:webhook": 4, "source:job": 3, "source:event": 0, "source:webhook|job": 7, "code:HTTP_503": 3, "code:HTTP_*": 4, "!code:HTTP_*": 3,
		"code=HTTP_50?": 0, "code:HTTP_50?": 4, "code:TIMEOUT|EXIT_7": 3, "code:NOTHING": 0, "endpoint:*acme*": 2, "endpoint:kg.reindex": 2,
		"endpoint=hooks.acme.test": 2, "!endpoint:*.test": 3, "domain:webhook": 4, "domain:kg|iu": 3, "kind:webhook": 4, "kind:mail.*": 1,
		"type:order": 2, "!type:order": 5, "age>5m": 3, "age<5m": 4, "age>1h age<4h": 1, "failed>-1h": 6, "state:open": 7, "state:resolved": 1,
		"state:requeued": 1, "state:*": 9, "state:open|resolved": 8, "subscription>0": 4, "subscription=" + sub: 2, "id:" + hooks[0]: 1,
		"id:" + hooks[0] + "|" + jobs[0]: 2, "TIMEOUT": 2, "acme": 2, `"kg.reindex"`: 2, "code:HTTP_503 source:webhook": 2, "code:HTTP_503 !source:webhook": 1,
		"age>10000d": 0, "code:HTTP_503|TIMEOUT domain:webhook age<1h": 2, `code:"HTTP_503"`: 3, "id>0": 4, "!acme": 5,
	} {
		n, err := list(filter)
		require.NoError(t, err, filter)
		require.Equal(t, want, n, filter)
		requeue := plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: filter, Reason: "r"})
		require.Equal(t, want, requeue.Count+requeue.Skipped, filter)
		p := plan(t, op, bulkPlan(filter))
		require.Equal(t, want, p.Count, filter)
		if want == 0 {
			require.Equal(t, []string{"no row matches the selection", "no row matches the selection"}, []string{p.Refused, requeue.Refused}, filter)
			continue
		}
		res := apply(t, op, p)
		require.Empty(t, res.Refused, filter)
		require.Equal(t, want, res.Done, filter)
		var frozen int64
		for _, o := range res.Results {
			frozen += get[int64](w, "SELECT count(*) FROM public.queue_bulk_operation_item WHERE operation_id = $1::text::bigint", o.NewID)
		}
		require.Equal(t, want, frozen, filter)
	}
	for filter, column := range map[string]string{
		"code:": "column 6", "nonsense:x": "column 1", "age>soon": "column 5", `code:"open`: "column 6", "!": "column 1", "age>1h code:x|": "column 15",
	} {
		for _, a := range []queue.ActionID{queue.ActBulkPlan, queue.ActRequeue, queue.ActResolve} {
			_, err := op.Plan(context.Background(), queue.Request{Action: a, Filter: filter, Reason: "r"})
			require.ErrorContains(t, err, column, "%s %s", a, filter)
		}
		_, err := list(filter)
		require.ErrorContains(t, err, column, filter)
	}
	for _, a := range []queue.ActionID{queue.ActBulkPlan, queue.ActRequeue} {
		_, err := op.Plan(context.Background(), queue.Request{Action: a, Reason: "r"})
		require.ErrorContains(t, err, "it would select everything")
	}

	// And what is requeued by a filter is what its preview counted.
	p := plan(t, op, queue.Request{Action: queue.ActRequeue, Filter: "code:HTTP_* !source:job", Reason: "r"})
	require.EqualValues(t, 3, p.Count)
	require.EqualValues(t, 3, apply(t, op, p).Done)
}

func TestBulkRefusesBadNumbers(t *testing.T) {
	w := newWorld(t)
	bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	for name, bad := range map[string]string{"rate": "0", "brake": "101", "canary": "-1", "what": "burn"} {
		r := bulkPlan("age>0s")
		r.Args[name] = bad
		_, err := op.Plan(context.Background(), r)
		require.ErrorContains(t, err, bad)
	}
}

// bulkDeadLetters makes two dead letters of webhooks and two of jobs.
func bulkDeadLetters(w *world) (hooks, jobs []string) {
	w.t.Helper()
	hooks = w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_500", 2 * time.Minute})
	jobs = w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HTTP_503", time.Minute}, jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", 3 * time.Minute})
	return hooks, jobs
}

// Dead letters that arrive between the preview and the freeze are not included.
func TestBulkRefusesWhatChanged(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	p := plan(t, op, bulkPlan("age>0s"))
	require.EqualValues(t, 4, p.Count)
	require.Contains(t, lines(p), "no live host runs bulk operations")
	closed := plan(t, op, queue.Request{Action: queue.ActResolve, Targets: hooks[:1], Reason: "r", Args: map[string]string{"resolution": "abandoned"}})
	require.EqualValues(t, 1, apply(t, op, closed).Done)
	res := apply(t, op, p)
	require.Equal(t, "the selection changed since the preview, from webhook=2 job=2 event=0 to webhook=1 job=2 event=0: nothing was planned; plan again", res.Refused)
	require.Equal(t, "bulk_plan age>0s: ann, the receiver is back, refused: changed", auditRow(w, res.AuditID))
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.queue_bulk_operation"))

	// Dead letters that arrive after the preview are left out, and the action is not refused.
	p = plan(t, op, bulkPlan("age>0s"))
	w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 0})
	res = apply(t, op, p)
	require.Empty(t, res.Refused)
	require.EqualValues(t, 3, res.Done)
}

func TestBulkTurns(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	r := queue.Request{Action: queue.ActBulkPlan, Targets: hooks, Reason: "r", Args: map[string]string{"rate": "0.5", "canary": "0", "brake": "0"}}
	p := plan(t, op, r)
	require.True(t, strings.HasPrefix(p.Command, "qtop ops plan "+hooks[0]), p.Command)
	require.Contains(t, lines(p), "about 4s")
	id := apply(t, op, p).Results[0].NewID
	turn := func(a queue.ActionID, args map[string]string) queue.Result {
		t.Helper()
		return apply(t, op, plan(t, op, queue.Request{Action: a, Targets: []string{id}, Args: args}))
	}
	require.Contains(t, turn(queue.ActBulkPause, nil).Refused, "is planned")
	require.Empty(t, turn(queue.ActBulkRun, nil).Refused)
	require.Empty(t, turn(queue.ActBulkRate, map[string]string{"rate": "200"}).Refused)
	require.Empty(t, turn(queue.ActBulkPause, nil).Refused)
	require.Contains(t, turn(queue.ActBulkUndo, nil).Refused, "this operation has requeued nothing yet: qtop ops abort ends it")
	require.Empty(t, turn(queue.ActBulkResume, nil).Refused)
	require.Empty(t, turn(queue.ActBulkAbort, nil).Refused)
	require.Contains(t, turn(queue.ActBulkResume, nil).Refused, "is aborted")
	page, err := op.List(context.Background(), queue.Query{Kind: queue.ListOperation, ID: id})
	require.NoError(t, err)
	o := queue.Of[*queue.OperationDetail](page)
	require.Equal(t, "aborted", o.State)
	require.InDelta(t, 200, o.Rate, 0)
	require.EqualValues(t, 2, o.Left())
	require.Empty(t, o.Items)
	_, err = op.Plan(context.Background(), queue.Request{Action: queue.ActBulkRun, Targets: []string{"twelve"}})
	require.ErrorContains(t, err, "not the number of an operation")
	missing := plan(t, op, queue.Request{Action: queue.ActBulkRun, Targets: []string{"999"}})
	require.Equal(t, "there is no operation 999; qtop ops lists them", missing.Refused)
}

// Several filters select what matches any of them, once each, in the preview, in what is
// frozen and in the printed command.
func TestSeveralFilters(t *testing.T) {
	w := newWorld(t)
	const acme, slow = "https://hooks.acme.test/a", "https://slow.test/b"
	hooks := w.die(deadLetter{"order", acme, "HTTP_503", time.Minute}, deadLetter{"order", acme, "TIMEOUT", 3 * time.Hour},
		deadLetter{"invoice", slow, "TIMEOUT", time.Minute}, deadLetter{"invoice", slow, "HTTP_503", 3 * time.Hour})
	w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "TIMEOUT", time.Minute}, jobDeadLetter{"mail.send", "iu", "EXIT_7", time.Minute})
	op := w.client("dead_letter_operator", "queue_viewer")
	require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActResolve, Targets: hooks[:1], Reason: "r", Args: map[string]string{}})).Done)

	ask := func(action queue.ActionID, filters ...string) queue.Request {
		return queue.Request{Action: action, Filter: filters[0], Or: filters[1:], Reason: "r", Args: map[string]string{}}
	}
	for _, x := range []struct {
		want    int64
		filters []string
	}{
		{3, []string{"code=TIMEOUT", "code:TIME*"}},
		{4, []string{"code=TIMEOUT", "endpoint=slow.test age>1h"}},
		{2, []string{"code=TIMEOUT source=webhook", "state=resolved code=NOTHING"}},
		{3, []string{"code=TIMEOUT source=webhook", "state=resolved"}},
	} {
		require.Equal(t, x.want, plan(t, op, ask(queue.ActBulkPlan, x.filters...)).Count, "%q", x.filters)
	}
	p := plan(t, op, ask(queue.ActRequeue, "code=TIMEOUT source=webhook", "kind=mail.send"))
	require.EqualValues(t, 3, p.Count)
	require.Equal(t, "qtop requeue --filter 'code=TIMEOUT source=webhook' --filter kind=mail.send --reason r", p.Command)
	frozen := apply(t, op, plan(t, op, ask(queue.ActBulkPlan, "code=TIMEOUT source=webhook", "kind=mail.send")))
	require.EqualValues(t, 3, frozen.Done)
	require.Equal(t, "(code=TIMEOUT source=webhook) or (kind=mail.send)", get[string](w, "SELECT DISTINCT filter FROM public.queue_bulk_operation"))
	for _, empty := range [][]string{{"code=TIMEOUT", ""}, {"code=TIMEOUT", " "}} {
		_, err := op.Plan(t.Context(), ask(queue.ActRequeue, empty...))
		require.ErrorContains(t, err, "it would select everything")
	}
}

// Start, resume and a new rate are refused if somebody else changed the rate or the state since the
// preview; what only ends sending is not.
func TestOperationChangedSinceThePreview(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkDeadLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	r := queue.Request{Action: queue.ActBulkPlan, Targets: hooks, Reason: "r", Args: map[string]string{"rate": "20", "canary": "0", "brake": "0"}}
	id := apply(t, op, plan(t, op, r)).Results[0].NewID
	preview := func(a queue.ActionID, rate string) queue.Plan {
		t.Helper()
		return plan(t, op, queue.Request{Action: a, Targets: []string{id}, Args: map[string]string{"rate": rate}})
	}
	turn := func(a queue.ActionID, rate string) {
		t.Helper()
		require.Empty(t, apply(t, op, preview(a, rate)).Refused)
	}
	now := func() string {
		return get[string](w, "SELECT rate_per_second::float8 || ' ' || state FROM public.queue_bulk_operation WHERE operation_id = $1::text::bigint", id)
	}
	faster, start := preview(queue.ActBulkRate, "40"), preview(queue.ActBulkRun, "")
	turn(queue.ActBulkRate, "0.2")
	res := apply(t, op, faster)
	require.Equal(t, "the operation was changed since the preview, to 0.2/s, planned: plan the change again", res.Refused)
	require.EqualValues(t, 1, res.Skipped)
	require.Equal(t, "bulk_rate operation "+id+": ann, r, refused: changed", auditRow(w, res.AuditID))
	res = apply(t, op, start)
	require.Contains(t, res.Refused, "changed since the preview, to 0.2/s")
	require.Equal(t, "bulk_run operation "+id+": ann, r, refused: changed", auditRow(w, res.AuditID))
	require.Equal(t, "0.2 planned", now())

	turn(queue.ActBulkRun, "")
	stop := preview(queue.ActBulkPause, "")
	turn(queue.ActBulkRate, "0.3")
	require.Empty(t, apply(t, op, stop).Refused)
	again := preview(queue.ActBulkResume, "")
	turn(queue.ActBulkResume, "")
	turn(queue.ActBulkPause, "")
	res = apply(t, op, again)
	require.Contains(t, res.Refused, "changed since the preview, to 0.3/s, paused", "it is paused for another reason now")
	require.Equal(t, "bulk_resume operation "+id+": ann, r, refused: changed", auditRow(w, res.AuditID))
	end := preview(queue.ActBulkAbort, "")
	turn(queue.ActBulkResume, "")
	require.Empty(t, apply(t, op, end).Refused)
	require.Equal(t, "0.3 aborted", now())
}
