package tui

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A terminal sends esc as the byte ESC, the same byte that begins an escape
// sequence. ESC and ":" must close a filter and then open the command line,
// whether the two bytes arrive together or separately.
func TestEscThenColonAsBytes(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]string{"at once": {"\x1b:"}, "apart": {"\x1b", ":"}, "with words after it": {"\x1b:why x"}} {
		m := probed{newRoot(t.Context(), newStore(), nil, Options{Actor: "anna"}.withDefaults())}
		in, keyboard := io.Pipe()
		p := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithInput(in), tea.WithOutput(&bytes.Buffer{}), tea.WithWindowSize(100, 30), tea.WithoutSignalHandler(),
			tea.WithColorProfile(colorprofile.ANSI256), tea.WithEnvironment([]string{"TERM=xterm-256color"}))
		ended := make(chan error, 1)
		go func() { _, err := p.Run(); ended <- err }()
		c := &console{p: p}
		until := func(holds func(m *root) bool) {
			t.Helper()
			require.Eventually(t, func() (ok bool) {
				c.model(func(m *root) { ok = holds(m) })
				return ok
			}, 20*time.Second, 5*time.Millisecond, name)
		}
		typed := func(s string) {
			_, err := io.WriteString(keyboard, s)
			require.NoError(t, err)
		}
		typed("2/state:stale")
		until(func(m *root) bool {
			return m.line.kind == promptFilter && m.line.input.Value() == "state:stale" && m.at == queue.PaneHealth
		})
		for i, piece := range pieces {
			typed(piece)
			if i == 0 && len(pieces) > 1 {
				until(func(m *root) bool { return m.line.kind == promptNone })
			}
		}
		until(func(m *root) bool { return m.line.kind == promptCommand })
		words := strings.TrimPrefix(strings.Join(pieces, ""), "\x1b:")
		until(func(m *root) bool { return m.line.input.Value() == words })
		c.model(func(m *root) { require.Empty(t, m.pane().top().grid.text, name) })
		p.Kill()
		<-ended
		require.NoError(t, keyboard.Close())
	}
}

// The message that ctrl+a is refused in this pane ends with the next key, so
// it is gone when a dialog opens.
func TestRefusalOfSelectAllEndsWithTheNextKey(t *testing.T) {
	run(t, setup{w: 120, h: 40}, func(c *console) {
		c.press("2", "ctrl+a") // these rows cannot be selected
		var refusal string
		c.model(func(m *root) { refusal = m.notice.text })
		require.NotEmpty(t, refusal)
		refusal = refusal[:min(len(refusal), 20)] // the line may be cut
		c.sees(refusal)
		c.press("5", "R")
		require.Equal(t, 1, c.overlays())
		c.seesNot(refusal)
		c.press("esc", "?")
		c.seesNot(refusal)
	})
}
