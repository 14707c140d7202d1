package actions

// The lines with the label "blocked" in a preview: conditions that keep the work of an action from
// running, such as a switch that is off. fn_queue_why returns what can block a queue; a preview
// calls it for the queues to which the work of the selected rows belongs. For webhook
// subscriptions, their state is read in addition.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// queuesAsked is the largest number of queues for which a preview calls fn_queue_why.
const queuesAsked = 8

// passing are the names of links of fn_queue_why that a preview leaves out: due, parallel and held
// pass without anybody acting (a due time comes, a slot becomes free, a transaction ends); floor
// compares priorities with those of other jobs than the selected ones.
var passing = []string{"due", "parallel", "floor", "held"}

// gates are the names of links of fn_queue_why about the webhook subscriptions of an endpoint.
// blockedHooks leaves them out, because it reads the state of each subscription itself.
var gates = []string{"subscription", "suspension", "circuit", "gates"}

// blocked adds lines about what blocks queues. The query `queues` returns rows (queue, name, n):
// the name that fn_queue_why takes, the name for the preview, and how much work goes there. frees
// are the names of links that the action removes itself.
func (c *Planner) blocked(ctx context.Context, p *queue.Plan, queues string, frees []string, args ...any) error {
	type link struct {
		Link, Text, Name string
		N                int64
	}
	links, err := pgrow.All[link](ctx, c.act, `WITH place AS MATERIALIZED (
			SELECT x.queue, x.name, sum(x.n)::bigint AS n FROM (`+queues+`) x (queue, name, n) GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT `+fmt.Sprint(queuesAsked)+`)
		SELECT w.value ->> 'link', w.value ->> 'text', x.name, x.n
		FROM place x CROSS JOIN LATERAL jsonb_array_elements(public.fn_queue_why(x.queue) -> 'links') WITH ORDINALITY AS w (value, ord)
		WHERE w.value ->> 'state' = 'blocks' ORDER BY w.ord, x.n DESC, x.name`, args...)
	if err != nil {
		return err
	}
	var order []string
	waiting := map[string][]group{}
	for _, x := range links {
		if slices.Contains(passing, x.Link) || slices.Contains(frees, x.Link) {
			continue
		}
		if waiting[x.Text] == nil {
			order = append(order, x.Text)
		}
		if slices.Contains([]string{"flag", "schedule", "host", "clone", "route"}, x.Link) { // such a text says itself which work is blocked
			waiting[x.Text] = []group{}
			continue
		}
		waiting[x.Text] = append(waiting[x.Text], group{Name: x.Name, N: x.N})
	}
	for _, text := range order {
		names, _ := namesOf(waiting[text])
		addBlocked(p, names, text, false)
	}
	return nil
}

// addBlocked adds the line text about one blocker, after the lines about the selected rows. names
// are the blocked destinations, "" if text names them. circuit reports whether the blocker is an
// open circuit. A text that has a line already gets no second one.
func addBlocked(p *queue.Plan, names, text string, circuit bool) {
	if names != "" {
		text = names + ": " + text
	}
	x := line("blocked", "%s", text)
	if slices.Contains(p.Lines, x) {
		return
	}
	p.Blocked++
	if circuit {
		p.Circuits++
	}
	at := min(1, len(p.Lines))
	for at < len(p.Lines) && p.Lines[at].Label == x.Label {
		at++
	}
	p.Lines = slices.Insert(p.Lines, at, x)
}

// blockedHooks adds lines about what blocks webhook subscriptions. The query `subscriptions`
// returns rows (subscription_id, n), n = how much work goes there. frees are beginnings of texts,
// such as gateSuspended, about states that the action ends or whose rows it skips.
func (c *Planner) blockedHooks(ctx context.Context, p *queue.Plan, subscriptions string, frees []string, args ...any) error {
	shut, err := c.groupsOf(ctx, `SELECT CASE WHEN g.gate = 'suspended' AND g.suspended_reason <> 'circuit' THEN 'endpoint suspended: ' || g.suspended_reason
				WHEN g.gate = 'suspended' THEN 'circuit open' WHEN g.gate = 'half_open' THEN 'circuit half open: one probe at a time'
				ELSE 'subscription ' || g.gate END, g.endpoint, sum(x.n)::bigint
			FROM (`+subscriptions+`) x (subscription_id, n) JOIN public.v_webhook_gate g ON g.subscription_id = x.subscription_id
			WHERE g.gate <> 'open' GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2`, args...)
	if err != nil {
		return err
	}
	for _, text := range shut.order {
		if slices.ContainsFunc(frees, func(free string) bool { return strings.HasPrefix(text, free) }) {
			continue
		}
		names, _ := namesOf(shut.of[text])
		addBlocked(p, names, text, strings.HasPrefix(text, gateCircuit))
	}
	return c.blocked(ctx, p, `SELECT 'webhook ' || g.endpoint, g.endpoint, x.n FROM (`+subscriptions+`) x (subscription_id, n)
		JOIN public.v_webhook_gate g ON g.subscription_id = x.subscription_id`, gates, args...)
}

// named holds rows by a text; order has the texts in the order in which the query returned them.
type named struct {
	order []string
	of    map[string][]group
}

// groupsOf reads rows of (text, name, number).
func (c *Planner) groupsOf(ctx context.Context, sql string, args ...any) (named, error) {
	type row struct {
		Text, Name string
		N          int64
	}
	rows, err := pgrow.All[row](ctx, c.act, sql, args...)
	out := named{of: map[string][]group{}}
	for _, x := range rows {
		if out.of[x.Text] == nil {
			out.order = append(out.order, x.Text)
		}
		out.of[x.Text] = append(out.of[x.Text], group{Name: x.Name, N: x.N})
	}
	return out, err
}

// blockedLanes adds lines about what blocks queue lanes. The query `lanes` returns rows (kind,
// domain, n): job kind, event domain, number of jobs.
func (c *Planner) blockedLanes(ctx context.Context, p *queue.Plan, lanes string, frees []string, args ...any) error {
	return c.blocked(ctx, p, `SELECT format('job %s in %s', x.kind, x.domain), format('job %s in %s', x.kind, x.domain), x.n
		FROM (`+lanes+`) x (kind, domain, n)`, frees, args...)
}

// blockedLoop adds lines if the flag of a tick worker is off or nobody runs the worker. frees is
// the flag that the action turns on, "" = none.
func (c *Planner) blockedLoop(ctx context.Context, p *queue.Plan, worker, frees string) error {
	why, err := pgrow.Column[string](ctx, c.act, `SELECT x.why FROM public.v_queue_scheduler_status s CROSS JOIN LATERAL (VALUES
			(1, CASE WHEN s.flag_key <> $2 AND EXISTS (SELECT FROM public.dot_config f WHERE f.key = s.flag_key AND f.value <> 'true') THEN s.flag_key || ' is off' END),
			(2, CASE WHEN s.configured_interval_seconds = 0 AND $2 <> 'queue.tick.' || s.worker_name || '.interval_seconds'
				THEN 'queue.tick.' || s.worker_name || '.interval_seconds is 0' END),
			(3, CASE WHEN NOT EXISTS (SELECT FROM public.v_cron_loop c WHERE c.loop = s.worker_name) AND NOT EXISTS (SELECT FROM public.v_live_loop l WHERE l.loop = s.worker_name)
				THEN 'no live host runs ' || s.worker_name END)) x (n, why)
		WHERE s.worker_name = $1 AND x.why IS NOT NULL ORDER BY x.n`, worker, frees)
	for _, text := range why {
		addBlocked(p, "", text, false)
	}
	return err
}
