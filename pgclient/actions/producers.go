package actions

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

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
				{Name: "allowed", Kind: queue.ArgSwitch, Label: "Allowed", Default: "true", Required: true, Help: "true or false; while no role is allowed, every producer may enqueue"},
			},
		}, plan: planProducer, apply: applyProducer},
	}
}

// producers are the roles whose members may enqueue for an executor kind.
type producers []string

func (roles producers) String() string {
	if len(roles) == 0 {
		return "every producer"
	}
	return "members of " + strings.Join(roles, ", ")
}

type producerAnswer struct {
	answer
	Before producers `json:"before"`
	After  producers `json:"after"`
}

func setProducer(ctx context.Context, q rowQuerier, r queue.Request, dry bool) (a producerAnswer, err error) {
	err = q.QueryRow(ctx, "SELECT public.fn_executor_producer_set($1::text, $2::text, $3::boolean, $4::text, $5::text, $6::boolean)",
		r.Targets[0], r.Args["role"], r.Args["allowed"] == "true", r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planProducer(ctx context.Context, c *Planner, p *queue.Plan) error {
	if !slices.Contains(queue.ExecutorKinds(), p.Request.Targets[0]) {
		return refuse(p, "kind", "there is no executor kind "+p.Request.Targets[0]+": use "+strings.Join(queue.ExecutorKinds(), ", "))
	}
	a, err := setProducer(ctx, c.act, p.Request, true)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Expect = 1, a.Before.String()
	addLine(p, "executor kind", "%s", p.Request.Targets[0])
	addLine(p, "now", "%s", a.Before)
	addLine(p, "then", "%s", a.After)
	return nil
}

func applyProducer(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applySeen(ctx, p, res, p.Request.Targets[0], "the list of producers", func(tx pgx.Tx) (found, error) {
		a, err := setProducer(ctx, tx, p.Request, false)
		return found{answer: a.answer, state: a.Before.String(), since: "to " + a.Before.String(), done: "changed"}, err
	})
}
