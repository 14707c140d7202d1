package tui

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// Each action key of pane 6 plans its action for the operation under the
// cursor.
func TestOperationsKeys(t *testing.T) {
	for _, c := range []struct {
		down, key string
		want      queue.Request
	}{
		{"", "S", queue.Request{Action: queue.ActBulkRun, Targets: []string{"14"}}},
		{"j", "P", queue.Request{Action: queue.ActBulkPause, Targets: []string{"13"}}},
		{"j", "X", queue.Request{Action: queue.ActBulkAbort, Targets: []string{"13"}}},
		{"jj", "P", queue.Request{Action: queue.ActBulkResume, Targets: []string{"12"}}},
		{"jj", "U", queue.Request{Action: queue.ActBulkUndo, Targets: []string{"12"}}},
	} {
		s := newStore()
		run(t, setup{store: s}, func(x *console) {
			x.press("6")
			x.sees("running", "the brake: 12 of")
			for _, k := range c.down {
				x.press(string(k))
			}
			x.press(c.key)
			x.rest(quiet)
			require.NotEmpty(t, s.asked(), c.key)
			got := last(s.plans)
			require.Equal(t, c.want.Action, got.Action, c.key)
			require.Equal(t, c.want.Targets, got.Targets, c.key)
			require.Empty(t, s.did(), "nothing happens without a confirm")
		})
	}
}

func TestOperationsRate(t *testing.T) {
	for k, want := range map[string]string{"+": "40", "-": "10"} {
		run(t, setup{}, func(x *console) {
			x.press("6", "j", k)
			x.sees("Change the rate of a bulk operation", want)
		})
	}
}

// The page of an operation shows it and the results of its dead letters. The
// action keys work there too.
func TestOperationPage(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 100, h: 40}, func(x *console) {
		x.press("6", "j", "j")
		x.sees("operation 12: requeue", "pauses when 20 %")
		x.press("enter")
		x.sees("operation 12", "first attempt failed HTTP_503", "already requeued by anna")
		x.press("U")
		x.rest(quiet)
		require.Equal(t, []string{"12"}, last(s.plans).Targets)
		x.press("esc", "esc", "esc")
		x.sees("WAITING LONGEST")
	})
}

// Where the items of an operation cannot be read, its page has the reason, instead of "reading" for
// ever.
func TestUnreadItemsOfAnOperation(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 100, h: 40}, func(x *console) {
		x.press("6")
		s.set(func(s *fakeStore) { s.err = errors.New("permission denied for table queue_bulk_item") })
		x.press("enter")
		x.rest(time.Second)
		x.sees("Items, latest first", "this could not be read: permission denied for table queue_bulk_item")
		x.seesNot("reading")
	})
}

// The key - is part of the action of +: the help names both, and so does the status line elsewhere.
func TestBothKeysOfTheRateAreNamed(t *testing.T) {
	run(t, setup{w: 120, h: 60}, func(x *console) {
		x.press("5", "-")
		x.sees("- works elsewhere: to rate in Operations (6)")
		x.press("?")
		x.press("G")
		x.press("/")
		x.typing("halve")
		x.sees("+ -", "double and halve the rate")
	})
}

// N in pane 5 plans an operation on all dead letters of a group, by the filter
// of that group.
func TestPlanAnOperation(t *testing.T) {
	run(t, setup{}, func(x *console) {
		x.press("5")
		x.sees("N at a rate")
		x.press("N")
		x.sees("Plan an operation: requeue or close at a rate", "Rate", "Brake", "Canary")
		x.typing("the receiver is back")
		x.press("enter")
		x.rest(quiet)
		x.typing("4638")
		x.press("tab", "tab", "enter")
		x.sees("It is planned, nothing is sent yet: 6, then S on its row, starts it.")
	})
}
