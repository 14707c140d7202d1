package tui

import (
	"context"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// list is what was read on demand. The functions know the type of its rows.
type list struct {
	query queue.Query
	base  string // the filter that the level itself brings, before the operator's
	page  queue.Page
	read  bool // an answer has come
	err   error

	reading int                // the read that runs; 0: none
	stop    context.CancelFunc // ends it
	readAt  time.Time          // when the last one began

	count func(p queue.Page) int // of the rows that Page.Total counts; nil: it has none
	join  func(a, b queue.Page) any
	cut   func(p queue.Page) bool // there are rows beside those that are counted, and not all are here
}

// reads is a list of one answer.
func reads(kind queue.ListKind, id string) list {
	return list{query: queue.Query{Kind: kind, ID: id}}
}

// rowsOf is a list that is read page by page. Rows that moved on from the page
// before come again; once is enough.
func rowsOf[T any, K comparable](q queue.Query, id func(T) K) list {
	return list{
		query: q,
		count: func(p queue.Page) int { return len(queue.Of[[]T](p)) },
		join: func(a, b queue.Page) any {
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
		},
	}
}

// asks tells that the rows come from the database.
func (l *list) asks() bool { return l.query.Kind != "" }

// rows is how many rows are loaded, of those that Page.Total counts.
func (l *list) rows() int {
	if l.count == nil {
		return 0
	}
	return l.count(l.page)
}

// take takes an answer in.
func (l *list) take(p queue.Page, more bool) {
	if more && l.join != nil {
		p.Rows = l.join(l.page, p)
	}
	l.read, l.page = true, p
}

// refilter is the filter of a list: what the level brings and what was typed.
func (l *list) refilter(typed string) {
	l.query.Filter = strings.TrimSpace(l.base + " " + typed)
	l.end()
	l.read, l.page = false, queue.Page{}
}

// end ends the read that runs: its level is left, or wants other rows.
func (l *list) end() {
	if l.stop != nil {
		l.stop()
	}
	l.reading, l.stop = 0, nil
}

// whole tells that every row of the list is here.
func (l *list) whole() bool {
	p := l.page
	return l.read && l.reading == 0 && l.err == nil && p.Next == "" && !p.TotalBound && int64(l.rows()) >= p.Total && (l.cut == nil || !l.cut(p))
}

// known tells an empty list from one that was not read yet.
func known[T any](l *level, rows []T) []T {
	if l.list.read && rows == nil {
		return []T{}
	}
	return rows
}
