package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// Every trouble at the top of the Overview is also in `qtop status`, with its
// kind and subject, and counts for its exit code.
func TestStatusHasEveryTroubleOfTheOverview(t *testing.T) {
	s := viewstest.Rich()
	s.Flags = append(s.Flags,
		queue.Flag{Key: queue.Clean("a.off"), Value: queue.Clean("false"), Off: true},
		queue.Flag{Key: queue.Clean("a.invalid"), Value: queue.Clean("x"), Invalid: true},
		queue.Flag{Key: queue.Clean("a.late"), Value: queue.Clean("false"), Off: true, Overdue: true, RevertsAt: &s.TakenAt, RevertsTo: queue.Clean("true")})
	for _, kind := range []string{queue.AlertUnclaimed, queue.AlertBacklog, queue.AlertQuarantine, queue.AlertBroadcast, queue.AlertNoHost} {
		subject := map[string]string{
			queue.AlertUnclaimed: "unclaimed:kg/mail", queue.AlertBacklog: "backlog:webhook hooks.acme", queue.AlertQuarantine: "quarantine:saga_orchestrator/7",
			queue.AlertBroadcast: "broadcast", queue.AlertNoHost: "no_host",
		}[kind]
		s.Alerts = append(s.Alerts, queue.Alert{Key: queue.Clean(kind), Kind: kind, Subject: queue.Clean(subject), Severity: "warning", State: "open"})
	}
	s.Ticks = append(s.Ticks, queue.TickWorker{Name: queue.Clean("config_expiry"), Why: queue.Clean("its mode is pg_cron and it has no job")})
	s.Flags = append(s.Flags, queue.Flag{Key: queue.Clean("a.both"), Value: queue.Clean("y"), Invalid: true, Overdue: true, RevertsAt: &s.TakenAt})
	var out strings.Builder
	a := &writer{out: &out, output: "table"}
	a.statusTable(statusOf(s))
	kinds, of, lines := map[string]bool{}, map[string]int{}, map[string]int{}
	for _, x := range views.Troubles(&s) {
		kinds[x.Kind] = true
		of[x.Kind]++
		found := false
		for line := range strings.Lines(out.String()) {
			found = found || strings.HasPrefix(line, x.Kind+" ") || strings.HasPrefix(line, x.Kind+"\t")
		}
		require.True(t, found, "%s %s is in no line of\n%s", x.Kind, x.Text, out.String())
	}
	for _, kind := range []string{"OFF", "INVALID", "OVERDUE", "BRAKE", "HELD", "SUSPENDED", "NO HOST", "UNCLAIMED", "BACKLOG", "NOT TICKED", "SET ASIDE", "BROADCAST"} {
		require.True(t, kinds[kind], "the snapshot of this test has %s", kind)
	}
	for kind := range kinds {
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, kind+" ") {
				lines[kind]++
			}
		}
	}
	require.Equal(t, of, lines, "each trouble has one line\n%s", out.String())
	for _, want := range []string{"BRAKE   #12 ", "SUSPENDED hooks.gone.example · endpoint answered 410 · until resumed · since 2026-"} {
		require.Contains(t, out.String(), want)
	}

	// The JSON has a trouble for each line that counts for the health, silences too, and none otherwise.
	s.MonitoringOff, s.Server.CloneOf, s.Server.Unexpected = true, queue.Clean("CLONE OF prod: run qtop adopt"), queue.Clean("UNEXPECTED SERVER: this is a, not b")
	st, all := statusOf(s), map[string]int{}
	for _, x := range st.Troubles {
		all[x.Kind+" "+x.Severity]++
		require.False(t, x.Text.Empty(), x.Kind)
		require.False(t, strings.HasPrefix(x.Text.String(), x.Kind), "%s is said twice: %s", x.Kind, x.Text)
	}
	for _, al := range st.Alerts {
		if al.Kind == queue.AlertSilence {
			require.True(t, slices.ContainsFunc(st.Troubles, func(x views.Trouble) bool {
				return x.Kind == "SILENT" && x.Subject == al.Subject && x.Severity == al.Severity
			}), al.Subject)
		}
	}
	for _, want := range []string{"SILENT critical", "DEAD warning", "LEASE warning", "MONITORING OFF warning", "CLONE OF critical", "NO HOST warning", "BRAKE critical", "OFF warning"} {
		require.Positive(t, all[want], "%s of %v", want, all)
	}
	for key, of := range st.Troubles {
		for _, other := range st.Troubles[key+1:] {
			require.False(t, of.Kind == other.Kind && of.Text == other.Text, "%s %s is there twice", of.Kind, of.Text)
		}
	}
	require.Equal(t, "critical", st.Health)

	// An operation that the brake has paused makes the state critical, a
	// suspension makes it a warning, as on the screen.
	calm := viewstest.Empty()
	calm.Hosts, calm.Flow.HostsAlive = []queue.Host{{Alive: true}}, 1
	require.Equal(t, "ok", statusOf(calm).Health)
	require.Empty(t, statusOf(calm).Troubles)
	calm.Suspended = s.Suspended
	require.Equal(t, "warning", statusOf(calm).Health)
	calm.Operations = []queue.Operation{s.Operations[2]}
	require.Equal(t, "critical", statusOf(calm).Health)
}

// A rate that is not counted is a dash, not 0, and says nothing about when the work is done.
func TestStatusOfWorkWithoutARate(t *testing.T) {
	s, in := viewstest.Empty(), 2.0
	w := queue.Waiting{Queue: queue.Clean("events iu"), Source: "event", OldestAt: &s.TakenAt, AgeSeconds: 90, Waiting: 3, InPerSecond: &in}
	s.Waiting = []queue.Waiting{w, w, w}
	s.Waiting[1].Why = queue.Clean("no live host runs iu_outbound_default")
	s.Waiting[2].OutPerSecond = new(float64)
	var out strings.Builder
	(&writer{out: &out, output: "table"}).statusTable(statusOf(s))
	require.Regexp(t, `(?m)^WAITING events iu · 3 · oldest .* · 2\.0/s in, -/s out$`, out.String())
	require.Regexp(t, `(?m)^WAITING .*-/s out · no live host runs iu_outbound_default$`, out.String())
	require.Regexp(t, `(?m)^WAITING .* 0\.0/s out · never at this rate$`, out.String())
}
