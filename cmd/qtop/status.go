package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// `qtop status`: the state of the queues in a few lines.

type statusJSON struct {
	AsOf          time.Time         `json:"as_of"`
	Health        string            `json:"health"`            // ok, warning, critical
	CloneOf       queue.Text        `json:"clone_of"`          // the original of a copied database; "": no copy
	Unexpected    queue.Text        `json:"unexpected_server"` // why this is not the server of expect_server
	Off           []queue.Flag      `json:"off"`
	Held          []queue.Held      `json:"held"`
	Alerts        []queue.Alert     `json:"alerts"` // one for each cause
	Silent        []queue.Alert     `json:"silent"` // every silence, also one whose cause is in alerts
	Waiting       []queue.Waiting   `json:"waiting"`
	Queues        []queue.Lane      `json:"queues"`
	JobLeases     []queue.JobLease  `json:"job_leases"` // expired, or long without a renewal
	DeadOpen      int64             `json:"dead_open"`
	Dead          []queue.DeadGroup `json:"dead"`
	DeadMore      queue.DeadMore    `json:"dead_more"` // the groups that dead leaves out
	HostsAlive    int64             `json:"hosts_alive"`
	LastHost      string            `json:"last_host"`  // if none is alive: how the last one ended
	NotTicked     []queue.Unticked  `json:"not_ticked"` // tick workers that no one runs, by reason
	MonitoringOff bool              `json:"monitoring_off"`

	// Troubles are the reasons of Health, one for each line of the text that counts for it: ok exactly if there is none.
	Troubles   []views.Trouble    `json:"troubles"`
	Suspended  []queue.Suspension `json:"suspended"`
	Operations []queue.Operation  `json:"operations"` // planned, running and paused

	top []views.Trouble // those of the Overview
}

func statusOf(s queue.Snapshot) statusJSON {
	st := statusJSON{
		AsOf: s.TakenAt, Health: "ok", Off: []queue.Flag{}, Held: s.Held, Alerts: queue.Causes(s.Alerts), Silent: []queue.Alert{}, Waiting: s.Waiting,
		Queues: s.Queues, JobLeases: s.JobLeases, DeadOpen: s.Flow.DeadOpen, Dead: s.DeadGroups, DeadMore: s.DeadMore, HostsAlive: s.Flow.HostsAlive, MonitoringOff: s.MonitoringOff,
		NotTicked: s.Unticked(), top: views.Troubles(&s), Suspended: s.Suspended, Operations: s.Operations,
	}
	st.CloneOf, st.Unexpected = s.Server.CloneOf, s.Server.Unexpected
	for _, f := range s.Flags {
		if f.Off || f.Invalid {
			st.Off = append(st.Off, f)
		}
	}
	for _, al := range s.Alerts {
		if al.Kind == queue.AlertSilence {
			st.Silent = append(st.Silent, al)
		}
	}
	if st.HostsAlive == 0 {
		st.LastHost = views.LastHost(s.Hosts, func(t time.Time) string { return "at " + views.PlainTime(&t) })
	}
	st.Troubles = reasons(st)
	for _, t := range st.Troubles {
		if st.Health != "critical" {
			st.Health = t.Severity
		}
	}
	return st
}

