package tui

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// Pane gn shows the staged notifications, the events that they become, the
// failures and the log of the worker. R requeues the rows of a failure and
// nothing else.
func TestNotificationsPane(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 44}, func(x *console) {
		x.press("g", "n")
		x.sees("1,249 staged", "1,212 due", "37 in the debounce of 90s", "3 failed", "every 2m", "T runs it now", "doc-2026-0077", "document_imported", "WORKER LOG",
			"could not be sent", "doc-4711/p0007")
		x.press("j", "j", "R")
		x.sees("R needs a FAILED row")
		x.press("k", "enter")
		x.sees("actor_ref is missing", "kg/node/551208")
		x.press("R")
		x.sees("Requeue", "Reason", "target  actor_ref is missing (7c0e11d2")
		x.typing("actor written in")
		x.press("enter")
		x.rest(quiet)
		got := last(s.asked())
		require.Equal(t, queue.ActNotifyRequeue, got.Action)
		require.Equal(t, []string{"7c0e11d2-0000-4222-8333-000000000003"}, got.Targets)
		require.Empty(t, s.did(), "nothing happens without a confirm")
		x.press("esc", "esc", "G", "enter")
		x.sees("Run of 2026-11-19", "claimed", "marked")
		x.press("esc")
		x.press("/")
		x.typing("state:due")
		x.press("enter")
		x.sees("doc-2026-0077", "(no document or batch)")
		x.seesNot("doc-2026-0078")
		x.press("esc", "g", "g", "enter")
		x.rest(2 * rereadGap)
		x.seesNot("not listed at")
		s.set(func(s *fakeStore) { s.notify.Failures = nil })
		x.rest(2 * rereadGap)
		x.sees("not listed at")
	})
}

// A failure of more rows than are read says in its dialog how many are not taken, also in the preview.
func TestRequeueOfPartOfAFailure(t *testing.T) {
	s := newStore()
	s.notify.Failures[0].N = 5000
	run(t, setup{store: s, w: 120, h: 44}, func(x *console) {
		x.press("g", "n", "R")
		x.sees("targets", "2: 23514 new row", "not taken", "4,998 more rows with this failure were not read", "qtop notifications requeue --all")
		x.typing("corrected")
		x.press("enter")
		x.rest(quiet)
		require.Len(t, last(s.asked()).Targets, 2)
		x.sees("not taken", "4,998 more rows with this failure were not read")
		x.press("esc", "j", "R")
		x.sees("target  actor_ref is missing")
		x.seesNot("not taken")
	})
}

// Every row of every pane has a name, by which the dialogs of actions call it.
func TestEveryRowHasAName(t *testing.T) {
	for _, p := range Panes() {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(strings.Split(p.Keys, "")...)
		g := &m.pane().top().grid
		for _, i := range g.order {
			require.NotEmpty(t, g.src.Title(i), "%s row %d, %q", p.ID, i, g.src.ID(i))
		}
	}
}

// Without the right to read notifications, the pane reports the missing
// permission.
func TestNotificationsNotPermitted(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(x *console) {
		s.set(func(s *fakeStore) {
			s.err = &queue.Error{Kind: queue.KindPermission, What: queue.Clean("permission denied for table iu_notification_pending"), Err: errors.New("42501")}
		})
		x.press("g", "n")
		x.sees("This could not be read.", "permission denied for table iu_notification_pending")
	})
}
