package tui

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// kept stores one snapshot for each of the last minutes in s, each with
// another alert. The newest is half a minute old.
func kept(s *fakeStore, minutes int) {
	for n := range minutes {
		p := s.snap
		p.TakenAt = s.snap.TakenAt.Add(-30*time.Second - time.Duration(minutes-1-n)*time.Minute)
		p.Alerts = slices.Clone(p.Alerts)
		p.Alerts[0].Subject = queue.Clean("then_" + p.TakenAt.UTC().Format("15_04_05"))
		s.kept = append(s.kept, p)
	}
}

func then(s *fakeStore, i int) string { return s.kept[i].Alerts[0].Subject.String() }

func TestLookingBack(t *testing.T) {
	s := newStore()
	kept(s, 5)
	run(t, setup{store: s}, func(c *console) {
		c.press("]")
		c.sees("already at the live snapshot")
		c.press("[")
		c.sees("PAST", then(s, 4), "[ ] back and forward", "p now")
		n := s.snapped()
		c.rest(20 * time.Second)
		require.Equal(t, n, s.snapped(), "in the past nothing is read by the clock")
		c.press("[", "[")
		c.sees(then(s, 2))
		c.press("]")
		c.sees(then(s, 3))
		c.press("3", "A")
		c.sees("Acknowledge is off: this is the snapshot of " + s.kept[3].TakenAt.UTC().Format("15:04:05"))
		require.Empty(t, s.asked())
		c.press("1", "]", "]")
		c.sees("live")
		c.seesNot("PAST", "then_")
		c.rest(5 * time.Second)
		require.Greater(t, s.snapped(), n, "now is read again")
	})
}

// If [ is pressed while a stored snapshot is being read, each press goes one
// snapshot further back, but never beyond the oldest.
func TestLookingBackAddsUp(t *testing.T) {
	s := newStore()
	kept(s, 5)
	s.past = 2 * time.Second
	run(t, setup{store: s}, func(c *console) {
		c.press("[", "[", "[")
		c.rest(5 * time.Second)
		c.sees(then(s, 2))
		c.press("[", "[", "[", "[")
		c.rest(5 * time.Second)
		c.sees(then(s, 0))
		c.press("[")
		c.rest(3 * time.Second)
		c.sees("no earlier snapshot is stored", then(s, 0))
		c.press("]", "p") // p returns to the present before the requested snapshot arrives
		c.rest(5 * time.Second)
		c.seesNot("PAST", "then_")
	})
}

// Keys [ and ] pressed while a stored snapshot is being read lead to the same
// snapshot as when each waits for its answer.
func TestLookingBackAndForwardWhileReading(t *testing.T) {
	s := newStore()
	kept(s, 5)
	s.past = 2 * time.Second
	run(t, setup{store: s}, func(c *console) {
		shows := func(words string, keys ...string) {
			t.Helper()
			c.press(keys...)
			c.rest(5 * time.Second)
			c.sees(words)
		}
		c.press("[", "]")
		c.rest(2100 * time.Millisecond)
		c.sees("at the live snapshot again")
		c.seesNot("PAST")
		shows(then(s, 4), "[", "[", "]")
		shows(then(s, 4), "]", "[")
		shows(then(s, 0), "[", "[", "[", "[")
		shows(then(s, 1), "[", "]")
		c.press("p", ":")
		c.typing("at 2m")
		shows(then(s, 3), "enter", "]")
	})
}

func TestLookingBackAtATime(t *testing.T) {
	s := newStore()
	kept(s, 5)
	run(t, setup{store: s}, func(c *console) {
		c.press(":")
		c.typing("at 2m")
		c.press("enter")
		c.sees("PAST", then(s, 2), "2m ago")
		c.press(":")
		c.typing("at " + s.kept[1].TakenAt.UTC().Format(time.RFC3339))
		c.press("enter")
		c.sees(then(s, 1))
		c.press(":")
		c.typing("at 3h")
		c.press("enter")
		c.sees("no earlier snapshot is stored; the oldest is from", then(s, 1))
		c.press(":")
		c.typing("at noon")
		c.press("enter")
		c.sees(":at needs a time such as 02:14, 45m or 2026-01-31T02:14, not noon")
		c.press("g", "a")
		c.sees("PAST", "but this list shows its last read")
		c.press(":")
		c.typing("at now")
		c.press("enter")
		c.seesNot("PAST")
	})
}

// If :at is typed while [ is being read, the time that was typed is shown, also when the answer for [
// comes later. After ":at now" that answer is not shown at all.
func TestLookingBackAtATimeWhileReading(t *testing.T) {
	s := newStore()
	kept(s, 5)
	run(t, setup{store: s}, func(c *console) {
		reads := func(took time.Duration) { s.set(func(s *fakeStore) { s.past = took }) }
		at := func(text string) {
			c.press(":")
			c.typing("at " + text)
			c.press("enter")
		}
		reads(5 * time.Second)
		c.press("[")
		at("now")
		c.sees("already at the live snapshot")
		c.rest(6 * time.Second)
		c.seesNot("PAST")
		c.press("[")
		reads(time.Second)
		at("2m")
		c.rest(2 * time.Second)
		c.sees("PAST", then(s, 2))
		c.rest(5 * time.Second)
		c.sees("PAST", then(s, 2))
	})
}

