package tui

import (
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// level is one step on the path into a pane. The first level is the pane's own
// table, or the Overview (board); each further level was opened with enter.
// Exactly one of the fields table, page and board is set.
type level struct {
	acts
	title string
	id    string // the id of the row from which enter opened the level
	isWhy bool   // the page of :why, which explains a queue instead of a row of the pane

	// For a table: the rows come from the snapshot or, if list has a query,
	// from a read of the database.
	table table
	grid  grid
	list  list

	// For a page: its scroll offset, the search text, and its lines as they
	// were built last.
	page     page
	rowBelow bool // it shows the row as the level below has it; list, if it has a query, has only the history of the row
	offset   int
	find     string
	found    int // the line with the search text that was found last
	built    views.Page
	revision int       // shell.revision when the lines were built; 0: never built
	seen     seen      // what last had the row
	goneAt   time.Time // when the row was first missing; zero: it is there

	// For a page with a payload: the revealed payload, and when it is masked
	// again.
	revealed      queue.Text
	revealedUntil time.Time

	// For the Overview: target is the row that the operator moved the cursor
	// to; armed says that this row still exists. If it does not, the cursor is
	// shown on the row that took its place, but no action works on that row.
	board    board
	target   views.Target
	armed    bool
	moved    bool            // the operator has moved the cursor; until then the first row takes the place of one that is gone
	cursor   views.Target    // the row that the cursor is shown on
	place    int             // position of that row among the rows
	cure     string          // what to do about the trouble of that row
	expanded map[string]bool // the kinds of trouble whose group is expanded
}

// table provides the rows of a level, and the level that enter opens from row
// i.
type table interface {
	what() string // what a row is, such as "jobs", for docs/keys.md; "": the rows of the pane
	rows(at scene) views.Source
	under(at scene, i int) level
}

// page builds the lines of one row. It reports false if the row is no longer in the
// snapshot or in the list of the level below.
type page func(at scene) (views.Page, bool)

// seen is the data that a page was built from when its row was last there, and when that was.
type seen struct {
	snap      *queue.Snapshot
	local     *queue.HostStatus
	base, own queue.Page // the lists of the pane's first level and of the page
	now, here time.Time
}

func (at scene) seen() seen {
	return seen{at.snap, at.local, at.base().list.page, at.level.list.page, at.env.Now, at.env.Here}
}

// asOf returns the scene with the data of s, and the terminal as it is now. A history of the row is
// still read, and stays as it is.
func (at scene) asOf(s seen) scene {
	p := *at.pane
	p.levels = slices.Clone(p.levels)
	at.pane, at.level = &p, p.top()
	at.base().list.page = s.base
	if !at.level.rowBelow {
		at.level.list.page = s.own
	}
	at.snap, at.local, at.env.Now, at.env.Here = s.snap, s.local, s.now, s.here
	return at
}

// board draws the Overview, a screen of several short tables with one cursor.
type board func(at scene, s views.Size, cursor views.Target) views.OverviewView

// acts declares, for one level, the targets of each action, the dialogs of
// actions, and which queue :why explains. What a level leaves nil is taken
// from its pane.
type acts struct {
	targets    map[queue.ActionID]target
	elsewhere  map[queue.ActionID]string // actions of the pane that no row of this level can have, with the way to a row that can; their keys are not offered
	forms      map[queue.ActionID]form
	usesSecond func(at scene) bool   // if a key has two actions: whether the row under the cursor needs the second
	queueName  func(at scene) string // the queue that :why explains for this row
}

// target is a function that fills in the targets of a request. If there are
// none, it returns the reason for the status line.
type target func(at scene, req *queue.Request) (problem string)

// rowTarget returns a target function for actions on one row: find finds the
// row, id returns its id. If there is no row, the reason is the text none.
func rowTarget[T any](find func(at scene) (T, bool), id func(T) string, none string) target {
	return func(at scene, req *queue.Request) string {
		x, ok := find(at)
		if !ok {
			return at.noRow(none)
		}
		req.Targets = []string{id(x)}
		return ""
	}
}

// fixedTarget returns a target function for a level that is about one row with
// this id, wherever the cursor is.
func fixedTarget(id string) target {
	return func(_ scene, req *queue.Request) string {
		req.Targets = []string{id}
		return ""
	}
}

// form has what a pane adds to the dialog of an action. Any field may be nil.
type form struct {
	parseWords func(snap *queue.Snapshot, words []string, req *queue.Request) (problem string) // reads the arguments of a typed command into req
	prefill    func(snap *queue.Snapshot, req queue.Request, args []queue.Arg)                 // sets the defaults of the inputs; the request has one target
	keys       []string                                                                        // the arguments that name a row together with the target
	facts      func(snap *queue.Snapshot, target string) []queue.PlanLine                      // facts about the target, shown above the inputs
}

// scene is the input of the functions that a pane declares: the snapshot, the
// host of this process, and the open level.
type scene struct {
	snap   *queue.Snapshot
	local  *queue.HostStatus
	env    views.Env
	size   views.Size // of the screen
	now    time.Time  // the operator's clock
	paused bool
	lost   bool // the database is gone
	pane   *pane
	level  *level // the open one
}

// base returns the pane's first level.
func (at scene) base() *level { return &at.pane.levels[0] }

// acting returns the scene in which actions find their targets. On the page of
// :why that is the level below the page, without its selection, if the pane
// allows it (rowBehindWhy) and the row there is of the queue that the page
// explains.
func (at scene) acting() scene {
	n := len(at.pane.levels)
	if !at.level.isWhy || !at.pane.rowBehindWhy || n < 2 {
		return at
	}
	below, row := at.pane.levels[n-2], at
	below.grid.selected, below.grid.all = nil, false
	if row.level = &below; row.queueName() == at.level.id {
		return row
	}
	return at
}

// target returns the target function of an action for the open level; nil: the
// action needs no target. On the page of :why it refuses: the page is about no row.
func (at scene) target(id queue.ActionID) target {
	t := at.level.targets[id]
	if t == nil {
		t = at.pane.targets[id]
	}
	if t != nil && at.level.isWhy {
		return func(scene, *queue.Request) string {
			return "this page is about a queue, not about a row of " + at.pane.Title + "; esc goes back"
		}
	}
	return t
}

// elsewhere returns the way to a row that can have the action; "" if the rows
// of the open level can. A page is about one row, whose target decides.
func (at scene) elsewhere(id queue.ActionID) string {
	if find := at.target(id); at.level.page != nil && find != nil {
		return find(at, &queue.Request{Args: map[string]string{}})
	}
	for _, a := range []acts{at.level.acts, at.pane.acts} {
		if a.targets[id] != nil {
			return ""
		}
		if where := a.elsewhere[id]; where != "" {
			return where
		}
	}
	return ""
}

// usesSecond reports whether the row under the cursor needs the second of two
// actions that share a key.
func (at scene) usesSecond() bool {
	f := queue.Choose(at.level.usesSecond != nil, at.level.usesSecond, at.pane.usesSecond)
	return f != nil && f(at)
}

// queueName returns the name of the queue that the row under the cursor
// belongs to; "" if it belongs to none.
func (at scene) queueName() string {
	if f := queue.Choose(at.level.queueName != nil, at.level.queueName, at.pane.queueName); f != nil {
		return f(at)
	}
	return ""
}

// subject returns the id of the row that the page shows, else of the row under
// the cursor; "" if there is none.
func (at scene) subject() string { return at.level.subject() }

func (l *level) subject() string {
	if l.page != nil {
		return l.id
	}
	if i, ok := l.grid.current(); ok {
		return l.grid.src.ID(i)
	}
	return ""
}

// partly reports whether only a part of the rows of a table is loaded.
func (l *level) partly() bool { return l.list.partly() || l.grid.src.Second.AtLeast > 0 }

// cursorLost reports whether the table has rows, but not the one that the operator moved the cursor to.
func (l *level) cursorLost() bool { return l.table != nil && l.grid.gone && len(l.grid.order) > 0 }

// lostRow says what became of the row under the cursor. It may exist, but not in the filter or in the
// loaded part.
func (l *level) lostRow() string {
	const row = "the cursor's row is " // short, for the line has the number of selected rows too
	switch {
	case l.grid.text != "":
		return row + "not listed"
	case l.partly():
		return row + "not loaded"
	}
	return row + "gone"
}

func (l *level) moveFirst() string { return l.lostRow() + "; move to another row first" }

// scrollTo scrolls a page so that line is the first visible one, but not past
// the end of the page. h is the height of the window in lines.
func (l *level) scrollTo(line, h int) { l.offset = min(max(line, 0), max(len(l.built.Lines)-h, 0)) }

// noRow returns the reason why an action has no target: that the row under the
// cursor is no longer there, else the text otherwise.
func (at scene) noRow(otherwise string) string {
	if l := at.level; l.cursorLost() || l.vanished() {
		return l.moveFirst()
	}
	return otherwise
}

// vanished reports whether the row of the Overview that the operator moved the cursor to is gone.
func (l *level) vanished() bool {
	return l.board != nil && !l.armed && l.target != (views.Target{})
}

// isNested reports whether the level is a table that enter opened from a row.
// Its rows are read from the database.
func (l *level) isNested() bool { return l.table != nil && l.title != "" }
