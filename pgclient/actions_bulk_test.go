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

// What the preview counts is what is frozen, for filters of every kind, and one
// that does not parse points at its column.
func TestBulkFreezesWhatThePreviewCounts(t *testing.T) {
	w := newWorld(t)
	hooks, jobs := bulkLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	for _, filter := range []string{
		"source:webhook", "source:job", "code:HTTP_*", "!code:HTTP_*", "kind:k*", "age>0s", "age<1h", "failed>-1h", "state:open", "state:open|resolved",
		"domain:webhook", "domain:kg", "id:" + hooks[0], "id:" + jobs[0], "TIMEOUT", "code:HTTP_500|TIMEOUT source:webhook|job", "state:requeued", "code:NOTHING",
		"subscription>0", "type:*", "endpoint:hooks*",
	} {
		p := plan(t, op, bulkPlan(filter))
		page, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetters, Filter: filter})
		require.NoError(t, err, filter)
		require.EqualValues(t, len(page.DeadLetters), p.Count, filter)
		if p.Count == 0 {
			require.Equal(t, "nothing matches", p.Refused, filter)
			continue
		}
		res := apply(t, op, p)
		require.Empty(t, res.Refused, filter)
		require.Equal(t, p.Count, res.Done, filter)
		var frozen int64
		for _, o := range res.Results {
			frozen += get[int64](w, "SELECT count(*) FROM queue_bulk_operation_item WHERE operation_id = $1::text::bigint", o.NewID)
		}
		require.Equal(t, p.Count, frozen, filter)
	}
	for filter, column := range map[string]string{"code:": "column 6", "nonsense:x": "column 1", "age>soon": "column 5"} {
		_, err := op.Plan(context.Background(), bulkPlan(filter))
		require.ErrorContains(t, err, column, filter)
	}
	_, err := op.Plan(context.Background(), bulkPlan(""))
	require.ErrorContains(t, err, "selects everything")
	for name, bad := range map[string]string{"rate": "0", "brake": "101", "canary": "-1", "what": "burn"} {
		r := bulkPlan("age>0s")
		r.Args[name] = bad
		_, err := op.Plan(context.Background(), r)
		require.ErrorContains(t, err, bad)
	}
}

// bulkLetters makes two letters of webhooks and two of jobs.
func bulkLetters(w *world) (hooks, jobs []string) {
	w.t.Helper()
	hooks = w.die(letter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}, letter{"order", "https://hooks.acme.test/a", "HTTP_500", 2 * time.Minute})
	jobs = w.dieJobs(jobLetter{"kg.reindex", "kg", "HTTP_503", time.Minute}, jobLetter{"kg.reindex", "kg", "TIMEOUT", 3 * time.Minute})
	return hooks, jobs
}

// What came between the preview and the freeze is not slipped in.
func TestBulkRefusesWhatChanged(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkLetters(w)
	op := w.client("dead_letter_operator", "queue_viewer")
	p := plan(t, op, bulkPlan("age>0s"))
	require.EqualValues(t, 4, p.Count)
	require.Contains(t, lines(p), "no live host runs bulk operations")
	closed := plan(t, op, queue.Request{Action: queue.ActResolve, Targets: hooks[:1], Reason: "r", Args: map[string]string{"resolution": "abandoned"}})
	require.EqualValues(t, 1, apply(t, op, closed).Done)
	res := apply(t, op, p)
	require.Equal(t, "the selection changed since the preview: it was webhook=2 job=2 and is webhook=1 job=2", res.Refused)
	require.Zero(t, get[int](w, "SELECT count(*) FROM queue_bulk_operation"))

	// What has died since the preview is left out, and stops nobody.
	p = plan(t, op, bulkPlan("age>0s"))
	w.die(letter{"order", "https://hooks.acme.test/a", "HTTP_503", 0})
	res = apply(t, op, p)
	require.Empty(t, res.Refused)
	require.EqualValues(t, 3, res.Done)
}

func TestBulkTurns(t *testing.T) {
	w := newWorld(t)
	hooks, _ := bulkLetters(w)
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
	require.Contains(t, turn(queue.ActBulkUndo, nil).Refused, "attempted already")
	require.Empty(t, turn(queue.ActBulkResume, nil).Refused)
	require.Empty(t, turn(queue.ActBulkAbort, nil).Refused)
	require.Contains(t, turn(queue.ActBulkResume, nil).Refused, "is aborted")
	page, err := op.List(context.Background(), queue.Query{Kind: queue.ListOperation, ID: id})
	require.NoError(t, err)
	require.Equal(t, "aborted", page.Operations[0].State)
	require.InDelta(t, 200, page.Operations[0].Rate, 0)
	require.EqualValues(t, 2, page.Operations[0].Left())
	require.Empty(t, page.Items)
	_, err = op.Plan(context.Background(), queue.Request{Action: queue.ActBulkRun, Targets: []string{"twelve"}})
	require.ErrorContains(t, err, "not the number of an operation")
	missing := plan(t, op, queue.Request{Action: queue.ActBulkRun, Targets: []string{"999"}})
	require.Equal(t, "there is no operation 999", missing.Refused)
}
