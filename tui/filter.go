package tui

// This file is the filter that stands: set, dropped, looked through with n.

import (
	"errors"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// setFilter puts a filter that was checked to work.
func (m *deck) setFilter(text string) tea.Cmd {
	l := m.pane().top()
	text = strings.TrimSpace(text)
	if l.page != nil {
		l.find = text
		if text != "" {
			m.findFrom(l, l.offset)
		}
		return nil
	}
	changed := l.grid.text != text
	l.grid.text, l.grid.filter = text, nil
	if changed {
		l.grid.clear()
	}
	if l.list.asks() {
		if changed {
			l.list.refilter(text)
			l.grid.at, l.grid.gone, l.grid.cursor = "", false, 0
			m.settle()
			return m.read(l)
		}
		return nil
	}
	if text != "" {
		f, err := queue.ParseFilter(text, l.grid.src.Fields)
		if err != nil {
			_, problem := filterProblem(err)
			m.warn("filter: " + problem)
			l.grid.text = ""
			return nil
		}
		l.grid.filter = f
	}
	m.settle()
	if l.grid.gone { // the row is hidden, not gone: take the first that shows
		l.grid.at, l.grid.gone, l.grid.cursor = "", false, 0
		m.settle()
	}
	return nil
}

// clearFilter drops the filter of a level that is left.
func (m *deck) clearFilter(l *level) {
	if l.grid.text == "" {
		return
	}
	l.grid.text, l.grid.filter = "", nil
	if l.list.asks() {
		l.list.refilter("")
	}
}

// nextMatch is n: the next line of a page with the words that are looked for,
// the next row of a table that passes its filter.
func (m *deck) nextMatch() {
	l := m.pane().top()
	switch {
	case l.page != nil && l.find != "":
		m.findFrom(l, l.offset+1)
	case l.page != nil || l.grid.text == "":
		m.warn("there is nothing to look for; / says what")
	default:
		l.grid.next(func(int) bool { return true }, m.rows)
	}
}

// findFrom scrolls a page to the next line with the words, around its end.
func (m *deck) findFrom(l *level, from int) {
	lines := l.built.Lines
	for d := range lines {
		i := (from + d) % len(lines)
		if l.built.Has(i, l.find) {
			l.scrollTo(i, m.body().H)
			return
		}
	}
	m.warn("no line has " + l.find)
}

// filterProblem is where and what: errors point at the column.
func filterProblem(err error) (column int, text string) {
	var fe *queue.FilterError
	if !errors.As(err, &fe) {
		return 1, why(err)
	}
	text = clean(fe.What)
	if do := clean(fe.Do); do != "" {
		text += "; " + do
	}
	return max(fe.Column, 1), text
}
