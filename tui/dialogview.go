package tui

import (
	"fmt"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func (d *dialog) lines(at overlayContext) []string { return d.view(at).Lines(at.env, at.size) }

// view returns the dialog at its current stage as package views draws it.
func (d *dialog) view(at overlayContext) views.Dialog {
	e := at.env
	v := views.Dialog{
		Title: d.title(), Alarm: d.place.name != "", Buttons: d.buttons(), Focus: d.focus, Offset: d.offset,
		Quiet: d.gate.closed(at.now) && d.stage != stageForm,
	}
	for _, f := range d.fields() {
		v.Fields = append(v.Fields, f.shown())
	}
	switch d.stage {
	case stageForm:
		v.Intro = []string{strings.ToUpper(d.action.Help[:1]) + d.action.Help[1:] + "."}
		v.Facts = append(slices.Clone(d.taken), d.facts...)
		v.Hint = "enter continues to a preview, which changes nothing; esc closes"
	case stagePlanning:
		v.Facts = d.taken
		v.Progress = "reading what would change" + e.Theme.G.Ellipsis + "  esc closes"
	case stagePreview:
		d.viewPreview(&v)
	case stageApplying:
		v.Facts = d.plan.Lines
		v.Progress = "action in progress" + e.Theme.G.Ellipsis
	case stageDone:
		d.viewDone(&v)
	}
	if v.Quiet {
		v.Hint = "one moment: keys typed while this dialog opened are ignored"
	}
	return v
}

func (d *dialog) title() string {
	return d.action.Heading() + queue.Choose(d.place.name != "", " in "+strings.ToUpper(d.place.name), "")
}

// matchCount returns the number of rows that match, such as "at least 10,000".
func matchCount(m *queue.Match) string {
	return queue.Choose(m.AtLeast, "at least ", "") + views.Count(m.Count)
}

func firstFew(ids []string) string {
	return strings.Join(ids[:min(len(ids), 5)], ", ") + queue.Choose(len(ids) > 5, ", …", "")
}

func (d *dialog) viewPreview(v *views.Dialog) {
	p := d.plan
	v.Facts = slices.Clone(p.Lines)
	// The plan names the targets. The number of rows that the operator may mean
	// but that are not targets is known only to the console.
	for _, l := range d.taken {
		if l.Label == notTaken {
			v.Facts = slices.Insert(v.Facts, min(1, len(v.Facts)), l)
		}
	}
	if m := p.Match; m != nil {
		v.Facts = append(v.Facts, queue.PlanLine{Label: "all that match", Value: queue.Clean(matchCount(m) + ": " + m.What.String() + "; filter " + d.req.Within)})
	}
	if d.req.Reason != "" {
		v.Facts = append(v.Facts, queue.PlanLine{Label: "reason", Value: queue.Clean(d.req.Reason)})
	}
	undo := d.undoLines()
	if len(d.req.Or) > 0 { // the command with many filters is long, and must not hide how to undo
		v.Facts, undo = append(v.Facts, undo...), nil
	}
	if p.Command != "" {
		v.Facts = append(v.Facts, queue.PlanLine{Label: views.SameAs, Value: queue.CleanLong(p.Command)})
	}
	v.Facts = append(v.Facts, undo...)
	v.Notes = skippedWords(p.Results, p.Skipped)
	switch {
	case p.Refused != "":
		v.Error = p.Refused
	case p.Count == 0:
		v.Error = "nothing would change"
	}
	if len(v.Buttons) > 1 {
		v.Hint = "tab moves to the other " + queue.Choose(len(v.Buttons) > 2, "buttons", "button") + ", enter presses it; esc changes nothing"
	}
}

func (d *dialog) viewDone(v *views.Dialog) {
	r := d.result
	v.Intro = d.outcome()
	if d.failed() && len(d.before) > 0 {
		v.Intro = append(v.Intro, "Before that: "+strings.Join(d.before, " "))
	}
	switch {
	case d.err != nil:
		v.Error = why(d.err)
		if r.Done > 0 {
			d.viewResults(v)
		}
		return
	case r.Refused != "":
		v.Error = r.Refused
		return
	}
	if r.AuditID != 0 {
		v.Facts = append(v.Facts, queue.PlanLine{Label: "audit", Value: queue.Clean(fmt.Sprintf("#%d, in Audit (ga)", r.AuditID))})
	}
	if d.action.Danger == queue.DangerLocal {
		v.Facts = append(v.Facts, queue.PlanLine{Label: "audit", Value: queue.Clean(d.mark)})
		return
	}
	d.viewResults(v)
	if d.action.ID == queue.ActBulkPlan {
		v.Notes = append(v.Notes, "It is planned, "+queue.NotYet(d.plan.Request)+": 6, then S on its row, starts it.")
	}
}

// outcome says what the last attempt changed.
func (d *dialog) outcome() []string {
	switch r := d.result; {
	case !d.failed():
		return []string{doneWords(d.action, r)}
	case d.unsure() && r.Done > 0: // of several targets, before the error
		return []string{doneWords(d.action, r), "Unknown whether the rest took effect: Audit (ga) shows what was done. Repeating it is safe: no effect happens twice."}
	case d.unsure():
		return []string{"Unknown whether the action took effect: Audit (ga) shows what was done. Repeating it is safe: no effect happens twice."}
	case len(d.before) > 0:
		return []string{"Nothing was changed by this attempt."}
	}
	return []string{"Nothing was changed."}
}

// unsure reports whether it is unknown what the last attempt changed: an error
// ended it, and neither did the database refuse its first call nor a loop of
// this process not obey.
func (d *dialog) unsure() bool {
	return d.err != nil && !d.result.Intact && (d.result.Done > 0 || queue.KindOf(d.err) != queue.KindPermission && !d.plan.Ephemeral)
}

// viewResults lists what happened to each target.
func (d *dialog) viewResults(v *views.Dialog) {
	for i, o := range d.result.Results {
		if i == 20 {
			v.Notes = append(v.Notes, fmt.Sprintf("and %s more", views.Count(int64(len(d.result.Results)-i))))
			break
		}
		v.Facts = append(v.Facts, queue.PlanLine{Label: views.Plain(o.ID), Value: queue.Clean(outcomeWords(o))})
	}
}

func doneWords(a queue.Action, r queue.Result) string {
	s := "Done: " + strings.ToLower(a.Verb) + ", " + views.Count(r.Done) + " " + queue.Choose(r.Done == 1, "row", "rows")
	if a.Danger == queue.DangerLocal {
		s = "Done: " + strings.ToLower(a.Verb)
		for _, o := range r.Results {
			s += " " + views.Plain(o.ID)
		}
	}
	if a.ID == queue.ActBulkPlan {
		s = "Planned: " + queue.Plural(r.Done, "dead letter", "dead letters") + " selected, nothing changed yet"
	}
	if r.Skipped > 0 {
		s += "; " + views.Count(r.Skipped) + " skipped"
	}
	return s + "."
}

func outcomeWords(o queue.Outcome) string {
	s := strings.ReplaceAll(o.Outcome, "_", " ")
	if o.NewID != "" {
		s += " → " + o.NewID
	}
	if w := o.Why.String(); w != "" {
		s += ": " + w
	}
	return s
}

// reasonsShown is how many reasons skippedWords lists.
const reasonsShown = 10

// skippedWords lists the rows that would be skipped, grouped by reason; of many reasons the first
// ones, and how many more there are.
func skippedWords(results []queue.Outcome, skipped int64) []string {
	if skipped == 0 {
		return nil
	}
	count, order := map[string]int64{}, []string{}
	first := map[string]string{}
	for _, o := range results {
		if o.Outcome != "skipped" && o.Outcome != "refused" {
			continue
		}
		w := o.Why.String()
		if count[w] == 0 {
			order = append(order, w)
			first[w] = o.ID
		}
		count[w]++
	}
	out := []string{views.Count(skipped) + queue.Choose(skipped == 1, " row", " rows") + " will be skipped:"}
	for i, w := range order {
		if i == reasonsShown && len(order) > reasonsShown+1 {
			return append(out, "  … and "+views.Count(int64(len(order)-i))+" more reasons")
		}
		out = append(out, fmt.Sprintf("  %s × %s (such as %s)", views.Count(count[w]), w, first[w]))
	}
	return out
}

// undoLines returns the command that reverses the action, complete, and what else there is to know
// about that.
func (d *dialog) undoLines() (out []queue.PlanLine) {
	label := "undo"
	if d.plan.Undo != "" {
		out, label = append(out, queue.PlanLine{Label: label, Value: queue.CleanLong(d.plan.Undo)}), ""
	}
	words := d.actions.UndoWords(d.req, d.plan.Undo)
	if d.plan.Final != "" {
		words = "none: " + d.plan.Final
	}
	if words != "" {
		out = append(out, queue.PlanLine{Label: label, Value: queue.Clean(words)})
	}
	return out
}
