package views

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// PlainLine is a condition, or an action or mark of a person, as a sentence for --accessible.
type PlainLine struct {
	Key   string // identifies the subject of the line
	State string // the line is printed again when State changes; so it must not contain ages, rates or exact counts
	Text  string
	Over  string // the sentence for the end of the condition starts with this name; "" = its end is not printed
}

type plainLines struct {
	e   Env
	out []PlainLine
}

// add adds a condition: a name, and more texts about it.
func (p *plainLines) add(state, name string, more ...string) {
	name = p.clean(name)
	text := name
	for _, m := range more {
		if m != "" {
			text += ", " + p.clean(m)
		}
	}
	p.out = append(p.out, PlainLine{Key: name, State: state, Text: text, Over: name})
}

func (p *plainLines) clean(s string) string {
	return strings.ReplaceAll(theme.Safe(s), " "+p.e.Theme.G.Dot+" ", ", ")
}

// PlainLines returns the Overview as sentences for --accessible: which server this is; the
// conditions, or one line that says that there are none; then actions of people and marks, oldest
// first.
func PlainLines(s *queue.Snapshot, e Env) []PlainLine {
	p := &plainLines{e: e}
	p.server(s.Server)
	first := len(p.out)
	if why, ok := s.Missing["all"]; ok {
		p.add(why.String(), "not in this snapshot", why.String())
		return p.out
	}
	for _, alarm := range []queue.Text{s.Server.CloneOf, s.Server.Unexpected} {
		if !alarm.Empty() {
			p.add("", alarm.String())
		}
	}
	for _, t := range troubleKinds(s, e, 1000) {
		if t.missing != "" {
			p.add(t.missing, "not in this snapshot", t.missing)
		}
		for _, x := range t.all {
			if x.target.Pane != queue.PaneAlerts { // those are added from the alerts
				p.trouble(t.label, x)
			}
		}
	}
	p.alerts(s)
	p.operations(s)
	p.waiting(s)
	p.dead(s)
	if jobTableRank(s.JobTable) > rankQuiet {
		p.add("", "JOB TABLE too many dead rows, or an old PostgreSQL snapshot keeps them")
	}
	if s.JobTable.LeasesExpired > 0 {
		p.add("", "LEASES expired, not released yet")
	}
	for _, h := range s.Hosts {
		if !h.Alive && h.StoppedAt == nil {
			p.add("", "HOST "+h.ID.String()+" no longer reports", "last seen "+Age(h.AgeSeconds)+" ago")
		}
	}
	if s.MonitoringOff {
		p.add("", "MONITORING OFF")
	}
	if len(p.out) == first {
		p.out = append(p.out, PlainLine{Key: "quiet", Text: "all quiet"})
	}
	p.happened(s)
	return p.out
}

// server adds the server that answered. The line is printed again when another server answers, or
// this one becomes the primary.
func (p *plainLines) server(s queue.Server) {
	if s.Database.Empty() {
		return
	}
	text := p.clean("SERVER " + s.Database.String() + queue.Choose(s.Address.Empty(), "", "@"+s.Address.String()) + ", PostgreSQL " + shortVersion(s.Version.String()) + ", " + queue.Choose(s.InRecovery, "standby: no action works here", "primary"))
	p.out = append(p.out, PlainLine{Key: "server", State: text, Text: text})
}

// trouble adds a row of trouble of the Overview. Its text may contain ages, so
// the line is printed again only if its urgency or its cause changes; that of a
// flag also if its text changes, which is the value that was set.
func (p *plainLines) trouble(label string, x trouble) {
	state := strconv.Itoa(x.rank) + " " + x.cause
	if x.target.Pane == queue.PaneFlags {
		state = x.text
	}
	text := p.clean(label + " " + x.text)
	name := p.clean(strings.TrimSpace(p.e.dotted(strings.TrimSpace(label+" "+x.name), x.of)))
	p.out = append(p.out, PlainLine{Key: name + "\x00" + x.target.ID, State: state, Text: text, Over: name})
}

