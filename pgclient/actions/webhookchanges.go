package actions

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// Probe sends one test request to a URL, as a worker host would send a delivery of the
// subscription, signed with the secret named secretRef ("" = unsigned). clockAhead is how far the
// clock of the database server, by which the request is signed, is ahead of this machine's. Probe
// returns an error if nothing was sent; a refusal by the receiver is an answer.
type Probe func(ctx context.Context, url, secretRef string, subscription int64, clockAhead time.Duration) (ProbeAnswer, error)

// ProbeAnswer is the answer to a test request.
type ProbeAnswer struct {
	Delivered bool   // the receiver answered 2xx
	Answer    string // what it answered, in one line, such as HTTP_204 or TIMEOUT
	Took      time.Duration
}

func webhookChanges() []entry {
	one := queue.Targets{Name: "SUBSCRIPTION", List: "webhooks", Of: "endpoint"}
	many := one
	many.Many = true
	activate := queue.Action{Noun: "webhook subscription", Targets: many, Danger: queue.DangerMany, Reason: true, Role: "subscription_admin",
		Function: "public.fn_webhook_subscription_activate(bigint,boolean,text,text,boolean)"}
	off, on := activate, activate
	off.ID, off.Words, off.Verb, off.Opposite = queue.ActWebhookOff, "webhook disable", "Disable", queue.ActWebhookOn
	off.Help = "stop a webhook subscription until it is enabled: waiting deliveries wait, and events of the meantime are never delivered to it"
	off.Example = "qtop webhook disable 7 --reason 'customer has left'"
	on.ID, on.Words, on.Verb, on.Opposite = queue.ActWebhookOn, "webhook enable", "Enable", queue.ActWebhookOff
	on.Help = "let a disabled webhook subscription get deliveries again; those that waited are sent"
	on.Example = "qtop webhook enable 7 --reason 'customer is back'"
	return []entry{
		{Action: queue.Action{
			ID: queue.ActWebhookVerify, Words: "webhook verify", Example: "qtop webhook verify 7 --reason 'new receiver'", Verb: "Send the test",
			Help: "send a signed test request from here, and mark the webhook subscription as verified if the answer is 2xx",
			Noun: "webhook subscription", Opposite: queue.ActWebhookOff, Title: "Verify a webhook subscription", Button: "Send the test request", Targets: one,
			Danger: queue.DangerOne, Function: "public.fn_webhook_subscription_verified(bigint,boolean,text,boolean,text,text,timestamptz)", Role: "subscription_admin", Reason: true,
		}, plan: planWebhookVerify, apply: applyWebhookVerify},
		{Action: queue.Action{
			ID: queue.ActWebhookRotate, Words: "webhook rotate-secret", Example: "qtop webhook rotate-secret 7 --secret acme-2026 --reason 'yearly rotation'", Verb: "Rotate",
			Key: "E", Panes: []queue.PaneID{queue.PaneWebhooks}, Hint: "secret",
			Help: "sign the deliveries of a webhook subscription with another secret, once every live host can sign with it",
			Noun: "secret", Undo: "run it again with the old secret", Title: "Rotate the secret of a webhook subscription", Button: "Sign with {secret}", Targets: one,
			Danger: queue.DangerOne, Function: "public.fn_webhook_secret_rotate(bigint,text,text,text,boolean,text)", Role: "subscription_admin", Reason: true,
			Args: []queue.Arg{{Name: "secret", Label: "Secret", Kind: queue.ArgWord, Required: true, Help: "the hosts' name for the new secret (--delivery-secrets NAME=env:VARIABLE)"}},
		}, plan: planWebhookRotate, apply: applyWebhookRotate},
		{Action: queue.Action{
			ID: queue.ActWebhookLimit, Words: "webhook limit", Example: "qtop webhook limit 7 --per-second 20 --reason 'receiver is overloaded'", Verb: "Limit",
			Key: "M", Panes: []queue.PaneID{queue.PaneWebhooks},
			Help: "limit how many requests per second a webhook subscription gets from all hosts together, or lift its limit",
			Noun: "webhook subscription", Undo: "set it back", Title: "Set the rate limit of a webhook subscription", Button: "Set the limit", Targets: one,
			Danger: queue.DangerOne, Function: "public.fn_webhook_rate_limit_set(bigint,double precision,text,text,boolean,double precision)", Role: "subscription_admin", Reason: true,
			Args: []queue.Arg{{Name: "per-second", Label: "Per second", Kind: queue.ArgNumber, Min: 0.00001, Max: 1_000_000, Or: noLimit, Required: true, Help: "none = no limit; or requests, 0.00001 to 1000000"}},
		}, plan: planWebhookLimit, apply: applyWebhookLimit},
		{Action: off, plan: planWebhookActivate, apply: applyWebhookActivate},
		{Action: on, plan: planWebhookActivate, apply: applyWebhookActivate},
	}
}

