package actions

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

func eraseActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActErase, Words: "erase", Example: "qtop erase event:4711 --reason 'erasure request 18'", Key: "Z", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Erase",
			Help: "delete the payload of a webhook event for good, also from its dead letters and the receivers' recorded answers", Noun: "event",
			Button: "Erase {targets} for good", Targets: queue.Targets{Name: "event:ID", Of: "event"},
			Danger: queue.DangerOne, Function: "public.fn_webhook_event_erase(bigint,text,text,boolean)", Role: "workflow_admin", Reason: true,
		}, plan: planErase, apply: applyErase},
	}
}

const eraseEvent = "SELECT public.fn_webhook_event_erase($1::bigint, $2::text, $3::text, $4::boolean)"

func planErase(ctx context.Context, c *Planner, p *queue.Plan) error {
	id, err := parseid.WebhookEvent(p.Request.Targets[0])
	if err != nil {
		return err
	}
	var a struct {
		answer
		EventType   string    `json:"event_type"`
		CreatedAt   time.Time `json:"created_at"`
		Deliveries  int64     `json:"deliveries"`
		DeadLetters int64     `json:"dead_letters"`
		Excerpts    int64     `json:"excerpts"`
	}
	if err := c.act.QueryRow(ctx, eraseEvent, id, p.Request.Actor, p.Request.Reason, true).Scan(&a); err != nil {
		return err
	}
	if a.Refused {
		return refuse(p, a.Rule, a.Reason)
	}
	p.Count = 1
	addLine(p, "event", "%d, %s of %s", id, a.EventType, queue.Stamp(a.CreatedAt, time.RFC3339))
	addLine(p, "emptied", "its payload, the copies in %s and %s of receivers; without them remain %s",
		queue.Plural(a.DeadLetters, "dead letter", "dead letters"), queue.Plural(a.Excerpts, "recorded answer", "recorded answers"), queue.Plural(a.Deliveries, "delivery", "deliveries"))
	addLine(p, "then", "none of its dead letters can be requeued; the payload cannot be restored")
	addLine(p, "not reached", "backups, the WAL, lagging replicas, and copies that receivers already got")
	return nil
}

func applyErase(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id, err := parseid.WebhookEvent(p.Request.Targets[0])
	if err != nil {
		return err
	}
	return c.applyOne(ctx, res, p.Request.Targets[0], "erased", eraseEvent, id, p.Request.Actor, p.Request.Reason, false)
}
