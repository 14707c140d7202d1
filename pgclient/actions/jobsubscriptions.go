package actions

import (
	"cmp"
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
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func subscribeActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActJobSubscribe, Words: "executor subscribe", Example: "qtop executor subscribe reindex_1 --kind kg.reindex --parallel 4 --reason 'new host'", Key: "E", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Save", Undo: "save the old values, or enabled=false",
			Help:  "create or change a job subscription: which jobs an executor may claim",
			Title: "What an executor may claim", Button: "Save {targets}", Hint: "may claim", Targets: queue.Targets{Name: "ID", Of: "executor"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "kind", Label: "Job kind", Empty: "every kind"},
				{Name: "domain", Label: "Domain", Empty: "every domain"},
				{Name: "floor", Kind: queue.ArgWhole, Min: math.MinInt16, Max: math.MaxInt16, Label: "Priority floor", Default: "0", Required: true, Help: "jobs of this priority or higher"},
				{Name: "parallel", Kind: queue.ArgWhole, Min: 1, Max: 1_000_000, Label: "At once", Default: "1", Required: true, Help: "jobs it may lease at the same time, over all its hosts"},
				{Name: "enabled", Kind: queue.ArgSwitch, Label: "Enabled", Default: "true", Required: true},
				{Name: "notes", Clears: true, Max: 2000, Label: "Notes", Help: "a remark for people, which qtop executor subscriptions shows"},
			},
		}, fill: fillJobSubscription, plan: planSubscribe, apply: applySubscribe},
		{Action: queue.Action{
			ID: queue.ActJobSubscriptionOff, Words: "executor disable", Example: "qtop executor disable 0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11 --reason 'host is overloaded'", Key: "D", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Disable",
			Help: "disable a job subscription; the executor keeps the jobs it already claimed",
			Noun: "job subscription", Opposite: queue.ActJobSubscriptionOn, Targets: queue.Targets{Name: "SUBSCRIPTION", Of: "job subscription"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planEnabled, apply: applySubscribe},
		{Action: queue.Action{
			ID: queue.ActJobSubscriptionOn, Words: "executor enable", Example: "qtop executor enable 0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11 --reason 'host has recovered'", Key: "D", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Enable",
			Help: "enable a job subscription of an executor",
			Noun: "job subscription", Opposite: queue.ActJobSubscriptionOff, Targets: queue.Targets{Name: "SUBSCRIPTION", Of: "job subscription"},
			Danger: queue.DangerOne, Function: "public.fn_job_subscription_set(text,text,text,integer,integer,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planEnabled, apply: applySubscribe},
	}
}

// executorWaits says why an executor cannot be deregistered: it holds jobs, or waiting jobs
// match its job subscriptions; "" if neither. The schema checks this again when the executor
// is deregistered.
func (c *Planner) executorWaits(ctx context.Context, id string) (string, error) {
	var held, waits int64
	err := c.act.QueryRow(ctx, `SELECT COALESCE((SELECT sum(l.live) FROM public.job_lease l WHERE l.lease_owner = $1), 0)::bigint,
		COALESCE((SELECT sum(b.queued + b.retry_waiting) FROM public.fn_job_backlog() b WHERE EXISTS (
			SELECT 1 FROM public.job_subscription s WHERE s.executor_id = $1 AND s.enabled
				AND s.executor_kind = (SELECT h.executor_kind FROM public.queue_heartbeat h WHERE h.executor_id = $1)
				AND (s.job_kind IS NULL OR s.job_kind = b.job_kind) AND (s.event_domain IS NULL OR s.event_domain = b.event_domain))), 0)::bigint`, id).
		Scan(&held, &waits)
	switch {
	case err != nil:
		return "", err
	case held > 0:
		return "executor " + id + " holds " + queue.Choose(held == 1, "1 job: let the job finish, or cancel it",
			fmt.Sprintf("%d jobs: let the jobs finish, or cancel them", held)), nil
	case waits > 0:
		return queue.Plural(waits, "job waits", "jobs wait") + " that job subscriptions of executor " + id + " admit: disable those subscriptions first", nil
	}
	return "", nil
}

// jobSubscription is a row of job_subscription as fn_job_subscription_set returns it.
type jobSubscription struct {
	ID           string     `json:"subscription_id"`
	ExecutorKind string     `json:"executor_kind"`
	Floor        int        `json:"priority_floor"`
	Parallel     int        `json:"max_parallel"`
	Enabled      bool       `json:"enabled"`
	Notes        string     `json:"notes"`
	RegisteredBy string     `json:"registered_by"`
	UpdatedAt    *time.Time `json:"updated_at"`
	UpdatedBy    string     `json:"updated_by"`
}

// seen returns the time of the row's last change, as a text for Plan.Expect.
func (r *jobSubscription) seen() string {
	if r == nil {
		return notFound
	}
	return seenAt(r.UpdatedAt)
}

func (r *jobSubscription) String() string {
	if r == nil {
		return "no such job subscription"
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

type jobSubscriptionAnswer struct {
	pgscan.Refusal
	Created bool             `json:"created"`
	Before  *jobSubscription `json:"before"`
	After   *jobSubscription `json:"after"`
}

// notFound is the value of Plan.Expect if the row did not exist when the plan was made.
const notFound = "none"

// seenAt returns the time of a row's last change, as a text for Plan.Expect; notFound = there is no row.
func seenAt(at *time.Time) string {
	if at == nil {
		return notFound
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// jobSubscriptionArgs returns the arguments of setJobSubscription, without the last (dry run).
func jobSubscriptionArgs(r queue.Request) ([]any, error) {
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

const setJobSubscription = `SELECT public.fn_job_subscription_set($1::text, NULLIF($2, ''), NULLIF($3, ''), $4::bigint::int, $5::bigint::int, $6::boolean, NULLIF($7, ''), $8::text, $9::text, $10::boolean)`

func planSubscribe(ctx context.Context, c *Planner, p *queue.Plan) error {
	args, err := jobSubscriptionArgs(p.Request)
	if err != nil {
		return err
	}
	var a jobSubscriptionAnswer
	if err := c.act.QueryRow(ctx, setJobSubscription, append(args, true)...).Scan(&a); err != nil {
		return err
	}
	if a.Refused {
		return c.refuseNamed(ctx, p, "executor", a.Refusal)
	}
	p.Count, p.Expect = 1, a.Before.seen()
	p.Lines = append(p.Lines, line("executor", "%s (%s)", p.Request.Targets[0], a.After.ExecutorKind),
		line("for", "%s", claims(p.Request)),
		line("before", "%s", a.Before), line("after", "%s", a.After))
	if err := c.governs(ctx, p, a.After); err != nil || !a.After.Enabled {
		return err
	}
	return c.blockedExecutor(ctx, p, p.Request.Targets[0], p.Request.Args["kind"], p.Request.Args["domain"])
}

// planEnabled plans to disable or enable a job subscription, named by its id. It replaces the
// request with one that saves the subscription with only "enabled" changed.
func planEnabled(ctx context.Context, c *Planner, p *queue.Plan) error {
	bad := queue.NewError(queue.KindUsage, strconv.Quote(p.Request.Targets[0])+" is not the id of a job subscription", "", "qtop executor subscriptions lists them")

	var id pgtype.UUID
	if id.Scan(p.Request.Targets[0]) != nil {
		return bad
	}
	on := p.Request.Action == queue.ActJobSubscriptionOn
	var executor, kind, domain string
	var enabled bool
	err := c.act.QueryRow(ctx, `SELECT s.executor_id, COALESCE(s.job_kind, ''), COALESCE(s.event_domain, ''), s.enabled
		FROM public.job_subscription s WHERE s.subscription_id = $1`, id).Scan(&executor, &kind, &domain, &enabled)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refuse(p, "not_found", "there is no job subscription "+p.Request.Targets[0]+"; qtop executor subscriptions lists them")
	case err != nil:
		return err
	case enabled == on:
		return refuse(p, "unchanged", fmt.Sprintf("this job subscription of %s is %s already", executor, map[bool]string{true: "enabled", false: "disabled"}[on]))
	}
	p.Request.Action, p.Request.Targets = queue.ActJobSubscribe, []string{executor}
	p.Request.Args = map[string]string{"kind": kind, "domain": domain, "enabled": strconv.FormatBool(on)}
	if err := fillJobSubscription(ctx, c, p.Request); err != nil {
		return err
	}
	return planSubscribe(ctx, c, p)
}

// fillJobSubscription sets the arguments that the request leaves out to the current values of
// the subscription, if it exists.
func fillJobSubscription(ctx context.Context, c *Planner, r queue.Request) error {

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

// claims says which jobs a subscription is about.
func claims(r queue.Request) string {
	return orEvery(r.Args["kind"], "every kind") + " in " + orEvery(r.Args["domain"], "every domain")
}

func orEvery(name, every string) string {
	if name == "" {
		return every
	}
	return name
}

// governs adds lines that say for which queue lanes the subscription is the most specific one
// of its executor, and how many waiting jobs it admits there.
func (c *Planner) governs(ctx context.Context, p *queue.Plan, r *jobSubscription) error {
	type lane struct {
		Kind, Domain string
		Mine         bool
		N            int64
	}
	lanes, err := pgrow.All[lane](ctx, c.act, `WITH lane AS (
			SELECT DISTINCT l.event_domain, l.job_kind FROM public.job_lane l
			WHERE ($2 = '' OR l.job_kind = $2) AND ($3 = '' OR l.event_domain = $3)
		), governed AS (
			SELECT l.*, NOT EXISTS (SELECT 1 FROM public.job_subscription s WHERE s.executor_id = $1 AND s.enabled
				AND (s.job_kind IS NULL OR s.job_kind = l.job_kind) AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
				AND (s.job_kind IS NULL, s.event_domain IS NULL) < ($2 = '', $3 = '')) AS mine FROM lane l
		)
		SELECT t.job_kind, t.event_domain, t.mine, COALESCE(w.n, 0) FROM governed t LEFT JOIN LATERAL (SELECT count(*) AS n FROM (
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
		addLine(p, "governs", "nothing yet: no such job was ever enqueued")
	case !r.Enabled:
		addLine(p, "governs", "nothing while it is disabled: a less specific enabled subscription applies instead")
	case len(mine) == 0:
		addLine(p, "governs", "nothing: more specific subscriptions govern %s", first(other))
	default:
		addLine(p, "governs", "%s", first(mine))
		if len(other) > 0 {
			addLine(p, "but not", "%s: more specific subscriptions govern these", first(other))
		}
	}
	what := "jobs that it admits"
	if !r.Enabled {
		what = "jobs that it would admit"
	}
	addLine(p, "waiting", "%s%d %s", bound, waits, what)
	return nil
}

// first joins up to five names, and adds how many more there are.
func first(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + fmt.Sprintf(" and %d more", len(names)-5)
	}
	return strings.Join(names, ", ")
}

// applySubscribe saves the subscription, unless it changed since the plan was made.
func applySubscribe(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	args, err := jobSubscriptionArgs(p.Request)
	if err != nil {
		return err
	}
	return c.applySeen(ctx, p, res, p.Request.Targets[0], "the job subscription", func(tx pgx.Tx) (f found, err error) {
		var a jobSubscriptionAnswer
		if err := tx.QueryRow(ctx, setJobSubscription, append(args, false)...).Scan(&a); err != nil {
			return f, err
		}
		f = found{answer: answer{Refusal: a.Refusal}, state: a.Before.seen(), done: "created", of: claims(p.Request)}
		if a.Before != nil {
			f.done, f.since = "changed", "last by "+cmp.Or(a.Before.UpdatedBy, a.Before.RegisteredBy, "an unknown actor")
		}
		return f, nil
	})
}
