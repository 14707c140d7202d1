package actions

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func notificationActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActNotifyRequeue, Words: "notifications requeue", Example: "qtop notifications requeue --all --reason 'mail server is back'", Key: "R", Panes: []queue.PaneID{queue.PaneNotify}, Verb: "Requeue",
			Help: "queue failed staged notifications again, after the cause is fixed",
			Noun: "notification", Targets: queue.Targets{Name: "ID", Many: true, Instead: "all", List: "notifications"},
			Danger: queue.DangerMany, Function: "public.fn_iu_notification_requeue(uuid[],text,text,boolean)", Role: "dead_letter_operator", Reason: true,
		}, plan: planNotificationRequeue, apply: applyNotificationRequeue},
	}
}

// failedStaged returns the ids of the staged notifications that failed, oldest failure first, at
// most one more than a requeue takes.
func (c *Planner) failedStaged(ctx context.Context) ([]string, error) {
	return pgrow.Column[string](ctx, c.act, `SELECT p.id::text FROM public.iu_notification_pending p WHERE p.failed_at IS NOT NULL ORDER BY p.failed_at, p.id LIMIT $1`, mostJobs+1)
}

func planNotificationRequeue(ctx context.Context, c *Planner, p *queue.Plan) error {
	ids, err := uuids(p.Request.Targets, "staged notification")
	all := len(p.Request.Targets) == 0
	if all {
		ids, err = c.failedStaged(ctx)
	}
	if err != nil {
		return err
	}
	cut := all && len(ids) > mostJobs
	if cut {
		ids = ids[:mostJobs]
	}
	if p.Request.Targets = ids; len(ids) == 0 {
		return refuse(p, "empty", "no staged notification has failed")
	}
	a, err := c.call(ctx, "SELECT public.fn_iu_notification_requeue($1::uuid[], $2::text, $3::text, true)", ids, p.Request.Actor, p.Request.Reason)
	if err != nil {
		return err
	}
	reasons := tally(p, a.outcomes(""))
	staged, err := c.groups(ctx, "p.canonical_address", "FROM public.iu_notification_pending p WHERE p.id = ANY ($1::uuid[])", 0, ids)
	if err != nil {
		return err
	}
	names, _ := namesOf(staged)
	counted(p, "notifications", len(a.Results), names, "none of them is staged any more")
	if cut {
		addLine(p, "not all", "one requeue takes %d notifications, the oldest failures first: repeat it for the others", mostJobs)
	}
	var failure string
	var n int64
	if err = pgrow.Visit(ctx, c.act, []any{&failure, &n}, func() { p.Lines = append(p.Lines, line("failed by", "%d × %s", n, failure)) },
		`SELECT p.failure, count(*) FROM public.iu_notification_pending p WHERE p.id = ANY ($1::uuid[]) AND p.failed_at IS NOT NULL
		GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 8`, ids); err != nil {
		return err
	}
	addLine(p, "then", "the next run of iu_notification_worker processes them; if the cause remains, they fail again")
	if err := c.blockedLoop(ctx, p, "iu_notification_worker", ""); err != nil {
		return err
	}
	return reasons.refuseIfNone(p, "none of the selected notifications has failed")
}

func applyNotificationRequeue(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applyMany(ctx, res, "SELECT public.fn_iu_notification_requeue($1::uuid[], $2::text, $3::text, false)", p.Request.Targets, p.Request.Actor, p.Request.Reason)
}
