package views

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// progressWidth is the width of the progress bar in the table, in cells.
const progressWidth = 10

// Operations returns the table of pane 6: bulk operations over frozen selections.
func Operations(rows []queue.Operation) Source {
	return Source{
		Fields: queue.OperationFields(),
		Sorts:  []Sort{{Name: "newest first", Column: "operation_id", Desc: true}},
		Empty: []string{
			"No bulk operation has been planned.",
			"N in Dead letters (5) plans one on a group, a filter or the selected dead letters; S here starts it.",
		},
	}.with(List[queue.Operation]{
		Name: "ops", Rows: rows, ID: func(o queue.Operation) string { return strconv.FormatInt(o.ID, 10) }, Title: func(o queue.Operation) string { return o.Title(Count(o.Frozen)) }, First: "operation_id kind state ended rate_per_second left created_by created_at filter",
		Look: func(o queue.Operation, e Env) (table.Cell, theme.Style) {
			return e.atWork(operationRank(o), o.State == queue.BulkRunning)
		},
		Columns: []Column[queue.Operation]{
			{Name: "operation_id", Title: "#", Head: "ID", Width: 4, Max: 8, Right: true, Look: strong, Say: digits},
			{Name: "state", Width: 9, Look: ofRow},
			{Name: "ended", Width: progressWidth + 6, Look: accent, Text: func(o queue.Operation, e Env) string { return progress(o, e, progressWidth) }, Plain: PlainProgress},
			{Name: "frozen_count", Title: "of", Head: "FROZEN", Width: 7, Max: 10, Right: true},
			{Name: "rate_per_second", Title: "rate", Width: 7, Max: 9, Right: true, Text: func(o queue.Operation, _ Env) string { return rateText(o.Rate) }, Plain: func(o queue.Operation) string { return rateText(o.Rate) }},
			{Name: "left", Width: 7, Right: true, Drop: 1, Text: func(o queue.Operation, e Env) string {
				d, ok := o.EndsIn()
				return queue.Choose(ok, Span(d), e.Theme.G.Dash)
			}, Plain: func(o queue.Operation) string {
				d, ok := o.EndsIn()
				return queue.Choose(ok, PlainAge(int64(d.Seconds())), "-")
			}},
			{Name: "sent", Width: 7, Max: 10, Right: true, Drop: 6, Look: dim},
			{Name: "done", Title: "settled", Head: "SETTLED", Width: 7, Max: 10, Right: true, Drop: 6, Look: dim},
			{Name: "skipped", Width: 7, Right: true, Drop: 4, Look: dim},
			{Name: "first_tries", Title: "first attempts", Head: "FIRST ATTEMPTS", Width: 14, Max: 20, Drop: 3, Look: dim, Text: func(o queue.Operation, _ Env) string { return firstAttempts(o) }, Plain: firstAttempts},
			{Name: "created_by", Title: "by", Width: 8, Max: 16, Drop: 2, Look: accent},
			{Name: "kind", Title: "what", Head: "KIND", Width: 7, Max: 9, Drop: 5, Look: dim, Say: func(_ Env, v any) string { return operationWord(fmt.Sprint(v)) }},
			{Name: "filter", Title: "selection, or why waiting", Head: "SELECTION", Width: 24, Want: 60, Max: 90, Cell: func(o queue.Operation, e Env) table.Cell {
				if o.StateWhy.Empty() && !o.Waits.Empty() {
					return cell(o.Waits.String(), e.Theme.Warning)
				}
				if o.EndedBadly() {
					return cell(e.dotted(fmt.Sprintf("%s ok / %s failed first attempts of %s requeued", Count(o.FirstOK), Count(o.FirstFailed), Count(o.Requeued)), o.Selected()), e.tone(operationRank(o)))
				}
				return queue.Choose(o.StateWhy.Empty(), cell(o.Selected(), e.Theme.Text), cell(o.StateWhy.String(), e.tone(operationRank(o))))
			}},
			{Name: "created_at", Head: "PLANNED"},
			{Name: "state_why", Head: "REASON OF STATE"},
			{Name: "waits", Head: "WAITS FOR"},
		},
	}.lines())
}

// PlainProgress returns how many items of an operation have ended.
func PlainProgress(o queue.Operation) string {
	return fmt.Sprintf("%d of %d (%d %%)", o.Ended(), o.Frozen, o.Ended()*100/max(o.Frozen, 1))
}

func operationWord(kind string) string {
	return queue.Shown(queue.OperationWords(), kind)
}

