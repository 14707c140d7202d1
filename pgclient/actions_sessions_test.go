package pgclient_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// From the list to the signal: first the statement is cancelled, then the session is terminated,
// and both signals are recorded in the audit before they are sent. Without pg_signal_backend
// nothing is sent.
func TestSignalsToSessions(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithCancel(context.Background())
	victim := w.db.Conn(t, pgtest.Login(t, w.db, "queue_viewer"))
	pid := strconv.Itoa(int(victim.PgConn().PID()))
	ended := make(chan error, 1)
	go func() { // the only user of the connection until its statement has ended
		_, err := victim.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(600)")
		ended <- err
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		for range ended { // until the statement has ended
		}
	})
	op := w.client("dead_letter_operator", "queue_viewer", "pg_signal_backend")
	listed := func(client *console) (queue.Activity, bool) {
		page, err := client.List(ctx, queue.Query{Kind: queue.ListActivity})
		require.NoError(t, err)
		for _, a := range queue.Of[[]queue.Activity](page) {
			if a.Pid != nil && strconv.FormatInt(*a.Pid, 10) == pid {
				return a, true
			}
		}
		return queue.Activity{}, false
	}
	request := func(id queue.ActionID, target string) queue.Request {
		return queue.Request{Action: id, Targets: []string{target}, Reason: "it holds the queue"}
	}
	until := func(what string, done func() bool) {
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) { // between two queries of pg_stat_activity
			require.True(t, time.Now().Before(deadline), what)
		}
	}
	var a queue.Activity
	until("the session sleeps", func() (ok bool) { a, ok = listed(op); return ok && a.State.String() == "active" && a.Snapshot != nil })
	require.True(t, a.Oldest, a)
	require.NotNil(t, a.Begun)

	weak := w.client("dead_letter_operator", "queue_viewer")
	refused := plan(t, weak, request(queue.ActSessionCancel, a.ID))
	require.Contains(t, refused.Refused, "GRANT pg_signal_backend")
	_, err := weak.Plan(ctx, request(queue.ActSessionCancel, "1"))
	kind(t, queue.KindUsage, err)

	twice := request(queue.ActSessionCancel, pid)
	twice.Targets = append(twice.Targets, a.ID)
	require.EqualValues(t, 1, plan(t, op, twice).Count, "named twice is one")
	p := plan(t, op, request(queue.ActSessionCancel, pid)) // by the pid alone, as psql shows it
	require.Equal(t, []string{a.ID}, p.Request.Targets)
	require.Contains(t, p.Command, "qtop session cancel "+a.ID)
	require.EqualValues(t, 1, apply(t, op, p).Done)
	require.ErrorContains(t, <-ended, "57014")
	require.Equal(t, "asked", get[string](w, "SELECT outcome FROM public.queue_operator_action WHERE action = 'session_cancel' AND before ->> 'state' = 'active'"))

	require.Contains(t, plan(t, op, request(queue.ActSessionCancel, a.ID)).Refused, "no statement to cancel")
	p = plan(t, op, request(queue.ActSessionTerminate, a.ID))
	lives := func() {
		t.Helper()
		_, err := victim.Exec(ctx, "ROLLBACK")
		require.NoError(t, err)
	}
	// If the audit row cannot be committed, no signal is sent.
	w.exec(`CREATE FUNCTION public.no_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$the disk is full$$; END'`)
	w.exec(`CREATE CONSTRAINT TRIGGER no_commit AFTER INSERT ON public.queue_operator_action DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION public.no_commit()`)
	_, err = op.Apply(ctx, p)
	require.ErrorContains(t, err, "the disk is full")
	lives()
	w.exec("DROP FUNCTION public.no_commit() CASCADE")
	// No signal is sent either if the pid belongs to another session by then.
	is := get[string](w, "SELECT pg_catalog.pg_get_functiondef('public.fn_queue_session_is(int, timestamptz)'::regprocedure)")
	w.exec("CREATE OR REPLACE FUNCTION public.fn_queue_session_is(p_pid int, p_started timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
	require.Equal(t, "skipped", apply(t, op, p).Results[0].Outcome)
	lives()
	w.exec(is)
	require.EqualValues(t, 1, apply(t, op, p).Done)
	until("the session has gone", func() bool {
		return get[int](w, "SELECT count(*)::int FROM pg_catalog.pg_stat_activity WHERE pid = $1::int", pid) == 0
	})
	gone := apply(t, op, p)
	require.Equal(t, "refused", gone.Results[0].Outcome, "another session may have its pid by now")
	require.Equal(t, "refused: not_found", get[string](w, "SELECT outcome FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
	_, err = victim.Exec(ctx, "SELECT 1", pgx.QueryExecModeExec)
	require.Error(t, err)
}
