package views_test

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// An alert that an endpoint was given up is not about a silence. Its row and
// page name the endpoint, how long it failed and how to send to it again, and
// the Overview does not count it as silent.
func TestFailingEndpointIsTold(t *testing.T) {
	since := viewstest.Now().Add(-2 * time.Hour)
	a := queue.Alert{
		Key: queue.Clean("failing:7:2026-11-20T22:00:00.000000Z"), Kind: "failing", Subject: queue.Clean("failing:7"), Severity: "critical",
		Since: &since, AgeSeconds: 7200, Ratio: 1.02, State: "open",
	}
	e := env(theme.Options{})
	page := ansi.Strip(strings.Join(views.AlertPage(a, nil, nil, e, 100).Lines, "\n"))
	for _, words := range []string{"suspended for", "2h 00m", "qtop endpoint resume 7"} {
		require.Contains(t, page, words)
	}
	require.NotContains(t, page, "silent")
	lines := plainText(views.PlainLines(&queue.Snapshot{Alerts: []queue.Alert{a}}, e))
	require.Contains(t, lines, "FAILING webhook subscription 7, suspended, no owner")
	require.NotContains(t, lines, "SILENT")

	a.State, a.AckedBy = "acked", queue.Clean("ann")
	s := queue.Snapshot{Alerts: []queue.Alert{a}, Suspended: []queue.Suspension{
		{SubscriptionID: 7, Endpoint: queue.Clean("hooks.acme.example"), Reason: queue.Clean("failing"), By: queue.Clean("webhook_worker"), Since: since},
		{SubscriptionID: 8, Endpoint: queue.Clean("other.example"), Reason: queue.Clean("failing"), By: queue.Clean("webhook_worker"), Since: since},
		{SubscriptionID: 9, Endpoint: queue.Clean("pay.example"), Reason: queue.Clean("operator"), By: queue.Clean("ben"), Since: since},
	}}
	got := plain(views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40}).Lines)
	require.Contains(t, got, "✖ SUSPENDED   pay.example by ben · 2 endpoints kept failing")
	require.Equal(t, "critical", views.Troubles(&s)[1].Severity)
	require.Contains(t, views.Troubles(&s)[1].Text.String(), "hooks.acme.example · endpoint kept failing · suspended for 2h 00m · until resumed · owner ann")
	require.Equal(t, "warning", views.Troubles(&s)[0].Severity)
}

// conditions returns alerts that are not about silences, and two silences that
// one of these alerts causes.
func conditions() []queue.Alert {
	since := viewstest.Now().Add(-2 * time.Hour)
	make := func(kind, subject, severity, cause, detail string) queue.Alert {
		return queue.Alert{
			Key: queue.Clean(subject + ":x"), Kind: kind, Subject: queue.Clean(subject), Severity: severity, Since: &since, AgeSeconds: 7200, Ratio: 2,
			State: "open", Cause: queue.Clean(cause), Detail: queue.Clean(detail),
		}
	}
	return []queue.Alert{
		make(queue.AlertNoHost, "no_host", "critical", "", "no host runs config_expiry, webhook_router; ops-1 stopped at 2026-11-20 22:00:00Z: SIGTERM"),
		make(queue.AlertSilence, "config_expiry", "critical", "no_host", "no live host runs it"),
		make(queue.AlertBacklog, "backlog:webhook events", "critical", "no_host", "12 wait"),
		make(queue.AlertUnclaimed, "unclaimed:kg/mail.send", "warning", "", "3 wait; every subscribed executor is stopped: kg"),
		make(queue.AlertBacklog, "backlog:job report in iu", "warning", "", "7 wait"),
		make(queue.AlertBacklog, "backlog:events iu", "critical", "", "9 wait"),
		make(queue.AlertCircuit, "circuit:12", "critical", "", "circuit of hooks.acme.example, 9 probes failed"),
	}
}

