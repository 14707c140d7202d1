package views_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// If a snapshot leaves groups out, the pane has a last row that counts them.
// It is not exported and has no times.
func TestRowOfTheOtherGroups(t *testing.T) {
	s := viewstest.Rich()
	s.DeadMore = queue.DeadMore{Groups: 3, Open: 70}
	src := views.DeadPane(&s)
	require.Equal(t, len(s.DeadGroups)+1, src.Len)
	all := make([]int, src.Len)
	for i := range all {
		all[i] = i
	}
	rows, err := json.Marshal(src.Exported("dlq-groups", all))
	require.NoError(t, err)
	require.Contains(t, string(rows), s.DeadGroups[0].Code.String())
	require.NotContains(t, string(rows), "other groups")
	first, _ := src.Field(src.Len-1, "age")
	require.Nil(t, first)
	line := views.Grid{Source: src, Order: []int{src.Len - 1}, Cursor: -1, Sort: -1}.Lines(env(theme.Options{}), views.Size{W: 120, H: 4})
	require.Regexp(t, `other groups .* 70 +– +– `, ansi.Strip(strings.Join(line, "\n")))
}
