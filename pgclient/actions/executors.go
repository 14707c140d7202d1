package actions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

func executorActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActExecRegister, Words: "executor register", Example: "qtop executor register reindex_1 --owner-role reindexer --kind Agent --domains kg --cadence 60s", Key: "N", Panes: []queue.PaneID{queue.PaneExecutors}, Verb: "Register",
			Help: "register an executor, so that qtop notices when it falls silent",
			Noun: "executor", Button: "Register {id}", Safe: "Not now", Opposite: queue.ActExecDeregister, Makes: "executor",
			Danger: queue.DangerOne, Function: "public.fn_queue_executor_register(text,text,text[],integer,integer,text,text)", Role: "workflow_admin",
			Args: []queue.Arg{
				{Name: "id", Kind: queue.ArgWord, Positional: true, Label: "Executor id", Required: true},
				{Name: "owner-role", Label: "Owner role", Required: true, Help: "login or group role of its hosts; only members may work as this executor"},
				{Name: "kind", Kind: queue.ArgChoice, Label: "Kind", Default: "external_worker", Required: true, Choices: queue.ExecutorKinds()},
				{Name: "domains", Label: "Domains", Help: "event domains it covers, separated by commas"},
				{Name: "cadence", Kind: queue.ArgDuration, Label: "Cadence", Default: "60s", Required: true, Max: week, Help: "interval between its heartbeats"},
				{Name: "stale-after", Kind: queue.ArgDuration, Label: "Stale after", Empty: "the flag queue.heartbeat.stale_threshold_seconds"},
			},
		}, plan: planRegister, apply: applyRegister},
		{Action: queue.Action{
			ID: queue.ActExecDeregister, Words: "executor deregister", Example: "qtop executor deregister reindex_1 --reason 'host is gone'", Verb: "Deregister",
			Panes: []queue.PaneID{queue.PaneExecutors},
			Help:  "stop watching an executor; it remains listed as deregistered",
			Noun:  "executor", Button: "Deregister {targets}", Opposite: queue.ActExecRegister, Undo: "register it again with the values that it had", Targets: queue.Targets{Name: "ID", Of: "executor"},
			Danger: queue.DangerOne, Function: "public.fn_queue_heartbeat_deregister(text,text,text)", Role: "workflow_admin", Reason: true,
		}, plan: planDeregister, apply: applyDeregister},
		{Action: queue.Action{
			ID: queue.ActExecOwner, Words: "executor owner", Example: "qtop executor owner reindex_1 --owner-role reindexer --reason 'own login'", Verb: "Set owner", Undo: "set it back",
			Panes: []queue.PaneID{queue.PaneExecutors},
			Help:  "assign an executor to another login or group role; only members may work as it",
			Title: "Set owner of an executor", Button: "Set owner {targets}", Targets: queue.Targets{Name: "ID", Of: "executor"},
			Danger: queue.DangerOne, Function: "public.fn_queue_executor_owner_set(text,text,text,text)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{{Name: "owner-role", Label: "Owner role", Required: true, Help: "login or group of its hosts"}},
		}, plan: planOwner, apply: applyOwner},
	}
}

// registration parses the durations of a registration, in seconds; a nil threshold means
// that the flag queue.heartbeat.stale_threshold_seconds applies.
func registration(r queue.Request) (cadence int64, threshold *int64, err error) {
	if cadence, err = queue.Seconds("--cadence", r.Args["cadence"]); err != nil {
		return 0, nil, err
	}
	if text := r.Args["stale-after"]; text != "" {
		n, err := queue.Seconds("--stale-after", text)
		if err != nil {
			return 0, nil, err
		}
		threshold = &n
	}
	return cadence, threshold, nil
}

func planRegister(ctx context.Context, c *Planner, p *queue.Plan) error {
	r := p.Request
	cadence, threshold, err := registration(r)
	if err != nil {
		return err
	}
	var tombstone *time.Time
	var by, registered queue.Text
	err = c.act.QueryRow(ctx, "SELECT deregistered_at, deregistered_by, registered_by FROM public.queue_heartbeat WHERE executor_id = $1", r.Args["id"]).
		Scan(&tombstone, &by, &registered)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	case tombstone == nil:
		return refuse(p, "exists", fmt.Sprintf("executor %s is registered already, by %s", r.Args["id"], registered))
	default:
		addLine(p, "again", "it was deregistered by %s at %s", by, queue.Stamp(*tombstone, time.RFC3339))
	}
	owner, err := c.ownerRole(ctx, r.Args["owner-role"])
	if err != nil {
		return err
	}
	errPreview := errors.New("a preview registers nothing")
	var a answer
	err = pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		if a, err = register(ctx, tx, r); err != nil {
			return err
		}
		return errPreview // rolls the registration back
	})
	switch {
	case !errors.Is(err, errPreview):
		return err
	case a.Refused:
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count = 1
	p.Lines = append(p.Lines, line("executor", "%s (%s)", r.Args["id"], r.Args["kind"]), owner,
		line("domains", "%s", cmp.Or(strings.Join(partsOf(r.Args["domains"]), ", "), "any")),
		line("expected", "a heartbeat every %s from now on", time.Duration(cadence)*time.Second))
	if threshold != nil {
		addLine(p, "stale after", "%s", time.Duration(*threshold)*time.Second)
	} else {
		addLine(p, "stale after", "the flag queue.heartbeat.stale_threshold_seconds")
	}
	return nil
}

func applyRegister(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	a, err := register(ctx, c.act, p.Request)
	if err != nil {
		return err
	}
	recordOne(res, p.Request.Args["id"], "registered", a)
	return nil
}

