//go:build !race

package tui

// What the model draws after the keys of every tour. Nothing here has a
// goroutine, so .ci/test.sh runs it without the race detector, under which it
// takes ten times as long. The same holds for the other test files here that are
// not built with it; those of everypane_test.go have short forms in raced_test.go.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// At any size and at any time, in every pane and under every overlay, drawing
// does not panic, no line is wider than the screen, and there are no more
// lines than the screen has.
func TestResizeFuzz(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	rounds := 8
	if os.Getenv("QTOP_TEST_FULL") != "" {
		rounds = 400
	}
	for name, keys := range tours() {
		for _, production := range []string{"", "prod-eu"} {
			m := toured(newStore(), newHost(), Options{Actor: "anna", Production: production}, keys)
			for range rounds {
				w, h := 1+r.IntN(250), 1+r.IntN(80)
				m.send(tea.WindowSizeMsg{Width: w, Height: h})
				lines := strings.Split(m.frame(), "\n")
				require.LessOrEqual(t, len(lines), h, "%s at %dx%d", name, w, h)
				for _, l := range lines {
					require.LessOrEqual(t, theme.Width(l), w, "%s at %dx%d: %q", name, w, h, l)
				}
				m.keys([]string{"j", "k", "G", "pgup", "pgdown"}[r.IntN(5)])
			}
		}
	}
}

// Control sequences in texts from the database, the network, a host or an
// operator must not reach the terminal.
func TestHostileStringsReachNoScreen(t *testing.T) {
	t.Parallel()
	n := 0
	for _, bad := range viewstest.HostileTogether() {
		w := viewstest.HostileWorld(bad)
		for name, keys := range tours() {
			// To save time each string is used on every second tour only. A
			// very long one costs most and finds least, so it is used on every
			// eighth. The full test run uses all on all tours.
			if n++; n%queue.Choose(len(bad) > 200, 8, 2) != 0 && os.Getenv("QTOP_TEST_FULL") == "" {
				continue
			}
			s := newStore()
			s.jobs, s.notify = w.Jobs, *w.Notifications
			s.subscriptions, s.share, s.resolve = w.EventSubscriptions, *w.Broadcast, w.Resolution
			s.snap, s.audit, s.deadLetters = w.Snapshot, w.Audit, w.DeadLetters
			s.snap.Missing = map[string]queue.Text{"waiting": queue.Clean(bad)}
			s.link = queue.Link{State: "lost", Reason: queue.Clean(bad), RetryIn: 3}
			s.session.Database, s.session.Actor = queue.Clean(bad), bad
			s.session.Misfit = &queue.Error{What: queue.Clean(bad), Do: queue.Clean(bad)}
			h := newHost()
			h.st = *w.Host
			m := toured(s, h, Options{Actor: bad, Profile: bad, Demo: bad}, keys)
			for range 2 { // once as it is, then with an error in the status line and in the banner
				for _, r := range viewstest.Uncoloured(m.frame()) {
					if r != '\n' && queue.Unsafe(r) {
						require.Failf(t, "unsafe", "%s draws %U of %q", name, r, bad)
					}
				}
				m.send(snapshotMsg{err: fmt.Errorf("no: %s", bad)})
				m.warn(bad)
			}
			v := m.View()
			for _, r := range v.WindowTitle {
				require.False(t, queue.Unsafe(r), "title: %U", r)
			}
		}
	}
}
