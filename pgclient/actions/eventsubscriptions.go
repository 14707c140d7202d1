package actions

import (
	"context"
	"fmt"
	"strconv"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func eventSubscriptionActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActEventSubscriptionAdd, Words: "subscription add", Example: "qtop subscription add role:billing --domain iu --type made --reason 'billing reads new units'", Group: "Create event subscriptions, which say who reads which events; mute and unmute them", Key: "N", Panes: []queue.PaneID{queue.PaneSubscriptions}, Verb: "Make",
			Help: "create an event subscription, which says who reads which events",
			Noun: "event subscription", Button: "Create the subscription", Safe: "Not now", Opposite: queue.ActEventSubscriptionMute, Undo: "mute it under the number that the result shows",
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_add(text,text,text,text,text,jsonb,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "recipient", Positional: true, Label: "Recipient", Required: true, Help: "role:NAME, agency:NAME, user:NAME or agent:NAME"},
				{Name: "domain", Label: "Domain", Empty: "every domain"},
				{Name: "type", Label: "Type", Empty: "every type"},
				{Name: "stream", Label: "Stream", Empty: "every stream"},
				{Name: "table", Label: "Subject table", Help: "only events about this table", Empty: "every one"},
				{Name: "payload", Kind: queue.ArgObject, Label: "Payload", Help: "only events whose payload contains this JSON object", Empty: "every one"},
			},
		}, plan: planEventSubscription, apply: applyEventSubscription},
		{Action: queue.Action{
			ID: queue.ActEventSubscriptionMute, Words: "subscription mute", Example: "qtop subscription mute 3 --reason 'consumer is being moved'", Key: "D", Panes: []queue.PaneID{queue.PaneSubscriptions}, Verb: "Mute",
			Help: "ignore an event subscription; events that reach nobody else go to broadcast",
			Noun: "event subscription", Button: "Mute {targets}", Opposite: queue.ActEventSubscriptionUnmute, Targets: queue.Targets{Name: "SUBSCRIPTION", List: "subscriptions", Of: "event subscription"},
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planMute, apply: applyMute},
		{Action: queue.Action{
			ID: queue.ActEventSubscriptionUnmute, Words: "subscription unmute", Example: "qtop subscription unmute 3 --reason 'consumer has moved'", Key: "D", Panes: []queue.PaneID{queue.PaneSubscriptions}, Verb: "Unmute",
			Help: "apply a muted event subscription again",
			Noun: "event subscription", Button: "Unmute {targets}", Opposite: queue.ActEventSubscriptionMute, Targets: queue.Targets{Name: "SUBSCRIPTION", List: "subscriptions", Of: "event subscription"},
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planMute, apply: applyMute},
	}
}

// shareWith returns the number of events of the last 24 hours and how many of them no event
// subscription matched. flip: the id of an event subscription that counts as muted if it is not,
// and as unmuted if it is; 0 = none.
func (c *Planner) shareWith(ctx context.Context, flip int64) (events, broadcast int64, err error) {
	err = c.act.QueryRow(ctx, "SELECT COALESCE(sum(b.events), 0)::bigint, COALESCE(sum(b.broadcast), 0)::bigint FROM public.fn_event_broadcast($1::bigint) b", flip).Scan(&events, &broadcast)
	return events, broadcast, err
}

func percentText(broadcast, events int64) string {
	if events == 0 {
		return "no event in 24 h"
	}
	return fmt.Sprintf("%.2f %% (%d of %d in 24 h)", 100*float64(broadcast)/float64(events), broadcast, events)
}

// eventSubscriptionText describes an event subscription in one line.
func eventSubscriptionText(s queue.EventSubscription) string {
	words := orEvery(s.Type.String(), "every type") + " in " + orEvery(s.Domain.String(), "every domain")
	if s.Stream.Empty() {
		words += ", every stream"
	} else {
		words += ", stream " + s.Stream.String()
	}
	if !s.SubjectTable.Empty() {
		words += ", about " + s.SubjectTable.String()
	}
	if f := s.Filter.String(); f != "{}" && f != "" {
		words += ", payload with " + f
	}
	return words
}

func eventSubscriptionID(r queue.Request) (int64, error) {
	if id, err := strconv.ParseInt(r.Targets[0], 10, 64); err == nil && id > 0 {
		return id, nil
	}
	return 0, queue.NewError(queue.KindUsage, strconv.Quote(r.Targets[0])+" is not the number of an event subscription", "", "qtop subscriptions lists them")
}

