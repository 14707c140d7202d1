package main

// This file is the verbs about jobs: lanes, one job, cancel, enqueue, leases and
// what executors may claim.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/queue"
)

func (a *app) queuesCmd() *cobra.Command {
	o := &viewOptions{}
	cmd := a.viewCmd(view{use: "queues", short: "Jobs per kind and domain, oldest wait and why; with --kind or --domain the jobs themselves", list: true, past: true, show: showQueues}, o)
	cmd.Flags().StringVar(&o.kind, "kind", "", "list the live jobs of this kind")
	cmd.Flags().StringVar(&o.domain, "domain", "", "list the live jobs of this domain")
	return cmd
}

func (a *app) jobCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "job", Short: "Show, cancel or enqueue a job"}
	var kind, domain, status string
	cancel := a.act(actVerb{
		use: "cancel [ID...]", action: queue.ActJobCancel, args: cobra.ArbitraryArgs, filter: true, list: "queues --kind K",
		into: func(r *queue.Request, args []string) {
			r.Targets = args
			r.Filter = strings.TrimSpace(queue.LaneFilter(kind, domain, status) + " " + r.Filter)
		},
	})
	cancel.Flags().StringVar(&kind, "kind", "", "all live jobs of this kind")
	cancel.Flags().StringVar(&domain, "domain", "", "all live jobs of this domain")
	cancel.Flags().StringVar(&status, "status", "", "of those, the ones that stand there: queued, leased, in_progress, retry_waiting")
	run := cancel.RunE
	cancel.RunE = func(cmd *cobra.Command, args []string) error {
		if status != "" && kind == "" && domain == "" && !cmd.Flags().Changed("filter") {
			return usage("--status alone selects jobs of every kind", "command line", "add --kind and --domain")
		}
		return run(cmd, args)
	}
	cmd.AddCommand(a.revealing(view{use: "show ID", short: "One job, live or finished, with its payload", show: showJob}), cancel, a.enqueueCmd())
	return cmd
}

func (a *app) leaseCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "lease", Short: "List stuck leases of jobs, release expired ones"}
	cmd.AddCommand(
		a.viewCmd(view{use: "list", short: "Leases of jobs that expired, or that ran long without a renewal; leases of webhook jobs", show: showLeases}, &viewOptions{}),
		a.act(actVerb{use: "release TOKEN|WEBHOOK-JOB...", action: queue.ActLeaseRelease, args: cobra.MinimumNArgs(1), into: targets}),
	)
	return cmd
}

func (a *app) enqueueCmd() *cobra.Command {
	var j enqueue.Job
	var payload string
	var priority int
	var after time.Duration
	cmd := &cobra.Command{
		Use: "enqueue", Short: "Put one job into the queue; needs the role event_ingest_writer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range []struct{ name, value string }{{"kind", j.Kind}, {"domain", j.Domain}, {"executor", j.Executor}} {
				if f.value == "" {
					return usage("--"+f.name+" is needed", "command line", "see qtop job enqueue --help")
				}
			}
			if after < 0 || after > 10*365*24*time.Hour {
				return usage(fmt.Sprintf("--after is %s", after), "--after", "use 0 to 87600h, ten years")
			}
			if j.MaxAttempts < 0 || j.MaxAttempts > 1000 {
				return usage(fmt.Sprintf("--max-attempts is %d", j.MaxAttempts), "--max-attempts", "use 1 to 1000, or leave it out for the default")
			}
			if payload == "-" {
				text, err := awaitInput(cmd.Context(), func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.in, maxPayload+1)) })
				if errors.Is(err, errInterrupted) {
					return a.interrupted()
				}
				if err != nil {
					return err
				}
				if len(text) > maxPayload {
					return usage("the payload is larger than 16 MiB", "standard input", "store it elsewhere and enqueue a reference")
				}
				payload = string(text)
			}
			client, err := a.client(cmd.Context(), 0)
			if err != nil {
				return err
			}
			defer client.Close()
			j.Payload, j.Priority, j.Actor = []byte(payload), &priority, client.Actor()
			id, created, refused, err := enqueue.New(client).Put(cmd.Context(), j, after)
			if err != nil {
				return err
			}
			res := queue.Result{Action: "job_enqueue", Refused: refused}
			switch {
			case refused != "":
			case created:
				res.Results = []queue.Outcome{{ID: id, Outcome: "enqueued"}}
			default:
				res.Results = []queue.Outcome{{ID: id, Outcome: "existing", Why: queue.Clean("the active job of this kind with that key")}}
			}
			return a.outcome(res, queue.Plan{})
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.Kind, "kind", "", "what is to be done")
	f.StringVar(&j.Domain, "domain", "", "event domain")
	f.StringVar(&j.Executor, "executor", "", "executor kind: "+strings.Join(queue.ExecutorKinds(), ", "))
	f.StringVar(&payload, "payload", "{}", "JSON object of references; - reads standard input")
	f.IntVar(&priority, "priority", 100, "higher goes first")
	f.DurationVar(&after, "after", 0, "due so long from now, such as 10m")
	f.StringVar(&j.IdempotencyKey, "key", "", "idempotency key: the same key twice while active is one job")
	f.IntVar(&j.MaxAttempts, "max-attempts", 0, "tries before it is dead; 0 = the flag queue.retry.max_attempts_default")
	return cmd
}

