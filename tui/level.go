package tui

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// level is one step. One of table, page and board is set; what it is about lives
// in that value, which a pane's enter makes.
type level struct {
	acts
	title string
	id    string // of the row that it is about
	aside bool   // a page that says why a queue waits: it is about no row of the pane

	// A table: its rows come from the picture, or from list where the database has
	// to be asked.
	table table
	grid  grid
	list  list

	// A page: where it is scrolled to, what is looked for, and its lines as they
	// were last built.
	page   page
	offset int
	find   string
	built  views.Page
	stamp  int // of the state it was built from; 0: never

	// A payload that was revealed on this page, until when it stands.
	revealed      queue.Text
	revealedUntil time.Time

	// The Overview: its cursor, and whether what that is on still exists.
	board  board
	target views.Target
	armed  bool
}

// table is the rows of a level, and the level under each.
type table interface {
	rows(at scene) views.Source
	under(at scene, i int) level
}

// page is the lines of one row; false: the row has left the picture, and the page
// stays as it last was.
type page func(at scene) (views.Page, bool)

// board is the Overview.
type board func(at scene, s views.Size, cursor views.Target) views.OverviewView

// acts is what keys and commands work on in a level; what it lacks the pane says.
type acts struct {
	targets map[queue.ActionID]target
	forms   map[queue.ActionID]form
	second  func(at scene) bool   // of two actions of one key: the row means the second
	waits   func(at scene) string // the queue that :why means
}

// target puts into a request what an action works on, or says why there is nothing.
type target func(at scene, req *queue.Request) (problem string)

// on works on the row that find means; without one it says none.
func on[T any](find func(at scene) (T, bool), id func(T) string, none string) target {
	return func(at scene, req *queue.Request) string {
		x, ok := find(at)
		if !ok {
			return at.noRow(none)
		}
		req.Targets = []string{id(x)}
		return ""
	}
}

// this works on one row, wherever the cursor is.
func this(id string) target {
	return func(_ scene, req *queue.Request) string {
		req.Targets = []string{id}
		return ""
	}
}

// form is what a dialog knows of a target beside the entry of its action. What it lacks is nil.
type form struct {
	line  func(pic *queue.Snapshot, words []string, req *queue.Request) (problem string) // what the words of a command mean, or why they do nothing
	start func(pic *queue.Snapshot, target string, args []queue.Arg)                     // what it starts with
	about func(pic *queue.Snapshot, target string) []queue.PlanLine                      // what it tells
}

// scene is what a pane sees: the picture, this process, and how deep one is in it.
type scene struct {
	pic    *queue.Snapshot
	local  *queue.HostStatus
	env    views.Env
	size   views.Size // of the screen
	now    time.Time  // the operator's clock
	paused bool
	pane   *pane
	level  *level // the open one
}

// base is the pane's own level.
func (at scene) base() *level { return &at.pane.levels[0] }

// acting is the scene that actions work in: beside the rows it is the pane's word
// whether they work on the row that the page was asked of.
func (at scene) acting() scene {
	if n := len(at.pane.levels); at.level.aside && at.pane.through && n > 1 {
		at.level = &at.pane.levels[n-2]
	}
	return at
}

// target is what an action works on here; nil: it needs nothing.
func (at scene) target(id queue.ActionID) target {
	if t := at.level.targets[id]; t != nil {
		return t
	}
	return at.pane.targets[id]
}

// second tells which of two actions of one key the row means.
func (at scene) second() bool {
	f := queue.Choose(at.level.second != nil, at.level.second, at.pane.second)
	return f != nil && f(at)
}

// waiting is the name of the queue that the row under the cursor is of.
func (at scene) waiting() string {
	if f := queue.Choose(at.level.waits != nil, at.level.waits, at.pane.waits); f != nil {
		return f(at)
	}
	return ""
}

// subject is the id of the row that is open or under the cursor.
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

const moveFirst = "the row you were on is gone; move to another one first"

// scrollTo puts a page to a line, as far as its end allows in a body of h lines.
func (l *level) scrollTo(line, h int) { l.offset = min(max(line, 0), max(len(l.built.Lines)-h, 0)) }

// noRow says why there is nothing to work on.
func (at scene) noRow(otherwise string) string {
	switch l := at.level; {
	case l.table != nil && l.grid.gone && len(l.grid.order) > 0, l.board != nil && !l.armed && l.target != (views.Target{}):
		return moveFirst
	}
	return otherwise
}

// listed tells the levels whose rows the database was asked for, under a title.
func (l *level) listed() bool { return l.table != nil && l.title != "" }