// webhookChange is what the functions that change one webhook subscription return.
type webhookChange struct {
	answer
	ID      int64      `json:"subscription_id"`
	Type    queue.Text `json:"event_type"`
	URL     queue.Text `json:"callback_url"`
	Waiting int64      `json:"waiting"`
	Before  string     `json:"before"`
	Hosts   []string   `json:"hosts"`
}

func (c *Planner) activate(ctx context.Context, r queue.Request, target string, dry bool) (a webhookChange, err error) {
	id, err := parseid.Subscription(target)
	if err != nil {
		return a, err
	}
	err = c.act.QueryRow(ctx, "SELECT public.fn_webhook_subscription_activate($1::bigint, $2::boolean, $3::text, $4::text, $5::boolean)",
		id, r.Action == queue.ActWebhookOn, r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planWebhookActivate(ctx context.Context, c *Planner, p *queue.Plan) error {
	var err error
	if p.Request.Targets, err = subscriptionNumbers(p.Request.Targets); err != nil {
		return err
	}
	on := p.Request.Action == queue.ActWebhookOn
	var targets []string
	var subscriptions []int64
	for _, t := range p.Request.Targets {
		a, err := c.activate(ctx, p.Request, t, true)
		if err != nil {
			return err
		}
		out := queue.Outcome{ID: t, Outcome: queue.Choose(on, "would_enable", "would_disable")}
		if a.Refused {
			out.Outcome, out.Why = "refused", queue.Clean(a.Reason)
		}
		if verdict(p, "subscription "+t, out) {
			continue
		}
		targets, subscriptions = append(targets, t), append(subscriptions, a.ID)
		p.Lines = append(p.Lines, line("subscription", "%d, %s to %s", a.ID, a.Type, a.URL), line("waiting", "%s", queue.Plural(a.Waiting, "delivery", "deliveries")))
	}
	if p.Count == 0 {
		return refuse(p, "refused", p.Results[0].Why.String())
	}
	p.Request.Targets = targets
	addLine(p, "then", "%s", queue.Choose(on, "events written from then on are delivered, and waiting deliveries are sent",
		"events of the meantime are never delivered to it (qtop endpoint suspend keeps them), and waiting deliveries wait; no attempt is used up"))
	if on {
		return c.blockedHooks(ctx, p, allOf, []string{gateInactive}, subscriptions)
	}
	return nil
}

func applyWebhookActivate(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	for _, t := range p.Request.Targets {
		a, err := c.activate(ctx, p.Request, t, false)
		if err != nil {
			return err
		}
		recordOne(res, t, queue.Choose(p.Request.Action == queue.ActWebhookOn, "enabled", "disabled"), a.answer)
	}
	return nil
}

func (c *Planner) rotate(ctx context.Context, r queue.Request, dry bool, expect *string) (a webhookChange, err error) {
	id, err := parseid.Subscription(r.Targets[0])
	if err != nil {
		return a, err
	}
	err = c.act.QueryRow(ctx, "SELECT public.fn_webhook_secret_rotate($1::bigint, $2::text, $3::text, $4::text, $5::boolean, $6::text)",
		id, r.Args["secret"], r.Actor, r.Reason, dry, expect).Scan(&a)
	return a, err
}

func planWebhookRotate(ctx context.Context, c *Planner, p *queue.Plan) error {
	a, err := c.rotate(ctx, p.Request, true, nil)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Expect = 1, a.Before
	p.Lines = append(p.Lines, line("subscription", "%d, %s to %s", a.ID, a.Type, a.URL),
		line("now", "%s", queue.Choose(a.Before == "", "unsigned", "signed with "+a.Before)), line("then", "signed with %s, also waiting deliveries", p.Request.Args["secret"]))
	for _, h := range a.Hosts {
		addLine(p, "host", "%s can sign with it", h)
	}
	return nil
}

func applyWebhookRotate(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := c.rotate(ctx, p.Request, false, &p.Expect)
	if err == nil {
		recordOne(res, p.Request.Targets[0], "rotated", a.answer)
	}
	return err
}

// noLimit is the value of the argument per-second that lifts a rate limit.
const noLimit = "none"

// perSecond returns a rate limit as the argument per-second has it; nil = no limit.
func perSecond(limit *float64) string {
	if limit == nil {
		return noLimit
	}
	return strconv.FormatFloat(*limit, 'f', -1, 64)
}

// limitWords describes a rate limit in a preview.
func limitWords(limit *float64) string {
	return queue.Choose(limit == nil, "no limit", perSecond(limit)+"/s over all hosts")
}

// limitChange is what the function that sets a rate limit returns.
type limitChange struct {
	webhookChange
	Before *float64 `json:"before"` // nil = no limit
	After  *float64 `json:"after"`
}

// raises reports whether more deliveries may be sent than before.
func (a limitChange) raises() bool {
	return a.Before != nil && (a.After == nil || *a.After > *a.Before)
}

// limit calls the function that sets a rate limit. expect is the limit that the preview saw, 0 = no
// limit; nil = whatever it is.
func (c *Planner) limit(ctx context.Context, r queue.Request, dry bool, expect *float64) (a limitChange, err error) {
	id, err := parseid.Subscription(r.Targets[0])
	if err != nil {
		return a, err
	}
	to, err := limitOf(r.Args["per-second"])
	if err != nil {
		return a, err
	}
	err = c.act.QueryRow(ctx, "SELECT public.fn_webhook_rate_limit_set($1::bigint, $2::double precision, $3::text, $4::text, $5::boolean, $6::double precision)",
		id, to, r.Actor, r.Reason, dry, expect).Scan(&a)
	return a, err
}

// limitOf returns the rate limit that a value of the argument per-second means; nil = no limit.
func limitOf(value string) (*float64, error) {
	if value == noLimit {
		return nil, nil
	}
	n, err := strconv.ParseFloat(value, 64)
	return &n, err
}

func planWebhookLimit(ctx context.Context, c *Planner, p *queue.Plan) error {
	a, err := c.limit(ctx, p.Request, true, nil)
	if err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Expect = 1, perSecond(a.Before)
	setBack(p, map[string]string{"per-second": p.Expect})
	p.Lines = append(p.Lines, line("subscription", "%d, %s to %s", a.ID, a.Type, a.URL), line("now", "%s", limitWords(a.Before)),
		line("then", "%s, also for waiting deliveries", limitWords(a.After)))
	waiting := queue.Plural(a.Waiting, "delivery", "deliveries")
	if a.After != nil && a.Waiting > 0 {
		waiting += ": at this rate at least " + queue.Span(int64(math.Ceil(float64(a.Waiting) / *a.After)))
	}
	addLine(p, "waiting", "%s", waiting)
	if !a.raises() {
		return nil
	}
	slow, err := pgrow.Column[float64](ctx, c.act, "SELECT u.usual_rate FROM public.fn_webhook_usual_rates(ARRAY[$1::bigint]) u WHERE u.slow_start", a.ID)
	if err != nil {
		return err
	}
	for _, rate := range slow {
		addLine(p, "slow start", "%.3g/s at first, doubled every 10 s while it delivers", rate)
	}
	return c.blockedHooks(ctx, p, allOf, nil, []int64{a.ID})
}

func applyWebhookLimit(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	expect, err := limitOf(p.Expect)
	if err != nil {
		return err
	}
	if expect == nil {
		expect = new(float64)
	}
	a, err := c.limit(ctx, p.Request, false, expect)
	if err == nil {
		recordOne(res, p.Request.Targets[0], "limit set", a.answer)
	}
	return err
}

// probed has the columns of a webhook subscription that are read before a test request and compared
// after it.
type probed struct {
	ID        int64     `json:"id"`
	URL       string    `json:"-"`
	Secret    string    `json:"-"`
	UpdatedAt time.Time `json:"updated_at"`
	verified  bool
	kind      queue.Text
	shown     queue.Text // the URL without parts that may be secret
}

// probed reads the subscription to which a test request goes. This needs the right to read the URL,
// which subscription_admin has.
func (c *Planner) probed(ctx context.Context, target string) (x probed, err error) {
	x.ID, err = parseid.Subscription(target)
	if err != nil {
		return x, err
	}
	err = c.act.QueryRow(ctx, "SELECT s.callback_url, COALESCE(s.secret_ref, ''), s.verified, s.event_type, public.fn_webhook_url(s.id), s.updated_at FROM public.subscriptions s WHERE s.id = $1::bigint", x.ID).
		Scan(&x.URL, &x.Secret, &x.verified, &x.kind, &x.shown, &x.UpdatedAt)
	return x, err
}

func planWebhookVerify(ctx context.Context, c *Planner, p *queue.Plan) error {
	x, err := c.probed(ctx, p.Request.Targets[0])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(p, "not_found", "there is no webhook subscription "+p.Request.Targets[0]+": see qtop webhooks")
	case err != nil:
		return err
	case c.probe == nil:
		return refuse(p, "no_probe", "this process has no settings for sending (secrets, networks): use qtop webhook verify")
	}
	expect, err := json.Marshal(x)
	if err != nil {
		return err
	}
	p.Count, p.Expect = 1, string(expect)
	p.Lines = append(p.Lines, line("subscription", "%d, %s to %s", x.ID, x.kind, x.shown),
		line("sends", "one POST from here, %s", queue.Choose(x.Secret == "", "unsigned", "signed with "+x.Secret)),
		line("now", "%s", queue.Choose(x.verified, "verified", "not verified: it gets no deliveries")), line("then", "verified, if the answer is 2xx; else nothing is changed"))
	if !x.verified {
		return c.blockedHooks(ctx, p, allOf, []string{gateUnverified}, []int64{x.ID})
	}
	return nil
}

func applyWebhookVerify(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	x, err := c.probed(ctx, p.Request.Targets[0])
	if err != nil {
		return err
	}
	var seen probed
	if err := json.Unmarshal([]byte(p.Expect), &seen); err != nil {
		return err
	}
	const report = "SELECT public.fn_webhook_subscription_verified($1::bigint, $2::boolean, $3::text, $4::boolean, $5::text, $6::text, $7::timestamptz)"
	if !x.UpdatedAt.Equal(seen.UpdatedAt) { // checked first, so that nothing is sent to a URL that the preview did not show
		a, err := c.call(ctx, report, x.ID, false, "", false, p.Request.Actor, p.Request.Reason, seen.UpdatedAt)
		if err == nil {
			a.Reason = "the webhook subscription was changed since the preview: plan the change again"
			recordOne(res, p.Request.Targets[0], "", a)
		}
		return err
	}
	asked := time.Now()
	var at time.Time
	if err := c.act.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at); err != nil {
		return pgerror.Translate(err)
	}
	got, err := c.probe(ctx, x.URL, x.Secret, x.ID, at.Sub(asked))
	if err != nil {
		return err
	}
	a, err := c.call(ctx, report, x.ID, got.Delivered, got.Answer, x.Secret != "", p.Request.Actor, p.Request.Reason, x.UpdatedAt)
	if err == nil {
		recordOne(res, p.Request.Targets[0], "verified", a)
		if !a.Refused {
			res.Results[len(res.Results)-1].Why = queue.Clean(got.Answer + " after " + queue.DurationText(got.Took.Round(time.Millisecond)))
		}
	}
	return err
}
