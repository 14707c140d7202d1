package actions

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

func eventTypeActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActEventTypeSet, Words: "event-type set", Example: "qtop event-type set iu/made --stream update --lane immediate --reason 'new vocabulary'", Group: "Register or change a type of events", Key: "E", Panes: []queue.PaneID{queue.PaneSubscriptions}, Hint: "event type", Verb: "Save", Undo: "set it back, or make it inactive",
			Help:  "register an event type, or change the values that its events must carry",
			Title: "An event type", Button: "Save {targets}", Targets: queue.Targets{Name: "DOMAIN/TYPE", Of: "event type"},
			Danger: queue.DangerOne, Function: "public.fn_event_type_set(text,text,text,text,text,boolean,text,text,text,boolean)", Role: "workflow_admin", Reason: true,
			Args: []queue.Arg{
				{Name: "stream", Label: "Stream", Help: "producers must name this stream in its events", Empty: "unchanged"},
				{Name: "lane", Kind: queue.ArgChoice, Label: "Lane", Choices: []string{"immediate", "delayed"}, Help: "immediate or delayed: producers must name this delivery lane in its events", Empty: "unchanged"},
				{Name: "worker", Kind: queue.ArgChoice, Label: "Route worker", Choices: []string{"iu_outbound_default", "staging_outbound"}, Help: "the tick worker that routes the domain", Empty: "unchanged"},
				{Name: "active", Kind: queue.ArgSwitch, Label: "Active", Help: "true or false: events of an inactive type are refused", Empty: "unchanged, true for a new type"},
				{Name: "description", Max: 500, Label: "Description", Empty: "unchanged"},
			},
		}, plan: planEventType, apply: applyEventType},
	}
}

type eventType struct {
	Stream      queue.Text `json:"event_stream"`
	Lane        queue.Text `json:"delivery_lane"`
	Worker      queue.Text `json:"worker_name"`
	Active      bool       `json:"active"`
	Description queue.Text `json:"description"`
}

// String describes the event type; applyEventType also compares it with the preview.
func (t *eventType) String() string {
	if t == nil {
		return "not registered"
	}
	return fmt.Sprintf("stream %s, lane %s, route worker %s, %s, %q", t.Stream, t.Lane,
		queue.Choose(t.Worker.Empty(), "none", t.Worker.String()), queue.Choose(t.Active, "active", "not active"), t.Description.String())
}

type eventTypeAnswer struct {
	pgscan.Refusal
	Before *eventType `json:"before"`
	After  *eventType `json:"after"`
}

func setEventType(ctx context.Context, q pgx.Tx, r queue.Request, dry bool) (a eventTypeAnswer, err error) {
	domain, kind, ok := strings.Cut(r.Targets[0], "/")
	if !ok {
		return a, queue.NewError(queue.KindUsage, strconv.Quote(r.Targets[0])+" is not an event type", "DOMAIN/TYPE", "write its domain too, such as iu/made; qtop event-type list has them")
	}
	err = q.QueryRow(ctx, `SELECT public.fn_event_type_set($1::text, $2::text, NULLIF($3::text, ''), NULLIF($4::text, ''), NULLIF($5::text, ''), NULLIF($6::text, '')::boolean, NULLIF($7::text, ''),
		$8::text, $9::text, $10::boolean)`, domain, kind, r.Args["stream"], r.Args["lane"], r.Args["worker"], r.Args["active"], r.Args["description"], r.Actor, r.Reason, dry).Scan(&a)
	return a, err
}

func planEventType(ctx context.Context, c *Planner, p *queue.Plan) error {
	return pgx.BeginFunc(ctx, c.act, func(tx pgx.Tx) error {
		a, err := setEventType(ctx, tx, p.Request, true)
		if err != nil {
			return err
		}
		if a.Refused {
			return c.refuseNamed(ctx, p, "event type", a.Refusal)
		}
		p.Count, p.Expect = 1, a.Before.String()
		p.Lines = append(p.Lines, line("event type", "%s", p.Request.Targets[0]), line("now", "%s", a.Before), line("then", "%s", a.After))
		if a.Before != nil && (a.Before.Stream != a.After.Stream || a.Before.Lane != a.After.Lane || a.Before.Active && !a.After.Active) {
			addLine(p, "producers", "events written the old way are refused from then on")
		}
		return nil
	})
}

func applyEventType(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	return c.applySeen(ctx, p, res, p.Request.Targets[0], "the event type", func(tx pgx.Tx) (found, error) {
		a, err := setEventType(ctx, tx, p.Request, false)
		return found{answer: answer{Refusal: a.Refusal}, state: a.Before.String(), done: queue.Choose(a.Before == nil, "registered", "changed")}, err
	})
}
