package views

import (
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// PlainLines returns the Overview as sentences for --accessible: one line per condition, or
// one that says that there is none. Lines contain no ages and no rates, so that they change
// only when something changes.
func PlainLines(s *queue.Snapshot, e Env) []string {
	var out []string
	add := func(line string) { out = append(out, theme.Safe(line)) }
	if why, ok := s.Missing["all"]; ok {
		add("not in this snapshot: " + why.String())
		return out
	}
	for _, first := range []queue.Text{s.Server.CloneOf, s.Server.Unexpected} {
		if !first.Empty() {
			add(first.String())
		}
	}
	all := append(flagsOff(s, e), suspensions(s, e), noHost(s, e), unticked(s, e))
	for _, t := range append(all, heldCursors(s, e)) {
		if t.missing != "" {
			add("not in this snapshot: " + t.missing)
		}
	}
	out = append(out, troubleLines(all...)...)
	for _, h := range s.Held {
		add("HELD " + h.Worker.String() + " " + h.Domain.String())
	}
	for _, a := range queue.Causes(s.Alerts) {
		line := "SILENT " + a.Subject.String() + ", " + a.Severity
		switch a.Kind {
		case queue.AlertNoHost:
			line = "NO HOST " + a.Detail.String() + ", " + a.Severity
		case queue.AlertUnclaimed:
			line = "UNCLAIMED " + a.Queue() + ", no live executor can claim its jobs, " + a.Severity
		case queue.AlertBacklog:
			line = "BACKLOG " + a.Queue() + ", overdue, " + a.Severity
		case queue.AlertCircuit:
			line = "CIRCUIT webhook subscription " + strings.TrimPrefix(a.Subject.String(), "circuit:") + ", open for too long, " + a.Severity
		case queue.AlertQuarantine:
			line = "SET ASIDE " + quarantineName(a)
		case "failing":
			line = "FAILING webhook subscription " + failingID(a) + ", suspended"
		case "broadcast":
			line = "BROADCAST " + shareName(a) + ", over the limit"
		}
		add(line + ", " + queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "no owner"))
	}
	for _, w := range s.Waiting {
		if w.ClearsInSeconds == nil && w.Waiting > 0 {
			add("WAITING " + w.Name() + ", never clears at this rate" + reasonTail(w.Why.String()))
		}
	}
	names := GroupNames(s.DeadGroups)
	for i, g := range s.DeadGroups {
		add("DEAD " + g.Code.String() + " " + names[i] + ", " + Plural(g.Open, "dead letter", "dead letters"))
	}
	if more := MoreGroups(s.DeadMore); more != "" {
		add("DEAD " + more)
	}
	for _, m := range s.Marks {
		add("MARK " + m.Label.String() + " by " + m.By.String() + " at " + e.Clock(m.At))
	}
	if jobTableRank(s.JobTable) > rankQuiet {
		add("JOB TABLE too many dead rows, or an old PostgreSQL snapshot keeps them")
	}
	if s.JobTable.LeasesExpired > 0 {
		add("LEASES expired, not released yet")
	}
	if s.MonitoringOff {
		add("MONITORING OFF")
	}
	if len(out) == 0 {
		add("all quiet")
	}
	return out
}
