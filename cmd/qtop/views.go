package main

// This file is the verbs that look: they print and end, or print again with
// --watch.

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// view is a verb that prints one thing.
type view struct {
	use, short string
	list       bool // takes --filter and --limit
	past       bool // all it shows is in the picture: takes --at
	show       func(context.Context, *app, *pgclient.Client, viewOptions) error
}

type viewOptions struct {
	filter       string
	limit        int
	kind, domain string
	at           string
	reveal       revealOptions // of the verbs that show a payload
	args         []string
}

func (a *app) viewCmds() []*cobra.Command {
	var cmds []*cobra.Command
	for _, v := range []view{
		{use: "status", short: "Say how the queue is; exits 3 when something is critical", past: true, show: showStatus},
		{use: "health", short: "Every source and row of v_queue_health", past: true, show: showHealth},
		{use: "alerts", short: "Silences and broadcast shares over their line, and who has them", past: true, show: showAlerts},
		{use: "executors", short: "Executors with their state", past: true, show: showExecutors},
		{use: "hosts", short: "Worker hosts with their loops", past: true, show: showHosts},
		{use: "dlq [ID]", short: "Open dead letters, or one with its attempts and lineage", list: true, show: showDead},
		{use: "dlq-groups", short: "Open dead letters by code and endpoint", past: true, show: showGroups},
		{use: "flags", short: "Flags with who set them and when they come back", past: true, show: showFlags},
		{use: "webhooks [ID]", short: "Endpoints with gate, success, pace and what waits, or one with its attempts and retries", list: true, show: showWebhooks},
		{use: "notifications", short: "What is staged, as what it will be told, what failed, what the worker did", list: true, show: showNotifications},
		{use: "why [QUEUE]", short: "Why a queue waits: every link that could block it, with its cure; without a name, all that wait", show: showWhy},
		{use: "audit", short: "Who did what, why, before and after", list: true, show: showAudit},
	} {
		cmd := a.viewCmd(v, &viewOptions{})
		if strings.HasPrefix(v.use, "dlq ") {
			cmd.AddCommand(a.revealing(view{use: "show ID", short: "One dead letter with its attempts and lineage", show: showDead}))
		}
		if v.use == "notifications" {
			cmd.AddCommand(a.requeueNotificationsCmd())
		}
		cmds = append(cmds, cmd)
	}
	return append(cmds, a.queuesCmd(), a.schedulerCmd(), a.subscriptionsCmd())
}

func (a *app) viewCmd(v view, o *viewOptions) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{Use: v.use, Short: v.short, Args: cobra.NoArgs}
	switch {
	case strings.Contains(v.use, "[ID]"), strings.Contains(v.use, "[QUEUE]"):
		cmd.Args = cobra.MaximumNArgs(1)
	case strings.Contains(v.use, "ID"):
		cmd.Args = cobra.ExactArgs(1)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args = args
		if watch && o.reveal.on {
			return usage("--reveal shows a payload once", "command line", "leave out --watch")
		}
		if v.list && (o.limit < 1 || o.limit > queue.MostPage) {
			return usage(fmt.Sprintf("--limit is %d", o.limit), "--limit", fmt.Sprintf("use 1 to %d; qtop export writes all", queue.MostPage))
		}
		if watch && o.at != "" {
			return usage("what --at shows does not change", "command line", "leave out --watch")
		}
		client, err := a.client(cmd.Context(), 0)
		if err != nil {
			return err
		}
		defer client.Close()
		for {
			err := v.show(cmd.Context(), a, client, *o)
			if !watch {
				return err
			}
			if err != nil {
				a.exit(err)
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(a.settings.Refresh):
			}
		}
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print again at each --refresh, until a signal")
	if v.past {
		cmd.Flags().StringVar(&o.at, "at", "", "as it was then, of the last 24 hours: 02:14, 2026-11-22T02:14:00Z, 45m")
	}
	if v.list {
		cmd.Flags().StringVar(&o.filter, "filter", "", "filter, such as 'code:HTTP_5* age>2h'")
		cmd.Flags().IntVar(&o.limit, "limit", 200, "rows at most")
	}
	return cmd
}

