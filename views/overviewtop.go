package views

// This file is the rows at the top of the Overview, which exist only while something is
// wrong, and the sections beside it on a wide screen.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// topRow returns a row of a label and a sentence.
func topRow(t Target, e Env, r int, label, text string) item {
	return item{target: t, row: table.Row{Sign: e.sign(r), Cells: []table.Cell{
		cell(label, e.tone(r)), cell(text, e.Theme.Text),
	}}}
}

func (e Env) dotted(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " "+e.Theme.G.Dot+" ")
}

// flagsOff are the switches that are off, unreadable or past their expiry.
func flagsOff(s *queue.Snapshot, e Env) section {
	sec := section{missing: missing(s, "flags")}
	src := Flags(s)
	order := Arrange(src, 0, nil)
	slices.SortStableFunc(order, func(a, b int) int { return offOrder(s.Flags[a]) - offOrder(s.Flags[b]) })
	for _, i := range order {
		f := s.Flags[i]
		state := flagState(f)
		if rank(state) == rankQuiet {
			continue
		}
		why := queue.Choose(f.Reason.Empty(), "", `"`+f.Reason.String()+`"`)
		back := ""
		if state == "invalid" {
			back = "the safe value applies"
		} else if f.RevertsAt != nil && f.Overdue {
			back = "should be " + f.RevertsTo.String() + " since " + e.Clock(*f.RevertsAt)
		} else if f.RevertsAt != nil {
			back = "back " + e.Clock(*f.RevertsAt)
		}
		what := f.Key.String() + queue.Choose(state == "invalid", "="+f.Value.String(), "")
		by := strings.TrimSpace(f.UpdatedBy.String() + " " + e.Clock(f.UpdatedAt))
		sec.items = append(sec.items, topRow(Target{queue.PaneFlags, src.ID(i)}, e, rank(state), flagWord(state), e.dotted(what, back, by, why)))
	}
	return sec
}

// offOrder puts flags that stop work above those that are only overdue or temporary.
func offOrder(f queue.Flag) int {
	return slices.Index([]string{"off", "invalid", "overdue", "for now", ""}, flagState(f))
}

// broadcasts shows the alerts about events that only broadcast reaches: one row for all of
// them, about one without an owner if there is one, that of all domains first.
func broadcasts(s *queue.Snapshot, e Env) section {
	var all []queue.Alert
	for _, a := range s.Alerts {
		if a.Kind == "broadcast" {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return section{}
	}
	slices.SortStableFunc(all, func(a, b queue.Alert) int {
		return cmp.Or(strings.Compare(b.State, a.State), strings.Compare(a.Subject.String(), b.Subject.String()))
	})
	a := all[0]
	owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), e.nobody())
	others := queue.Choose(len(all) > 1, "+"+strconv.Itoa(len(all)-1)+" more in 3", "")
	text := e.dotted(shareName(a), e.Times(a.Ratio)+" the limit", "for "+Age(a.AgeSeconds), owner, others)
	return section{items: []item{topRow(Target{queue.PaneAlerts, a.Key.String()}, e, rank(a.Severity), "BROADCAST", text)}}
}

// conditions shows lanes that no live executor can claim, and backlogs: one row for each of
// the two kinds, about the worst one without an owner. Open circuits are among the suspensions.
func conditions(s *queue.Snapshot, e Env) section {
	sec := section{}
	for _, kind := range []struct{ kind, label, text string }{
		{queue.AlertUnclaimed, "UNCLAIMED", ""}, {queue.AlertBacklog, "BACKLOG", "due for "},
	} {
		var all []queue.Alert
		for _, a := range queue.Causes(s.Alerts) {
			if a.Kind == kind.kind {
				all = append(all, a)
			}
		}
		if len(all) == 0 {
			continue
		}
		slices.SortStableFunc(all, func(a, b queue.Alert) int { return queue.Choose(moreUrgent(a, b), -1, 1) })
		a := all[0]
		owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "")
		others := queue.Choose(len(all) > 1, "+"+strconv.Itoa(len(all)-1)+" more in 3", "")
		text := e.dotted(a.Queue(), kind.text+Age(a.AgeSeconds), a.Detail.String(), others, owner)
		sec.items = append(sec.items, topRow(Target{queue.PaneAlerts, a.Key.String()}, e, rank(a.Severity), kind.label, text))
	}
	return sec
}

