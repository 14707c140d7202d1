package tui

// This file is the mouse, off at the start, and the clipboard.

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
)

// mouse moves and looks; it never acts.
func (m *root) mouse(msg tea.MouseMsg) tea.Cmd {
	if len(m.over) > 0 || m.line.open() {
		return nil
	}
	switch e := msg.(type) {
	case tea.MouseWheelMsg:
		if e.Button == tea.MouseWheelUp {
			return m.move(-3)
		}
		if e.Button == tea.MouseWheelDown {
			return m.move(3)
		}
	case tea.MouseClickMsg:
		l := m.pane().top()
		screen, ok := views.Split(m.size.W, m.size.H, len(m.banners()))
		if !ok || l.table == nil {
			return nil
		}
		at := m.scene()
		y := e.Y - screen.Body.Y - len(at.above(m.size.W))
		if i, ok := l.grid.view().RowAt(at.env, at.tableSize(m.body()), y); ok {
			l.grid.place(i, m.rows)
		}
	}
	return nil
}

// copyMost is the longest text that terminals take by OSC 52.
const copyMost = 74_994

// copy puts the id under the cursor into the operator's clipboard.
func (m *deck) copy() tea.Cmd {
	switch strings.ToLower(m.o.Clipboard) {
	case "off", "never", "none", "false", "no":
		m.warn("copying is off: the setting clipboard forbids OSC 52")
		return nil
	}
	at := m.scene()
	id := at.subject()
	if f := at.pane.copies; f != nil && !at.level.aside {
		id = f(at)
	}
	id = views.Plain(id)
	switch {
	case id == "":
		m.warn("there is nothing under the cursor to copy")
		return nil
	case len(id) > copyMost:
		m.warn("that is too long for a terminal's clipboard")
		return nil
	}
	m.tell("sent to the clipboard: " + id + " (inside tmux this needs set-clipboard on)")
	return tea.SetClipboard(id)
}