const maxPayload = 16 << 20

func showQueues(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	if o.kind != "" || o.domain != "" || o.filter != "" {
		if o.at != "" {
			return usage("--at shows the lanes, not single jobs", "command line", "leave out --kind, --domain and --filter")
		}
		return showJobs(ctx, a, c, o)
	}
	s, err := o.snapshot(ctx, c)
	var rows [][]string
	for _, l := range s.Queues {
		rows = append(rows, []string{
			l.Kind.String(), l.Domain.String(), count(l.Queued - l.Scheduled), count(l.Scheduled), count(l.RetryWaiting), count(l.Leased),
			count(l.InProgress), waited(l), rate(l.InPerSecond), rate(l.OutPerSecond), clears(l), count(l.Succeeded), count(l.Failed), count(l.Dead),
			count(l.Cancelled), l.Why.String(),
		})
	}
	return a.answer(err, s.Queues, []string{
		"KIND", "DOMAIN", "QUEUED", "SCHEDULED", "RETRYING", "LEASED", "RUNNING", "OLDEST", "IN/S", "OUT/S", "CLEARS IN", "DONE 1H", "FAILED 1H",
		"DEAD 1H", "CANCELLED 1H", "WHY",
	}, rows)
}

func showJobs(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	q := queue.Query{Kind: queue.ListJobs, Filter: o.filter, Limit: o.limit}
	if o.kind != "" && o.domain != "" {
		q.ID = o.domain + "/" + o.kind
	} else {
		q.Filter = strings.TrimSpace(queue.LaneFilter(o.kind, o.domain, "") + " " + o.filter)
	}
	p, err := c.List(ctx, q)
	list := queue.Of[[]queue.Job](p)
	var rows [][]string
	for _, j := range list {
		rows = append(rows, []string{
			j.ID, j.Kind.String(), j.Domain.String(), j.Status, age(j.AgeSeconds), count(j.Priority), j.Executor.String(),
			fmt.Sprintf("%d/%d", j.Attempts, j.MaxAttempts), stamp(&j.ProcessAfter), j.LeaseOwner.String(), j.Code.String(),
		})
	}
	heads := []string{"ID", "KIND", "DOMAIN", "STATUS", "AGE", "PRIORITY", "EXECUTOR", "TRIES", "DUE", "OWNER", "CODE"}
	if err := a.answer(err, list, heads, rows); err != nil {
		return err
	}
	a.ofTotal(len(rows), p)
	return nil
}

func showJob(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	payload, done, err := a.revealed(ctx, c, o.args[0], o.reveal)
	if err != nil || done {
		return err
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListJob, ID: o.args[0], Whole: payload.Empty()})
	if err != nil {
		return err
	}
	j := queue.Of[*queue.JobDetail](p)
	if !payload.Empty() {
		j.Payload, j.PayloadWhyNot, j.Revealed = payload, queue.Text{}, int(queue.RevealFor.Seconds())
	}
	if a.output == "json" {
		a.encode(a.out, j)
		return nil
	}
	since := "due " + age(j.AgeSeconds) + " ago"
	switch {
	case j.FinishedAt != nil:
		since = "finished " + age(j.AgeSeconds) + " ago"
	case j.LeaseToken != "":
		since = "picked " + age(j.AgeSeconds) + " ago"
	case !j.Ready && j.AgeSeconds == 0:
		since = "due later"
	}
	a.printf("%s  %s  %s (%s)  %s\nfor %s, priority %d, tried %d of %d times, %d leases lost\nenqueued %s by %s, due %s, picked %s, finished %s\n",
		j.ID, j.Status, j.Kind, j.Domain, since, j.Executor, j.Priority, j.Attempts, j.MaxAttempts, j.LostLeases,
		stamp(&j.EnqueuedAt), orWord(j.Actor.String(), "nobody named"), stamp(&j.ProcessAfter), stamp(j.PickedAt), stamp(j.FinishedAt))
	for _, l := range [][2]string{
		{"lease", strings.TrimSpace(j.LeaseOwner.String() + " " + j.LeaseToken)}, {"before", j.FromStatus}, {"key", j.Key.String()},
		{"source", j.SourceRef.String()}, {"target", j.TargetRef.String()}, {"payload in", j.PayloadRef.String()},
		{"correlation", j.CorrelationID.String()}, {"code", j.Code.String()}, {"last error", j.LastError.String()},
	} {
		if l[1] != "" {
			fmt.Fprintln(a.out, l[0]+": "+l[1])
		}
	}
	if j.LeaseToken != "" && j.FinishedAt == nil {
		fmt.Fprintln(a.out, "lease until: "+stamp(j.LeaseUntil))
	}
	a.payload(j.Payload, j.PayloadWhyNot, j.Revealed)
	return nil
}