// reasons returns the troubles of the Overview, and what else counts for the health: each has one line in the text too.
func reasons(st statusJSON) []views.Trouble {
	out := []views.Trouble{}
	add := func(kind, severity string, subject queue.Text, text string) {
		out = append(out, views.Trouble{Kind: kind, Severity: severity, Subject: subject, Text: queue.Clean(text)})
	}
	for _, first := range []struct {
		kind string
		text queue.Text
	}{{"CLONE OF", st.CloneOf}, {"UNEXPECTED SERVER", st.Unexpected}} {
		if !first.text.Empty() { // then nothing is claimed or sent
			add(first.kind, "critical", queue.Text{}, strings.TrimLeft(strings.TrimPrefix(first.text.String(), first.kind), ": "))
		}
	}
	if st.MonitoringOff {
		add("MONITORING OFF", "warning", queue.Text{}, monitoringOff)
	}
	out = append(out, st.top...)
	has := func(t views.Target) bool {
		return slices.ContainsFunc(st.top, func(x views.Trouble) bool { return x.Target == t })
	}
	for _, l := range alertLines(st) {
		if !has(l.about) {
			add(l.kind, l.severity, queue.Clean(l.subject), fmt.Sprintf(l.form, l.values...))
		}
	}
	for _, l := range st.JobLeases {
		if l.Expired {
			add("LEASE", "warning", queue.Clean(l.ID), leaseLine(l))
		}
	}
	if st.DeadOpen > 0 {
		add("DEAD", "warning", queue.Text{}, queue.Plural(st.DeadOpen, "open dead letter", "open dead letters"))
	}
	return out
}

func showStatus(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	if err != nil {
		return err
	}
	st := statusOf(s)
	if a.output == "json" {
		a.encode(a.out, st)
	} else {
		a.statusTable(st)
	}
	if st.Health == "critical" || st.Health == o.failOn {
		return &exitError{exitCritical}
	}
	return nil
}

// statusLine is a line of `qtop status` about one row of the Overview. The trouble about that row,
// which says less, is then not printed.
type statusLine struct {
	about  views.Target
	kind   string // the first word of the line
	form   string // the rest
	values []any

	severity, subject string // of a line about an alert
}

// monitoringOff is what the line MONITORING OFF says.
const monitoringOff = "the stale threshold flag is 1000000 s or more: no silence is reported"

func (a *writer) statusTable(st statusJSON) {
	for _, first := range []queue.Text{st.CloneOf, st.Unexpected} {
		if !first.Empty() {
			fmt.Fprintln(a.out, first)
		}
	}
	a.printf("%s as of %s\n", strings.ToUpper(st.Health), views.PlainTime(&st.AsOf))
	if st.MonitoringOff {
		a.printf("MONITORING OFF  %s\n", monitoringOff)
	}
	flags, others := flagLines(st), append(append(heldLines(st), untickedLines(st)...), alertLines(st)...)
	told := map[views.Target]bool{}
	for _, l := range append(slices.Clone(flags), others...) {
		told[l.about] = true
	}
	a.lines(flags)
	for _, t := range st.top {
		if !told[t.Target] {
			a.printf("%-7s %s · %s\n", t.Kind, t.Text, t.Severity)
		}
	}
	a.lines(others)
	for _, w := range st.Waiting {
		if w.Source == "job" { // statusLanes prints more about it
			continue
		}
		a.printf("WAITING %s · %s · oldest %s · %s in, %s out%s%s\n", w.Queue, views.PlainBound(w.Waiting, w.WaitingBound),
			views.PlainOldest(w.OldestAt, w.AgeSeconds), rate(w.InPerSecond), rate(w.OutPerSecond),
			clearing(w.ClearsInSeconds, w.Stuck() && w.OutPerSecond != nil), because(w.Why))
	}
	a.statusLanes(st)
	for _, g := range st.Dead {
		a.printf("DEAD    %s %s · %d open · first %s · last %s\n", g.Code, g.Endpoint, g.Open, views.PlainTime(&g.FirstAt), views.PlainTime(&g.LastAt))
	}
	if more := views.MoreGroups(st.DeadMore); more != "" {
		a.printf("DEAD    %s: qtop dlq-groups lists them\n", more)
	}
	a.printf("%s open, %s alive\n", queue.Plural(st.DeadOpen, "dead letter", "dead letters"), queue.Plural(st.HostsAlive, "worker host", "worker hosts"))
}

func (a *writer) lines(lines []statusLine) {
	for _, l := range lines {
		a.printf("%-7s "+l.form+"\n", append([]any{l.kind}, l.values...)...)
	}
}

