package tui

// Key / opens the input line for the filter of a table, or for the search text
// of a page. If all rows are loaded, the filter is applied at every key press;
// a filter that the database applies is sent on enter.

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

func (m *root) openFilter() {
	l := m.pane().top()
	if l.board != nil {
		m.warn("the Overview has no filter; open another pane and press / there")
		return
	}
	was := queue.Choose(l.page != nil, l.find, l.grid.text)
	in := newInput(was)
	if l.page == nil && in.Value() != "" { // with a blank after the old filter, another term can be typed at once
		in.SetValue(in.Value() + " ")
		in.CursorEnd()
	}
	m.line = prompt{kind: promptFilter, input: in, was: was, row: l.grid.at, offset: l.offset, list: l.list, history: m.line.history}
}

// takeBack restores what was before the filter p was typed: the filter, the loaded rows, and the row under the
// cursor or the lines of the page. A new read has the first rows alone, and the cursor may have been on a later one.
func (m *root) takeBack(p prompt) (cmd tea.Cmd) {
	l := m.pane().top()
	switch {
	case l.page != nil || !l.list.queried() || !p.list.read:
		cmd = m.setFilter(p.was)
	case l.refilter(p.was) || p.applied: // also a filter that was typed and deleted has dropped the rows
		l.list.cancel()
		l.list = p.list
		l.list.reading, l.list.stop = 0, nil // the typed filter has cancelled that read
		m.settle()
		cmd = tea.Batch(m.reread(true)...)
	}
	m.returnTo(p.row, p.offset)
	return cmd
}

// returnTo puts the cursor on the row, or scrolls the page to the line, where it was before the filter was typed.
func (m *root) returnTo(row string, offset int) {
	switch l := m.pane().top(); {
	case l.page != nil:
		l.scrollTo(offset, m.pageRows(l))
	case row != "" && !l.grid.jump(row, m.rows) && l.list.queried() && !l.list.read: // the row comes with the read
		l.grid.at = row
	}
}

// filtersLive reports whether the open level applies its filter at every key
// press.
func filtersLive(p *pane) bool { return !p.top().isNested() && !p.filterOnEnter }

// typed gives a key or a paste to the open input line.
func (m *root) typed(msg tea.Msg) tea.Cmd {
	s := pressed(msg)
	switch m.line.kind {
	case promptCommand:
		return m.typedCommand(msg, s)
	case promptExport:
		return m.typedExport(msg, s)
	case promptFilter, promptNone:
	}
	switch s {
	case "esc":
		p := m.line
		m.line.close()
		return m.takeBack(p)
	case "enter":
		text := m.line.input.Value()
		if !m.checkFilter(text) {
			return nil
		}
		m.line.close()
		return m.setFilter(text)
	case "tab", "shift+tab":
		if m.line.offers == nil {
			l := m.pane().top()
			m.line.offers, m.line.offer = queue.CompleteFilter(m.line.input.Value(), m.line.input.Position(), l.grid.src.Fields), -1
		}
		m.offerNext(s == "tab")
	default:
		m.line.input, m.line.offers = edit(m.line.input, msg, oneLine), nil
	}
	text := m.line.input.Value()
	if p := m.pane(); m.checkFilter(text) && (filtersLive(p) || p.top().page != nil) {
		m.line.applied = true
		cmd := m.setFilter(text)
		if l := p.top(); l.page == nil && !l.list.queried() && m.line.row != "" {
			l.grid.jump(m.line.row, m.rows) // while the last word was incomplete, the filter may have hidden this row
		}
		return cmd
	}
	return nil
}

// checkFilter reports whether the typed filter is valid. If not, it stores the
// error for the footer.
func (m *root) checkFilter(text string) bool {
	m.line.column, m.line.problem = 0, ""
	l := m.pane().top()
	if l.page != nil || strings.TrimSpace(text) == "" {
		return true
	}
	_, err := queue.ParseFilter(text, l.grid.src.Fields)
	if err == nil {
		return true
	}
	m.line.column, m.line.problem = filterProblem(err)
	return false
}

// caretCell returns the terminal cell at which the rune of this column begins.
// Columns count runes from 1; a rune may be two cells wide.
func caretCell(text string, column int) int {
	n := 0
	for i := range text {
		if n++; n >= column {
			return cells(text[:i])
		}
	}
	return cells(text) + max(column-1-utf8.RuneCountInString(text), 0)
}
