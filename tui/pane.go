package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// pane is one pane and the levels that are open in it, the deepest last. The
// functions are declared once per pane; nil means that the pane lacks that
// feature.
type pane struct {
	queue.Pane
	acts
	badge      views.Badge // counts the rows that need attention
	list       list        // the query for its own table; empty: the rows are part of the snapshot
	selectable bool        // its rows can be selected
	board      board
	source     func(at scene) views.Source
	enter      func(at scene, i int) level // the level under a row
	nested     table                       // the table of the levels that enter opens; nil: it opens pages only

	header       func(at scene) []string                       // lines above its table
	tableLines   func(at scene, s views.Size) int              // how many lines of a body of size s the table gets
	body         func(at scene, s views.Size) []string         // the whole body, for a pane that shows more than its table
	beforeFollow func(l *level, id string)                     // prepares the level before the Overview opens row id in this pane
	matches      func(src views.Source, i int, id string) bool // whether row i is the one that the Overview calls id

	actionKeys func(at scene, key string) (queue.ActionID, map[string]string) // keys that start an action with fixed arguments
	copyText   func(at scene) string                                          // the text that y copies, if it is not the row's id
	tickWorker string                                                         // the worker that T offers; "": the row's

	enterOnFollow bool // opening a row from the Overview also enters it
	filterOnEnter bool // the filter is sent on enter only, because the query searches the history
	rereadOften   bool // the list is read again with every snapshot: it is short and its progress matters
	localOnly     bool // it shows this process, not the snapshot
	rowBehindWhy  bool // on the page of :why, keys act on the row below that page

	levels []level
}

func (p *pane) what() string { return "" }

func (p *pane) rows(at scene) views.Source { return p.source(at) }

func (p *pane) under(at scene, i int) level { return p.enter(at, i) }

func (p *pane) top() *level { return &p.levels[len(p.levels)-1] }

// begin opens the first level, the pane's own table or board.
func (p *pane) begin() {
	l := level{board: p.board, list: p.list, grid: newGrid(p.selectable)}
	if p.board == nil {
		l.table = p
	}
	p.levels = []level{l}
}

// row returns the index of a row of the pane's own table in the current snapshot.
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

// rowPage returns the page of one row of the pane's own table. It reports false once
// the row is no longer in the snapshot.
func rowPage(id string, draw func(at scene, i int) views.Page) page {
	return func(at scene) (views.Page, bool) {
		i, ok := at.row(id)
		if !ok {
			return views.Page{}, false
		}
		return draw(at, i), true
	}
}

// snapshotSource sets the text of an empty table whose rows are part of the snapshot.
func snapshotSource(at scene, src views.Source) views.Source {
	if at.snap == nil {
		src.Empty = []string{"Waiting for the first snapshot of the database."}
	} else if src.Note != "" {
		src.Empty = []string{"This could not be read."}
	}
	return src
}

// listSource sets the text and the note of a table whose list is not read yet, or could not be read.
func listSource(at scene, src views.Source) views.Source {
	switch l := &at.level.list; {
	case l.err != nil && l.rows() == 0:
		src.Empty = []string{"This could not be read.", why(l.err)}
	case l.err != nil:
		src.Note = "newer rows: " + why(l.err)
	case !l.read && l.reading == 0 && at.paused:
		src.Empty = []string{"This list is not read while the console is paused. Press p to resume."}
	case !l.read:
		src.Empty = []string{"Reading"}
	}
	return src
}

// exactly returns a filter term that matches one value literally, including * and ?.
func exactly(field string, kind queue.FieldKind, raw string) queue.Term {
	return queue.Term{Field: field, Kind: kind, Op: queue.OpEq, Values: []queue.Value{{Raw: raw}}}
}
