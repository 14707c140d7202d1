package views_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

func plain(lines []string) string { return ansi.Strip(strings.Join(lines, "\n")) }

// The job table is shown as a warning if the oldest snapshot is at least 5 minutes old, or if there
// are at least 10,000 dead rows and as many as live rows.
func TestJobTableSaysWhenItIsBad(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	at := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		table      queue.JobTable
		sign, says string
	}{
		{queue.JobTable{}, "·", "0 live rows, 0 dead · never vacuumed · no old snapshot · 0 leases"},
		{queue.JobTable{LiveRows: 900, DeadRows: 100, OldestSnapshotSeconds: at(299), OldestSnapshotPid: at(7)}, "·", "100 dead (10 %: harmless) · never vacuumed · oldest snapshot 4m, pid 7 ·"},
		{queue.JobTable{LiveRows: 1, DeadRows: 9999}, "·", "harmless"},
		{queue.JobTable{LiveRows: 10001, DeadRows: 10000}, "·", "harmless"},
		{queue.JobTable{LiveRows: 10000, DeadRows: 10000}, "▲", "(50 %: each claim reads past them)"},
		{queue.JobTable{LiveRows: 9, OldestSnapshotSeconds: at(300), OldestSnapshotPid: at(7), OldestSnapshotProgram: queue.Clean("etl")}, "▲", "oldest snapshot 5m, pid 7 etl: it keeps dead rows"},
		{queue.JobTable{LiveRows: 9, DeadRows: 90000, OldestSnapshotSeconds: at(4000)}, "✖", "it keeps dead rows"},
		{queue.JobTable{Leases: 1, LeasesExpired: 1}, "·", "1 lease, 1 expired"},
	} {
		got := plain(views.JobTable(&queue.Snapshot{JobTable: c.table}, e, 400))
		require.True(t, strings.HasPrefix(got, " "+c.sign+" JOB TABLE"), got)
		require.Contains(t, got, c.says)
	}
	require.Empty(t, views.JobTable(&queue.Snapshot{Missing: map[string]queue.Text{"job_table": queue.Clean("no right")}}, e, 400))
}

// The urgency of a queue lane depends on the age of its oldest waiting job and
// on whether the lane will become empty at the current rates.
func TestLanesAreJudged(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	since, clears := viewstest.Now(), int64(90)
	for _, c := range []struct {
		lane queue.Lane
		want string // the sign, and the text that says when the lane will be empty
	}{
		{queue.Lane{Queued: 5, AgeSeconds: seconds(4), OldestAt: &since}, "· –"},
		{queue.Lane{Queued: 5, AgeSeconds: seconds(5), OldestAt: &since}, "▲ never"},
		{queue.Lane{Queued: 5, AgeSeconds: seconds(60), OldestAt: &since}, "✖ never"},
		{queue.Lane{Queued: 5, AgeSeconds: seconds(600), OldestAt: &since, OutPerSecond: 1}, "▲ never"},
		{queue.Lane{Queued: 5, AgeSeconds: seconds(600), OldestAt: &since, OutPerSecond: 1, ClearsInSeconds: &clears}, "· 1m"},
		{queue.Lane{Queued: 5, Scheduled: 5}, "· –"},
		{queue.Lane{InProgress: 1}, "● –"},
	} {
		c.lane.Kind, c.lane.Domain = queue.Clean("k"), queue.Clean("d")
		src := views.Lanes(&queue.Snapshot{Queues: []queue.Lane{c.lane}}, 80)
		row := src.Row(0, e)
		require.Equal(t, c.want, row.Sign.Text+" "+row.Cells[9].Text, "%+v", c.lane)
	}
	src := views.Lanes(&queue.Snapshot{Queues: []queue.Lane{{Queued: 5, AgeSeconds: seconds(60)}}}, 200)
	require.Equal(t, "never at this rate", src.Row(0, e).Cells[9].Text)
}

