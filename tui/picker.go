package tui

import (
	"cmp"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// picker is an overlay with a list to choose from: the menu of panes, or the
// orders of a table. It also shows the help, from which nothing is chosen.
type picker struct {
	view   views.PickList
	all    []views.Entry
	choose func(i int) effect // nil: nothing can be chosen (help); / filters the text
	keys   map[string]int     // index of the entry that a key, or two keys of which the first is g, choose
	chord  bool               // g was pressed, and the next key completes it
}

func (p *picker) lines(at overlayContext) []string {
	return p.view.Lines(at.env, at.size)
}

func (p *picker) update(msg tea.Msg, at overlayContext) (overlay, effect) {
	if m, ok := msg.(tea.PasteMsg); ok && p.view.Typing {
		p.narrow(p.view.Filter + clean(m.Content))
	}
	k, ok := msg.(tea.KeyPressMsg)
	if !ok {
		return p, nil
	}
	if p.view.Typing {
		return p.typed(k), nil
	}
	s := k.String()
	switch {
	case p.chord:
		p.chord, s = false, "g"+s
	case s == "g" && p.hasChords():
		p.chord = true
		return p, nil
	}
	switch s {
	case "esc", "q", "?", "left", "h":
		if p.view.Filter != "" && s == "esc" {
			p.narrow("")
			return p, nil
		}
		return nil, nil
	case "j", "down":
		p.move(1, at)
	case "k", "up":
		p.move(-1, at)
	case "pgdown", "ctrl+f", "ctrl+d", "space":
		p.move(min(10, p.view.Room(at.size)), at)
	case "pgup", "ctrl+b", "ctrl+u":
		p.move(-min(10, p.view.Room(at.size)), at)
	case "G", "end":
		p.move(1<<20, at)
	case "g", "gg", "home":
		p.move(-1<<20, at)
	case "/":
		p.view.Typing = p.choose == nil
	case "enter", "l", "right":
		if p.choose != nil && p.view.Cursor >= 0 {
			return nil, p.choose(p.view.Cursor)
		}
	default:
		if i, ok := p.keys[s]; ok && p.choose != nil {
			return nil, p.choose(i)
		}
	}
	return p, nil
}

// hasChords reports whether two keys choose an entry.
func (p *picker) hasChords() bool {
	for k := range p.keys {
		if len(k) > 1 {
			return true
		}
	}
	return false
}

func (p *picker) typed(k tea.KeyPressMsg) overlay {
	switch s := k.String(); {
	case s == "esc":
		p.narrow("")
		p.view.Typing = false
	case s == "enter":
		p.view.Typing = false
	case s == "backspace":
		r := []rune(p.view.Filter)
		p.narrow(string(r[:max(len(r)-1, 0)]))
	case k.Text != "":
		p.narrow(p.view.Filter + queue.Clean(k.Text).String())
	}
	return p
}

// narrow keeps the entries that contain words, with the headings above them.
func (p *picker) narrow(words string) {
	p.view.Filter, p.view.Offset = words, 0
	p.view.Entries = nil
	var head *views.Entry
	for i := range p.all {
		x := p.all[i]
		if x.Key == "" && x.Text == "" {
			head = &p.all[i]
			continue
		}
		text := strings.ToLower(x.Key + " " + x.Word + " " + x.Text)
		if !strings.Contains(text, strings.ToLower(words)) {
			continue
		}
		if head != nil {
			p.view.Entries = append(p.view.Entries, *head)
			head = nil
		}
		p.view.Entries = append(p.view.Entries, x)
	}
}

// move moves the cursor by d entries; in a text without a cursor it scrolls.
func (p *picker) move(d int, at overlayContext) {
	if p.choose == nil {
		last := p.view.Last(at.env, at.size)
		p.view.Offset = min(max(min(p.view.Offset, last)+d, 0), last)
		return
	}
	p.view.Cursor = min(max(p.view.Cursor+d, 0), len(p.view.Entries)-1)
	p.view.Offset = p.view.First(at.size)
}

// menu returns the menu of all panes.
func (m *root) menu() overlay {
	p := &picker{keys: map[string]int{}, view: views.PickList{Title: "Panes", Hint: "enter opens, esc closes", Wide: true, KeyCol: 5, WordCol: 14}}
	panes := Panes()
	for i, x := range panes {
		p.all = append(p.all, views.Entry{Key: x.Keys, Word: x.Title, Text: x.Help})
		p.keys[x.Keys] = i
	}
	p.view.Cursor = slices.IndexFunc(panes, func(p queue.Pane) bool { return p.ID == m.at })
	p.view.Entries = p.all
	p.choose = func(i int) effect { return effOpen{panes[i].ID} }
	return p
}

// orders returns the overlay to choose the order of the open table; nil if the
// table has only one.
func (m *root) orders() overlay {
	l := m.pane().top()
	if l.table == nil || len(l.grid.src.Sorts) < 2 {
		m.warn("this list has only one order")
		return nil
	}
	p := &picker{keys: map[string]int{}, view: views.PickList{Title: "Order", Hint: "enter chooses, esc keeps the order", KeyCol: 3, WordCol: 40, Cursor: l.grid.sort}}
	for i, s := range l.grid.src.Sorts {
		k := string(rune('1' + i))
		p.all = append(p.all, views.Entry{Key: k, Word: s.Name})
		p.keys[k] = i
	}
	p.view.Entries = p.all
	p.choose = func(i int) effect { return effSort{i} }
	return p
}

// help returns the key reference: the actions of this pane, the keys that move and look,
// then the actions of other panes.
func (m *root) help() overlay {
	p := &picker{view: views.PickList{Title: "Keys", Hint: "/ filters, esc closes", Wide: true, KeyCol: 17, WordCol: 0, Cursor: -1}}
	title := m.pane().Title
	here, rest := []views.Entry{}, []views.Entry{}
	for _, a := range m.actions {
		e := views.Entry{Key: cmp.Or(a.Key, ":"+a.Words), Text: a.Help + undoWords(m.actions.Undo(a)), Off: m.off(a)}
		if e.Off != "" {
			e.Text, e.Off = e.Text+" (off: "+e.Off+")", ""
		}
		switch where := m.scene().acting().elsewhere(a.ID); {
		case where != "":
			e.Text += "; " + where
			rest = append(rest, e)
		case worksIn(a, m.at):
			here = append(here, e)
		default:
			rest = append(rest, e)
		}
	}
	if len(here) > 0 {
		p.all = append(append(p.all, views.Entry{Word: "Act in " + title}), here...)
	}
	if s := m.me.session; s != nil {
		p.all = append(p.all, views.Entry{Word: "This login"}, views.Entry{Key: "login", Text: s.User.String()})
		for i, r := range s.Roles {
			p.all = append(p.all, views.Entry{Key: queue.Choose(i == 0, "roles", ""), Text: r})
		}
		if m.o.DemoDSN != "" {
			p.all = append(p.all, views.Entry{Key: "other shells", Text: "export QTOP_DSN='" + m.o.DemoDSN + "'"})
		}
	}
	group := ""
	for _, k := range Keys() {
		if k.Group != group {
			group = k.Group
			p.all = append(p.all, views.Entry{Word: group})
		}
		p.all = append(p.all, views.Entry{Key: k.Keys, Text: k.Text})
	}
	p.all = append(append(p.all, views.Entry{Word: "Act elsewhere"}), rest...)
	p.view.Entries = p.all
	return p
}

func undoWords(undo string) string {
	return queue.Choose(undo == "", "; cannot be undone", "; undo: "+undo)
}
