package tui

// The two lowest lines of the screen: the status line (a
// message or the position, and what the snapshot cost) and the key hints.

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// status returns the status line: while a line is typed, that line; else the
// message; else the progress of the export; else the position.
func (m *root) status() views.Status {
	s := views.Status{Production: m.production() != "", Right: m.cost()}
	switch {
	case m.line.open():
		s.Left, _ = m.line.shown(m.display.theme.G, m.lineRoom())
		if l := m.pane().top(); m.line.kind == promptFilter && l.page == nil {
			s.Right = []string{m.rowCount(l)}
		}
	case m.chord:
		s.Left = "g" + m.display.theme.G.Ellipsis
	case m.notice.text != "":
		s.Left, s.Bad, s.Message = m.notice.shown(), m.notice.bad, true
	case m.saving != nil:
		s.Left = m.saving.status(m.display.theme.G.Ellipsis)
	default:
		s.Left = m.position()
	}
	return s
}

// chordHints returns the keys that can follow g; such a sequence of two keys
// is a chord.
func chordHints() []views.Hint {
	hints := []views.Hint{{Key: "g", Word: "first row"}}
	for _, p := range Panes() {
		if k, ok := strings.CutPrefix(p.Keys, "g"); ok {
			hints = append(hints, views.Hint{Key: k, Word: strings.ToLower(cmp.Or(p.Short, p.Title))})
		}
	}
	return hints
}

// shown returns the input line with its caret, in at most w cells. A longer
// text is cut on the left until its caret is visible, and then on the right.
// moved is by how many cells the typed text is drawn further to the left than
// if it were not cut.
func (p prompt) shown(g theme.Glyphs, w int) (line string, moved int) {
	r := []rune(p.input.Value())
	at := min(p.input.Position(), len(r))
	before, after := r[:at], string(r[at:])
	room := max(w-cells(p.prefix()), 8)
	width := func() int { return cells(string(before)) + cells(g.Caret) }
	mark, whole := "", width()
	tail := min(cells(after), cells(g.Ellipsis))
	for len(before) > 0 && cells(mark)+width()+tail > room {
		before, mark = before[1:], g.Ellipsis
	}
	moved = whole - width() - cells(mark)
	return p.prefix() + ansi.Truncate(mark+string(before)+g.Caret+after, room, g.Ellipsis), moved
}

// hints returns the keys of this pane, actions first.
func (m *root) hints() []views.Hint {
	if len(m.over) > 0 { // the overlay has its own keys; those of the pane do nothing now
		return []views.Hint{{Key: "esc", Word: "close", Keep: true}}
	}
	if m.line.open() {
		return m.lineHints()
	}
	if m.chord {
		return chordHints()
	}
	var hints []views.Hint
	seen := map[string]bool{}
	for _, a := range m.actions {
		if a.Key == "" || seen[a.Key] || !worksIn(a, m.at) {
			continue
		}
		b, _ := m.actionFor(a.Key)
		seen[a.Key] = true
		if m.scene().acting().elsewhere(b.ID) != "" {
			continue
		}
		hints = append(hints, views.Hint{Key: b.Key, Word: b.Word(), Off: m.off(b) != "" || m.offHere(b) != "", Acts: true})
	}
	l := m.pane().top()
	switch {
	case l.board != nil:
		hints = append(hints, views.Hint{Key: "enter", Word: "open"})
	case l.page != nil:
		hints = append(hints, views.Hint{Key: "/", Word: "search"})
	default:
		if l.grid.selected != nil {
			hints = append(hints, views.Hint{Key: "space", Word: "select"})
		}
		hints = append(hints, views.Hint{Key: "enter", Word: "open"}, views.Hint{Key: "/", Word: "filter"})
		if len(l.grid.src.Sorts) > 1 {
			hints = append(hints, views.Hint{Key: "o", Word: "order"})
		}
		if m.o.Save != nil && l.grid.src.Export != nil {
			hints = append(hints, views.Hint{Key: "x", Word: "export"})
		}
	}
	pause := "pause"
	if m.feed.past.live != nil {
		pause = "now"
	} else if m.feed.paused {
		pause = "resume"
	}
	hints = append(hints, views.Hint{Key: "p", Word: pause})
	if len(m.pane().levels) > 1 || m.at != home() {
		hints = append(hints, views.Hint{Key: "esc", Word: "back", Keep: true})
	}
	return append(hints, views.Hint{Key: "?", Word: "help", Keep: true}, views.Hint{Key: ":", Word: "command", Keep: true}, views.Hint{Key: "q", Word: "quit", Keep: true})
}

// problem returns the error of the typed line, and the cell of the screen at
// which to mark it; cell -1: the error concerns the whole line. The typed text
// begins in cell 2, after a blank and the prompt character.
func (m *root) problem() views.Problem {
	p := m.line
	if p.column == 0 {
		return views.Problem{Cell: -1, Text: p.problem}
	}
	text, at := p.input.Value(), caretCell(p.input.Value(), p.column)
	if p.column > p.input.Position() && p.column <= utf8.RuneCountInString(text) {
		at += cells(m.display.theme.G.Caret)
	}
	_, moved := p.shown(m.display.theme.G, m.lineRoom())
	return views.Problem{Cell: 2 + max(at-moved, 0), Text: p.problem}
}

// lineRoom returns how many cells of the status line the input line can have.
func (m *root) lineRoom() int { return m.size.W - 2 }

// lineHints returns the hints below the input line: its keys and the completions.
func (m *root) lineHints() []views.Hint {
	p := m.line
	if p.kind == promptCommand {
		offers := p.offers
		if offers == nil {
			offers = m.offers(p.input.Value())
		}
		hints := []views.Hint{{Key: "tab", Word: "complete:"}}
		for i, o := range offers {
			if i >= 12 {
				break
			}
			hints = append(hints, views.Hint{Word: views.Plain(o)})
		}
		return hints
	}
	if p.kind == promptExport {
		return []views.Hint{{Key: "enter", Word: "write file"}, {Key: "esc", Word: "cancel"}, {Key: "tab", Word: "csv, json, jsonl"}}
	}
	hints := []views.Hint{{Key: "enter", Word: "apply"}, {Key: "esc", Word: "cancel"}}
	if m.pane().top().page != nil {
		return hints
	}
	hints = append(hints, views.Hint{Key: "tab", Word: "complete:"})
	for _, f := range m.pane().top().grid.src.Fields {
		hints = append(hints, views.Hint{Word: f.Name})
	}
	return hints
}
