package main

// The verbs about jobs: queue lanes, one job, cancel, enqueue, and leases.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func jobCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "job", Short: "Show, cancel or enqueue a job"}
	cmd.AddCommand(revealing(a, "job", "qtop job show 0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11", "One job, live or finished, with its payload", showJob), enqueueCmd(a))
	return cmd
}

// cancelLane adds the flags --kind, --domain and --status, which select the
// jobs of a queue lane.
func cancelLane(a *app, v *verb) {
	var kind, domain, status string
	f := v.cmd.Flags()
	f.StringVar(&kind, "kind", "", "all live jobs of this kind")
	f.StringVar(&domain, "domain", "", "all live jobs of this domain")
	f.StringVar(&status, "status", "", "only jobs in this status: queued, leased, in_progress, retry_waiting")
	a.completeLanes(v.cmd)
	_ = v.cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(queue.LiveJobStatuses(), cobra.ShellCompDirectiveNoFileComp))
	v.more = func(r *queue.Request) error {
		if status != "" && kind == "" && domain == "" && r.Filter == "" {
			return usage("--status alone would select jobs of every kind", "command line", "add --kind, --domain or both")
		}
		r.Filter = strings.TrimSpace(queue.LaneFilter(kind, domain, status) + " " + r.Filter)
		return nil
	}
}

func leaseCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "List stuck leases of jobs, release expired ones"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", example: "qtop lease list", short: "Leases of jobs that expired, or that ran long without a renewal; leases of webhook jobs", show: showLeases}, &viewOptions{}),
	)
	return cmd
}

func enqueueCmd(a *app) *cobra.Command {
	var j enqueue.Job
	var payload string
	priority := 100
	var after time.Duration
	cmd := &cobra.Command{
		Use: "enqueue", Example: `qtop job enqueue --kind kg.reindex --domain kg --executor Agent --payload '{"id": 7}'`, Short: "Put one job into the queue; needs the role event_ingest_writer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range []struct{ name, value string }{{"kind", j.Kind}, {"domain", j.Domain}, {"executor", j.Executor}} {
				if f.value == "" {
					return usage("--"+f.name+" is needed", "command line", "see qtop job enqueue --help")
				}
			}
			if j.Scope != "" && j.IdempotencyKey == "" {
				return usage("--scope has no effect without --key", "command line", "add --key")
			}
			if after < 0 || after > 10*365*24*time.Hour {
				return usage("--after cannot be "+queue.DurationText(after), "--after", "use 0 to 3650d, ten years")
			}
			if j.MaxAttempts < 0 || j.MaxAttempts > 1000 {
				return usage(fmt.Sprintf("--max-attempts cannot be %d", j.MaxAttempts), "--max-attempts", "use 1 to 1000, or leave it out for the default")
			}
			text, where, err := a.payloadOf(cmd.Context(), payload, maxPayload, "store it elsewhere and enqueue a reference")
			if err == nil {
				err = queue.CheckObject(where, text)
			}
			if err != nil {
				return err
			}
			client, err := a.client(cmd.Context(), 0)
			if err != nil {
				return err
			}
			defer client.Close()
			j.Payload, j.Priority, j.Actor = []byte(text), &priority, client.Actor()
			a.unsure.Store("qtop does not know whether the job was enqueued: " +
				queue.Choose(j.IdempotencyKey == "", "see qtop queues --kind "+j.Kind, "enqueue it again with the same --key, which makes no second job"))
			id, existing, err := enqueue.New(client).Put(cmd.Context(), j, after)
			if err != nil {
				return err
			}
			res := queue.Result{Action: "job_enqueue"}
			if existing == "" {
				res.Results = []queue.Outcome{{ID: id, Outcome: "enqueued"}}
			} else {
				res.Results = []queue.Outcome{{ID: id, Outcome: "existing", Why: queue.Clean("its idempotency key belongs to this job, which is " + existing)}}
			}
			return a.outcome(res, queue.Plan{})
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.Kind, "kind", "", "what is to be done")
	f.StringVar(&j.Domain, "domain", "", "event domain")
	f.StringVar(&j.Executor, "executor", "", "executor kind: "+strings.Join(queue.ExecutorKinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("executor", cobra.FixedCompletions(queue.ExecutorKinds(), cobra.ShellCompDirectiveNoFileComp))
	a.completeLanes(cmd)
	f.StringVar(&payload, "payload", "{}", "JSON object of references; - reads standard input")
	wholeFlag(f, &priority, "priority", "0 to 1000, higher goes first")
	durationFlag(f, &after, "after", "due so long from now, such as 10m or 3d")
	f.StringVar(&j.IdempotencyKey, "key", "", "idempotency key: the same work again under it is the same job")
	f.StringVar(&j.Scope, "scope", "", "the role whose key it is, instead of the login")
	wholeFlag(f, &j.MaxAttempts, "max-attempts", "attempts before the job is dead-lettered; 0 = the flag queue.retry.max_attempts_default")
	leaveEmpty(f, "kind", "domain", "executor", "payload")
	return cmd
}

const maxPayload = 16 << 20

// payloadOf returns the text that --payload gives, and its place: - is standard input, of at most so many
// bytes; do says what to do with more.
func (a *app) payloadOf(ctx context.Context, given string, most int64, do string) (text, where string, err error) {
	if given != "-" {
		return given, "--payload", nil
	}
	const stdin = "standard input"
	read, err := awaitInput(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.in, most+1)) })
	switch {
	case errors.Is(err, errInterrupted):
		return "", stdin, a.interrupted()
	case err == nil && int64(len(read)) > most:
		err = usage(fmt.Sprintf("the payload has more than %d bytes", most), stdin, do)
	}
	return string(read), stdin, err
}