// shareName returns whose share of broadcast events an alert is about.
func shareName(a queue.Alert) string {
	if domain, ok := strings.CutPrefix(a.Subject.String(), "broadcast:"); ok {
		return "events of " + domain
	}
	return "all events"
}

func heldCursors(s *queue.Snapshot, e Env) section {
	sec := section{missing: missing(s, "held")}
	for _, h := range s.Held {
		text := e.dotted(strings.TrimSpace(h.Worker.String()+" "+h.Domain.String()), holder(&h), "its events wait")
		sec.items = append(sec.items, topRow(Target{queue.PaneHealth, h.Worker.String()}, e, rankWarning, "HELD", text))
	}
	return sec
}

// holder returns an open transaction and how long it has been open.
func holder(h *queue.Held) string {
	if h == nil {
		return ""
	}
	who := h.Program.String() + " " + h.User.String() // a prepared one has no session
	if h.Pid != nil {
		who = "open transaction pid " + strconv.FormatInt(*h.Pid, 10) + " " + h.User.String() + " " + h.Program.String()
	}
	return strings.TrimSpace(who) + " " + Age(h.AgeSeconds)
}

func suspensions(s *queue.Snapshot, e Env) section {
	sec := section{missing: missing(s, "suspended")}
	for _, x := range s.Suspended {
		until, r := "until resumed", rankWarning
		switch {
		case x.Until != nil && !e.Now.Before(*x.Until) && x.Reason.String() == "circuit":
			until = "half open: the next attempt decides"
		case x.Until != nil:
			until = "until " + e.Clock(*x.Until)
		}
		id := strconv.FormatInt(x.SubscriptionID, 10)
		if a, ok := queue.Find(s.Alerts, func(a queue.Alert) bool { return a.Subject.String() == "circuit:"+id }); ok {
			r = rank(a.Severity)
			until = e.dotted("open for "+Age(a.AgeSeconds), until, queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), ""))
		}
		by := queue.Choose(x.By.Empty(), "", "by "+x.By.String())
		text := e.dotted(x.Endpoint.String(), x.Reason.String(), until, "since "+e.Clock(x.Since), by)
		sec.items = append(sec.items, topRow(Target{queue.PaneWebhooks, id}, e, r, "SUSPENDED", text))
	}
	return sec
}

// running shows the bulk operations that run, or that stopped automatically.
func running(s *queue.Snapshot, e Env, w int) section {
	sec := section{gap: true, order: 2, missing: missing(s, "operations")}
	ops := slices.Clone(s.Operations)
	slices.SortStableFunc(ops, func(a, b queue.Operation) int { return operationRank(b) - operationRank(a) })
	for _, o := range ops {
		label, end := "RUNNING", ""
		switch {
		case o.State == queue.BulkPaused && !o.StateWhy.Empty():
			label, end = "PAUSED", o.StateWhy.String()
		case o.State != queue.BulkRunning:
			continue
		default:
			end = rateText(o.Rate)
			if d, ok := o.EndsIn(); ok {
				end = e.dotted(end, Span(d)+" left")
			}
		}
		end = e.Theme.Cut(theme.Safe(end), max(w/3, 16))
		what := "#" + strconv.FormatInt(o.ID, 10) + " " + operationWord(o.Kind) + " " + o.Filter.String()
		bar := progress(o, e, min(max(w/9, 5), 20))
		room := max(w-18-theme.Width(bar)-theme.Width(end)-theme.Width(o.CreatedBy.String())-9, 12)
		text := e.dotted(e.Theme.Cut(theme.Safe(what), room), o.CreatedBy.String()) + "  " + bar + " " + e.dotted("", end)
		sec.items = append(sec.items, topRow(Target{queue.PaneOps, strconv.FormatInt(o.ID, 10)}, e, operationRank(o), label, text))
	}
	return sec
}

