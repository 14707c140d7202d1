package pgclient_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A time without a date is the last one by the clock of the server, in UTC.
func TestFilterClockIsTheServers(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order", "https://hooks.acme.test/a", "HTTP_503", 10 * time.Second}, deadLetter{"order", "https://hooks.acme.test/a", "HTTP_500", 3 * time.Hour})
	op := w.client("dead_letter_operator", "queue_viewer")
	n := func(filter string) int64 {
		t.Helper()
		page, err := op.List(t.Context(), queue.Query{Kind: queue.ListDeadLetters, Filter: filter})
		require.NoError(t, err)
		require.WithinDuration(t, get[time.Time](w, "SELECT now()"), page.AsOf, time.Minute)
		return page.Total
	}
	clock := func(before time.Duration) string {
		return get[time.Time](w, "SELECT now()").UTC().Add(-before).Format("15:04:05")
	}
	require.EqualValues(t, 1, n("failed>"+clock(time.Hour)))
	require.EqualValues(t, 1, n("failed<"+clock(time.Hour)))
	require.EqualValues(t, 2, n("failed>"+clock(5*time.Hour)))
	require.EqualValues(t, 2, n("failed>"+clock(-time.Hour)), "that time comes only in an hour: yesterday's is meant")
}

// Dead letters whose time lies ahead of a clock that was set back are frozen like the others.
func TestBulkAfterTheClockWentBack(t *testing.T) {
	w := newWorld(t)
	hooks, jobs := bulkDeadLetters(w)
	w.exec("ALTER TABLE public.dead_letters DISABLE TRIGGER USER; UPDATE public.dead_letters SET failed_at = now() + interval '1 day' WHERE id = " + hooks[0])
	w.exec("ALTER TABLE public.job_dead_letter DISABLE TRIGGER USER; UPDATE public.job_dead_letter SET last_failed_at = now() + interval '1 day' WHERE dead_letter_id = '" + jobs[0][4:] + "'")
	op := w.client("dead_letter_operator", "queue_viewer")
	p := plan(t, op, bulkPlan("code=HTTP_5*|HTTP_503|TIMEOUT|HTTP_500"))
	require.EqualValues(t, 4, p.Count)
	require.EqualValues(t, 4, apply(t, op, p).Done)
}
