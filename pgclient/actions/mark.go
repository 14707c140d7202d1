package actions

import (
	"context"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

func markActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActMark, Words: "mark", Example: "qtop mark 'deploy 1.42'", Panes: []queue.PaneID{queue.PaneOverview}, Verb: "Mark",
			Help:  "put a label on every history line, such as a deploy",
			Title: "Mark the history lines", Safe: "Not now",
			Danger: queue.DangerOne, Function: "public.fn_queue_mark(text,text)", Role: "dead_letter_operator",
			Args: []queue.Arg{{Name: "label", Positional: true, Max: 200, Label: "Label", Required: true, Help: "what happened, such as deploy 4.2"}},
		}, plan: planMark, apply: applyMark},
	}
}

func planMark(ctx context.Context, c *Planner, p *queue.Plan) error {
	label := strings.TrimSpace(p.Request.Args["label"])
	p.Request.Args["label"] = label
	var now time.Time
	var last queue.Text
	err := c.act.QueryRow(ctx, `SELECT clock_timestamp(), (SELECT to_char(m.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') || ' ' || m.label || ' by ' || m.created_by
		FROM public.queue_mark m ORDER BY m.at DESC LIMIT 1)`).Scan(&now, &last)
	if err != nil {
		return err
	}
	p.Count = 1
	p.Lines = append(p.Lines, line("label", "%s", label), line("at", "the moment the mark is set, now %s", queue.Stamp(now, time.RFC3339)),
		line("then", "every history line shows the mark, to every operator"))
	if !last.Empty() {
		addLine(p, "last mark", "%s", last)
	}
	return nil
}

func applyMark(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	var a struct {
		answer
		MarkID anyID `json:"mark_id"`
	}
	if err := c.act.QueryRow(ctx, "SELECT public.fn_queue_mark($1::text, $2::text)", p.Request.Args["label"], p.Request.Actor).Scan(&a); err != nil {
		return err
	}
	recordOne(res, p.Request.Args["label"], "marked", a.answer)
	if !a.Refused {
		res.Results[0].NewID = string(a.MarkID)
	}
	return nil
}
