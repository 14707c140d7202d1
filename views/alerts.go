package views

// This file is pane 3: silences and shares over their line, with who has them. What was acknowledged stays
// listed: an acknowledgement is a promise, not a cure.

import (
	"cmp"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// Alerts is the table of pane 3: the open ones by urgency, then those that
// somebody has, oldest first.
func Alerts(s *queue.Snapshot) Source {
	var rows []queue.Alert
	if s != nil {
		rows = s.Alerts
	}
	return Source{
		Columns: []table.Column{
			{Title: "subject", Width: 20, Want: 24, Max: 40},
			{Title: "severity", Width: 9},
			{Title: "for", Width: 8, Right: true},
			{Title: "×cadence", Width: 9, Max: 10, Right: true, Drop: 3},
			{Title: "owner", Width: 12, Max: 24},
			{Title: "left", Width: 6, Right: true, Drop: 2},
			{Title: "comment", Width: 16, Max: 70, Drop: 4},
			{Title: "since", Width: 11, Drop: 5},
			{Title: "kind", Width: 9, Drop: 6},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "alerts", []any{rows[i]} },
		ID:     func(i int) string { return rows[i].Key.String() },
		Row:    func(i int, e Env) table.Row { return alertRow(rows[i], e) },
		Field:  func(i int, name string) (any, bool) { return alertField(rows[i], name) },
		Fields: fields("alert", "subject", "kind", "severity", "state", "owner", "comment", "age", "ratio"),
		Sorts: []Sort{
			{Name: "urgency", Column: 1, Desc: true, Less: func(i, j int) bool { return moreUrgent(rows[i], rows[j]) }},
			{Name: "longest first", Column: 2, Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
			{Name: "subject", Column: 0, Less: func(i, j int) bool { return rows[i].Subject.String() < rows[j].Subject.String() }},
			{Name: "owner", Column: 4, Less: func(i, j int) bool { return rows[i].AckedBy.String() < rows[j].AckedBy.String() }},
		},
		Empty: []string{"Nobody is silent, no share is over its line.", "An executor that misses three of its beats appears here by itself."},
		Note:  lacks(s, "alerts"),
	}
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

func alertRow(a queue.Alert, e Env) table.Row {
	th := e.Theme
	r := rank(a.Severity)
	sign, tone, owner, until := e.sign(r), e.tone(r), e.nobody(), ""
	ownerStyle := tone
	if a.State == "acked" {
		sign, tone, owner, ownerStyle = cell(th.G.Good, th.Accent), th.Text, a.AckedBy.String(), th.Accent
		if a.AckExpiresAt != nil {
			until = e.Until(*a.AckExpiresAt)
		}
	}
	comment := a.Comment.String()
	if a.State != "acked" && a.LastCleared != "" {
		comment = "reopened: " + strings.ReplaceAll(a.LastCleared, "_", " ")
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(a.Subject.String(), th.Strong), cell(severity(a.Severity), tone),
		cell(Age(a.AgeSeconds), th.Text), cell(alertTimes(a, e), th.Text),
		cell(owner, ownerStyle), cell(until, th.Text), cell(comment, th.Dim),
		cell(e.clockOrDash(a.Since), th.Dim), cell(a.Kind, th.Dim),
	}}
}

func alertField(a queue.Alert, name string) (any, bool) {
	switch name {
	case "alert":
		return a.Key.String(), true
	case "subject":
		return a.Subject.String(), true
	case "kind":
		return a.Kind, true
	case "severity":
		return a.Severity, true
	case "state":
		return a.State, true
	case "owner":
		return a.AckedBy.String(), true
	case "comment":
		return a.Comment.String(), true
	case "age":
		return seconds(&a.AgeSeconds)
	case "ratio":
		return a.Ratio, true
	}
	return nil, false
}

// AlertPage is one alert with the history of its acknowledgements. history is
// nil until it has been read.
func AlertPage(a queue.Alert, history []queue.AlertAck, e Env, w int) Page {
	p := newPage(e, w)
	p.head(a.Subject.String())
	p.paint("severity", severity(a.Severity), e.tone(rank(a.Severity)))
	if a.Kind == "broadcast" {
		p.pair("over the line", "for "+Age(a.AgeSeconds)+", "+shareName(a)+" that reach nobody in particular are now "+e.Times(a.Ratio)+" the line")
		p.pair("since", e.stampOrDash(a.Since))
		p.pair("cure", "a rule for the types that gs lists, or one unmuted; queue.subscription_resolution.broadcast_warn_percent is the line")
	} else {
		p.pair("silent for", Age(a.AgeSeconds)+", "+e.Times(a.Ratio)+" its cadence")
		p.pair("last beat", e.stampOrDash(a.Since))
	}
	p.pair("alert", a.Key.String())
	p.pair("kind", a.Kind)
	p.pair("events", strings.Join(a.EventIDs, ", "))
	if a.State == "acked" {
		p.pair("owner", a.AckedBy.String())
		p.pair("acknowledged", e.stampOrDash(a.AckedAt))
		p.pair("comment", a.Comment.String())
		if a.AckExpiresAt != nil {
			p.pair("until", e.Stamp(*a.AckExpiresAt)+", in "+e.Until(*a.AckExpiresAt))
		}
	} else {
		p.paint("owner", e.nobody(), e.tone(rank(a.Severity)))
		p.pair("last ack ended", strings.ReplaceAll(a.LastCleared, "_", " "))
	}
	if e.Brief {
		return p.done(a.Subject.String())
	}
	p.head("Acknowledgements, newest first")
	switch {
	case history == nil:
		p.para("reading"+e.Theme.G.Ellipsis, e.Theme.Dim)
	case len(history) == 0:
		p.para("Nobody has acknowledged this yet.", e.Theme.Dim)
	}
	for _, h := range history {
		ended := "stands"
		if h.ClearedAt != nil {
			ended = "ended " + e.Clock(*h.ClearedAt) + ", " + strings.ReplaceAll(h.ClearedReason.String(), "_", " ")
		} else if h.ExpiresAt != nil {
			ended = "until " + e.Clock(*h.ExpiresAt)
		}
		p.pair(e.Clock(h.AckedAt), h.AckedBy.String()+": "+h.Comment.String()+" ("+ended+")")
	}
	return p.done(a.Subject.String())
}

// alertTimes is how many times its cadence an executor has been silent, or its line
// a share is.
func alertTimes(a queue.Alert, e Env) string {
	if a.Kind == "broadcast" {
		return e.Times(a.Ratio) + " line"
	}
	return e.Times(a.Ratio)
}