// flagLines returns a line for each flag that is off or invalid. Flags past their expiry are left
// to the troubles.
func flagLines(st statusJSON) (out []statusLine) {
	for _, f := range st.Off {
		if f.Overdue {
			continue
		}
		word := queue.Choose(f.Invalid, "INVALID", "OFF")
		back := queue.Choose(f.RevertsAt != nil, " · back at "+views.PlainTime(f.RevertsAt), "")
		out = append(out, statusLine{about: views.Target{Pane: queue.PaneFlags, ID: f.Key.String()}, kind: word, form: "%s = %s · %s %s %q%s",
			values: []any{f.Key, f.Value, f.UpdatedBy, views.PlainTime(&f.UpdatedAt), f.Reason.String(), back}})
	}
	return out
}

// heldLines returns a line for each open transaction that delays its own events.
func heldLines(st statusJSON) (out []statusLine) {
	for _, h := range st.Held {
		out = append(out, statusLine{about: views.Target{Pane: queue.PaneHealth, ID: h.Worker.String()}, kind: "HELD", form: "%s: its own events wait for an open transaction, %s",
			values: []any{h.Worker, views.PlainHolder(&h)}})
	}
	return out
}

// untickedLines returns a line for each reason why tick workers are not run.
func untickedLines(st statusJSON) (out []statusLine) {
	for _, u := range st.NotTicked {
		out = append(out, statusLine{about: views.Target{Pane: queue.PaneScheduler, ID: u.Workers[0].String()}, kind: "NOT TICKED", form: "%s · %s", values: []any{joined(u.Workers), u.Why}})
	}
	return out
}

// alertLines returns a line if no host is alive, and one for each cause: the alert, and who has
// acknowledged it.
func alertLines(st statusJSON) (out []statusLine) {
	if st.HostsAlive == 0 {
		what := "no worker host is alive: nothing ticks, nothing is sent"
		out = append(out, statusLine{about: views.Target{Pane: queue.PaneHost}, kind: "NO HOST", severity: "warning", form: "%s", values: []any{queue.Choose(st.LastHost == "", what, what+" · "+st.LastHost)}})
	}
	for _, al := range st.Alerts {
		owner := "no owner"
		if al.State == "acked" {
			owner = fmt.Sprintf("%s until %s: %s", al.AckedBy, views.PlainTime(al.AckExpiresAt), al.Comment)
		}
		words, known := map[string][2]string{
			queue.AlertBroadcast:  {"BROADCAST", "%s · over the threshold for %s · %s the threshold"},
			queue.AlertFailing:    {"FAILING", "%s · suspended for %s · failed for %s the threshold"},
			queue.AlertSilence:    {"SILENT", "%s · %s · %s cadence"},
			queue.AlertNoHost:     {"NO HOST", "%s · for %s · %s the threshold"},
			queue.AlertUnclaimed:  {"UNCLAIMED", "%s · due for %s · %s the threshold"},
			queue.AlertBacklog:    {"BACKLOG", "%s · due for %s · %s the threshold"},
			queue.AlertCircuit:    {"CIRCUIT", "%s · open for %s · %s the threshold"},
			queue.AlertQuarantine: {"SET ASIDE", "%s · for %s after %s"},
		}[al.Kind]
		if !known { // an alert kind of a newer release
			words = [2]string{"ALERT", "%s · for %s · %s the threshold"}
		}
		about, name := views.Target{Pane: queue.PaneAlerts, ID: al.Key.String()}, views.AlertName(al)
		detail := al.Detail
		if al.Kind == queue.AlertCircuit || al.Kind == queue.AlertFailing { // the line about the suspension says less
			_, id, _ := strings.Cut(al.Subject.String(), ":")
			about = views.Target{Pane: queue.PaneWebhooks, ID: id}
		}
		if al.Kind == queue.AlertCircuit {
			name = strings.TrimPrefix(name, "circuit ")
			if _, probes, ok := strings.Cut(detail.String(), ", "); ok {
				detail = queue.Clean(probes + nextProbe(st.Suspended, about.ID))
			}
		}
		times := queue.Choose(al.Kind == queue.AlertQuarantine, queue.Plural(int64(al.Ratio), "attempt", "attempts"), views.PlainRatio(al.Ratio))
		out = append(out, statusLine{
			about: about, kind: words[0], form: words[1] + " · %s%s · %s",
			values:   []any{name, views.PlainAge(al.AgeSeconds), times, al.Severity, because(detail), owner},
			severity: al.Severity, subject: views.AlertName(al),
		})
	}
	return out
}

