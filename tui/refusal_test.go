package tui

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// What the row on the screen already refuses is refused by the key itself: no dialog asks for a
// reason first. Each case makes rows on which the database refuses the action.
func TestRefusedByTheRowBeforeADialog(t *testing.T) {
	when := viewstest.Now().Add(-time.Hour)
	dead := func(change func(x *queue.DeadLetter)) func(w *walker) {
		return func(w *walker) {
			for i := range w.store.deadLetters {
				change(&w.store.deadLetters[i])
			}
		}
	}
	state := func(state string) func(w *walker) { return dead(func(x *queue.DeadLetter) { x.State = state }) }
	executors := func(change func(x *queue.Executor)) func(w *walker) {
		return func(w *walker) {
			for i := range w.store.snap.Executors {
				change(&w.store.snap.Executors[i])
			}
		}
	}
	onRow := func(name string) func(w *walker) {
		return func(w *walker) { w.m.pane().top().grid.at = name; w.m.settle() }
	}
	cases := []struct {
		pane   queue.PaneID
		before func(w *walker) // makes the rows
		keys   []string        // lead to the row
		there  func(w *walker) // puts the cursor on it
		key    queue.ActionID
		want   string
	}{
		{pane: queue.PaneDead, keys: []string{"enter"}, key: queue.ActUndoRequeue, want: "is open: there is no requeue to undo"},
		{pane: queue.PaneDead, keys: []string{"enter", "enter"}, key: queue.ActUndoRequeue, want: "is open: there is no requeue to undo"},
		{pane: queue.PaneDead, keys: []string{"enter", "ctrl+a"}, key: queue.ActUndoRequeue, want: "none of these 40: dead letter 91000 is open"},
		{pane: queue.PaneDead, keys: []string{"enter", "ctrl+a", "ctrl+a"}, key: queue.ActUndoRequeue, want: "not on all that match"},
		{pane: queue.PaneDead, key: queue.ActUndoRequeue, want: "/ state:requeued lists"},
		{pane: queue.PaneDead, before: state("resolved"), keys: []string{"enter"}, key: queue.ActUndoRequeue, want: "is closed"},
		{pane: queue.PaneDead, before: dead(func(x *queue.DeadLetter) { x.State, x.Source = "requeued", "event" }), keys: []string{"enter"}, key: queue.ActUndoRequeue, want: "cannot be recalled"},
		{pane: queue.PaneDead, before: state("requeued"), keys: []string{"enter"}, key: queue.ActRequeue, want: "is requeued already"},
		{pane: queue.PaneDead, before: dead(func(x *queue.DeadLetter) { x.ErasedAt = &when }), keys: []string{"enter"}, key: queue.ActRequeue, want: "erased"},
		{pane: queue.PaneDead, before: state("resolved"), keys: []string{"enter"}, key: queue.ActResolve, want: "is closed already"},
		{pane: queue.PaneDead, before: state("resolved"), keys: []string{"enter"}, key: queue.ActBulkPlan, want: "is closed already"},
		{pane: queue.PaneDead, key: queue.ActReveal, want: "open a dead letter or a job first"},
		{pane: queue.PaneDead, key: queue.ActErase, want: "open a dead letter first"},
		{pane: queue.PaneOps, keys: []string{"G"}, key: queue.ActBulkRate, want: "operation 9 is completed"},
		{pane: queue.PaneOps, keys: []string{"G", "enter"}, key: queue.ActBulkRate, want: "operation 9 is completed"},
		{pane: queue.PaneOps, keys: []string{"G"}, key: queue.ActBulkRun, want: "operation 9 is completed"},
		{pane: queue.PaneOps, keys: []string{"G"}, key: queue.ActBulkPause, want: "operation 9 is completed"},
		{pane: queue.PaneOps, keys: []string{"G"}, key: queue.ActBulkAbort, want: "operation 9 is completed"},
		{pane: queue.PaneOps, key: queue.ActBulkUndo, want: "operation 14 is planned"},
		{pane: queue.PaneExecutors, before: executors(func(x *queue.Executor) { x.TickWorker = true }), key: queue.ActJobSubscribe, want: "is a worker of the queue itself"},
		{pane: queue.PaneExecutors, before: executors(func(x *queue.Executor) { x.DeregisteredAt = &when }), key: queue.ActJobSubscribe, want: "is deregistered"},
		{pane: queue.PaneExecutors, key: queue.ActJobSubscriptionOff, want: "needs a row under MAY CLAIM"},
		{pane: queue.PaneScheduler, before: func(w *walker) { w.store.snap.Ticks[0].State, w.store.snap.Ticks[0].IntervalSeconds = "off", 0 }, there: func(w *walker) { onRow(w.store.snap.Ticks[0].Name.String())(w) }, key: queue.ActTick, want: "resume the worker first"},
		{pane: queue.PaneScheduler, keys: []string{"G"}, key: queue.ActTickPause, want: "needs a tick worker"},
		{pane: queue.PaneActivity, key: queue.ActSessionCancel, want: "no statement to cancel"},
		{pane: queue.PaneActivity, there: onRow("slot standby_2"), key: queue.ActSessionTerminate, want: "not a session"},
		{pane: queue.PaneQueues, key: queue.ActReveal, want: "open a dead letter or a job first"},
		{pane: queue.PaneQueues, keys: []string{"G"}, key: queue.ActJobCancel, want: "needs a lane"},
		{pane: queue.PaneQueues, key: queue.ActLeaseRelease, want: "needs a row under STUCK LEASES"},
		{pane: queue.PaneHost, key: queue.ActHostStart, want: "loop tick is already running"},
		{pane: queue.PaneHost, there: onRow("sender"), key: queue.ActHostDrain, want: "loop sender is not running"},
		{pane: queue.PaneHost, there: onRow("sender"), key: queue.ActHostStop, want: "loop sender is not running"},
		{pane: queue.PaneHost, before: func(w *walker) { w.host.st.Loops[3].Role = "webhook_worker" }, there: onRow("sender"), key: queue.ActHostStart, want: "Start is off: loop sender: demo_operator lacks the role webhook_worker"},
		{pane: queue.PaneNotify, keys: []string{"G"}, key: queue.ActNotifyRequeue, want: "R needs a FAILED row"},
		{pane: queue.PaneAlerts, key: queue.ActQuarantineRetry, want: "not about a row in quarantine"},
		{pane: queue.PaneExecutors, before: func(w *walker) { w.store.snap.Alerts = nil }, key: queue.ActAck, want: "is not silent"},
		{pane: queue.PaneOverview, keys: []string{"G"}, key: queue.ActFlagSet, want: "E needs a flag"},
		{pane: queue.PaneWebhooks, there: onRow("9"), key: queue.ActLeaseRelease, want: "there is nothing to release"},
		{pane: queue.PaneSubscriptions, there: onRow("kg/node.updated"), key: queue.ActEventSubscriptionMute, want: "D needs an event subscription"},
	}
	tried := map[string]bool{}
	for _, c := range cases {
		a := actions.Registry().ByID(c.key)
		tried[a.Key] = true
		t.Run(string(c.pane)+" "+a.Key+" "+c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWalker(t, walkSeed)
				defer w.close()
				if c.before != nil {
					c.before(w)
					w.after(3 * time.Second)
					w.settle()
				}
				w.exec(w.m.open(c.pane))
				w.settle()
				w.after(2 * time.Second)
				for _, k := range c.keys {
					w.press(keyOf(k))
					w.after(2 * time.Second)
				}
				if c.there != nil {
					c.there(w)
				}
				w.press(keyOf(a.Key))
				require.Empty(t, w.m.over, "a dialog opened: %s", w.m.notice.text)
				require.Contains(t, w.m.notice.text, c.want)
				require.Empty(t, w.store.asked())
			})
		})
	}
	// The form of these opens without a row, or every row allows the action.
	free := []string{"M", "O"}
	for _, a := range actions.Registry() {
		if a.Key != "" && !slices.Contains(free, a.Key) {
			require.True(t, tried[a.Key], "no case for key %s (%s): add a row that refuses the action to cases; if every row allows it, add the key to free", a.Key, a.ID)
		}
	}
}
