package views

import (
	"slices"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// troubles has all troubles of one kind. A single trouble is a row of the
// Overview. Several share one row, which enter expands, so that an outage with
// many troubles still fits on the first screen.
type troubles struct {
	label   string // OFF, HELD
	cure    string // the remedy in the shared row
	summary string // the text of the shared row; "" = that of the first trouble
	missing string // why the snapshot lacks this kind
	all     []trouble
}

type trouble struct {
	target           Target
	rank             int
	name, text, cure string
	cause            string // the reason, without ages and counts; "" = the label says it
	of               string // what distinguishes it from another trouble of this name, without its age; "" = nothing need
}

// troubleKinds returns all troubles by kind, in the order in which they need a
// decision. w is the width of the Overview. `qtop status` and --accessible use
// the same list.
func troubleKinds(s *queue.Snapshot, e Env, w int) []troubles {
	out := append(flagsOff(s, e), brakes(s, e, w), heldCursors(s, e), suspensions(s, e), noHost(s, e))
	return append(append(out, conditions(s, e)...), unticked(s, e), setAside(s, e), broadcasts(s, e))
}

// Trouble is a trouble of the Overview as a line of text.
type Trouble struct {
	Kind     string     `json:"kind"`     // the label on the screen: OFF, BRAKE, SUSPENDED
	Severity string     `json:"severity"` // warning, critical
	Subject  queue.Text `json:"subject"`
	Text     queue.Text `json:"text"`
	Target   Target     `json:"-"` // the row that it is about
}

// Troubles returns the troubles of the Overview, in its order, with times in RFC 3339.
func Troubles(s *queue.Snapshot) []Trouble {
	e := Env{Theme: theme.New(theme.Options{}), Now: s.TakenAt, Exact: true}
	out := []Trouble{}
	for _, t := range troubleKinds(s, e, 1000) {
		for _, x := range t.all {
			out = append(out, Trouble{t.label, queue.Choose(x.rank == rankCritical, "critical", "warning"), queue.Clean(x.name), queue.Clean(x.text), x.target})
		}
	}
	return out
}

func (t *troubles) add(target Target, rank int, name, text, cure string) {
	t.all = append(t.all, trouble{target: target, rank: rank, name: name, text: text, cure: cure})
}

// alert adds an alert to the troubles.
func (t *troubles) alert(a queue.Alert, name, text, cure string) {
	t.add(Target{Pane: queue.PaneAlerts, ID: a.Key.String()}, rank(a.Severity), name, text, cure)
}

// names returns the names of the first two troubles, and how many more there are.
func (t *troubles) names() string {
	var names []string
	for _, x := range t.all[:min(len(t.all), 2)] {
		names = append(names, x.name)
	}
	return strings.Join(names, ", ") + queue.Choose(len(t.all) > 2, " +"+strconv.Itoa(len(t.all)-2)+" more", "")
}

// section returns the rows of the Overview for this kind: the only trouble; or
// the shared row, followed by each trouble if it is expanded.
func (t *troubles) section(e Env, expanded map[string]bool) section {
	sec := section{name: t.label, missing: t.missing}
	if n := len(t.all); n > 1 {
		r := rankQuiet
		for _, x := range t.all {
			r = max(r, x.rank)
		}
		shared := Target{Pane: queue.PaneOverview, ID: t.label}
		sec.wanted = expanded[t.label]
		keys := t.cure[strings.LastIndex(t.cure, " ")+1:]
		if parts := strings.Fields(t.cure); len(parts) > 2 {
			keys = strings.Join(parts[2:], " ")
		}
		text := queue.Choose(t.summary != "" && !sec.wanted, t.summary, queue.Choose(sec.wanted, "all "+strconv.Itoa(n), t.all[0].text))
		head := topRow(shared, e, r, t.label, text, e.dotted(queue.Choose(sec.wanted, "enter: fold", "enter: all "+strconv.Itoa(n)), keys))
		head.cure = e.dotted(queue.Choose(sec.wanted, "enter folds the rows", "enter shows all "+strconv.Itoa(n)), t.cure)
		if sec.items = append(sec.items, head); !sec.wanted {
			return sec
		}
		for _, x := range t.all {
			sec.items = append(sec.items, topRow(x.target, e, x.rank, "  "+e.Theme.G.Tee, x.text, x.cure))
		}
		return sec
	}
	for _, x := range t.all {
		sec.items = append(sec.items, topRow(x.target, e, x.rank, t.label, x.text, x.cure))
	}
	return sec
}

// topRow returns a row of the Overview: a label, a sentence and, if given,
// what to do. r is its urgency (rank).
func topRow(t Target, e Env, r int, label, text string, cure ...string) item {
	it := item{target: t, row: table.Row{Sign: e.sign(r), Cells: []table.Cell{
		cell(label, e.tone(r)), cell(text, e.Theme.Text),
	}}}
	for _, c := range cure {
		it.cure = c
		it.row.Cells = append(it.row.Cells, cell(c, e.Theme.Accent))
	}
	return it
}

// cure returns a remedy with its keys, for a row.
func (e Env) cure(what, keys string) string { return e.dotted(what, keys) }

// whyKeys returns the keys that lead to the remedy, for a reason why the work
// of a queue waits; "" if no key does.
func (e Env) whyKeys(waits, why string) string {
	for _, c := range []struct{ words, keys string }{
		{" is off", "gf E"}, {"interval_seconds is ", "gf E"},
		{"no live host runs ", startKeys}, {"does not run", startKeys}, {noHandler, startKeys}, {absentExecutors, startKeys},
		{"endpoint suspended", "7 D"}, {"circuit open", "7 D"}, {"no subscription of the endpoint may send", "7 D"}, {"none of its subscriptions is open", "7 D"},
		{"rate limit ", "7 M"},
		{"executor subscribes to it", "4 E"}, {"parallel limit", "4 E"}, {"priority floor", "4 E"},
		{"open transaction", "gl"}, {" is held by ", "gl"}, {"queue.scheduler.mode is ", "gf E"},
	} {
		if strings.Contains(why, c.words) {
			return queue.Choose(c.keys != startKeys || e.starts(waits, why), c.keys, "")
		}
	}
	return ""
}

// The keys that start a loop of this process, and the reasons that it ends only
// if this process has the program of the job.
const (
	startKeys       = "gw S"
	noHandler       = "no live host has a handler"
	absentExecutors = "every subscribed executor is "
)

// starts reports whether the loops of this process, once started, would end the
// reason why a queue waits. Every process that can run a host has all loops;
// handlers, and the executor as which they work, are those of its configuration.
func (e Env) starts(waits, why string) bool {
	_, absent, executors := strings.Cut(why, absentExecutors)
	if !executors && !strings.Contains(why, noHandler) {
		return e.startable()
	}
	if e.Host == nil {
		return false
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(waits, "job "), " in ")
	_, names, _ := strings.Cut(absent, ": ")
	return slices.Contains(e.Host.Kinds, kind) && (!executors || slices.Contains(strings.Split(names, ", "), e.Host.Executor))
}

// linkKeys returns the keys that lead to the remedy of a link of the chain. The
// database cannot know what this process can start.
func (e Env) linkKeys(y queue.Why, l queue.WhyLink) string {
	switch {
	case l.Keys == startKeys:
		return queue.Choose(e.startable(), startKeys, "")
	case e.whyKeys(y.Queue.String(), l.Text.String()) == startKeys:
		return startKeys
	}
	return l.Keys
}

// startable reports whether this process can run a worker host.
func (e Env) startable() bool { return e.Host == nil || len(e.Host.Loops) > 0 }

// startCure returns the remedy for loops that no host runs: the keys that start
// them here, or that lead to the reason why this process cannot.
func (e Env) startCure() string {
	return queue.Choose(e.startable(), e.cure("start", startKeys), e.cure("look", "gw"))
}

// cureOf returns the remedy for a reason why the work of a queue waits; if no
// key leads to one, the text otherwise.
func (e Env) cureOf(waits, why, otherwise string) string {
	keys := e.whyKeys(waits, why)
	for _, c := range []struct{ keys, verb string }{
		{"gf E", "set"}, {startKeys, "start"}, {"7 D", "resume"}, {"7 M", "limit"}, {"4 E", "subscribe"}, {"gl", "look"},
	} {
		if keys == c.keys {
			return e.cure(c.verb, keys)
		}
	}
	return otherwise
}
