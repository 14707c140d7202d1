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

// Executors returns the tables of pane 4: executors by state, and below them their job
// subscriptions. A deregistered executor stays in the table, below the others.
func Executors(s *queue.Snapshot) Source {
	rows, subs := s.OrEmpty().Executors, s.OrEmpty().JobSubscriptions
	subscriptions := subscriptionCounts(subs)
	return Source{
		Sorts: []Sort{
			{Name: "state, worst first", Column: "state", Desc: true, Less: func(i, j int) bool {
				if c := cmp.Compare(executorRank(rows[i]), executorRank(rows[j])); c != 0 {
					return c > 0
				}
				if executorRank(rows[i]) > rankQuiet && rows[i].Ratio != rows[j].Ratio {
					return rows[i].Ratio > rows[j].Ratio
				}
				return rows[i].ID.String() < rows[j].ID.String() // by id: sorted by age, the rows would move with each heartbeat
			}},
			{Name: "last heartbeat, oldest first", Column: "age_seconds", Desc: true, Less: func(i, j int) bool { return beatAge(rows[i].AgeSeconds) > beatAge(rows[j].AgeSeconds) }},
			{Name: "executor", Column: "executor_id", Less: func(i, j int) bool { return rows[i].ID.String() < rows[j].ID.String() }},
			{Name: "kind", Column: "executor_kind", Less: func(i, j int) bool { return rows[i].Kind.String() < rows[j].Kind.String() }},
		},
		Empty: []string{"No executor is registered.", "N registers an executor, so that its silence raises an alert.", "S in Worker host (gw) starts the loops of this process, which register themselves."},
		Note:  missing(s, "executors", "job_subscriptions"),
	}.with(List[queue.Executor]{
		Name: "executors", Rows: rows, ID: func(x queue.Executor) string { return x.ID.String() },
		First:  "state executor_id executor_kind domain_scope age_seconds expected_cadence_seconds stale_threshold_seconds in_flight done_total acked_by",
		Filter: "id=executor_id kind=executor_kind domain=domain_scope state severity owner=acked_by age=age_seconds ratio",
		Look:   executorLook,
		Columns: []Column[queue.Executor]{
			{Name: "executor_id", Title: "executor", Width: 22, Max: 36, Tone: func(x queue.Executor, e Env) theme.Style { return e.strongUnless(executorRank(x) < rankQuiet) }},
			{Name: "executor_kind", Title: "kind", Width: 10, Want: 15, Max: 20, Drop: 3, Look: dim},
			{Name: "state", Width: 12, Lively: true, Look: ofRow},
			{Name: "age_seconds", Title: "last beat", Width: 9, Right: true, Text: func(x queue.Executor, _ Env) string {
				return sinceBeat(x.AgeSeconds, Age)
			}, Plain: func(x queue.Executor) string { return sinceBeat(x.AgeSeconds, PlainAge) }},
			{Name: "expected_cadence_seconds", Title: "cadence", Width: 7, Right: true, Drop: 2, Look: dim},
			{Name: "ratio", Title: "×cadence", Head: "RATIO", Width: 8, Right: true, Drop: 5, Text: func(x queue.Executor, e Env) string {
				return queue.Choose(executorRank(x) < rankQuiet || x.LastBeatAt == nil, e.Theme.G.Dash, e.Times(x.Ratio))
			}, Plain: func(x queue.Executor) string { return queue.Choose(x.LastBeatAt == nil, "-", PlainRatio(x.Ratio)) }},
			{Name: "in_flight", Width: 9, Right: true, Drop: 4},
			{Name: "done_total", Title: "done", Width: 9, Max: 12, Right: true, Drop: 7},
			{Name: "acked_by", Title: "owner", Width: 12, Max: 20, Drop: 1, Cell: executorOwner},
			{Name: "may_claim", Width: 9, Max: 14, Drop: 1,
				Cell: func(x queue.Executor, e Env) table.Cell { return mayClaimCell(x, subscriptions[x.ID], e) },
				Plain: func(x queue.Executor) string {
					c := subscriptions[x.ID]
					return fmt.Sprintf("%d of %d", c.enabled, c.all)
				}},
			{Name: "domain_scope", Title: "domains", Width: 12, Max: 44, Drop: 6, Look: dim},
			{Name: "stale_threshold_seconds", Head: "SILENT AFTER"},
		},
	}.lines(), subscriptionList(subs))
}

