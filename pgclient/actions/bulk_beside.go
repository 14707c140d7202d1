package actions

import (
	"context"
	"fmt"
	"strings"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// beside adds the line that says what the rate of an operation does not limit: the other deliveries
// of its webhook subscriptions, and which limit counts them too. The query `subscriptions` returns
// rows (subscription_id, n). known reports whether none of the waiting deliveries is of the operation
// itself, so that their number is told.
func (c *Planner) beside(ctx context.Context, p *queue.Plan, known bool, subscriptions string, args ...any) error {
	var n, limited, id, waiting int64
	var endpoint queue.Text
	var limit *float64
	err := c.act.QueryRow(ctx, `SELECT count(*), count(v.rate_limit_per_second), COALESCE(min(v.subscription_id), 0), COALESCE(min(v.endpoint), ''),
			COALESCE(sum(v.waiting), 0)::bigint, min(v.rate_limit_per_second)::float8
		FROM (`+subscriptions+`) x (subscription_id, n) JOIN public.v_webhook_endpoint v ON v.subscription_id = x.subscription_id`, args...).
		Scan(&n, &limited, &id, &endpoint, &waiting, &limit)
	if err != nil || n == 0 {
		return err
	}
	to, all := endpoint.String(), fmt.Sprintf("all to subscription %d is limited by M in pane 7, or qtop webhook limit %d --per-second N", id, id)
	switch {
	case n > 1:
		to, all = fmt.Sprintf("these %d subscriptions", n), "all to one is limited by M in pane 7, or qtop webhook limit ID --per-second N"
		if limited > 0 {
			all += fmt.Sprintf(" (%d of %d have such a limit)", limited, n)
		}
	case limit != nil:
		all = fmt.Sprintf("all to subscription %d is limited to %s/s (M in pane 7, qtop webhook limit %d)", id, rateText(*limit), id)
	}
	others := "other deliveries to " + to
	if known && waiting > 0 {
		others += ": " + queue.Plural(waiting, "that waits", "that wait") + ", and new ones"
	}
	addLine(p, "not in the rate", "%s; %s", others, all)
	return nil
}

// operationsNamed is how many operations the line of inOperations names.
const operationsNamed = 5

// mostCompared is how many items inOperations compares at most, those of the selection included: a
// preview must not take seconds.
const mostCompared = 250_000

// inOperations adds the line that says how many of the selected dead letters are items, not carried
// out yet, of other operations that have not ended.
func (c *Planner) inOperations(ctx context.Context, p *queue.Plan, parts []bulkPart) error {
	var live int
	var items int64
	err := c.act.QueryRow(ctx, `SELECT count(*), COALESCE(sum(o.frozen_count), 0)::bigint FROM public.queue_bulk_operation o
		WHERE o.state = ANY ('{planned,running,paused}'::text[])`).Scan(&live, &items)
	if err != nil || live == 0 {
		return err
	}
	for _, x := range parts {
		items += x.n
	}
	if items > mostCompared {
		addLine(p, "also planned", "not compared with the items of %s: too many", queue.Plural(live, "live operation", "live operations"))
		return nil
	}
	type part struct {
		ID    int64
		State string
		N     int64
	}
	var order []part
	at := map[int64]int{}
	for _, x := range parts {
		if x.n == 0 {
			continue
		}
		// Sorted together, not joined: for items that are younger than the statistics a join would read
		// the selection once per item.
		some, err := pgrow.All[part](ctx, c.act, `SELECT o.operation_id, o.state, count(*) FROM (
				SELECT y.operation_id, bool_or(y.operation_id = 0) OVER (PARTITION BY y.target) AS selected FROM (
					SELECT (`+x.text()+`) COLLATE "C" AS target, 0::bigint AS operation_id FROM (`+x.ids+`) s
					UNION ALL
					SELECT i.target COLLATE "C", i.operation_id FROM public.queue_bulk_operation w
					JOIN public.queue_bulk_operation_item i ON i.operation_id = w.operation_id AND i.outcome IS NULL
					WHERE w.state = ANY ('{planned,running,paused}'::text[])) y) z
			JOIN public.queue_bulk_operation o ON o.operation_id = z.operation_id
			WHERE z.selected GROUP BY 1, 2 ORDER BY 1`, x.b.Args...)
		if err != nil {
			return err
		}
		for _, o := range some {
			if i, ok := at[o.ID]; ok {
				order[i].N += o.N
				continue
			}
			at[o.ID] = len(order)
			order = append(order, o)
		}
	}
	if len(order) == 0 {
		return nil
	}
	var names []string
	for i, o := range order {
		if i == operationsNamed {
			names = append(names, queue.Plural(len(order)-i, "more operation", "more operations"))
			break
		}
		names = append(names, fmt.Sprintf("%d in operation %d (%s)", o.N, o.ID, o.State))
	}
	addLine(p, "also planned", "%s; each dead letter is requeued or closed once, by the operation that comes to it first", strings.Join(names, ", "))
	return nil
}
