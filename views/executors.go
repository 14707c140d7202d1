package views

// This file is pane 4: every executor, by what it does now. A deregistered one
// stays as a tombstone. Under them stands what each may claim.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// Executors is the table of pane 4: executors, and under them their
// subscriptions.
func Executors(s *queue.Snapshot) Source {
	var rows []queue.Executor
	var subs []queue.JobSubscription
	if s != nil {
		rows, subs = s.Executors, s.JobSubscriptions
	}
	n, rules := len(rows), subscriptionCounts(subs)
	return Source{
		Columns: []table.Column{
			{Title: "executor", Width: 22, Max: 36},
			{Title: "kind", Width: 10, Max: 20, Drop: 3},
			{Title: "state", Width: 12},
			{Title: "last beat", Width: 9, Right: true},
			{Title: "cadence", Width: 7, Right: true, Drop: 2},
			{Title: "×cadence", Width: 8, Right: true, Drop: 5},
			{Title: "in flight", Width: 9, Right: true, Drop: 4},
			{Title: "done", Width: 9, Max: 12, Right: true, Drop: 7},
			{Title: "owner", Width: 12, Max: 20, Drop: 1},
			{Title: "may claim", Width: 9, Max: 14, Drop: 1},
			{Title: "domains", Width: 12, Max: 44, Drop: 6},
		},
		Len: n + len(subs),
		Export: func(i int) (string, []any) {
			if i >= n {
				return "executor-rules", []any{subs[i-n]}
			}
			return "executors", []any{rows[i]}
		},
		ID: func(i int) string {
			if i >= n {
				return subscriptionRowID(subs[i-n])
			}
			return rows[i].ID.String()
		},
		Row: func(i int, e Env) table.Row {
			if i >= n {
				return subscriptionRow(subs[i-n], e)
			}
			row := executorRow(rows[i], e)
			row.Cells = slices.Insert(row.Cells, len(row.Cells)-1, mayClaim(rows[i], rules[rows[i].ID], e))
			return row
		},
		Fields: fields("id", "kind", "domain", "state", "severity", "owner", "age", "ratio"),
		Field: func(i int, name string) (any, bool) {
			if i >= n {
				return subscriptionField(subs[i-n], name)
			}
			return executorField(rows[i], name)
		},
		Sorts: []Sort{
			{Name: "state, worst first", Column: 2, Desc: true, Less: func(i, j int) bool {
				if c := cmp.Compare(executorRank(rows[i]), executorRank(rows[j])); c != 0 {
					return c > 0
				}
				if executorRank(rows[i]) > rankQuiet && rows[i].Ratio != rows[j].Ratio {
					return rows[i].Ratio > rows[j].Ratio
				}
				return rows[i].ID.String() < rows[j].ID.String() // a beat must not reorder them
			}},
			{Name: "last beat, oldest first", Column: 3, Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
			{Name: "executor", Column: 0, Less: func(i, j int) bool { return rows[i].ID.String() < rows[j].ID.String() }},
			{Name: "kind", Column: 1, Less: func(i, j int) bool { return rows[i].Kind.String() < rows[j].Kind.String() }},
		},
		Empty: []string{"No executor is registered.", "N registers one, so that its silence is seen.", "gw starts the loops of a worker host; they register themselves."},
		Note:  lacks(s, "executors", "job_subscriptions"),
		Second: Second{From: n, Columns: []table.Column{
			{Title: "MAY CLAIM", Width: 20, Want: 22, Max: 36},
			{Title: "job kind", Width: 12, Max: 30},
			{Title: "domain", Width: 9, Max: 18},
			{Title: "floor", Width: 5, Right: true, Drop: 2},
			{Title: "in flight", Width: 10, Max: 14, Right: true},
			{Title: "state", Width: 7},
			{Title: "notes", Width: 12, Max: 50, Drop: 3},
			{Title: "by", Width: 8, Max: 16, Drop: 4},
		}},
	}
}

// executorRank puts the silent first and tombstones last.
func executorRank(x queue.Executor) int {
	switch x.State {
	case "stale", "dead":
		if x.Severity == "critical" || x.State == "dead" {
			return rankCritical
		}
		return rankWarning
	case "stuck":
		return rankWarning
	case "deregistered":
		return -2
	case "stopped":
		return -1
	default:
		return rankQuiet
	}
}

func executorRow(x queue.Executor, e Env) table.Row {
	th := e.Theme
	r := executorRank(x)
	sign, tone, name := e.sign(r), e.tone(r), th.Strong
	switch {
	case r < rankQuiet:
		sign, tone, name = cell(th.G.Dash, th.Dim), th.Dim, th.Dim
	case x.State == "working":
		sign, tone = cell(th.G.Live, th.Accent), th.Accent
	case x.State == "idle":
		sign = cell(th.G.Lost, th.Accent)
	}
	owner, ownerStyle := x.AckedBy.String(), th.Accent
	if owner == "" {
		owner, ownerStyle = th.G.Dash, th.Dim
		if r > rankQuiet {
			owner, ownerStyle = e.nobody(), tone
		}
	}
	ratio := e.Times(x.Ratio)
	if r < rankQuiet {
		ratio = th.G.Dash
	}
	beat := Age(x.AgeSeconds)
	if x.LastBeatAt == nil {
		beat = "never"
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(x.ID.String(), name), cell(x.Kind.String(), th.Dim), cell(x.State, tone),
		cell(beat, th.Text), cell(Age(x.CadenceSeconds), th.Dim), cell(ratio, th.Text),
		cell(e.countOrDash(x.InFlight), th.Text), cell(e.countOrDash(x.DoneTotal), th.Text),
		cell(owner, ownerStyle), cell(joinTexts(x.Domains), th.Dim),
	}}
}