// snapshot reads the picture; one that lacks everything is an error here.
func snapshot(ctx context.Context, c *pgclient.Client) (queue.Snapshot, error) {
	s, err := c.Snapshot(ctx)
	if lack := s.Missing["all"].String(); err == nil && lack != "" {
		kind := queue.KindFailed
		if strings.Contains(lack, "needs the role") {
			kind = queue.KindPermission
		}
		return s, &queue.Error{Kind: kind, What: queue.Clean(lack)}
	}
	return s, err
}

// snapshot reads the picture, or the one that was kept at --at.
func (o viewOptions) snapshot(ctx context.Context, c *pgclient.Client) (queue.Snapshot, error) {
	if o.at == "" {
		return snapshot(ctx, c)
	}
	at, err := when("--at", o.at, time.Now())
	if err != nil {
		return queue.Snapshot{}, err
	}
	s, first, err := c.SnapshotAt(ctx, at, 0)
	if err != nil || !s.TakenAt.IsZero() {
		return s, err
	}
	do := "the tick metrics_sampler keeps one each minute"
	if !first.IsZero() {
		do = "the oldest is of " + stamp(&first)
	}
	return s, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("no picture is kept of " + stamp(&at)), Where: queue.Clean("--at"), Do: queue.Clean(do)}
}

type statusJSON struct {
	AsOf          time.Time         `json:"as_of"`
	Health        string            `json:"health"`            // ok, warning, critical
	CloneOf       queue.Text        `json:"clone_of"`          // what this database is a copy of; "" = it is none
	Unexpected    queue.Text        `json:"unexpected_server"` // why this is not the server of expect_server
	Off           []queue.Flag      `json:"off"`
	Held          []queue.Held      `json:"held"`
	Silent        []queue.Alert     `json:"silent"`
	Waiting       []queue.Waiting   `json:"waiting"`
	Queues        []queue.Lane      `json:"queues"`
	JobLeases     []queue.JobLease  `json:"job_leases"` // expired, or long without a renewal
	DeadOpen      int64             `json:"dead_open"`
	Dead          []queue.DeadGroup `json:"dead"`
	HostsAlive    int64             `json:"hosts_alive"`
	MonitoringOff bool              `json:"monitoring_off"`
}

func statusOf(s queue.Snapshot) statusJSON {
	st := statusJSON{
		AsOf: s.TakenAt, Health: "ok", Off: []queue.Flag{}, Held: s.Held, Silent: s.Alerts, Waiting: s.Waiting,
		Queues: s.Queues, JobLeases: s.JobLeases, DeadOpen: s.Flow.DeadOpen, Dead: s.DeadGroups, HostsAlive: s.Flow.HostsAlive, MonitoringOff: s.MonitoringOff,
	}
	st.CloneOf, st.Unexpected = s.Server.CloneOf, s.Server.Unexpected
	if !st.CloneOf.Empty() || !st.Unexpected.Empty() {
		st.Health = "critical" // nothing is claimed or sent
	}
	warn := s.MonitoringOff || s.Flow.DeadOpen > 0 || s.Flow.HostsAlive == 0 || len(s.Held) > 0
	for _, f := range s.Flags {
		if f.Off || f.Invalid {
			st.Off = append(st.Off, f)
			warn = true
		}
	}
	for _, l := range s.JobLeases {
		warn = warn || l.Expired
	}
	for _, al := range s.Alerts {
		warn = true
		if al.Severity == "critical" {
			st.Health = "critical"
		}
	}
	if warn && st.Health == "ok" {
		st.Health = "warning"
	}
	return st
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
	if st.Health == "critical" {
		return &exitError{exitCritical}
	}
	return nil
}

