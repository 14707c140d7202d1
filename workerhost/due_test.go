// How soon after it is due work starts, where nobody rings.
package workerhost_test

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// Jobs with due times by chance, put in long before: none starts early, all start, and
// the host sleeps until the next of them and no longer. The times are only logged: they
// belong to the machine.
func TestJobsStartWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	n, from, span := 500, 3, 5 // seconds
	if os.Getenv("QTOP_TEST_FULL") != "" {
		n, from, span = 10_000, 31, 20
	}
	w := jobWorld(t, 1000)
	var mu sync.Mutex
	began := map[string]time.Time{}
	w.jobs(workerhost.Options{}, map[string]handler.Handler{
		"due": handler.Func(func(_ context.Context, j handler.Job) error {
			mu.Lock()
			defer mu.Unlock()
			began[j.ID] = time.Now()
			return nil
		}),
	})
	w.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'due', 'event_domain', 'work', 'executor', 'DOT',
		'process_after', now() + make_interval(secs => $2 + random() * $3))) FROM generate_series(1, $1) i))`, n, from, span)
	w.becomes(n, jobsOf, "succeeded")
	rows, err := w.admin.Query(t.Context(), "SELECT job_id::text, process_after FROM public.job_history")
	require.NoError(t, err)
	defer rows.Close()
	var late []time.Duration
	for rows.Next() {
		var id string
		var due time.Time
		require.NoError(t, rows.Scan(&id, &due))
		late = append(late, began[id].Sub(due))
	}
	require.NoError(t, rows.Err())
	require.Len(t, late, n)
	slices.Sort(late)
	require.GreaterOrEqual(t, late[0], -time.Millisecond, "none before it is due")
	t.Logf("due to start of %d jobs: p50 %v, p99 %v, longest %v", n, late[n/2].Round(time.Millisecond), late[n*99/100].Round(time.Millisecond), late[n-1].Round(time.Millisecond))
	require.Less(t, late[n-1], 25*time.Second, "the tick was waited for")
}
