package views

// This file is pane 8: the lanes of the job queue, what waits in each and why,
// and under them the leases that nobody renews.

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// wideLanes is the width from which on a lane says "never" in full.
const wideLanes = 150

// LaneID names a lane for cursor and lists, as queue.ListJobs takes it.
func LaneID(domain, kind string) string { return domain + "/" + kind }

// Lanes is the table of pane 8 on a screen of w cells: lanes, and under them
// stuck leases.
func Lanes(s *queue.Snapshot, w int) Source {
	var lanes []queue.Lane
	var leases []queue.JobLease
	if s != nil {
		lanes, leases = s.Queues, s.JobLeases
	}
	n, clears, why := len(lanes), 9, 28
	if w >= wideLanes {
		clears, why = len("never at this rate"), 40
	}
	domains := map[queue.Text]int{} // of each kind
	for _, l := range lanes {
		domains[l.Kind]++
	}
	return Source{
		Columns: []table.Column{
			{Title: "job kind", Width: 16, Want: 20, Max: 36},
			{Title: "domain", Width: 8, Max: 18, Drop: 3},
			{Title: "oldest", Width: 8, Right: true},
			{Title: "queued", Width: 7, Max: 10, Right: true},
			{Title: "due later", Width: 9, Right: true, Drop: 8},
			{Title: "retry", Width: 6, Max: 9, Right: true, Drop: 6},
			{Title: "at work", Width: 7, Max: 9, Right: true, Drop: 1},
			{Title: "in/s", Width: 5, Right: true, Drop: 4},
			{Title: "out/s", Width: 5, Right: true, Drop: 4},
			{Title: "clears in", Width: clears},
			{Title: "ok 1h", Width: 7, Max: 9, Right: true, Drop: 7},
			{Title: "failed 1h", Width: 9, Right: true, Drop: 7},
			{Title: "dead 1h", Width: 7, Right: true, Drop: 5},
			{Title: "cancelled 1h", Width: 12, Right: true, Drop: 9},
			{Title: "why", Width: 12, Want: why, Max: 70, Drop: 2},
		},
		Len: n + len(leases),
		Export: func(i int) (string, []any) {
			if i >= n {
				return "job-leases", []any{leases[i-n]}
			}
			return "queues", []any{lanes[i]}
		},
		ID: func(i int) string {
			if i >= n {
				return leases[i-n].Token
			}
			return LaneID(lanes[i].Domain.String(), lanes[i].Kind.String())
		},
		Row: func(i int, e Env) table.Row {
			if i >= n {
				return leaseRow(leases[i-n], e)
			}
			row := laneRow(lanes[i], e, w >= wideLanes)
			if l := lanes[i]; domains[l.Kind] > 1 { // a narrow screen has no column for the domain
				row.Cells[0].Text += " in " + l.Domain.String()
			}
			return row
		},
		Fields: fields("kind", "domain", "owner", "why", "age", "queued", "jobs"),
		Field: func(i int, name string) (any, bool) {
			if i >= n {
				return leaseField(leases[i-n], name, s)
			}
			return laneField(lanes[i], name)
		},
		Sorts: []Sort{
			{Name: "stuck first", Column: 2, Desc: true, Less: func(i, j int) bool {
				a, b := lanes[i], lanes[j]
				if x, y := laneRank(a), laneRank(b); x != y {
					return x > y
				} else if x > rankQuiet && a.AgeSeconds != b.AgeSeconds {
					return a.AgeSeconds > b.AgeSeconds
				}
				// Those that flow stand by name: by age each claim would reorder them.
				return laneName(a) < laneName(b)
			}},
			{Name: "oldest wait first", Column: 2, Desc: true, Less: func(i, j int) bool { return lanes[i].AgeSeconds > lanes[j].AgeSeconds }},
			{Name: "queued, most first", Column: 3, Desc: true, Less: func(i, j int) bool { return lanes[i].Queued > lanes[j].Queued }},
			{Name: "dead in the last hour, most first", Column: 12, Desc: true, Less: func(i, j int) bool { return lanes[i].Dead > lanes[j].Dead }},
			{Name: "job kind", Column: 0, Less: func(i, j int) bool { return laneName(lanes[i]) < laneName(lanes[j]) }},
		},
		Empty: []string{
			"No job has come in during the last hour, and none waits.",
			"A producer puts one in: SELECT fn_job_enqueue('mail.send', 'iu', 'Agent');",
			"An executor gets it that is registered and may claim it: 4, then N and E.",
			"Loop job_executor runs the handlers of this process: gw, then S.",
		},
		Note: lacks(s, "queues", "job_leases", "job_table"),
		Second: Second{From: n, Marks: true, Columns: []table.Column{
			{Title: "STUCK LEASES", Width: 16, Want: 20, Max: 40},
			{Title: "job kind", Width: 10, Max: 30, Drop: 1},
			{Title: "jobs", Width: 5, Max: 9, Right: true},
			{Title: "what is wrong", Width: 22, Max: 34},
			{Title: "token", Width: 8, Max: shortLen},
			{Title: "domain", Width: 8, Max: 18, Drop: 3},
			{Title: "claimed", Width: 11, Drop: 4},
		}},
	}
}

