package views

// This file is pane 7: endpoints with what stands between them and their
// deliveries, and under them the jobs that workers have.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// Webhooks is the table of pane 7: endpoints, and under them the leases on their
// jobs, those that expired first.
func Webhooks(rows []queue.Endpoint, leases []queue.WebhookLease) Source {
	n := len(rows)
	hosts := map[queue.Text]int{}
	for _, r := range rows {
		hosts[r.Endpoint]++
	}
	return Source{
		Columns: []table.Column{
			{Title: "endpoint", Width: 24, Want: 28, Max: 48},
			{Title: "sub", Width: 4, Max: 7, Right: true, Drop: 5},
			{Title: "gate", Width: 12, Max: 18},
			{Title: "oldest", Width: 8, Right: true},
			{Title: "waiting", Width: 7, Max: 9, Right: true},
			{Title: "retry", Width: 6, Max: 9, Right: true, Drop: 4},
			{Title: "in flight", Width: 9, Right: true, Drop: 2},
			{Title: "ok", Width: 5, Right: true},
			{Title: "p50", Width: 7, Right: true, Drop: 3},
			{Title: "p95", Width: 7, Right: true, Drop: 1},
			{Title: "dead", Width: 7, Max: 9, Right: true},
			{Title: "last success", Width: 12, Right: true, Drop: 6},
			{Title: "rate", Width: 7, Right: true, Drop: 8},
			{Title: "event type", Width: 14, Max: 32, Drop: 7},
		},
		Len: n + len(leases),
		Export: func(i int) (string, []any) {
			if i >= n {
				return "webhook-leases", []any{leases[i-n]}
			}
			return "webhooks", []any{rows[i]}
		},
		ID: func(i int) string {
			if i >= n {
				return leaseID(leases[i-n])
			}
			return strconv.FormatInt(rows[i].ID, 10)
		},
		Row: func(i int, e Env) table.Row {
			if i >= n {
				return webhookLeaseRow(leases[i-n], e)
			}
			row := endpointRow(rows[i], e)
			if hosts[rows[i].Endpoint] > 1 { // a narrow screen has no column for the subscription
				row.Cells[0].Text += " #" + strconv.FormatInt(rows[i].ID, 10)
			}
			return row
		},
		Fields: queue.EndpointFields(),
		Sorts: []Sort{
			{Name: "in trouble first", Column: 2, Less: func(i, j int) bool {
				a, b := rows[i], rows[j]
				if x, y := endpointRank(a), endpointRank(b); x != y {
					return x > y
				}
				if a.Shut() != b.Shut() {
					return a.Shut()
				}
				if a.Shut() && a.AgeSeconds != b.AgeSeconds {
					return a.AgeSeconds > b.AgeSeconds
				}
				if a.Endpoint != b.Endpoint { // by age or count each refresh would reorder those that flow
					return a.Endpoint.String() < b.Endpoint.String()
				}
				return a.ID < b.ID
			}},
			{Name: "oldest wait first", Column: 3, Desc: true, Less: func(i, j int) bool { return rows[i].AgeSeconds > rows[j].AgeSeconds }},
			{Name: "waiting, most first", Column: 4, Desc: true, Less: func(i, j int) bool { return rows[i].Waiting > rows[j].Waiting }},
			{Name: "success, worst first", Column: 7, Less: func(i, j int) bool { return okShare(rows[i]) < okShare(rows[j]) }},
			{Name: "p95, slowest first", Column: 9, Desc: true, Less: func(i, j int) bool { return orNone(rows[i].P95MS) > orNone(rows[j].P95MS) }},
			{Name: "dead, most first", Column: 10, Desc: true, Less: func(i, j int) bool { return rows[i].DeadOpen > rows[j].DeadOpen }},
			{Name: "endpoint", Column: 0, Less: func(i, j int) bool { return rows[i].Endpoint.String() < rows[j].Endpoint.String() }},
		},
		Empty: []string{
			"No webhook subscription.",
			"A subscription_admin makes one: INSERT INTO subscriptions (event_type, callback_url, verified) VALUES (…);",
		},
		Second: Second{From: n, Marks: true, Columns: []table.Column{
			{Title: "IN FLIGHT", Width: 24, Want: 28, Max: 48},
			{Title: "job", Width: 8, Max: 12, Right: true},
			{Title: "lease", Width: 20, Max: 30},
			{Title: "for", Width: 8, Right: true},
			{Title: "try", Width: 4, Right: true, Drop: 2},
			{Title: "lost before", Width: 11, Right: true, Drop: 3},
			{Title: "worker", Width: 16, Max: 50, Drop: 1},
		}},
	}
}

// leaseID tells a lease from the endpoint of the same number.
func leaseID(l queue.WebhookLease) string { return "job " + strconv.FormatInt(l.JobID, 10) }

// WebhookJob is the job of a lease's row.
func WebhookJob(id string) (job string, ok bool) { return strings.CutPrefix(id, "job ") }

func orNone(p *float64) float64 {
	if p == nil {
		return -1
	}
	return *p
}

// okShare is the share of recent attempts that succeeded, 2 where there was none.
func okShare(r queue.Endpoint) float64 {
	if r.Recent == 0 {
		return 2
	}
	return float64(r.RecentOK) / float64(r.Recent)
}