// Alerts with the same cause are one row on the first screen and in the pane,
// and count once in the badge of the tab. The page of that row lists the
// alerts that it includes.
func TestAlertsFoldByCause(t *testing.T) {
	e := env(theme.Options{Depth: theme.Mono})
	until := viewstest.Now().Add(-time.Second) // the acknowledgement ended before the snapshot was taken
	s := queue.Snapshot{Alerts: conditions(), Suspended: []queue.Suspension{{
		SubscriptionID: 12, Endpoint: queue.Clean("hooks.acme.example"), Reason: queue.Clean("circuit"), Since: viewstest.Now().Add(-2 * time.Hour), Until: &until,
	}}}
	for _, size := range []views.Size{{W: 80, H: 24}, {W: 120, H: 40}, {W: 200, H: 60}} {
		v := views.Overview(views.OverviewState{Snapshot: &s}, e, size)
		got := plain(v.Lines)
		for _, words := range []string{
			"✖ NO HOST", "no host runs config_expiry", "UNCLAIMED   job mail.send in kg", "✖ BACKLOG     events iu · due for 2h 00m · 9 wait",
			"✖ SUSPENDED   hooks.acme.example · circuit open · for 2h 00m", "1 executor is silent: part of the alert above",
		} {
			require.Contains(t, got, words, size)
		}
		require.NotContains(t, got, "webhook events", "it follows from the missing host")
		require.NotContains(t, got, "report in iu", "one row for the backlogs, about the worst one")
		require.Equal(t, views.Target{Pane: queue.PaneAlerts, ID: "no_host:x", Row: "NO HOST"}, v.Targets[1], "enter opens the cause")
	}
	src := views.Alerts(&s)
	require.Equal(t, 5, src.Len)
	n, loud := views.AlertsBadge(&s)
	require.EqualValues(t, 5, n)
	require.Equal(t, 2, loud)
	page := plain(views.AlertPage(s.Alerts[0], &s, nil, e, 120).Lines)
	for _, words := range []string{"Included alerts (2)", "config_expiry", "webhook events", "ops-1 stopped at 2026-11-20 22:00:00Z: SIGTERM", "qtop worker"} {
		require.Contains(t, page, words)
	}
	lines := plainText(views.PlainLines(&s, e))
	require.Contains(t, lines, "NO HOST no host runs config_expiry, webhook_router; ops-1 stopped at 2026-11-20 22:00:00Z: SIGTERM, critical, no owner")
	require.Contains(t, lines, "UNCLAIMED job mail.send in kg, no live executor can claim its jobs, warning, no owner")
	require.NotContains(t, lines, "SILENT")
}

// If no host is alive but no work waits, there is no alert: the first screen
// then says who stopped the last host, and why.
func TestNoHostSaysHowTheLastOneEnded(t *testing.T) {
	e := env(theme.Options{Depth: theme.Mono})
	at := viewstest.Now().Add(-time.Minute)
	gone := queue.Host{ID: queue.Clean("ops-1"), LastSeenAt: at.Add(-time.Hour)}
	stopped := queue.Host{ID: queue.Clean("ops-2"), LastSeenAt: at, StoppedAt: &at, StopReason: queue.Clean("quit by anna")}
	for _, c := range []struct {
		hosts []queue.Host
		want  string
	}{
		{nil, "nothing is routed or sent  "},
		{[]queue.Host{gone}, "ops-1 was last seen "},
		{[]queue.Host{gone, stopped}, "ops-2 stopped " + e.Clock(at) + ": quit by anna"},
	} {
		got := plain(views.Overview(views.OverviewState{Snapshot: &queue.Snapshot{Hosts: c.hosts}}, e, views.Size{W: 120, H: 40}).Lines)
		require.Contains(t, got, "▲ NO HOST     ")
		require.Contains(t, got, c.want)
	}
}

// If a time has passed since it was set (such as the end of an
// acknowledgement), the screen shows it as over.
func TestTimesThatAreOver(t *testing.T) {
	e := env(theme.Options{Depth: theme.Mono})
	now := viewstest.Now()
	for at, want := range map[time.Time][2]string{now.Add(time.Minute): {"in 1m", "1m left"}, now: {"now", "over"}, now.Add(-time.Hour): {"now", "over"}} {
		require.Equal(t, want, [2]string{e.In(at), e.Left(at)})
	}
	r := queue.Endpoint{ID: 7, Gate: "suspended", Reason: queue.Clean("circuit"), Until: &now, Since: &now}
	page := plain(views.EndpointPage(r, nil, e, 120).Lines)
	require.NotContains(t, page, "for another")
	require.Contains(t, page, "half open")
	require.Equal(t, "half open", views.Webhooks([]queue.Endpoint{r}, nil).Row(0, e).Cells[2].Text)
}

