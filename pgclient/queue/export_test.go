// Exports: a row in each format, texts that a spreadsheet could take for formulas, and the end of a
// list.

package queue_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func exported(t *testing.T, x queue.Export, from queue.Lister) (string, queue.Exported) {
	t.Helper()
	var b strings.Builder
	done, err := x.Run(t.Context(), from, &b, func(int64) {})
	require.NoError(t, err)
	return b.String(), done
}

func listNamed(t *testing.T, name string) queue.ExportList {
	t.Helper()
	l, err := queue.ExportListNamed(name)
	require.NoError(t, err)
	return l
}

func TestExportsSayTheOrderOfTheirRows(t *testing.T) {
	for _, l := range queue.ExportLists() {
		require.NotEmpty(t, l.Order, l.Name)
	}
}

func TestExportSaysTheSameInEveryFormat(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 15, 0, 123456000, time.UTC)
	n := int64(9007199254740993) // a float64 cannot hold this number
	x := queue.Export{List: listNamed(t, "audit"), AsOf: at, Format: queue.ExportCSV, Rows: []any{
		queue.AuditEntry{
			ID: n, At: at, Actor: queue.Clean("anna, \"the\" one"), Reason: queue.Clean("line\nbreak"), FrozenCount: &n, Changed: &n,
			Before: json.RawMessage(`{"n":12345678901234567890.10,"s":"=1+1"}`), Outcome: queue.Clean("done"),
			OperationID: &n, Batches: &n, LastAt: &at, // a row that represents all batches of an operation
		},
	}}
	text, done := exported(t, x, nil)
	require.Equal(t, "id,at,actor,db_role,client_addr,action,target,filter,frozen_count,reason,before,after,outcome,claimed,operation_id,batches,last_at,changed\n"+
		`9007199254740993,2026-11-22T03:15:00.123456Z,"anna, ""the"" one",,,,,,9007199254740993,line␊break,"{""n"":12345678901234567890.10,""s"":""=1+1""}",,done,,9007199254740993,9007199254740993,2026-11-22T03:15:00.123456Z,9007199254740993`+"\n", text)
	require.Equal(t, "1 row as of 2026-11-22T03:15:00Z", done.String())
	x.Format = queue.ExportLines
	lines, _ := exported(t, x, nil)
	x.Rows = append(x.Rows, x.Rows[0])
	x.Format = queue.ExportJSON
	array, _ := exported(t, x, nil)
	require.Equal(t, "[\n"+strings.TrimSpace(lines)+",\n"+strings.TrimSpace(lines)+"\n]\n", array)
	var back []map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(array), &back))
	require.Equal(t, `"line␊break"`, string(back[1]["reason"]))
	for _, key := range []string{"id", "operation_id", "batches", "changed"} {
		require.Equal(t, "9007199254740993", string(back[0][key]), key)
	}
	require.Equal(t, string(back[0]["at"]), string(back[0]["last_at"]))
}

func TestExportDefusesFormulas(t *testing.T) {
	for raw, want := range map[string]string{
		"=cmd|'/c calc'!A1": "'=cmd|'/c calc'!A1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "＝1": "'＝1", "'quoted": "''quoted",
		"\t=1": "␉=1", "\r=1": "␍=1", "a=b": "a=b", "": "", "1": "1",
	} {
		x := queue.Export{List: listNamed(t, "audit"), Format: queue.ExportCSV, Rows: []any{queue.AuditEntry{ID: -5, Reason: queue.Clean(raw)}}}
		text, _ := exported(t, x, nil)
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		require.NoError(t, err)
		require.Equal(t, want, rows[1][9])
		require.Equal(t, queue.Clean(raw).String(), strings.TrimPrefix(rows[1][9], "'"), "one apostrophe less is the text")
		require.Equal(t, "-5", rows[1][0], "a number is none")
	}
}

func FuzzExport(f *testing.F) {
	for _, s := range []string{"=1", "\x1b[2J", "a\"b,c\nd", "\xff\u202e", "'", "\\u001b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		for _, format := range []queue.ExportFormat{queue.ExportCSV, queue.ExportJSON, queue.ExportLines} {
			x := queue.Export{List: listNamed(t, "audit"), Format: format, Rows: []any{queue.AuditEntry{Target: queue.Clean(s), Before: raw}}}
			text, _ := exported(t, x, nil)
			for _, r := range text {
				require.True(t, r == '\n' || !queue.Unsafe(r), "%U in %q", r, text)
			}
			if format != queue.ExportCSV {
				continue
			}
			rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
			require.NoError(t, err)
			require.Len(t, rows, 2)
			require.NotEqual(t, 0, strings.IndexAny(rows[1][6], "=+-@\t\r\n"), "%q", rows[1][6])
		}
	})
}

// The columns of every list are the members of its rows' JSON, and all rows of a list have one
// type.
func TestExportListsHaveColumns(t *testing.T) {
	last := ""
	for _, l := range queue.ExportLists() {
		require.Greater(t, l.Name, last, "by name")
		last = l.Name
		text, _ := exported(t, queue.Export{List: l, Format: queue.ExportCSV, Rows: []any{}}, nil)
		heads := strings.Split(strings.TrimSpace(text), ",")
		row, err := json.Marshal(l.Row)
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(row, &members))
		for name := range members {
			require.Contains(t, heads, name, l.Name)
		}
		require.Len(t, heads, len(members)+omitted(l.Row), l.Name)
	}
	_, err := queue.ExportListNamed("")
	require.ErrorContains(t, err, `there is no list ""`)
}

