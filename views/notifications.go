package views

// This file is pane gn: what is staged and as what it will be told, what could
// not be told, and under it the worker's log.

import (
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
)

// Notifications is the table of pane gn. Failures come first, then the groups as
// they will be told, then what the worker did.
func Notifications(n *queue.Notifications) Source {
	var x queue.Notifications
	if n != nil {
		x = *n
	}
	f, staged := len(x.Failures), len(x.Failures)+len(x.Groups)
	return Source{
		Columns: []table.Column{
			{Title: "staged", Width: 22, Want: 30, Max: 60},
			{Title: "pieces", Width: 7, Max: 9, Right: true},
			{Title: "due", Width: 7, Max: 9, Right: true},
			{Title: "oldest", Width: 7, Right: true},
			{Title: "told", Width: 6, Right: true},
			{Title: "as", Width: 18, Max: 26},
			{Title: "first piece", Width: 16, Want: 30, Max: 60, Drop: 1},
			{Title: "actor", Width: 10, Max: 24, Drop: 2},
		},
		Len: staged + len(x.Log),
		Export: func(i int) (string, []any) {
			switch {
			case i < f:
				return "notification-failures", x.Failures[i].Each()
			case i < staged:
				return "notifications", []any{x.Groups[i-f]}
			}
			return "notification-log", []any{x.Log[i-staged]}
		},
		ID: func(i int) string {
			switch {
			case i < f:
				return failureID(x.Failures[i])
			case i < staged:
				return groupID(x.Groups[i-f])
			}
			return "run\x00" + x.Log[i-staged].ID
		},
		Row: func(i int, e Env) table.Row {
			switch {
			case i < f:
				return failureRow(x.Failures[i], e)
			case i < staged:
				return stagedRow(x.Groups[i-f], x, e)
			}
			return runRow(x.Log[i-staged], e)
		},
		Fields: queue.NotificationFields(),
		Sorts:  []Sort{{Name: "failed, then the oldest first", Column: 3, Desc: true}},
		Empty: []string{
			"Nothing is staged, and the notification worker has had nothing to do.",
			"A producer stages a piece with fn_iu_save.",
			"Comments, drafts and later versions are told at once.",
		},
		Second: Second{From: staged, Columns: []table.Column{
			{Title: "WORKER LOG", Width: 22, Want: 30, Max: 60},
			{Title: "took up", Width: 7, Max: 9, Right: true},
			{Title: "docs", Width: 7, Max: 9, Right: true},
			{Title: "pieces", Width: 7, Max: 9, Right: true},
			{Title: "left", Width: 6, Max: 9, Right: true},
			{Title: "errors", Width: 6, Max: 9, Right: true},
			{Title: "told before", Width: 11, Right: true, Drop: 3},
			{Title: "took", Width: 8, Right: true},
			{Title: "error", Width: 16, Want: 30, Max: 80, Drop: 1},
		}},
	}
}

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

// dueIn is the seconds until the oldest piece of a group is due: never more than
// five minutes.
func dueIn(g queue.StagedGroup, n queue.Notifications, e Env) string {
	d := g.OldestAt.Add(time.Duration(n.DebounceSeconds) * time.Second).Sub(e.Now)
	return strconv.FormatInt(max(int64(d.Seconds()), 0), 10) + "s"
}

func failureRow(f queue.StagedFailure, e Env) table.Row {
	th := e.Theme
	first, actor := "", ""
	if len(f.Rows) > 0 {
		first, actor = f.Rows[0].Address.String(), f.Rows[0].Actor.String()
	}
	return table.Row{Sign: e.sign(rankCritical), Cells: []table.Cell{
		cell(f.Failure.String(), th.Critical), cell(Count(f.N), th.Critical), cell(th.G.Dash, th.Dim), cell(e.Ago(f.FirstAt), th.Critical),
		cell(th.G.Dash, th.Dim), cell("FAILED", th.Critical), cell(first, th.Dim), cell(actor, th.Dim),
	}}
}

func stagedRow(g queue.StagedGroup, n queue.Notifications, e Env) table.Row {
	th := e.Theme
	kind, _ := g.Told(n.Threshold)
	due, tone := "now", th.Text
	if g.Due == 0 {
		due, tone = dueIn(g, n, e), th.Dim
	}
	sign := e.sign(rankQuiet)
	if g.Due > 0 && n.Stale {
		sign, tone = e.sign(rankWarning), th.Warning
	}
	return table.Row{Sign: sign, Cells: []table.Cell{
		cell(groupName(g), th.Strong), cell(Count(g.Pieces), th.Text), cell(Count(g.Due), th.Text), cell(e.Ago(g.OldestAt), tone),
		cell(due, tone), cell(kind, th.Text), cell(g.FirstUnit.String(), th.Dim), cell(g.Actor.String(), th.Dim),
	}}
}

func runRow(r queue.NotificationRun, e Env) table.Row {
	th := e.Theme
	k := rankQuiet
	if r.Errors > 0 {
		k = rankWarning
	}
	return table.Row{Sign: e.sign(k), Cells: []table.Cell{
		cell(e.Stamp(r.At), th.Text), cell(Count(r.Taken), th.Text), cell(Count(r.Groups), th.Text), cell(Count(r.Pieces), th.Text),
		cell(Count(r.Left), th.Text), cell(Count(r.Errors), e.tone(k)), cell(Count(r.Conflicts), th.Dim), cell(Millis(r.TookMS), th.Dim),
		cell(r.Error.String(), e.tone(k)),
	}}
}