// Jobs that are due later are not called queued: not in the column, its sort and its filter, not on
// the page, and not in the table of the verb.
func TestQueuedJobsAreDue(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	later := queue.Lane{Kind: queue.Clean("later"), Domain: queue.Clean("d"), Queued: 120, Scheduled: 119, RetryWaiting: 5}
	now := queue.Lane{Kind: queue.Clean("now"), Domain: queue.Clean("d"), Queued: 2}
	src := views.Lanes(&queue.Snapshot{Queues: []queue.Lane{later, now}}, 200)
	queued := slices.IndexFunc(src.Columns, func(c table.Column) bool { return c.Title == "queued" })
	require.Equal(t, "1", src.Row(0, e).Cells[queued].Text)
	value, _ := src.Field(0, "queued")
	require.EqualValues(t, 1, value)
	sort := slices.IndexFunc(src.Sorts, func(s views.Sort) bool { return s.Column == "queued" })
	require.Equal(t, []int{1, 0}, views.Arrange(src, sort, nil))
	heads, rows := src.Table("queues")
	require.Equal(t, "1", rows[0][slices.Index(heads, "QUEUED")])
	require.Contains(t, plain(views.LanePage(later, &queue.Snapshot{}, e, 120).Lines), " 1 queued, 119 due later, 5 waiting for their next attempt")
}

// In every sort order, leases stay below queue lanes.
func TestLeasesStayUnderLanes(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	src := views.Lanes(&s, 200)
	src.Second.From = 2 // wrong on purpose: the first two rows are leases, the rest lanes
	for sort := range src.Sorts {
		low := false
		for _, i := range views.Arrange(src, sort, nil) {
			require.False(t, low && !src.Lower(i), src.Sorts[sort].Name)
			low = low || src.Lower(i)
		}
	}
}

func TestShortIDsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 4096 { // ids that differ as those of one call of fn_job_enqueue_many do
		seen[views.ShortID(fmt.Sprintf("01a1ffab-7790-7000-8%03x-48907d178d60", i))] = true
	}
	require.Len(t, seen, 4096)
	for id, want := range map[string]string{
		"9c7f3b52-435d-4bc7-935c-cafdc8225f72": "9c7f3b52", "job:f4766602-f757-4854-8306-a2469267fd0b": "job:f4766602",
		"job:01a1ffab-7790-7000-8020-4b5c4b4dafde": "job:8020-4b5c4b4dafde", "90998": "90998", "": "", "a-b": "a-b",
	} {
		require.Equal(t, want, views.ShortID(id))
	}
}

// However many rows each of the two tables has, both are visible, the row under the cursor is among
// the visible rows, and a click finds the row at its position.
func TestTwoTables(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	for _, c := range []struct{ lanes, leases int }{{0, 0}, {0, 3}, {3, 0}, {2, 2}, {50, 3}, {3, 50}, {50, 50}} {
		s := viewstest.Rich()
		s.Queues, s.JobLeases = s.Queues[:0], s.JobLeases[:0]
		for i := range c.lanes {
			s.Queues = append(s.Queues, queue.Lane{Kind: queue.Clean(fmt.Sprintf("lane%03d", i)), Domain: queue.Clean("d")})
		}
		for i := range c.leases {
			s.JobLeases = append(s.JobLeases, queue.JobLease{ID: fmt.Sprintf("t%07d", i), Owner: queue.Clean("o"), Until: viewstest.Now().Add(-time.Minute), Expired: true})
		}
		for _, size := range []views.Size{{W: 80, H: 20}, {W: 120, H: 36}, {W: 200, H: 56}} {
			g := grid(views.Lanes(&s, size.W), nil)
			lines := views.Queues(&s, g, e, size)
			require.Len(t, lines, size.H)
			got := plain(lines)
			require.Contains(t, got, "JOB TABLE")
			require.Equal(t, c.lanes > 0, strings.Contains(got, "lane000"), "%+v", c)
			require.Equal(t, c.leases > 0, strings.Contains(got, "t0000000"), "%+v", c)
			n, _ := views.QueuesTable(&s, g, e, size)
			for y := range n {
				i, ok := g.RowAt(e, views.Size{W: size.W, H: n}, y)
				if ok {
					id := g.Source.ID(g.Order[i])
					require.Contains(t, ansi.Strip(lines[y]), strings.TrimPrefix(id, "d/"), "line %d", y)
				} else {
					require.NotRegexp(t, `lane\d|t00000`, ansi.Strip(lines[y]))
				}
			}
		}
	}
}