func showLeases(ctx context.Context, a *app, c *pgclient.Client, _ viewOptions) error {
	s, err := snapshot(ctx, c)
	if err != nil {
		return err
	}
	p, err := c.List(ctx, queue.Query{Kind: queue.ListLeases})
	var qe *queue.Error
	if err != nil && !(errors.As(err, &qe) && qe.Kind == queue.KindPermission) { // who may see jobs alone sees theirs
		return err
	}
	var rows [][]string
	var all []any
	for _, l := range s.JobLeases {
		state := "long"
		if l.Expired {
			state = "EXPIRED"
		}
		all = append(all, l)
		rows = append(rows, []string{
			state, l.Token, l.Owner.String(), count(l.Live), l.Kind.String(), l.Domain.String(), stamp(&l.ClaimedAt), stamp(&l.Until),
		})
	}
	for _, l := range queue.Of[[]queue.WebhookLease](p) {
		state := "sending"
		if l.Expired {
			state = "EXPIRED"
		}
		all = append(all, l)
		rows = append(rows, []string{state, count(l.JobID), l.Worker.String(), "1", l.Endpoint.String(), "webhook", stamp(&l.StartedAt), stamp(&l.Until)})
	}
	return a.answer(nil, all, []string{"STATE", "LEASE", "OWNER", "JOBS", "KIND / ENDPOINT", "DOMAIN", "CLAIMED", "UNTIL"}, rows)
}

func showSubscriptions(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	s, err := snapshot(ctx, c)
	var rows [][]string
	var of []queue.JobSubscription
	for _, r := range s.JobSubscriptions {
		if len(o.args) == 1 && r.ExecutorID.String() != queue.Clean(o.args[0]).String() {
			continue
		}
		of = append(of, r)
		state := "disabled"
		if r.Enabled {
			state = "enabled"
		}
		rows = append(rows, []string{
			state, r.ExecutorID.String(), r.ExecutorKind.String(), orWord(r.JobKind.String(), "(every)"), orWord(r.Domain.String(), "(every)"),
			count(r.PriorityFloor), count(r.MaxParallel), count(r.InFlight), r.RegisteredBy.String(), stamp(&r.RegisteredAt), r.ID, r.Notes.String(),
		})
	}
	return a.answer(err, of, []string{
		"STATE", "EXECUTOR", "EXECUTOR KIND", "JOB KIND", "DOMAIN", "FLOOR", "AT ONCE", "IN FLIGHT", "BY", "SINCE", "RULE", "NOTES",
	}, rows)
}

// statusLanes says what stands in the lanes of jobs and which leases are stuck.
func (a *app) statusLanes(st statusJSON) {
	for _, l := range st.Queues {
		if l.Queued+l.Leased+l.InProgress+l.RetryWaiting == 0 {
			continue
		}
		why := ""
		if !l.Why.Empty() {
			why = " · " + l.Why.String()
		}
		a.printf("JOBS    %s (%s) · %d queued, %d scheduled, %d retrying, %d leased, %d running · oldest %s · %s/s in, %s/s out · %s%s\n", l.Kind,
			l.Domain, l.Queued-l.Scheduled, l.Scheduled, l.RetryWaiting, l.Leased, l.InProgress, waited(l), rate(l.InPerSecond), rate(l.OutPerSecond),
			clearsWords(l), why)
	}
	for _, l := range st.JobLeases {
		if l.Expired {
			a.printf("LEASE   %s of %s expired at %s · %d jobs · %s (%s)\n", l.Token, l.Owner, stamp(&l.Until), l.Live, l.Kind, l.Domain)
		}
	}
}

func waited(l queue.Lane) string {
	if l.OldestAt == nil {
		return "-"
	}
	return age(l.AgeSeconds)
}

// clears is when a lane is empty at its present rates.
func clears(l queue.Lane) string {
	switch {
	case l.ClearsInSeconds != nil:
		return age(*l.ClearsInSeconds)
	case l.Queued+l.RetryWaiting == 0:
		return "-"
	}
	return "never"
}

func clearsWords(l queue.Lane) string {
	switch s := clears(l); s {
	case "-":
		return "nothing waits"
	case "never":
		return "never at this rate"
	default:
		return "clears in " + s
	}
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

// numberOr is an id that may be absent.
func numberOr(n int64) string {
	if n == 0 {
		return "-"
	}
	return count(n)
}

func rate(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
