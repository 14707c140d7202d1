package views_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// plainText returns the texts of lines, one per line.
func plainText(lines []views.PlainLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// The lines of --accessible are compared with their goldens, with and without --ascii.
func TestPlainLinesGoldens(t *testing.T) {
	t.Parallel()
	for name, w := range worlds() {
		text := plainText(views.PlainLines(&w.Snapshot, env(theme.Options{ASCII: true})))
		for look, got := range map[string]string{"plain": theme.Spell(text), "ascii": theme.ASCIIText(text)} {
			path := filepath.Join("testdata", "accessible-"+name+"-"+look+".golden")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got, path)
		}
	}
}

// Each of several transactions that hold the events of one tick worker has a line, and one for its end.
func TestPlainLinesOfTwoHolders(t *testing.T) {
	t.Parallel()
	s, pid := viewstest.RichWorld().Snapshot, int64(4711)
	second := s.Held[0]
	second.Pid, second.User = &pid, queue.Clean("reporting")
	s.Held = []queue.Held{s.Held[0], second}
	keys, over := map[string]bool{}, map[string]bool{}
	for _, l := range views.PlainLines(&s, env(theme.Options{})) {
		require.False(t, keys[l.Key], l.Key)
		keys[l.Key] = true
		if strings.HasPrefix(l.Text, "HELD") {
			over[l.Over] = true
		}
	}
	require.Len(t, over, 2, over)
}

// A condition that only becomes older or changes slightly is not printed
// again. No two lines have the same key.
func TestPlainLinesAreNewsOnce(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{ASCII: true})
	news := func(s queue.Snapshot, e views.Env) (keys, all []string) {
		for _, l := range views.PlainLines(&s, e) {
			keys, all = append(keys, l.Key), append(all, l.Key+l.State)
		}
		return keys, all
	}
	s := viewstest.RichWorld().Snapshot
	keys, before := news(s, e)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(keys))), len(keys), "%q", keys)

	s.Alerts, s.Held, s.Waiting, s.DeadGroups = slices.Clone(s.Alerts), slices.Clone(s.Held), slices.Clone(s.Waiting), slices.Clone(s.DeadGroups)
	for i := range s.Alerts {
		s.Alerts[i].AgeSeconds += 90
		s.Alerts[i].Ratio *= 1.01
	}
	for i := range s.Held {
		s.Held[i].AgeSeconds += 90
	}
	for i := range s.Waiting {
		s.Waiting[i].AgeSeconds += 90
		s.Waiting[i].Waiting++
	}
	for i := range s.DeadGroups {
		if n := s.DeadGroups[i].Open + 1; n&(n-1) != 0 { // when a group has doubled (a power of two), its line is printed again
			s.DeadGroups[i].Open = n
		}
	}
	e.Now = e.Now.Add(90 * time.Second)
	_, after := news(s, e)
	require.Equal(t, before, after)

	s.DeadGroups[0].Open *= 2
	s.Alerts[0].State, s.Alerts[0].AckedBy = "acked", queue.Clean("ben")
	_, after = news(s, e)
	changed := 0
	for i := range after {
		if after[i] != before[i] {
			changed++
		}
	}
	require.Equal(t, 2, changed)
}

// A line of --accessible is printed again when its cause changes, although its urgency stays.
func TestPlainLinesSayANewCause(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{})
	state := func(s queue.Snapshot, name string) string {
		for _, l := range views.PlainLines(&s, e) {
			if strings.HasPrefix(l.Key, name) {
				return l.State
			}
		}
		require.Failf(t, "no line", "%s in %s", name, plainText(views.PlainLines(&s, e)))
		return ""
	}
	with := func(change func(*queue.Snapshot)) queue.Snapshot {
		s := viewstest.Empty()
		s.Hosts = []queue.Host{{ID: queue.Clean("h"), Alive: true}}
		change(&s)
		return s
	}
	waits := func(why string, n int64) queue.Snapshot {
		return with(func(s *queue.Snapshot) {
			s.Waiting = []queue.Waiting{{Queue: queue.Clean("job k"), Source: "job", Subject: queue.Clean("k"), Domain: queue.Clean("d"), Waiting: n, AgeSeconds: 60, OutPerSecond: new(float64), Why: queue.Clean(why)}}
		})
	}
	operation := func(why string) queue.Snapshot {
		return with(func(s *queue.Snapshot) {
			s.Operations = []queue.Operation{{ID: 1, Kind: "requeue_webhook", State: queue.BulkRunning, Frozen: 9, Waits: queue.Clean(why)}}
		})
	}
	suspended := func(reason string) queue.Snapshot {
		return with(func(s *queue.Snapshot) {
			s.Suspended = []queue.Suspension{{SubscriptionID: 7, Endpoint: queue.Clean("hooks.example"), Reason: queue.Clean(reason)}}
		})
	}
	unticked := func(why string) queue.Snapshot {
		return with(func(s *queue.Snapshot) {
			s.Ticks = []queue.TickWorker{{Name: queue.Clean("lease_reaper"), IntervalSeconds: 60, Why: queue.Clean(why)}}
		})
	}
	for _, c := range []struct {
		line         string
		before, same queue.Snapshot // two states that do not differ in their cause
		after        queue.Snapshot
	}{
		{"WAITING", waits("no live host runs job_executor", 3), waits("no live host runs job_executor", 4), waits("queue.job_substrate.enabled is off", 3)},
		{"WAITING", waits("", 3), waits("", 4), waits("no executor subscribes to it", 3)},
		{"OPERATION", operation("3 requeued items wait: circuit open"), operation("2 requeued items wait: circuit open"), operation("2 requeued items wait: webhook.worker.enabled is off")},
		{"SUSPENDED", suspended("circuit"), suspended("circuit"), suspended("410 Gone")},
		{"NOT TICKED", unticked("no live host runs lease_reaper"), unticked("no live host runs lease_reaper"), unticked("queue.lease.reaper_enabled is off")},
	} {
		require.Equal(t, state(c.before, c.line), state(c.same, c.line), c.line)
		require.NotEqual(t, state(c.before, c.line), state(c.after, c.line), c.line)
	}
}