// noHost shows the loops that no host runs although work waits for them or an executor is
// silent, or else that no host is alive, with how the last one ended.
func noHost(s *queue.Snapshot, e Env) section {
	sec := section{}
	if a, ok := queue.Find(s.Alerts, func(a queue.Alert) bool { return a.Kind == queue.AlertNoHost }); ok {
		owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "")
		parts := plural(int64(len(a.Parts(s.Alerts))), "alert follows", "alerts follow")
		text := e.dotted(owner, "for "+Age(a.AgeSeconds), a.Detail.String(), queue.Choose(len(a.Parts(s.Alerts)) > 0, parts, ""))
		sec.items = append(sec.items, topRow(Target{queue.PaneAlerts, a.Key.String()}, e, rank(a.Severity), "NO HOST", text))
		return sec
	}
	if missing(s, "hosts") != "" || slices.ContainsFunc(s.Hosts, func(h queue.Host) bool { return h.Alive }) {
		return sec
	}
	sec.items = append(sec.items, topRow(Target{queue.PaneHost, ""}, e, rankWarning, "NO HOST",
		e.dotted("nothing is routed or sent", LastHost(s.Hosts, e.Clock), "start one: gw S, or qtop worker")))
	return sec
}

// LastHost returns how the host ended that was seen last; "" if there was none.
func LastHost(hosts []queue.Host, clock func(time.Time) string) string {
	if len(hosts) == 0 {
		return ""
	}
	h := slices.MaxFunc(hosts, func(a, b queue.Host) int { return a.LastSeenAt.Compare(b.LastSeenAt) })
	if h.StoppedAt == nil {
		return h.ID.String() + " was last seen " + clock(h.LastSeenAt)
	}
	return h.ID.String() + " stopped " + clock(*h.StoppedAt) + queue.Choose(h.StopReason.Empty(), "", ": "+h.StopReason.String())
}

// unticked shows the tick workers that are switched on but not run, one row per reason.
func unticked(s *queue.Snapshot, e Env) section {
	sec := section{}
	for _, u := range s.Unticked() {
		name := u.Workers[0].String()
		text := e.dotted(queue.Choose(len(u.Workers) > 1, name+" +"+strconv.Itoa(len(u.Workers)-1)+" more in 9", name), u.Why.String())
		sec.items = append(sec.items, topRow(Target{queue.PaneScheduler, name}, e, rankWarning, "NOT TICKED", text))
	}
	return sec
}

// calmAge returns the age of something healthy in coarse form: seconds that tick on the first
// screen are noise, and bytes on a slow connection.
func calmAge(seconds int64) string {
	return queue.Choose(seconds < 60, "<1m", Age(seconds))
}

// hostsSection and ticksSection format the age of healthy rows with age: coarsely on the first
// screen, exactly in pane gw.
func hostsSection(s *queue.Snapshot, e Env, age func(int64) string) section {
	sec := section{
		columns: []table.Column{{Title: "HOSTS", Width: 24, Max: 36}, {Title: "seen", Width: 9, Right: true}, {Title: "in flight", Width: 9, Right: true}, {Title: "loops", Width: 5, Max: 40}},
		quiet:   "no worker host has ever reported", gap: true, order: 1, missing: missing(s, "hosts"),
	}
	for _, h := range s.Hosts {
		sign, tone, seen := cell(e.Theme.G.Live, e.Theme.Accent), e.Theme.Text, age(h.AgeSeconds)
		switch {
		case h.StoppedAt != nil:
			sign, tone, seen = cell(e.Theme.G.Lost, e.Theme.Dim), e.Theme.Dim, "stopped"
		case !h.Alive:
			sign, tone, seen = e.sign(rankCritical), e.Theme.Critical, Age(h.AgeSeconds)
		}
		sec.items = append(sec.items, item{target: Target{queue.PaneHost, h.ID.String() + "\x00" + h.Instance}, row: table.Row{Sign: sign, Cells: []table.Cell{
			cell(h.ID.String(), e.Theme.Strong), cell(seen, tone), cell(Count(h.InFlight), e.Theme.Text), cell(joinTexts(h.Loops), e.Theme.Dim),
		}}})
	}
	return sec
}

