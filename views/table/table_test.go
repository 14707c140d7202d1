package table_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

func columns() []table.Column {
	return []table.Column{
		{Title: "name", Width: 10, Max: 20}, {Title: "size", Width: 6, Right: true, Drop: 1}, {Title: "why", Width: 10, Max: 30, Drop: 2},
	}
}

func TestColumnsDropByPriority(t *testing.T) {
	t.Parallel()
	for avail, want := range map[int][]int{
		30:  {10, 6, 10},
		32:  {11, 6, 11},
		29:  {11, 6, 0}, // "why" is left out first, and the others grow
		17:  {17, 0, 0},
		5:   {5, 0, 0},
		0:   {0, 0, 0},
		-4:  {0, 0, 0},
		300: {20, 6, 30},
	} {
		got := table.Widths(columns(), avail)
		if avail == 29 {
			want = []int{20, 6, 0}
		}
		require.Equal(t, want, got, "avail %d", avail)
	}
}

func TestOnlyVisibleRowsAreAskedFor(t *testing.T) {
	t.Parallel()
	asked := 0
	tb := table.Table{Columns: columns(), N: 100_000, Offset: 99_000, Cursor: 99_001, Row: func(i int) table.Row {
		asked++
		return table.Row{Cells: []table.Cell{{Text: fmt.Sprint("row ", i)}, {Text: "12"}, {Text: "漢字"}}}
	}}
	lines := tb.Lines(theme.New(theme.Options{}), 60, 20)
	require.Len(t, lines, 20)
	require.Equal(t, 19, asked)
	require.Contains(t, lines[2], "row 99001")
	for _, l := range lines {
		require.Equal(t, 60, theme.Width(l))
	}
	require.True(t, strings.HasPrefix(lines[1], " "), "%q", lines[1])
}

func BenchmarkLines(b *testing.B) {
	th := theme.New(theme.Options{Depth: theme.Rich})
	tb := table.Table{Columns: columns(), N: 100_000, Cursor: 5, Row: func(i int) table.Row {
		return table.Row{Cells: []table.Cell{{Text: "iu_outbound_default", Style: th.Strong}, {Text: "12"}, {Text: "some words", Style: th.Dim}}}
	}}
	for b.Loop() {
		tb.Lines(th, 200, 56)
	}
}

// In a short table a column whose texts are cut gets cells that other columns do not need. Columns
// of numbers and those whose texts change by themselves keep their width, and a long table, of
// which only some rows are visible, keeps all widths.
func TestColumnsLendCellsToCutTexts(t *testing.T) {
	t.Parallel()
	th := theme.New(theme.Options{})
	name, reason := "queue.heartbeat.stale_threshold", "a long reason that is cut"
	lines := func(n int, lively bool) string {
		tb := table.Table{Fit: true, N: n, Cursor: -1, Sorted: -1, Columns: []table.Column{
			{Title: "flag", Width: 20}, {Title: "value", Width: 7, Right: true}, {Title: "state", Width: 14, Lively: lively}, {Title: "reason", Width: 12},
		}, Row: func(int) table.Row {
			return table.Row{Cells: []table.Cell{{Text: name}, {Text: "1"}, {Text: "off"}, {Text: reason}}}
		}}
		all := tb.Lines(th, 63, 3)
		for _, l := range all {
			require.Equal(t, 63, theme.Width(l))
		}
		return ansi.Strip(all[0] + "\n" + all[1])
	}
	// 8 of the 14 cells of "state" are free: its title and the arrow of a sorted column take 6.
	require.Equal(t, "   flag                            value  state   reason       \n"+
		"   queue.heartbeat.stale_thres…        1  off     a long reas… ", lines(200, false))
	cut := "   flag                    value  state           reason       \n" +
		"   queue.heartbeat.sta…        1  off             a long reas… "
	require.Equal(t, cut, lines(200, true))
	require.Equal(t, cut, lines(201, false))
}

// The end of a text that distinguishes it from others stays when the text is cut.
func TestCutCellKeepsItsTail(t *testing.T) {
	t.Parallel()
	line := func(w int, c table.Cell) string {
		tb := table.Table{N: 1, Cursor: -1, Headless: true, Columns: []table.Column{{Width: w}}, Row: func(int) table.Row { return table.Row{Cells: []table.Cell{c}} }}
		return strings.TrimSpace(tb.Lines(theme.New(theme.Options{}), w+4, 1)[0])
	}
	endpoint := table.Cell{Text: "hooks.initech.example #1003", Tail: " #1003"}
	require.Equal(t, "hooks.initech.example #1003", line(27, endpoint))
	require.Equal(t, "hooks.initech.… #1003", line(21, endpoint))
	require.Equal(t, "hooks.init…", line(11, endpoint), "no room for both")
	require.Equal(t, "hooks.initech.exampl…", line(21, table.Cell{Text: "hooks.initech.example #1003", Tail: " #4"}), "not its end")
}

// A number that does not fit is shortened, not cut: of 1,204,8… nobody knows how large it is.
func TestNumbersAreNotCut(t *testing.T) {
	t.Parallel()
	th := theme.New(theme.Options{})
	for text, want := range map[string]string{
		"204,812": " 204,812", "1,204,812": "    1.2M", "≥1,000,000": "   ≥1.0M", "-1,204,812": "   -1.2M", "123456789012": "1234567…", "1,204,812 rows": "1,204,8…", "a,b,c,d,e": "a,b,c,d…",
	} {
		tb := table.Table{
			Columns: []table.Column{{Title: "open", Width: 8, Right: true}}, N: 1, Cursor: -1, Sorted: -1, Headless: true,
			Row: func(int) table.Row { return table.Row{Cells: []table.Cell{{Text: text}}} },
		}
		require.Equal(t, "   "+want+" ", ansi.Strip(tb.Lines(th, 12, 1)[0]), text)
	}
}
