package views

// The rows at the top of the Overview, which exist only while something is
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

func (e Env) dotted(parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " "+e.Theme.G.Dot+" ")
}

// flagsOff returns the flags that are off, invalid, past their expiry or temporary, as one kind of
// trouble per state.
func flagsOff(s *queue.Snapshot, e Env) []troubles {
	var out []troubles
	for _, state := range offStates {
		out = append(out, troubles{label: flagWord(state), cure: e.cure("set", "gf E")})
	}
	out[0].missing = missing(s, "flags")
	src := Flags(s)
	for _, i := range Arrange(src, 0, nil) {
		f := s.Flags[i]
		state := flagState(f)
		kind := slices.Index(offStates[:], state)
		if rank(state) == rankQuiet || kind < 0 {
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
		out[kind].add(Target{Pane: queue.PaneFlags, ID: src.ID(i)}, rank(state), what, e.dotted(what, back, by, why), e.cure("set", "E"))
	}
	return out
}

// offStates are the states of flags that need attention; the state that stops work is first.
var offStates = [...]string{"off", "invalid", "overdue", "for now"}

// broadcasts returns the alerts about events that reach only broadcast: those
// that nobody has acknowledged first, and among these the one about all
// domains.
func broadcasts(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "BROADCAST", cure: e.cure("subscribe", "gs N")}
	var all []queue.Alert
	for _, a := range s.Alerts {
		if a.Kind == "broadcast" {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b queue.Alert) int {
		return cmp.Or(strings.Compare(b.State, a.State), strings.Compare(a.Subject.String(), b.Subject.String()))
	})
	for _, a := range all {
		owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), e.nobody())
		t.alert(a, shareName(a), e.dotted(shareName(a), e.Times(a.Ratio)+" the limit", "for "+Age(a.AgeSeconds), owner), t.cure)
	}
	return t
}

// setAside returns the rows in quarantine: rows on which a step of a tick
// worker keeps failing, so that it skips them.
func setAside(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "SET ASIDE", cure: e.cure("retry", "3 R")}
	for _, a := range queue.Causes(s.Alerts) {
		if a.Kind == queue.AlertQuarantine {
			name := strings.ReplaceAll(quarantineName(a), "_", " ")
			owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "")
			t.alert(a, name, e.dotted(name, Plural(int64(a.Ratio), "attempt", "attempts"), "for "+Age(a.AgeSeconds), owner), t.cure)
		}
	}
	return t
}

// conditions returns the queue lanes that no live executor can claim from, and
// backlogs. Open circuits are not here but in suspensions.
func conditions(s *queue.Snapshot, e Env) []troubles {
	var out []troubles
	for _, kind := range []struct{ kind, label, text string }{
		{queue.AlertUnclaimed, "UNCLAIMED", ""}, {queue.AlertBacklog, "BACKLOG", "due for "},
	} {
		t := troubles{label: kind.label, cure: e.cure("explain", ":why")}
		var all []queue.Alert
		for _, a := range queue.Causes(s.Alerts) {
			if a.Kind == kind.kind {
				all = append(all, a)
			}
		}
		slices.SortStableFunc(all, func(a, b queue.Alert) int { return queue.Choose(moreUrgent(a, b), -1, 1) })
		for _, a := range all {
			owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "")
			t.alert(a, a.Queue(), e.dotted(a.Queue(), kind.text+Age(a.AgeSeconds), a.Detail.String(), owner), e.cureOf(a.Queue(), a.Detail.String(), t.cure))
		}
		out = append(out, t)
	}
	return out
}

// shareName returns the domain whose share of broadcast events an alert is about.
func shareName(a queue.Alert) string {
	if domain, ok := strings.CutPrefix(a.Subject.String(), "broadcast:"); ok {
		return "events of " + domain
	}
	return "all events"
}

func heldCursors(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "HELD", cure: e.cure("look", "gl"), missing: missing(s, "held")}
	for _, h := range s.Held {
		name := strings.TrimSpace(h.Worker.String() + " " + h.Domain.String())
		t.add(Target{Pane: queue.PaneHealth, ID: h.Worker.String()}, rankWarning, name, e.dotted(name, holder(&h), "its events wait"), t.cure)
		t.all[len(t.all)-1].of = holderName(h)
	}
	return t
}

// holder describes the open transaction that delays routing, with its age.
func holder(h *queue.Held) string {
	if h == nil {
		return ""
	}
	return holderName(*h) + " " + Age(h.AgeSeconds)
}

func holderName(h queue.Held) string {
	who := h.Program.String() + " " + h.User.String() // a prepared transaction has no session
	if h.Pid != nil {
		who = "open transaction pid " + strconv.FormatInt(*h.Pid, 10) + " " + h.User.String() + " " + h.Program.String()
	}
	return strings.TrimSpace(who)
}

