package views

// Pane gw: the loops of this process, the other hosts, and the latest wake signals.

import (
	"fmt"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Loops returns the table of pane gw: the loops of this process.
func Loops(h *queue.HostStatus) Source {
	var rows []queue.LoopStatus
	empty := []string{"This process cannot run a worker host.", "qtop worker runs one; the other hosts are listed below."}
	if h != nil {
		rows = h.Loops
		empty[0] = "The worker host of this process has no loops."
		if h.Refused != "" {
			empty[0] = "The worker host of this process cannot start: " + theme.Safe(h.Refused)
		}
	}
	return Source{
		Sorts: []Sort{{Name: "start order", Column: ""}, {Name: "loop", Column: "Name", Less: func(i, j int) bool { return rows[i].Name < rows[j].Name }}},
		Empty: empty,
	}.with(List[queue.LoopStatus]{
		Rows: rows, ID: func(l queue.LoopStatus) string { return l.Name }, Look: loopLook, Filter: "loop=Name state=State",
		Columns: []Column[queue.LoopStatus]{
			{Name: "Name", Title: "loop", Width: 22, Max: 26, Look: strong},
			{Name: "State", Title: "state", Width: 8, Max: 10, Lively: true, Look: ofRow},
			{Name: "LastTick", Title: "last tick", Width: 9, Right: true, Say: func(e Env, v any) string { return ago(e.here(), v) }},
			{Name: "Every", Title: "every", Width: 6, Right: true, Drop: 4, Look: dim, Text: loopEvery},
			{Name: "InFlight", Title: "in flight", Width: 9, Right: true, Drop: 1},
			{Name: "Done", Title: "done", Width: 8, Max: 12, Right: true},
			{Name: "Errors", Title: "errors", Width: 6, Max: 9, Right: true, Tone: func(l queue.LoopStatus, e Env) theme.Style { return e.warn(l.Errors > 0) }},
			{Name: "PerSec", Title: "rate/s", Width: 6, Right: true, Drop: 2, Text: func(l queue.LoopStatus, e Env) string {
				return queue.Choose(l.LastTick.IsZero() && l.Done == 0, e.Theme.G.Dash, Rate(l.PerSec))
			}},
			{Name: "What", Title: "what it does", Lively: true, Width: 22, Max: 60, Drop: 3, Cell: func(l queue.LoopStatus, e Env) table.Cell {
				return queue.Choose(l.LastErr.Empty(), cell(l.What, e.Theme.Dim), cell(l.LastErr.String(), e.Theme.Warning))
			}},
		},
	}.lines())
}

func loopLook(l queue.LoopStatus, e Env) (table.Cell, theme.Style) {
	return e.running(rank(l.State), l.State == "running")
}

// loopEvery returns the interval of a loop; a loop that never ran has none.
func loopEvery(l queue.LoopStatus, e Env) string {
	return queue.Choose(l.Every <= 0, e.Theme.G.Dash, Span(l.Every))
}

// LoopPage returns the page of one loop.
func LoopPage(l queue.LoopStatus, e Env, w int) Page {
	p := newPage(e, w)
	p.head("Loop " + l.Name)
	p.pair("what it does", l.What)
	p.pair("state", l.State)
	p.pair("every", loopEvery(l, e))
	p.pair("last tick", e.here().since(&l.LastTick))
	p.pair("in flight", Count(int64(l.InFlight)))
	p.pair("done", Count(l.Done))
	p.pair("rate", Rate(l.PerSec)+" per second, mean of the last minute, or since its start")
	p.pair("errors", Count(l.Errors))
	p.paint("last error", l.LastErr.String(), e.Theme.Warning)
	return p.done("loop " + l.Name)
}

// HostBelow returns the lines of pane gw below its loops: the last error of the loop named at, tick
// workers, other hosts, and the latest wake signals. They share the room so that each is visible.
func HostBelow(s *queue.Snapshot, h *queue.HostStatus, at string, e Env, size Size) []string {
	said := loopErrors(h, at, e, size.W)
	said = said[:min(len(said), max(size.H, 0))]
	return append(said, hostSections(s, h, e, Size{size.W, size.H - len(said)})...)
}

// loopErrors returns the last error of the loop under the cursor (at), else
// the error of the first loop that has one. If any loop has an error, the
// result always has two lines, so that the lines below do not move when the
// cursor does.
func loopErrors(h *queue.HostStatus, at string, e Env, w int) []string {
	if h == nil {
		return nil
	}
	var bad *queue.LoopStatus
	for i, l := range h.Loops {
		if !l.LastErr.Empty() && (bad == nil || l.Name == at) {
			bad = &h.Loops[i]
		}
	}
	if bad == nil {
		return nil
	}
	out := wrap(theme.Safe(bad.Name+": "+bad.LastErr.String()), max(w-6, 8))
	if len(out) > 2 {
		out = append(out[:1], e.Theme.Cut(out[1]+" "+e.Theme.G.Ellipsis, w-6))
	}
	for i := range out {
		front := "   "
		if i == 0 {
			front = " " + e.Theme.G.Tee + " "
		}
		out[i] = e.Theme.Cut(e.Theme.Warning.Paint(front+out[i]), w)
	}
	for len(out) < 2 {
		out = append(out, "")
	}
	return out
}

func hostSections(s *queue.Snapshot, h *queue.HostStatus, e Env, size Size) []string {
	var sections []section
	if s != nil {
		sections = append(sections, ticksSection(s, e, Age), hostsSection(s, e, Age))
	}
	if h != nil {
		sections = append(sections, wakeSection(h, e))
	}
	for i := range sections {
		sections[i].order = 0
	}
	lead := min(1, max(size.H-2*len(sections), 0))
	out := make([]string, lead, max(size.H, 1))
	return append(out, stack(sections, mark{}, e, Size{size.W, size.H - lead}).lines...)
}

// wakeSection shows the listener and its last wake signals, newest first.
func wakeSection(h *queue.HostStatus, e Env) section {
	th, l := e.Theme, h.Listener
	r := map[string]int{"connecting": rankWarning, "polling": rankWarning, "lost": rankCritical}[l.State] // "off" is missing, because it is deliberate
	sign, tone := e.running(r, l.State == "listening")
	words := l.State + queue.Choose(l.Since.IsZero(), "", " since "+e.here().Clock(l.Since))
	heard := fmt.Sprintf("%s, %s heard, %s", Plural(int64(l.Channels), "channel", "channels"), Count(l.Heard), Plural(l.Resyncs, "resync", "resyncs"))
	if r := l.Reason.String(); r != "" {
		heard = r
	}
	sec := section{
		columns: []table.Column{
			{Title: "WAKE STREAM", Width: 24, Max: 36}, {Title: "at", Width: 9, Right: true}, {Title: "rows", Width: 9, Right: true, Drop: 1},
			{Title: "lag", Width: 8, Right: true}, {Title: "hint", Width: 12, Max: 60},
		},
		gap: true,
	}
	for _, x := range h.Wakes {
		lag := th.G.Dash
		if x.LagMS >= 0 {
			lag = Millis(x.LagMS)
		}
		sec.items = append(sec.items, item{row: table.Row{Sign: cell(" ", th.Text), Cells: []table.Cell{
			cell(x.Channel.String(), th.Accent), cell(x.At.In(e.loc()).Format("15:04:05"), th.Dim), cell(Count(x.Count), th.Text),
			cell(lag, th.Text), cell(strings.TrimSpace(x.Layer.String()+" "+x.Hint.String()), th.Dim),
		}}})
	}
	state := item{row: table.Row{Sign: sign, Cells: []table.Cell{cell(words, tone), cell("", th.Text), cell("", th.Text), cell("", th.Text), cell(heard, th.Dim)}}}
	sec.items = append([]item{state}, sec.items...)
	return sec
}
