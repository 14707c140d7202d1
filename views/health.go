package views

// This file is pane 2: every source and row of v_queue_health, stale first.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// Health is the table of pane 2.
func Health(s *queue.Snapshot) Source {
	var rows []queue.HealthRow
	if s != nil {
		rows = s.Health
	}
	urgency := func(i int) int { return rank(rows[i].StatusHint.String()) }
	age := func(i int) int64 { return orZero(rows[i].AgeSeconds) }
	return Source{
		Columns: []table.Column{
			{Title: "subject", Width: 22, Want: 28, Max: 44},
			{Title: "source", Width: 14, Want: 20, Max: 26, Drop: 1},
			{Title: "domain", Width: 8, Max: 16, Drop: 4},
			{Title: "status", Width: 8, Max: 12},
			{Title: "last seen", Width: 9, Right: true},
			{Title: "events", Width: 9, Max: 12, Right: true, Drop: 3},
			{Title: "attempts", Width: 9, Max: 12, Right: true, Drop: 5},
			{Title: "dead", Width: 7, Max: 9, Right: true, Drop: 2},
			{Title: "last seen at", Width: 12, Drop: 6},
			{Title: "held by", Width: 30, Want: 44, Max: 80, Drop: 7},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "health", []any{rows[i]} },
		ID: func(i int) string {
			return rows[i].Source.String() + "\x00" + rows[i].Subject.String() + "\x00" + rows[i].Domain.String()
		},
		Row: func(i int, e Env) table.Row {
			r, th := rows[i], e.Theme
			at := th.G.Dash
			if r.LastSeenAt != nil {
				at = e.Clock(*r.LastSeenAt)
			}
			by := ""
			if h := s.Holder(r); h != nil {
				by = holder(*h)
			}
			return table.Row{Sign: e.sign(urgency(i)), Cells: []table.Cell{
				cell(r.Subject.String(), th.Strong),
				cell(r.Source.String(), th.Dim),
				cell(r.Domain.String(), th.Dim),
				cell(r.StatusHint.String(), e.tone(urgency(i))),
				cell(e.ageOrDash(r.AgeSeconds), th.Text),
				cell(e.countOrDash(r.EventsSeen), th.Text),
				cell(e.countOrDash(r.AttemptsWritten), th.Text),
				cell(e.countOrDash(r.DeadLettered), th.Text),
				cell(at, th.Dim),
				cell(by, th.Text),
			}}
		},
		Fields: fields("source", "subject", "domain", "status", "age", "events", "attempts", "dead"),
		Field: func(i int, name string) (any, bool) {
			r := rows[i]
			switch name {
			case "source":
				return r.Source.String(), true
			case "subject":
				return r.Subject.String(), true
			case "domain":
				return r.Domain.String(), true
			case "status":
				return r.StatusHint.String(), true
			case "age":
				return seconds(r.AgeSeconds)
			case "events":
				return number(r.EventsSeen)
			case "attempts":
				return number(r.AttemptsWritten)
			case "dead":
				return number(r.DeadLettered)
			}
			return nil, false
		},
		Sorts: []Sort{
			{Name: "stale first", Column: 3, Desc: true, Less: func(i, j int) bool {
				if a, b := urgency(i), urgency(j); a != b {
					return a > b
				} else if a > rankQuiet && age(i) != age(j) {
					return age(i) > age(j)
				}
				// Fresh rows stand by name: by age they would change places with each beat.
				return rows[i].Subject.String() < rows[j].Subject.String()
			}},
			{Name: "last seen, oldest first", Column: 4, Desc: true, Less: func(i, j int) bool { return age(i) > age(j) }},
			{Name: "subject", Column: 0, Less: func(i, j int) bool { return rows[i].Subject.String() < rows[j].Subject.String() }},
			{Name: "source", Column: 1, Less: func(i, j int) bool { return rows[i].Source.String() < rows[j].Source.String() }},
		},
		Empty: []string{"Nothing reports its health yet.", "Sources appear here as soon as they have run once; gw starts the loops of a worker host."},
		Note:  lacks(s, "health"),
	}
}

// HealthPage is one row of pane 2 in full.
func HealthPage(s *queue.Snapshot, r queue.HealthRow, e Env, w int) Page {
	p := newPage(e, w)
	p.head(r.Subject.String())
	p.pair("source", r.Source.String())
	p.pair("domain", r.Domain.String())
	p.paint("status", r.StatusHint.String(), e.tone(rank(r.StatusHint.String())))
	if r.LastSeenAt != nil {
		p.pair("last seen", e.Stamp(*r.LastSeenAt))
	}
	p.pair("age", e.ageOrDash(r.AgeSeconds))
	if h := s.Holder(r); h != nil {
		p.pair("held by", holder(*h))
	}
	p.pair("events seen", e.countOrDash(r.EventsSeen))
	p.pair("attempts", e.countOrDash(r.AttemptsWritten))
	p.pair("dead-lettered", e.countOrDash(r.DeadLettered))
	return p.done(r.Subject.String())
}