func (a *app) statusTable(st statusJSON) {
	for _, first := range []queue.Text{st.CloneOf, st.Unexpected} {
		if !first.Empty() {
			fmt.Fprintln(a.out, first)
		}
	}
	a.printf("%s as of %s\n", strings.ToUpper(st.Health), stamp(&st.AsOf))
	if st.MonitoringOff {
		fmt.Fprintln(a.out, "MONITORING OFF  the stale threshold flag is 1000000 s or more: no silence is reported")
	}
	for _, f := range st.Off {
		word := "OFF"
		if f.Invalid {
			word = "INVALID"
		}
		back := ""
		if f.RevertsAt != nil {
			back = " · back at " + stamp(f.RevertsAt)
		}
		a.printf("%-8s%s = %s · %s %s %q%s\n", word, f.Key, f.Value, f.UpdatedBy, stamp(&f.UpdatedAt), f.Reason.String(), back)
	}
	for _, h := range st.Held {
		a.printf("HELD    %s (%s): %d events wait for an open transaction since %s, %s\n", h.Worker, h.Domain, h.Rows, age(h.AgeSeconds), heldBy(&h))
	}
	if st.HostsAlive == 0 {
		fmt.Fprintln(a.out, "NO HOST no worker host is alive: nothing ticks, nothing is sent")
	}
	for _, al := range st.Silent {
		owner := "nobody has it"
		if al.State == "acked" {
			owner = fmt.Sprintf("%s until %s: %s", al.AckedBy, stamp(al.AckExpiresAt), al.Comment)
		}
		if al.Kind == "broadcast" {
			a.printf("BROADCAST %s · over the line for %s · %s× the line · %s · %s\n", al.Subject, age(al.AgeSeconds), strconv.FormatFloat(al.Ratio, 'f', 1, 64), al.Severity, owner)
			continue
		}
		a.printf("SILENT  %s · %s · %s× cadence · %s · %s\n", al.Subject, age(al.AgeSeconds), strconv.FormatFloat(al.Ratio, 'f', 1, 64), al.Severity, owner)
	}
	for _, w := range st.Waiting {
		if w.Source == "job" { // its lane says more
			continue
		}
		clears := "never at this rate"
		if w.ClearsInSeconds != nil {
			clears = "clears in " + age(*w.ClearsInSeconds)
		}
		why := ""
		if !w.Why.Empty() {
			why = " · " + w.Why.String()
		}
		a.printf("WAITING %s · %s%d · oldest %s · %.1f/s in, %.1f/s out · %s%s\n", w.Queue, bound(w.WaitingBound), w.Waiting,
			age(w.AgeSeconds), w.InPerSecond, w.OutPerSecond, clears, why)
	}
	a.statusLanes(st)
	for _, g := range st.Dead {
		a.printf("DEAD    %s %s · %d open · first %s · last %s\n", g.Code, g.Endpoint, g.Open, stamp(&g.FirstAt), stamp(&g.LastAt))
	}
	a.printf("%d dead letters open, %d worker hosts alive\n", st.DeadOpen, st.HostsAlive)
}

func bound(b bool) string {
	if b {
		return "≥"
	}
	return ""
}

func showHealth(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, h := range s.Health {
		rows = append(rows, []string{
			h.StatusHint.String(), h.Source.String(), h.Subject.String(), h.Domain.String(), agePtr(h.AgeSeconds), stamp(h.LastSeenAt),
			num(h.EventsSeen), num(h.AttemptsWritten), num(h.DeadLettered), heldBy(s.Holder(h)),
		})
	}
	return a.answer(err, s.Health, []string{"HINT", "SOURCE", "SUBJECT", "DOMAIN", "AGE", "LAST SEEN", "EVENTS", "ATTEMPTS", "DEAD", "HELD BY"}, rows)
}

// heldBy names the transaction that holds a cursor.
func heldBy(h *queue.Held) string {
	if h == nil {
		return ""
	}
	open := ""
	if h.TransactionSeconds != nil {
		open = ", open " + age(*h.TransactionSeconds)
	}
	pid := "" // a prepared transaction has none
	if h.Pid != nil || h.Program.Empty() {
		pid = "pid " + num(h.Pid)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s%s", pid, h.Program, h.User, open))
}

// answer prints rows unless reading them failed; an empty list is [] in JSON.
func (a *app) answer(err error, v any, heads []string, rows [][]string) error {
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		v = []any{}
	}
	a.print(v, heads, rows)
	return nil
}