// The page of an endpoint that gets no deliveries has the command that changes it.
func TestEndpointPageHasTheVerb(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	for gate, want := range map[string]string{"inactive": "qtop webhook enable 30 --reason R", "unverified": "qtop webhook verify 30 --reason R"} {
		require.Contains(t, plain(views.EndpointPage(queue.Endpoint{ID: 30, Gate: gate}, nil, e, 120).Lines), gate+": no events are routed to this subscription; "+want)
	}
}

// The line that stands instead of silences is true: it knows silences that are part of another
// alert, and executors that do not live although none is silent.
func TestLineWithoutSilences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want   string
		states []string
		change func(*queue.Snapshot)
	}{
		{"no executor is silent: no executor is registered yet (4, then N)", nil, nil},
		{"no executor is silent: 1 live executor", []string{"idle"}, nil},
		{"no executor is silent: 2 live executors", []string{"idle", "stopped", "working"}, nil},
		{"no executor is silent, and none is live: 2 stopped, 1 stuck", []string{"stopped", "stuck", "stopped"}, nil},
		{"no executor is silent, and none is live: 1 deregistered", []string{"deregistered"}, nil},
		{"2 executors are silent: part of the alert above", []string{"silent", "silent", "idle"}, func(s *queue.Snapshot) {
			for _, id := range []string{"a", "b"} {
				s.Alerts = append(s.Alerts, queue.Alert{Key: queue.Clean(id), Kind: queue.AlertSilence, Subject: queue.Clean(id), Severity: "warning", State: "open", Cause: queue.Clean("no_host")})
			}
		}},
		{"monitoring is off: no silence is reported", []string{"unwatched"}, func(s *queue.Snapshot) { s.MonitoringOff = true }},
		{"no executor is silent", nil, func(s *queue.Snapshot) { s.Missing = map[string]queue.Text{"executors": queue.Clean("no right")} }},
	} {
		s := viewstest.Empty()
		for _, state := range c.states {
			s.Executors = append(s.Executors, queue.Executor{ID: queue.Clean("x"), State: state})
		}
		if c.change != nil {
			c.change(&s)
		}
		require.Contains(t, plain(views.Overview(views.OverviewState{Snapshot: &s}, env(theme.Options{}), views.Size{W: 120, H: 40}).Lines), "· "+c.want+"\n")
	}
}

// The row of an endpoint that a person suspended says until when, who, since when and why, as that of a
// flag that is off; so does its page.
func TestSuspensionByAPersonSaysWhy(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{Depth: theme.Mono})
	s := viewstest.Rich()
	until := viewstest.Now().Add(20 * time.Minute)
	s.Suspended = []queue.Suspension{{
		SubscriptionID: 11, Endpoint: queue.Clean("api.slow.example"), Reason: queue.Clean("operator"), Since: viewstest.Now().Add(-10 * time.Minute), Until: &until,
		By: queue.Clean("ben"), Note: queue.Clean("receiver is being repaired"),
	}}
	v := views.Overview(views.OverviewState{Snapshot: &s}, e, views.Size{W: 120, H: 40})
	require.Contains(t, plain(v.Lines), `SUSPENDED   api.slow.example · back 00:34 · ben 00:04 · "receiver is being repaired"`)
	for _, r := range viewstest.Endpoints() {
		page := plain(views.EndpointPage(r, nil, e, 200).Lines)
		switch r.Reason.String() {
		case "operator":
			require.Contains(t, page, `by ben since 2026-11-21 00:04:07 UTC, "receiver is being repaired", for another 20m`)
		case "circuit":
			require.Contains(t, page, "D closes the circuit now; to send nothing: :endpoint suspend 5")
		}
	}
}

// An open circuit is named by its number and its receiver.
func TestCircuitNamesItsReceiver(t *testing.T) {
	t.Parallel()
	all := conditions()
	require.Equal(t, "circuit 12 hooks.acme.example", views.AlertName(all[len(all)-1]))
}
