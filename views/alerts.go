package views

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Alerts returns the table of pane 3: one row per cause with its owner. Open alerts are first, by
// urgency; then acknowledged ones, the oldest first. Acknowledged alerts stay listed, because an
// acknowledgement does not fix anything.
func Alerts(s *queue.Snapshot) Source {
	rows := queue.Causes(s.OrEmpty().Alerts)
	return Source{
		Sorts: []Sort{
			{Name: "urgency", Column: "severity", Desc: true, Less: func(i, j int) bool { return moreUrgent(rows[i], rows[j]) }},
			{Name: "longest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
			{Name: "subject", Column: "subject", Less: func(i, j int) bool { return rows[i].Subject.String() < rows[j].Subject.String() }},
			{Name: "owner", Column: "acked_by", Less: func(i, j int) bool { return rows[i].AckedBy.String() < rows[j].AckedBy.String() }},
		},
		Empty: []string{"No executor is silent, no work waits too long, no share is over its limit.", "An executor that misses three heartbeats appears here automatically."},
		Note:  missing(s, "alerts"),
	}.with(List[queue.Alert]{
		Name: "alerts", Rows: rows, ID: func(a queue.Alert) string { return a.Key.String() }, Title: AlertName, First: "severity state subject age_seconds ratio acked_by ack_expires_at comment alert_key",
		Filter: "alert=alert_key subject kind severity state owner=acked_by comment age=age_seconds ratio",
		Look: func(a queue.Alert, e Env) (table.Cell, theme.Style) {
			if a.State == "acked" {
				return cell(e.Theme.G.Good, e.Theme.Accent), e.Theme.Text
			}
			return e.sign(rank(a.Severity)), e.tone(rank(a.Severity))
		},
		Columns: []Column[queue.Alert]{
			{Name: "subject", Width: 20, Want: 24, Max: 40, Look: strong, Text: func(a queue.Alert, _ Env) string { return AlertName(a) }, Plain: func(a queue.Alert) string {
				return strings.TrimSpace(a.Subject.String() + " " + a.Receiver())
			}},
			{Name: "severity", Width: 9, Look: ofRow, Say: func(_ Env, v any) string { return severity(fmt.Sprint(v)) }},
			{Name: "age_seconds", Title: "for", Width: 8, Right: true},
			{Name: "ratio", Title: "×cadence", Head: "RATIO", Width: 9, Max: 11, Right: true, Drop: 3, Text: alertRatio, Plain: func(a queue.Alert) string { return PlainRatio(a.Ratio) }},
			{Name: "acked_by", Title: "owner", Width: 12, Max: 24, Cell: func(a queue.Alert, e Env) table.Cell {
				return queue.Choose(a.State == "acked", cell(a.AckedBy.String(), e.Theme.Accent), cell(e.nobody(), e.tone(rank(a.Severity))))
			}},
			{Name: "ack_expires_at", Title: "left", Head: "UNTIL", Width: 6, Right: true, Drop: 2, Text: func(a queue.Alert, e Env) string {
				if a.State == "acked" && a.AckExpiresAt != nil {
					return e.Until(*a.AckExpiresAt)
				}
				return ""
			}},
			{Name: "comment", Width: 16, Max: 70, Drop: 4, Look: dim, Text: func(a queue.Alert, _ Env) string {
				return queue.Choose(a.State != "acked" && a.LastCleared != "", "reopened: "+strings.ReplaceAll(a.LastCleared, "_", " "), a.Comment.String())
			}},
			{Name: "since", Width: 11, Drop: 5, Look: dim},
			{Name: "kind", Width: 9, Drop: 6, Look: dim},
			{Name: "detail", Width: 20, Max: 90, Drop: 7, Look: dim},
			{Name: "state"},
			{Name: "alert_key", Head: "KEY"},
		},
	}.lines())
}

// moreUrgent reports whether a belongs above b: open before acknowledged,
// critical before warning, then the longest first; among acknowledged ones the
// oldest acknowledgement first.
func moreUrgent(a, b queue.Alert) bool {
	if x, y := a.State == "acked", b.State == "acked"; x != y {
		return y
	} else if x && a.AckedAt != nil && b.AckedAt != nil && !a.AckedAt.Equal(*b.AckedAt) {
		return a.AckedAt.Before(*b.AckedAt)
	}
	if c := cmp.Compare(rank(a.Severity), rank(b.Severity)); c != 0 {
		return c > 0
	}
	return a.AgeSeconds > b.AgeSeconds
}

// AlertName returns what an alert is about, in the words of the screen.
func AlertName(a queue.Alert) string {
	switch a.Kind {
	case queue.AlertNoHost:
		return "no host"
	case queue.AlertUnclaimed, queue.AlertBacklog:
		return a.Queue()
	case queue.AlertCircuit:
		id := strings.TrimPrefix(a.Subject.String(), "circuit:")
		return strings.TrimSpace("circuit " + id + " " + a.Receiver())
	}
	return a.Subject.String()
}

// AlertPage returns the page of one alert of s, with the alerts that it causes and the history of its
// acknowledgements. history is nil until it has been read.
func AlertPage(a queue.Alert, s *queue.Snapshot, history []queue.AlertAck, e Env, w int) Page {
	p := newPage(e, w)
	p.head(AlertName(a))
	p.paint("severity", severity(a.Severity), e.tone(rank(a.Severity)))
	switch a.Kind {
	case "broadcast":
		p.pair("over the limit", "for "+Age(a.AgeSeconds)+": the share of "+shareName(a)+" that only broadcast reaches is "+e.Times(a.Ratio)+" the limit")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "add or unmute a subscription for the types listed in Subscriptions (gs). A consumer is no recipient: events that only a consumer reads count too; where that is meant, raise the limit, the flag queue.subscription_resolution.broadcast_warn_percent")
	case queue.AlertQuarantine:
		p.pair("in quarantine", "for "+Age(a.AgeSeconds)+", after "+Plural(int64(a.Ratio), "attempt", "attempts")+"; all other rows are processed")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "qtop quarantine shows the error; fix the cause, then press R here or run qtop quarantine retry")
	case "failing":
		p.pair("suspended for", Age(a.AgeSeconds)+", after only failures for "+e.Times(a.Ratio)+" webhook.disable_after_days")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "fix the receiver, then D in Webhooks (7) or qtop endpoint resume "+failingID(a)+"; waiting webhooks have used no attempt")
	case queue.AlertNoHost:
		p.pair("for", Age(a.AgeSeconds))
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", queue.Choose(e.startable(), "start loops in this process (gw, S), or run qtop worker on another machine",
			"run qtop worker on a machine of the hosts; this process cannot, gw says why"))
	case queue.AlertUnclaimed:
		p.pair("due for", Age(a.AgeSeconds)+": no live executor can claim these jobs")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "start the host of the executor, bind a handler, or add a job subscription (4, E); qtop why "+queue.ShellQuote(a.Queue())+" shows the whole chain")
	case queue.AlertBacklog:
		p.pair("due for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" queue.backlog.critical_seconds")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "qtop why "+queue.ShellQuote(a.Queue())+" shows what blocks the queue")
	case queue.AlertCircuit:
		p.pair("open for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" queue.backlog.critical_seconds")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "fix the receiver: the next probe that succeeds closes the circuit; D in Webhooks (7) closes it now")
	default:
		p.pair("what it does", queue.Purpose(a.Subject.String()))
		p.pair("silent for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" its cadence")
		last := dashed(e, a.Since, e.Stamp)
		if x, ok := queue.Find(s.OrEmpty().Executors, func(x queue.Executor) bool { return x.ID == a.Subject }); ok && x.LastBeatAt == nil {
			last = "never since it was registered"
		}
		p.pair("last heartbeat", last)
	}
	p.pair("detail", a.Detail.String())
	p.pair("alert", a.Key.String())
	p.pair("kind", a.Kind)
	p.pair("events", strings.Join(a.EventIDs, ", "))
	if a.State == "acked" {
		p.pair("owner", a.AckedBy.String())
		p.pair("acknowledged", dashed(e, a.AckedAt, e.Stamp))
		p.pair("comment", a.Comment.String())
		if a.AckExpiresAt != nil {
			p.pair("until", e.Stamp(*a.AckExpiresAt)+", "+e.In(*a.AckExpiresAt))
		}
	} else {
		p.paint("owner", e.nobody(), e.tone(rank(a.Severity)))
		p.pair("last ack ended", strings.ReplaceAll(a.LastCleared, "_", " "))
	}
	if e.Brief {
		return p.done(AlertName(a))
	}
	if parts := a.Parts(s.OrEmpty().Alerts); len(parts) > 0 {
		p.head("Included alerts (" + strconv.Itoa(len(parts)) + ")")
		for _, x := range parts {
			p.pair(AlertName(x), e.dotted(x.Kind, severity(x.Severity), "for "+Age(x.AgeSeconds)))
		}
	}
	p.head("Acknowledgements, newest first")
	p.list(history != nil, len(history), "Not acknowledged yet.")
	for _, h := range history {
		ended := "no expiry"
		if h.ClearedAt != nil {
			ended = "ended " + e.Clock(*h.ClearedAt) + ", " + strings.ReplaceAll(h.ClearedReason.String(), "_", " ")
		} else if h.ExpiresAt != nil {
			ended = "until " + e.Clock(*h.ExpiresAt)
		}
		p.pair(e.Clock(h.AckedAt), h.AckedBy.String()+": "+h.Comment.String()+" ("+ended+")")
	}
	return p.done(AlertName(a))
}

// quarantineName returns the alert's row in quarantine as STEP:ROW: the step
// of a tick worker that fails, and the id of the row on which it fails.
func quarantineName(a queue.Alert) string {
	return strings.TrimPrefix(a.Subject.String(), "quarantine:")
}

// failingID returns the id of the webhook subscription that an alert of kind
// "failing" is about.
func failingID(a queue.Alert) string { return strings.TrimPrefix(a.Subject.String(), "failing:") }

// alertRatio returns by how much an alert exceeds its limit, such as 3×. For a
// silence it is the age ÷ the cadence; for a row in quarantine it is the
// number of attempts; for others the value ÷ its limit.
// Unclaimed work is an alert whatever its age, so a value below the limit is
// not shown.
func alertRatio(a queue.Alert, e Env) string {
	if a.Kind == queue.AlertQuarantine {
		return Plural(int64(a.Ratio), "attempt", "attempts")
	}
	if a.Kind == queue.AlertUnclaimed && a.Ratio < 1 {
		return e.Theme.G.Dash
	}
	return e.Times(a.Ratio) + queue.Choose(a.Kind != queue.AlertSilence, " limit", "")
}
