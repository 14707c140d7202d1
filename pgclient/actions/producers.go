package actions

import (
	"context"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

func producerActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActProducerSet, Words: "executor producer", Example: "qtop executor producer Codex --role event_ingest_writer --reason 'one team only'", Key: "O", Panes: []queue.PaneID{queue.PaneExecutors}, Hint: "producers", Verb: "Save", Undo: "run it again with the opposite --allowed",
			Help:  "allow the members of a role to enqueue for an executor kind, or revoke that",
			Title: "Producers of an executor kind", Button: "Save {targets}", Targets: queue.Targets{Name: "KIND", Of: "executor kind"},
			Danger: queue.DangerOne, Function: "public.fn_executor_producer_set(text,text,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "role", Label: "Role", Required: true, Help: "login or group of the producers"},
				{Name: "allowed", Kind: queue.ArgSwitch, Label: "Allowed", Default: "true", Required: true, Help: "while no role is allowed, every producer may enqueue"},
			},
		}, plan: planProducer, apply: applyProducer},
	}
}

type producerAnswer struct {
	answer
	Before []string `json:"before"`
	After  []string `json:"after"`
}

func (c *Planner) producer(ctx context.Context, r queue.Request, dry bool) (a producerAnswer, err error) {
	err = c.act.QueryRow(ctx, "SELECT public.fn_executor_producer_set($1::text, $2::text, $3::boolean, $4::text, $5::text, $6::boolean)",
		r.Targets[0], r.Args["role"], r.Args["allowed"] == "true", r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planProducer(ctx context.Context, c *Planner, p *queue.Plan) error {
	if !slices.Contains(queue.ExecutorKinds(), p.Request.Targets[0]) {
		return refuse(p, "kind", "there is no executor kind "+p.Request.Targets[0]+": use "+strings.Join(queue.ExecutorKinds(), ", "))
	}
	a, err := c.producer(ctx, p.Request, true)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	named := func(roles []string) string {
		if len(roles) == 0 {
			return "every producer"
		}
		return "members of " + strings.Join(roles, ", ")
	}
	p.Count = 1
	addLine(p, "executor kind", "%s", p.Request.Targets[0])
	addLine(p, "now", "%s", named(a.Before))
	addLine(p, "then", "%s", named(a.After))
	return nil
}

func applyProducer(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.producer(ctx, p.Request, false)
	if err == nil {
		recordOne(res, p.Request.Targets[0], "changed", a.answer)
	}
	return err
}
