package views_test

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
	"github.com/qtop/qtop/views/viewstest"
)

// The check for plurals finds them, and nothing else.
func TestPlurals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 dead letters": "1 dead letters", "of the last 1 attempts succeeded": "1 attempts succeeded", "+1 more rows": "1 more rows", "1 wait; x": "1 wait",
		"1 job waits": "", "1 is off": "", "11 jobs": "", "1.1 jobs": "", "1 live executor, 2 rows": "", "1 of them": "",
	} {
		require.Equal(t, want, strings.Join(viewstest.Plurals(text), ";"), text)
	}
}

// No pane and no page writes the plural after a 1, and neither does --accessible.
func TestOneIsSingular(t *testing.T) {
	t.Parallel()
	w := viewstest.OneOfEach()
	for name, body := range bodies(w) {
		lines := ansi.Strip(strings.Join(body(env(theme.Options{}), views.Size{W: 200, H: 400}), "\n"))
		require.Empty(t, viewstest.Plurals(lines), name)
	}
	require.Empty(t, viewstest.Plurals(plainText(views.PlainLines(&w.Snapshot, env(theme.Options{})))))
	dialog := dialogOf(strings.Repeat("x ", 400))
	for h := range 60 {
		require.Empty(t, viewstest.Plurals(ansi.Strip(strings.Join(dialog.Lines(env(theme.Options{}), views.Size{W: 80, H: h}), "\n"))))
	}
}
