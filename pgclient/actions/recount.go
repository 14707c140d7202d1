package actions

import (
	"context"

	"github.com/qtop/qtop/pgclient/queue"
)

func recountActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActRecount, Words: "recount", Example: "qtop recount --reason 'rows were loaded without triggers'", Verb: "Recount",
			Help:  "correct counters, queue lanes, leases, open dead letters and endpoint rows after rows were loaded without triggers or left out by a restore",
			Title: "Recount all queues", Safe: "Not now",
			Danger: queue.DangerOne, Function: "public.fn_queue_recount(text,text,boolean)", Role: "workflow_admin", Reason: true, Long: true,
		}, plan: planRecount, apply: applyRecount},
	}
}

const recount = "SELECT public.fn_queue_recount($1::text, $2::text, $3::boolean)"

// recounted is the answer of fn_queue_recount, with and without dry_run.
type recounted struct {
	answer
	Counters    int64 `json:"counters"`
	Lanes       int64 `json:"job_lane"`
	Leases      int64 `json:"job_lease"`
	DeadLetters int64 `json:"dead_letter_open"`
	States      int64 `json:"webhook_endpoint_state"`
	Buckets     int64 `json:"webhook_rate_bucket"`
	Drift       []struct {
		Scope   string `json:"scope"`
		K1      string `json:"k1"`
		K2      string `json:"k2"`
		K3      string `json:"k3"`
		Found   int64  `json:"found"`
		Counted int64  `json:"counted"`
	} `json:"drift"`
}

// driftShown is how many of the counters that differ a plan names.
const driftShown = 10

// lines returns the differences that were found.
func (a *recounted) lines() []queue.PlanLine {
	out := []queue.PlanLine{line("counters", "%s from the tables", queue.Plural(a.Counters, "differs", "differ"))}
	shown := a.Drift[:min(len(a.Drift), driftShown)]
	for _, d := range shown {
		out = append(out, line(d.Scope, "%s %s %s: %s, counted %d", d.K1, d.K2, d.K3, queue.Plural(d.Found, "row", "rows"), d.Counted))
	}
	if more := a.Counters - int64(len(shown)); more > 0 {
		out = append(out, line("counters", "%d more, not listed here", more))
	}
	return append(out, line("rows", "%s, %s, %s, %s and %s missing or wrong", queue.Plural(a.Lanes, "queue lane", "queue lanes"), queue.Plural(a.Leases, "lease", "leases"), queue.Plural(a.DeadLetters, "open dead letter", "open dead letters"),
		queue.Plural(a.States, "endpoint state", "endpoint states"), queue.Plural(a.Buckets, "rate bucket", "rate buckets")))
}

// planRecount compares the counters with the tables. That takes as long as the recount itself, so it
// is left out if nobody sees the plan: the recount then says what it found.
func planRecount(ctx context.Context, c *Planner, p *queue.Plan) error {
	p.Count = 1
	if p.Request.Unseen {
		return nil
	}
	var a recounted
	if err := c.callLong(ctx, &a, recount, p.Request.Actor, p.Request.Reason, true); err != nil {
		return err
	}
	p.Lines = append(p.Lines, a.lines()...)
	return nil
}

func applyRecount(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var a recounted
	err := c.callLong(ctx, &a, recount, p.Request.Actor, p.Request.Reason, false)
	if err != nil {
		return err
	}
	if p.Request.Unseen {
		res.Plan = append(res.Plan, a.lines()...)
	}
	recordOne(res, "counters", "recounted", a.answer)
	return nil
}