func showAlerts(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, al := range s.Alerts {
		rows = append(rows, []string{
			al.Severity, al.State, al.Subject.String(), age(al.AgeSeconds), strconv.FormatFloat(al.Ratio, 'f', 1, 64) + "×", al.AckedBy.String(),
			stamp(al.AckExpiresAt), al.Comment.String(), al.Key.String(),
		})
	}
	return a.answer(err, s.Alerts, []string{"SEVERITY", "STATE", "SUBJECT", "FOR", "RATIO", "OWNER", "UNTIL", "COMMENT", "KEY"}, rows)
}

func showExecutors(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, e := range s.Executors {
		var domains []string
		for _, d := range e.Domains {
			domains = append(domains, d.String())
		}
		rows = append(rows, []string{
			e.State, e.ID.String(), e.Kind.String(), strings.Join(domains, ","), age(e.AgeSeconds), age(e.CadenceSeconds),
			age(e.ThresholdSeconds), num(e.InFlight), num(e.DoneTotal), e.AckedBy.String(),
		})
	}
	return a.answer(err, s.Executors, []string{"STATE", "EXECUTOR", "KIND", "DOMAINS", "LAST BEAT", "CADENCE", "STALE AFTER", "IN FLIGHT", "DONE", "OWNER"}, rows)
}

func showHosts(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, h := range s.Hosts {
		state := "silent"
		switch {
		case h.StoppedAt != nil:
			state = "stopped"
		case h.Alive:
			state = "alive"
		}
		var loops []string
		for _, l := range h.Loops {
			loops = append(loops, l.String())
		}
		rows = append(rows, []string{state, h.ID.String(), age(h.AgeSeconds), strconv.FormatInt(h.InFlight, 10), h.Version.String(), strings.Join(loops, ",")})
	}
	return a.answer(err, s.Hosts, []string{"STATE", "HOST", "SEEN", "IN FLIGHT", "VERSION", "LOOPS"}, rows)
}

func showGroups(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, g := range s.DeadGroups {
		rows = append(rows, []string{
			g.Code.String(), g.Endpoint.String(), numberOr(g.SubscriptionID), strconv.FormatInt(g.Open, 10),
			stamp(&g.FirstAt), stamp(&g.LastAt), g.Source, g.Domain.String(),
		})
	}
	return a.answer(err, s.DeadGroups, []string{"CODE", "ENDPOINT / KIND", "SUBSCRIPTION", "OPEN", "FIRST", "LAST", "SOURCE", "DOMAIN"}, rows)
}

func showFlags(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, f := range s.Flags {
		state := ""
		switch {
		case f.Invalid:
			state = "INVALID"
		case f.Off:
			state = "OFF"
		}
		rows = append(rows, []string{f.Key.String(), f.Value.String(), state, f.UpdatedBy.String(), stamp(&f.UpdatedAt), f.Reason.String(), stamp(f.RevertsAt)})
	}
	return a.answer(err, s.Flags, []string{"FLAG", "VALUE", "STATE", "BY", "AT", "REASON", "BACK AT"}, rows)
}

func showAudit(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListAudit, Filter: o.filter, Limit: o.limit})
	entries := queue.Of[[]queue.AuditEntry](p)
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{
			strconv.FormatInt(e.ID, 10), stamp(&e.At), e.Actor.String(), e.DBRole.String(), e.Action.String(), e.Target.String(), e.Filter.String(), e.Outcome.String(),
			e.Reason.String(), queue.Clean(string(e.Before)).String(), queue.Clean(string(e.After)).String(),
		})
	}
	return a.answer(err, entries, []string{"ID", "AT", "ACTOR", "ROLE", "ACTION", "TARGET", "FILTER", "OUTCOME", "REASON", "BEFORE", "AFTER"}, rows)
}