func laneName(l queue.Lane) string { return l.Kind.String() + "\x00" + l.Domain.String() }

// waits is what stands in a lane and is not being worked on.
func waits(l queue.Lane) int64 { return l.Queued + l.RetryWaiting }

// laneRank is by the clock alone, like that of everything that waits.
func laneRank(l queue.Lane) int {
	_, r := Env{}.clearing(l.ClearsInSeconds, l.AgeSeconds, waits(l), l.OutPerSecond, false)
	return r
}

func laneRow(l queue.Lane, e Env, wide bool) table.Row {
	th := e.Theme
	clears, r := e.clearing(l.ClearsInSeconds, l.AgeSeconds, waits(l), l.OutPerSecond, wide)
	sign, atWork := e.sign(r), l.Leased+l.InProgress
	if r == rankQuiet && atWork > 0 {
		sign = cell(th.G.Live, th.Accent)
	}
	oldest := th.G.Dash
	if l.OldestAt != nil {
		oldest = Age(l.AgeSeconds)
	}
	bad := func(n int64) table.Cell {
		if n == 0 {
			return cell("0", th.Dim)
		}
		return cell(Count(n), th.Warning)
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(l.Kind.String(), th.Strong), cell(l.Domain.String(), th.Dim), cell(oldest, e.tone(r)),
		cell(Count(l.Queued), th.Text), cell(Count(l.Scheduled), th.Dim), cell(Count(l.RetryWaiting), th.Text),
		cell(Count(atWork), th.Text), cell(Rate(l.InPerSecond), th.Text), cell(Rate(l.OutPerSecond), th.Text), cell(clears, e.tone(r)),
		cell(Count(l.Succeeded), th.Dim), bad(l.Failed), bad(l.Dead),
		cell(Count(l.Cancelled), th.Dim), cell(l.Why.String(), e.tone(r)),
	}}
}

func laneField(l queue.Lane, name string) (any, bool) {
	switch name {
	case "kind":
		return l.Kind.String(), true
	case "domain":
		return l.Domain.String(), true
	case "why":
		return l.Why.String(), true
	case "age":
		return seconds(&l.AgeSeconds)
	case "queued":
		return l.Queued, true
	case "jobs":
		return waits(l) + l.Leased + l.InProgress, true
	}
	return nil, false
}

func leaseRow(l queue.JobLease, e Env) table.Row {
	th := e.Theme
	r := rankWarning
	if l.Expired {
		r = rankCritical
	}
	return table.Row{Sign: e.sign(r), Cells: []table.Cell{
		cell(l.Owner.String(), th.Strong), cell(l.Kind.String(), th.Text), cell(Count(l.Live), th.Text),
		cell(leaseWords(l, e), e.tone(r)), cell(ShortID(l.Token), th.Dim), cell(l.Domain.String(), th.Dim), cell(e.Clock(l.ClaimedAt), th.Dim),
	}}
}

// leaseWords is what is wrong with a lease.
func leaseWords(l queue.JobLease, e Env) string {
	if l.Expired {
		return "expired " + e.Ago(l.Until) + " ago"
	}
	return "not renewed, " + e.Until(l.Until) + " left"
}

func leaseField(l queue.JobLease, name string, s *queue.Snapshot) (any, bool) {
	switch name {
	case "kind":
		return l.Kind.String(), true
	case "domain":
		return l.Domain.String(), true
	case "owner":
		return l.Owner.String(), true
	case "age":
		return s.TakenAt.Sub(l.ClaimedAt), true
	case "jobs":
		return l.Live, true
	}
	return nil, false
}

// uuidLen is the length of a UUID, shortLen of what ShortID leaves of one.
const uuidLen, shortLen = 36, 17

// ShortID is enough of an id to tell it from its neighbours; what copies or opens
// it has the whole. A UUID of version 7 begins with its time: jobs that came in
// together differ in its second half alone.
func ShortID(id string) string {
	prefix := ""
	for _, p := range []string{"job:", "event:"} {
		if rest, ok := strings.CutPrefix(id, p); ok {
			prefix, id = p, rest
		}
	}
	if len(id) != uuidLen || strings.Count(id, "-") != 4 {
		return prefix + id
	}
	if id[14] == '7' {
		return prefix + id[uuidLen-shortLen:]
	}
	return prefix + id[:8]
}
