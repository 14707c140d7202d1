package tui

import (
	"context"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// list is a list that is read from the database when a level needs it, in
// pages. It holds the rows as any: only the functions count, join and
// truncated know their type.
type list struct {
	query queue.Query
	base  string // the filter that the level always has, before that of the operator
	least int    // how many rows a read asks for at least; 0: one page
	page  queue.Page
	read  bool // the list was read at least once
	err   error

	reading int                // the serial number of the read in progress; 0: none
	stop    context.CancelFunc // cancels that read
	readAt  time.Time          // when the last read began
	asOf    time.Time          // when the read of the rows that are shown began, without further pages
	acted   bool               // an action of this console was applied after that
	further bool               // err is that of a further page

	count     func(p queue.Page) int    // how many rows of a page Page.Total counts; nil: the answer is one value, not rows
	join      func(a, b queue.Page) any // appends page b to page a
	byFilter  bool                      // actions take all matching rows by the filter (selectionTarget), so ctrl+a twice selects them
	within    string                    // a filter that the list implies but its query does not contain
	truncated func(p queue.Page) bool   // whether rows are missing that Page.Total does not count
}

// listOf returns a list whose answer is one value, read with one query.
func listOf(kind queue.ListKind, id string) list {
	return list{query: queue.Query{Kind: kind, ID: id}}
}

// pagedList returns a list that is read page by page. Between the reads of two
// pages a row may move from the first to the second; join then keeps the one
// in the first.
func pagedList[T any, K comparable](q queue.Query, id func(T) K) list {
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

// queried reports whether the rows are read with a query. If not, they are
// part of the snapshot.
func (l *list) queried() bool { return l.query.Kind != "" }

// rows returns how many of the rows that Page.Total counts are loaded.
func (l *list) rows() int {
	if l.count == nil {
		return 0
	}
	return l.count(l.page)
}

// add stores a page that was read. more is true for a further page, which is
// appended to the loaded rows; else it replaces them.
func (l *list) add(p queue.Page, more bool) {
	if more && l.join != nil {
		p.Rows = l.join(l.page, p)
	}
	l.read, l.page = true, p
}

// refilter sets the filter (the level's own and the typed one) and drops the
// rows and the error, which belong to the old filter.
func (l *list) refilter(typed string) {
	l.query.Filter = strings.TrimSpace(l.base + " " + typed)
	l.cancel()
	l.read, l.page, l.err = false, queue.Page{}, nil
}

// cancel cancels the read in progress, because its level was left or needs other rows.
func (l *list) cancel() {
	if l.stop != nil {
		l.stop()
	}
	l.reading, l.stop = 0, nil
}

// complete reports whether every row of the list is loaded.
func (l *list) complete() bool {
	p := l.page
	return l.read && l.reading == 0 && l.err == nil && p.Next == "" && !p.TotalBound && int64(l.rows()) >= p.Total && (l.truncated == nil || !l.truncated(p))
}

// unread returns how many of the rows that Page.Total counts are not loaded.
func (l *list) unread() int64 {
	if l.count == nil {
		return 0
	}
	return max(l.page.Total-int64(l.rows()), 0)
}

// matching returns the filter by which an action takes all rows of the list;
// "" if there is none: all rows of the database are taken by no filter.
func (l *list) matching() string { return strings.TrimSpace(l.within + " " + l.query.Filter) }

// takesAll reports whether an action can take all rows of the list.
func (l *list) takesAll() bool { return l.byFilter && l.matching() != "" }

// partly reports whether only a part of the rows that Page.Total counts is loaded.
func (l *list) partly() bool {
	return l.count != nil && (l.page.Next != "" || l.page.TotalBound || l.unread() > 0)
}

// loaded returns rows, but an empty slice instead of nil once the list was
// read. For the functions of package views, nil means "not read yet".
func loaded[T any](l *level, rows []T) []T {
	if l.list.read && rows == nil {
		return []T{}
	}
	return rows
}
