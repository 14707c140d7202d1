package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

func endpointActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActSuspend, Words: "endpoint suspend", Example: "qtop endpoint suspend 7 --for 30m --reason 'receiver is deploying'", Group: "Suspend or resume a webhook subscription", Key: "D", Panes: []queue.PaneID{queue.PaneWebhooks}, Verb: "Suspend",
			Help:     "send nothing to an endpoint until it is resumed, or for a limited time; waiting deliveries use up no attempts (where the circuit is open, D closes it: there type :endpoint suspend)",
			Opposite: queue.ActResume, Targets: queue.Targets{Name: "SUBSCRIPTION", Many: true, List: "webhooks", Of: "endpoint"},
			Danger: queue.DangerMany, Function: "public.fn_endpoint_suspend(bigint,text,text,interval)", Role: "dead_letter_operator", Reason: true,
			Args: []queue.Arg{{Name: "for", Kind: queue.ArgDuration, Label: "For", Help: "resumed automatically after this time, such as 30m or 2h", Empty: "until an operator resumes it"}},
		}, plan: planGate, apply: applyGate},
		{Action: queue.Action{
			ID: queue.ActResume, Words: "endpoint resume", Example: "qtop endpoint resume 7 --reason 'deploy is over'", Key: "D", Panes: []queue.PaneID{queue.PaneWebhooks}, Verb: "Resume",
			Help:     "lift a suspension or close a circuit; waiting deliveries are sent at a rate that rises step by step",
			Opposite: queue.ActSuspend, Targets: queue.Targets{Name: "SUBSCRIPTION", Many: true, List: "webhooks", Of: "endpoint"},
			Danger: queue.DangerMany, Function: "public.fn_endpoint_resume(bigint,text,text,timestamptz)", Role: "dead_letter_operator", Reason: true,
		}, plan: planGate, apply: applyGate},
	}
}

// gate is the state that decides whether the deliveries of a subscription are sent.
type gate struct {
	id              int64
	endpoint        queue.Text
	gate            string
	waiting, leased int64
	reason, by      queue.Text
	since, until    *time.Time
	lastSuccess     *time.Time
	lastCode        queue.Text
	failures        int
}

func (c *Planner) gateOf(ctx context.Context, id int64) (g gate, err error) {
	err = c.act.QueryRow(ctx, `SELECT v.subscription_id, v.endpoint, v.gate, v.waiting, x.suspended_reason, x.suspended_by, x.suspended_since,
			CASE WHEN isfinite(x.suspended_until) THEN x.suspended_until END, v.last_success_at, v.last_failure_code, COALESCE(v.consecutive_failures, 0),
			(SELECT count(*) FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased' AND j.subscription_id = v.subscription_id)
		FROM public.v_webhook_endpoint v LEFT JOIN public.v_webhook_gate x ON x.subscription_id = v.subscription_id
			AND (x.suspended_reason = 'circuit' OR (x.suspended_until > now()) IS NOT FALSE) -- also of a disabled or unverified one
		WHERE v.subscription_id = $1`, id).
		Scan(&g.id, &g.endpoint, &g.gate, &g.waiting, &g.reason, &g.by, &g.since, &g.until, &g.lastSuccess,
			&g.lastCode, &g.failures, &g.leased)
	return g, err
}

// suspension describes the current suspension: why, by whom, since when and until when.
func (g gate) suspension() string {
	s := fmt.Sprintf("%s by %s since %s", g.reason, g.by, queue.Stamp(*g.since, time.RFC3339))
	if g.until != nil {
		s += " until " + queue.Stamp(*g.until, time.RFC3339)
	}
	return s
}

// suspended reports whether an operator or an HTTP 410 response suspended the endpoint. It
// cannot be suspended again then; an open circuit can be turned into a suspension.
func (g gate) suspended() bool { return g.since != nil && g.reason.String() != "circuit" }

// resumable reports whether there is a suspension or an open circuit to lift.
func (g gate) resumable() bool { return g.since != nil }