func showJob(ctx context.Context, a *app, c *pgclient.Client, id string, o revealOptions) error {
	j, done, err := detailed(ctx, a, c, queue.Query{Kind: queue.ListJob, ID: id}, o, func(j *queue.JobDetail, payload queue.Text) {
		j.Payload, j.PayloadWhyNot, j.Revealed = payload, queue.Text{}, int(queue.RevealFor.Seconds())
	})
	if err != nil || done {
		return err
	}
	since := "due " + views.PlainAge(j.AgeSeconds) + " ago"
	switch {
	case j.FinishedAt != nil:
		since = "finished " + views.PlainAge(j.AgeSeconds) + " ago"
	case j.LeaseID != "":
		since = "picked " + views.PlainAge(j.AgeSeconds) + " ago"
	case j.DueLater():
		since = "due later"
	}
	due := queue.Choose(j.Again(), "next attempt ", "due ") + views.PlainTime(&j.ProcessAfter)
	if j.DueIn != nil && *j.DueIn > 0 {
		due += ", in " + views.PlainAge(*j.DueIn)
	}
	a.printf("%s  %s  %s (%s)  %s\nfor %s, priority %d, attempt %d of %d, %s lost\nenqueued %s by %s, %s, picked %s, finished %s\n",
		j.ID, j.Status, j.Kind, j.Domain, since, j.Executor, j.Priority, j.Attempts, j.MaxAttempts, queue.Plural(j.LostLeases, "lease", "leases"),
		views.PlainTime(&j.EnqueuedAt), cmp.Or(j.Actor.String(), views.NoProducer), due, views.PlainTime(j.PickedAt), views.PlainTime(j.FinishedAt))
	for _, l := range [][2]string{
		{"dead letter", j.DeadLetterID}, {"lease", strings.TrimSpace(j.LeaseOwner.String() + " " + j.LeaseID)}, {"before", j.FromStatus}, {"key", j.Key.String()},
		{"source", j.SourceRef.String()}, {"target", j.TargetRef.String()}, {"payload in", j.PayloadRef.String()},
		{"correlation", j.CorrelationID.String()}, {"code", j.Code.String()}, {"last error", j.LastError.String()},
	} {
		if l[1] != "" {
			fmt.Fprintln(a.out, l[0]+": "+l[1])
		}
	}
	if j.Attempts > 1 && !j.LastError.Empty() {
		fmt.Fprintln(a.out, views.EarlierAttempts)
	}
	if j.LeaseID != "" && j.FinishedAt == nil {
		fmt.Fprintln(a.out, "lease until: "+views.PlainTime(j.LeaseUntil))
	}
	a.payload(j.Payload, j.PayloadWhyNot, j.Revealed)
	return nil
}