func omitted(row any) (n int) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(row)) {
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			n++
		}
	}
	return n
}

// pages is a Lister with a number of dead letters or jobs.
type pages struct {
	n, size int
	asked   []queue.Query
	jobs    bool // each page begins with a job of the previous page
	fail    int  // the number of the page that cannot be read
}

func (p *pages) List(_ context.Context, q queue.Query) (out queue.Page, err error) {
	p.asked = append(p.asked, q)
	if p.fail == len(p.asked) {
		return out, errors.New("gone")
	}
	from, _ := strconv.Atoi(q.After)
	to := min(from+min(q.Limit, p.size), p.n)
	if to < p.n {
		out.Next = strconv.Itoa(to)
	}
	if !q.Bare {
		out.Total = int64(p.n)
	}
	var deadLetters []queue.DeadLetter
	var jobs []queue.Job
	for i := from; i < to; i++ {
		deadLetters = append(deadLetters, queue.DeadLetter{ID: strconv.Itoa(i)})
		if p.jobs && i > 0 && i == from {
			jobs = append(jobs, queue.Job{ID: strconv.Itoa(i - 1)})
		}
		jobs = append(jobs, queue.Job{ID: strconv.Itoa(i)})
	}
	if out.Rows = deadLetters; p.jobs {
		out.Rows = jobs
	}
	return out, nil
}

func TestExportReadsToTheEnd(t *testing.T) {
	for _, x := range []struct {
		rows  int
		limit int64
		want  int
		said  string
	}{
		{25, 0, 25, "25 rows as of"}, {0, 0, 0, "0 rows as of"}, {20, 0, 20, "20 rows as of"}, {25, 12, 12, "12 rows of 25 as of"},
		{25, 10, 10, "10 rows of 25 as of"}, {25, 25, 25, "25 rows as of"}, {25, 26, 25, "25 rows as of"},
	} {
		t.Run(fmt.Sprint(x.rows, x.limit), func(t *testing.T) {
			from := &pages{n: x.rows, size: 10}
			text, done := exported(t, queue.Export{List: listNamed(t, "dlq"), Format: queue.ExportLines, Limit: x.limit}, from)
			require.Equal(t, x.want, strings.Count(text, "\n"))
			require.Contains(t, done.String(), x.said)
			require.False(t, from.asked[0].Bare)
			for _, q := range from.asked[1:] {
				require.True(t, q.Bare, "counted once")
			}
		})
	}
	from := &pages{n: 25, size: 10, jobs: true}
	text, _ := exported(t, queue.Export{List: listNamed(t, "jobs"), Format: queue.ExportLines}, from)
	require.Equal(t, 25, strings.Count(text, "\n"), "a job that comes twice is written once")
	_, err := queue.Export{List: listNamed(t, "dlq")}.Run(t.Context(), &pages{n: 25, size: 10, fail: 2}, &strings.Builder{}, func(int64) {})
	require.EqualError(t, err, "gone")
}

// one is a Lister with a single page.
type one queue.Page

func (p one) List(context.Context, queue.Query) (queue.Page, error) { return queue.Page(p), nil }

// A list that may have more rows than it shows reports that it is not whole.
func TestExportOfBoundedLists(t *testing.T) {
	rows := []any{queue.JobLease{ID: "a"}, queue.JobLease{ID: "b"}}
	for _, x := range []struct {
		of   queue.Export
		want string
	}{
		{queue.Export{}, "2 rows as of"}, {queue.Export{More: true}, "2 rows of more as of"}, {queue.Export{More: true, Total: 300}, "2 rows of at least 300 as of"},
		{queue.Export{Limit: 1}, "1 row of 2 as of"}, {queue.Export{More: true, Total: 300, Limit: 1}, "1 row of at least 300 as of"},
	} {
		x.of.List, x.of.Rows, x.of.Format = listNamed(t, "job-leases"), rows, queue.ExportCSV
		_, done := exported(t, x.of, nil)
		require.Contains(t, done.String(), x.want)
	}
	for n, want := range map[int]string{queue.RunsShown - 1: "49 rows as of", queue.RunsShown: "50 rows of more as of"} {
		page := one{Rows: &queue.Notifications{Log: make([]queue.NotificationRun, n), Groups: make([]queue.StagedGroup, 7)}, Total: int64(n + 7)}
		_, done := exported(t, queue.Export{List: listNamed(t, "notification-log"), Format: queue.ExportCSV}, page)
		require.Contains(t, done.String(), want)
	}
	s := queue.Snapshot{JobLeases: make([]queue.JobLease, 50), JobTable: queue.JobTable{Leases: 50, LeasesExpired: 50}}
	more, _ := s.MoreLeases()
	require.False(t, more, "these are all")
	s.JobTable.Leases, s.JobTable.LeasesExpired = 300, 60
	more, n := s.MoreLeases()
	require.True(t, more)
	require.EqualValues(t, 60, n)
}
