package main

// The verbs about event subscriptions: which recipients read which events, the
// share of broadcast, and how the recipients of an event type are found.

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func subscriptionsCmd(a *app) *cobra.Command {
	var resolve string
	var scope queue.Scope
	var share bool
	o := &viewOptions{}
	cmd := a.viewCmd(view{
		use: "subscriptions", example: "qtop subscriptions --resolve iu/made", short: "Who reads which events; with --share what reaches nobody, with --resolve whom a type reaches", list: true,
		show: func(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
			switch {
			case resolve != "" && share:
				return usage("--resolve and --share cannot be combined", "command line", "give one of them")
			case (resolve != "" || share) && (o.filter != "" || o.cut):
				flag := queue.Choose(o.cut, "--limit", "--filter")
				return usage(flag+" has no effect with "+queue.Choose(share, "--share", "--resolve"), flag, "leave it out")
			case resolve == "" && scope != (queue.Scope{}):
				return usage("--subject-table and --payload need --resolve, whose event they describe", "command line", "give --resolve DOMAIN/TYPE")
			case resolve != "":
				return showResolution(ctx, a, c, resolve, scope)
			case share:
				return showShare(ctx, a, c)
			}
			return showEventSubscriptions(ctx, a, c, o)
		},
	}, o)
	f := cmd.Flags()
	f.StringVar(&resolve, "resolve", "", "say step by step whom an event reaches: DOMAIN/TYPE[/STREAM]")
	f.StringVar(&scope.SubjectTable, "subject-table", "", "of --resolve: the table that the event is about")
	f.StringVar(&scope.Payload, "payload", "", "of --resolve: the payload of the event, JSON")
	f.BoolVar(&share, "share", false, "the share of events that reach nobody in particular, per domain, and their types")
	return cmd
}

func showEventSubscriptions(ctx context.Context, a *app, c *pgclient.Client, o viewOptions) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListEventSubscriptions, Filter: o.filter})
	if err != nil {
		return err
	}
	shown := queue.Of[queue.EventSubscriptionList](p).Subscriptions
	if o.limit > 0 && len(shown) > o.limit {
		shown = shown[:o.limit]
	}
	a.ofTotal(a.rows(views.EventSubscriptions(shown, nil), "subscriptions"), p)
	return nil
}

func showShare(ctx context.Context, a *app, c *pgclient.Client) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListEventSubscriptions})
	if err != nil {
		return err
	}
	b := queue.Of[queue.EventSubscriptionList](p).Broadcast
	if a.asJSON(b) {
		return nil
	}
	if !b.On {
		fmt.Fprintln(a.out, "OFF     queue.subscription_resolution.enabled is off: every event goes to broadcast")
	}
	a.table(views.Shares(b), "shares")
	if len(b.Unrouted) > 0 {
		fmt.Fprintln(a.out)
		a.table(views.EventSubscriptions(nil, b), "unrouted")
	}
	return nil
}

// showResolution prints every event subscription that concerns an event type,
// also those that were ruled out, because they explain the result.
func showResolution(ctx context.Context, a *app, c *pgclient.Client, id string, scope queue.Scope) error {
	p, err := c.List(ctx, queue.Query{Kind: queue.ListResolution, ID: id, Scope: scope})
	if err != nil {
		return err
	}
	r := queue.Of[*queue.Resolution](p)
	if a.asJSON(r) {
		return nil
	}
	var to []string
	for _, t := range r.Recipients {
		to = append(to, t.String())
	}
	a.printf("%s/%s in stream %s reaches %s\n%s in 24 h, %d to broadcast\n", r.Domain, r.Type, cmp.Or(r.Stream.String(), "(none)"), strings.Join(to, ", "), queue.Plural(r.Events, "event", "events"), r.Broadcast)
	if !r.Registered {
		fmt.Fprintln(a.out, "the type is not registered: no such event can be written")
	}
	if !r.On {
		fmt.Fprintln(a.out, "OFF     queue.subscription_resolution.enabled is off: every event goes to broadcast")
	}
	a.table(views.Resolved(r.Subscriptions), "resolved")
	return nil
}
