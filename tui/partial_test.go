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
