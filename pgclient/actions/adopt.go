package actions

import (
	"context"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

func adoptActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActAdopt, Words: "adopt", Example: "qtop adopt --waiting suspend --environment staging --guard open --reason 'copy for a test' --confirm orders", Verb: "Adopt",
			Help:   "make this copy of a database independent of the original, and choose what happens to the work copied with it",
			Button: "Adopt {targets}", Safe: "Not now", Targets: queue.Targets{Name: "DATABASE"},
			Danger: queue.DangerDatabase, Function: "public.fn_queue_adopt(text,text,text,text,boolean,text,text)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{{
				Name: "waiting", Kind: queue.ArgChoice, Label: "Waiting work", Required: true, Choices: []string{"suspend", "cancel", "keep"}, // suspend first: a form preselects the first choice, so it must be the least drastic one
				Help: "keep: it continues here; suspend: endpoints, jobs and routes are paused; cancel: jobs are cancelled, endpoints and routes are paused",
			}, {
				Name: "environment", With: "guard", Label: "Environment", Help: "the environment of this copy, such as staging; required if the original has one",
			}, {
				Name: "guard", With: "environment", Kind: queue.ArgChoice, Label: "Guard", Choices: guards(), Help: "guarded: every change asks you to type its name; open: it does not",
			}},
		}, plan: planAdopt, apply: applyAdopt},
	}
}

// adoptAnswer is the result of fn_queue_adopt.
type adoptAnswer struct {
	answer
	Database    string   `json:"database"`
	Was         string   `json:"was"`
	Jobs        int64    `json:"jobs"`
	JobsLeased  int64    `json:"jobs_leased"`
	Webhooks    int64    `json:"webhooks"`
	Endpoints   int64    `json:"endpoints"`
	Operations  int64    `json:"operations"`
	Cancelled   int64    `json:"cancelled"`
	Suspended   int64    `json:"suspended"`
	Paused      int64    `json:"paused"`
	SwitchedOff []string `json:"switched_off"`
	Environment string   `json:"environment"`
}

func (c *Planner) adopt(ctx context.Context, r queue.Request, name *string, dry bool) (a adoptAnswer, err error) {
	err = c.act.QueryRow(ctx, "SELECT public.fn_queue_adopt($1::text, $2::text, $3::text, $4::text, $5::boolean, NULLIF($6::text, ''), NULLIF($7::text, ''))",
		r.Args["waiting"], name, r.Actor, r.Reason, dry, r.Args["environment"], r.Args["guard"]).Scan(&a)
	return a, err
}

// confirmArg is the request argument with the name that was typed to confirm the
// action. If it is missing, Plan.Confirm says which name to type.
const confirmArg = "confirm"

func planAdopt(ctx context.Context, c *Planner, p *queue.Plan) error {
	var name *string
	if typed := p.Request.Args[confirmArg]; typed != "" {
		name = &typed
	}
	a, err := c.adopt(ctx, p.Request, name, true)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Confirm = 1, a.Database
	p.Request.Targets = []string{a.Database}
	p.Results = []queue.Outcome{{ID: a.Database, Outcome: "would_adopt"}}
	p.Lines = append(p.Lines,
		line("now", "%s", a.Was),
		line("copied work", "%s, %d more leased to hosts of the original, %s for %s, %s running",
			queue.Plural(a.Jobs, "job", "jobs"), a.JobsLeased, queue.Plural(a.Webhooks, "webhook", "webhooks"),
			queue.Plural(a.Endpoints, "endpoint", "endpoints"), queue.Plural(a.Operations, "bulk operation", "bulk operations")))
	if p.Request.Args["environment"] != "" {
		addLine(p, "environment", "%s", a.Environment)
	}
	p.Lines = append(p.Lines, a.outcomeLines(p.Request.Args["waiting"])...)
	if p.Request.Args["waiting"] == "keep" {
		return c.released(ctx, p, nil)
	}
	return nil
}

// outcomeLines says what happens to the waiting work of the copy, and how to resume what the
// adoption pauses.
func (a adoptAnswer) outcomeLines(waiting string) []queue.PlanLine {
	if waiting == "keep" {
		return []queue.PlanLine{line("waiting work", "continues here: webhooks are sent, jobs are run")}
	}
	out := []queue.PlanLine{}
	if waiting == "cancel" {
		out = append(out, line("cancelled", "%s, for good", queue.Plural(a.Cancelled, "job", "jobs")))
	}
	out = append(out,
		line("suspended", "%s; qtop endpoint resume SUBSCRIPTION --reason R sends the waiting deliveries of one", queue.Plural(a.Suspended, "endpoint", "endpoints")),
		line("paused", "%s; qtop ops resume ID continues one", queue.Plural(a.Paused, "bulk operation", "bulk operations")))
	for _, flag := range a.SwitchedOff {
		out = append(out, line("switched off", "%s; qtop flag set %s true --reason R switches it on", flag, flag))
	}
	return out
}

func applyAdopt(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	name := p.Request.Args[confirmArg]
	if name == "" {
		name = p.Confirm // typed in the preview of the plan
	}
	a, err := c.adopt(ctx, p.Request, &name, false)
	if err != nil {
		return err
	}
	recordOne(res, strings.Join(p.Request.Targets, " "), "adopted", a.answer)
	if !a.Refused {
		var done []string
		for _, l := range a.outcomeLines(p.Request.Args["waiting"]) {
			done = append(done, l.Label+" "+l.Value.String())
		}
		res.Results[0].Why = queue.Clean(strings.Join(done, "; "))
	}
	return nil
}