func planMute(ctx context.Context, c *Planner, p *queue.Plan) error {
	id, err := eventSubscriptionID(p.Request)
	if err != nil {
		return err
	}
	mute := p.Request.Action == queue.ActEventSubscriptionMute
	found, err := pgrow.All[queue.EventSubscription](ctx, c.act, "SELECT "+pgrow.EventSubscriptionColumns+" FROM public.event_subscription s WHERE s.subscription_id = $1", id)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return refuse(p, "not_found", fmt.Sprintf("there is no event subscription %d; qtop subscriptions lists them", id))
	}
	s := found[0]
	if s.Mute == mute {
		return refuse(p, "unchanged", fmt.Sprintf("event subscription %d is %s already", id, map[bool]string{true: "muted", false: "not muted"}[mute]))
	}
	events, now, err := c.shareWith(ctx, 0)
	if err != nil {
		return err
	}
	_, then, err := c.shareWith(ctx, id)
	if err != nil {
		return err
	}
	p.Count, p.Expect = 1, strconv.FormatBool(s.Mute)
	p.Lines = append(p.Lines, line("subscription", "%d, %s", id, s.Recipient), line("reads", "%s", eventSubscriptionText(s)),
		line("broadcast", "%s", percentText(now, events)), line("then", "%s", percentText(then, events)))
	if !mute {
		return c.blockedEvents(ctx, p, s.Domain.String())
	}
	return nil
}

// applyMute mutes or unmutes the event subscription. The function refuses if it is muted (or
// unmuted) already, so a change by another operator since the preview is noticed.
func applyMute(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id, err := eventSubscriptionID(p.Request)
	if err != nil {
		return err
	}
	mute := p.Request.Action == queue.ActEventSubscriptionMute
	return c.applyOne(ctx, res, p.Request.Targets[0], map[bool]string{true: "muted", false: "unmuted"}[mute], "SELECT public.fn_event_subscription_mute($1::bigint, $2::boolean, $3::text, $4::text, false)", id, mute, p.Request.Actor, p.Request.Reason)
}

const addEventSubscription = `SELECT public.fn_event_subscription_add($1::text, NULLIF($2, ''), NULLIF($3, ''), NULLIF($4, ''), NULLIF($5, ''), NULLIF($6, '')::jsonb, $7::text, $8::text, $9::boolean)`

func addEventSubscriptionArgs(r queue.Request, dry bool) []any {
	return []any{r.Args["recipient"], r.Args["domain"], r.Args["type"], r.Args["stream"], r.Args["table"], r.Args["payload"], r.Actor, r.Reason, dry}
}

func planEventSubscription(ctx context.Context, c *Planner, p *queue.Plan) error {
	a, err := c.call(ctx, addEventSubscription, addEventSubscriptionArgs(p.Request, true)...)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	args := p.Request.Args
	var broadcast, types int64
	err = c.act.QueryRow(ctx, `SELECT COALESCE(sum(b.broadcast), 0)::bigint, count(*) FROM public.fn_event_broadcast(NULL::bigint) b
		WHERE b.broadcast > 0 AND ($1 = '' OR b.event_domain = $1) AND ($2 = '' OR b.event_type = $2)`, args["domain"], args["type"]).Scan(&broadcast, &types)
	if err != nil {
		return err
	}
	p.Count = 1
	s := queue.EventSubscription{
		Domain: queue.Clean(args["domain"]), Type: queue.Clean(args["type"]), Stream: queue.Clean(args["stream"]),
		SubjectTable: queue.Clean(args["table"]), Filter: queue.Clean(args["payload"]),
	}
	upTo := ""
	if !s.Stream.Empty() || !s.SubjectTable.Empty() || !s.Filter.Empty() {
		upTo = "up to " // the counts are per domain and type only
	}
	p.Lines = append(p.Lines, line("recipient", "%s", args["recipient"]), line("reads", "%s", eventSubscriptionText(s)), line("at step", "%d", s.Step()),
		line("then gets", "%s%s of %s that went to broadcast in the last 24 h", upTo,
			queue.Plural(broadcast, "event", "events"), queue.Plural(types, "type", "types")))
	return c.blockedEvents(ctx, p, args["domain"])
}

func applyEventSubscription(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var a struct {
		pgscan.Refusal
		ID int64 `json:"subscription_id"`
	}
	if err := c.act.QueryRow(ctx, addEventSubscription, addEventSubscriptionArgs(p.Request, false)...).Scan(&a); err != nil {
		return err
	}
	recordOne(res, p.Request.Args["recipient"], "created", answer{Refusal: a.Refusal})
	if !a.Refused {
		res.Results[len(res.Results)-1].NewID = strconv.FormatInt(a.ID, 10)
	}
	return nil
}
