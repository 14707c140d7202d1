package main

// The report as Markdown. Values from the database are written in code spans,
// where they cannot become links, mentions, tables or HTML.

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

const dash = "–"

type markdown struct{ strings.Builder }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// section writes a heading with a table. more is the number of rows that were
// left out.
func (m *markdown) section(title string, more int, heads []string, rows [][]string) {
	m.line("\n## %s\n", title)
	if len(rows) == 0 {
		m.line("None.")
		return
	}
	m.line("| %s |\n|%s", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	for _, r := range rows {
		m.line("| %s |", strings.Join(r, " | "))
	}
	if more > 0 {
		m.line("\n+%d more %s left out.", more, queue.Choose(more == 1, "is", "are"))
	}
}

// longest is the greatest number of characters of a cell that are shown.
const longest = 300

// code returns a text from the database as a code span in a table cell: with
// more backquotes around the text than in it, and without a pipe that could end
// the cell.
func code(t queue.Text) string {
	s := t.String()
	if strings.TrimSpace(s) == "" {
		return dash
	}
	if all := []rune(s); len(all) > longest {
		s = fmt.Sprintf("%s…(+%d)", string(all[:longest]), len(all)-longest)
	}
	fence, run := 0, 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		fence = max(fence, run)
	}
	var b strings.Builder
	slashes := 0
	for _, r := range s {
		if r == '|' {
			b.WriteString(strings.Repeat(`\`, slashes) + `\`) // double the backslashes, escape the pipe
		}
		if slashes++; r != '\\' {
			slashes = 0
		}
		b.WriteRune(r)
	}
	q := strings.Repeat("`", fence+1)
	pad := queue.Choose(fence > 0, " ", "")
	return q + pad + b.String() + pad + q
}

// number returns a number that may be unknown.
func number(n *int64) string {
	if n == nil {
		return dash
	}
	return strconv.FormatInt(*n, 10)
}

func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return dash
	}
	return queue.Stamp(*t, "2006-01-02 15:04:05")
}

func reportMarkdown(r queue.Report) string {
	m := &markdown{}
	m.line("# Incident report of %s\n", code(r.Database))
	m.line("- From %s to %s, %s. All times are UTC.", at(&r.Since), at(&r.Until), views.PlainAge(int64(r.Until.Sub(r.Since)/time.Second)))
	m.line("- As of %s, read by %s as %s from PostgreSQL %s.", at(&r.AsOf), code(r.Actor), code(r.Login), code(r.Version))
	people := 0
	for _, x := range r.Actions {
		if !x.ByMachine() {
			people++
		}
	}
	m.line("- %s%s, %s, %s, %s, %s, %s.", queue.Plural(people+r.More["actions"], "operator action", "operator actions"),
		queue.Choose(people < len(r.Actions), fmt.Sprintf(" (and %d by hosts and triggers)", len(r.Actions)-people), ""),
		queue.Plural(len(r.Silences)+r.More["silences"], "silence", "silences"),
		queue.Plural(len(r.Suspensions)+r.More["suspensions"], "circuit or suspension", "circuits and suspensions"),
		queue.Plural(len(r.Flags)+r.More["flags"], "flag change", "flag changes"),
		queue.Plural(len(r.Operations)+r.More["operations"], "bulk operation", "bulk operations"), died(r))
	m.actions(r)
	m.silences(r)
	m.suspensions(r)
	m.flags(r)
	m.operations(r)
	m.dead(r)
	m.marks(r)
	m.curves(r)
	return m.String()
}

func died(r queue.Report) string {
	n := int64(0)
	for _, d := range r.Dead {
		n += d.Arose
	}
	bound := r.DeadBound || r.More["dead"] > 0
	return views.PlainBound(n, bound) + queue.Choose(n == 1 && !bound, " dead letter", " dead letters") + " arose"
}

func (m *markdown) silences(r queue.Report) {
	var rows [][]string
	for _, s := range r.Silences {
		ended := at(s.EndedAt)
		switch s.Ended {
		case queue.SilenceLasts:
			ended = "still silent"
		case queue.SilenceBeat:
			ended += " the beat returned"
		case queue.SilenceGone:
			ended += " deregistered"
		case queue.SilenceSampled:
			ended += " seen for the last time"
		default:
			ended = "over, not known since when"
		}
		var who []string
		for _, k := range s.Acks {
			until, how := k.ClearedAt, k.ClearedReason.String()
			if until == nil {
				until, how = k.ExpiresAt, "has it still"
			}
			who = append(who, fmt.Sprintf("%s from %s to %s (%s): %s", code(k.AckedBy), at(&k.AckedAt), at(until), strings.ReplaceAll(how, "_", " "), code(k.Comment)))
		}
		if len(who) == 0 {
			who = []string{"nobody"}
		}
		cadence := dash
		if s.CadenceSeconds > 0 {
			cadence = strconv.FormatInt(s.WorstSeconds/s.CadenceSeconds, 10) + "×"
		}
		rows = append(rows, []string{code(s.Executor), at(s.LastBeatAt), ended, views.PlainAge(s.WorstSeconds), cadence, strings.Join(who, "<br>")})
	}
	m.section("Silences", r.More["silences"], []string{"executor", "last beat before", "end", "longest", "cadence", "owner"}, rows)
	if n := r.More["acks"]; n > 0 {
		m.line("\n+%s left out.", queue.Plural(n, "more acknowledgement is", "more acknowledgements are"))
	}
}

func (m *markdown) suspensions(r queue.Report) {
	var rows [][]string
	for _, s := range r.Suspensions {
		what := map[string]string{"circuit": "circuit open", "operator": "suspended", "410": "suspended: HTTP 410", "failing": "suspended: only failures"}[s.Reason]
		var end string
		switch s.Ended {
		case queue.SuspensionLasts:
			end = "not yet"
		case queue.SuspensionResumed:
			end = at(s.EndedAt) + " by " + code(s.EndedBy)
		case queue.SuspensionExpired:
			end = at(s.EndedAt) + " its time was over"
		case queue.SuspensionSeen:
			end = "after " + at(s.EndedAt) + ", when it was seen last"
		default:
			end = "over, not known since when"
		}
		rows = append(rows, []string{code(s.Endpoint) + " (" + strconv.FormatInt(s.SubscriptionID, 10) + ")", what, at(&s.Since), code(s.By), code(s.Note), end})
	}
	m.section("Circuits and suspensions", r.More["suspensions"], []string{"endpoint (subscription)", "state", "from", "by", "reason", "end"}, rows)
}

func (m *markdown) flags(r queue.Report) {
	var rows [][]string
	for _, f := range r.Flags {
		rows = append(rows, []string{at(&f.At), code(f.Key), code(f.Before) + " → " + code(f.After), at(f.RevertsAt), code(f.By), code(f.Reason)})
	}
	m.section("Flags changed", r.More["flags"], []string{"at", "flag", "change", "reverts at", "by", "reason"}, rows)
}

func (m *markdown) operations(r queue.Report) {
	var rows [][]string
	for _, o := range r.Operations {
		state := fmt.Sprintf("%s since %s by %s", o.State, at(&o.StateAt), code(o.StateBy))
		if !o.StateWhy.Empty() {
			state += ": " + code(o.StateWhy)
		}
		first := fmt.Sprintf("%d ok / %d failed", o.FirstOK, o.FirstFailed)
		if o.EndedBadly() {
			first = "**" + first + "**"
		}
		rows = append(rows, []string{
			strconv.FormatInt(o.ID, 10), o.Kind, code(o.Filter), at(&o.CreatedAt) + " by " + code(o.CreatedBy), code(o.Reason), state,
			fmt.Sprintf("%d of %d ended: %d requeued, %d skipped, %d failed, %d undone", o.Ended(), o.Frozen, o.Requeued, o.Skipped, o.Failed, o.Undone), first,
		})
	}
	m.section("Bulk operations", r.More["operations"], []string{"id", "kind", "selection", "planned", "reason", "state", "outcome", "first attempts"}, rows)
}

func (m *markdown) dead(r queue.Report) {
	var rows [][]string
	for _, d := range r.Dead {
		requeued := strconv.FormatInt(d.Requeued, 10)
		if d.Delivered != nil && d.Requeued > 0 {
			requeued += fmt.Sprintf(", %d delivered", *d.Delivered)
		}
		rows = append(rows, []string{
			d.Source, code(d.Code), code(d.Endpoint), code(d.Domain), strconv.FormatInt(d.Arose, 10), at(&d.FirstAt), at(&d.LastAt),
			strconv.FormatInt(d.Open, 10), requeued, strconv.FormatInt(d.Closed, 10),
		})
	}
	m.section("Dead letters that arose", r.More["dead"],
		[]string{"source", "code", "endpoint / kind", "domain", "arose", "first", "last", "still open", "requeued", "closed"}, rows)
	if r.DeadBound {
		m.line("\nMore died than were looked at: the counts are those of the newest.")
	}
}

func (m *markdown) marks(r queue.Report) {
	var rows [][]string
	for _, k := range r.Marks {
		rows = append(rows, []string{at(&k.At), code(k.Label), code(k.By)})
	}
	m.section("Marks", r.More["marks"], []string{"at", "label", "by"}, rows)
}

// bars are the characters of a curve: no sample, zero, and eight heights.
var bars = []rune("·_▁▂▃▄▅▆▇█")

func curve(c queue.Curve) string {
	var b strings.Builder
	for _, p := range c.Points {
		switch {
		case p == nil:
			b.WriteRune(bars[0])
		case *p <= 0:
			b.WriteRune(bars[1])
		default:
			b.WriteRune(bars[2+min(int(*p/c.Max*7.999), 7)])
		}
	}
	return b.String()
}

// amount formats a value in the unit of its metric.
func amount(c queue.Curve, v float64) string {
	if strings.HasSuffix(c.Metric, "_seconds") {
		return views.Age(int64(v))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func (m *markdown) curves(r queue.Report) {
	var rows [][]string
	for _, c := range r.Curves {
		name := strings.ReplaceAll(strings.TrimSuffix(c.Metric, "_seconds"), "_", " ")
		if !c.Name.Empty() {
			name += " " + code(c.Name)
		}
		rows = append(rows, []string{name, "`" + curve(c) + "`", amount(c, c.Min), amount(c, c.Max), amount(c, c.Last)})
	}
	m.section("Curves", r.More["curves"], []string{"metric", "from " + at(&r.Since) + " on", "min", "max", "last"}, rows)
	if len(rows) > 0 {
		m.line("\nEach sign is the highest of %s; %c is zero, %c is not sampled.", views.PlainAge(r.CurveStep), bars[1], bars[0])
	} else {
		m.line("\nThe tick worker metrics_sampler took no samples in this span.")
	}
}

func (m *markdown) actions(r queue.Report) {
	var rows [][]string
	for _, e := range r.Actions {
		target := code(e.Target)
		if !e.Filter.Empty() {
			target += " " + code(e.Filter)
		}
		if e.Folded() {
			target += " (" + queue.Plural(*e.Batches, "batch", "batches") + ")"
		}
		rows = append(rows, []string{at(&e.At), code(e.Actor), code(e.DBRole), code(e.Action), target, number(e.FrozenCount), number(e.Changed), code(e.Reason), code(e.Outcome)})
	}
	m.section("Operator actions", r.More["actions"], []string{"at", "actor", "role", "action", "target", "selected", "changed", "reason", "outcome"}, rows)
}
