package pgclient_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// broken applies a plan, ends the session of the action while that waits for a lock, and returns the result.
func (w *world) broken(c *console, p queue.Plan) queue.Result {
	w.t.Helper()
	type answer struct {
		res queue.Result
		err error
	}
	got := make(chan answer, 1)
	go func() {
		res, err := c.Apply(w.t.Context(), p)
		got <- answer{res, err}
	}()
	require.Eventually(w.t, func() bool {
		return get[int](w, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'qtop act' AND wait_event_type = 'Lock'`) > 0
	}, time.Minute, 5*time.Millisecond)
	a := <-got
	require.Error(w.t, a.err)
	require.Empty(w.t, a.res.Results, "nothing of a batch that was rolled back")
	require.Zero(w.t, a.res.Done)
	require.Zero(w.t, a.res.AuditID)
	return a.res
}

// An operation whose connection breaks before COMMIT changed nothing, and that is known; one that breaks in
// COMMIT leaves it unknown. Neither counts what the transaction had made.
func TestABrokenBulkPlanSaysWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order", "https://a.example/x", "HTTP_503", 0}, deadLetter{"order", "https://a.example/x", "HTTP_503", 0})
	c := w.client("queue_viewer", "dead_letter_operator")
	r := queue.Request{Action: queue.ActBulkPlan, Filter: "code:HTTP_503", Args: map[string]string{"what": "requeue", "rate": "20", "brake": "0", "canary": "0"}, Reason: "r"}
	p := plan(t, c, r)
	lock, _ := w.held("public.queue_bulk_operation")
	require.True(t, w.broken(c, p).Intact)
	require.NoError(t, lock.Rollback(t.Context()))
	require.Zero(t, get[int](w, "SELECT count(*) FROM public.queue_bulk_operation"))

	w.exec("CREATE FUNCTION public.wait_in_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'")
	w.exec(`CREATE CONSTRAINT TRIGGER wait_in_commit AFTER INSERT ON public.queue_bulk_operation
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.wait_in_commit()`)
	held, err := w.root.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = held.Rollback(t.Context()) }()
	_, err = held.Exec(t.Context(), "SELECT pg_advisory_xact_lock(42)")
	require.NoError(t, err)
	require.False(t, w.broken(c, plan(t, c, r)).Intact)
}

// An action of one statement whose connection breaks leaves unknown what it did; one that never reached
// the server changed nothing.
func TestABrokenActionSaysWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.silent("kg", 4000)
	c := w.client("queue_viewer", "workflow_admin", "dead_letter_operator")
	p := plan(t, c, queue.Request{Action: queue.ActAck, Targets: []string{"kg"}, Args: map[string]string{"comment": "mine"}})
	w.held("public.queue_alert_ack")
	require.False(t, w.broken(c, p).Intact)
	away := open(t, pgclient.Options{DSN: "host=" + t.TempDir() + " user=u", Actor: "ann"})
	res, err := away.Apply(t.Context(), p)
	require.Error(t, err)
	require.True(t, res.Intact)
}
