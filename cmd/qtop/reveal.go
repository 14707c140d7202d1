package main

// The printing of payloads: masked, or with --reveal as stored. A reveal is an
// action with a reason, a confirmation and an audit row like every other
// action.

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
)

// revealOptions are the flags of a verb that can reveal.
type revealOptions struct {
	actOptions
	on bool
}

// revealing returns a verb that shows one object with its payload. It adds the flag
// --reveal and the flags that --reveal needs.
func revealing(a *app, of, example, short string, show func(ctx context.Context, a *app, c *pgclient.Client, id string, o revealOptions) error) *cobra.Command {
	o := &revealOptions{}
	cmd := a.viewCmd(view{use: "show ID", of: of, example: example, short: short, show: func(ctx context.Context, a *app, c *pgclient.Client, v viewOptions) error {
		return show(ctx, a, c, v.args[0], *o)
	}}, &viewOptions{})
	f := cmd.Flags()
	f.BoolVar(&o.on, "reveal", false, "show the payload with its secrets; the audit records it first")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --reveal: say what would happen, reveal nothing")
	f.BoolVar(&o.yes, "yes", false, "with --reveal: do not ask")
	f.StringVar(&o.reason, "reason", "", "with --reveal: why, for the audit")
	f.StringVar(&o.confirm, "confirm", "", "with --reveal "+confirmHelp)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"dry-run", "yes", "reason", "confirm"} {
			if f.Changed(name) && !o.on {
				return usage("--"+name+" has no effect without --reveal", "--"+name, "leave it out, or add --reveal")
			}
		}
		if f.Changed("watch") && o.on {
			return usage("--reveal and --watch cannot be combined: a payload is shown once", "command line", "leave out --watch")
		}
		return run(cmd, args)
	}
	return cmd
}

// revealed returns the payload with its secrets, if --reveal is given. done
// means that the verb must not print anything else, for example because the
// operator declined.
func revealed(ctx context.Context, a *app, c *pgclient.Client, id string, o revealOptions) (text queue.Text, done bool, err error) {
	if !o.on {
		return text, false, nil
	}
	r := queue.Request{Action: queue.ActReveal, Targets: []string{id}, Reason: o.reason, Actor: a.settings.Actor, Whole: true}
	if o.dryRun && r.Reason == "" {
		r.Reason = "dry run"
	}
	plan, err := actions.New(c).Plan(ctx, r)
	if err != nil {
		return text, true, err
	}
	if plan.Refused != "" || o.dryRun {
		return text, true, a.outcome(queue.Result{
			Action: r.Action, DryRun: o.dryRun, Plan: plan.Lines, Refused: plan.Refused,
			Results: []queue.Outcome{{ID: id, Outcome: queue.Choose(plan.Refused == "", "would_reveal", "refused")}},
		}, plan)
	}
	if err := a.confirm(ctx, c, plan, o.actOptions); err != nil {
		return text, true, err
	}
	a.unsure.Store(unsureAction)
	res, err := actions.New(c).Apply(ctx, plan)
	if err != nil || res.Refused != "" {
		if err == nil {
			err = a.outcome(res, plan)
		}
		return text, true, err
	}
	fmt.Fprintf(a.errs, "qtop: revealed, audit %d\n", res.AuditID)
	return res.Payload, false, nil
}

// detailed reads one object, and with --reveal replaces its payload by the
// revealed one, with the function put. done is as in revealed.
func detailed[D any](ctx context.Context, a *app, c *pgclient.Client, q queue.Query, o revealOptions, put func(D, queue.Text)) (d D, done bool, err error) {
	payload, done, err := revealed(ctx, a, c, q.ID, o)
	if err != nil || done {
		return d, true, err
	}
	q.Whole = payload.Empty()
	p, err := c.List(ctx, q)
	if err != nil {
		return d, true, err
	}
	d = queue.Of[D](p)
	if !payload.Empty() {
		put(d, payload)
	}
	return d, a.asJSON(d), nil
}