// operationRank returns how urgent an operation is: high if its brake or
// canary paused it, or if first attempts failed.
func operationRank(o queue.Operation) int {
	if o.State == queue.BulkPaused && !o.StateWhy.Empty() {
		return rankCritical
	}
	if o.EndedBadly() {
		return queue.Choose(o.FirstOK == 0, rankCritical, rankWarning)
	}
	return rankOf(o.State == queue.BulkPaused || o.State == queue.BulkPlanned)
}

func rateText(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) + "/s" }

func firstAttempts(o queue.Operation) string {
	return queue.Choose(o.FirstOK+o.FirstFailed == 0, "", fmt.Sprintf("%s ok %s bad", Count(o.FirstOK), Count(o.FirstFailed)))
}

// progress returns a bar of w cells and a percentage, which is 100 only if
// every item has ended.
func progress(o queue.Operation, e Env, w int) string {
	share := int(min(o.Ended()*100/max(o.Frozen, 1), 100))
	n := share * w / 100
	return strings.Repeat(e.Theme.G.Spark[len(e.Theme.G.Spark)-1], n) + strings.Repeat(e.Theme.G.Rule, w-n) + fmt.Sprintf(" %3d %%", share)
}

// OperationPage returns the page of one operation with its items, the latest first. A brief
// page (Env.Brief) leaves out the items. items is nil until they have been read.
func OperationPage(o queue.Operation, items []queue.OperationItem, e Env, w int) Page {
	title := "operation " + strconv.FormatInt(o.ID, 10)
	th := e.Theme
	p := newPage(e, w)
	p.head(title + ": " + operationWord(o.Kind) + " " + Plural(o.Frozen, "dead letter", "dead letters"))
	p.paint("state", o.State+" by "+o.StateBy.String()+" "+e.Ago(o.StateAt)+" ago", e.tone(operationRank(o)))
	p.paint("why", o.StateWhy.String(), e.tone(operationRank(o)))
	p.pair("progress", progress(o, e, min(40, max(w/3, 10))))
	p.paint("waits", o.Waits.String(), th.Warning)
	p.pair("items", fmt.Sprintf("%s %s, %s skipped, %s failed, %s undone, %s left", Count(o.Requeued), o.Word("done"), Count(o.Skipped), Count(o.Failed), Count(o.Undone), Count(o.Left())))
	if o.Kind != queue.BulkResolve {
		p.pair("sent", fmt.Sprintf("%s of %s requeued, %s settled", Count(o.Sent), Count(o.Requeued), Count(o.Done)))
		p.paint("first attempts", fmt.Sprintf("%s ok / %s failed, %s not settled", Count(o.FirstOK), Count(o.FirstFailed), Count(o.Unknown())),
			queue.Choose(o.EndedBadly(), e.tone(operationRank(o)), th.Text))
	}
	if d, ok := o.EndsIn(); ok {
		p.pair("ends in", Span(d)+" at "+rateText(o.Rate))
	} else {
		p.pair("rate", rateText(o.Rate))
	}
	p.pair("canary", operationCanary(o))
	p.pair("brake", queue.BrakeWords(o.Brake))
	p.pair("selection", o.Selected()+" (as stated when planned; the items are fixed)")
	p.pair("reason", o.Reason.String())
	p.pair("planned", e.Stamp(o.CreatedAt)+" by "+o.CreatedBy.String())
	if e.Brief {
		return p.done(title)
	}
	p.head("Items, latest first")
	p.list(items != nil, len(items), "no item was "+o.Word("done")+" yet")
	for _, i := range items {
		sign, look := th.G.Good, th.Dim
		if i.Outcome == "failed" || i.FirstResult == "failed" {
			sign, look = th.G.Critical, th.Critical
		} else if o.Unsettled(i) {
			sign, look = th.G.Waiting, th.Dim
		} else if i.Outcome != "done" {
			sign, look = th.G.Warning, th.Warning
		}
		text := fmt.Sprintf("%s  %s", i.Target, o.Word(i.Outcome))
		if o.Unsettled(i) {
			text += ", first attempt not settled"
		}
		if i.FirstResult != "" {
			text += ", first attempt " + strings.TrimSpace(i.FirstResult+" "+i.FirstCode.String())
		}
		if !i.Why.Empty() {
			text += ": " + i.Why.String()
		}
		if !i.NewID.Empty() {
			text += " " + th.G.Right + " " + i.NewID.String()
		}
		front := "   " + look.Paint(sign) + " " + th.Dim.Paint(th.Left(strconv.FormatInt(i.No, 10), 8))
		for _, line := range hung(front, wrap(queue.Clean(text).String(), w-14), th.Text) {
			p.add(line)
		}
	}
	if all := o.Filters(); o.Selected() != o.Filter.String() {
		p.head("Selection: dead letters that match one of " + Count(int64(len(all))) + " filters")
		for _, f := range all {
			p.para(f, th.Text)
		}
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
