package table

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views/theme"
)

// In ASCII the mark of the sorted column is not read as a letter of its title, and a narrow column
// keeps it.
func TestMarkOfTheSortedColumn(t *testing.T) {
	plain := theme.Theme{Options: theme.Options{ASCII: true}}
	plain.G.Up, plain.G.Down, plain.G.Ellipsis = "^", "v", "~"
	for _, c := range []struct {
		desc bool
		w    int
		want string
	}{{true, 20, "state (desc)"}, {false, 20, "state (asc)"}, {true, 8, "state v"}, {false, 7, "state ^"}, {true, 5, "st~ v"}, {true, 2, " v"}} {
		require.Equal(t, c.want, Table{Desc: c.desc}.sorted(plain, "state", c.w))
	}
	signs := theme.Theme{}
	signs.G.Up, signs.G.Down, signs.G.Ellipsis = "↑", "↓", "…"
	require.Equal(t, "state↓", Table{Desc: true}.sorted(signs, "state", 6))
	require.Equal(t, "sta…↓", Table{Desc: true}.sorted(signs, "state", 5))
}
