package views_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// A message is cut only if it is longer than the line: the cost of the snapshot yields to it.
func TestMessageIsNotCutForTheCost(t *testing.T) {
	t.Parallel()
	e := env(theme.Options{})
	right := []string{"as of 02:14:07 · db 3.1 ms, every 1.2s", "db 3.1 ms, every 1.2s"}
	line := func(left string, bad bool) string {
		return ansi.Strip(views.Status{Left: left, Bad: bad, Right: right}.Line(e, 80))
	}
	require.Contains(t, line("12 rows", false), "as of 02:14:07")
	said := "open a dead letter first (enter); Z erases the payload of its event for good"
	require.Equal(t, " ▲ "+said+" ", line(said, true))
	require.Equal(t, " "+said+"   ", line(said, false))
	require.NotContains(t, line(said+said, true), "db", "a message that no line holds gets the whole line")
	require.Contains(t, line(said+said, false), "… db 3.1 ms", "a position does not")
}

// A message that is longer than the line goes on over the end of the body, so that its remedy can be read.
func TestLongMessageIsWhole(t *testing.T) {
	t.Parallel()
	said := "login web_console lacks a right: permission denied for function fn_queue_flag_set (SQLSTATE 42501): the role app_console, with whose rights the login works, needs the role workflow_admin; " +
		"as the login that ran migrate up: GRANT workflow_admin TO app_console, which gives it to all its members"
	for _, size := range []views.Size{{W: 60, H: 15}, {W: 80, H: 24}, {W: 200, H: 60}} {
		for _, o := range []theme.Options{{}, {Depth: theme.Mono, ASCII: true}} {
			e := env(o)
			draw := func(st views.Status) []string {
				body := func(s views.Size) []string { return slices.Repeat([]string{"row"}, s.H) }
				lines := strings.Split(ansi.Strip(views.Screen{Status: st, Hints: []views.Hint{{Key: "q", Word: "quit"}}}.Draw(e, size, body)), "\n")
				require.Len(t, lines, size.H)
				for _, line := range lines {
					require.Equal(t, size.W, theme.Width(line), line)
				}
				return lines
			}
			for _, bad := range []bool{true, false} {
				lines := draw(views.Status{Left: said, Bad: bad, Message: true, Right: []string{"db 3.1 ms"}})
				require.Contains(t, strings.Join(strings.Fields(strings.Join(lines, " ")), " "), said)
				require.Contains(t, lines[size.H-1], "q quit")
				require.Equal(t, "row", strings.TrimSpace(lines[2]), "the body is not moved")
			}
			lines := draw(views.Status{Left: said, Right: []string{"db 3.1 ms"}})
			require.Equal(t, "row", strings.TrimSpace(lines[size.H-3]), "a position stays in its line")
			lines = draw(views.Status{Left: strings.Repeat(said+" ", 40), Bad: true, Message: true})
			require.Contains(t, lines[size.H-1], "q quit")
		}
	}
}

// The reason why a table could not be read is whole at every width.
func TestMissingReasonIsWhole(t *testing.T) {
	t.Parallel()
	why := "login web_console lacks a right: permission denied for function fn_queue_picture: the login needs one of the roles dead_letter_operator, queue_viewer, workflow_admin; " +
		"as the login that ran migrate up: GRANT one of them TO web_console"
	s := queue.Snapshot{Missing: map[string]queue.Text{"all": queue.Clean(why)}}
	for _, size := range []views.Size{{W: 60, H: 11}, {W: 80, H: 20}, {W: 200, H: 56}} {
		for name, lines := range map[string][]string{
			"overview": views.Overview(views.OverviewState{Snapshot: &s}, env(theme.Options{}), size).Lines,
			"table":    views.Grid{Source: views.Health(&s)}.Lines(env(theme.Options{}), size),
		} {
			text := strings.Join(strings.Fields(ansi.Strip(strings.Join(lines, " "))), " ")
			require.Contains(t, text, why, "%s at %d columns", name, size.W)
			require.LessOrEqual(t, len(lines), size.H)
		}
	}
}
