package tui

// Tests of key x: the file contains the rows that the pane shows.

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/viewstest"
)

// folder takes the place of the directory to which a console exports. Like the
// real one it never shows an incomplete file.
type folder struct {
	mu    sync.Mutex
	files map[string]string
	err   error
}

func (f *folder) save(name string, write func(io.Writer) error) (string, error) {
	var b bytes.Buffer
	err := write(&b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err = errors.Join(err, f.err); err == nil {
		f.files[name] = b.String()
	}
	return "/night/" + name, err
}

func (f *folder) names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.files {
		names = append(names, n)
	}
	return names
}

// one returns the CSV records of the only file in the folder.
func (f *folder) one(t *testing.T) [][]string {
	t.Helper()
	require.Len(t, f.names(), 1)
	rows, err := csv.NewReader(strings.NewReader(f.files[f.names()[0]])).ReadAll()
	require.NoError(t, err)
	return rows
}

func saving(t *testing.T, s *fakeStore, test func(c *console, f *folder)) {
	t.Helper()
	f := &folder{files: map[string]string{}}
	run(t, setup{w: 120, h: 40, store: s, o: Options{Save: f.save}}, func(c *console) { test(c, f) })
}

// Where the file is fits into 80 cells: the time of its rows is left out before its directory.
func TestExportNamesTheDirectory(t *testing.T) {
	f := &folder{files: map[string]string{}}
	run(t, setup{w: 80, h: 24, o: Options{Save: f.save}}, func(c *console) {
		c.press("g", "a", "x", "enter")
		c.sees("4 of audit → /night/qtop-audit-20000101T000000Z.csv")
	})
}

func column(rows [][]string, name string) (cells []string) {
	i := slices.Index(rows[0], name)
	for _, r := range rows[1:] {
		cells = append(cells, r[i])
	}
	return cells
}

func TestExportOfAList(t *testing.T) {
	s := newStore()
	saving(t, s, func(c *console, f *folder) {
		c.press("g", "a")
		c.sees("x export")
		c.press("x")
		c.sees("export 4 of audit to qtop-audit-20000101T00", "enter write file", "csv, json, jsonl")
		c.press("enter")
		c.sees("4 of audit → /night/qtop-audit-20000101T000000Z.csv · as of ")
		rows := f.one(t)
		require.Len(t, rows, 1+len(s.audit))
		require.Equal(t, s.audit[0].Reason.String(), column(rows, "reason")[0])

		// The command :export FILE: the ending of the name chooses the format,
		// and the content equals the output of qtop export.
		c.typing(":export")
		c.press("space")
		c.typing("a.jsonl")
		c.press("enter")
		c.sees("a.jsonl")
		var twin bytes.Buffer
		list, err := queue.ExportListNamed("audit")
		require.NoError(t, err)
		_, err = queue.Export{List: list, Format: queue.ExportLines}.Run(t.Context(), s, &twin, func(int64) {})
		require.NoError(t, err)
		require.Equal(t, twin.String(), f.files["a.jsonl"])
	})
}

// The row "other groups" stands for others and is in no list. Wherever it is
// under the cursor or selected, the other rows are exported.
func TestExportBesideOtherGroups(t *testing.T) {
	s := newStore()
	s.snap.DeadMore = queue.DeadMore{Groups: 850, Open: 984_123} // more than any group: it is the first row
	saving(t, s, func(c *console, f *folder) {
		n := len(s.snap.DeadGroups)
		c.press("5")
		c.model(func(m *root) { m.moveTo(0) })
		for i, keys := range [][]string{{"x", "enter"}, {"ctrl+a", "x", "enter"}, {"j", "space", "x", "enter"}} {
			c.press(keys...)
			c.sees(fmt.Sprint(n-i/2, " of dlq-groups → /night/"))
			require.Len(t, f.one(t), 1+n-i/2)
			clear(f.files)
		}
	})
}

// A list of which only the first pages are loaded is exported completely, with
// the filter of the level and that of the operator. If rows are selected, only
// these are exported.
func TestExportOfDeadLetters(t *testing.T) {
	s := newStore()
	saving(t, s, func(c *console, f *folder) {
		c.press("5", "enter", "/")
		c.typing("age>1h")
		c.press("enter", "x")
		c.sees("export 4,640 of dlq to ")
		c.press("tab", "enter")
		c.sees("40 of dlq → /night/")
		require.True(t, strings.HasSuffix(f.names()[0], ".json"))
		var rows []queue.DeadLetter
		require.NoError(t, json.Unmarshal([]byte(f.files[f.names()[0]]), &rows))
		require.Len(t, rows, 40)
		s.set(func(s *fakeStore) {
			q := s.lists[len(s.lists)-1]
			require.True(t, q.Bare && q.After == "more" && q.Limit == queue.MostPage, "%v", q)
			require.Contains(t, q.Filter, "source=webhook code=HTTP_503")
			require.True(t, strings.HasSuffix(q.Filter, " age>1h"), q.Filter)
			require.Equal(t, q.Filter, s.lists[len(s.lists)-2].Filter)
		})
		c.press("space", "j", "space", "x")
		c.sees("export 2 of dlq to ")
		for range len("qtop-dlq-20000101T000000Z.csv") {
			c.press("backspace")
		}
		c.typing("two.csv")
		c.press("enter")
		rows2, err := csv.NewReader(strings.NewReader(f.files["two.csv"])).ReadAll()
		require.NoError(t, err)
		require.Equal(t, []string{s.deadLetters[0].ID, s.deadLetters[2].ID}, column(rows2, "id"))
		c.press("ctrl+a", "ctrl+a", "x")
		c.sees("export 4,640 of dlq to ")
	})
}