func executorField(x queue.Executor, name string) (any, bool) {
	switch name {
	case "id":
		return x.ID.String(), true
	case "kind":
		return x.Kind.String(), true
	case "domain":
		return allTexts(x.Domains), true
	case "state":
		return x.State, true
	case "severity":
		return x.Severity, true
	case "owner":
		return x.AckedBy.String(), true
	case "age":
		return seconds(&x.AgeSeconds)
	case "ratio":
		return x.Ratio, true
	}
	return nil, false
}

// ExecutorPage is one executor in full, with its subscriptions.
func ExecutorPage(x queue.Executor, subs []queue.JobSubscription, e Env, w int) Page {
	p := newPage(e, w)
	r := executorRank(x)
	p.head(x.ID.String())
	p.pair("kind", x.Kind.String())
	p.paint("state", strings.TrimSpace(x.State+" "+severity(x.Severity)), e.tone(r))
	p.pair("domains", joinTexts(x.Domains))
	p.pair("last beat", e.stampOrDash(x.LastBeatAt))
	p.pair("silent for", Age(x.AgeSeconds)+", "+e.Times(x.Ratio)+" its cadence of "+Age(x.CadenceSeconds))
	p.pair("stale after", Age(x.ThresholdSeconds))
	p.pair("in flight", e.countOrDash(x.InFlight))
	p.pair("done", e.countOrDash(x.DoneTotal))
	p.pair("last work", e.stampOrDash(x.LastWorkAt))
	if x.TickWorker {
		p.pair("beats", "by its tick alone")
	}
	p.subscriptions(x, subs)
	p.head("Who")
	p.pair("owner role", x.OwnerRole.String())
	p.pair("acknowledged", x.AckedBy.String())
	if x.AckExpiresAt != nil {
		p.pair("until", e.Stamp(*x.AckExpiresAt)+", in "+e.Until(*x.AckExpiresAt))
	}
	p.pair("registered", e.Stamp(x.RegisteredAt)+" by "+x.RegisteredBy.String())
	if x.DeregisteredAt != nil {
		p.pair("deregistered", e.Stamp(*x.DeregisteredAt)+" by "+x.DeregisteredBy.String())
	}
	return p.done(x.ID.String())
}

// joinTexts is a list as one text. Beyond what anybody reads it says how many more there are.
func joinTexts(ts []queue.Text) string {
	var b strings.Builder
	for i, t := range ts {
		if b.Len() > queue.LineMost {
			return b.String() + ",…(+" + strconv.Itoa(len(ts)-i) + ")"
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(t.String())
	}
	return b.String()
}

// allTexts is the whole list, for filters.
func allTexts(ts []queue.Text) string {
	parts := make([]string, len(ts))
	for i, t := range ts {
		parts[i] = t.String()
	}
	return strings.Join(parts, ",")
}
