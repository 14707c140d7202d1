package tui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A console needs only one connection for its reads: snapshot, session and the
// list of the open pane are read one after another, each minute, on every wake
// signal and after the connection was lost. Only at the start the session is
// read at the same time as the snapshot, so that the first screen comes
// sooner.
func TestReadsNeedOneConnection(t *testing.T) {
	s := newStore()
	s.delay, s.login = 300*time.Millisecond, 300*time.Millisecond
	run(t, setup{store: s}, func(c *console) {
		sessions := func() (n int) {
			s.set(func(s *fakeStore) {
				for _, q := range s.lists {
					if q.Kind == queue.ListSession {
						n++
					}
				}
			})
			return n
		}
		c.rest(time.Second)
		require.Equal(t, 1, sessions())
		require.Equal(t, 2, s.busiest())
		s.set(func(s *fakeStore) { s.most = 0 })
		for range 125 {
			select {
			case s.changes <- struct{}{}:
			default:
			}
			c.rest(time.Second)
		}
		require.Equal(t, 3, sessions(), "it is read each minute")
		s.set(func(s *fakeStore) { s.link = queue.Link{State: "lost"} })
		c.rest(2 * time.Second)
		s.set(func(s *fakeStore) { s.link = queue.Link{State: "live"} })
		c.rest(2 * time.Second)
		require.Equal(t, 4, sessions(), "another server may have answered")
		require.Equal(t, 1, s.busiest())
	})
}

// A guard that is set while a form or a preview is open asks for the name, too.
func TestGuardSetWhileADialogIsOpen(t *testing.T) {
	guard := func(c *console) {
		c.store.set(func(s *fakeStore) { s.session.Environment = queue.ReadEnvironment("queue", "prod-eu guarded") })
		c.rest(sessionLife + 5*time.Second)
	}
	for _, early := range []bool{true, false} { // while the form is open, or the preview
		s := newStore()
		run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
			c.press("g", "s", "D")
			c.typing("too loud")
			if early {
				guard(c)
			}
			c.press("enter")
			c.rest(quiet)
			if early {
				require.Equal(t, "prod-eu", last(s.asked()).Confirm, "the command that it prints has the name")
				c.press("tab")
			} else {
				guard(c)
			}
			c.press("tab", "enter")
			c.rest(quiet)
			require.Empty(t, s.did(), "nothing was typed")
			require.Equal(t, "prod-eu", last(s.asked()).Confirm, "the command of the new preview has the name, too")
			c.sees("PROD-EU", "type prod-eu")
			c.typing("prod-eu")
			c.press("tab", "tab", "enter")
			c.rest(quiet)
			require.Len(t, s.did(), 1)
		})
	}
}

// The name that was typed unlocks one place: not the database after it was renamed, nor another server
// that answers under the same name.
func TestUnlockIsOfOnePlace(t *testing.T) {
	s := newStore()
	s.session.Environment = queue.ReadEnvironment("queue", "prod-eu guarded")
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		meanwhile := func(change func(s *queue.Session)) {
			s.set(func(s *fakeStore) { change(&s.session) })
			c.rest(sessionLife + 5*time.Second)
		}
		open := func() {
			c.press("g", "s", "D")
			c.typing("too loud")
			c.press("enter")
			c.rest(quiet)
		}
		done := 0
		apply := func(keys ...string) {
			c.press(append(keys, "enter")...)
			c.rest(quiet)
			done++
			require.Len(t, s.did(), done)
			c.press("enter")
		}
		open()
		c.sees("type prod-eu")
		c.typing("prod-eu")
		apply("tab", "tab")
		open()
		c.seesNot("type prod-eu")
		apply("tab")

		open()
		meanwhile(func(s *queue.Session) { s.Environment = queue.ReadEnvironment("queue", "prod-us guarded") })
		c.press("tab", "enter")
		c.rest(quiet)
		require.Len(t, s.did(), done, "the name of the other was typed")
		c.sees("PROD-US", "type prod-us")
		require.Equal(t, "prod-us", last(s.asked()).Confirm)
		c.typing("prod-us")
		apply("tab", "tab")
		meanwhile(func(s *queue.Session) { s.Address = queue.Clean("10.0.0.9:5432") })
		open()
		c.sees("type prod-us")
		c.typing("prod-us")
		meanwhile(func(s *queue.Session) { s.Address = queue.Clean("10.0.0.8:5432") })
		c.press("tab", "tab", "enter")
		c.rest(quiet)
		require.Len(t, s.did(), done, "the name was typed for the server before")
		c.sees("type prod-us")
	})
}
