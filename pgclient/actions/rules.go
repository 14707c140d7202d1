package actions

// This file plans and applies changes of who reads which events: a new rule, a
// rule muted or heard again. The preview says what it does to the broadcast share.

import (
	"context"
	"fmt"
	"strconv"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func ruleActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActRuleAdd, Words: "subscription add", Group: "Make a rule of who reads which events; mute and unmute one", Key: "N", Panes: []queue.PaneID{queue.PaneRules}, Verb: "Make",
			Help: "make a rule of who reads which events",
			Noun: "rule", Button: "Make the rule", Safe: "Not now", Opposite: queue.ActRuleMute,
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_add(text,text,text,text,text,jsonb,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "recipient", Positional: true, Label: "Recipient", Required: true, Help: "role:NAME, agency:NAME, user:NAME or agent:NAME"},
				{Name: "domain", Label: "Domain", Help: "empty = every domain"},
				{Name: "type", Label: "Type", Help: "empty = every type"},
				{Name: "stream", Label: "Stream", Help: "empty = every stream"},
				{Name: "table", Label: "Subject table", Help: "only events about this table; empty = every one"},
				{Name: "payload", Kind: queue.ArgObject, Label: "Payload", Help: "only events whose payload contains this JSON object; empty = every one"},
			},
		}, plan: planRule, apply: applyRule},
		{Action: queue.Action{
			ID: queue.ActRuleMute, Words: "subscription mute", Key: "D", Panes: []queue.PaneID{queue.PaneRules}, Verb: "Mute",
			Help: "let a rule count as absent; what it alone reached goes to broadcast",
			Noun: "rule", Button: "Mute rule {targets}", Opposite: queue.ActRuleUnmute, Targets: queue.Targets{Name: "RULE", List: "subscriptions"},
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planMute, apply: applyMute},
		{Action: queue.Action{
			ID: queue.ActRuleUnmute, Words: "subscription unmute", Key: "D", Panes: []queue.PaneID{queue.PaneRules}, Verb: "Unmute",
			Help: "let a muted rule count again",
			Noun: "rule", Button: "Unmute rule {targets}", Opposite: queue.ActRuleMute, Targets: queue.Targets{Name: "RULE", List: "subscriptions"},
			Danger: queue.DangerOne, Function: "public.fn_event_subscription_mute(bigint,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planMute, apply: applyMute},
	}
}

// shareWith reads the share of all as it is and, with a rule's number, as it
// would be with that rule muted, or heard.
func (c *Planner) shareWith(ctx context.Context, flip int64) (events, broadcast int64, err error) {
	err = c.act.QueryRow(ctx, "SELECT COALESCE(sum(b.events), 0)::bigint, COALESCE(sum(b.broadcast), 0)::bigint FROM public.fn_event_broadcast($1::bigint) b", flip).Scan(&events, &broadcast)
	return events, broadcast, err
}

func percentWords(broadcast, events int64) string {
	if events == 0 {
		return "no event in 24 h"
	}
	return fmt.Sprintf("%.2f %% (%d of %d in 24 h)", 100*float64(broadcast)/float64(events), broadcast, events)
}

// eventRuleWords is a rule in one line.
func eventRuleWords(s queue.EventSubscription) string {
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

func ruleID(r queue.Request) (int64, error) {
	if id, err := strconv.ParseInt(r.Targets[0], 10, 64); err == nil && id > 0 {
		return id, nil
	}
	return 0, queue.NewError(queue.KindUsage, "name one rule by its number", "", "qtop subscriptions lists them")
}

func planMute(ctx context.Context, c *Planner, p *queue.Plan) error {
	id, err := ruleID(p.Request)
	if err != nil {
		return err
	}
	mute := p.Request.Action == queue.ActRuleMute
	found, err := pgrow.All[queue.EventSubscription](ctx, c.act, "SELECT "+pgrow.EventRuleColumns+" FROM public.event_subscription s WHERE s.subscription_id = $1", id)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return refuse(p, "not_found", fmt.Sprintf("there is no subscription %d", id))
	}
	s := found[0]
	if s.Mute == mute {
		return refuse(p, "unchanged", fmt.Sprintf("subscription %d is %s already", id, map[bool]string{true: "muted", false: "not muted"}[mute]))
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
	p.Lines = append(p.Lines, line("rule", "%d, %s", id, s.Recipient), line("reads", "%s", eventRuleWords(s)),
		line("broadcast", "%s", percentWords(now, events)), line("then", "%s", percentWords(then, events)))
	return nil
}

// applyMute changes the rule if it still stands as the plan saw it: the function
// refuses what somebody else has changed meanwhile.
func applyMute(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id, err := ruleID(p.Request)
	if err != nil {
		return err
	}
	mute := p.Request.Action == queue.ActRuleMute
	return c.does(ctx, res, p.Request.Targets[0], map[bool]string{true: "muted", false: "unmuted"}[mute], "SELECT public.fn_event_subscription_mute($1::bigint, $2::boolean, $3::text, $4::text, false)", id, mute, p.Request.Actor, p.Request.Reason)
}

const ruleAdd = `SELECT public.fn_event_subscription_add($1::text, NULLIF($2, ''), NULLIF($3, ''), NULLIF($4, ''), NULLIF($5, ''), NULLIF($6, '')::jsonb, $7::text, $8::text, $9::boolean)`

func ruleAddArgs(r queue.Request, dry bool) []any {
	return []any{r.Args["recipient"], r.Args["domain"], r.Args["type"], r.Args["stream"], r.Args["table"], r.Args["payload"], r.Actor, r.Reason, dry}
}

func planRule(ctx context.Context, c *Planner, p *queue.Plan) error {
	a, err := c.ask(ctx, ruleAdd, ruleAddArgs(p.Request, true)...)
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
		upTo = "up to " // the counts know domain and type
	}
	p.Lines = append(p.Lines, line("recipient", "%s", args["recipient"]), line("reads", "%s", eventRuleWords(s)), line("at step", "%d", s.Step()),
		line("then reaches", "%s%d events of %d types that went to broadcast in 24 h", upTo, broadcast, types))
	return nil
}

func applyRule(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var a struct {
		pgscan.Refusal
		ID int64 `json:"subscription_id"`
	}
	if err := c.act.QueryRow(ctx, ruleAdd, ruleAddArgs(p.Request, false)...).Scan(&a); err != nil {
		return err
	}
	one(res, p.Request.Args["recipient"], "created", answer{Refusal: a.Refusal})
	if !a.Refused {
		res.Results[len(res.Results)-1].NewID = strconv.FormatInt(a.ID, 10)
	}
	return nil
}
