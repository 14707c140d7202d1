package views

// This file is pane gn: what is staged and as what it will be told, what could
// not be told, and under it the worker's log.

import (
	"strconv"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Notifications is the table of pane gn. Failures come first, then the groups as
// they will be told, then what the worker did.
func Notifications(n *queue.Notifications) Source {
	var x queue.Notifications
	if n != nil {
		x = *n
	}
	var staged []stagedLine
	for i := range x.Failures {
		staged = append(staged, stagedLine{failure: &x.Failures[i]})
	}
	for i := range x.Groups {
		staged = append(staged, stagedLine{group: &x.Groups[i]})
	}
	return Source{
		ID: func(i int) string {
			switch {
			case i >= len(staged):
				return "run\x00" + x.Log[i-len(staged)].ID
			case staged[i].failure != nil:
				return failureID(*staged[i].failure)
			}
			return groupID(*staged[i].group)
		},
		Fields: queue.NotificationFields(),
		Sorts:  []Sort{{Name: "failed, then the oldest first", Column: "oldest", Desc: true}},
		Empty: []string{
			"Nothing is staged, and the notification worker has had nothing to do.",
			"A producer stages a piece with fn_iu_save.",
			"Comments, drafts and later versions are told at once.",
		},
	}.with(stagedList(staged, x), List[queue.NotificationRun]{
		Name: "notification-log", Rows: x.Log,
		First: "run_at pending_pre groups_emitted pieces_emitted conflicts_skipped rows_marked pending_post error_count duration_ms error_text",
		Look: func(r queue.NotificationRun, e Env) (table.Cell, theme.Style) {
			k := rankOf(r.Errors > 0)
			return e.sign(k), e.tone(k)
		},
		Columns: []Column[queue.NotificationRun]{
			{Name: "run_at", Title: "WORKER LOG", Head: "RUN", Width: 22, Want: 30, Max: 60, Say: stamped},
			{Name: "pending_pre", Title: "took up", Width: 7, Max: 9, Right: true},
			{Name: "groups_emitted", Title: "docs", Head: "DOCUMENTS", Width: 7, Max: 9, Right: true},
			{Name: "pieces_emitted", Title: "pieces", Width: 7, Max: 9, Right: true},
			{Name: "pending_post", Title: "left", Width: 6, Max: 9, Right: true},
			{Name: "error_count", Title: "errors", Width: 6, Max: 9, Right: true, Look: ofRow},
			{Name: "conflicts_skipped", Title: "told before", Width: 11, Right: true, Drop: 3, Look: dim},
			{Name: "duration_ms", Title: "took", Width: 8, Right: true, Look: dim},
			{Name: "error_text", Title: "error", Width: 16, Want: 30, Max: 80, Drop: 1, Look: ofRow},
			{Name: "rows_marked", Head: "MARKED"},
		},
	}.lines())
}

// stagedLine is a line of the first table: pieces that could not be told, or a group
// as it will be.
type stagedLine struct {
	failure *queue.StagedFailure
	group   *queue.StagedGroup
}

func stagedList(rows []stagedLine, n queue.Notifications) lines {
	// of is a cell of either; what could not be told looks so.
	of := func(failed func(f queue.StagedFailure, e Env) string, staged func(g queue.StagedGroup, e Env) table.Cell) func(stagedLine, Env) table.Cell {
		return func(l stagedLine, e Env) table.Cell {
			if l.failure == nil {
				return staged(*l.group, e)
			}
			return cell(failed(*l.failure, e), e.Theme.Critical)
		}
	}
	first := func(say func(r queue.StagedRow) queue.Text, group func(g queue.StagedGroup) queue.Text) func(stagedLine, Env) table.Cell {
		return func(l stagedLine, e Env) table.Cell {
			switch {
			case l.failure == nil:
				return cell(group(*l.group).String(), e.Theme.Dim)
			case len(l.failure.Rows) == 0:
				return cell("", e.Theme.Dim)
			}
			return cell(say(l.failure.Rows[0]).String(), e.Theme.Dim)
		}
	}
	return List[stagedLine]{
		Name: "notifications", Rows: rows, First: "staged pieces due oldest told_as first_piece actor",
		Look: func(l stagedLine, e Env) (table.Cell, theme.Style) {
			switch {
			case l.failure != nil:
				return e.sign(rankCritical), e.Theme.Critical
			case l.group.Due > 0 && n.Stale:
				return e.sign(rankWarning), e.Theme.Warning
			}
			return e.sign(rankQuiet), e.Theme.Text
		},
		Export: func(l stagedLine) (string, []any) {
			if l.failure != nil {
				return "notification-failures", l.failure.Each()
			}
			return "notifications", []any{*l.group}
		},
		Columns: []Column[stagedLine]{
			{Name: "staged", Width: 22, Want: 30, Max: 60, Cell: of(
				func(f queue.StagedFailure, _ Env) string { return f.Failure.String() },
				func(g queue.StagedGroup, e Env) table.Cell { return cell(groupName(g), e.Theme.Strong) },
			), Plain: func(l stagedLine) string { return plainGroup(*l.group) }},
			{Name: "pieces", Width: 7, Max: 9, Right: true, Cell: of(
				func(f queue.StagedFailure, _ Env) string { return Count(f.N) },
				func(g queue.StagedGroup, e Env) table.Cell { return cell(Count(g.Pieces), e.Theme.Text) },
			), Plain: func(l stagedLine) string { return plain("", l.group.Pieces) }},
			{Name: "due", Width: 7, Max: 9, Right: true, Cell: func(l stagedLine, e Env) table.Cell {
				if l.failure != nil {
					return cell(e.Theme.G.Dash, e.Theme.Dim)
				}
				return cell(Count(l.group.Due), e.Theme.Text)
			}, Plain: func(l stagedLine) string { return plain("", l.group.Due) }},
			{Name: "oldest", Width: 7, Right: true, Cell: of(
				func(f queue.StagedFailure, e Env) string { return e.Ago(f.FirstAt) },
				func(g queue.StagedGroup, e Env) table.Cell { return cell(e.Ago(g.OldestAt), stagedTone(g, n, e)) },
			), Plain: func(l stagedLine) string { return PlainTime(&l.group.OldestAt) }},
			{Name: "told", Width: 6, Right: true, Cell: func(l stagedLine, e Env) table.Cell {
				switch {
				case l.failure != nil:
					return cell(e.Theme.G.Dash, e.Theme.Dim)
				case l.group.Due == 0:
					return cell(dueIn(*l.group, n, e), e.Theme.Dim)
				}
				return cell("now", stagedTone(*l.group, n, e))
			}},
			{Name: "told_as", Title: "as", Head: "TOLD AS", Width: 18, Max: 26, Cell: of(
				func(queue.StagedFailure, Env) string { return "FAILED" },
				func(g queue.StagedGroup, e Env) table.Cell {
					kind, _ := g.Told(n.Threshold)
					return cell(kind, e.Theme.Text)
				},
			), Plain: func(l stagedLine) string {
				kind, events := l.group.Told(n.Threshold)
				return plain("", events) + " " + kind
			}},
			{Name: "first_piece", Width: 16, Want: 30, Max: 60, Drop: 1, Cell: first(
				func(r queue.StagedRow) queue.Text { return r.Address }, func(g queue.StagedGroup) queue.Text { return g.FirstUnit },
			), Plain: func(l stagedLine) string { return l.group.FirstUnit.String() }},
			{Name: "actor", Width: 10, Max: 24, Drop: 2, Cell: first(
				func(r queue.StagedRow) queue.Text { return r.Actor }, func(g queue.StagedGroup) queue.Text { return g.Actor },
			), Plain: func(l stagedLine) string { return l.group.Actor.String() }},
		},
	}.lines()
}

// stagedTone: a group that is due while its worker does not run is bad news.
func stagedTone(g queue.StagedGroup, n queue.Notifications, e Env) theme.Style {
	switch {
	case g.Due == 0:
		return e.Theme.Dim
	case n.Stale:
		return e.Theme.Warning
	}
	return e.Theme.Text
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

// plainGroup says what kind of key a group has.
func plainGroup(g queue.StagedGroup) string {
	switch {
	case !g.Keyed:
		return "(no document or batch)"
	case g.Document:
		return "document " + g.Key.String()
	}
	return "batch " + g.Key.String()
}