func ticksSection(s *queue.Snapshot, e Env, age func(int64) string) section {
	sec := section{
		columns: []table.Column{{Title: "TICKS", Width: 24, Max: 36}, {Title: "ran", Width: 9, Right: true}, {Title: "every", Width: 9, Right: true}, {Title: "mode", Width: 5, Max: 40}},
		quiet:   "no tick worker has run", gap: true, order: 2, missing: missing(s, "ticks"),
	}
	for _, t := range s.Ticks {
		r, mode := tickRank(t), t.Mode.String()
		if r > rankQuiet {
			mode = strings.TrimSpace(mode + " " + tickState(t))
		}
		ran := dashed(e, t.AgeSeconds, Age)
		if t.AgeSeconds != nil && r == rankQuiet {
			ran = age(*t.AgeSeconds)
		}
		sec.items = append(sec.items, item{target: Target{queue.PaneScheduler, t.Name.String()}, row: table.Row{Sign: e.sign(r), Cells: []table.Cell{
			cell(t.Name.String(), e.Theme.Strong), cell(ran, e.tone(r)), cell(Age(t.IntervalSeconds), e.Theme.Dim), cell(mode, e.tone(r)),
		}}})
	}
	return sec
}

func executorsSection(s *queue.Snapshot, e Env) section {
	sec := section{
		columns: []table.Column{{Title: "EXECUTORS", Width: 24, Max: 36}, {Title: "last beat", Width: 9, Right: true}, {Title: "in flight", Width: 9, Right: true}, {Title: "state", Width: 5, Max: 40}},
		quiet:   "no executor is registered", gap: true, order: 3, missing: missing(s, "executors"),
	}
	src := Executors(s)
	for _, i := range Arrange(src, 0, nil) {
		if src.Lower(i) {
			break // the pane shows their subscriptions
		}
		row := src.pick(i, e, "executor_id", "age_seconds", "in_flight", "state")
		if x := s.Executors[i]; x.LastBeatAt != nil && executorRank(x) == rankQuiet {
			row.Cells[1].Text = calmAge(x.AgeSeconds)
		}
		sec.items = append(sec.items, item{target: Target{queue.PaneExecutors, src.ID(i)}, row: row})
	}
	return sec
}

// healthSection shows the most urgent rows of pane 2, if there is room.
func healthSection(s *queue.Snapshot, e Env, w int) section {
	sec := section{
		columns: []table.Column{
			{Title: "HEALTH", Width: nameWidth(w)}, {Title: "seen", Width: 8, Right: true}, {Title: "status", Width: 8}, {Title: "source", Width: 16, Max: 40},
		},
		quiet: "nothing reports its health yet", gap: true, order: 3, missing: missing(s, "health"),
	}
	src := Health(s)
	for _, i := range Arrange(src, 0, nil) {
		row := src.pick(i, e, "subject", "age_seconds", "status_hint", "source")
		if x := s.Health[i]; x.AgeSeconds != nil && rank(x.StatusHint.String()) == rankQuiet {
			row.Cells[1].Text = calmAge(*x.AgeSeconds)
		}
		sec.items = append(sec.items, item{target: Target{queue.PaneHealth, src.ID(i)}, row: row})
	}
	return sec
}