// Rows of the snapshot are exported as the screen shows them: filtered, sorted,
// and only those of the table with the cursor.
func TestExportOfTheSnapshot(t *testing.T) {
	s := newStore()
	saving(t, s, func(c *console, f *folder) {
		c.press("4", "o", "3", "/")
		c.typing("!state:deregistered")
		c.press("enter", "p")
		s.set(func(s *fakeStore) { s.snap.Executors = nil }) // the file has the rows that were on the screen, not those of a later snapshot
		c.rest(5 * time.Second)
		c.press("x", "enter")
		c.sees(" of executors → ", "as of "+viewstest.Now().UTC().Format("2006-01-02 15:04:05"))
		ids := column(f.one(t), "executor_id")
		require.Greater(t, len(ids), 3)
		require.True(t, slices.IsSorted(ids), ids)
		require.NotContains(t, column(f.one(t), "state"), "deregistered")
	})
	saving(t, nil, func(c *console, f *folder) {
		c.press("4", "G", "x", "enter")
		c.sees(" of executor-rules → ")
		require.NotEmpty(t, column(f.one(t), "priority_floor"))
	})
}

// On a page that contains a list, x exports that list.
func TestExportOfAPage(t *testing.T) {
	saving(t, nil, func(c *console, f *folder) {
		c.press("6", "enter", "x")
		c.sees("export operation-items to qtop-operation-items-")
		c.press("enter")
		c.sees(" of operation-items → ")
		require.Len(t, f.one(t), 1+len(viewstest.OperationItems()))
		c.press("g", "f", "enter", "x")
		c.sees("export flag-history to ")
	})
}

func TestExportCanBeLeft(t *testing.T) {
	s := newStore()
	s.slow = time.Hour
	saving(t, s, func(c *console, f *folder) {
		c.press("5", "enter", "x", "esc")
		c.seesNot("export 4,640")
		c.press("x", "enter")
		c.rest(time.Second)
		c.sees("exporting dlq… 40 of 4,640 rows; esc cancels")
		c.press("x")
		c.sees("an export is running; esc cancels it")
		c.press("j", "j") // keys still work while the export runs
		c.model(func(m *root) { require.Equal(t, 2, m.pane().top().grid.cursor) })
		c.press("esc")
		c.sees("export cancelled; no file was written")
		require.Empty(t, f.names())
		c.press("x", "enter", "3") // a slow export does not delay quitting
		c.press("q")
		require.True(t, c.ended())
		require.Empty(t, f.names())
	})
}

func TestExportSaysWhatIsWrong(t *testing.T) {
	saving(t, nil, func(c *console, f *folder) {
		c.press("x")
		c.sees("the Overview cannot be exported")
		c.press("g", "a", "enter", "x")
		c.sees("this page cannot be exported; press esc")
		c.press("esc", "x", "backspace", "backspace", "backspace", "backspace", "enter")
		c.sees(`the name of the file ends in "": end it in .csv, .json or .jsonl`)
		c.press("tab")
		c.seesNot("the name of the file ends")
		f.err = &queue.Error{Kind: queue.KindFailed, What: queue.Clean("the file exists"), Do: queue.Clean("choose another name")}
		c.press("enter")
		c.sees("export: the file exists: choose another name")
		c.press("g", "w", "x")
		c.sees("cannot be exported; qtop export hosts")
	})
	run(t, setup{}, func(c *console) {
		c.press("3", "x")
		c.sees("this console cannot write files")
	})
	s := newStore()
	saving(t, s, func(c *console, f *folder) {
		c.press("5", "enter")
		s.set(func(s *fakeStore) { s.err = context.DeadlineExceeded })
		c.press("x", "enter")
		c.sees("export: the database did not answer in time")
		require.Empty(t, f.names())
	})
}

func TestExportOfOneRow(t *testing.T) {
	e := &exporting{list: "dlq"}
	e.rows.Store(1)
	require.Equal(t, "exporting dlq… 1 row; esc cancels", e.status("…"))
	e.of = "40"
	require.Equal(t, "exporting dlq… 1 of 40 rows; esc cancels", e.status("…"))
	e.of = "1"
	require.Equal(t, "exporting dlq… 1 of 1 row; esc cancels", e.status("…"))
}