func (p *plainLines) alerts(s *queue.Snapshot) {
	for _, a := range queue.Causes(s.Alerts) {
		name, what := "SILENT "+a.Subject.String(), ""
		switch a.Kind {
		case queue.AlertNoHost:
			name = "NO HOST " + a.Detail.String()
		case queue.AlertUnclaimed:
			name, what = "UNCLAIMED "+a.Queue(), "no live executor can claim its jobs"
		case queue.AlertBacklog:
			name, what = "BACKLOG "+a.Queue(), "overdue"
		case queue.AlertCircuit:
			name, what = "CIRCUIT webhook subscription "+strings.TrimSpace(strings.TrimPrefix(a.Subject.String(), "circuit:")+" "+a.Receiver()), "open for too long"
		case queue.AlertQuarantine:
			name = "SET ASIDE " + quarantineName(a)
		case "failing":
			name, what = "FAILING webhook subscription "+failingID(a), "suspended"
		case "broadcast":
			name, what = "BROADCAST "+shareName(a), "over the limit"
		}
		owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "no owner")
		severity := queue.Choose(a.Kind == "failing" || a.Kind == "broadcast", "", a.Severity)
		p.add(severity+owner, name, what, severity, owner, "for "+Age(a.AgeSeconds)+p.sinceWhen(a.Since))
		if last := &p.out[len(p.out)-1]; a.Kind == queue.AlertNoHost { // the loops that this alert names change
			last.Key, last.Over = "NO HOST", "NO HOST"
		}
	}
}

// sinceWhen returns " since 22:41"; "" for nil.
func (p *plainLines) sinceWhen(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return " since " + p.e.Clock(*t)
}

// operations adds the bulk operations that their brake has not stopped. A line is printed again at
// each quarter of the items, and when a delay begins, gets another reason or ends.
func (p *plainLines) operations(s *queue.Snapshot) {
	for _, o := range s.Operations {
		if o.State == queue.BulkPaused && !o.StateWhy.Empty() {
			continue // already added with the brakes
		}
		state, done := o.State, ""
		if o.Frozen > 0 && o.State != queue.BulkPlanned {
			state += strconv.FormatInt(4*o.Ended()/o.Frozen, 10)
			done = Count(o.Ended()) + " of " + Count(o.Frozen) + " ended, " + strconv.FormatInt(100*o.Ended()/o.Frozen, 10) + " %"
		}
		by := queue.Choose(o.State == queue.BulkPaused && !o.StateBy.Empty(), "by "+o.StateBy.String()+" "+p.e.Clock(o.StateAt), "by "+o.CreatedBy.String())
		left := ""
		if d, ok := o.EndsIn(); ok {
			left = Span(d) + " left"
		}
		waits := queue.Choose(o.Waits.Empty(), "", "waits: "+o.Waits.String())
		p.add(state+queue.Choose(o.Waits.Empty(), "", " waits "+queue.WhyCode(o.Waits.String())), "OPERATION #"+strconv.FormatInt(o.ID, 10)+" "+operationWord(o.Kind)+" "+o.Selected(),
			o.State, by, done, queue.Choose(o.State == queue.BulkRunning, rateText(o.Rate), ""), left, waits)
	}
}

// waiting adds the queues that something blocks, or that never become empty at their current rates. A
// line is printed again for another reason.
func (p *plainLines) waiting(s *queue.Snapshot) {
	for _, w := range s.Waiting {
		if !w.Stuck() && w.Why.Empty() {
			continue
		}
		count := queue.Choose(w.WaitingBound, "at least ", "") + Count(w.Waiting) + " waiting"
		p.add(queue.WhyCode(w.Why.String()), "WAITING "+w.Name(), queue.Choose(w.Stuck() && w.OutPerSecond != nil, "never clears at this rate"+reasonTail(w.Why.String()), w.Why.String()), count, queue.Choose(w.OldestAt == nil, "none is due yet", "oldest for "+Age(w.AgeSeconds)))
	}
}

// dead adds the groups of dead letters. A line is printed for a new group, and again when the group
// has doubled or halved.
func (p *plainLines) dead(s *queue.Snapshot) {
	names := GroupNames(s.DeadGroups)
	for i, g := range s.DeadGroups {
		p.add(magnitude(g.Open), "DEAD "+g.Code.String()+" "+names[i], Plural(g.Open, "dead letter", "dead letters"),
			"first "+p.e.Ago(g.FirstAt)+" ago", "last "+p.e.Ago(g.LastAt)+" ago")
	}
	if more := MoreGroups(s.DeadMore); more != "" {
		p.out = append(p.out, PlainLine{Key: "DEAD more", State: magnitude(s.DeadMore.Open), Text: p.clean("DEAD " + more)})
	}
}

func magnitude(n int64) string { return strconv.Itoa(bits.Len64(uint64(max(n, 0)))) }

// happened adds what people did and marked within the last hour.
func (p *plainLines) happened(s *queue.Snapshot) {
	for _, h := range slices.Backward(happenings(s, p.e)) {
		key := queue.Choose(h.id == "", h.pin, h.id) + h.at.Format(time.RFC3339Nano)
		p.out = append(p.out, PlainLine{Key: "happened " + key, Text: p.clean("ACTION " + p.e.Clock(h.at) + " " + h.text)})
	}
}
