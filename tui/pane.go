package tui

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// pane is one pane with the levels that are open in it, the deepest last.
type pane struct {
	queue.Pane
	acts
	badge  views.Badge // how much stands in it that should be looked at
	list   list        // its own table is read; empty: it comes with the picture
	marks  bool        // its rows can be marked
	board  board
	source func(at scene) views.Source
	enter  func(at scene, i int) level // the level under a row

	above func(at scene) []string                       // lines over its table
	room  func(at scene, s views.Size) int              // the lines that its table has of a body
	body  func(at scene, s views.Size) []string         // all of a body, where more than the table is in it
	land  func(l *level, id string)                     // before a row of the Overview is followed to here
	means func(src views.Source, i int, id string) bool // the row that the Overview calls id

	keys   func(at scene, key string) (queue.ActionID, map[string]string) // keys that stand for an action with arguments
	copies func(at scene) string                                          // what y copies, where that is not the row's id
	tick   string                                                         // the tick worker that T means, where that is not the row's

	goOn    bool // following a row of the Overview enters it
	asked   bool // a filter is sent with enter alone: it looks through history
	often   bool // few rows, and their progress is what one looks for
	here    bool // what it shows is of this process, not of the picture
	through bool // on a page that says why, keys work on the row that it was asked of

	levels []level
}

func (p *pane) rows(at scene) views.Source { return p.source(at) }

func (p *pane) under(at scene, i int) level { return p.enter(at, i) }

func (p *pane) top() *level { return &p.levels[len(p.levels)-1] }

// begin opens the pane's own level.
func (p *pane) begin() {
	l := level{board: p.board, list: p.list, grid: newGrid(p.marks)}
	if p.board == nil {
		l.table = p
	}
	p.levels = []level{l}
}

// row is where a row of the pane's own table stands in the picture.
func (at scene) row(id string) (int, bool) {
	if at.pic == nil {
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

// rowPage is the page of a row of the pane's own table, while it is in the picture.
func rowPage(id string, draw func(at scene, i int) views.Page) page {
	return func(at scene) (views.Page, bool) {
		i, ok := at.row(id)
		if !ok {
			return views.Page{}, false
		}
		return draw(at, i), true
	}
}

// pictured says of a table that comes with the picture why it is empty.
func pictured(at scene, src views.Source) views.Source {
	if at.pic == nil {
		src.Empty = []string{"Waiting for the first picture of the database."}
	} else if src.Note != "" {
		src.Empty = []string{"This could not be read."}
	}
	return src
}

// listed says of a list that was not read yet, or could not be, that it is so.
func listed(at scene, src views.Source) views.Source {
	switch l := &at.level.list; {
	case l.err != nil && l.rows() == 0:
		src.Empty = []string{"This could not be read.", why(l.err)}
	case l.err != nil:
		src.Note = "fresh rows: " + why(l.err)
	case !l.read && l.reading == 0 && at.paused:
		src.Empty = []string{"This list was not read yet, and now it is not read: p goes on."}
	case !l.read:
		src.Empty = []string{"Reading"}
	}
	return src
}

// exactly is a term that holds for one value, whatever is in it.
func exactly(field string, kind queue.FieldKind, raw string) queue.Term {
	return queue.Term{Field: field, Kind: kind, Op: queue.OpEq, Values: []queue.Value{{Raw: raw}}}
}
