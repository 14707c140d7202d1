package lists

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// groupMark is where a page of groups ended: the values of its last group by which groups are
// sorted.
type groupMark struct {
	Source, Code, Endpoint, Domain string
	Subscription                   int64
}

// deadGroups reads the groups of open dead letters, including those that the snapshot omits, sorted
// by source and code.
func deadGroups(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	var mark groupMark
	if q.After != "" {
		if err := json.Unmarshal([]byte(q.After), &mark); err != nil {
			return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the position of the next page cannot be read"), Do: queue.Clean("begin again with the first page"), Err: err}
		}
	}
	rows, err := pgrow.Column[queue.DeadGroup](ctx, db, `SELECT to_jsonb(x) FROM (
		SELECT g.source, g.code, g.endpoint, g.domain, COALESCE(g.subscription_id, 0) AS subscription_id, g.open,
			g.first_at, g.last_at
		FROM public.v_dead_letter_group g
		WHERE (g.source, g.code, g.endpoint, g.domain, COALESCE(g.subscription_id, 0)) > ($1::text, $2::text, $3::text, $4::text, $5::bigint)
			AND g.first_at IS NOT NULL
		ORDER BY g.source, g.code, g.endpoint, g.domain, COALESCE(g.subscription_id, 0) LIMIT `+strconv.Itoa(q.Limit+1)+`) x`,
		mark.Source, mark.Code, mark.Endpoint, mark.Domain, mark.Subscription)
	if err != nil {
		return err
	}
	if len(rows) > q.Limit {
		rows = rows[:q.Limit]
		g := rows[q.Limit-1]
		next, err := json.Marshal(groupMark{g.Source, g.Code.String(), g.Endpoint.String(), g.Domain.String(), g.SubscriptionID})
		if err != nil {
			return err
		}
		p.Next = string(next)
	}
	p.Rows = rows
	return nil
}