// suspensions returns the endpoints to which nothing is sent: first those that people suspended,
// because only people end that; then those that were given up because they kept failing; then those
// that answered 410; then open circuits, which close by themselves.
func suspensions(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "SUSPENDED", cure: e.cure("resume", "7 D"), missing: missing(s, "suspended")}
	all := slices.Clone(s.Suspended)
	slices.SortStableFunc(all, func(a, b queue.Suspension) int { return suspendedBy(a) - suspendedBy(b) })
	var kinds [4][]string
	for _, x := range all {
		until, r := "until resumed", rankWarning
		switch {
		case x.Until != nil && !e.Now.Before(*x.Until) && x.Reason.String() == "circuit":
			until = "half open: the next attempt decides"
		case x.Until != nil:
			until = "until " + e.Clock(*x.Until)
		}
		id := strconv.FormatInt(x.SubscriptionID, 10)
		failing := x.Reason.String() == "failing"
		subject := queue.Choose(failing, "failing:", "circuit:") + id
		if a, ok := queue.Find(s.Alerts, func(a queue.Alert) bool { return a.Subject.String() == subject }); ok {
			r = rank(a.Severity)
			until = e.dotted(queue.Choose(failing, "suspended for ", "for ")+Age(a.AgeSeconds), until, queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), ""))
		}
		by := queue.Choose(x.By.Empty(), "", "by "+x.By.String())
		k := suspendedBy(x)
		kinds[k] = append(kinds[k], strings.TrimSpace(x.Endpoint.String()+" "+by))
		text := e.dotted(x.Endpoint.String(), suspendedWords(x), until, "since "+e.Clock(x.Since), by)
		if k == 0 { // as a flag that is off
			back := queue.Choose(x.Until == nil, until, "")
			if x.Until != nil {
				back = "back " + e.Clock(*x.Until)
			}
			text = e.dotted(x.Endpoint.String(), back, strings.TrimSpace(x.By.String()+" "+e.Clock(x.Since)), strings.TrimPrefix(quoted(x.Note), ", "))
		}
		t.add(Target{Pane: queue.PaneWebhooks, ID: id}, r, x.Endpoint.String(), text, t.cure)
		t.all[len(t.all)-1].cause = x.Reason.String()
	}
	people := ""
	if n := len(kinds[0]); n > 0 {
		people = strings.Join(kinds[0][:min(n, 2)], ", ") + queue.Choose(n > 2, " +"+strconv.Itoa(n-2)+" more by people", "")
	}
	t.summary = e.dotted(people, someOf(len(kinds[1]), "endpoint kept failing", "endpoints kept failing"),
		someOf(len(kinds[3]), "circuit open", "circuits open"), someOf(len(kinds[2]), "endpoint answered 410", "endpoints answered 410"))
	if people == "" {
		t.summary = e.dotted(t.summary, t.names())
	}
	return t
}

// suspendedBy returns what stopped an endpoint: 0 = a person, 1 = that it kept failing, 2 = its
// answer 410, 3 = its circuit.
func suspendedBy(x queue.Suspension) int {
	switch why := x.Reason.String(); {
	case why == "circuit":
		return 3
	case strings.HasPrefix(why, "410"):
		return 2
	case why == "failing":
		return 1
	}
	return 0
}

// suspendedWords says what stopped an endpoint, in the words of the summary.
func suspendedWords(x queue.Suspension) string {
	return []string{"suspended", "endpoint kept failing", "endpoint answered 410", "circuit open"}[suspendedBy(x)]
}

// someOf returns n with its noun in singular or plural; "" if n is 0.
func someOf(n int, one, many string) string {
	return queue.Choose(n == 0, "", Plural(int64(n), one, many))
}

// brakes returns the bulk operations that their brake or a canary paused.
func brakes(s *queue.Snapshot, e Env, w int) troubles {
	t := troubles{label: "BRAKE", cure: e.cure("resume", "6 P")}
	for _, o := range s.Operations {
		if o.State != queue.BulkPaused || o.StateWhy.Empty() {
			continue
		}
		what := "#" + strconv.FormatInt(o.ID, 10) + " " + operationWord(o.Kind) + " " + o.Selected()
		why := strings.TrimPrefix(o.StateWhy.String(), "the brake: ")
		text := e.dotted(e.Theme.Cut(theme.Safe(what), max(w/4, 16)), why, o.CreatedBy.String())
		t.add(Target{Pane: queue.PaneOps, ID: strconv.FormatInt(o.ID, 10)}, operationRank(o), "#"+strconv.FormatInt(o.ID, 10), text, t.cure)
	}
	return t
}

// running shows the bulk operations that run.
func running(s *queue.Snapshot, e Env, w int) section {
	sec := section{name: "RUNNING", gap: true, order: 2, missing: missing(s, "operations")}
	ops := slices.Clone(s.Operations)
	slices.SortStableFunc(ops, func(a, b queue.Operation) int { return operationRank(b) - operationRank(a) })
	for _, o := range ops {
		if o.State != queue.BulkRunning {
			continue
		}
		end := rateText(o.Rate)
		if d, ok := o.EndsIn(); ok {
			end = e.dotted(end, Span(d)+" left")
		}
		end = e.Theme.Cut(theme.Safe(end), max(w/3, 16))
		what := "#" + strconv.FormatInt(o.ID, 10) + " " + operationWord(o.Kind) + " " + o.Selected()
		bar := progress(o, e, min(max(w/9, 5), 20))
		room := max(w-18-theme.Width(bar)-theme.Width(end)-theme.Width(o.CreatedBy.String())-9, 12)
		text := e.dotted(e.Theme.Cut(theme.Safe(what), room), o.CreatedBy.String()) + "  " + bar + " " + e.dotted("", end)
		it := topRow(Target{Pane: queue.PaneOps, ID: strconv.FormatInt(o.ID, 10)}, e, operationRank(o), "RUNNING", text)
		it.cure = e.cure("pause", "6 P")
		sec.items = append(sec.items, it)
	}
	return sec
}

