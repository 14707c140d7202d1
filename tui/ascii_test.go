//go:build !race

package tui

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// With --ascii every frame is ASCII: every pane and page, and every menu,
// dialog, input line and message above it.
func TestEveryFrameInASCII(t *testing.T) {
	t.Parallel()
	for name, keys := range tours() {
		m := toured(newStore(), newHost(), Options{Actor: "anna", Profile: "Zoë", ASCII: true}, keys)
		require.Regexp(t, `^[\x00-\x7f]*$`, m.frame(), name)
		require.Regexp(t, `^[\x00-\x7f]*$`, m.View().WindowTitle, name)
		if len(m.over) > 0 {
			m.warn("监视 → 3×")
			m.keys("esc")
			require.Regexp(t, `^[\x00-\x7f]*$`, m.frame(), "%s, then esc", name)
		}
	}
}

// The stages of a dialog, the question before quitting and the menu in ASCII
// are compared with a golden file.
func TestASCIIDialogs(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	draw := func(name string, m *still) {
		box := strings.Join(m.over[len(m.over)-1].lines(m.overlayContext()), "\n")
		fmt.Fprintf(&out, "%s\n%s\n\n", name, ansi.Strip(m.env().Theme.Twins(box)))
	}
	open := func(keys ...string) (*still, *dialog) {
		m := toured(newStore(), newHost(), Options{Actor: "anna", ASCII: true}, keys)
		m.size.W, m.size.H = 80, 24
		d, _ := m.over[0].(*dialog)
		return m, d
	}
	m, _ := open("3", "A")
	draw("form", m)
	m, d := open("5", "R", "x", "enter")
	d.gate = keyGate{}
	draw("preview", m)
	d.stage = stageApplying
	draw("applying", m)
	d.finish(queue.Result{Done: 2, Skipped: 1, AuditID: 982, Results: []queue.Outcome{
		{ID: "90991", Outcome: "requeued", NewID: "400000"}, {ID: "90992", Outcome: "skipped", Why: queue.Clean("requeued already × 2 by Zoë")},
	}}, nil, m.o.Now())
	d.gate = keyGate{}
	draw("result", m)
	d.finish(queue.Result{Done: 1}, errors.New("the connection broke"), m.o.Now())
	d.gate = keyGate{}
	draw("unknown result", m)
	m, _ = open("0")
	draw("menu", m)
	path := filepath.Join("testdata", "dialogs-ascii.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String())
	require.Regexp(t, `^[\x00-\x7f]*$`, out.String())
}
