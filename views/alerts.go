package views

// This file is pane 3: one row per cause, with who acknowledged it: silences, what no host runs, lanes that nobody can claim,
// backlogs, circuits, shares over their line, endpoints given up and rows set aside. What was acknowledged stays listed:
// an acknowledgement is a promise, not a cure.

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Alerts is the table of pane 3: the open ones by urgency, then those that
// somebody has, oldest first.
func Alerts(s *queue.Snapshot) Source {
	rows := queue.Causes(s.OrEmpty().Alerts)
	return Source{
		Sorts: []Sort{
			{Name: "urgency", Column: "severity", Desc: true, Less: func(i, j int) bool { return moreUrgent(rows[i], rows[j]) }},
			{Name: "longest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
			{Name: "subject", Column: "subject", Less: func(i, j int) bool { return rows[i].Subject.String() < rows[j].Subject.String() }},
			{Name: "owner", Column: "acked_by", Less: func(i, j int) bool { return rows[i].AckedBy.String() < rows[j].AckedBy.String() }},
		},
		Empty: []string{"Nobody is silent, no work waits for long, no share is over its line.", "An executor that misses three of its beats appears here by itself."},
		Note:  missing(s, "alerts"),
	}.with(List[queue.Alert]{
		Name: "alerts", Rows: rows, ID: func(a queue.Alert) string { return a.Key.String() }, First: "severity state subject age_seconds ratio acked_by ack_expires_at comment alert_key",
		Filter: "alert=alert_key subject kind severity state owner=acked_by comment age=age_seconds ratio",
		Look: func(a queue.Alert, e Env) (table.Cell, theme.Style) {
			if a.State == "acked" {
				return cell(e.Theme.G.Good, e.Theme.Accent), e.Theme.Text
			}
			return e.sign(rank(a.Severity)), e.tone(rank(a.Severity))
		},
		Columns: []Column[queue.Alert]{
			{Name: "subject", Width: 20, Want: 24, Max: 40, Look: strong, Text: func(a queue.Alert, _ Env) string { return AlertName(a) }, Plain: func(a queue.Alert) string { return a.Subject.String() }},
			{Name: "severity", Width: 9, Look: ofRow, Say: func(_ Env, v any) string { return severity(fmt.Sprint(v)) }},
			{Name: "age_seconds", Title: "for", Width: 8, Right: true},
			{Name: "ratio", Title: "×cadence", Head: "RATIO", Width: 9, Max: 10, Right: true, Drop: 3, Text: alertRatio, Plain: func(a queue.Alert) string { return PlainRatio(a.Ratio) }},
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

// moreUrgent orders alerts: open before acknowledged, critical before warning,
// then the longest silence; among the acknowledged the oldest promise first.
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

// AlertName is what an alert is about, as a person reads it.
func AlertName(a queue.Alert) string {
	switch a.Kind {
	case queue.AlertNoHost:
		return "no host"
	case queue.AlertUnclaimed, queue.AlertBacklog:
		return a.Queue()
	case queue.AlertCircuit:
		return "circuit " + strings.TrimPrefix(a.Subject.String(), "circuit:")
	}
	return a.Subject.String()
}

// AlertPage is one alert with what it stands for among all and with the history of
// its acknowledgements. history is nil until it has been read.
func AlertPage(a queue.Alert, all []queue.Alert, history []queue.AlertAck, e Env, w int) Page {
	p := newPage(e, w)
	p.head(AlertName(a))
	p.paint("severity", severity(a.Severity), e.tone(rank(a.Severity)))
	switch a.Kind {
	case "broadcast":
		p.pair("over the line", "for "+Age(a.AgeSeconds)+", "+shareName(a)+" that reach nobody in particular are now "+e.Times(a.Ratio)+" the line")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "a rule for the types that gs lists, or one unmuted; queue.subscription_resolution.broadcast_warn_percent is the line")
	case queue.AlertQuarantine:
		p.pair("set aside for", Age(a.AgeSeconds)+", after "+plural(int64(a.Ratio), "attempt", "attempts")+"; everything else goes on without it")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "qtop quarantine says what failed; fix it, then R here or qtop quarantine retry")
	case "failing":
		p.pair("suspended for", Age(a.AgeSeconds)+", after nothing but failures for "+e.Times(a.Ratio)+" webhook.disable_after_days")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "mend the receiver, then D in Endpoints (7) or qtop endpoint resume "+failingID(a)+"; what waits there has spent no attempt")
	case queue.AlertNoHost:
		p.pair("for", Age(a.AgeSeconds))
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "gw, S starts loops in this process; qtop worker runs a host elsewhere")
	case queue.AlertUnclaimed:
		p.pair("due for", Age(a.AgeSeconds)+": nobody alive can claim its jobs")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "start the executor's host, bind a handler, or 4 and E for a subscription; qtop why '"+a.Queue()+"' has the whole chain")
	case queue.AlertBacklog:
		p.pair("due for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" queue.backlog.critical_seconds")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "qtop why '"+a.Queue()+"' says what holds it")
	case queue.AlertCircuit:
		p.pair("open for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" queue.backlog.critical_seconds")
		p.pair("since", dashed(e, a.Since, e.Stamp))
		p.pair("cure", "repair the receiver: the next probe that succeeds closes the circuit; D in Endpoints (7) closes it now")
	default:
		p.pair("silent for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" its cadence")
		p.pair("last beat", dashed(e, a.Since, e.Stamp))
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
	if parts := a.Parts(all); len(parts) > 0 {
		p.head("What it stands for (" + strconv.Itoa(len(parts)) + ")")
		for _, x := range parts {
			p.pair(AlertName(x), e.dotted(x.Kind, severity(x.Severity), "for "+Age(x.AgeSeconds)))
		}
	}
	p.head("Acknowledgements, newest first")
	p.list(history != nil, len(history), "Nobody has acknowledged this yet.")
	for _, h := range history {
		ended := "stands"
		if h.ClearedAt != nil {
			ended = "ended " + e.Clock(*h.ClearedAt) + ", " + strings.ReplaceAll(h.ClearedReason.String(), "_", " ")
		} else if h.ExpiresAt != nil {
			ended = "until " + e.Clock(*h.ExpiresAt)
		}
		p.pair(e.Clock(h.AckedAt), h.AckedBy.String()+": "+h.Comment.String()+" ("+ended+")")
	}
	return p.done(AlertName(a))
}

// quarantineName is the step and the row that an alert of the kind quarantine is about.
func quarantineName(a queue.Alert) string { return strings.TrimPrefix(a.Subject.String(), "quarantine:") }

// failingID is the subscription that an alert of the kind failing is about.
func failingID(a queue.Alert) string { return strings.TrimPrefix(a.Subject.String(), "failing:") }

// alertRatio is how many times its cadence an executor has been silent, or its line
// a share or an endpoint that fails is.
func alertRatio(a queue.Alert, e Env) string {
	if a.Kind == queue.AlertQuarantine {
		return plural(int64(a.Ratio), "try", "tries")
	}
	return e.Times(a.Ratio) + queue.Choose(a.Kind != queue.AlertSilence, " line", "")
}
