package actions

// This file plans and applies the erasure of what a webhook event holds.

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

func eraseActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActErase, Words: "erase", Key: "Z", Panes: []queue.PaneID{queue.PaneDead}, Verb: "Erase",
			Help: "empty the payload of a webhook event for good, in its dead letters and in the answers of receivers too", Noun: "event",
			Button: "Erase {targets} for good", Targets: queue.Targets{Name: "event:ID"},
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
	say(p, "event", "%d, %s of %s", id, a.EventType, queue.Stamp(a.CreatedAt, time.RFC3339))
	say(p, "emptied", "its payload, %d snapshots of dead letters, %d answers of receivers; %d deliveries stay without them", a.DeadLetters, a.Excerpts, a.Deliveries)
	say(p, "then", "none of its dead letters can be requeued; nothing brings the payload back")
	say(p, "not reached", "backups, the WAL, replicas that lag, and what receivers were sent")
	return nil
}

func applyErase(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	id, err := parseid.WebhookEvent(p.Request.Targets[0])
	if err != nil {
		return err
	}
	return c.does(ctx, res, p.Request.Targets[0], "erased", eraseEvent, id, p.Request.Actor, p.Request.Reason, false)
}
