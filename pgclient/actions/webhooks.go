package actions

import (
	"context"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

func webhookActions() []entry {
	return append([]entry{{Action: queue.Action{
		ID: queue.ActWebhookAdd, Words: "webhook add", Example: "qtop webhook add https://hooks.acme.example/in --types order.paid,order.sent --secret acme --reason 'new customer'", Group: "Add, verify, limit, disable and enable webhook subscriptions, and rotate their secrets", Key: "N", Panes: []queue.PaneID{queue.PaneWebhooks}, Verb: "Add",
		Help: "send events of some types to a URL from now on, signed with a secret or explicitly unsigned",
		Noun: "webhook subscription", Button: "Add the subscription", Safe: "Not now", Opposite: queue.ActWebhookOff, Undo: "disable it under the number that the result shows",
		Danger: queue.DangerOne, Function: "public.fn_webhook_subscription_add(text[],text,text,boolean,text,text,boolean)", Role: "subscription_admin", Reason: true,
		Args: []queue.Arg{
			{Name: "url", Positional: true, Label: "URL", Kind: queue.ArgWord, Required: true, Help: "where events are POSTed, such as https://hooks.acme.example/qtop"},
			{Name: "types", Label: "Event types", Required: true, Help: "separated by commas, such as order.paid,order.sent; one subscription each"},
			{Name: "secret", Label: "Secret", Kind: queue.ArgWord, Help: "the hosts' name for the signing secret (--delivery-secrets NAME=env:VARIABLE)"},
			{Name: "unsigned", Label: "Unsigned", Kind: queue.ArgSwitch, Default: "false", Required: true, Help: "true = no signature: the receiver cannot verify the sender"},
		},
	}, plan: planWebhookAdd, apply: applyWebhookAdd}}, webhookChanges()...)
}

func (c *Planner) webhookAdd(ctx context.Context, r queue.Request, dry bool) (answer, error) {
	return c.call(ctx, `SELECT public.fn_webhook_subscription_add($1::text[], $2::text, NULLIF($3, ''), $4::boolean, $5::text, $6::text, $7::boolean)`,
		partsOf(r.Args["types"]), r.Args["url"], r.Args["secret"], r.Args["unsigned"] == "true", r.Actor, r.Reason, dry)
}

func planWebhookAdd(ctx context.Context, c *Planner, p *queue.Plan) error {
	a, err := c.webhookAdd(ctx, p.Request, true)
	if err != nil {
		return err
	}
	if a.Refused {
		p.Refused, p.Rule = a.Reason, a.Rule
		return nil
	}
	p.Count, p.Results = int64(len(a.Results)), a.outcomes("")
	signed := "with secret " + p.Request.Args["secret"]
	if p.Request.Args["secret"] == "" {
		signed = "no: the receiver cannot verify the sender"
	}
	p.Lines = append(p.Lines, line("URL", "%s", a.URL), line("event types", "%s, from now on", strings.Join(partsOf(p.Request.Args["types"]), ",")), line("signed", "%s", signed))
	return c.blocked(ctx, p, "SELECT 'webhook events', 'webhook events', 1", nil)
}

func applyWebhookAdd(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.webhookAdd(ctx, p.Request, false)
	if err != nil {
		return err
	}
	if a.Refused {
		recordOne(res, p.Request.Args["types"], "", a) // the URL may contain a token
		return nil
	}
	res.AuditID = a.AuditID
	record(res, a.outcomes(""))
	return nil
}