func register(ctx context.Context, q rowQuerier, r queue.Request) (a answer, err error) {
	cadence, threshold, err := registration(r)
	if err != nil {
		return a, err
	}
	err = q.QueryRow(ctx, `SELECT public.fn_queue_executor_register(p_executor_id => $1::text, p_kind => $2::text, p_domain_scope => $3::text[],
			p_expected_cadence_seconds => $4::bigint::int, p_stale_threshold_seconds => $5::bigint::int, p_owner_role => $6::text, p_actor => $7::text)`,
		r.Args["id"], r.Args["kind"], partsOf(r.Args["domains"]), cadence, threshold, r.Args["owner-role"], r.Actor).Scan(&a)
	return a, err
}

// ownerRole returns the preview line about the owner role of an executor, with the number of
// logins that may act as the executor.
func (c *Planner) ownerRole(ctx context.Context, role string) (queue.PlanLine, error) {
	names, err := schema.RealRoles(ctx, c.act)
	if err != nil {
		return queue.PlanLine{}, err
	}
	real := role
	if at := slices.Index(schema.Roles(), role); at >= 0 {
		real = names[at]
	}
	var there bool
	var logins int
	err = c.act.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1::text),
			(SELECT count(*) FROM pg_catalog.pg_roles r WHERE r.rolcanlogin AND NOT r.rolsuper
				AND pg_catalog.pg_has_role(r.oid, pg_catalog.to_regrole(pg_catalog.quote_ident($1::text))::oid, 'MEMBER'))`, real).Scan(&there, &logins)
	if err != nil {
		return queue.PlanLine{}, err
	}
	if !there {
		return queue.PlanLine{}, queue.NewError(queue.KindUsage, "role "+role+" does not exist", "--owner-role", "name the login or group role of the executor's hosts")
	}
	return line("owner", "%s; logins that may work as this executor: %d", role, logins), nil
}

// heartbeat is an executor that an operator may change or deregister.
type heartbeat struct {
	ID, Kind, Owner queue.Text
	LastHeartbeat   time.Time
	Gone            *time.Time
	Tick            bool
}

// heartbeat reads the executor of a request. The plan is refused if the executor is not registered,
// is deregistered (already is appended to that reason), or is a tick worker of qtop itself (tick
// says what to do instead).
func (c *Planner) heartbeat(ctx context.Context, p *queue.Plan, already, tick string) (h heartbeat, err error) {
	id := p.Request.Targets[0]
	found, err := pgrow.All[heartbeat](ctx, c.act, `SELECT executor_id, executor_kind, owner_role, last_beat_at, deregistered_at, tick_worker
		FROM public.queue_heartbeat WHERE executor_id = $1::text`, id)
	switch {
	case err != nil:
		return h, err
	case len(found) == 0:
		return h, refuse(p, "not_found", "no executor "+id+" is registered"+cmp.Or(c.meant(ctx, "executor", id), "; qtop executors lists them"))
	case found[0].Gone != nil:
		return h, refuse(p, "gone", "executor "+id+" is deregistered"+already)
	case found[0].Tick:
		return h, refuse(p, "tick_worker", id+" is a tick worker: "+tick)
	}
	return found[0], nil
}

func planOwner(ctx context.Context, c *Planner, p *queue.Plan) error {
	h, err := c.heartbeat(ctx, p, ": first register it again with qtop executor register", "only executors have an owner role")
	if err != nil || p.Refused != "" {
		return err
	}
	owner, err := c.ownerRole(ctx, p.Request.Args["owner-role"])
	if err != nil {
		return err
	}
	p.Count, p.Expect = 1, h.Owner.String()
	p.Lines = append(p.Lines, line("executor", "%s", h.ID), line("before", "%s", cmp.Or(h.Owner.String(), "every member of dot_executor")), owner)
	return nil
}

func applyOwner(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	r := p.Request
	return c.applySeen(ctx, p, res, r.Targets[0], "the owner role", func(tx pgx.Tx) (found, error) {
		var a struct {
			answer
			Before queue.Text `json:"before"`
		}
		err := tx.QueryRow(ctx, "SELECT public.fn_queue_executor_owner_set($1::text, $2::text, $3::text, $4::text)", r.Targets[0], r.Args["owner-role"], r.Actor, r.Reason).Scan(&a)
		return found{answer: a.answer, state: a.Before.String(), since: "to " + a.Before.String(), done: "changed"}, err
	})
}

func planDeregister(ctx context.Context, c *Planner, p *queue.Plan) error {
	id := p.Request.Targets[0]
	h, err := c.heartbeat(ctx, p, " already", "to switch it off, set "+queue.TickInterval(id)+" to 0")
	if err != nil || p.Refused != "" {
		return err
	}
	waits, err := c.executorWaits(ctx, id)
	if err != nil {
		return err
	}
	if waits != "" {
		return refuse(p, "work_waits", waits)
	}
	p.Count = 1
	p.Lines = append(p.Lines, line("executor", "%s (%s)", id, h.Kind), line("last heartbeat", "%s", queue.Stamp(h.LastHeartbeat, time.RFC3339)),
		line("then", "its silence raises no alert; it remains listed as deregistered"))
	return nil
}

func applyDeregister(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id := p.Request.Targets[0]
	return c.applyOne(ctx, res, id, "deregistered", "SELECT public.fn_queue_heartbeat_deregister($1::text, $2::text, $3::text)", id, p.Request.Actor, p.Request.Reason)
}
