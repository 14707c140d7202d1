package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// pane is one pane with the levels that are open in it, the deepest last. A
// pane_*.go file declares its functions; a nil function means that the pane
// does not have that feature.
type pane struct {
	queue.Pane
	acts
	badge      views.Badge // the number in the tab: rows that need attention
	list       list        // the query for the rows of the pane's table; empty: the rows are part of the snapshot
	selectable bool        // rows can be selected, for actions on several rows
	board      board
	source     func(at scene) views.Source
	enter      func(at scene, i int) level // the level that enter opens from row i
	nested     table                       // the table that enter opens, for docs/keys.md; nil: enter opens pages only

	header       func(at scene) []string                       // lines above the table
	tableLines   func(at scene, s views.Size) int              // how many of the s.H lines the table gets
	body         func(at scene, s views.Size) []string         // draws the whole area, for a pane that shows more than a table
	beforeFollow func(l *level, id string)                     // prepares the level when a row of the Overview with this id opens the pane
	matches      func(src views.Source, i int, id string) bool // whether row i is the row that has this id in the Overview; nil: if its id is the same

	actionKeys func(at scene, key string) (queue.ActionID, map[string]string) // further keys that start an action, with arguments
	tally      func(at scene, rows []int) string                              // counts what several rows of the pane's own table stand for, for dialogs
	leftOut    func(at scene, a queue.Action) string                          // rows that belong to the target but are not taken, for dialogs
	copyText   func(at scene) string                                          // the text that key y copies; nil: the row's id
	tickWorker string                                                         // the tick worker that key T proposes; "": that of the row

	enterOnFollow bool // a row of the Overview opens not only this pane but also the page of the row
	filterOnEnter bool // the filter is not applied at every key press but on enter, because the query searches the history
	rereadOften   bool // the list is read again with every snapshot while it has one page, because it shows progress
	localOnly     bool // the pane shows this process, not the snapshot
	rowBehindWhy  bool // on the page of :why, action keys work on the row of the level below, if it is of that queue

	levels []level
}

func (p *pane) what() string { return "" }

func (p *pane) rows(at scene) views.Source { return p.source(at) }

func (p *pane) under(at scene, i int) level { return p.enter(at, i) }

func (p *pane) top() *level { return &p.levels[len(p.levels)-1] }

// begin closes all levels and opens the first one: the pane's own table or
// board.
func (p *pane) begin() {
	l := level{board: p.board, list: p.list, grid: newGrid(p.selectable)}
	if p.board == nil {
		l.table = p
	}
	p.levels = []level{l}
}

// row returns the index of the row with this id in the pane's own table; ok is
// false if it is gone.
func (at scene) row(id string) (int, bool) {
	if at.snap == nil {
		return 0, false
	}
	src := at.pane.source(at)
	for i := range src.Len {
		if src.ID(i) == id {
			return i, true
		}
	}
	return 0, false
}

// rowPage returns a page function for one row of the pane's own table. The
// function reports false once the row is no longer in the snapshot.
func rowPage(id string, draw func(at scene, i int) views.Page) page {
	return func(at scene) (views.Page, bool) {
		i, ok := at.row(id)
		if !ok {
			return views.Page{}, false
		}
		return draw(at, i), true
	}
}

// snapshotSource adds to src the text that an empty table shows, for tables
// whose rows are part of the snapshot.
func snapshotSource(at scene, src views.Source) views.Source {
	if at.snap == nil {
		src.Empty, src.Unread = []string{"Waiting for the first snapshot of the database."}, true
	} else if src.Note != "" && src.Len == 0 {
		src.Empty, src.Unread = []string{"This could not be read."}, true
	}
	return src
}

// listSource adds to src the text of an empty table and the note below it, for
// tables whose rows are read with a query and may be unread or unreadable.
func listSource(at scene, src views.Source) views.Source {
	l := &at.level.list
	src.Unread = !l.read || l.err != nil && l.rows() == 0
	switch {
	case l.err != nil && l.rows() == 0:
		src.Empty = []string{"This could not be read.", why(l.err)}
	case l.err != nil:
		src.Note = queue.Choose(l.further, "further rows: ", "newer rows: ") + why(l.err)
	case !l.read && l.reading == 0 && at.paused:
		src.Empty = []string{"This list is not read while the console is paused. Press p to resume."}
	case !l.read && at.lost:
		src.Empty = []string{"This list was not read before the database was lost.", "The console reads it as soon as the database answers again."}
	case !l.read:
		src.Empty = []string{"Reading"}
	}
	return src
}

// exactly returns a filter term that matches this value only. In a text, * and
// ? would otherwise be wildcards.
func exactly(field string, kind queue.FieldKind, raw string) queue.Term {
	return queue.Term{Field: field, Kind: kind, Op: queue.OpEq, Values: []queue.Value{{Raw: raw}}}
}
