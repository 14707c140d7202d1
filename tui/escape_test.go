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

// keyboard types bytes into a console that runs in real time.
type keyboard struct {
	t  *testing.T
	c  *console
	in *io.PipeWriter
}

// newKeyboard starts a console whose terminal sends bytes, and returns what
// types them.
func newKeyboard(t *testing.T) *keyboard {
	m := probed{newRoot(t.Context(), newStore(), nil, Options{Actor: "anna"}.withDefaults())}
	in, typed := io.Pipe()
	p := tea.NewProgram(m, tea.WithContext(t.Context()), tea.WithInput(in), tea.WithOutput(&bytes.Buffer{}), tea.WithWindowSize(100, 30), tea.WithoutSignalHandler(),
		tea.WithColorProfile(colorprofile.ANSI256), tea.WithEnvironment([]string{"TERM=xterm-256color"}))
	ended := make(chan error, 1)
	go func() { _, err := p.Run(); ended <- err }()
	t.Cleanup(func() {
		p.Kill()
		<-ended
		require.NoError(t, typed.Close())
	})
	return &keyboard{t, &console{p: p}, typed}
}

func (k *keyboard) until(what string, holds func(m *root) bool) {
	k.t.Helper()
	require.Eventually(k.t, func() (ok bool) {
		k.c.model(func(m *root) { ok = holds(m) })
		return ok
	}, 10*time.Second, 5*time.Millisecond, what)
}

func (k *keyboard) types(s string) {
	k.t.Helper()
	_, err := io.WriteString(k.in, s)
	require.NoError(k.t, err)
}

// A terminal sends esc as the byte ESC, the same byte that begins an escape
// sequence. ESC and ":" must close a filter and then open the command line,
// whether the two bytes arrive together or separately.
func TestEscThenColonAsBytes(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]string{"at once": {"\x1b:"}, "apart": {"\x1b", ":"}, "with words after it": {"\x1b:why x"}} {
		k := newKeyboard(t)
		k.types("2/state:stale")
		k.until(name, func(m *root) bool {
			return m.line.kind == promptFilter && m.line.input.Value() == "state:stale" && m.at == queue.PaneHealth
		})
		for i, piece := range pieces {
			k.types(piece)
			if i == 0 && len(pieces) > 1 {
				k.until(name, func(m *root) bool { return m.line.kind == promptNone })
			}
		}
		k.until(name, func(m *root) bool { return m.line.kind == promptCommand })
		words := strings.TrimPrefix(strings.Join(pieces, ""), "\x1b:")
		k.until(name, func(m *root) bool { return m.line.input.Value() == words })
		k.c.model(func(m *root) { require.Empty(t, m.pane().top().grid.text, name) })
	}
}

// ESC and a capital in one read do what the capital does after esc. All
// keys of actions are capitals; O, P, X and others also begin an escape
// sequence.
func TestEscThenACapitalAsBytes(t *testing.T) {
	t.Parallel()
	k := newKeyboard(t)
	type seen struct {
		over, row int
		said      string
	}
	look := func(m *root) seen { return seen{len(m.over), m.pane().top().grid.cursor, m.notice.text} }
	fresh := func(keys string) {
		k.c.model(func(m *root) {
			m.over, m.line, m.notice = nil, prompt{}, notice{}
			m.panes[queue.PaneDead].begin()
			m.open(queue.PaneDead)
			m.settle()
		})
		k.types(keys)
	}
	for r := 'A'; r <= 'Z'; r++ {
		fresh(string(r))
		k.until(string(r), func(m *root) bool { return look(m) != seen{} })
		var alone seen
		k.c.model(func(m *root) { alone = look(m) })
		fresh("/")
		k.until("the filter is open", func(m *root) bool { return m.line.kind == promptFilter })
		k.types("\x1b" + string(r))
		k.until("ESC and "+string(r), func(m *root) bool {
			return m.line.kind == promptNone && look(m) == alone
		})
	}
}

// ESC and a key that is no capital, in one read, are two keys also, except where
// the input has a meaning for the key with alt.
func TestEscThenAnotherKeyAsBytes(t *testing.T) {
	t.Parallel()
	at := func(m *root) *level { return m.pane().top() }
	for _, x := range []struct {
		name, before, keys string
		want               func(m *root) bool
	}{
		{"enter", "/abc", "\r", func(m *root) bool { return !m.line.open() && len(m.pane().levels) == 2 }},
		{"tab", "?", "\t", func(m *root) bool { return len(m.over) == 0 && m.at == queue.PaneOps }},
		{"shift+tab", "?", "\x1b[Z", func(m *root) bool { return len(m.over) == 0 && m.at == queue.PaneExecutors }},
		{"down", "?", "\x1b[B", func(m *root) bool { return len(m.over) == 0 && at(m).grid.cursor == 1 }},
		{"esc", "\r?", "\x1b", func(m *root) bool { return len(m.over) == 0 && len(m.pane().levels) == 1 }},
		{"ctrl+d", "?", "\x04", func(m *root) bool { return len(m.over) == 0 && at(m).grid.cursor > 0 }},
		{"space", "?", " ", func(m *root) bool { return len(m.over) == 0 && len(at(m).grid.selected) == 1 }},
		{"f", "0", "f", func(m *root) bool { return len(m.over) == 0 && strings.HasPrefix(m.notice.text, "f has no action") }},
		{"left in the menu", "0", "\x1b[D", func(m *root) bool { return len(m.over) == 0 }},
		{"left in a line", ":abc def", "\x1b[D", func(m *root) bool { return m.line.open() && m.line.input.Position() == 4 }},
		{"backspace in a line", ":abc def", "\x7f", func(m *root) bool { return m.line.input.Value() == "abc " }},
		{"b in a form", "Rabc def", "b", func(m *root) bool {
			d, ok := m.over[0].(*dialog)
			return ok && d.form[0].input.Position() == 4
		}},
	} {
		k := newKeyboard(t)
		k.types("5")
		k.until("rows", func(m *root) bool { return m.at == queue.PaneDead && len(at(m).grid.order) > 0 })
		k.types(x.before)
		k.until(x.name+": "+x.before, func(m *root) bool { return m.line.open() || len(m.over) > 0 })
		k.types("\x1b" + x.keys)
		k.until("ESC and "+x.name, x.want)
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
