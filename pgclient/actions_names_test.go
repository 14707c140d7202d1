package pgclient_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// The first line of a preview names the rows that the action takes. If the rows were chosen from a
// filtered list, the preview also says how many rows match the filter, and the names of those.
func TestPreviewNamesWhatItTakes(t *testing.T) {
	w := newWorld(t)
	acme := deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", time.Minute}
	hooks := w.die(acme, acme, acme, deadLetter{"other", "https://slow.test/", "HTTP_503", time.Hour}, deadLetter{"other", "https://slow.test/", "TIMEOUT", time.Hour})
	jobs := w.dieJobs(jobDeadLetter{"kg.reindex", "kg", "HTTP_503", time.Minute})
	events := w.dieEvents("order.lost")
	op := w.client("dead_letter_operator", "queue_viewer", "workflow_admin")
	first := func(r queue.Request) string {
		t.Helper()
		r.Reason = "r"
		p := plan(t, op, r)
		require.NotEmpty(t, p.Lines, "%+v", p)
		return p.Lines[0].Label + " " + p.Lines[0].Value.String()
	}
	for _, x := range []struct {
		want string
		r    queue.Request
	}{
		{"dead letters 1 of 1: HTTP_503 at hooks.acme.test", queue.Request{Action: queue.ActRequeue, Targets: hooks[:1]}},
		{"dead letters 4 of 4: HTTP_503 at hooks.acme.test \\(3\\), HTTP_503 of job kg.reindex \\(1\\)", queue.Request{Action: queue.ActRequeue, Targets: append(hooks[:3:3], jobs...)}},
		{"dead letters 1 of 1: .* of event .*/order.lost", queue.Request{Action: queue.ActResolve, Targets: events}},
		{"dead letters 5, as of .*Z: HTTP_503 at hooks.acme.test \\(3\\), HTTP_503 at slow.test \\(1\\), HTTP_503 of job kg.reindex \\(1\\); later", bulkPlan("code:HTTP_503")},
		{"payload of HTTP_503 at hooks.acme.test \\(" + hooks[0] + "\\)", queue.Request{Action: queue.ActReveal, Targets: hooks[:1]}},
		{"payload of HTTP_503 of job kg.reindex \\(job:", queue.Request{Action: queue.ActReveal, Targets: jobs}},
		{"endpoint hooks.acme.test", queue.Request{Action: queue.ActSuspend, Targets: []string{get[string](w, "SELECT id::text FROM public.subscriptions WHERE event_type = 'order'")}}},
	} {
		require.Regexp(t, "^"+x.want, first(x.r))
	}

	match := func(r queue.Request, within string) *queue.Match {
		t.Helper()
		r.Reason, r.Within = "r", within
		return plan(t, op, r).Match
	}
	one := queue.Request{Action: queue.ActRequeue, Targets: hooks[:1]}
	require.Equal(t, &queue.Match{Count: 5, What: queue.Clean("hooks.acme.test (3), slow.test (1), job kg.reindex (1)")}, match(one, "code:HTTP_503"))
	require.Nil(t, match(queue.Request{Action: queue.ActRequeue, Targets: hooks[:3]}, "endpoint:hooks.acme*"), "all that match are taken")
	require.Nil(t, match(one, ""), "an empty filter is no selection")
	groups := bulkPlan("code:HTTP_503 endpoint=slow.test")
	require.EqualValues(t, 5, match(groups, "code:HTTP_503").Count)

	// Of many endpoints and codes the preview names eight, and counts the others.
	var many []deadLetter
	for i := range 10 {
		many = append(many, deadLetter{"parcel", "https://parcel.test/a", fmt.Sprintf("HTTP_50%d", i), time.Minute})
	}
	w.die(append(many, many[0])...)
	p := plan(t, op, bulkPlan("endpoint=parcel.test"))
	to := lineOf(p, "to")
	require.Equal(t, 9, strings.Count(to, "\n"), to)
	require.Contains(t, to, "… and 2 more endpoints and codes, with 2 dead letters\n")

	id := w.enqueue("kg.reindex", "kg", 3)
	w.enqueue("kg.reindex", "kg", 3)
	cancel := queue.Request{Action: queue.ActJobCancel, Targets: []string{id}}
	require.Equal(t, "jobs 1 of 1: kg.reindex in kg", first(cancel))
	require.Equal(t, &queue.Match{Count: 2, What: queue.Clean("kg.reindex in kg, queued")}, match(cancel, "kind=kg.reindex"))
}
