package actions

import (
	"context"

	"github.com/qtop/qtop/pgclient/queue"
)

func recountActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActRecount, Words: "recount", Example: "qtop recount --reason 'rows were loaded without triggers'", Verb: "Recount",
			Help:  "correct counters, queue lanes, open dead letters and endpoint rows after rows were loaded without triggers",
			Title: "Recount all queues", Safe: "Not now",
			Danger: queue.DangerOne, Function: "public.fn_queue_recount(text,text,boolean)", Role: "workflow_admin", Reason: true, Long: true,
		}, plan: planRecount, apply: applyRecount},
	}
}

const recount = "SELECT public.fn_queue_recount($1::text, $2::text, $3::boolean)"

func planRecount(ctx context.Context, c *Planner, p *queue.Plan) error {
	var a struct {
		answer
		Counters    int64 `json:"counters"`
		Lanes       int64 `json:"job_lane"`
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
	if err := c.callLong(ctx, &a, recount, p.Request.Actor, p.Request.Reason, true); err != nil {
		return err
	}
	p.Count = 1
	addLine(p, "counters", "%s from the tables", queue.Plural(a.Counters, "differs", "differ"))
	for i, d := range a.Drift {
		if i == 10 {
			break
		}
		addLine(p, d.Scope, "%s %s %s: %s, counted %d", d.K1, d.K2, d.K3, queue.Plural(d.Found, "row", "rows"), d.Counted)
	}
	addLine(p, "rows", "%s, %s, %s and %s missing or wrong", queue.Plural(a.Lanes, "queue lane", "queue lanes"), queue.Plural(a.DeadLetters, "open dead letter", "open dead letters"),
		queue.Plural(a.States, "endpoint state", "endpoint states"), queue.Plural(a.Buckets, "rate bucket", "rate buckets"))
	return nil
}

func applyRecount(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var a answer
	err := c.callLong(ctx, &a, recount, p.Request.Actor, p.Request.Reason, false)
	if err == nil {
		recordOne(res, "counters", "recounted", a)
	}
	return err
}
