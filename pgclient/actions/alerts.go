package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// week is the longest acknowledgement, and the longest cadence of an executor, in seconds.
const week = 7 * 24 * 60 * 60

func alertActions() []entry {
	return []entry{
		{Action: queue.Action{
			ID: queue.ActAck, Words: "ack", Example: "qtop ack iu_outbound_default --comment 'restarting its host' --for 30m", Key: "A", Panes: []queue.PaneID{queue.PaneOverview, queue.PaneAlerts, queue.PaneExecutors}, Verb: "Acknowledge",
			Help: "acknowledge an alert for a limited time, with a comment",
			Noun: "alert", Opposite: queue.ActUnack, Safe: "Not now", Open: true, Targets: queue.Targets{Name: "EXECUTOR|ALERT", Many: true, Of: "alert"},
			Danger: queue.DangerOne, Function: "public.fn_queue_alert_ack(text,text,text,interval)", Role: "workflow_admin",
			Args: []queue.Arg{
				{Name: "comment", Label: "Comment", Required: true, Max: queue.MostReason, Help: "what you are doing about it"},
				{Name: "for", Kind: queue.ArgDuration, Label: "For", Default: "30m", Required: true, Max: week, Help: "the alert opens again after this time, such as 30m or 2h"},
			},
		}, plan: planAck, apply: applyAck},
		{Action: queue.Action{
			ID: queue.ActUnack, Words: "unack", Example: "qtop unack iu_outbound_default --comment 'handed over to ben'", Key: "A", Panes: []queue.PaneID{queue.PaneAlerts}, Verb: "Unacknowledge",
			Help: "open an acknowledged alert again",
			Noun: "alert", Opposite: queue.ActAck, Open: true, Targets: queue.Targets{Name: "EXECUTOR|ALERT", Many: true, Of: "alert"},
			Danger: queue.DangerOne, Function: "public.fn_queue_alert_unack(text,text,text)", Role: "workflow_admin",
			Args: []queue.Arg{{Name: "comment", Label: "Comment", Required: true, Max: queue.MostReason, Help: "why you no longer work on it"}},
		}, plan: planAck, apply: applyUnack},
	}
}

// planAck previews acknowledging the open alerts that the targets name, by alert key or by subject
// (such as an executor id).
func planAck(ctx context.Context, c *Planner, p *queue.Plan) error {
	var targets []string
	var shown []shownAlert
	seen := map[string]bool{}
	for _, t := range p.Request.Targets {
		var a queue.Alert
		var key string // not cleaned
		err := c.act.QueryRow(ctx, `SELECT alert_key, kind, subject, severity, age_seconds, state, acked_by, comment, alert_key
			FROM public.v_queue_alert WHERE alert_key = $1 OR subject = $1`, t).
			Scan(&a.Key, &a.Kind, &a.Subject, &a.Severity, &a.AgeSeconds, &a.State, &a.AckedBy, &a.Comment, &key)
		out := queue.Outcome{ID: t, Outcome: "would_" + string(p.Request.Action)}
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			out.Outcome, out.Why = "refused", queue.Clean("no alert is open with this key or subject: see qtop alerts"+c.meant(ctx, "alert", t))
		case err != nil:
			return err
		case p.Request.Action == queue.ActAck && a.State == "acked":
			out.Outcome, out.Why = "refused", queue.Clean("the alert is acknowledged already, by "+a.AckedBy.String()+": "+a.Comment.String())
		case p.Request.Action == queue.ActUnack && a.State != "acked":
			out.Outcome, out.Why = "refused", queue.Clean("the alert is not acknowledged: there is nothing to withdraw")
		}
		if key = cmp.Or(key, t); seen[key] { // named twice, such as by its key and by its subject
			continue
		}
		seen[key] = true
		if verdict(p, t, out) {
			continue
		}
		targets, shown = append(targets, t), append(shown, shownAlert{t, key, a.Severity})
		addLine(p, a.Subject.String(), "%s for %s, %s", alertWord(a.Kind), queue.Span(a.AgeSeconds), a.Severity)
	}
	if p.Count == 0 {
		return refuse(p, "refused", p.Results[0].Why.String())
	}
	p.Request.Targets = targets
	expect, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	p.Expect = string(expect)
	if p.Request.Action == queue.ActAck {
		addLine(p, "for", "%s, then the alert opens again", p.Request.Args["for"])
	}
	return nil
}

// shownAlert is an alert as the preview showed it, in Plan.Expect. The target may be the subject of
// another alert by the time of the change.
type shownAlert struct{ Target, Key, Severity string }

// shownAlerts returns the alerts that the preview showed; without a preview, what the targets name
// now.
func shownAlerts(p queue.Plan) (shown []shownAlert, err error) {
	if p.Expect != "" {
		return shown, json.Unmarshal([]byte(p.Expect), &shown)
	}
	for _, t := range p.Request.Targets {
		shown = append(shown, shownAlert{Target: t, Key: t})
	}
	return shown, nil
}

func applyAck(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	secs, err := queue.Seconds("--for", p.Request.Args["for"])
	if err != nil {
		return err
	}
	shown, err := shownAlerts(p)
	if err != nil {
		return err
	}
	var critical []string
	keys := make([]string, len(shown))
	for i, a := range shown {
		keys[i] = a.Key
	}
	if err := c.act.QueryRow(ctx, "SELECT array_agg(alert_key) FROM public.v_queue_alert WHERE severity = 'critical' AND alert_key = ANY($1::text[])", keys).Scan(&critical); err != nil {
		return err
	}
	for _, a := range shown {
		if a.Severity == "warning" && slices.Contains(critical, a.Key) {
			refused, err := c.changed(ctx, "ack", a.Key, p.Request.Actor, p.Request.Args["comment"], "the alert has become critical since the preview: look at it, then repeat")
			if err != nil {
				return err
			}
			recordOne(res, a.Target, "", refused)
			continue
		}
		if err := c.applyOne(ctx, res, a.Target, "acked", "SELECT public.fn_queue_alert_ack($1::text, $2::text, $3::text, make_interval(secs => $4))", a.Key, p.Request.Actor, p.Request.Args["comment"], float64(secs)); err != nil {
			return err
		}
	}
	return nil
}

func applyUnack(ctx context.Context, c *Planner, p queue.Plan, res *queue.Result) error {
	shown, err := shownAlerts(p)
	if err != nil {
		return err
	}
	for _, a := range shown {
		if err := c.applyOne(ctx, res, a.Target, "unacked", "SELECT public.fn_queue_alert_unack($1::text, $2::text, $3::text)", a.Key, p.Request.Actor, p.Request.Args["comment"]); err != nil {
			return err
		}
	}
	return nil
}

// alertWord returns the adjective for an alert kind, as in "silent for 5m 00s".
func alertWord(kind string) string {
	word := map[string]string{
		queue.AlertSilence: "silent", queue.AlertBroadcast: "over the limit", queue.AlertFailing: "suspended", queue.AlertNoHost: "without a host",
		queue.AlertUnclaimed: "not claimed", queue.AlertBacklog: "due", queue.AlertCircuit: "open", queue.AlertQuarantine: "in quarantine",
	}[kind]
	return cmp.Or(word, "active")
}