// NotificationHead is the two lines above the table: what waits and for what, and
// who tells it. Without data there is none.
func NotificationHead(n *queue.Notifications, e Env, w int) []string {
	if n == nil {
		return nil
	}
	th := e.Theme
	more := e.counted(n.Debouncing, n.DebouncingBound) + " in the debounce of " + strconv.FormatInt(n.DebounceSeconds, 10) + "s"
	first := e.dotted(Count(n.Waiting)+" staged", Count(n.Due())+" due", more, "document from "+plural(n.Threshold, "piece", "pieces"))

	ran, style := "the worker never ran", th.Warning
	if n.LastRunAt != nil {
		ran, style = "the worker ran "+e.Ago(*n.LastRunAt)+" ago", th.Dim
	}
	every, stale, failed := "every "+Age(n.IntervalSeconds), "", ""
	if n.IntervalSeconds == 0 {
		every, style = "switched OFF", th.Warning
	}
	if n.Stale {
		stale, style = "STALE", th.Warning
	}
	if n.Failed > 0 {
		failed = th.Critical.Paint(th.G.Critical+" "+Count(n.Failed)+" failed") + style.Paint(" "+th.G.Dot+" ")
	}
	return []string{th.Cut(" "+th.Text.Paint(first), w), th.Cut(" "+failed+style.Paint(e.dotted(ran, every, stale, "T to tick")), w)}
}

// NotificationPage is a row of pane gn in full.
func NotificationPage(n *queue.Notifications, id string, e Env, w int) (Page, bool) {
	if n == nil {
		return Page{}, false
	}
	for _, f := range n.Failures {
		if failureID(f) == id {
			return failurePage(f, e, w), true
		}
	}
	for _, g := range n.Groups {
		if groupID(g) == id {
			return groupPage(g, *n, e, w), true
		}
	}
	for _, r := range n.Log {
		if "run\x00"+r.ID == id {
			return runPage(r, e, w), true
		}
	}
	return Page{}, false
}

func failurePage(f queue.StagedFailure, e Env, w int) Page {
	p := newPage(e, w)
	p.head(plural(f.N, "staged notification", "staged notifications") + " could not be told")
	p.paint("why", f.Failure.String(), e.Theme.Critical)
	p.pair("since", e.Stamp(f.FirstAt)+", the last "+e.Ago(f.LastAt)+" ago")
	p.pair("what to do", "They are passed over by every run. Mend what is wrong with them in iu_notification_pending, then R lets all "+
		"that are listed here wait again; one that is still wrong fails again.")
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
		p.para(plural(left, "more row is", "more rows are")+" not listed; qtop notifications requeue --all takes all of them.", e.Theme.Dim)
	}
	return p.done("failed")
}

func groupPage(g queue.StagedGroup, n queue.Notifications, e Env, w int) Page {
	p := newPage(e, w)
	p.head(groupName(g))
	kind, events := g.Told(n.Threshold)
	p.pair("waiting", plural(g.Pieces, "piece", "pieces")+", "+Count(g.Due)+" of them due")
	p.pair("told as", Count(events)+" "+kind)
	if g.Due > 0 {
		p.pair("when", "at the next run of iu_notification_worker")
	} else {
		p.pair("when", "due in "+dueIn(g, n, e)+", then at the next run of iu_notification_worker")
	}
	p.pair("staged", e.Stamp(g.OldestAt)+" to "+e.Stamp(g.NewestAt))
	p.pair("first piece", g.FirstUnit.String()+" by "+g.Actor.String())
	if g.Keyed {
		p.para("Pieces that become due later are told by a later run, as another notification.", e.Theme.Dim)
	}
	return p.done(groupName(g))
}

func runPage(r queue.NotificationRun, e Env, w int) Page {
	p := newPage(e, w)
	p.head("Run of " + e.Stamp(r.At))
	p.pair("took up", plural(r.Taken, "row", "rows")+" in "+Millis(r.TookMS))
	p.pair("told", plural(r.Groups, "document_imported", "document_imported")+", "+Count(r.Pieces)+" new_piece_created")
	p.pair("told before", plural(r.Conflicts, "notification was", "notifications were")+" there already")
	p.pair("marked", plural(r.Marked, "row", "rows")+" as processed")
	p.pair("left", plural(r.Left, "row", "rows")+" not processed, "+Count(r.Failed)+" of them failed")
	if r.Errors > 0 {
		p.paint("errors", Count(r.Errors), e.Theme.Warning)
		p.said(r.Error.String())
	}
	return p.done("run")
}

// FailedIDs are the rows of a failure's row in pane gn.
func FailedIDs(n *queue.Notifications, id string) []string {
	var ids []string
	if n != nil {
		for _, f := range n.Failures {
			if failureID(f) == id {
				for _, r := range f.Rows {
					ids = append(ids, r.ID)
				}
			}
		}
	}
	return ids
}
