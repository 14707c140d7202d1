package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/viewstest"
)

// A list that leaves rows out reports how many: below a table, and on standard error if the answer is JSON.
func TestListsSayWhatTheyLeaveOut(t *testing.T) {
	cut := func() *queue.Snapshot {
		s := viewstest.Rich()
		s.DeadMore = queue.DeadMore{Groups: 1200, Open: 4000}
		return &s
	}
	unread := cut()
	unread.Missing = map[string]queue.Text{"executors": queue.Clean("permission denied")}
	list := func(name string, s *queue.Snapshot) func(*writer) {
		return func(a *writer) { a.rows(views.SnapshotTable(name, s), name) }
	}
	for _, c := range []struct {
		name  string
		print func(*writer)
		says  string
	}{
		{"health", list("health", cut()), `(lacks|not in this list:) the rows of \d+,?\d* dead letters; pane 5 lists all`},
		{"dlq-groups", list("dlq-groups", cut()), `(lacks|not in this list:) 1,200 more groups with 4,000 dead letters`},
		{"executors", list("executors", unread), `(lacks|not in this list:) executors: permission denied`},
		{"page", func(a *writer) { a.ofTotal(20, queue.Page{Total: 345}) }, `20 of 345`},
		{"bound", func(a *writer) { a.ofTotal(500, queue.Page{Total: 500, TotalBound: true}) }, `500 of ≥500`},
		{"groups", func(a *writer) {
			a.groupsLeftOut(&queue.Notifications{Groups: make([]queue.StagedGroup, 3), GroupsBound: true})
		}, `3 of ≥3 groups`},
		{"items", func(a *writer) {
			a.itemsOfTotal(&queue.OperationDetail{Items: make([]queue.OperationItem, 2)}, queue.Page{Total: 9, Next: "2"})
		}, `2 of 9`},
	} {
		for _, output := range []string{"table", "json"} {
			var out, errs strings.Builder
			c.print(&writer{out: &out, errs: &errs, output: output})
			where := queue.Choose(output == "table", &out, &errs)
			require.Regexp(t, queue.Choose(output == "table", "(?m)^", "the list (has )?")+c.says, where.String(), "%s %s", c.name, output)
		}
	}
	var out, errs strings.Builder
	whole := &writer{out: &out, errs: &errs, output: "table"}
	whole.ofTotal(20, queue.Page{Total: 20})
	whole.itemsOfTotal(&queue.OperationDetail{}, queue.Page{Total: 9})
	whole.groupsLeftOut(&queue.Notifications{})
	require.Empty(t, out.String()+errs.String())
}

// With --watch, the answers in JSON say what they leave out when that has changed.
func TestWatchSaysOnceWhatIsLeftOut(t *testing.T) {
	var out, errs strings.Builder
	a := &writer{out: &out, errs: &errs, output: "json"}
	for _, total := range []int64{30, 30, 40, 20, 40} {
		a.nextAnswer()
		a.ofTotal(20, queue.Page{Total: total})
	}
	require.Equal(t, []string{"30 rows", "40 rows", "40 rows"}, regexp.MustCompile(`\d+ rows`).FindAllString(errs.String(), -1))
	require.Empty(t, out.String())
}
