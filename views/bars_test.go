package views_test

import (
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

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
