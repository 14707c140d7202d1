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

// outage returns a snapshot in which every kind of trouble occurs.
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

// Nine open circuits share one row until it is expanded; suspensions by people come first.
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

// The rows are in the order in which they need a decision, each with its remedy and key.
func TestFirstScreenOrderAndCures(t *testing.T) {
	t.Parallel()
	s, e := outage(), env(theme.Options{Depth: theme.Mono})
	v := views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40})
	got := plain(v.Lines)
	at := 0
	for _, label := range []string{"OFF  ", "BRAKE  ", "HELD  ", "SUSPENDED  ", "NO HOST  ", "SILENT  ", "WAITING LONGEST", "DEAD  ", "RUNNING", "FLOW  ", "RECENT  "} {
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

// Every kind of trouble shows its complete label and, once, its remedy with a key, at every width.
func TestEveryTroubleHasItsCureOnce(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	alert := func(kind, subject, detail string) queue.Alert {
		return queue.Alert{Key: queue.Clean(kind + ":x"), Kind: kind, Subject: queue.Clean(subject), Severity: "warning", Ratio: 3, AgeSeconds: 60, State: "open", Detail: queue.Clean(detail)}
	}
	with := func(change func(*queue.Snapshot)) queue.Snapshot {
		s := viewstest.Empty()
		s.Hosts = []queue.Host{{ID: queue.Clean("ops-1"), Alive: true}}
		s.Flow.HostsAlive = 1
		change(&s)
		return s
	}
	alerts := func(a queue.Alert) queue.Snapshot {
		return with(func(s *queue.Snapshot) { s.Alerts = []queue.Alert{a} })
	}
	flag := func(f queue.Flag) queue.Snapshot {
		f.Key = queue.Clean("webhook.worker.enabled")
		return with(func(s *queue.Snapshot) { s.Flags = []queue.Flag{f} })
	}
	tick := func(why string) queue.Snapshot {
		return with(func(s *queue.Snapshot) {
			s.Ticks = []queue.TickWorker{{Name: queue.Clean("retention_sweep"), IntervalSeconds: 60, State: "stale", Why: queue.Clean(why)}}
		})
	}
	unclaimed := func(why string) queue.Snapshot {
		return alerts(alert(queue.AlertUnclaimed, "unclaimed:kg/mail.send", "3 wait; "+why))
	}
	runs := func(executor, kind string) *queue.HostStatus {
		return &queue.HostStatus{Executor: executor, Kinds: []string{kind}, Loops: []queue.LoopStatus{{Name: "job_executor", State: "stopped"}}}
	}
	at := viewstest.Now()
	for _, c := range []struct {
		label, cure string
		s           queue.Snapshot
		host        *queue.HostStatus
	}{
		{"OFF", "set · E", flag(queue.Flag{Off: true}), nil},
		{"INVALID", "set · E", flag(queue.Flag{Invalid: true}), nil},
		{"OVERDUE", "set · E", flag(queue.Flag{Overdue: true, RevertsAt: &at}), nil},
		{"BRAKE", "resume · 6 P", with(func(s *queue.Snapshot) {
			s.Operations = []queue.Operation{{ID: 12, Kind: "requeue", State: queue.BulkPaused, StateWhy: queue.Clean("the brake: 12 of the last 50 first attempts failed"), Rate: 1}}
		}), nil},
		{"HELD", "look · gl", with(func(s *queue.Snapshot) { s.Held = []queue.Held{{Worker: queue.Clean("router"), AgeSeconds: 90}} }), nil},
		{"SUSPENDED", "resume · 7 D", with(func(s *queue.Snapshot) {
			s.Suspended = []queue.Suspension{{SubscriptionID: 1, Endpoint: queue.Clean("a.example"), Reason: queue.Clean("operator"), By: queue.Clean("ben"), Since: at}}
		}), nil},
		{"NO HOST", "start · gw S", with(func(s *queue.Snapshot) { s.Hosts = nil }), nil},
		{"NO HOST", "start · gw S", alerts(alert(queue.AlertNoHost, "no_host", "no host runs webhook_worker; ops-1 stopped at 2026-11-20 22:00:00Z")), nil},
		{"NO HOST", "look · gw", with(func(s *queue.Snapshot) { s.Hosts = nil }), &queue.HostStatus{Refused: "no such program"}},
		{"NOT TICKED", "look · 9", tick("no live host runs it"), &queue.HostStatus{Refused: "no such program"}},
		{"UNCLAIMED", "explain · :why", unclaimed("no live host has a handler for it"), nil},
		{"UNCLAIMED", "explain · :why", unclaimed("no live host has a handler for it"), runs("m", "other")},
		{"UNCLAIMED", "start · gw S", unclaimed("no live host has a handler for it"), runs("m", "mail.send")},
		{"UNCLAIMED", "explain · :why", unclaimed("every subscribed executor is silent: a, b"), nil},
		{"UNCLAIMED", "explain · :why", unclaimed("every subscribed executor is silent: a, b"), runs("c", "mail.send")},
		{"UNCLAIMED", "explain · :why", unclaimed("every subscribed executor is stopped: a, b"), runs("b", "other")},
		{"UNCLAIMED", "start · gw S", unclaimed("every subscribed executor is stopped: a, b"), runs("b", "mail.send")},
		{"UNCLAIMED", "subscribe · 4 E", alerts(alert(queue.AlertUnclaimed, "unclaimed:kg/mail.send", "3 wait; no executor subscribes to it")), nil},
		{"BACKLOG", "explain · :why", alerts(alert(queue.AlertBacklog, "backlog:job mail.send in kg", "3 wait")), nil},
		{"NOT TICKED", "start · gw S", tick("no live host runs it"), nil},
		{"NOT TICKED", "look · gl", tick("its lease is held by pid 7, login eve"), nil},
		{"NOT TICKED", "look · 9", tick("its last run was slow"), nil},
		{"SET ASIDE", "retry · 3 R", alerts(alert(queue.AlertQuarantine, "quarantine:webhook_settle:71", "")), nil},
		{"BROADCAST", "subscribe · gs N", alerts(alert(queue.AlertBroadcast, "broadcast:kg", "")), nil},
	} {
		e.Host = c.host
		for _, size := range sizes {
			found := false
			for line := range strings.Lines(plain(views.Overview(views.OverviewState{Snapshot: &c.s}, e, size).Lines)) {
				if !strings.Contains(line, " "+c.label+" ") {
					continue
				}
				_, keys, _ := strings.Cut(c.cure, "· ")
				require.Contains(t, line, "  "+c.cure, "%v", size)
				require.Equal(t, 1, strings.Count(line, " "+keys+" "), "%v: %s", size, line)
				found = true
			}
			require.True(t, found, "%v: %s has its row", size, c.label)
		}
	}
}

// The flow shows the actions of people and the marks, newest first, with person and reason.
func TestFlowNamesRecentActions(t *testing.T) {
	t.Parallel()
	s, e := viewstest.Rich(), env(theme.Options{Depth: theme.Mono})
	for _, size := range sizes {
		v := views.Overview(views.OverviewState{Snapshot: &s}, e, size)
		got := plain(v.Lines)
		require.Contains(t, got, `RECENT      00:12  anna: requeue dead letter 551 +2 more`, "%v", size)
		require.Contains(t, v.Targets, views.Target{Pane: queue.PaneAudit, ID: "94", Row: "RECENT"})
		if size.W >= 120 {
			at := 0
			for _, words := range []string{"anna: requeue", "ben: mark hotfix 4.2.1", "anna: mark rollback"} {
				i := strings.Index(got, "  "+words)
				require.Greater(t, i, at, "%s in %v\n%s", words, size, got)
				at = i
			}
		}
	}
	s.Actions = nil // as in a snapshot that an older release stored
	require.NotContains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40}).Lines), "anna: requeue")
}

// The page of a flag that is still as it was set after its time does not say that it goes back now.
func TestPageOfAnOverdueFlag(t *testing.T) {
	t.Parallel()
	s, e := viewstest.Rich(), env(theme.Options{Depth: theme.Mono})
	f, ok := queue.Find(s.Flags, func(f queue.Flag) bool { return f.Overdue })
	require.True(t, ok)
	page := plain(views.FlagPage(f, nil, e, 120).Lines)
	require.Contains(t, page, "should be "+f.RevertsTo.String()+" since "+e.Stamp(*f.RevertsAt)+", "+e.Ago(*f.RevertsAt)+" ago")
	require.NotContains(t, page, "now")
	f.Overdue, *f.RevertsAt = false, e.Now.Add(time.Hour)
	require.Regexp(t, "reverts +to 8 at .*, in 1h 00m", plain(views.FlagPage(f, nil, e, 120).Lines))
}
