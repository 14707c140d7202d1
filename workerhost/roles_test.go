package workerhost_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// docs/workers.md says which roles each loop needs. Where one is missing, LastErr of the loop names
// the refused function, and Ready still reports the host as ready.
func TestRolesOfTheLoops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	w.events("order.created", 1)
	lesser := runHost(t, w.db.DSN(pgtest.Login(t, w.db, "dot_executor")), workerhost.Options{})
	eventually(t, func() bool { return lesser.status("webhook_worker").Errors >= 3 }, "the missing role is not reported")
	require.Contains(t, lesser.status("webhook_worker").LastErr.String(), "permission denied for function fn_webhook_job_claim",
		"the refused claim was rolled back: nothing is to be handed back")
	require.Empty(t, lesser.Ready())
	for _, l := range lesser.Status().Loops {
		denied := strings.Contains(l.LastErr.String(), "permission denied")
		require.Equal(t, queue.Choose(denied, "webhook_worker", ""), l.Role, "the console refuses to start %s: %s", l.Name, l.LastErr)
	}
	require.NoError(t, lesser.stop())

	require.Equal(t, []string{"dot_executor", "webhook_worker"}, workerhost.Roles(nil))
	require.Equal(t, []string{"dot_executor"}, workerhost.Roles([]string{"job_executor", "webhook_router"}))
	h := runHostOn(t, roomy(w.db.DSN(pgtest.Login(t, w.db, workerhost.Roles(nil)...))), workerhost.Options{})
	eventually(t, func() bool { return r.count() == 1 }, "the event is not delivered")
	eventually(t, func() bool {
		return !slices.ContainsFunc(h.Status().Loops, func(l queue.LoopStatus) bool { return l.LastTick.IsZero() })
	}, "a loop makes no pass")
	for _, l := range h.Status().Loops {
		require.Zero(t, l.Errors, "%s: %s", l.Name, l.LastErr)
	}
}
