package actions

// This file plans and applies a rule of what an executor may claim, turns one off
// and on, and says which work waits for an executor.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func subscribeActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActJobSubscribe, Words: "executor subscribe", Key: "E", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Save", Undo: "save it again as it was, or with enabled=false",
			Help:  "make or change what an executor may claim",
			Title: "What an executor may claim", Button: "Save for {targets}", Hint: "may claim", Targets: queue.Targets{Name: "ID", Of: "executor"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "kind", Label: "Job kind", Help: "empty = every kind"},
				{Name: "domain", Label: "Domain", Help: "empty = every domain"},
				{Name: "floor", Kind: queue.ArgWhole, Min: math.MinInt16, Max: math.MaxInt16, Label: "Priority floor", Default: "0", Required: true, Help: "jobs of this priority or higher"},
				{Name: "parallel", Kind: queue.ArgWhole, Min: 1, Max: 1_000_000, Label: "At once", Default: "1", Required: true, Help: "jobs it may hold at once, over all its hosts"},
				{Name: "enabled", Kind: queue.ArgSwitch, Label: "Enabled", Default: "true", Required: true},
				{Name: "notes", Clears: true, Label: "Notes"},
			},
		}, fill: fillRule, plan: planSubscribe, apply: applySubscribe},
		{Action: queue.Action{
			ID: queue.ActJobRuleOff, Words: "executor disable", Key: "D", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Disable",
			Help: "disable a rule of what an executor may claim; what it has claimed stays with it",
			Noun: "rule", Opposite: queue.ActJobRuleOn, Targets: queue.Targets{Name: "RULE"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planRuleTurn, apply: applySubscribe},
		{Action: queue.Action{
			ID: queue.ActJobRuleOn, Words: "executor enable", Key: "D", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Enable",
			Help: "enable a rule of what an executor may claim",
			Noun: "rule", Opposite: queue.ActJobRuleOff, Targets: queue.Targets{Name: "RULE"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planRuleTurn, apply: applySubscribe},
	}
}

// executorWaits says why an executor cannot go: jobs that it holds, or that wait
// and that its rules admit; the empty text where nothing waits. The database
// asks the same when it is done.
func (c *Planner) executorWaits(ctx context.Context, id string) (string, error) {
	var held, waits int64
	err := c.act.QueryRow(ctx, `SELECT COALESCE((SELECT sum(l.live) FROM public.job_lease l WHERE l.lease_owner = $1), 0)::bigint,
		COALESCE((SELECT sum(b.queued + b.retry_waiting) FROM public.fn_job_backlog() b WHERE EXISTS (
			SELECT 1 FROM public.job_subscription s WHERE s.executor_id = $1 AND s.enabled
				AND (s.job_kind IS NULL OR s.job_kind = b.job_kind) AND (s.event_domain IS NULL OR s.event_domain = b.event_domain))), 0)::bigint`, id).
		Scan(&held, &waits)
	switch {
	case err != nil:
		return "", err
	case held > 0:
		return fmt.Sprintf("%s holds %d jobs: let it drain, or cancel them", id, held), nil
	case waits > 0:
		return fmt.Sprintf("%d jobs wait that its subscriptions admit: disable those first", waits), nil
	}
	return "", nil
}

// rule is a row of job_subscription as the schema's function shows it.
type rule struct {
	ID           string     `json:"subscription_id"`
	ExecutorKind string     `json:"executor_kind"`
	Floor        int        `json:"priority_floor"`
	Parallel     int        `json:"max_parallel"`
	Enabled      bool       `json:"enabled"`
	Notes        string     `json:"notes"`
	UpdatedAt    *time.Time `json:"updated_at"`
	UpdatedBy    string     `json:"updated_by"`
}

func (r *rule) String() string {
	if r == nil {
		return "no such rule"
	}
	state := "disabled"
	if r.Enabled {
		state = "enabled"
	}
	s := fmt.Sprintf("%s, priority %d or higher, %d at once", state, r.Floor, r.Parallel)
	if r.Notes != "" {
		s += ", notes " + strconv.Quote(r.Notes)
	}
	return s
}

type ruleAnswer struct {
	pgscan.Refusal
	Created bool  `json:"created"`
	Before  *rule `json:"before"`
	After   *rule `json:"after"`
}

// noRule is Plan.Expect where there was no such rule.
const noRule = "none"

// ruleArguments reads what a subscription says.
func ruleArguments(r queue.Request) ([]any, error) {
	floor, err := strconv.Atoi(r.Args["floor"])
	if err != nil {
		return nil, err
	}
	parallel, err := strconv.Atoi(r.Args["parallel"])
	if err != nil {
		return nil, err
	}
	return []any{
		r.Targets[0], r.Args["kind"], r.Args["domain"], floor, parallel, r.Args["enabled"] == "true",
		r.Args["notes"], r.Actor, r.Reason,
	}, nil
}

const ruleSet = `SELECT public.fn_job_subscription_set($1::text, NULLIF($2, ''), NULLIF($3, ''), $4::bigint::int, $5::bigint::int, $6::boolean, NULLIF($7, ''), $8::text, $9::text, $10::boolean)`

func planSubscribe(ctx context.Context, c *Planner, p *queue.Plan) error {
	args, err := ruleArguments(p.Request)
	if err != nil {
		return err
	}
	var a ruleAnswer
	if err := c.act.QueryRow(ctx, ruleSet, append(args, true)...).Scan(&a); err != nil {
		return pgerror.JobCheck(err)
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count, p.Expect = 1, noRule
	if a.Before != nil && a.Before.UpdatedAt != nil {
		p.Expect = a.Before.UpdatedAt.UTC().Format(time.RFC3339Nano)
	}
	p.Lines = append(p.Lines, line("executor", "%s (%s)", p.Request.Targets[0], a.After.ExecutorKind),
		line("for", "%s in %s", orEvery(p.Request.Args["kind"], "every kind"), orEvery(p.Request.Args["domain"], "every domain")),
		line("before", "%s", a.Before), line("after", "%s", a.After))
	return c.governs(ctx, p, a.After)
}

// planRuleTurn plans a disable or an enable as the edit that it is: the rule, named
// by its id, saved as it stands but for that. The request becomes the edit's.
func planRuleTurn(ctx context.Context, c *Planner, p *queue.Plan) error {
	bad := queue.NewError(queue.KindUsage, "name one rule by its id", "", "qtop executor subscriptions lists them")

	var id pgtype.UUID
	if id.Scan(p.Request.Targets[0]) != nil {
		return bad
	}
	on := p.Request.Action == queue.ActJobRuleOn
	var executor, kind, domain string
	var enabled bool
	err := c.act.QueryRow(ctx, `SELECT s.executor_id, COALESCE(s.job_kind, ''), COALESCE(s.event_domain, ''), s.enabled
		FROM public.job_subscription s WHERE s.subscription_id = $1`, id).Scan(&executor, &kind, &domain, &enabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(p, "not_found", "there is no rule "+p.Request.Targets[0])
	case err != nil:
		return err
	case enabled == on:
		return refuse(p, "unchanged", fmt.Sprintf("the rule of %s is %s already", executor, map[bool]string{true: "enabled", false: "disabled"}[on]))
	}
	p.Request.Action, p.Request.Targets = queue.ActJobSubscribe, []string{executor}
	p.Request.Args = map[string]string{"kind": kind, "domain": domain, "enabled": strconv.FormatBool(on)}
	if err := fillRule(ctx, c, p.Request); err != nil {
		return err
	}
	return planSubscribe(ctx, c, p)
}

// fillRule gives what the request leaves out the value that the rule has, if
// there is one.
func fillRule(ctx context.Context, c *Planner, r queue.Request) error {

	var floor, parallel int64
	var enabled bool
	var notes string
	err := c.act.QueryRow(ctx, `SELECT s.priority_floor, s.max_parallel, s.enabled, COALESCE(s.notes, '') FROM public.job_subscription s
		WHERE s.executor_id = $1 AND s.job_kind IS NOT DISTINCT FROM NULLIF($2, '') AND s.event_domain IS NOT DISTINCT FROM NULLIF($3, '')`,
		r.Targets[0], r.Args["kind"], r.Args["domain"]).Scan(&floor, &parallel, &enabled, &notes)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"floor": strconv.FormatInt(floor, 10), "parallel": strconv.FormatInt(parallel, 10), "enabled": strconv.FormatBool(enabled), "notes": notes,
	} {
		if _, given := r.Args[name]; !given && value != "" {
			r.Args[name] = value
		}
	}
	return nil
}

func orEvery(name, every string) string {
	if name == "" {
		return every
	}
	return name
}

// governs says for which lanes the rule is the most specific one of its executor,
// and how many jobs wait there that it admits.
func (c *Planner) governs(ctx context.Context, p *queue.Plan, r *rule) error {
	type lane struct {
		Kind, Domain string
		Mine         bool
		N            int64
	}
	lanes, err := pgrow.All[lane](ctx, c.act, `WITH lane AS (
			SELECT DISTINCT l.event_domain, l.job_kind FROM public.job_lane l
			WHERE ($2 = '' OR l.job_kind = $2) AND ($3 = '' OR l.event_domain = $3)
		), told AS (
			SELECT l.*, NOT EXISTS (SELECT 1 FROM public.job_subscription s WHERE s.executor_id = $1 AND s.enabled
				AND (s.job_kind IS NULL OR s.job_kind = l.job_kind) AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
				AND (s.job_kind IS NULL, s.event_domain IS NULL) < ($2 = '', $3 = '')) AS mine FROM lane l
		)
		SELECT t.job_kind, t.event_domain, t.mine, COALESCE(w.n, 0) FROM told t LEFT JOIN LATERAL (SELECT count(*) AS n FROM (
			SELECT 1 FROM public.job_queue q WHERE q.event_domain = t.event_domain AND q.job_kind = t.job_kind AND q.priority >= $5
				AND q.status IN ('queued', 'retry_waiting') AND q.executor = $4 LIMIT $6) x) w ON t.mine
		ORDER BY 4 DESC, 1, 2`, p.Request.Targets[0], p.Request.Args["kind"], p.Request.Args["domain"], r.ExecutorKind, r.Floor, filtersql.CountBound)
	if err != nil {
		return err
	}
	var mine, other []string
	var waits int64
	bound := ""

	for _, x := range lanes {
		name := fmt.Sprintf("%s (%s)", x.Kind, x.Domain)
		if !x.Mine {
			other = append(other, name)
			continue
		}
		mine = append(mine, name)
		if waits += x.N; x.N == filtersql.CountBound {
			bound = "≥"
		}
	}
	switch {
	case len(lanes) == 0:
		say(p, "governs", "nothing yet: there was never such a job")
	case !r.Enabled:
		say(p, "governs", "nothing while it is disabled: a less specific rule that is enabled takes its place")
	case len(mine) == 0:
		say(p, "governs", "nothing: more specific rules govern %s", first(other))
	default:
		say(p, "governs", "%s", first(mine))
		if len(other) > 0 {
			say(p, "but not", "%s: more specific rules govern there", first(other))
		}
	}
	what := "jobs wait that it admits"
	if !r.Enabled {
		what = "jobs wait that it would admit"
	}
	say(p, "waiting", "%s%d %s", bound, waits, what)
	return nil
}

// first names up to five, and how many there are beyond.
func first(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}

// applySubscribe saves the rule if it still stands as the plan saw it.
func applySubscribe(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	args, err := ruleArguments(p.Request)
	if err != nil {
		return err
	}
	errMoved := errors.New("the rule was changed")
	id := p.Request.Targets[0]
	var a ruleAnswer
	var by string
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		now := noRule
		var at time.Time
		err := tx.QueryRow(ctx, `SELECT s.updated_at, COALESCE(s.updated_by, s.registered_by) FROM public.job_subscription s WHERE s.executor_id = $1
			AND s.job_kind IS NOT DISTINCT FROM NULLIF($2, '') AND s.event_domain IS NOT DISTINCT FROM NULLIF($3, '') FOR UPDATE`, args[:3]...).Scan(&at, &by)
		switch {
		case err == nil:
			now = at.UTC().Format(time.RFC3339Nano)
		case !errors.Is(err, pgx.ErrNoRows):
			return err
		}
		if p.Expect != "" && p.Expect != now {
			return errMoved
		}
		if err := tx.QueryRow(ctx, ruleSet, append(args, false)...).Scan(&a); err != nil {
			return err
		}
		if p.Expect == noRule && !a.Refused && !a.Created { // somebody made it between the two statements
			by = a.Before.UpdatedBy
			return errMoved
		}
		return nil
	})
	done := "changed"
	switch {
	case errors.Is(err, errMoved):
		a.Refused, a.AuditID, a.Reason = true, 0, "the rule was changed meanwhile, last by "+orEvery(by, "nobody who is known")+": look again"
	case err != nil:
		return err
	case a.Created:
		done = "created"
	}
	one(res, id, done, answer{Refusal: a.Refusal})
	return nil
}
