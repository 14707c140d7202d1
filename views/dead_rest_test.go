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

// Health counts the dead letters that are in none of its rows.
func TestHealthCountsTheDeadLettersItLacks(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	require.Empty(t, views.Health(&s).Note, "all groups are in the snapshot")
	s.DeadMore = queue.DeadMore{Groups: 900, Open: 70_000}
	rows := []queue.HealthRow{}
	for i, g := range s.DeadGroups {
		open := g.Open + int64(queue.Choose(i == 0, 69_990, 0))
		rows = append(rows, queue.HealthRow{Source: queue.Clean("dead_letter_" + g.Source), Subject: g.Code, DeadLettered: &open})
	}
	other := int64(1_000)
	s.Health = append(rows, queue.HealthRow{Source: queue.Clean("cursor"), Subject: queue.Clean("iu"), DeadLettered: &other})
	require.Equal(t, "the rows of 10 dead letters; pane 5 lists all", views.Health(&s).Note)
	s.DeadMore.Open = 69_990
	require.Empty(t, views.Health(&s).Note, "every dead letter is in a row")
}

// The Overview counts the groups that the snapshot leaves out, like pane 5, `qtop status` and
// --accessible.
func TestOverviewCountsTheOtherGroups(t *testing.T) {
	t.Parallel()
	s := viewstest.Rich()
	for _, c := range []struct {
		bound bool
		sign  string
	}{{false, `\+`}, {true, "≥"}} {
		s.DeadMore = queue.DeadMore{Groups: 4980, GroupsBound: c.bound, Open: 70_000}
		for _, size := range []views.Size{{W: 80, H: 24}, {W: 120, H: 40}, {W: 200, H: 60}} {
			v := views.Overview(views.OverviewState{Snapshot: &s}, env(theme.Options{}), size)
			shown := int64(0)
			for _, target := range v.Targets {
				shown += queue.Choose[int64](target.Pane == queue.PaneDead, 1, 0)
			}
			more := views.Count(int64(len(s.DeadGroups)) - shown + 4980)
			require.Regexp(t, "DEAD +"+c.sign+more+`\b`, ansi.Strip(strings.Join(v.Lines, "\n")), size)
		}
	}
}

// The code of an attempt is shown whole, with a blank after it, however long it is and however narrow the screen.
func TestAttemptShowsItsCodeWhole(t *testing.T) {
	for _, code := range []string{"DNS", "CONNECTION_REFUSED", strings.Repeat("LONG_CODE_", 4)} {
		d := viewstest.Detail()
		d.Attempts[1].Code = queue.Clean(code)
		for w := 50; w <= 200; w += 7 {
			text := ansi.Strip(strings.Join(views.DeadLetterPage(d.DeadLetter, &d, env(theme.Options{}), w).Lines, "\n"))
			require.Regexp(t, `\b`+code+`( +took|\n +took)`, text, "%s at %d", code, w)
			require.Contains(t, text, "00:11:57", "an attempt has its full time")
			require.NotContains(t, text, "+1m")
		}
	}
}