func showLeases(ctx context.Context, a *app, c *pgclient.Client, _ viewOptions) error {
	s, err := snapshot(ctx, c)
	if err != nil {
		return err
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListLeases, Limit: queue.MostPage})
	// Without the right to read webhook jobs, only leases of jobs are listed.
	if err != nil && queue.KindOf(err) != queue.KindPermission {
		return err
	}
	var rows [][]string
	var all []any
	for _, l := range s.JobLeases {
		all = append(all, l)
		rows = append(rows, []string{
			queue.Choose(l.Expired, "EXPIRED", "long"), l.ID, l.Owner.String(), fmt.Sprint(l.Live), l.Kind.String(), l.Domain.String(), views.PlainTime(&l.ClaimedAt), views.PlainTime(&l.Until),
		})
	}
	for _, l := range queue.Of[[]queue.WebhookLease](p) {
		state := queue.Choose(l.Expired, "EXPIRED", "sending")
		all = append(all, l)
		rows = append(rows, []string{state, fmt.Sprint(l.JobID), l.Worker.String(), "1", l.Endpoint.String(), "webhook", views.PlainTime(&l.StartedAt), views.PlainTime(&l.Until)})
	}
	a.answer(all, []string{"STATE", "LEASE", "OWNER", "JOBS", "KIND / ENDPOINT", "DOMAIN", "CLAIMED", "UNTIL"}, rows)
	a.moreLeases(s, p)
	return nil
}

// moreLeases says which leases a list of them leaves out: below a table, else on standard error.
func (a *writer) moreLeases(s queue.Snapshot, webhooks queue.Page) {
	say := func(of string, shown, atLeast int64) {
		line := fmt.Sprintf("%d of %s leases on %s", shown, queue.Choose(atLeast > shown, views.PlainBound(atLeast, true), "more"), of)
		a.leftOut(line, "the list has "+line)
	}
	if more, n := s.MoreLeases(); more {
		say("jobs", int64(len(s.JobLeases)), n)
	}
	if webhooks.TotalBound {
		say("webhook jobs", webhooks.Total, webhooks.Total)
	}
}

func queuesCmd(a *app) *cobra.Command {
	var kind, domain string
	cmd := a.viewCmd(view{
		use: "queues", example: "qtop queues --kind kg.reindex", short: "Jobs per kind and domain, oldest wait and why; with --kind or --domain the jobs themselves", list: true, past: true,
		show: func(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
			switch {
			case kind == "" && domain == "" && o.filter == "" && o.cut:
				return usage("--limit has no effect on the list of kinds and domains", "--limit", "leave it out, or list jobs with --kind, --domain or --filter")
			case kind == "" && domain == "" && o.filter == "":
				return snapshotList("queues")(ctx, a, c, o)
			case o.at != "":
				return usage("--at shows the lanes, not single jobs", "command line", "leave out --kind, --domain and --filter")
			}
			q := queue.Query{Kind: queue.ListJobs, Filter: o.filter, Limit: o.limit}
			if kind != "" && domain != "" {
				q.ID = views.LaneID(domain, kind)
			} else {
				q.Filter = strings.TrimSpace(queue.LaneFilter(kind, domain, "") + " " + o.filter)
			}
			p, err := c.List(ctx, q)
			if err != nil {
				return err
			}
			a.ofTotal(a.rows(views.Jobs(queue.Of[[]queue.Job](p), 0), "jobs"), p)
			return nil
		},
	}, &viewOptions{})
	cmd.Flags().StringVar(&kind, "kind", "", "list the live jobs of this kind")
	cmd.Flags().StringVar(&domain, "domain", "", "list the live jobs of this domain")
	a.completeLanes(cmd)
	return cmd
}
