package tui

// This file is how deep an operator has gone into a pane: the table, a table
// under it, the page of one row.

import (
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// kind says what a level shows.
type kind int

const (
	kindOverview kind = iota
	kindTable         // the pane's own table
	kindLetters       // the dead letters of a group
	kindJobs          // the jobs of a lane
	kindPage          // one row in full
)

// level is one step. Its rows come from the picture, or from list where the
// database has to be asked.
type level struct {
	serial int // answers name the level that asked
	kind   kind
	grid   grid
	list   list

	// What a page or a table of letters is about.
	title  string
	id     string
	letter queue.DeadLetter
	audit  queue.AuditEntry
	op     queue.Operation
	job    queue.Job
	within string // of a table of jobs: the filter that means its lane
	hook   queue.Endpoint
	why    string // of a page: the queue that it says this of

	// A page: where it is scrolled to, what is looked for, and its lines as they
	// were last built.
	offset int
	find   string
	built  views.Page

	// A payload that was revealed on this page, until when it stands.
	revealed      queue.Text
	revealedUntil time.Time
	stamp         int // of the state it was built from; 0: never
}

// list is what was read on demand.
type list struct {
	query   queue.Query
	base    string // the filter that the level itself brings, before the operator's
	page    queue.Page
	read    bool // an answer has come
	loading bool
	err     error
}

// rows is how many rows are loaded.
func (l list) rows() int {
	return len(l.page.DeadLetters) + len(l.page.Audit) + len(l.page.Jobs) + len(l.page.Operations) + len(l.page.Endpoints) + len(l.page.Subscriptions) + l.staged()
}

// staged is how many rows pane gn has.
func (l list) staged() int {
	if n := l.page.Notifications; n != nil {
		return len(n.Failures) + len(n.Groups) + len(n.Log)
	}
	return 0
}

// add appends a following page. Rows that moved on from the page before come
// again; once is enough.
func (l *list) add(p queue.Page) {
	letters, audit, jobs := map[string]bool{}, map[int64]bool{}, map[string]bool{}
	for _, x := range l.page.DeadLetters {
		letters[x.ID] = true
	}
	for _, x := range l.page.Audit {
		audit[x.ID] = true
	}
	for _, x := range l.page.Jobs {
		jobs[x.ID] = true
	}
	for _, x := range p.DeadLetters {
		if !letters[x.ID] {
			l.page.DeadLetters = append(l.page.DeadLetters, x)
		}
	}
	for _, x := range p.Audit {
		if !audit[x.ID] {
			l.page.Audit = append(l.page.Audit, x)
		}
	}
	l.page.Operations = append(l.page.Operations, p.Operations...) // their numbers fall: none comes again
	for _, x := range p.Jobs {
		if !jobs[x.ID] {
			l.page.Jobs = append(l.page.Jobs, x)
		}
	}
	l.page.Next, l.page.Total, l.page.TotalBound, l.page.AsOf = p.Next, p.Total, p.TotalBound, p.AsOf
}

// pane is a pane with the levels that are open in it, the deepest last.
type pane struct {
	id     queue.PaneID
	levels []level
	target views.Target // the cursor of the Overview
	armed  bool         // the target still exists
}

// listed tells the levels whose rows the database was asked for, under a title.
func (l *level) listed() bool { return l.kind == kindLetters || l.kind == kindJobs }

func (p *pane) top() *level { return &p.levels[len(p.levels)-1] }

func newPanes() map[queue.PaneID]*pane {
	panes := map[queue.PaneID]*pane{}
	for _, p := range queue.Panes() {
		l := level{kind: kindTable, grid: newGrid(p.ID == queue.PaneQueues || p.ID == queue.PaneWebhooks)}
		if p.ID == queue.PaneOverview {
			l.kind = kindOverview
		}
		panes[p.ID] = &pane{id: p.ID, levels: []level{l}}
	}
	return panes
}