// executorRank returns how urgent an executor is: silent ones most,
// deregistered ones least.
func executorRank(x queue.Executor) int {
	switch x.State {
	case "silent":
		return queue.Choose(x.Severity == "critical", rankCritical, rankWarning)
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

// ExecutorPage returns the page of one executor with its job subscriptions.
func ExecutorPage(x queue.Executor, s *queue.Snapshot, e Env, w int) Page {
	p := newPage(e, w)
	r := executorRank(x)
	p.head(x.ID.String())
	p.pair("kind", x.Kind.String())
	p.pair("what it does", queue.Purpose(x.ID.String()))
	p.paint("state", strings.TrimSpace(x.State+" "+severity(x.Severity)), e.tone(r))
	if cure := x.Cure(); cure != "" {
		p.pair("cure", queue.Choose(x.TickWorker, "gw S, or ", "")+cure)
		waits := s.CausedBy(x.ID.String())
		for i, q := range waits {
			p.pair(queue.Choose(i == 0, "waits for it", ""), q.Name()+": "+e.counted(q.Waiting, q.WaitingBound)+", the oldest for "+Age(q.AgeSeconds))
		}
	}
	p.pair("domains", joinTexts(x.Domains))
	if x.LastBeatAt == nil {
		p.pair("last heartbeat", "never since it was registered; its cadence is "+Age(x.CadenceSeconds))
	} else {
		p.pair("last heartbeat", e.Stamp(*x.LastBeatAt))
		p.pair(queue.Choose(x.State == "silent", "silent for", "heartbeat age"), dashed(e, x.AgeSeconds, Age)+", "+e.Times(x.Ratio)+" its cadence of "+Age(x.CadenceSeconds))
	}
	p.pair("silent after", Age(x.ThresholdSeconds))
	p.pair("in flight", dashed(e, x.InFlight, Count))
	p.pair("done", dashed(e, x.DoneTotal, Count))
	p.pair("last work", dashed(e, x.LastWorkAt, e.Stamp))
	if x.TickWorker {
		p.pair("heartbeats", "only from its tick")
	}
	p.pair("heartbeat from", x.InstanceID.String())
	p.subscriptions(x, s.OrEmpty().JobSubscriptions)
	p.head("Owner")
	p.pair("owner role", x.OwnerRole.String())
	p.pair("acknowledged", x.AckedBy.String())
	if x.AckExpiresAt != nil {
		p.pair("until", e.Stamp(*x.AckExpiresAt)+", "+e.In(*x.AckExpiresAt))
	}
	p.pair("registered", e.Stamp(x.RegisteredAt)+" by "+x.RegisteredBy.String())
	if x.DeregisteredAt != nil {
		p.pair("deregistered", e.Stamp(*x.DeregisteredAt)+" by "+x.DeregisteredBy.String())
	}
	return p.done(x.ID.String())
}

// joinTexts joins a list of texts; of a long list it shows the first ones and how many more there
// are.
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

// allTexts joins the whole list, for filters.
func allTexts(ts []queue.Text) string {
	parts := make([]string, len(ts))
	for i, t := range ts {
		parts[i] = t.String()
	}
	return strings.Join(parts, ",")
}

// executorLook returns sign and style of an executor by its state.
func executorLook(x queue.Executor, e Env) (table.Cell, theme.Style) {
	th, r := e.Theme, executorRank(x)
	switch {
	case r < rankQuiet:
		return cell(th.G.Dash, th.Dim), th.Dim
	case x.State == "working":
		return cell(th.G.Live, th.Accent), th.Accent
	case x.State == "idle":
		return cell(th.G.Lost, th.Accent), e.tone(r)
	}
	return e.sign(r), e.tone(r)
}

// executorOwner shows who acknowledged a silence, or that nobody has.
func executorOwner(x queue.Executor, e Env) table.Cell {
	if !x.AckedBy.Empty() {
		return cell(x.AckedBy.String(), e.Theme.Accent)
	}
	if r := executorRank(x); r > rankQuiet {
		return cell(e.nobody(), e.tone(r))
	}
	return cell(e.Theme.G.Dash, e.Theme.Dim)
}
