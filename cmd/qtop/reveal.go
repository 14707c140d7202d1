package main

// This file prints payloads: masked, or with --reveal as stored, which is an action
// with a reason, a confirmation and an audit row like every other.

import (
	"context"
	"fmt"
	"io"

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

// revealing is a verb that shows a payload, with --reveal and what goes with it.
func (a *app) revealing(v view) *cobra.Command {
	o := &viewOptions{}
	cmd := a.viewCmd(v, o)
	f := cmd.Flags()
	f.BoolVar(&o.reveal.on, "reveal", false, "show the payload with its secrets; the audit says so first")
	f.BoolVar(&o.reveal.dryRun, "dry-run", false, "with --reveal: say what would happen, reveal nothing")
	f.BoolVar(&o.reveal.yes, "yes", false, "with --reveal: do not ask")
	f.StringVar(&o.reveal.reason, "reason", "", "with --reveal: why, for the audit")
	return cmd
}

// revealed is a payload with its secrets; done says that the verb ends here.
func (a *app) revealed(ctx context.Context, c *pgclient.Client, id string, o revealOptions) (text queue.Text, done bool, err error) {
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
			Results: []queue.Outcome{{ID: id, Outcome: "would_reveal"}},
		}, plan)
	}
	if err := a.confirm(ctx, plan, o.actOptions); err != nil {
		return text, true, err
	}
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

// payload prints what is carried, or why not.
func (a *app) payload(text, whyNot queue.Text, revealed int) {
	how := "secrets masked"
	if revealed > 0 {
		how = "WITH ITS SECRETS"
	}
	for _, part := range []string{"payload (" + how + "): ", text.String(), whyNot.String(), "\n"} { // as it is: it may be large
		_, _ = io.WriteString(a.out, part)
	}
}
