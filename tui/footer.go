package tui

// This file is the two lowest lines: what was said, where the cursor is, what
// the console costs; and the keys of this pane.

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

func cells(s string) int { return ansi.StringWidth(s) }

func containsLine(line, words string) bool { return views.Contains(line, words) }

func (m *root) status() views.Status {
	s := views.Status{Production: m.o.Production != "", Right: m.cost()}
	switch {
	case m.line.open():
		s.Left = m.line.shown(m.look.theme.G.Caret)
		if l := m.pane().top(); m.line.kind == promptFilter && l.page == nil {
			s.Right = []string{m.counted(l)}
		}
	case m.chord:
		s.Left = chordHint(m.look.theme.G.Ellipsis)
	case m.said.text != "":
		s.Left, s.Bad = m.said.text, m.said.bad
	case m.saving != nil:
		s.Left = m.exportStatus()
	default:
		s.Left = m.where()
	}
	return s
}

// chordHint is what can follow g.
func chordHint(ellipsis string) string {
	s := "g" + ellipsis
	for _, p := range queue.Panes() {
		if k, ok := strings.CutPrefix(p.Keys, "g"); ok {
			s += "  " + k + " " + strings.ToLower(p.Title)
		}
	}
	return s + "  g first row"
}

// shown is the line with its caret.
func (p prompt) shown(caret string) string {
	r := []rune(p.input.Value())
	at := min(p.input.Position(), len(r))
	return p.mark() + string(r[:at]) + caret + string(r[at:])
}

// cost is of when the picture is and what it cost the database.
func (m *root) cost() []string {
	f := m.feed
	if f.picture == nil {
		return nil
	}
	at := "as of " + f.picture.TakenAt.In(m.env().Loc).Format("15:04:05")
	s := "db " + views.Millis(f.picture.TookMS)
	if f.picture.Shared {
		s += " shared"
	}
	if i := f.interval(); i > f.refresh {
		s += ", every " + views.Span(i)
	}
	return []string{at + " " + m.look.theme.G.Dot + " " + s, at, s}
}

// where is where one is: rows, order, filter, selection, or lines of a page.
func (m *root) where() string {
	p := m.pane()
	l := p.top()
	dot := " " + m.look.theme.G.Dot + " "
	var parts []string
	switch {
	case l.board != nil:
		if m.o.Demo != "" {
			parts = append(parts, m.o.Demo)
		}
	case l.page != nil:
		parts = append(parts, m.crumbs(p))
		if n, h := len(l.built.Lines), m.body().H; n > h {
			parts = append(parts, "lines "+views.Count(int64(l.offset+1))+"-"+views.Count(int64(min(l.offset+h, n)))+" of "+views.Count(int64(n)))
		}
		if l.find != "" {
			parts = append(parts, "search "+l.find)
		}
	default:
		if l.grid.gone && len(l.grid.order) > 0 {
			parts = append(parts, "the row you were on is gone")
		}
		parts = append(parts, m.crumbs(p), m.counted(l))
		if g := l.grid; g.sort < len(g.src.Sorts) && len(g.src.Sorts) > 1 {
			parts = append(parts, g.src.Sorts[g.sort].Name)
		}
		if l.grid.text != "" {
			parts = append(parts, "filter "+l.grid.text)
		}
	}
	return strings.Join(parts, dot)
}

// counted is n of total, marked as a bound where the count was bounded.
func (m *root) counted(l *level) string {
	n, total := int64(len(l.grid.order)), int64(l.grid.src.Len)
	s := views.Count(n)
	switch {
	case n == 0 && (l.list.err != nil || l.grid.src.Note != ""):
		return "not read"
	case l.list.asks():
		if !l.list.read {
			return "reading" + m.look.theme.G.Ellipsis
		}
		if l.list.page.Total > n || l.list.page.TotalBound {
			s += " of " + m.totalWords(l)
		}
	case n != total:
		s += " of " + views.Count(total)
	}
	if s == "1" {
		s += " row"
	} else {
		s += " rows"
	}
	switch k := len(l.grid.marks); {
	case l.grid.all:
		s = "all " + m.totalWords(l) + " selected"
	case k > 0:
		s = views.Count(int64(k)) + " marked, " + s
	}
	if l.grid.anchor >= 0 {
		s += ", range: v ends it"
	}
	return s
}

