package tui

import (
	"errors"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

// A dialog says that nothing was changed only if nothing was: not if some of several targets were
// done before one was refused or before the connection broke.
func TestPartOfTheTargetsIsDone(t *testing.T) {
	for _, err := range []error{nil, errors.New("the connection broke"), &queue.Error{Kind: queue.KindPermission, What: queue.Clean("permission denied")}} {
		a := actions.Registry().ByID(queue.ActSuspend)
		m := newStill(newStore(), nil, Options{Actor: "anna"})
		d := newDialog(1, a, queue.Request{Action: a.ID, Targets: []string{"7", "8"}}, m.o.Now(), nil)
		shown := func(r queue.Result) string {
			d.finish(r, err, m.o.Now())
			return ansi.Strip(strings.Join(d.lines(m.overlayContext()), "\n"))
		}
		part := shown(queue.Result{Done: 1, Skipped: 1, Results: []queue.Outcome{{ID: "7", Outcome: "suspended"}, {ID: "8", Outcome: "refused", Why: queue.Clean("suspended already by ben")}}})
		require.NotContains(t, part, "Nothing was changed")
		require.Contains(t, part, "Done: suspend, 1 row; 1 skipped.")
		require.Contains(t, part, "suspended already by ben")
		require.Equal(t, err != nil, strings.Contains(part, "Unknown whether the rest took effect"))
		none := shown(queue.Result{Refused: "suspended already by ben", Skipped: 2})
		require.Equal(t, queue.KindOf(err) == queue.KindPermission || err == nil, strings.Contains(none, "Nothing was changed"), none)
	}
}

// After an attempt of which nobody knows what it changed, the dialog goes on
// saying so until an attempt succeeds: an error of "Preview again", or a
// refusal, does not mean that nothing was changed.
func TestAnUnknownResultIsKept(t *testing.T) {
	a := actions.Registry().ByID(queue.ActSuspend)
	m := newStill(newStore(), nil, Options{Actor: "anna"})
	d := newDialog(1, a, queue.Request{Action: a.ID, Targets: []string{"7", "8"}}, m.o.Now(), nil)
	m.raise(d)
	shown := func() string {
		return strings.Join(strings.Fields(strings.ReplaceAll(ansi.Strip(strings.Join(d.lines(m.overlayContext()), "\n")), "│", "")), " ")
	}
	again := func() {
		at := m.overlayContext()
		at.now = at.now.Add(quietFor)
		d.focus = 1
		_, eff := d.update(keyOf("enter"), at)
		require.Equal(t, effPlan{d}, eff)
		m.startPlan(d)
	}
	const partly = "Done: suspend, 1 row. Unknown whether the rest took effect: Audit (ga) shows what was done."
	d.finish(queue.Result{Done: 1}, errors.New("the connection broke"), m.o.Now())
	require.Contains(t, shown(), partly)
	for range 2 {
		again()
		m.planned(plannedMsg{dialog: 1, err: errors.New("connection refused")})
		require.Contains(t, shown(), "Nothing was changed by this attempt. Before that: "+partly)
		require.Contains(t, shown(), "connection refused")
	}
	again()
	d.preview(queue.Plan{Request: d.req, Count: 2}, false, m.o.Now())
	d.finish(queue.Result{Refused: "suspended already by ben"}, nil, m.o.Now())
	require.Contains(t, shown(), "Before that: "+partly)
	d.finish(queue.Result{}, errors.New("the connection broke"), m.o.Now())
	require.Contains(t, shown(), "Unknown whether the action took effect: Audit (ga) shows what was done. Repeating it is safe: no effect happens twice. Before that: "+partly)
	d.finish(queue.Result{Done: 1}, nil, m.o.Now())
	require.Contains(t, shown(), "Done: suspend, 1 row.")
	require.NotContains(t, shown(), "Before that")
}
