package views_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// outage is a snapshot in which everything is wrong at once.
func outage() queue.Snapshot {
	s := viewstest.Rich()
	s.Hosts = nil
	s.Suspended = nil
	for i := range 9 {
		until := viewstest.Now().Add(time.Minute)
		s.Suspended = append(s.Suspended, queue.Suspension{SubscriptionID: int64(100 + i), Endpoint: queue.Clean(fmt.Sprintf("hook%d.example", i)), Reason: queue.Clean("circuit"), Since: viewstest.Now(), Until: &until})
	}
	s.Suspended = append(s.Suspended, queue.Suspension{SubscriptionID: 200, Endpoint: queue.Clean("pay.example"), Reason: queue.Clean("operator"), By: queue.Clean("ben"), Since: viewstest.Now()})
	s.Operations = viewstest.Operations()
	return s
}

// Nine circuits share one row, which names the suspensions by people first, until it is expanded.
func TestTroublesOfOneKindShareOneRow(t *testing.T) {
	t.Parallel()
	s, e := outage(), env(theme.Options{Depth: theme.Mono})
	for _, size := range []views.Size{{W: 80, H: 20}, {W: 120, H: 36}, {W: 200, H: 56}} {
		got := plain(views.Overview(views.OverviewState{Snapshot: &s}, e, size).Lines)
		require.Equal(t, 1, strings.Count(got, "SUSPENDED"), got)
		require.Regexp(t, `SUSPENDED +pay\.example by ben · 9 circ`, got)
		require.NotContains(t, got, "hook3.example")
		require.Contains(t, got, "enter: all 10 · 7 D")
		open := plain(views.Overview(views.OverviewState{Snapshot: &s, Expanded: map[string]bool{"SUSPENDED": true}}, e, size).Lines)
		for i := range 4 {
			require.Contains(t, open, fmt.Sprintf("hook%d.example", i), "%v: an expanded row gets room first", size)
		}
		require.Less(t, strings.Index(open, "pay.example"), strings.Index(open, "hook0.example"))
	}
}

// The order of the rows is that in which a person must decide, each with its cure and key.
func TestFirstScreenOrderAndCures(t *testing.T) {
	t.Parallel()
	s, e := outage(), env(theme.Options{Depth: theme.Mono})
	v := views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40})
	got := plain(v.Lines)
	at := 0
	for _, label := range []string{"OFF  ", "BRAKE  ", "HELD  ", "SUSPENDED  ", "NO HOST  ", "SILENT  ", "WAITING LONGEST", "DEAD  ", "RUNNING"} {
		i := strings.Index(got, label)
		require.Greater(t, i, at, "%s in its place\n%s", label, got)
		at = i
	}
	for _, cure := range []string{"set · E", "resume · 6 P", "look · gl", "7 D", "start · gw S", "is off (ben, 00:05) · gf E", "no live host runs iu_outbound_default · gw S"} {
		require.Contains(t, got, cure)
	}
	require.Len(t, v.Cures, len(v.Targets))
	for i, x := range v.Targets {
		if x.Pane == queue.PaneDead {
			require.Equal(t, "requeue · 5 R", v.Cures[i])
		}
	}
}