// crumbs is the way that led here.
func (m *root) crumbs(p *pane) string {
	name := titled(p.id).Title
	for _, l := range p.levels[1:] {
		name += " " + m.look.theme.G.Right + " " + views.Plain(l.title)
	}
	return name
}

// hints are the keys of this pane, what acts first.
func (m *root) hints() []views.Hint {
	if m.line.open() {
		return m.lineHints()
	}
	var hints []views.Hint
	seen := map[string]bool{}
	for _, a := range queue.Actions() {
		if a.Key == "" || seen[a.Key] || !works(a, m.at) {
			continue
		}
		b, _ := m.bound(a.Key)
		seen[a.Key] = true
		hints = append(hints, views.Hint{Key: b.Key, Word: hintWord(b), Off: m.off(b) != ""})
	}
	l := m.pane().top()
	switch {
	case l.board != nil:
		hints = append(hints, views.Hint{Key: "enter", Word: "open"})
	case l.page != nil:
		hints = append(hints, views.Hint{Key: "esc", Word: "back"}, views.Hint{Key: "/", Word: "search"})
	case l.listed():
		hints = append(hints, views.Hint{Key: "space", Word: "mark"}, views.Hint{Key: "enter", Word: "open"}, views.Hint{Key: "/", Word: "filter"}, views.Hint{Key: "x", Word: "export"}, views.Hint{Key: "esc", Word: "back"})
	default:
		hints = append(hints, views.Hint{Key: "enter", Word: "open"}, views.Hint{Key: "/", Word: "filter"}, views.Hint{Key: "o", Word: "order"}, views.Hint{Key: "x", Word: "export"})
	}
	pause := "pause"
	if m.feed.past.live != nil {
		pause = "now"
	} else if m.feed.paused {
		pause = "go on"
	}
	return append(hints, views.Hint{Key: ":", Word: "command"}, views.Hint{Key: "?", Word: "help"}, views.Hint{Key: "p", Word: pause}, views.Hint{Key: "q", Word: "quit"})
}

// hintWord is an action in one word.
func hintWord(a queue.Action) string {
	if a.ID == queue.ActJobSubscribe {
		return "may claim" // Save says nothing before its form is open
	}
	return strings.ToLower(strings.Fields(a.Verb)[0])
}

// problem is what is wrong with the line that is typed into, and where. The bar
// begins with a blank and the mark of the line.
func (m *root) problem() views.Problem {
	p := m.line
	if p.column == 0 {
		return views.Problem{Cell: -1, Text: p.problem}
	}
	return views.Problem{Cell: 2 + caretCell(p.input.Value(), p.column), Text: p.problem}
}

// lineHints stand below the line that is typed into: how it can go on.
func (m *root) lineHints() []views.Hint {
	p := m.line
	if p.kind == promptCommand {
		offers := p.offers
		if offers == nil {
			offers = m.offers(p.input.Value())
		}
		hints := []views.Hint{{Key: "tab", Word: "completes:"}}
		for i, o := range offers {
			if i >= 12 {
				break
			}
			hints = append(hints, views.Hint{Word: views.Plain(o)})
		}
		return hints
	}
	if p.kind == promptExport {
		return []views.Hint{{Key: "enter", Word: "writes"}, {Key: "esc", Word: "drops"}, {Key: "tab", Word: "csv, json, jsonl"}}
	}
	hints := []views.Hint{{Key: "enter", Word: "keeps"}, {Key: "esc", Word: "drops"}}
	if m.pane().top().page != nil {
		return hints
	}
	hints = append(hints, views.Hint{Key: "tab", Word: "completes:"})
	for _, f := range m.pane().top().grid.src.Fields {
		hints = append(hints, views.Hint{Word: f.Name})
	}
	return hints
}
