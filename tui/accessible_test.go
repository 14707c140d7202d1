package tui

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

var update = flag.Bool("update", false, "write the goldens of this run")

// listener runs accessible (the console of --accessible) in a bubble of
// testing/synctest, where time is virtual, and collects the lines that it
// prints.
type listener struct {
	store *fakeStore
	out   strings.Builder
	heard int
}

// during lets the virtual time d pass and returns the lines that the console
// printed meanwhile.
func (l *listener) during(d time.Duration) string {
	time.Sleep(d)
	synctest.Wait()
	all := l.out.String()
	news := all[l.heard:]
	l.heard = len(all)
	return news
}

func listening(t *testing.T, o Options, test func(l *listener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &listener{store: newStore()}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		o.UTC, o.Profile = true, "x"
		go func() { done <- accessible(ctx, l.store, o.withDefaults(), &l.out) }()
		test(l)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAccessible(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		first := l.during(time.Second)
		require.Contains(t, first, "SILENT iu_outbound_default, critical, no owner, for 95h 00m since ")
		for _, words := range []string{"OFF webhook.worker.enabled", "HELD ", "BRAKE #", "ACTION ", "OPERATION #"} {
			require.Contains(t, first, words)
		}
		require.NotContains(t, first, "\x1b")
		require.Empty(t, l.during(time.Minute), "nothing changed")
		l.store.set(func(s *fakeStore) { s.snap.Alerts = s.snap.Alerts[1:] })
		news := l.during(5 * time.Second)
		require.Equal(t, 1, strings.Count(news, "\n"), "only what changed is said: %s", news)
		require.Contains(t, news, "over: SILENT iu_outbound_default")
	})
}

// The first lines say what this is: the program, its profile if it has one, and the server. When
// another server answers, that is said too.
func TestAccessibleNamesTheServer(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		require.Regexp(t, `^\S+ qtop x, plain lines; .*\n\S+ SERVER queue, PostgreSQL 16.4, primary\n`, l.during(time.Second))
		l.during(time.Minute)
		l.store.set(func(s *fakeStore) { s.snap.Server.InRecovery = true })
		require.Regexp(t, `^\S+ SERVER queue, PostgreSQL 16.4, standby: no action works here\n$`, l.during(10*time.Second))
	})
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, accessible(ctx, newStore(), Options{}.withDefaults(), &out))
	require.Regexp(t, `^\S+ qtop, plain lines; `, out.String())
}

// A condition that begins and ends again with every snapshot must not flood
// the output: it gets a line less and less often, and each line has the number
// of changes since the line before.
func TestAccessibleDoesNotFlap(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		l.during(time.Minute)
		var alerts []queue.Alert
		l.store.set(func(s *fakeStore) { alerts = s.snap.Alerts })
		toggled := ""
		for i := range 600 {
			l.store.set(func(s *fakeStore) { s.snap.Alerts = alerts[i%2:] })
			toggled += l.during(time.Second)
		}
		lines := strings.Count(toggled, "\n")
		require.Less(t, lines, 12, toggled)
		require.Greater(t, lines, 3, toggled)
		require.Contains(t, toggled, ", changed ")
		l.store.set(func(s *fakeStore) { s.snap.Alerts = alerts[1:] })
		end := l.during(10 * time.Minute)
		require.Contains(t, toggled+end, "over: SILENT iu_outbound_default")
		require.Empty(t, l.during(10*time.Minute))
	})
}

// A database that cannot be read gets one line, and no other condition counts
// as ended.
func TestAccessibleWithoutDatabase(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		l.during(time.Minute)
		l.store.set(func(s *fakeStore) { s.err = errors.New("connection refused") })
		news := l.during(time.Minute)
		require.Equal(t, 1, strings.Count(news, "\n"), news)
		require.Contains(t, news, "DATABASE connection refused")
		l.store.set(func(s *fakeStore) { s.err = nil })
		require.Contains(t, l.during(time.Minute), "over: DATABASE cannot be read")
	})
}

// A slow database is read less often, as by the console with a screen.
func TestAccessibleSparesTheDatabase(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		l.store.set(func(s *fakeStore) { s.delay = 2 * time.Second })
		l.during(time.Minute)
		before := l.store.snapped()
		l.during(time.Minute)
		require.LessOrEqual(t, l.store.snapped()-before, 7)
		l.store.set(func(s *fakeStore) { s.delay = 0 })
		l.during(time.Minute)
		before = l.store.snapped()
		l.during(time.Minute)
		require.GreaterOrEqual(t, l.store.snapped()-before, 59)
	})
}

// A login that may no longer read the snapshot is told so once, and no other
// condition counts as ended. When it may again, the conditions are as before.
func TestAccessibleWithoutRights(t *testing.T) {
	listening(t, Options{}, func(l *listener) {
		l.during(time.Minute)
		full := l.store.snap
		l.store.set(func(s *fakeStore) {
			s.snap = queue.Snapshot{TakenAt: full.TakenAt, Server: full.Server, Missing: map[string]queue.Text{"all": queue.Clean("this login needs queue_viewer")}}
		})
		require.Regexp(t, `^\S+ not in this snapshot, this login needs queue_viewer\n$`, l.during(time.Minute))
		l.store.set(func(s *fakeStore) {
			s.snap = full
			s.snap.Alerts = full.Alerts[1:]
		})
		require.Regexp(t, `^\S+ over: SILENT iu_outbound_default\n\S+ over: not in this snapshot\n$`, l.during(time.Minute))
	})
}

// The whole output is compared with golden files, without and with --ascii: an
// action, a mark in a non-Latin script, and a condition that ends.
func TestAccessibleGoldens(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		listening(t, Options{ASCII: ascii}, func(l *listener) {
			l.during(30 * time.Second)
			l.store.set(func(s *fakeStore) {
				s.snap.Marks = append([]queue.Mark{{At: s.snap.TakenAt, By: queue.Clean("Zoë"), Label: queue.Clean("監視 → 3×")}}, s.snap.Marks...)
				s.snap.Held = nil
			})
			l.during(30 * time.Second)
			path := filepath.Join("testdata", fmt.Sprintf("accessible-ascii-%v.golden", ascii))
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(l.out.String()), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), l.out.String())
			if ascii {
				require.NotRegexp(t, `[^\x00-\x7f]`, l.out.String())
			}
		})
	}
}