// endpointRank is how much an endpoint asks to be looked at: a shut one with work
// that waits, or one that answers nothing.
func endpointRank(r queue.Endpoint) int {
	switch {
	case r.Expired > 0, r.Recent >= 5 && r.RecentOK == 0:
		return rankCritical
	case r.Shut() && (r.Gate == "suspended" || r.Gate == "half_open" || r.Waiting > 0), r.Recent >= 5 && okShare(r) < 0.9:
		return rankWarning
	}
	return rankQuiet
}

// gateWords is what the gate says in a few words.
func gateWords(r queue.Endpoint, e Env) string {
	s := strings.ReplaceAll(r.Gate, "_", " ")
	if r.Gate == "suspended" {
		s = r.Reason.String()
		if r.Until != nil {
			s += " " + e.Until(*r.Until)
		}
	}
	return s
}

func endpointRow(r queue.Endpoint, e Env) table.Row {
	th := e.Theme
	k := endpointRank(r)
	sign := e.sign(k)
	if k == rankQuiet && r.Leased > 0 {
		sign = cell(th.G.Live, th.Accent)
	}
	oldest, share, look := cell(th.G.Dash, th.Dim), th.G.Dash, th.Dim
	if r.OldestAt != nil {
		oldest = cell(Age(r.AgeSeconds), e.tone(k))
	}
	if r.Recent > 0 {
		share, look = strconv.Itoa(int(100*okShare(r)))+"%", th.Text
		if okShare(r) < 0.9 {
			look = th.Warning
		}
	}
	since := th.G.Dash
	if r.LastSuccessAt != nil {
		since = e.Ago(*r.LastSuccessAt)
	}
	limit := th.G.Dash
	if r.RateLimit != nil {
		limit = rateText(*r.RateLimit)
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(r.Endpoint.String(), th.Strong), cell(strconv.FormatInt(r.ID, 10), th.Dim), cell(gateWords(r, e), e.tone(rankOf(r.Shut()))),
		oldest, cell(Count(r.Waiting), th.Text), cell(Count(r.PendingRetry), th.Text), cell(Count(r.Leased), th.Text),
		cell(share, look), cell(e.millisOrDash(r.P50MS), th.Text), cell(e.millisOrDash(r.P95MS), th.Text), cell(Count(r.DeadOpen), th.Text),
		cell(since, th.Dim), cell(limit, th.Dim), cell(r.EventType.String(), th.Dim),
	}}
}

func rankOf(bad bool) int {
	if bad {
		return rankWarning
	}
	return rankQuiet
}

func (e Env) millisOrDash(ms *float64) string {
	if ms == nil {
		return e.Theme.G.Dash
	}
	return Millis(*ms)
}

func webhookLeaseRow(l queue.WebhookLease, e Env) table.Row {
	th := e.Theme
	k, what := rankQuiet, e.Until(l.Until)+" left"
	if l.Expired {
		k, what = rankCritical, "expired "+e.Ago(l.Until)+" ago"
	}
	sign := e.sign(k)
	if k == rankQuiet {
		sign = cell(th.G.Live, th.Accent)
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(l.Endpoint.String(), th.Strong), cell(strconv.FormatInt(l.JobID, 10), th.Text), cell(what, e.tone(k)), cell(e.Ago(l.StartedAt), th.Text),
		cell(strconv.Itoa(l.AttemptNo), th.Dim), cell(strconv.Itoa(l.Resets), th.Dim), cell(l.Worker.String(), th.Dim),
	}}
}

// WebhookLeasePage is one lease in full.
func WebhookLeasePage(l queue.WebhookLease, e Env, w int) Page {
	p := newPage(e, w)
	p.head(fmt.Sprintf("Webhook job %d to %s", l.JobID, l.Endpoint))
	p.pair("worker", l.Worker.String())
	p.pair("saga", strconv.FormatInt(l.SagaID, 10)+", attempt "+strconv.Itoa(l.AttemptNo))
	p.pair("subscription", strconv.FormatInt(l.SubscriptionID, 10))
	p.pair("since", e.Stamp(l.StartedAt)+", "+e.Ago(l.StartedAt)+" ago")
	if l.Resets > 0 {
		p.pair("lost before", plural(int64(l.Resets), "time", "times")+"; the third loss fails it as LEASE_LOST_LIMIT")
	}
	if l.Expired {
		p.paint("lease", "expired "+e.Ago(l.Until)+" ago", e.Theme.Critical)
		p.pair("what happens", "The lease_reset_cleaner takes it back where a live host runs it; L does it now. A worker that still has it is refused at its report; the receiver may have got it.")
	} else {
		p.pair("lease", e.Until(l.Until)+" left: its worker may be sending. Only a lease that has expired can be released.")
	}
	return p.done("webhook job " + strconv.FormatInt(l.JobID, 10))
}

// slotWords names a span of the retry calendar.
func slotWords(s queue.RetrySlot) string {
	switch {
	case s.From < 0:
		return "due now"
	case s.To == 0:
		return "later than " + Span(time.Duration(s.From)*time.Second)
	}
	in := "in under "
	if s.From > 0 {
		in = "in " + Span(time.Duration(s.From)*time.Second) + " to "
	}
	return in + Span(time.Duration(s.To)*time.Second)
}