func TestTabsLeaveOutQuietOnesWhereTheyMust(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	e := env(theme.Options{Depth: theme.Mono})
	for i, p := range viewstest.Tabs(&s, "") {
		tabs := viewstest.Tabs(&s, "")
		tabs[i].Open = true
		line := ansi.Strip(views.TabLine(tabs, e, 80))
		require.Equal(t, 80, ansi.StringWidth(line))
		require.Contains(t, line, p.Keys+" ", "the open one shows")
		require.Contains(t, line, "0 …", p.Title)
		for _, keys := range []string{"1 Over", "3 Alerts·3", "5 Dead", "6 Ops·2", "7 Hooks·1", "8 Queue·3"} {
			require.Contains(t, line, keys, p.Title)
		}
	}
}

// "Who may claim" names only executors with a job subscription for the kind of the waiting job.
func TestWhoMayClaimNamesItsKindAlone(t *testing.T) {
	t.Parallel()
	sub := func(id, kind string) queue.JobSubscription {
		return queue.JobSubscription{ExecutorID: queue.Clean(id), ExecutorKind: queue.Clean(kind), Enabled: true}
	}
	s := queue.Snapshot{JobSubscriptions: []queue.JobSubscription{sub("hermes_1", "Hermes"), sub("codex_1", "Codex")}}
	l := queue.Lane{Kind: queue.Clean("mail"), Domain: queue.Clean("kg"), Executor: queue.Clean("Codex"), Queued: 1}
	page := plain(views.LanePage(l, &s, env(theme.Options{}), 120).Lines)
	require.Contains(t, page, "codex_1")
	require.NotContains(t, page, "hermes_1")
	l.Executor = queue.Text{}
	require.Contains(t, plain(views.LanePage(l, &s, env(theme.Options{}), 120).Lines), "hermes_1")
}

func seconds(n int64) *int64 { return &n }

// A name is whole on a page, also where it is longer than the column of the labels.
func TestPagesShowLongNamesWhole(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	l := s.Queues[0]
	for _, name := range []string{"billing_export_europe_1", "billing_export_europe_2"} {
		s.JobSubscriptions = append(s.JobSubscriptions, queue.JobSubscription{ExecutorID: queue.Clean(name), ExecutorKind: l.Executor, JobKind: l.Kind, Domain: l.Domain, Enabled: true})
	}
	for _, w := range []int{60, 80, 200} {
		page := plain(views.LanePage(l, &s, env(theme.Options{}), w).Lines)
		require.Contains(t, page, "billing_export_europe_1")
		require.Contains(t, page, "billing_export_europe_2")
	}
}

// Two queue lanes of one kind show their domains, also where the kind is cut.
func TestLanesOfOneLongKindDiffer(t *testing.T) {
	t.Parallel()
	s := viewstest.Empty()
	kind := queue.Clean("customer.invoice.render_and_send_to_archive")
	for _, domain := range []string{"shop", "crm"} {
		s.Queues = append(s.Queues, queue.Lane{Kind: kind, Domain: queue.Clean(domain), Queued: 1})
		s.Waiting = append(s.Waiting, queue.Waiting{Source: "job", Queue: queue.Clean("job " + kind.String()), Subject: kind, Domain: queue.Clean(domain), Waiting: 1})
	}
	for _, w := range []int{60, 80} {
		e, size := env(theme.Options{}), views.Size{W: w, H: 24}
		lanes := plain(grid(views.Lanes(&s, w), nil).Lines(e, size))
		overview := plain(views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines)
		for _, domain := range []string{"… in shop ", "… in crm "} {
			require.Contains(t, lanes, domain, "%d columns", w)
			if w > 60 { // the Overview has 14 cells for a name there
				require.Contains(t, overview, domain, "%d columns", w)
			}
		}
	}
}
