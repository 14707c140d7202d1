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

// rows is how many rows are loaded, of those that Page.Total counts.
func (l list) rows() int {
	switch rows := l.page.Rows.(type) {
	case []queue.DeadLetter:
		return len(rows)
	case []queue.AuditEntry:
		return len(rows)
	case []queue.Job:
		return len(rows)
	case []queue.Operation:
		return len(rows)
	case queue.EndpointList:
		return len(rows.Endpoints)
	case queue.EventSubscriptionList:
		return len(rows.Subscriptions)
	case *queue.Notifications:
		return len(rows.Failures) + len(rows.Groups) + len(rows.Log)
	}
	return 0
}

// add appends a following page. Rows that moved on from the page before come
// again; once is enough.
func (l *list) add(p queue.Page) {
	switch l.page.Rows.(type) {
	case []queue.DeadLetter:
		p.Rows = joined(l.page, p, func(x queue.DeadLetter) string { return x.ID })
	case []queue.AuditEntry:
		p.Rows = joined(l.page, p, func(x queue.AuditEntry) int64 { return x.ID })
	case []queue.Job:
		p.Rows = joined(l.page, p, func(x queue.Job) string { return x.ID })
	case []queue.Operation:
		p.Rows = joined(l.page, p, func(x queue.Operation) int64 { return x.ID })
	}
	l.page = p
}

// joined is the rows of two pages, each row once.
func joined[T any, K comparable](a, b queue.Page, id func(T) K) []T {
	rows, seen := queue.Of[[]T](a), map[K]bool{}
	for _, x := range rows {
		seen[id(x)] = true
	}
	for _, x := range queue.Of[[]T](b) {
		if !seen[id(x)] {
			rows = append(rows, x)
		}
	}
	return rows
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
