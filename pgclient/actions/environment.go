package actions

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// guards returns the values that a database's guard can have.
func guards() []string { return []string{"guarded", "open"} }

func environmentActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActEnvironment, Words: "environment set", Example: "qtop environment set prod-eu --guard guarded --confirm prod-eu --reason 'first installation'", Group: "Say what this database is", Verb: "Set", Undo: "set what it was before",
			Help: "name the environment of this database and guard it: every change then asks you to type the name",
			Noun: "environment", Title: "Name the environment", Button: "Set {environment} {guard}", Open: true, // planEnvironment asks for the typed name if the database is guarded
			Danger: queue.DangerOne, Function: "public.fn_queue_environment_set(text,text,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "environment", Kind: queue.ArgWord, Positional: true, Label: "Environment", Required: true, Help: "letters, digits and . _ -, such as prod-eu"},
				{Name: "guard", Kind: queue.ArgChoice, Label: "Guard", Required: true, Choices: guards(), Help: "guarded: every change asks you to type the name; open: it does not"},
			},
		}, plan: planEnvironment, apply: applyEnvironment},
	}
}

type environmentAnswer struct {
	answer
	Before  queue.Text `json:"before"`
	After   queue.Text `json:"after"`
	Confirm string     `json:"confirm"`
}

func setEnvironment(ctx context.Context, q rowQuerier, r queue.Request, name *string, dry bool) (a environmentAnswer, err error) {
	err = q.QueryRow(ctx, "SELECT public.fn_queue_environment_set($1::text, $2::text, $3::text, $4::text, $5::text, $6::boolean)",
		r.Args["environment"], r.Args["guard"], name, r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planEnvironment(ctx context.Context, c *Planner, p *queue.Plan) error {
	var name *string
	if typed := p.Request.Args[confirmArg]; typed != "" {
		name = &typed
	}
	a, err := setEnvironment(ctx, c.act, p.Request, name, true)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Expect, p.Confirm, p.Request.Confirm = 1, a.Before.String(), a.Confirm, a.Confirm
	p.Results = []queue.Outcome{{ID: queue.EnvironmentFlag, Outcome: "would_set"}}
	addLine(p, "now", "%s", a.Before)
	addLine(p, "new", "%s", a.After)
	return nil
}

func applyEnvironment(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var name *string
	if p.Confirm != "" { // the name was typed with the request or in the preview
		name = &p.Confirm
	}
	return c.applySeen(ctx, p, res, queue.EnvironmentFlag, "the environment", func(tx pgx.Tx) (found, error) {
		a, err := setEnvironment(ctx, tx, p.Request, name, false)
		return found{answer: a.answer, state: a.Before.String(), since: "to " + a.Before.String(), done: "set"}, err
	})
}
