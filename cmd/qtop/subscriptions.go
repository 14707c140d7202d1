package main

// This file is the verbs about who reads which events: rules, the broadcast
// share, a type step by step; new rules, mute and unmute.

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

func (a *app) subscriptionsCmd() *cobra.Command {
	var resolve string
	var scope queue.Scope
	var share bool
	o := &viewOptions{}
	cmd := a.viewCmd(view{
		use: "subscriptions", short: "Who reads which events; with --share what reaches nobody, with --resolve whom a type reaches", list: true,
		show: func(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
			switch {
			case resolve != "" && share:
				return usage("--resolve and --share are two questions", "command line", "ask one of them")
			case resolve == "" && scope != (queue.Scope{}):
				return usage("--subject-table and --payload narrow the event of --resolve", "command line", "give --resolve DOMAIN/TYPE")
			case resolve != "":
				return showResolution(ctx, a, c, resolve, scope)
			case share:
				return showShare(ctx, a, c)
			}
			return showRules(ctx, a, c, o)
		},
	}, o)
	f := cmd.Flags()
	f.StringVar(&resolve, "resolve", "", "say step by step whom an event reaches: DOMAIN/TYPE[/STREAM]")
	f.StringVar(&scope.SubjectTable, "subject-table", "", "of --resolve: the table that the event is about")
	f.StringVar(&scope.Payload, "payload", "", "of --resolve: the payload of the event, JSON")
	f.BoolVar(&share, "share", false, "the share of events that reach nobody in particular, per domain, and their types")
	return cmd
}

// subscriptionCmd is the verbs that act on rules. None removes one: mute is their
// lifecycle.
func (a *app) subscriptionCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "subscription", Short: "Make a rule of who reads which events; mute and unmute one"}
	cmd.AddCommand(
		a.act(actVerb{
			use: "add RECIPIENT", action: queue.ActRuleAdd, args: cobra.ExactArgs(1), skip: []string{"recipient"}, list: "subscriptions",
			into: func(r *queue.Request, args []string) { r.Args["recipient"] = args[0] },
		}),
		a.act(actVerb{use: "mute RULE", action: queue.ActRuleMute, args: cobra.ExactArgs(1), list: "subscriptions", into: targets}),
		a.act(actVerb{use: "unmute RULE", action: queue.ActRuleUnmute, args: cobra.ExactArgs(1), list: "subscriptions", into: targets}),
	)
	return cmd
}

func showRules(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListRules, Filter: o.filter})
	if err != nil {
		return err
	}
	shown := queue.Of[queue.EventSubscriptionList](p).Subscriptions
	if o.limit > 0 && len(shown) > o.limit {
		shown = shown[:o.limit]
	}
	var rows [][]string
	for _, s := range shown {
		state := "active"
		if s.Mute {
			state = "muted"
		}
		rows = append(rows, []string{
			count(s.ID), state, s.Recipient.String(), orWord(s.Domain.String(), "(every)"), orWord(s.Type.String(), "(every)"),
			orWord(s.Stream.String(), "(every)"), strconv.Itoa(s.Step()), s.SubjectTable.String(), s.Filter.String(),
		})
	}
	if err := a.answer(nil, shown, []string{"RULE", "STATE", "RECIPIENT", "DOMAIN", "TYPE", "STREAM", "STEP", "SUBJECT TABLE", "PAYLOAD"}, rows); err != nil {
		return err
	}
	a.ofTotal(len(rows), p)
	return nil
}

func shareWords(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 2, 64)
}

func showShare(ctx context.Context, a *app, c *pgclient.Client) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListRules})
	if err != nil {
		return err
	}
	b := queue.Of[queue.EventSubscriptionList](p).Broadcast
	if a.output == "json" {
		a.encode(a.out, b)
		return nil
	}
	if !b.On {
		fmt.Fprintln(a.out, "OFF     queue.subscription_resolution.enabled is off: every event goes to broadcast")
	}
	var rows [][]string
	for _, s := range b.Shares {
		state := "ok"
		if s.Over {
			state = "OVER"
		}
		rows = append(rows, []string{state, orWord(s.Domain.String(), "(all)"), shareWords(s.Broadcast, s.Events), count(b.Line), count(s.Broadcast), count(s.Events)})
	}
	a.print(nil, []string{"LINE", "DOMAIN", "PERCENT", "OF AT MOST", "BROADCAST 24H", "EVENTS 24H"}, rows)
	if len(b.Unrouted) == 0 {
		return nil
	}
	rows = nil
	fmt.Fprintln(a.out)
	for _, u := range b.Unrouted {
		rows = append(rows, []string{u.Domain.String(), u.Type.String(), u.Stream.String(), count(u.Broadcast), count(u.Events), shareWords(u.Broadcast, u.Events)})
	}
	a.print(nil, []string{"DOMAIN", "TYPE", "STREAM", "BROADCAST 24H", "EVENTS 24H", "PERCENT"}, rows)
	return nil
}

// showResolution prints every rule that speaks of a type: what was ruled out is
// half of the answer.
func showResolution(ctx context.Context, a *app, c *pgclient.Client, id string, scope queue.Scope) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListResolution, ID: id, Scope: scope})
	if err != nil {
		return err
	}
	r := queue.Of[*queue.Resolution](p)
	if a.output == "json" {
		a.encode(a.out, r)
		return nil
	}
	var to []string
	for _, t := range r.Recipients {
		to = append(to, t.String())
	}
	a.printf("%s/%s in stream %s reaches %s\n%d events in 24 h, %d of them to broadcast\n", r.Domain, r.Type, orWord(r.Stream.String(), "(none)"), strings.Join(to, ", "), r.Events, r.Broadcast)
	if !r.Registered {
		fmt.Fprintln(a.out, "the type is not registered: no such event can be written")
	}
	if !r.On {
		fmt.Fprintln(a.out, "OFF     queue.subscription_resolution.enabled is off: every event goes to broadcast")
	}
	var rows [][]string
	for _, x := range r.Rules {
		rows = append(rows, []string{
			strconv.Itoa(x.StepNo), x.Outcome, count(x.ID), x.Recipient.String(), orWord(x.Domain.String(), "(every)"), orWord(x.Type.String(), "(every)"),
			orWord(x.Stream.String(), "(every)"), x.SubjectTable.String(), x.Filter.String(),
		})
	}
	a.print(nil, []string{"STEP", "OUTCOME", "RULE", "RECIPIENT", "DOMAIN", "TYPE", "STREAM", "SUBJECT TABLE", "PAYLOAD"}, rows)
	return nil
}