// nextProbe says when the next probe of a subscription with an open circuit may be sent.
func nextProbe(suspended []queue.Suspension, id string) string {
	x, ok := queue.Find(suspended, func(x queue.Suspension) bool { return strconv.FormatInt(x.SubscriptionID, 10) == id })
	if !ok || x.Until == nil {
		return ""
	}
	return ", the next may be sent at " + views.PlainTime(x.Until)
}

// statusLanes prints the job lanes that need attention and the stuck leases.
func (a *writer) statusLanes(st statusJSON) {
	for _, l := range st.Queues {
		if l.Waiting()+l.Leased+l.InProgress == 0 {
			continue
		}
		a.printf("JOBS    %s (%s) · %d queued, %d scheduled, %d retrying, %d leased, %d running · oldest %s · %.1f/s in, %.1f/s out%s%s\n", l.Kind,
			l.Domain, l.QueuedDue(), l.Scheduled, l.RetryWaiting, l.Leased, l.InProgress, views.PlainWaited(l), l.InPerSecond, l.OutPerSecond,
			clearing(l.ClearsInSeconds, l.Stuck()), because(l.Why))
	}
	for _, l := range st.JobLeases {
		if l.Expired {
			a.printf("LEASE   %s\n", leaseLine(l))
		}
	}
}

// leaseLine describes an expired lease.
func leaseLine(l queue.JobLease) string {
	return fmt.Sprintf("%s of %s expired at %s · %s · %s (%s)", l.ID, l.Owner, views.PlainTime(&l.Until), queue.Plural(l.Live, "job", "jobs"), l.Kind, l.Domain)
}

// rate returns a rate per second; a dash if it is not known.
func rate(perSecond *float64) string {
	if perSecond == nil {
		return "-/s"
	}
	return fmt.Sprintf("%.1f/s", *perSecond)
}

func because(why queue.Text) string { return queue.Choose(why.Empty(), "", " · "+why.String()) }

// clearing says when the waiting work will be done; nothing if it is too new to say.
func clearing(seconds *int64, stuck bool) string {
	switch {
	case seconds != nil:
		return " · clears in " + views.PlainAge(*seconds)
	case stuck:
		return " · never at this rate"
	}
	return ""
}

func statusCmd(a *app) *cobra.Command {
	o := &viewOptions{}
	cmd := a.viewCmd(view{use: "status", example: "qtop status --fail-on warning", short: "Say how the queue is; exits 3 when something is critical", past: true, show: showStatus}, o)
	cmd.Flags().StringVar(&o.failOn, "fail-on", "critical", "exit with 3 when the health is this or worse: critical or warning")
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(failOn(), cobra.ShellCompDirectiveNoFileComp))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("fail-on") && cmd.Flags().Changed("watch") {
			return usage("--fail-on has no effect with --watch, which ends with 0", "--fail-on", "leave one of them out")
		}
		if !slices.Contains(failOn(), o.failOn) {
			return usage(fmt.Sprintf("--fail-on cannot be %q", o.failOn), "--fail-on", "use "+strings.Join(failOn(), " or "))
		}
		return nil
	}
	return cmd
}

// failOn returns the states of the health with which `qtop status` can exit with 3.
func failOn() []string { return []string{"critical", "warning"} }
