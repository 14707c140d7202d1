package actions

import (
	"context"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func quarantineActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActQuarantineRetry, Words: "quarantine retry", Example: "qtop quarantine retry --all --reason 'cause is removed'", Key: "R", Panes: []queue.PaneID{queue.PaneAlerts}, Verb: "Retry",
			Help: "process quarantined rows again, after the cause of their failure is fixed",
			Noun: "row in quarantine", Targets: queue.Targets{Name: "ID", Many: true, Instead: "all", List: "quarantine", Of: "row in quarantine"},
			Danger: queue.DangerMany, Function: "public.fn_queue_quarantine_retry(bigint[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planQuarantineRetry, apply: applyQuarantineRetry},
	}
}

// mostAside is how many rows one retry takes.
const mostAside = 10_000

// asideIDs returns the ids of the quarantined rows that the targets name, each by its id or the
// key of its alert; without targets, those of all rows in quarantine, but
// not of more than mostAside, the oldest first.
func (c *Planner) asideIDs(ctx context.Context, targets []string) ([]string, error) {
	if len(targets) == 0 {
		return pgrow.Column[string](ctx, c.act, `SELECT q.quarantine_id::text FROM public.queue_quarantine q WHERE q.set_aside_at IS NOT NULL
			ORDER BY q.set_aside_at, q.quarantine_id LIMIT $1`, mostAside)
	}
	var ids []string
	for _, t := range targets {
		if _, err := strconv.ParseInt(t, 10, 64); err == nil {
			ids = append(ids, t)
			continue
		} else if !strings.HasPrefix(t, "quarantine:") {
			return nil, queue.NewError(queue.KindUsage, strconv.Quote(t)+" is not the id of a row in quarantine", "", "see qtop quarantine")
		}
		found, err := pgrow.Column[string](ctx, c.act, `SELECT q.quarantine_id::text FROM public.queue_quarantine q
			CROSS JOIN LATERAL (SELECT 'quarantine:' || q.step || ':' || q.target) s (subject)
			WHERE $1 IN (s.subject, s.subject || pg_catalog.to_char(q.set_aside_at AT TIME ZONE 'UTC', '":"YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
			ORDER BY q.quarantine_id`, t)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

func planQuarantineRetry(ctx context.Context, c *Planner, p *queue.Plan) error {
	all := len(p.Request.Targets) == 0
	ids, err := c.asideIDs(ctx, p.Request.Targets)
	if err != nil {
		return err
	}
	if p.Request.Targets = ids; len(ids) == 0 {
		return refuse(p, "empty", queue.Choose(all, "no row is in quarantine", "no such row is in quarantine: see qtop quarantine"))
	}
	a, err := c.call(ctx, "SELECT public.fn_queue_quarantine_retry($1::bigint[], $2::text, $3::text, true)", ids, p.Request.Actor, p.Request.Reason)
	if err != nil {
		return err
	}
	reasons := tally(p, a.outcomes(""))
	aside, err := c.groups(ctx, "q.step || ' of ' || q.target", "FROM public.queue_quarantine q WHERE q.quarantine_id = ANY ($1::bigint[])", 0, ids)
	if err != nil {
		return err
	}
	names, _ := namesOf(aside)
	counted(p, "rows", len(a.Results), names, "none of them is in quarantine any more")
	if all && len(ids) == mostAside {
		addLine(p, "not all", "one retry takes %d rows, the oldest first: repeat it for the others", mostAside)
	}
	var step, code queue.Text
	var n int64
	if err = pgrow.Visit(ctx, c.act, []any{&step, &code, &n}, func() { addLine(p, step.String(), "%d failed with %s", n, code) },
		`SELECT q.step, q.code, count(*) FROM public.queue_quarantine q WHERE q.quarantine_id = ANY ($1::bigint[])
		GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 8`, ids); err != nil {
		return err
	}
	addLine(p, "then", "the next run of their tick worker processes them; those that still fail return to quarantine")
	if err := c.blockedSteps(ctx, p, ids); err != nil {
		return err
	}
	return reasons.refuseIfNone(p, "none of the selected rows is in quarantine")
}

func applyQuarantineRetry(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applyMany(ctx, res, "SELECT public.fn_queue_quarantine_retry($1::bigint[], $2::text, $3::text, false)", p.Request.Targets, p.Request.Actor, p.Request.Reason)
}