// noHost returns the loops that no host runs although work waits for them or an executor is silent.
// Without such loops it returns that no host is alive, and how the last one ended.
func noHost(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "NO HOST", cure: e.startCure()}
	if a, ok := queue.Find(s.Alerts, func(a queue.Alert) bool { return a.Kind == queue.AlertNoHost }); ok {
		owner := queue.Choose(a.State == "acked", "owner "+a.AckedBy.String(), "")
		parts := Plural(int64(len(a.Parts(s.Alerts))), "alert follows", "alerts follow")
		text := e.dotted(owner, "for "+Age(a.AgeSeconds), a.Detail.String(), queue.Choose(len(a.Parts(s.Alerts)) > 0, parts, ""))
		t.add(Target{Pane: queue.PaneAlerts, ID: a.Key.String()}, rank(a.Severity), "", text, t.cure)
		return t
	}
	if missing(s, "hosts") != "" || slices.ContainsFunc(s.Hosts, func(h queue.Host) bool { return h.Alive }) {
		return t
	}
	t.add(Target{Pane: queue.PaneHost, ID: ""}, rankWarning, "", e.dotted("nothing is routed or sent", LastHost(s.Hosts, e.Clock)), t.cure)
	return t
}

// LastHost says how and when the last live host ended; "" if there was none.
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

// unticked returns the tick workers that are switched on but not run, one row per reason.
func unticked(s *queue.Snapshot, e Env) troubles {
	t := troubles{label: "NOT TICKED", cure: e.cure("look", "9")}
	for _, u := range s.Unticked() {
		name := u.Workers[0].String()
		text := e.dotted(queue.Choose(len(u.Workers) > 1, name+" +"+strconv.Itoa(len(u.Workers)-1)+" more in 9", name), u.Why.String())
		t.add(Target{Pane: queue.PaneScheduler, ID: name}, rankWarning, name, text, e.cureOf("", u.Why.String(), t.cure))
		t.all[len(t.all)-1].cause = u.Why.String()
	}
	return t
}

// calmAge returns the age of something healthy without its smaller unit:
// seconds that change on the first screen would distract, and over a slow
// connection cost bytes.
func calmAge(seconds int64) string {
	return queue.Choose(seconds < 60, "<1m", Age(seconds))
}

// hostsSection and ticksSection format the age of healthy rows with the function age: without
// seconds on the first screen, exactly in pane gw.
func hostsSection(s *queue.Snapshot, e Env, age func(int64) string) section {
	sec := section{
		columns: []table.Column{{Title: "HOSTS", Width: 24, Max: 36}, {Title: "seen", Width: 9, Right: true}, {Title: "in flight", Width: 9, Right: true}, {Title: "loops", Width: 5, Max: queue.LineMost}},
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
		sec.items = append(sec.items, item{target: Target{Pane: queue.PaneHost, ID: h.ID.String() + "\x00" + h.Instance}, row: table.Row{Sign: sign, Cells: []table.Cell{
			cell(h.ID.String(), e.Theme.Strong), cell(seen, tone), cell(Count(h.InFlight), e.Theme.Text), cell(hostLoops(h.Loops), e.Theme.Dim),
		}}})
	}
	return sec
}

// hostLoops returns the number of loops before their names, which a narrow screen cuts.
func hostLoops(loops []queue.Text) string {
	return Plural(int64(len(loops)), "loop", "loops") + queue.Choose(len(loops) > 0, ": ", "") + strings.ReplaceAll(joinTexts(loops), ",", ", ")
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
		ran := sinceBeat(t.AgeSeconds, Age)
		if t.AgeSeconds != nil && r == rankQuiet {
			ran = age(*t.AgeSeconds)
		}
		sec.items = append(sec.items, item{target: Target{Pane: queue.PaneScheduler, ID: t.Name.String()}, row: table.Row{Sign: e.sign(r), Cells: []table.Cell{
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
			break // pane 7 shows which subscriptions these are
		}
		row := src.pick(i, e, "executor_id", "age_seconds", "in_flight", "state")
		if x := s.Executors[i]; x.LastBeatAt != nil && executorRank(x) == rankQuiet {
			row.Cells[1].Text = calmAge(orZero(x.AgeSeconds))
		}
		sec.items = append(sec.items, item{target: Target{Pane: queue.PaneExecutors, ID: src.ID(i)}, row: row})
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
		sec.items = append(sec.items, item{target: Target{Pane: queue.PaneHealth, ID: src.ID(i)}, row: row})
	}
	return sec
}
