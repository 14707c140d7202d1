package views

// This file is pane 6: bulk operations over frozen selections, and one of them
// with what became of its items.

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// progressWidth is the cells of the bar in the table.
const progressWidth = 10

// Operations is the table of pane 6.
func Operations(rows []queue.Operation) Source {
	return Source{
		Columns: []table.Column{
			{Title: "#", Width: 4, Max: 8, Right: true},
			{Title: "state", Width: 9},
			{Title: "tried", Width: progressWidth + 5},
			{Title: "of", Width: 7, Max: 10, Right: true},
			{Title: "rate", Width: 7, Max: 9, Right: true},
			{Title: "left", Width: 7, Right: true, Drop: 1},
			{Title: "skipped", Width: 7, Right: true, Drop: 4},
			{Title: "first tries", Width: 14, Max: 20, Drop: 3},
			{Title: "by", Width: 8, Max: 16, Drop: 2},
			{Title: "what", Width: 7, Max: 9, Drop: 5},
			{Title: "selection, or why it stands", Width: 24, Want: 60, Max: 90},
		},
		Len:    len(rows),
		Export: func(i int) (string, []any) { return "ops", []any{rows[i]} },
		ID:     func(i int) string { return strconv.FormatInt(rows[i].ID, 10) },
		Row:    func(i int, e Env) table.Row { return operationRow(rows[i], e) },
		Fields: queue.OperationFields(),
		Sorts:  []Sort{{Name: "newest first", Column: 0, Desc: true}},
		Empty: []string{
			"No bulk operation has been planned.",
			"In 5, N freezes a group, a filter or the marked letters; here S starts it.",
		},
	}
}

func operationWord(kind string) string {
	switch kind {
	case "requeue_webhook":
		return "requeue"
	case "replay_job", "replay_event":
		return "replay"
	}
	return kind
}

func operationRow(o queue.Operation, e Env) table.Row {
	th := e.Theme
	r := operationRank(o)
	left := th.G.Dash
	if d, ok := o.EndsIn(); ok {
		left = Span(d)
	}
	what, look := o.Filter.String(), th.Text
	if !o.StateWhy.Empty() {
		what, look = o.StateWhy.String(), e.tone(r)
	}
	sign := e.sign(r)
	if o.State == queue.BulkRunning {
		sign = cell(th.G.Live, th.Accent)
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(strconv.FormatInt(o.ID, 10), th.Strong), cell(o.State, e.tone(r)), cell(progress(o, e, progressWidth), th.Accent),
		cell(Count(o.Frozen), th.Text), cell(rateText(o.Rate), th.Text), cell(left, th.Text), cell(Count(o.Skipped), th.Dim),
		cell(firstTries(o), th.Dim), cell(o.CreatedBy.String(), th.Accent), cell(operationWord(o.Kind), th.Dim), cell(what, look),
	}}
}

// operationRank: what was stopped by the brake or a canary asks to be looked at.
func operationRank(o queue.Operation) int {
	if o.State == queue.BulkPaused && !o.StateWhy.Empty() {
		return rankCritical
	}
	if o.State == queue.BulkPaused || o.State == queue.BulkPlanned {
		return rankWarning
	}
	return rankQuiet
}

func rateText(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) + "/s" }

func firstTries(o queue.Operation) string {
	if o.FirstOK+o.FirstFailed == 0 {
		return ""
	}
	return fmt.Sprintf("%s ok %s bad", Count(o.FirstOK), Count(o.FirstFailed))
}

// progress is a bar of w cells and the share in percent; 100 is said of the last
// item alone.
func progress(o queue.Operation, e Env, w int) string {
	share := 0
	if o.Frozen > 0 {
		share = int(o.Tried() * 100 / o.Frozen)
	}
	n := share * w / 100
	return strings.Repeat(e.Theme.G.Spark[len(e.Theme.G.Spark)-1], n) + strings.Repeat(e.Theme.G.Rule, w-n) + fmt.Sprintf(" %3d%%", share)
}

// OperationPage is one operation with its items, those tried last first; a brief one
// is without them. items nil = not read yet.
func OperationPage(o queue.Operation, items []queue.OperationItem, e Env, w int) Page {
	title := "operation " + strconv.FormatInt(o.ID, 10)
	th := e.Theme
	p := newPage(e, w)
	p.head(title + ": " + operationWord(o.Kind) + " " + Count(o.Frozen) + " dead letters")
	p.paint("state", o.State+" by "+o.StateBy.String()+" "+e.Ago(o.StateAt)+" ago", e.tone(operationRank(o)))
	p.paint("why", o.StateWhy.String(), e.tone(operationRank(o)))
	p.pair("progress", progress(o, e, min(40, max(w/3, 10))))
	p.pair("items", fmt.Sprintf("%s done, %s skipped, %s failed, %s undone, %s not tried", Count(o.Done), Count(o.Skipped), Count(o.Failed), Count(o.Undone), Count(o.Left())))
	p.pair("first tries", fmt.Sprintf("%s succeeded, %s failed, %s not known yet", Count(o.FirstOK), Count(o.FirstFailed), Count(o.Unknown())))
	if d, ok := o.EndsIn(); ok {
		p.pair("ends in", Span(d)+" at "+rateText(o.Rate))
	} else {
		p.pair("rate", rateText(o.Rate))
	}
	p.pair("canary", operationCanary(o))
	if o.Brake > 0 {
		p.pair("brake", fmt.Sprintf("pauses when %d %% of the last 50 first tries failed", o.Brake))
	} else {
		p.pair("brake", "none")
	}
	p.pair("selection", "claimed: "+o.Filter.String())
	p.pair("reason", o.Reason.String())
	p.pair("planned", e.Stamp(o.CreatedAt)+" by "+o.CreatedBy.String())
	if e.Brief {
		return p.done(title)
	}
	p.head("Items, those tried last first")
	switch {
	case items == nil:
		p.para("reading", th.Dim)
	case len(items) == 0:
		p.para("none was tried yet", th.Dim)
	}
	for _, i := range items {
		sign, look := th.G.Good, th.Dim
		if i.Outcome == "failed" || i.FirstResult == "failed" {
			sign, look = th.G.Critical, th.Critical
		} else if i.Outcome != "done" {
			sign, look = th.G.Warning, th.Warning
		}
		text := fmt.Sprintf("%s  %s", i.Target, i.Outcome)
		if i.FirstResult != "" {
			text += ", first try " + strings.TrimSpace(i.FirstResult+" "+i.FirstCode.String())
		}
		if !i.Why.Empty() {
			text += ": " + i.Why.String()
		}
		if !i.NewID.Empty() {
			text += " " + th.G.Right + " " + i.NewID.String()
		}
		p.raw("   " + look.Paint(sign) + " " + th.Dim.Paint(th.Left(strconv.FormatInt(i.No, 10), 8)) + th.Text.Paint(th.Cut(queue.Clean(text).String(), max(w-14, 1))))
	}
	return p.done(title)
}

func operationCanary(o queue.Operation) string {
	switch {
	case o.Canary == 0:
		return "none"
	case o.CanaryPassed:
		return fmt.Sprintf("passed: %d went first and succeeded", o.Canary)
	}
	return fmt.Sprintf("the first %d must succeed before the rate begins", o.Canary)
}
