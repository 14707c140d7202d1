package actions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func routeActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActRouteSet, Words: "route set", Example: "qtop route set iu --enabled false --reason 'consumer is down'", Verb: "Save", Undo: "set it back", Help: "switch the routing of a domain's events on or off; while it is off, events wait and none is lost",
			Title: "Routing of a domain", Button: "Save {targets}", Targets: queue.Targets{Name: "DOMAIN", List: "route list", Of: "domain"},
			Danger: queue.DangerOne, Function: "public.fn_iu_outbound_route_set(text,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{{Name: "enabled", Kind: queue.ArgSwitch, Label: "Enabled", Required: true}},
		}, plan: planRouting, apply: applyRouting},
		{Action: queue.Action{
			ID: queue.ActConsumerSet, Words: "consumer set", Example: "qtop consumer set reindex --domain iu --type made --kind kg.reindex --executor Agent --reason 'new consumer'", Verb: "Save", Undo: "set the old values, or enabled=false",
			Help:  "create or change a consumer, which gets one job per event of a type",
			Title: "A consumer of events", Button: "Save {targets}", Targets: queue.Targets{Name: "ID", List: "consumer list", Of: "consumer"},
			Danger: queue.DangerOne, Function: "public.fn_consumer_set(text,text,text,text,text,boolean,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "domain", Label: "Domain", Help: "of the events", Empty: "unchanged"},
				{Name: "type", Label: "Event type", Help: "of the events", Empty: "unchanged"},
				{Name: "kind", Label: "Job kind", Help: "of the jobs it gets", Empty: "unchanged"},
				{Name: "executor", Label: "Executor kind", Help: "kind of executor that runs them: " + strings.Join(queue.ExecutorKinds(), ", "), Empty: "unchanged"},
				{Name: "enabled", Kind: queue.ArgSwitch, Label: "Enabled", Help: "true or false", Empty: "unchanged, true for a new consumer"},
			},
		}, plan: planRouting, apply: applyRouting},
	}
}

// routing is a route or a consumer as the functions of the schema return it.
type routing struct {
	Domain    string     `json:"event_domain"`
	Worker    string     `json:"worker_name"`
	EventType string     `json:"event_type"`
	JobKind   string     `json:"job_kind"`
	Executor  string     `json:"executor"`
	Enabled   bool       `json:"enabled"`
	UpdatedAt *time.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

func (r *routing) String() string {
	if r == nil {
		return "no such consumer"
	}
	state := "disabled"
	if r.Enabled {
		state = "enabled"
	}
	if r.EventType == "" {
		return fmt.Sprintf("%s, by %s", state, r.Worker)
	}
	return fmt.Sprintf("%s, one job %s for %s per %s/%s", state, r.JobKind, r.Executor, r.Domain, r.EventType)
}

// seen returns the time of the row's last change, as a text for Plan.Expect.
func (r *routing) seen() string {
	if r == nil {
		return notFound
	}
	return seenAt(r.UpdatedAt)
}

type routingAnswer struct {
	pgscan.Refusal
	Before *routing `json:"before"`
	After  *routing `json:"after"`
}

// setRouting calls the function of the request's action for its target.
func setRouting(ctx context.Context, q pgx.Tx, r queue.Request, dry bool) (a routingAnswer, err error) {
	if r.Action == queue.ActRouteSet {
		err = q.QueryRow(ctx, "SELECT public.fn_iu_outbound_route_set($1::text, $2::boolean, $3::text, $4::text, $5::boolean)", r.Targets[0], r.Args["enabled"] == "true", r.Actor, r.Reason, dry).Scan(&a)
		return a, err
	}
	err = q.QueryRow(ctx, "SELECT public.fn_consumer_set($1::text, NULLIF($2, ''), NULLIF($3, ''), NULLIF($4, ''), NULLIF($5, ''), NULLIF($6, '')::boolean, $7::text, $8::text, $9::boolean)", r.Targets[0],
		r.Args["domain"], r.Args["type"], r.Args["kind"], r.Args["executor"], r.Args["enabled"], r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planRouting(ctx context.Context, c *Planner, p *queue.Plan) error {
	return pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		a, err := setRouting(ctx, tx, p.Request, true)
		if err != nil {
			return err
		}
		if a.Refused {
			return c.refuseNamed(ctx, p, queue.Choose(p.Request.Action == queue.ActRouteSet, "domain", "consumer"), a.Refusal)
		}
		p.Count, p.Expect = 1, a.Before.seen()
		what := queue.Choose(p.Request.Action == queue.ActRouteSet, "domain", "consumer")
		p.Lines = append(p.Lines, line(what, "%s", p.Request.Targets[0]), line("now", "%s", a.Before), line("then", "%s", a.After))
		if p.Request.Action == queue.ActRouteSet {
			var waiting int64
			if err := tx.QueryRow(ctx, "SELECT waiting FROM public.fn_iu_route_backlog() WHERE event_domain = $1", p.Request.Targets[0]).Scan(&waiting); err != nil {
				return err
			}
			what := "%s, and new ones will wait too"
			if a.After.Enabled {
				what = "%s, to be routed in order"
			}
			addLine(p, "waiting", what, queue.Plural(waiting, "event waits", "events wait"))
			if a.After.Enabled && (a.Before == nil || !a.Before.Enabled) {
				return c.blocked(ctx, p, "SELECT 'events ' || $1::text, $1::text, 1", []string{"route"}, p.Request.Targets[0])
			}
			return nil
		}
		var executors int64
		err = tx.QueryRow(ctx, `SELECT count(DISTINCT s.executor_id) FROM public.job_subscription s
			JOIN public.queue_heartbeat h ON h.executor_id = s.executor_id AND h.deregistered_at IS NULL
			WHERE s.enabled AND s.executor_kind = $1 AND (s.job_kind IS NULL OR s.job_kind = $2) AND (s.event_domain IS NULL OR s.event_domain = $3)`,
			a.After.Executor, a.After.JobKind, a.After.Domain).Scan(&executors)
		p.Lines = append(p.Lines, line("run by", "%s", queue.Plural(executors, "executor subscribes to such jobs", "executors subscribe to such jobs")), line("from", "events routed after the change"))
		if err != nil || !a.After.Enabled {
			return err
		}
		if err := c.blocked(ctx, p, "SELECT 'events ' || $1::text, $1::text, 1", nil, a.After.Domain); err != nil {
			return err
		}
		return c.blockedLanes(ctx, p, "SELECT $1::text, $2::text, 1", nil, a.After.JobKind, a.After.Domain)
	})
}

func applyRouting(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applySeen(ctx, p, res, p.Request.Targets[0], "the route or consumer", func(tx pgx.Tx) (found, error) {
		a, err := setRouting(ctx, tx, p.Request, false)
		f := found{answer: answer{Refusal: a.Refusal}, state: a.Before.seen(), done: "created", of: a.After.String()}
		if a.Before != nil {
			f.done, f.since = "changed", "last by "+a.Before.UpdatedBy
		}
		return f, err
	})
}
