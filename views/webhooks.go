package views

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Webhooks returns the tables of pane 7: endpoints, and below them the leases on their jobs,
// expired leases first.
func Webhooks(rows []queue.Endpoint, leases []queue.WebhookLease) Source {
	hosts := map[queue.Text]int{}
	for _, r := range rows {
		hosts[r.Endpoint]++
	}
	return Source{
		Fields: queue.EndpointFields(),
		Sorts: []Sort{
			{Name: "in trouble first", Column: "gate", Less: func(i, j int) bool {
				a, b := rows[i], rows[j]
				if x, y := endpointRank(a), endpointRank(b); x != y {
					return x > y
				}
				if a.Shut() != b.Shut() {
					return a.Shut()
				}
				if a.Shut() && orZero(a.AgeSeconds) != orZero(b.AgeSeconds) {
					return orZero(a.AgeSeconds) > orZero(b.AgeSeconds)
				}
				if a.Endpoint != b.Endpoint { // by name: sorted by age or count, healthy rows would move with each refresh
					return a.Endpoint.String() < b.Endpoint.String()
				}
				return a.ID < b.ID
			}},
			{Name: "oldest wait first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return orZero(rows[i].AgeSeconds) > orZero(rows[j].AgeSeconds) }},
			{Name: "waiting, most first", Column: "waiting", Desc: true, Less: func(i, j int) bool { return rows[i].Waiting > rows[j].Waiting }},
			{Name: "success, worst first", Column: "ok", Less: func(i, j int) bool { return okShare(rows[i]) < okShare(rows[j]) }},
			{Name: "p95, slowest first", Column: "p95_ms", Desc: true, Less: func(i, j int) bool { return orNone(rows[i].P95MS) > orNone(rows[j].P95MS) }},
			{Name: "dead, most first", Column: "dead_open", Desc: true, Less: func(i, j int) bool { return rows[i].DeadOpen > rows[j].DeadOpen }},
			{Name: "endpoint", Column: "endpoint", Less: func(i, j int) bool { return rows[i].Endpoint.String() < rows[j].Endpoint.String() }},
		},
		Empty: []string{
			"No webhook subscription.",
			"A subscription_admin makes one: N here, or qtop webhook add.",
		},
		Second: Second{Selectable: true, AtLeast: queue.Choose(len(leases) < queue.LeasesShown, 0, len(leases))},
	}.with(List[queue.Endpoint]{
		Name: "webhooks", Rows: rows, ID: func(r queue.Endpoint) string { return strconv.FormatInt(r.ID, 10) },
		Title: func(r queue.Endpoint) string { return r.Endpoint.String() + " for " + r.EventType.String() },
		First: "subscription_id endpoint gate waiting age_seconds pending_retry leased expired ok p50_ms p95_ms dead_open last_success_at event_type",
		Look: func(r queue.Endpoint, e Env) (table.Cell, theme.Style) {
			return e.atWork(endpointRank(r), r.Leased > 0)
		},
		Columns: []Column[queue.Endpoint]{
			{Name: "endpoint", Width: 22, Want: 26, Max: 48, Cell: func(r queue.Endpoint, e Env) table.Cell { // a narrow screen has no column for the subscription
				tail := queue.Choose(hosts[r.Endpoint] > 1, " #"+strconv.FormatInt(r.ID, 10), "")
				return table.Cell{Text: r.Endpoint.String() + tail, Style: e.Theme.Strong, Tail: tail}
			}},
			{Name: "subscription_id", Title: "sub", Head: "SUBSCRIPTION", Width: 4, Max: 7, Right: true, Drop: 5, Look: dim, Say: digits},
			{Name: "gate", Title: "state, left", Head: "STATE", Width: 15, Max: 24, Lively: true, Plain: PlainGate, Cell: func(r queue.Endpoint, e Env) table.Cell {
				words, left := gateWords(r, e)
				return table.Cell{Text: words + left, Style: e.warn(r.Shut()), Tail: left}
			}},
			{Name: "age_seconds", Title: "oldest", Width: 8, Right: true, Drop: 1, Cell: func(r queue.Endpoint, e Env) table.Cell {
				return queue.Choose(r.OldestAt == nil, cell(e.Theme.G.Dash, e.Theme.Dim), cell(dashed(e, r.AgeSeconds, Age), e.tone(endpointRank(r))))
			}},
			{Name: "waiting", Width: 7, Max: 9, Right: true},
			{Name: "pending_retry", Title: "retry", Width: 6, Max: 9, Right: true, Drop: 4},
			{Name: "leased", Title: "in flight", Width: 9, Right: true, Drop: 2},
			{Name: "ok", Width: 5, Right: true, Drop: 1, Cell: okCell, Plain: PlainOK},
			{Name: "p50_ms", Title: "p50", Width: 7, Right: true, Drop: 3},
			{Name: "p95_ms", Title: "p95", Width: 7, Right: true, Drop: 1},
			{Name: "dead_open", Title: "dead", Width: 7, Max: 9, Right: true},
			{Name: "last_success_at", Title: "last success", Width: 12, Right: true, Drop: 6, Look: dim, Say: ago},
			{Name: "rate_limit_per_second", Title: "rate", Width: 7, Right: true, Drop: 8, Look: dim, Text: func(r queue.Endpoint, e Env) string { return dashed(e, r.RateLimit, rateText) }},
			{Name: "event_type", Head: "TYPE", Width: 14, Max: 32, Drop: 7, Look: dim},
			{Name: "expired"},
		},
	}.lines(), List[queue.WebhookLease]{
		Name: "webhook-leases", Rows: leases, ID: leaseID,
		Title: func(x queue.WebhookLease) string {
			return "delivery to " + x.Endpoint.String() + " by " + x.Worker.String()
		},
		Look: func(l queue.WebhookLease, e Env) (table.Cell, theme.Style) {
			if l.Expired {
				return e.sign(rankCritical), e.tone(rankCritical)
			}
			return cell(e.Theme.G.Live, e.Theme.Accent), e.tone(rankQuiet)
		},
		Columns: []Column[queue.WebhookLease]{
			{Name: "endpoint", Title: "IN FLIGHT", Width: 24, Want: 28, Max: 48, Look: strong},
			{Name: "job_id", Title: "job", Width: 8, Max: 12, Right: true, Say: digits},
			{Name: "lease_until", Title: "lease", Width: 20, Max: 30, Look: ofRow, Text: func(l queue.WebhookLease, e Env) string {
				return queue.Choose(l.Expired, "expired "+e.Ago(l.Until)+" ago", e.Left(l.Until))
			}},
			{Name: "started_at", Title: "for", Width: 8, Right: true, Say: ago},
			{Name: "attempt_no", Title: "attempt", Width: 7, Right: true, Drop: 2, Look: dim},
			{Name: "lease_resets", Title: "lost before", Width: 11, Right: true, Drop: 3, Look: dim},
			{Name: "worker_id", Title: "worker", Width: 16, Max: 50, Drop: 1, Look: dim},
		},
	}.lines())
}

// leaseID returns the row id of a lease. Its prefix distinguishes it from the row id of an endpoint
// with the same number.
func leaseID(l queue.WebhookLease) string { return "job " + strconv.FormatInt(l.JobID, 10) }

// WebhookJob returns the job id from the row id of a lease; ok is false for the row of an endpoint.
func WebhookJob(id string) (job string, ok bool) { return strings.CutPrefix(id, "job ") }

func orNone(p *float64) float64 {
	return queue.Choose(p == nil, -1, orZero(p))
}

// okShare returns the share of recent attempts that succeeded, from 0 to 1; 2 if there were no
// attempts.
func okShare(r queue.Endpoint) float64 {
	if r.Recent == 0 {
		return 2
	}
	return float64(r.RecentOK) / float64(r.Recent)
}

// okPercent returns the whole percents of okShare, of which 100 means all: a fraction times 100 may be
// just below a whole number, as 0.58 is.
func okPercent(r queue.Endpoint) int64 { return 100 * r.RecentOK / max(r.Recent, 1) }

// endpointRank returns how urgent an endpoint is: critical if leases have
// expired or no attempt succeeded; a warning if it is suspended, if nothing is
// sent although work waits, or if attempts often fail.
func endpointRank(r queue.Endpoint) int {
	switch {
	case r.Expired > 0, r.Recent >= 5 && r.RecentOK == 0:
		return rankCritical
	case r.Shut() && (r.Gate == "suspended" || r.Gate == "half_open" || r.Waiting > 0), r.Recent >= 5 && okShare(r) < 0.9:
		return rankWarning
	}
	return rankQuiet
}

// gateWords returns whether requests are sent to an endpoint (its gate), in a
// few words, and how much of a suspension is left. An open gate is "sending":
// beside "circuit open", the word "open" would mean the opposite.
func gateWords(r queue.Endpoint, e Env) (s, left string) {
	s = queue.Shown(queue.GateWords(), r.Gate)
	if r.Gate == "open" && r.SlowStart != nil {
		return "slow " + slowRate(r), ""
	}
	if r.Gate == "suspended" {
		s = queue.Choose(r.Reason.String() == "operator", r.Gate, r.Reason.String())
		if r.Until != nil && e.Now.Before(*r.Until) {
			left = " " + e.Until(*r.Until) + " left"
		} else if r.Until != nil && s == "circuit" { // the circuit's time ended after the snapshot was taken
			s = "half open"
		}
	}
	return s, left
}

// slowRate returns the rate of a slow start, rounded to a tenth.
func slowRate(r queue.Endpoint) string { return rateText(math.Round(*r.SlowStart*10) / 10) }

// WebhookLeasePage returns the page of one lease.
func WebhookLeasePage(l queue.WebhookLease, e Env, w int) Page {
	p := newPage(e, w)
	p.head(fmt.Sprintf("Webhook job %d to %s", l.JobID, l.Endpoint))
	p.pair("worker", l.Worker.String())
	p.pair("saga", strconv.FormatInt(l.SagaID, 10)+", attempt "+strconv.Itoa(l.AttemptNo))
	p.pair("subscription", strconv.FormatInt(l.SubscriptionID, 10))
	p.pair("since", e.since(&l.StartedAt))
	if l.Resets > 0 {
		p.pair("lost before", Plural(int64(l.Resets), "time", "times")+"; the third loss fails it as LEASE_LOST_LIMIT")
	}
	if l.Expired {
		p.paint("lease", "expired "+e.Ago(l.Until)+" ago", e.Theme.Critical)
		p.pair("what happens", "The tick worker lease_reset_cleaner releases the lease if a live host runs it; L releases it now. The result of a worker that still has the job is then refused. The receiver may have got the webhook.")
	} else {
		p.pair("lease", e.Left(l.Until)+": its worker may be sending. Only a lease that has expired can be released.")
	}
	return p.done("webhook job " + strconv.FormatInt(l.JobID, 10))
}

// slotWords describes one time span of the list of coming retries.
func slotWords(s queue.RetrySlot) string {
	switch {
	case s.From < 0:
		return "due now"
	case s.To == 0:
		return "later than " + Span(time.Duration(s.From)*time.Second)
	}
	return "in " + queue.Choose(s.From > 0, Span(time.Duration(s.From)*time.Second)+" to ", "under ") + Span(time.Duration(s.To)*time.Second)
}

// okCell shows the share of recent attempts that succeeded.
func okCell(r queue.Endpoint, e Env) table.Cell {
	if r.Recent == 0 {
		return cell(e.Theme.G.Dash, e.Theme.Dim)
	}
	return cell(strconv.FormatInt(okPercent(r), 10)+"%", e.warn(okShare(r) < 0.9))
}

// PlainOK returns how many of the recent attempts succeeded.
func PlainOK(r queue.Endpoint) string {
	if r.Recent == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", r.RecentOK, r.Recent)
}

// PlainGate returns the state of an endpoint with its reason and its end.
func PlainGate(r queue.Endpoint) string {
	if r.Gate == "open" && r.SlowStart != nil {
		return "slow start " + slowRate(r)
	}
	if r.Gate != "suspended" && r.Gate != "half_open" {
		return queue.Choose(r.Gate == "open", "sending", r.Gate)
	}
	s := r.Gate + " (" + r.Reason.String() + ")"
	if r.Until != nil {
		s += " until " + PlainTime(r.Until)
	}
	return s
}
