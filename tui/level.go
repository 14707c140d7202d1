package tui

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// level is one step on the path into a pane: the pane's own table or board
// first, then each level that enter opened. Exactly one of table, page and
// board is set.
type level struct {
	acts
	title string
	id    string // id of the row that the level shows
	isWhy bool   // the page of :why: it shows a queue, not a row of the pane

	// A table: its rows come from the snapshot, or from list if they must be queried.
	table table
	grid  grid
	list  list

	// A page: its scroll offset, the search text, and the lines that were built last.
	page     page
	offset   int
	find     string
	built    views.Page
	revision int // shell.revision when the lines were built; 0: never built

	// A payload that was revealed on this page, and when it is masked again.
	revealed      queue.Text
	revealedUntil time.Time

	// The Overview: the row that its cursor was moved to, and whether that row still exists.
	// If not, the cursor is shown on the row that took its place, but acts on nothing.
	board    board
	target   views.Target
	armed    bool
	cursor   views.Target    // the row that the cursor is shown on
	place    int             // position of cursor among the rows
	cure     string          // the remedy for the row under the cursor
	expanded map[string]bool // the kinds of trouble that enter has expanded
}

// table provides the rows of a level, and the level that enter opens for row i.
type table interface {
	what() string // what the rows are, for the documents; "": the rows of the pane
	rows(at scene) views.Source
	under(at scene, i int) level
}

// page builds the lines of one row. It reports false if the row is no longer in the
// snapshot; the level then keeps the lines it has.
type page func(at scene) (views.Page, bool)

// board draws the Overview.
type board func(at scene, s views.Size, cursor views.Target) views.OverviewView

// acts declares the targets of keys and commands in one level: the pane's own
// list, or a page or list that was opened from it. A target or function that a
// level leaves nil is taken from its pane.
type acts struct {
	targets    map[queue.ActionID]target
	forms      map[queue.ActionID]form
	usesSecond func(at scene) bool   // where one key has two actions: whether the row needs the second
	queueName  func(at scene) string // the queue that :why explains for this row
}

// target fills in the targets of a request, or returns the reason why there are
// none.
type target func(at scene, req *queue.Request) (problem string)

// rowTarget returns a target for the row that find returns. If there is no row,
// the reason is the text none.
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

// fixedTarget returns a target with a fixed id, independent of the cursor.
func fixedTarget(id string) target {
	return func(_ scene, req *queue.Request) string {
		req.Targets = []string{id}
		return ""
	}
}

// form holds the parts of an action's dialog that depend on the pane. Any field
// may be nil.
type form struct {
	parseWords func(snap *queue.Snapshot, words []string, req *queue.Request) (problem string) // parses the words of a command
	prefill    func(snap *queue.Snapshot, target string, args []queue.Arg)                     // sets the defaults of the inputs
	facts      func(snap *queue.Snapshot, target string) []queue.PlanLine                      // facts about the target, shown above the inputs
}

// scene is the input of a pane's functions: the snapshot, this process, and the open level.
type scene struct {
	snap   *queue.Snapshot
	local  *queue.HostStatus
	env    views.Env
	size   views.Size // of the screen
	now    time.Time  // the operator's clock
	paused bool
	pane   *pane
	level  *level // the open one
}

// base is the pane's first level.
func (at scene) base() *level { return &at.pane.levels[0] }

// acting returns the scene that actions work in. On the page of :why that is
// the scene of the level below the page, if the pane allows it (rowBehindWhy).
func (at scene) acting() scene {
	if n := len(at.pane.levels); at.level.isWhy && at.pane.rowBehindWhy && n > 1 {
		at.level = &at.pane.levels[n-2]
	}
	return at
}

// target returns the target function of an action; nil: the action needs no target.
func (at scene) target(id queue.ActionID) target {
	if t := at.level.targets[id]; t != nil {
		return t
	}
	return at.pane.targets[id]
}

// usesSecond reports whether the row needs the second of two actions that share a key.
func (at scene) usesSecond() bool {
	f := queue.Choose(at.level.usesSecond != nil, at.level.usesSecond, at.pane.usesSecond)
	return f != nil && f(at)
}

// queueName returns the name of the queue that the row under the cursor belongs to, or "".
func (at scene) queueName() string {
	if f := queue.Choose(at.level.queueName != nil, at.level.queueName, at.pane.queueName); f != nil {
		return f(at)
	}
	return ""
}

// subject returns the id of the row that is open or under the cursor, or "".
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

const moveFirst = "the row under the cursor is gone; move to another row first"

// scrollTo scrolls a page to a line, but not past its end in a body of h lines.
func (l *level) scrollTo(line, h int) { l.offset = min(max(line, 0), max(len(l.built.Lines)-h, 0)) }

// noRow returns the reason why an action has no target: moveFirst if the row
// under the cursor is gone, else the text otherwise.
func (at scene) noRow(otherwise string) string {
	switch l := at.level; {
	case l.table != nil && l.grid.gone && len(l.grid.order) > 0, l.board != nil && !l.armed && l.target != (views.Target{}):
		return moveFirst
	}
	return otherwise
}

// isNested reports whether the level is a nested table, whose rows were queried.
func (l *level) isNested() bool { return l.table != nil && l.title != "" }
