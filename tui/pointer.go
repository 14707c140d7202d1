package tui

// The mouse, which is off by default, and the clipboard (key y).

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
)

// mouse handles the wheel and clicks. They move the cursor and never start an
// action.
func (m *root) mouse(msg tea.MouseMsg) tea.Cmd {
	if len(m.over) > 0 || m.line.open() || m.tooSmall() {
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
		if !ok {
			return nil
		}
		at := m.scene()
		if l.board != nil {
			board := l.board(at, m.body(), l.cursor)
			if row, ok := board.RowAt(e.X-screen.Body.X, e.Y-screen.Body.Y); ok {
				m.placeOnBoard(l, board, row)
			}
			return nil
		}
		if l.table == nil {
			return nil
		}
		y := e.Y - screen.Body.Y - len(at.above(m.size.W))
		if i, ok := l.grid.view().RowAt(at.env, at.tableSize(m.body()), y); ok {
			l.grid.place(i, m.rows)
			return m.more()
		}
	}
	return nil
}

// copyMost is the longest text, in bytes, that common terminals accept by OSC
// 52, the escape sequence that sets the clipboard.
const copyMost = 74_994

// copy copies the id under the cursor (or pane.copyText) to the clipboard of
// the operator's terminal, by OSC 52.
func (m *deck) copy() tea.Cmd {
	switch strings.ToLower(m.o.Clipboard) {
	case "off", "never", "none", "false", "no":
		m.warn("copying is off: the setting clipboard is false")
		return nil
	}
	at := m.scene()
	id := at.subject()
	if f := at.pane.copyText; f != nil && !at.level.isWhy {
		id = f(at)
	}
	id = views.Plain(id)
	switch {
	case id == "":
		m.warn("there is nothing under the cursor to copy")
		return nil
	case len(id) > copyMost:
		m.warn("this id is too long for the clipboard of a terminal")
		return nil
	}
	m.inform("sent to the clipboard: " + id + " (inside tmux this needs set-clipboard on)")
	return tea.SetClipboard(id)
}