func planGate(ctx context.Context, c *Planner, p *queue.Plan) error {
	suspend := p.Request.Action == queue.ActSuspend
	if _, err := gateFor(p.Request); err != nil {
		return err
	}
	var err error
	if p.Request.Targets, err = subscriptionNumbers(p.Request.Targets); err != nil {
		return err
	}
	var targets []string
	var subscriptions []int64
	since := map[string]*time.Time{}
	for _, t := range p.Request.Targets {
		id, err := parseid.Subscription(t)
		if err != nil {
			return err
		}
		g, err := c.gateOf(ctx, id)
		out := queue.Outcome{ID: t, Outcome: "would_" + map[bool]string{true: "suspend", false: "resume"}[suspend]}
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			out.Outcome, out.Why = "refused", queue.Clean("there is no such webhook subscription: see qtop webhooks")
		case err != nil:
			return err
		case suspend && g.suspended():
			out.Outcome, out.Why = "refused", queue.Clean("this webhook subscription is suspended already: "+g.suspension())
		case !suspend && !g.resumable():
			out.Outcome, out.Why = "refused", queue.Clean("this webhook subscription is not suspended")
		}
		if verdict(p, cmp.Or(g.endpoint.String(), "subscription "+t), out) {
			continue
		}
		targets, subscriptions = append(targets, t), append(subscriptions, id)
		since[t] = g.since
		p.Lines = append(p.Lines, g.lines()...)
	}
	if p.Count == 0 {
		return refuse(p, "refused", p.Results[0].Why.String())
	}
	p.Request.Targets = targets
	if expect, err := json.Marshal(since); err == nil {
		p.Expect = string(expect)
	}
	switch {
	case !suspend:
		addLine(p, "then", "waiting deliveries may be sent, and the count of consecutive failures starts at 0")
		if err := c.released(ctx, p, subscriptions); err != nil {
			return err
		}
		return c.blockedHooks(ctx, p, allOf, []string{gateSuspended, gateCircuit}, subscriptions)
	case p.Request.Args["for"] == "":
		addLine(p, "until", "an operator resumes it; waiting deliveries use up no attempts")
	default:
		addLine(p, "for", "%s, then it is resumed automatically; waiting deliveries use up no attempts", p.Request.Args["for"])
	}
	return nil
}

// subscriptionNumbers returns the targets as numbers of webhook subscriptions, each once.
func subscriptionNumbers(targets []string) ([]string, error) {
	numbers := make([]string, len(targets))
	for i, t := range targets {
		id, err := parseid.Subscription(t)
		if err != nil {
			return nil, err
		}
		numbers[i] = strconv.FormatInt(id, 10)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

func (g gate) lines() []queue.PlanLine {
	answers := "never succeeded"
	if g.lastSuccess != nil {
		answers = "last success " + queue.Stamp(*g.lastSuccess, time.RFC3339)
	}
	if g.failures > 0 {
		answers += fmt.Sprintf(", %s (%s)", queue.Plural(g.failures, "consecutive failure", "consecutive failures"), g.lastCode)
	}
	out := []queue.PlanLine{
		line("endpoint", "%s, subscription %d", g.endpoint, g.id), line("waiting", "%s, %d in flight", queue.Plural(g.waiting, "delivery", "deliveries"), g.leased),
		line("results", "%s", answers),
	}
	if g.resumable() {
		out = append(out, line("now", "%s", g.suspension()))
	}
	return out
}

// gateFor returns the duration of a suspension (Args["for"]) in seconds; nil = until an operator
// resumes it.
func gateFor(r queue.Request) (*float64, error) {
	if r.Action != queue.ActSuspend || r.Args["for"] == "" {
		return nil, nil // no duration: until it is resumed
	}
	n, err := queue.Seconds("--for", r.Args["for"])
	if err != nil {
		return nil, err
	}
	secs := float64(n)
	return &secs, nil
}

func applyGate(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	secs, err := gateFor(p.Request)
	if err != nil {
		return err
	}
	since := map[string]*time.Time{}
	if err := json.Unmarshal([]byte(p.Expect), &since); err != nil {
		return err
	}
	for _, t := range p.Request.Targets {
		id, err := parseid.Subscription(t)
		if err != nil {
			return err
		}
		var a answer
		done := "suspended"
		if p.Request.Action == queue.ActSuspend {
			a, err = c.call(ctx, "SELECT public.fn_endpoint_suspend($1::bigint, $2::text, $3::text, make_interval(secs => $4))", id, p.Request.Actor, p.Request.Reason, secs)
		} else {
			done = "resumed"
			a, err = c.call(ctx, "SELECT public.fn_endpoint_resume($1::bigint, $2::text, $3::text, $4::timestamptz)", id, p.Request.Actor, p.Request.Reason, since[t])
		}
		if err != nil {
			return err
		}
		recordOne(res, t, done, a)
	}
	return nil
}
