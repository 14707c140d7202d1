package views

import (
	"cmp"
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Notifications returns the tables of pane gn: failures, then staged groups in the form in which
// they will be sent, and below them the runs of the notification worker.
func Notifications(n *queue.Notifications) Source {
	x := orZero(n)
	var staged []stagedLine
	for _, f := range x.Failures {
		l := stagedLine{id: failureID(f), failed: true, name: f.Failure.String(), Pieces: f.N, Since: f.FirstAt, as: "FAILED", list: "notification-failures", export: f.Each()}
		if len(f.Rows) > 0 {
			l.First, l.Actor = f.Rows[0].Address, f.Rows[0].Actor
		}
		staged = append(staged, l)
	}
	for _, g := range x.Groups {
		kind, events := g.Told(x.Threshold)
		staged = append(staged, stagedLine{
			id: groupID(g), name: groupName(g), Pieces: g.Pieces, Due: g.Due, sentIn: dueText(g, x), Since: g.OldestAt, as: kind, First: g.FirstUnit, Actor: g.Actor,
			Whole: plainGroup(g), events: events, list: "notifications", export: []any{g},
		})
	}
	return Source{
		Fields: queue.NotificationFields(),
		Sorts:  []Sort{{Name: "failed, then the oldest first", Column: "oldest", Desc: true}},
		Empty: []string{
			"No notification is staged, and the notification worker has not run yet.",
			"A producer stages a piece with fn_iu_save.",
			"Comments, drafts and later versions are sent at once, without staging.",
		},
	}.with(stagedList(staged, x), List[queue.NotificationRun]{
		Name: "notification-log", Rows: x.Log, ID: runID,
		First: "run_at pending_pre groups_emitted pieces_emitted conflicts_skipped rows_marked pending_post error_count duration_ms error_text",
		Look:  byRank(func(r queue.NotificationRun) int { return rankOf(r.Errors > 0) }),
		Columns: []Column[queue.NotificationRun]{
			{Name: "run_at", Title: "WORKER LOG", Head: "RUN", Width: 22, Want: 30, Max: 60, Say: stamped},
			{Name: "pending_pre", Title: "claimed", Width: 7, Max: 9, Right: true},
			{Name: "groups_emitted", Title: "docs", Head: "DOCUMENTS", Width: 7, Max: 9, Right: true},
			{Name: "pieces_emitted", Title: "pieces", Width: 7, Max: 9, Right: true, Drop: 1},
			{Name: "pending_post", Title: "left", Width: 6, Max: 9, Right: true},
			{Name: "error_count", Title: "errors", Width: 6, Max: 9, Right: true, Look: ofRow},
			{Name: "conflicts_skipped", Title: "duplicates", Width: 11, Right: true, Drop: 3, Look: dim},
			{Name: "duration_ms", Title: "took", Width: 8, Right: true, Drop: 1, Look: dim},
			{Name: "error_text", Title: "error", Width: 16, Want: 30, Max: 80, Drop: 1, Look: ofRow},
			{Name: "rows_marked", Head: "MARKED"},
		},
	}.lines())
}

// stagedLine is one row of the first table of pane gn: staged rows that
// failed, or a group that will be sent as one event.
type stagedLine struct {
	Whole  string     `json:"staged"` // the name of the group, with the kind of its key
	Pieces int64      `json:"pieces"`
	Due    int64      `json:"due"`
	Since  time.Time  `json:"oldest"`
	First  queue.Text `json:"first_piece"`
	Actor  queue.Text `json:"actor"`

	id, name, as, list string
	sentIn             func(Env) string // the time until it is sent; nil = it is never sent
	failed             bool
	events             int64
	export             []any
}

// cell returns the text in the given style, or in the style of failures for a failed row.
func (l stagedLine) cell(text string, e Env, look theme.Style) table.Cell {
	return cell(text, queue.Choose(l.failed, e.Theme.Critical, look))
}

func stagedList(rows []stagedLine, n queue.Notifications) lines {
	tone := func(l stagedLine, e Env) theme.Style {
		switch {
		case l.Due == 0:
			return e.Theme.Dim
		case n.Stale: // groups are due, but the tick worker that sends them does not run
			return e.Theme.Warning
		}
		return e.Theme.Text
	}
	return List[stagedLine]{
		Name: "notifications", Rows: rows, ID: func(l stagedLine) string { return l.id }, Title: func(l stagedLine) string { return cmp.Or(l.Whole, l.name) }, First: "staged pieces due oldest notified_as first_piece actor",
		Look: func(l stagedLine, e Env) (table.Cell, theme.Style) {
			switch {
			case l.failed:
				return e.sign(rankCritical), e.Theme.Critical
			case l.Due > 0 && n.Stale:
				return e.sign(rankWarning), e.Theme.Text
			}
			return e.sign(rankQuiet), e.Theme.Text
		},
		Export: func(l stagedLine) (string, []any) { return l.list, l.export },
		Columns: []Column[stagedLine]{
			{Name: "staged", Width: 22, Want: 30, Max: 60,
				Cell: func(l stagedLine, e Env) table.Cell { return l.cell(l.name, e, e.Theme.Strong) }},
			{Name: "pieces", Width: 6, Max: 9, Right: true, Look: ofRow},
			{Name: "due", Width: 5, Max: 9, Right: true, Cell: func(l stagedLine, e Env) table.Cell {
				return queue.Choose(l.failed, cell(e.Theme.G.Dash, e.Theme.Dim), cell(Count(l.Due), e.Theme.Text))
			}},
			{Name: "oldest", Width: 7, Right: true,
				Cell: func(l stagedLine, e Env) table.Cell { return l.cell(e.Ago(l.Since), e, tone(l, e)) }},
			{Name: "notified_in", Title: "notified", Width: 8, Right: true, Cell: func(l stagedLine, e Env) table.Cell {
				if l.failed {
					return cell(e.Theme.G.Dash, e.Theme.Dim)
				}
				return cell(l.sentIn(e), tone(l, e))
			}},
			{Name: "notified_as", Title: "as", Head: "NOTIFIED AS", Width: 18, Max: 26, Drop: 1, Look: ofRow,
				Text:  func(l stagedLine, _ Env) string { return l.as },
				Plain: func(l stagedLine) string { return plain("", l.events) + " " + l.as }},
			{Name: "first_piece", Width: 16, Want: 30, Max: 60, Drop: 1, Look: dim},
			{Name: "actor", Width: 10, Max: 24, Drop: 2, Look: dim},
		},
	}.lines()
}

func runID(r queue.NotificationRun) string { return "run\x00" + r.ID }

func failureID(f queue.StagedFailure) string { return "failed\x00" + f.Failure.String() }

func groupID(g queue.StagedGroup) string {
	if !g.Keyed {
		return "single"
	}
	return "key\x00" + g.Key.String()
}

func groupName(g queue.StagedGroup) string {
	switch {
	case !g.Keyed:
		return "(no document or batch)"
	case !g.Document:
		return "batch " + g.Key.String()
	}
	return g.Key.String()
}

// dueText returns "now", or the seconds until the oldest piece of a group is due (at most five
// minutes).
func dueText(g queue.StagedGroup, n queue.Notifications) func(Env) string {
	return func(e Env) string {
		if g.Due > 0 {
			return "now"
		}
		d := g.OldestAt.Add(time.Duration(n.DebounceSeconds) * time.Second).Sub(e.Now)
		return "in " + strconv.FormatInt(max(int64(d.Seconds()), 0), 10) + "s"
	}
}

// NotificationHead returns the two lines above the table: how much is staged and due, and the state
// of the notification worker. Without data it returns no lines.
func NotificationHead(n *queue.Notifications, e Env, w int) []string {
	if n == nil {
		return nil
	}
	th := e.Theme
	more := e.counted(n.Debouncing, n.DebouncingBound) + " in the debounce of " + strconv.FormatInt(n.DebounceSeconds, 10) + "s"
	first := e.dotted(Count(n.Waiting)+" staged", Count(n.Due())+" due", more, "document: "+Count(n.Threshold)+"+ pieces")

	ran, style := "the notification worker has never run", th.Warning
	if n.LastRunAt != nil {
		ran, style = "the notification worker ran "+e.Ago(*n.LastRunAt)+" ago", th.Dim
	}
	every, off, stale, failed := "every "+Age(n.IntervalSeconds), "", "", ""
	if n.IntervalSeconds == 0 {
		every, off, style = "", "switched OFF", th.Warning
	}
	if n.Stale {
		stale, style = "STALE", th.Warning
	}
	if n.Failed > 0 {
		failed = th.Critical.Paint(th.G.Critical+" "+Count(n.Failed)+" failed") + style.Paint(" "+th.G.Dot+" ")
	}
	return []string{th.Cut(" "+th.Text.Paint(first), w), th.Cut(" "+failed+style.Paint(e.dotted(stale, off, ran, every, "T runs it now")), w)}
}

// NotificationPage returns the page of a row of pane gn.
func NotificationPage(n *queue.Notifications, id string, e Env, w int) (Page, bool) {
	x := orZero(n)
	if f, ok := queue.Find(x.Failures, func(f queue.StagedFailure) bool { return failureID(f) == id }); ok {
		return failurePage(f, e, w), true
	}
	if g, ok := queue.Find(x.Groups, func(g queue.StagedGroup) bool { return groupID(g) == id }); ok {
		return groupPage(g, x, e, w), true
	}
	r, ok := queue.Find(x.Log, func(r queue.NotificationRun) bool { return runID(r) == id })
	return runPage(r, e, w), ok
}

func failurePage(f queue.StagedFailure, e Env, w int) Page {
	p := newPage(e, w)
	p.head(Plural(f.N, "staged notification", "staged notifications") + " could not be sent")
	p.paint("why", f.Failure.String(), e.Theme.Critical)
	p.pair("since", e.Stamp(f.FirstAt)+", the last "+e.Ago(f.LastAt)+" ago")
	p.pair("what to do", "Every run skips them. Correct the staged notifications, then press R to make all rows "+
		"listed here wait again; a row that is still wrong fails again.")
	for i, r := range f.Rows {
		if e.Brief && i == 5 {
			break
		}
		p.head(r.Address.String())
		p.pair("id", r.ID)
		p.pair("kind", r.Kind.String())
		p.pair("document", r.Key.String())
		p.pair("actor", r.Actor.String())
		p.pair("staged", e.Stamp(r.StagedAt))
		p.pair("failed", e.Stamp(r.FailedAt))
	}
	if left := f.N - int64(len(f.Rows)); left > 0 {
		p.para(Plural(left, "more row is", "more rows are")+" not listed; qtop notifications requeue --all includes them.", e.Theme.Dim)
	}
	return p.done("failed")
}

func groupPage(g queue.StagedGroup, n queue.Notifications, e Env, w int) Page {
	p := newPage(e, w)
	p.head(groupName(g))
	kind, events := g.Told(n.Threshold)
	p.pair("waiting", Plural(g.Pieces, "piece", "pieces")+", "+Count(g.Due)+" of them due")
	p.pair("sent as", Count(events)+" "+kind)
	p.pair("when", queue.Choose(g.Due > 0, "", "due "+dueText(g, n)(e)+", then ")+"at the next run of iu_notification_worker")
	p.pair("staged", e.Stamp(g.OldestAt)+" to "+e.Stamp(g.NewestAt))
	p.pair("first piece", g.FirstUnit.String()+" by "+g.Actor.String())
	if g.Keyed {
		p.para("Pieces that become due later are sent by a later run, in another notification.", e.Theme.Dim)
	}
	return p.done(groupName(g))
}

func runPage(r queue.NotificationRun, e Env, w int) Page {
	p := newPage(e, w)
	p.head("Run of " + e.Stamp(r.At))
	p.pair("claimed", Plural(r.Taken, "row", "rows")+" in "+Millis(r.TookMS))
	p.pair("sent", Plural(r.Groups, "document_imported", "document_imported")+", "+Count(r.Pieces)+" new_piece_created")
	p.pair("duplicates", Plural(r.Conflicts, "notification was", "notifications were")+" sent before")
	p.pair("marked", Plural(r.Marked, "row", "rows")+" as processed")
	p.pair("left", Plural(r.Left, "row", "rows")+" not processed, "+Count(r.Failed)+" of them failed")
	if r.Errors > 0 {
		p.paint("errors", Count(r.Errors), e.Theme.Warning)
		p.verbatim(r.Error.String())
	}
	return p.done("run")
}

// FailedIDs returns the ids of the staged rows that a failure's row in pane gn represents.
func FailedIDs(n *queue.Notifications, id string) []string {
	var ids []string
	f, _ := queue.Find(orZero(n).Failures, func(f queue.StagedFailure) bool { return failureID(f) == id })
	for _, r := range f.Rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// FailedLeft returns how many rows of a failure FailedIDs leaves out, because they were not read.
func FailedLeft(n *queue.Notifications, id string) int64 {
	f, _ := queue.Find(orZero(n).Failures, func(f queue.StagedFailure) bool { return failureID(f) == id })
	return max(f.N-int64(len(f.Rows)), 0)
}

// plainGroup returns the name of a group with the kind of its key.
func plainGroup(g queue.StagedGroup) string {
	return queue.Choose(g.Keyed && g.Document, "document ", "") + groupName(g)
}
