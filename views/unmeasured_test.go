package views_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// A value that was never measured is a dash on the screen and in the table of a verb, or the word
// never; it is not a 0, which would look fast, young or slow.
func TestUnmeasuredIsADash(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	x := queue.Executor{ID: queue.Clean("new"), State: "idle"}
	for name, c := range map[string]struct {
		src  views.Source
		list string
		want map[string]string // by title: the text on the screen, and the text in the table
	}{
		"endpoint": {views.Webhooks([]queue.Endpoint{{Endpoint: queue.Clean("a.example"), Gate: "open"}}, nil), "webhooks", map[string]string{
			"oldest": "–/OLDEST", "p50": "–/P50", "p95": "–/P95", "last success": "–/LAST SUCCESS", "rate": "–/RATE"}},
		"executor": {views.Executors(&queue.Snapshot{Executors: []queue.Executor{x}}), "executors", map[string]string{
			"last beat": "never/LAST BEAT", "×cadence": "–/RATIO", "in flight": "–/IN FLIGHT", "done": "–/DONE"}},
		"tick worker": {views.Scheduler(&queue.Snapshot{Ticks: []queue.TickWorker{{Name: queue.Clean("t"), IntervalSeconds: 5}}}), "scheduler", map[string]string{"last run": "never/AGE"}},
		"heartbeat":   {views.Health(&queue.Snapshot{Health: []queue.HealthRow{{Source: queue.Clean("heartbeat")}}}), "health", map[string]string{"last seen": "never/AGE"}},
		"backlog":     {views.Health(&queue.Snapshot{Health: []queue.HealthRow{{Source: queue.Clean("backlog_webhook")}}}), "health", map[string]string{"last seen": "–/AGE"}},
		"job":         {views.Jobs([]queue.Job{{ID: "j", Status: "queued"}}, 200), "jobs", map[string]string{"age": "–/AGE"}},
		"lane":        {views.Lanes(&queue.Snapshot{Queues: []queue.Lane{{Kind: queue.Clean("k")}}}, 200), "queues", map[string]string{"oldest": "–/OLDEST", "clears in": "–/CLEARS IN"}},
		"loop":        {views.Loops(&queue.HostStatus{Loops: []queue.LoopStatus{{Name: "l", State: "stopped"}}}), "", map[string]string{"last tick": "–/", "rate/s": "–/"}},
	} {
		row := c.src.Row(0, e)
		heads, rows := c.src.Table(c.list)
		for title, want := range c.want {
			screen, head, _ := strings.Cut(want, "/")
			k := -1
			for i, col := range c.src.Columns {
				if col.Title == title {
					require.Equal(t, screen, ansi.Strip(row.Cells[i].Text), "%s, %s", name, title)
					k = i
				}
			}
			require.GreaterOrEqual(t, k, 0, "%s has no column %s", name, title)
			if at := slices.Index(heads, head); at >= 0 {
				require.Equal(t, queue.Choose(screen == "–", "-", screen), rows[0][at], "%s, %s of the table", name, head)
			}
		}
	}
}

// Waiting work of which nothing is due has no age, and a curve without values neither a peak nor a
// rate.
func TestNothingMeasuredOnTheOverview(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	s := viewstest.Empty()
	s.Waiting = []queue.Waiting{{Queue: queue.Clean("job k"), Source: "job", Subject: queue.Clean("k"), Domain: queue.Clean("d"), Waiting: 3, Why: queue.Clean("all due later")}}
	for _, size := range sizes {
		got := plain(views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines)
		require.NotContains(t, got, "peak", "%v", size)
		require.NotRegexp(t, `job k +0s`, got, "%v", size)
		require.Regexp(t, `job k +– +3 `, got, "%v", size)
	}
	require.Contains(t, plainText(views.PlainLines(&s, e)), "WAITING job k in d, all due later, 3 waiting, none is due yet")
	heads, rows := views.WaitingQueues(&s).Table("waiting")
	require.Equal(t, "-", rows[0][slices.Index(heads, "OLDEST")])
	s.Flow.Delivered = []int64{0, 4, 7}
	require.Contains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 60}).Lines), "peak 7")
	s.Flow.Delivered, s.Flow.Dead = nil, nil
	require.NotContains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 60}).Lines), "/min")
}

// Work of which nobody counts how much is done, as of events, is stuck only while something blocks it.
func TestWaitingWorkWithoutARate(t *testing.T) {
	t.Parallel()
	e, size := env(theme.Options{Depth: theme.Mono}), views.Size{W: 120, H: 40}
	s, in, since := viewstest.Empty(), 2.0, viewstest.Now()
	w := queue.Waiting{Queue: queue.Clean("events iu"), Source: "event", Subject: queue.Clean("iu_outbound_default"), Domain: queue.Clean("iu"), OldestAt: &since, AgeSeconds: 90, Waiting: 3, InPerSecond: &in}
	s.Waiting = []queue.Waiting{w}
	require.Regexp(t, `· events iu +1m +3 +2\.0 +– +– `, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines))
	require.NotContains(t, plainText(views.PlainLines(&s, e)), "events iu")
	w.Why = queue.Clean("no live host runs iu_outbound_default")
	s.Waiting = []queue.Waiting{w}
	require.Regexp(t, `✖ events iu +1m +3 +2\.0 +– +never `, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines))
	require.Contains(t, plainText(views.PlainLines(&s, e)), "WAITING events iu, no live host runs iu_outbound_default, 3 waiting, oldest for 1m")
}

// A page says of an executor without a heartbeat that it never sent one, not when it was registered.
func TestPagesOfAnExecutorThatNeverBeat(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	at := viewstest.Now()
	s := queue.Snapshot{
		Executors: []queue.Executor{{ID: queue.Clean("new"), State: "silent", Severity: "warning", Ratio: 6, CadenceSeconds: 60, RegisteredAt: at}},
		Alerts:    []queue.Alert{{Key: queue.Clean("silence:new"), Kind: queue.AlertSilence, Subject: queue.Clean("new"), Severity: "warning", Since: &at, AgeSeconds: 360, Ratio: 6}},
	}
	for _, page := range []views.Page{views.ExecutorPage(s.Executors[0], &s, e, 100), views.AlertPage(s.Alerts[0], &s, nil, e, 100)} {
		require.Regexp(t, "last heartbeat +never since it was registered", plain(page.Lines))
	}
}