func TestLookingBackWithoutSnapshots(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("[")
		c.sees("no snapshot is stored yet")
		c.seesNot("PAST")
	})
}

// A pause stops all reads. A list that was not read before stays unread, and
// the pane shows that.
func TestPausedListsSayThatTheyAreNotRead(t *testing.T) {
	run(t, setup{}, func(c *console) {
		c.press("p", "g", "a")
		c.sees("This list is not read while")
		c.press("p")
		c.seesNot("This list is not read while")
	})
}

// A paused snapshot is not the live one: ] reports the pause, and ":at now" resumes.
func TestNowResumesAPause(t *testing.T) {
	s := newStore()
	kept(s, 5)
	run(t, setup{store: s}, func(c *console) {
		c.press("p", "]")
		c.sees("PAUSED", "paused at the last snapshot that was read; p resumes")
		c.press(":")
		c.typing("at now")
		c.press("enter")
		c.seesNot("PAUSED", "already at the live snapshot")
		c.sees("live")
		n := s.snapped()
		c.rest(5 * time.Second)
		require.Greater(t, s.snapped(), n)
		c.press("[", "p", "p", "]")
		c.seesNot("already at the live snapshot")
	})
}

// The banner says of each list and page whether it shows the past or what was read last.
func TestWhatShowsThePast(t *testing.T) {
	const then, lastRead = "[ ] back and forward", "shows its last read"
	s := newStore()
	kept(s, 2)
	for keys, want := range map[string]string{
		"7": "this list " + lastRead, "7 G enter": "this page " + lastRead, "7 enter": "this page " + lastRead, "g n enter": "this page " + lastRead,
		"g s enter": "this page " + lastRead, "g a enter": "this page " + lastRead, "5 enter enter": "this page " + lastRead, "8 enter": "this list " + lastRead,
		"1": then, "5": then, "2 enter": then, "3 enter": then, "4 enter": then, "9 enter": then, "9 G enter": "this page " + lastRead, "g f enter": then, "8 G enter": then,
	} {
		t.Run(keys, func(t *testing.T) {
			run(t, setup{store: s, w: 140, h: 40}, func(c *console) {
				c.press(strings.Fields(keys)...)
				c.press("[")
				c.sees("PAST", want)
				c.seesNot(queue.Choose(want == then, lastRead, then))
			})
		})
	}
}

// Rows that did not exist at the time of a stored snapshot are still selected in the present.
func TestASelectionOutlivesALookBack(t *testing.T) {
	s := newStore()
	kept(s, 2)
	for i := range s.kept {
		s.kept[i].DeadGroups = s.kept[i].DeadGroups[1:]
	}
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("5", "space", "space")
		c.sees("2 selected")
		c.press("[")
		c.sees("PAST")
		c.seesNot("gone")
		c.press("p")
		c.sees("2 selected")
	})
}

// Rows that were read with a query stay as they are in the past: their ages, and how long leases and
// suspensions still last, are not those of the time of the stored snapshot, in which they did not exist.
func TestListsKeepTheirAgesInThePast(t *testing.T) {
	s := newStore()
	s.kept = []queue.Snapshot{keptAt(5 * time.Hour)}
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		drawn := func() (lines []string) {
			c.model(func(m *root) { lines = m.scene().draw(views.Size{W: 120, H: 30}) })
			return lines
		}
		for name, keys := range map[string][]string{
			"endpoints": {"7"}, "an endpoint": {"7", "enter"}, "a lease": {"7", "G", "enter"}, "operations": {"6"}, "an operation": {"6", "enter"},
			"dead letters": {"5", "enter"}, "a dead letter": {"5", "enter", "enter"}, "jobs": {"8", "enter"}, "a job": {"8", "enter", "enter"},
			"event subscriptions": {"g", "s"}, "notifications": {"g", "n"}, "sessions": {"g", "l"}, "a session": {"g", "l", "enter"}, "audit": {"g", "a"},
		} {
			c.press(keys...)
			c.rest(time.Second)
			c.press("p")
			now := drawn()
			c.press("[")
			c.sees("PAST")
			require.Equal(t, now, drawn(), name)
			c.press("p", "esc", "esc", "esc", "esc")
		}
		c.press("7")
		c.sees("suspended 20m left")
		c.press("[")
		c.sees("PAST", "suspended 20m left")
		c.press("1")
		var now time.Time
		c.model(func(m *root) { now = m.env().Now })
		require.Equal(t, s.kept[0].TakenAt, now, "the Overview is that of the past")
	})
}

// A list that is read while the console is paused, or while no snapshot can be read, has its ages at its own read.
func TestListsThatAreNewerThanTheSnapshot(t *testing.T) {
	s := newStore()
	s.asOf = s.snap.TakenAt
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press("7")
		c.sees("suspended 20m left")
		s.set(func(s *fakeStore) { s.asOf, s.err = s.snap.TakenAt.Add(12*time.Minute), nil })
		c.rest(20 * time.Second)
		c.sees("suspended 8m left")
	})
}
