package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"
)

// While the terminal is too small to show what is open, no key and no paste goes to it: q quits, as
// the screen says, esc closes, and a dialog is as it was when the terminal is large again.
func TestKeysAreNotBlindInATooSmallTerminal(t *testing.T) {
	open := func(keys ...string) *still {
		m := newStill(newStore(), newHost(), Options{Actor: "anna"})
		m.keys(keys...)
		m.send(tea.WindowSizeMsg{Width: 40, Height: 10})
		return m
	}
	large := tea.WindowSizeMsg{Width: 120, Height: 40}

	m := open("5", "R")
	require.Contains(t, m.frame(), "q quits")
	m.keys("x", "enter", "tab")
	m.send(tea.PasteMsg{Content: "pasted"})
	m.send(large)
	d := m.over[0].(*dialog)
	require.Equal(t, stageForm, d.stage)
	require.Empty(t, d.form[0].value())
	m.send(tea.WindowSizeMsg{Width: 40, Height: 10})
	m.keys("esc")
	require.Empty(t, m.over)

	m = open(":")
	m.keys("x")
	require.Empty(t, m.line.input.Value())
	m.keys("esc")
	require.False(t, m.line.open())
	m = open("5", "enter", "/", "c", "o", "d", "e", "enter", "space")
	m.keys("esc", "esc", "esc", "esc")
	m.send(large)
	require.Len(t, m.pane().levels, 2, "without a dialog esc takes back nothing that is not seen")
	require.Equal(t, "code", m.pane().top().grid.text)
	require.Len(t, m.pane().top().grid.selected, 1)

	m = open()
	m.keys("5", "R", "j", "/", "?")
	require.Equal(t, home(), m.at)
	require.Empty(t, m.over)

	for _, keys := range [][]string{{"5", "R"}, {":"}, {}} {
		m = open(keys...)
		_, cmd := m.Update(keyOf("q"))
		require.True(t, m.shutdown.draining, "loops run: they are drained")
		require.NotNil(t, cmd)
		m.keys("q")
		require.False(t, m.shutdown.forced, "q again does not hand back")
		m.host = nil
		m.local = nil
		m.shutdown.draining = false
		require.NotNil(t, m.key(keyOf("q")))
	}
}

// A terminal that reports no size, such as a serial console, shows nothing: no key acts there either.
func TestKeysAreNotBlindWithoutASize(t *testing.T) {
	m := newStill(newStore(), newHost(), Options{Actor: "anna"})
	m.send(tea.WindowSizeMsg{})
	m.keys("5", "R", "x", "enter", ":")
	require.Equal(t, home(), m.at)
	require.Empty(t, m.over)
	require.False(t, m.line.open())
	_, cmd := m.Update(keyOf("q"))
	require.True(t, m.shutdown.draining)
	require.NotNil(t, cmd)
}
