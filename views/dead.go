package views

// This file is pane 5 down to the single letter: groups by fingerprint, then
// the letters of a group.

import (
	"strconv"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// GroupNames are the endpoints or kinds of groups, with the domain or the subscription where one code has several of a name:
// a narrow screen has no columns for them.
func GroupNames(groups []queue.DeadGroup) []string {
	type named struct{ source, code, endpoint string }
	of := func(g queue.DeadGroup) named { return named{g.Source, g.Code.String(), g.Endpoint.String()} }
	times := map[named]int{}
	for _, g := range groups {
		times[of(g)]++
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.Endpoint.String()
		switch {
		case times[of(g)] == 1:
		case g.SubscriptionID != 0:
			names[i] += " #" + strconv.FormatInt(g.SubscriptionID, 10)
		default:
			names[i] += " in " + g.Domain.String()
		}
	}
	return names
}

// DeadGroups is the first table of pane 5.
func DeadGroups(s *queue.Snapshot) Source {
	var rows []queue.DeadGroup
	if s != nil {
		rows = s.DeadGroups
	}
	names := GroupNames(rows)
	return Source{
		Columns: []table.Column{
			{Title: "code", Width: 12, Want: 18, Max: 24},
			{Title: "endpoint / kind", Width: 19, Want: 28, Max: 48},
			{Title: "open", Width: 7, Max: 9, Right: true},
			{Title: "first", Width: 8, Right: true, Drop: 2},
			{Title: "last", Width: 8, Right: true, Drop: 1},
			{Title: "last hour", Width: 12, Drop: 3},
			{Title: "domain", Width: 10, Max: 20, Drop: 4},
			{Title: "source", Width: 8, Drop: 5},
			{Title: "sub", Width: 5, Max: 7, Right: true, Drop: 6},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "dlq-groups", []any{rows[i]} },
		ID:     func(i int) string { return GroupID(rows[i]) },
		Row: func(i int, e Env) table.Row {
			g, th := rows[i], e.Theme
			r := groupRank(g)
			return table.Row{Sign: e.sign(r), Cells: []table.Cell{
				cell(g.Code.String(), th.Strong), cell(names[i], th.Text), cell(Count(g.Open), e.tone(r)),
				cell(e.Ago(g.FirstAt), th.Dim), cell(e.Ago(g.LastAt), th.Text), cell(Spark(th, g.Trend, 12), e.tone(r)),
				cell(g.Domain.String(), th.Dim), cell(g.Source, th.Dim), cell(idOrDash(g.SubscriptionID, e), th.Dim),
			}}
		},
		Fields: fields("code", "endpoint", "kind", "subscription", "domain", "source", "open", "age"),
		Field: func(i int, name string) (any, bool) {
			g := rows[i]
			switch name {
			case "code":
				return g.Code.String(), true
			case "endpoint":
				return g.Endpoint.String(), true
			case "kind":
				if g.Source == "job" {
					return g.Endpoint.String(), true
				}
				return g.Source, true
			case "subscription":
				return g.SubscriptionID, true
			case "domain":
				return g.Domain.String(), true
			case "source":
				return g.Source, true
			case "open":
				return g.Open, true
			case "age":
				return s.TakenAt.Sub(g.FirstAt), true
			}
			return nil, false
		},
		Sorts: []Sort{
			{Name: "open, most first", Column: 2, Desc: true, Less: func(i, j int) bool { return rows[i].Open > rows[j].Open }},
			{Name: "last, newest first", Column: 4, Desc: true, Less: func(i, j int) bool { return rows[i].LastAt.After(rows[j].LastAt) }},
			{Name: "first, oldest first", Column: 3, Less: func(i, j int) bool { return rows[i].FirstAt.Before(rows[j].FirstAt) }},
			{Name: "code", Column: 0, Less: func(i, j int) bool { return rows[i].Code.String() < rows[j].Code.String() }},
			{Name: "endpoint", Column: 1, Less: func(i, j int) bool { return rows[i].Endpoint.String() < rows[j].Endpoint.String() }},
		},
		Empty: []string{"No dead letter is open.", "What fails for the last time appears here, grouped by its cause."},
		Note:  lacks(s, "dead_groups"),
	}
}

// GroupID names a group for cursor and marks.
func GroupID(g queue.DeadGroup) string {
	return g.Source + "\x00" + g.Code.String() + "\x00" + g.Endpoint.String() + "\x00" + g.Domain.String() + "\x00" + strconv.FormatInt(g.SubscriptionID, 10)
}

// groupRank: a group that still grows is the incident, the others are its
// remains.
func groupRank(g queue.DeadGroup) int {
	for _, v := range last(g.Trend, 3) {
		if v > 0 {
			return rankCritical
		}
	}
	return rankWarning
}

// Letters is the second table of pane 5: the letters of one group.
func Letters(rows []queue.DeadLetter) Source {
	id, event := 8, 1
	if len(rows) > 0 && rows[0].Source != "webhook" {
		event = 9                               // it has none, or its kind says it
		id = len(rows[0].Source+":") + shortLen // the page has the whole
	}
	return Source{
		Columns: []table.Column{
			{Title: "id", Width: id, Max: max(id, 14)},
			{Title: "failed", Width: 11},
			{Title: "age", Width: 8, Right: true},
			{Title: "state", Width: 8, Max: 9},
			{Title: "code", Width: 10, Max: 20, Drop: 3},
			{Title: "event", Width: 14, Max: 34, Drop: event},
			{Title: "endpoint / kind", Width: 16, Max: 40, Drop: 4},
			{Title: "domain", Width: 8, Max: 18, Drop: 5},
			{Title: "requeued", Width: 8, Right: true, Drop: 2},
			{Title: "saga", Width: 8, Max: 12, Right: true, Drop: 6},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "dlq", []any{rows[i]} },
		ID:     func(i int) string { return rows[i].ID },
		Row: func(i int, e Env) table.Row {
			d, th := rows[i], e.Theme
			sign, state := cell(th.G.Critical, th.Critical), th.Text
			if d.State != "open" {
				sign, state = cell(th.G.Good, th.Accent), th.Accent
			}
			return table.Row{Sign: sign, Cells: []table.Cell{
				cell(ShortID(d.ID), th.Strong), cell(e.Clock(d.FailedAt), th.Text), cell(Age(d.AgeSeconds), th.Text), cell(d.State, state),
				cell(d.Code.String(), th.Text), cell(textOrDash(d.EventType, e), th.Text), cell(d.Endpoint.String(), th.Dim),
				cell(d.Domain.String(), th.Dim), cell(generations(d.Generation, e), th.Text), cell(idOrDash(d.SagaID, e), th.Dim),
			}}
		},
		Fields: queue.DeadLetterFields(),
		Sorts: []Sort{
			{Name: "failed, newest first", Column: 1, Desc: true},
			{Name: "failed, oldest first", Column: 1, Less: func(i, j int) bool { return rows[i].FailedAt.Before(rows[j].FailedAt) }},
			{Name: "requeued, most first", Column: 8, Desc: true, Less: func(i, j int) bool { return rows[i].Generation > rows[j].Generation }},
			{Name: "event", Column: 5, Less: func(i, j int) bool { return rows[i].EventType.String() < rows[j].EventType.String() }},
		},
		Empty: []string{"No open dead letter here.", "They were requeued or closed, or none matches the filter. esc goes back to the groups."},
	}
}

func idOrDash(id int64, e Env) string {
	if id == 0 {
		return e.Theme.G.Dash
	}
	return strconv.FormatInt(id, 10)
}

func textOrDash(t queue.Text, e Env) string {
	if t.Empty() {
		return e.Theme.G.Dash
	}
	return t.String()
}

func generations(n int, e Env) string {
	if n == 0 {
		return e.Theme.G.Dash
	}
	return strconv.Itoa(n) + e.Theme.G.Times
}
