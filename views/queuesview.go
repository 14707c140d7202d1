package views

// The layout of pane 8: its tables; then the page of the row under the cursor or, without room, two
// lines about that row; and last the state of the job table.

import "github.com/qtop/qtop/pgclient/queue"

// PageRoom is how many free lines below a table the page of the row under the cursor needs.
const PageRoom = 16

// pageFrom is the height of the pane, in lines, from which on even a long
// table leaves PageRoom lines to the page of the row under the cursor.
const pageFrom = 40

// TableLines divides a body of h lines between a table that needs this many lines and the page of
// the row under the cursor. Without room for both, the table gets all lines.
func TableLines(need, h int) (lines int, page bool) {
	if need+PageRoom > h && h < pageFrom {
		return h, false
	}
	return min(need, h-PageRoom), true
}

// rowLines is the height of the text that replaces the page if there is no room for it.
const rowLines = 2

// QueuesTable returns how many lines the tables get, and whether the page fits below them.
func QueuesTable(s *queue.Snapshot, g Grid, e Env, size Size) (lines int, page bool) {
	foot := len(JobTable(s, e, size.W)) + 1
	if len(g.Order) == 0 {
		return max(size.H-foot, 0), false
	}
	need := g.Need()
	if lines, page = TableLines(need, size.H-foot); page {
		return lines, true
	}
	return max(min(need, size.H-foot-rowLines), min(4, size.H)), false
}

// Queues draws pane 8.
func Queues(s *queue.Snapshot, g Grid, e Env, size Size) []string {
	lines, page := QueuesTable(s, g, e, size)
	out := g.Lines(e, Size{size.W, lines})
	foot := JobTable(s, e, size.W)
	id := ""
	if g.Cursor >= 0 && g.Cursor < len(g.Order) {
		id = g.Source.ID(g.Order[g.Cursor])
	}
	switch {
	case page:
		brief := e
		brief.Brief = true
		if p, ok := QueuesPage(s, id, brief, size.W); ok {
			out = append(out, Beneath(p, e, Size{size.W, size.H - lines - len(foot) - 1})...)
		}
	case len(g.Order) > 0:
		foot = append(rowInTwo(s, id, e, size.W), foot...)
	}
	for len(out) < size.H-len(foot) {
		out = append(out, "")
	}
	return append(out, foot[:min(len(foot), max(size.H-len(out), 0))]...)
}

// rowInTwo shows the row under the cursor in exactly two lines, so that the rows above do not
// move with the cursor.
func rowInTwo(s *queue.Snapshot, id string, e Env, w int) []string {
	var words []string
	if l, ok := LaneAt(s, id); ok {
		words = laneWords(l, e)
	} else if l, ok := LeaseAt(s, id); ok {
		words = []string{leaseWords(l, e), Plural(l.Live, "job", "jobs"), "claimed " + e.Ago(l.ClaimedAt) + " ago", "lease " + l.ID}
	}
	out := make([]string, 0, rowLines)
	for i, part := range e.dottedLines(w-6, words...) {
		if i == rowLines {
			out[i-1] += e.Theme.G.Ellipsis
			break
		}
		front := "   "
		if i == 0 && words != nil {
			front = " " + e.Theme.G.Tee + " "
		}
		out = append(out, e.Theme.Cut(e.Theme.Dim.Paint(front)+e.Theme.Text.Paint(part), w))
	}
	for len(out) < rowLines {
		out = append(out, "")
	}
	return out
}

// QueuesPage returns the page of the row of pane 8 with this id; false if there is no such row.
func QueuesPage(s *queue.Snapshot, id string, e Env, w int) (Page, bool) {
	if l, ok := LaneAt(s, id); ok {
		return LanePage(l, s, e, w), true
	}
	if l, ok := LeaseAt(s, id); ok {
		return LeasePage(l, e, w), true
	}
	return Page{}, false
}

// LaneAt returns the queue lane with this row id.
func LaneAt(s *queue.Snapshot, id string) (queue.Lane, bool) {
	return queue.Find(s.OrEmpty().Queues, func(l queue.Lane) bool { return LaneID(l.Domain.String(), l.Kind.String()) == id })
}

// LeaseAt returns the lease with this row id.
func LeaseAt(s *queue.Snapshot, id string) (queue.JobLease, bool) {
	return queue.Find(s.OrEmpty().JobLeases, func(l queue.JobLease) bool { return l.ID == id })
}
