// Erasing the data of a webhook event through the client.

package pgclient_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func TestEraseThroughPlanAndApply(t *testing.T) {
	w := newWorld(t)
	ids := w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute})
	op := w.client("queue_viewer", "dead_letter_operator", "workflow_admin")
	event := queue.EventDeadLetterID(get[string](w, "SELECT event_id::text FROM public.dead_letters WHERE id = $1::text::bigint", ids[0]))
	require.NotEmpty(t, w.detail(op, ids[0]).Payload.String())
	request := queue.Request{Action: queue.ActErase, Targets: []string{event}, Reason: "request 12"}
	p := plan(t, op, request)
	require.Equal(t, "qtop erase "+event+" --reason 'request 12'", p.Command)
	require.Contains(t, lines(p), "the copies in 1 dead letter ")
	require.Equal(t, "erased", apply(t, op, p).Results[0].Outcome)
	require.Equal(t, "ann request 12", get[string](w, "SELECT actor || ' ' || reason FROM public.queue_operator_action WHERE action = 'webhook_event_erase'"))

	d := w.detail(op, ids[0])
	require.Equal(t, []any{"ann", "", "the payload was erased"}, []any{d.ErasedBy.String(), d.Payload.String(), d.PayloadWhyNot.String()})
	require.NotNil(t, d.ErasedAt)
	page, err := op.List(t.Context(), queue.Query{Kind: queue.ListDeadLetters, Limit: 10})
	require.NoError(t, err)
	for _, l := range queue.Of[[]queue.DeadLetter](page) {
		require.Equal(t, l.ID == ids[0], l.ErasedAt != nil, l.ID)
	}
	require.Equal(t, "erased", plan(t, op, request).Rule)
	p = plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: ids, Reason: "r"})
	require.Equal(t, []int64{1, 1}, []int64{int64(p.Count), int64(p.Skipped)})
	require.Contains(t, lines(p), "erased by ann at ")
	_, err = op.Plan(t.Context(), queue.Request{Action: queue.ActErase, Targets: []string{"event:0190a1b2-1111-4222-8333-0123456789ab"}, Reason: "r"})
	kind(t, queue.KindUsage, err)
}
