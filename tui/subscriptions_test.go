package tui

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// D mutes an event subscription, and unmutes a muted one. On the row of an
// event type, D has no effect: a type cannot be muted.
func TestEventSubscriptionKeys(t *testing.T) {
	for _, c := range []struct {
		down int
		want queue.ActionID
		id   string
		says string
	}{
		{0, queue.ActEventSubscriptionMute, "3", "Mute"},
		{5, queue.ActEventSubscriptionUnmute, "8", "Unmute"},
	} {
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
			x.press("g", "s")
			x.sees("7.01 % of 131,402 events", "OVER the limit of 5 %", "REACHES NOBODY")
			for range c.down {
				x.press("j")
			}
			x.press("D")
			x.sees(c.says, "Reason")
			x.typing("too loud")
			x.press("enter")
			x.rest(quiet)
			got := last(s.asked())
			require.Equal(t, c.want, got.Action)
			require.Equal(t, []string{c.id}, got.Targets)
			require.Empty(t, s.did(), "nothing happens without a confirm")
		})
	}
	run(t, setup{w: 120, h: 40}, func(x *console) {
		x.press("g", "s")
		x.sees("REACHES NOBODY")
		x.press("G", "D")
		x.sees("D needs an event subscription")
	})
}

// From an event type that reaches nobody, enter leads to the page that
// resolves its recipients, and N from there to the form of an event
// subscription.
func TestResolveAType(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("g", "s")
		x.sees("REACHES NOBODY")
		x.press("G", "k", "k", "k", "enter")
		x.sees("node.updated", "domain         kg", "Step 4: every type and stream", "role:kg_indexer: muted", "Step 5: broadcast")
		require.Equal(t, queue.Query{Kind: queue.ListResolution, ID: "kg/node.updated", Limit: pageRows}, last(s.listed()))
		x.press("N")
		x.sees("Recipient")
		x.typing("role:kg_indexer")
		x.press("enter", "enter", "enter", "enter", "enter", "enter")
		x.typing("they are read now")
		x.press("enter")
		x.rest(quiet)
		got := last(s.asked())
		require.Equal(t, queue.ActEventSubscriptionAdd, got.Action)
		require.Equal(t, "role:kg_indexer", got.Args["recipient"])
		require.Equal(t, "kg", got.Args["domain"])
		require.Equal(t, "node.updated", got.Args["type"])
		require.Empty(t, s.did())
	})
}

// Without the right to read event subscriptions, the pane reports the missing
// permission.
func TestEventSubscriptionsNotPermitted(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(x *console) {
		s.set(func(s *fakeStore) {
			s.err = &queue.Error{Kind: queue.KindPermission, What: queue.Clean("permission denied for table event_subscription"), Do: queue.Clean("ask for the role that carries this right, which is queue_viewer")}
		})
		x.press("g", "s")
		x.sees("This could not be read.", "permission denied for table event_subscription", "is queue_viewer")
		x.seesNot("BROADCAST reading")
	})
}

// The page of an event subscription shows its changes.
func TestEventSubscriptionPage(t *testing.T) {
	s := newStore()
	run(t, setup{store: s}, func(x *console) {
		x.press("g", "s")
		x.sees("agency:sysop")
		x.press("j", "enter")
		x.sees("subscription 10, user:anna", "about invoices", "Changes, newest first")
		require.Equal(t, queue.Query{Kind: queue.ListFlagHistory, ID: "subscription 10", Limit: pageRows}, last(s.listed()))
		x.press("esc", "/")
		x.typing("state:muted")
		x.press("enter")
		x.rest(2 * rereadGap) // two reads that begin at the same moment may be recorded in either order
		require.Equal(t, "state:muted", last(s.listed()).Filter)
	})
}

// The open page of an event subscription shows its current state, after an action of this console at once, and D
// works by it.
func TestAnOpenEventSubscriptionIsReadAgain(t *testing.T) {
	s := newStore()
	muted := func(mute bool) {
		s.set(func(s *fakeStore) {
			s.subscriptions = slices.Clone(s.subscriptions) // the console may hold the old slice
			s.subscriptions[2].Mute = mute
		})
	}
	run(t, setup{store: s, w: 120, h: 40}, func(x *console) {
		x.press("g", "s")
		x.sees("agency:sysop")
		x.press("enter")
		x.sees("subscription 3, agency:sysop", "state          active")
		x.press("D")
		x.typing("too loud")
		x.press("enter")
		x.rest(quiet)
		muted(true)
		before := len(s.listed())
		x.press("tab", "enter")
		require.Len(t, s.did(), 1)
		x.rest(2 * time.Second)
		require.Equal(t, []queue.ListKind{queue.ListEventSubscriptions, queue.ListFlagHistory}, kinds(s.listed()[before:]), "one after the other")
		x.press("enter")
		x.sees("state          muted")
		x.press("D")
		x.sees("Unmute")
		x.press("esc")
		muted(false)
		x.rest(2 * rereadGap)
		x.sees("state          active")
	})
}
