package views

import (
	"cmp"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// happening is an action of a person, or a mark, within the last hour.
type happening struct {
	at   time.Time
	text string // the text in a list of the Overview
	pin  string // the short label above a curve of the flow
	id   string // id of the audit row; "" for a mark
}

// happenings returns the actions of people and the marks of the last hour, newest first.
func happenings(s *queue.Snapshot, e Env) []happening {
	var out []happening
	for _, m := range s.Marks {
		label := m.Label.String()
		out = append(out, happening{at: m.At, pin: label, text: e.dotted(m.By.String() + ": mark " + label)})
	}
	for _, a := range s.Actions {
		words := queue.AuditWords(a.Action.String())
		more := queue.Choose(a.Rows > 1, " +"+Count(a.Rows-1)+" more", "")
		why := queue.Choose(a.Reason.Empty(), "", `"`+a.Reason.String()+`"`)
		out = append(out, happening{
			at: a.At, pin: a.By.String() + ": " + words, id: plainID(a.AuditID),
			text: e.dotted(a.By.String()+": "+words+" "+queue.AuditTarget(a.Target.String())+more, why),
		})
	}
	out = slices.DeleteFunc(out, func(h happening) bool { return s.TakenAt.Sub(h.at) > time.Hour })
	slices.SortStableFunc(out, func(a, b happening) int { return b.at.Compare(a.at) })
	return out
}

// recent lists the last n actions of people and marks of the last hour, newest
// first. Enter opens the audit, which has them all.
func recent(s *queue.Snapshot, e Env, n int) section {
	sec := section{name: "RECENT", gap: true, order: 3, yields: true}
	all := happenings(s, e)
	for i, h := range all[:min(len(all), n)] {
		t := Target{Pane: queue.PaneAudit, ID: cmp.Or(h.id, "mark "+h.at.Format(time.RFC3339Nano))}
		sec.items = append(sec.items, topRow(t, e, rankQuiet, queue.Choose(i == 0, "RECENT", ""), h.at.In(e.loc()).Format("15:04")+"  "+h.text))
	}
	return sec
}
