package tui

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// The undo line of every dialog is complete: typed as it is printed, it opens the preview of the
// opposite action on the same targets. Where there is no such line, words say how to undo, and they
// name no command of the shell.
func TestUndoLinesAreComplete(t *testing.T) {
	final := []queue.ActionID{queue.ActBulkAbort, queue.ActErase, queue.ActReveal, queue.ActJobCancel, queue.ActLeaseRelease, queue.ActTick, queue.ActMark, queue.ActRecount,
		queue.ActQuarantineRetry, queue.ActNotifyRequeue, queue.ActAdopt, queue.ActSessionCancel, queue.ActSessionTerminate}
	all := actions.Registry()
	for _, a := range all {
		t.Run(string(a.ID), func(t *testing.T) {
			require.NotContains(t, a.Undo, "qtop ", "a command without its targets")
			req := queue.Request{Action: a.ID, Args: map[string]string{}, Reason: "it's back, see 4711"}
			for _, arg := range a.Args {
				req.Args[arg.Name] = cmp.Or(arg.Default, append(arg.Options(), "one")[0])
			}
			switch {
			case a.Targets.Name == "" || a.Danger == queue.DangerDatabase:
			case a.Targets.Many:
				req.Targets = []string{"iu one", "-2"}
			default:
				req.Targets = []string{"subject"}
			}
			line := all.UndoCommand(req)
			words := all.UndoWords(req, line)
			require.Equal(t, slices.Contains(final, a.ID), strings.HasPrefix(words, "none"), "%s: give the action an Opposite or Undo; if nothing can undo it, add it to final", words)
			if line == "" {
				require.NotEmpty(t, words)
				require.NotContains(t, words, "qtop ")
				return
			}
			m := newStill(newStore(), newHost(), Options{Actor: "anna"})
			m.resize(views.Size{W: 80, H: 24})
			require.NotNil(t, m.command(line), "%s: %s", line, m.notice.text)
			require.Len(t, m.over, 1)
			got := m.over[0].(*dialog)
			require.Equal(t, a.Opposite, got.action.ID, line)
			require.Equal(t, stagePlanning, got.stage, "nothing is missing: %s", line)
			if o := all.ByID(a.Opposite); o.Targets.Name != "" {
				want := req.Targets
				if a.Makes != "" {
					want = []string{req.Args[a.Free().Name]}
				}
				require.Equal(t, want, got.req.Targets, line)
			}
			if got.action.Reason {
				require.Equal(t, "undo: "+req.Reason, got.req.Reason)
			}

			d := newDialog(1, a, req, m.o.Now(), nil)
			d.actions = all
			d.preview(queue.Plan{Request: req, Count: 1, Command: "qtop x", Undo: line}, false, m.o.Now())
			printed := ""
			for _, l := range d.undoLines()[:1] {
				printed += l.Value.String()
			}
			require.Equal(t, line, printed)
		})
	}
	for _, pair := range [][2]queue.ActionID{
		{queue.ActAck, queue.ActUnack}, {queue.ActUnack, queue.ActAck}, {queue.ActRequeue, queue.ActUndoRequeue}, {queue.ActResolve, queue.ActReopen}, {queue.ActSuspend, queue.ActResume},
		{queue.ActBulkPause, queue.ActBulkResume}, {queue.ActJobSubscriptionOff, queue.ActJobSubscriptionOn}, {queue.ActTickPause, queue.ActTickResume}, {queue.ActExecRegister, queue.ActExecDeregister},
	} {
		req := queue.Request{Action: pair[0], Targets: []string{"7"}, Args: map[string]string{"comment": "c", "id": "7"}, Reason: "r"}
		require.Contains(t, all.UndoCommand(req), "qtop "+all.ByID(pair[1]).Words+" 7", pair[0])
	}
	many := queue.Request{Action: queue.ActResolve, Reason: "r", Targets: slices.Repeat([]string{"123456"}, 101)}
	require.Empty(t, all.UndoCommand(many), "too long for a line")
	require.Equal(t, "select the rows in their list, then :reopen", all.UndoWords(many, ""))
	many.Action = queue.ActRequeue
	require.Empty(t, all.UndoCommand(many))
	require.Equal(t, "select the rows in their list, then U; only until the first attempt; an event stays routed", all.UndoWords(many, ""))
	d := newDialog(1, all.ByID(queue.ActFlagSet), queue.Request{Action: queue.ActFlagSet, Targets: []string{"a.b"}}, time.Now(), nil)
	d.actions, d.plan = all, queue.Plan{Final: "it is refused now"}
	require.Equal(t, []queue.PlanLine{{Label: "undo", Value: queue.Clean("none: it is refused now")}}, d.undoLines(), "not: set it back")
	one := queue.Request{Action: queue.ActRequeue, Targets: []string{"7"}, Reason: strings.Repeat("é", 2000)}
	require.Contains(t, all.UndoCommand(one), "qtop undo 7 --reason")
}
