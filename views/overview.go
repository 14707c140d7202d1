package views

import (
	"slices"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// OverviewState is the state from which pane 1 is drawn.
type OverviewState struct {
	Snapshot *queue.Snapshot
	Cursor   Target
	Gone     bool            // the row of the cursor no longer exists: the cursor only marks its place
	Expanded map[string]bool // the kinds of trouble whose rows the operator expanded; key: the id of the target of their shared row
}

// OverviewView is the drawn pane 1, with its selectable rows from top to bottom, and for each row
// the remedy with its key; "" = nothing needs to be done.
type OverviewView struct {
	Lines   []string
	Targets []Target
	Cures   []string
	places  []Rect // where each row is drawn
}

// RowAt returns the selectable row that is drawn at a cell of the pane; false if none is.
func (v OverviewView) RowAt(x, y int) (row int, ok bool) {
	row = slices.IndexFunc(v.places, func(r Rect) bool { return x >= r.X && x < r.X+r.W && y >= r.Y && y < r.Y+r.H })
	return row, row >= 0
}

// mark is where the cursor is drawn.
type mark struct {
	at   Target
	gone bool
}

func (st OverviewState) mark() mark { return mark{st.Cursor, st.Gone} }

// twoColumns is the width from which on the Overview has two columns, in cells.
const twoColumns = 160

// Overview draws pane 1. At the top are rows that exist only while something is wrong (off, held,
// suspended, no host). Below them are silent executors, the longest waits with their reasons,
// dead letters, the flow of the last hour, and what people did in that hour.
func Overview(st OverviewState, e Env, size Size) OverviewView {
	if st.Snapshot == nil {
		return OverviewView{Lines: Calm(e, []string{"Waiting for the first snapshot of the database.", "q quits, ? shows the keys; no key waits for the database."}, size)}
	}
	s := st.Snapshot
	if why, ok := s.Missing["all"]; ok { // shown once, instead of under every heading
		return OverviewView{Lines: noteLines(e, why.String(), size.W)}
	}
	if size.W < twoColumns {
		left := append(urgentSections(s, e, size.W, st.Expanded), flow(s, e, size.W, 1, false))
		at := len(left) - 1
		if r := recent(s, e, 3); len(r.items) > 0 {
			left = append(left, r)
		}
		if spare := size.H - total(left); spare >= 1 {
			jobs := greatest(s.Flow.Jobs) > 0
			left[at] = flow(s, e, size.W, 1, jobs)
			if jobs {
				spare -= 2
			}
			if spare >= 3 {
				curves := queue.Choose(jobs, 3, 2)
				left[at] = flow(s, e, size.W, min(1+(spare-curves+1)/curves, 5), jobs)
			}
		}
		return view(stack(left, st.mark(), e, size), 0, size.W)
	}
	lw := size.W * 58 / 100
	rw := size.W - lw - 1
	a := stack(append(urgentSections(s, e, lw, st.Expanded), healthSection(s, e, lw)), st.mark(), e, Size{lw, size.H})
	high := min(max(size.H/7, 3), 9)
	b := stack(context(s, e, rw, high), st.mark(), e, Size{rw, size.H})
	return sideBySide(a, b, e, lw, rw, size.H)
}

// view returns drawn sections that begin at column x and are w cells wide.
func view(d drawn, x, w int) OverviewView {
	v := OverviewView{Lines: d.lines}
	for _, t := range d.targets {
		v.Targets, v.Cures = append(v.Targets, t.target), append(v.Cures, t.cure)
		v.places = append(v.places, Rect{x, t.line, w, t.high})
	}
	return v
}

// sideBySide puts two blocks next to each other with a thin line between them.
func sideBySide(a, b drawn, e Env, lw, rw, h int) OverviewView {
	th := e.Theme
	v := OverviewView{}
	for i := range h {
		l, r := "", ""
		if i < len(a.lines) {
			l = a.lines[i]
		}
		if i < len(b.lines) {
			r = b.lines[i]
		}
		v.Lines = append(v.Lines, th.Left(l, lw)+th.Edge.Paint(th.G.V)+th.Left(r, rw))
	}
	va, vb := view(a, 0, lw), view(b, lw+1, rw)
	v.Targets, v.Cures = append(va.Targets, vb.Targets...), append(va.Cures, vb.Cures...)
	v.places = append(va.places, vb.places...)
	return v
}

func total(sections []section) int {
	n := 0
	for _, s := range sections {
		n += s.most() + 1
	}
	return n
}

// urgentSections returns the sections about which an operator may have been
// called, in the order in which they need a decision. (A clone of a database
// would be more urgent, but has a banner above every pane.)
func urgentSections(s *queue.Snapshot, e Env, w int, expanded map[string]bool) []section {
	var out []section
	for _, g := range troubleKinds(s, e, w) {
		if top := g.section(e, expanded); len(top.items) > 0 || top.missing != "" {
			out = append(out, top)
		}
	}
	if len(out) == 0 {
		out = append(out, section{quiet: "nothing is off, held or suspended"})
	}
	out = append(out, silences(s, e, w), waiting(s, e, w), dead(s, e, w))
	if ops := running(s, e, w); len(ops.items) > 0 || ops.missing != "" {
		out = append(out, ops)
	}
	return out
}

// context returns the sections beside the urgent ones, on a wide screen.
func context(s *queue.Snapshot, e Env, w, high int) []section {
	jobs := greatest(s.Flow.Jobs) > 0
	if jobs {
		high = max(high*2/3, 3) // three curves instead of two share the room
	}
	out := []section{flow(s, e, w, high, jobs)}
	if r := recent(s, e, 8); len(r.items) > 0 {
		out = append(out, r)
	}
	return append(out, hostsSection(s, e, calmAge), ticksSection(s, e, calmAge), executorsSection(s, e))
}

// nameWidth returns the width of the first column. All sections use it, so that their numbers are
// aligned.
func nameWidth(w int) int { return min(max(33+(w-80)/4, 33), 56) }

func silences(s *queue.Snapshot, e Env, w int) section {
	sec := section{
		columns: []table.Column{
			{Title: "SILENT", Width: nameWidth(w)}, {Title: "for", Width: 8, Right: true},
			{Title: "×cadence", Width: 8, Right: true, Drop: 1}, {Title: "severity", Width: 8}, {Title: "owner", Width: 11, Max: 60},
		},
		quiet: unheard(s), gap: true, order: 0, missing: missing(s, "alerts"),
	}
	src, all := Alerts(s), queue.Causes(s.Alerts)
	for _, i := range Arrange(src, 0, nil) {
		a := all[i]
		if a.Kind != queue.AlertSilence {
			continue // a row at the top shows this alert already
		}
		row := src.pick(i, e, "subject", "age_seconds", "ratio", "severity", "acked_by")
		owner := &row.Cells[4]
		if a.State == "acked" && a.AckExpiresAt != nil {
			owner.Text += " " + e.Left(*a.AckExpiresAt)
		}
		if w >= 110 && a.Comment.String() != "" && a.State == "acked" {
			owner.Text += " " + e.Theme.G.Dot + " " + a.Comment.String()
		}
		cure := queue.Choose(a.State == "acked", "", e.cure("acknowledge", "A"))
		sec.items = append(sec.items, item{target: Target{Pane: queue.PaneAlerts, ID: src.ID(i)}, row: row, cure: cure})
	}
	return sec
}

// unheard returns the line that is shown if no silence has a separate row.
func unheard(s *queue.Snapshot) string {
	folded := int64(0)
	for _, a := range s.Alerts {
		if a.Kind == queue.AlertSilence && !a.Cause.Empty() {
			folded++
		}
	}
	switch {
	case folded > 0:
		return Plural(folded, "executor is", "executors are") + " silent: part of the alert above"
	case s.MonitoringOff:
		return "monitoring is off: no silence is reported"
	}
	return "no executor is silent" + beating(s)
}

// beating returns ": " and how many executors live or, if none does, how many are in which state.
func beating(s *queue.Snapshot) string {
	if missing(s, "executors") != "" {
		return ""
	}
	live, others := int64(0), []queue.Counted{}
	for _, x := range s.Executors {
		switch k := slices.IndexFunc(others, func(c queue.Counted) bool { return c.Name == x.State }); {
		case x.State == "working" || x.State == "idle":
			live++
		case k < 0:
			others = append(others, queue.Counted{Name: x.State, N: 1})
		default:
			others[k].N++
		}
	}
	switch {
	case len(s.Executors) == 0:
		return ": no executor is registered yet (4, then N)"
	case live > 0:
		return ": " + Plural(live, "live executor", "live executors")
	}
	var parts []string
	for _, c := range others {
		parts = append(parts, Count(c.N)+" "+queue.Clean(c.Name).String()) // another schema may have any text here
	}
	return ", and none is live: " + strings.Join(parts, ", ")
}

func waiting(s *queue.Snapshot, e Env, w int) section {
	wide := w >= 96
	cols := []table.Column{
		{Title: "WAITING LONGEST", Width: nameWidth(w)}, {Title: "oldest", Width: 8, Right: true},
		{Title: "waiting", Width: 8, Right: true}, {Title: "in/s", Width: 5, Right: true, Drop: 1},
		{Title: "out/s", Width: 5, Right: true, Drop: 1}, queue.Choose(wide, table.Column{Title: "clears in", Width: 18}, table.Column{Title: "clears", Width: 6}),
	}
	sec := section{columns: cols, quiet: "no work is waiting", gap: true, order: 1, missing: missing(s, "waiting")}
	named := map[string]int{}
	for _, x := range s.Waiting {
		named[x.Queue.String()]++
	}
	for _, x := range s.Waiting {
		clears, r := e.clearing(x.ClearsInSeconds, x.Stuck(), x.AgeSeconds, orZero(x.OutPerSecond), wide && x.OutPerSecond != nil)
		target, name, tail := Target{Pane: queue.PaneHealth, ID: x.Queue.String()}, x.Queue.String(), ""
		switch x.Source {
		case "webhook":
			if x.Subject.String() != "webhook_router" {
				target = Target{Pane: queue.PaneWebhooks, ID: x.Subject.String()}
			}
		case "job":
			target = Target{Pane: queue.PaneQueues, ID: LaneID(x.Domain.String(), x.Subject.String())}
			if named[name] > 1 { // the kind occurs in several domains, so the domain is added
				tail = " in " + x.Domain.String()
			}
		}
		it := item{target: target, row: table.Row{Sign: e.sign(r), Cells: []table.Cell{
			{Text: name + tail, Style: e.Theme.Strong, Tail: tail}, cell(e.oldest(x.OldestAt, x.AgeSeconds), e.tone(r)), cell(e.counted(x.Waiting, x.WaitingBound), e.Theme.Text),
			cell(dashed(e, x.InPerSecond, Rate), e.Theme.Text), cell(dashed(e, x.OutPerSecond, Rate), e.Theme.Text), cell(clears, e.tone(r)),
		}}}
		if r > rankQuiet {
			keys := e.whyKeys(x.Queue.String(), x.Why.String())
			it.why = e.dotted(x.Why.String(), keys)
			it.cure = queue.Choose(keys == "", e.cure("explain", ":why"), it.why)
		}
		sec.items = append(sec.items, it)
	}
	return sec
}

// clearing returns when the waiting work will be done if the current rates
// stay, and how urgent that is. clears is that time in seconds, stuck whether
// that is never; out is the rate at which work is done.
func (e Env) clearing(clears *int64, stuck bool, age int64, out float64, wide bool) (string, int) {
	switch {
	case clears != nil:
		return Age(*clears), rankQuiet
	case !stuck:
		return e.Theme.G.Dash, rankQuiet
	}
	return queue.Choose(wide, "never at this rate", "never"), queue.Choose(out == 0 && age >= 60, rankCritical, rankWarning)
}

func dead(s *queue.Snapshot, e Env, w int) section {
	n := nameWidth(w)
	code := min(12+(n-33)*2/3, 24)
	sec := section{
		columns: []table.Column{
			{Title: "DEAD", Width: code}, {Title: "endpoint / kind", Width: n - code - table.Gap},
			{Title: "open", Width: 8, Right: true}, {Title: "first", Width: 7, Right: true, Drop: 1},
			{Title: "last", Width: 7, Right: true}, {Title: ruler(e.Theme, markers(s, e, 12, 5*time.Minute), 12, "last hour"), Width: 12, Drop: 1},
		},
		quiet: "no dead letter is open", gap: true, order: 2, missing: missing(s, "dead_groups"), rest: s.DeadMore.Groups, restBound: s.DeadMore.GroupsBound,
	}
	src := DeadGroups(s)
	for _, i := range Arrange(src, 0, nil) {
		sec.items = append(sec.items, item{
			target: Target{Pane: queue.PaneDead, ID: src.ID(i)}, row: src.pick(i, e, "code", "endpoint", "open", "first_at", "last_at", "last_hour"),
			cure: e.cure("requeue", "5 R"),
		})
	}
	return sec
}

// flow draws the last hour as curves, one bar per minute, with the marks and
// actions of people above. high is the height of each curve in lines; jobs
// adds the curve of finished jobs.
func flow(s *queue.Snapshot, e Env, w, high int, jobs bool) section {
	th := e.Theme
	const label, tail = 14, 12
	room := min(max(w-label-tail, 8), 60)
	marks := markers(s, e, room, time.Minute)
	what := queue.Choose(len(marks) > 0, "last hour", "last hour, one bar per minute")
	sec := section{
		columns: []table.Column{{Title: "FLOW", Width: 9}, {Title: ruler(th, marks, room, what), Width: room}},
		gap:     true, yields: true, order: 3, missing: missing(s, "flow"), lines: []string{},
	}
	type curve struct {
		name string
		v    []int64
		look theme.Style
	}
	curves := []curve{{"delivered", s.Flow.Delivered, th.Accent}, {"dead", s.Flow.Dead, th.Warning}}
	if jobs {
		curves = append(curves[:1:1], curve{"jobs done", s.Flow.Jobs, th.Accent}, curves[1])
	}
	for _, c := range curves {
		chart := Chart(th, c.v, room, high)
		if high > 1 && len(sec.lines) > 0 {
			sec.lines = append(sec.lines, theme.Blank(label)+th.Title.Paint(signs(th, marks, room)))
		}
		for i, line := range chart {
			left, right := "", ""
			if i == high-1 {
				left, right = c.name, lastFull(c.v, e)
			}
			if most := greatest(c.v); i == 0 && high > 1 && most > 0 {
				right = "peak " + table.Short(most)
			}
			if line == theme.Blank(room) && i == high-1 {
				line = th.Dim.Paint(th.Left("none", room))
			} else {
				line = c.look.Paint(line)
			}
			sec.lines = append(sec.lines, "   "+th.Dim.Paint(th.Left(left, label-3))+line+" "+th.Text.Paint(th.Right(right, tail-2)))
		}
	}
	return sec
}

// lastFull returns the value of the last complete minute; a dash if there is none.
func lastFull(v []int64, e Env) string {
	if len(v) < 2 {
		return e.Theme.G.Dash
	}
	return table.Short(v[len(v)-2]) + "/min"
}
