package tui

import (
	"cmp"
	"strings"
	"unicode"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// press handles a key press; it also removes the message of the status line.
// Over a slow line, esc and the key after it arrive in one read, which the
// terminal library reports as that key with alt. press handles that as two
// keys, unless the open input has a meaning for the key with alt.
func (m *root) press(k tea.KeyPressMsg) tea.Cmd {
	m.notice = notice{}
	if !k.Mod.Contains(tea.ModAlt) || m.edits(k) {
		return m.key(k)
	}
	drawn := m.lastNotice
	escaped := m.key(tea.KeyPressMsg{Code: tea.KeyEscape})
	m.lastNotice = drawn // a message of the first key is not drawn if the second has one
	then := m.key(withoutAlt(k))
	if m.notice.text != "" {
		m.lastNotice = m.notice
	}
	return tea.Batch(escaped, then)
}

// withoutAlt returns the key that was pressed after esc, as it arrives alone.
func withoutAlt(k tea.KeyPressMsg) tea.KeyPressMsg {
	k.Mod &^= tea.ModAlt
	if k.Mod&^tea.ModShift == 0 && k.Code <= unicode.MaxRune && unicode.IsPrint(k.Code) {
		typed := k.Code
		if k.Mod.Contains(tea.ModShift) {
			typed = cmp.Or(k.ShiftedCode, unicode.ToUpper(k.Code))
		}
		k.Text = string(typed)
	}
	return k
}

// edits reports whether k, a key with alt, has a meaning in the input that has
// the keys now.
func (m *root) edits(k tea.KeyPressMsg) bool {
	if !key.Matches(k, inputKeys.WordForward, inputKeys.WordBackward, inputKeys.DeleteWordBackward, inputKeys.DeleteWordForward) {
		return false
	}
	if n := len(m.over); n > 0 {
		o, ok := m.over[n-1].(interface{ writing() bool })
		return ok && o.writing()
	}
	return m.line.open()
}

// key hands a key to the first that takes it: ctrl+c; the topmost overlay; the
// input line; the second key after g; the keys of the pane that move, open and
// select; the actions; last the keys that work in every pane.
func (m *root) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+c" {
		return m.interrupt()
	}
	if m.tooSmall() && (k.String() != "esc" || len(m.over) == 0 && !m.line.open()) {
		return m.blindKey(k.String())
	}
	if len(m.over) > 0 {
		return m.overlaid(k)
	}
	if m.line.open() {
		return m.typed(k)
	}
	if m.chord {
		m.chord = false
		return m.chordKey("g" + k.String())
	}
	if k.String() == "esc" && m.saving != nil {
		m.saving.cancel()
		return nil
	}
	if p := m.pane(); p.actionKeys != nil {
		if id, args := p.actionKeys(m.scene(), k.String()); id != "" {
			return m.act(m.actions.ByID(id), args, "")
		}
	}
	if a, ok := m.actionFor(k.String()); ok {
		return m.act(a, nil, "")
	}
	if cmd, ok := m.paneKey(k.String()); ok {
		return cmd
	}
	return m.globalKey(k.String())
}

// tooSmall reports whether the terminal is too small to show what is open.
func (m *root) tooSmall() bool {
	_, ok := views.Split(m.size.W, m.size.H, 0)
	return !ok && m.sized
}

// blindKey handles a key while the terminal is too small: q quits, and what
// is open gets no key that the operator cannot see it take, except esc, which
// closes a dialog or the input line (key). Loops of this process are drained,
// because the dialog of q could not be seen either.
func (m *root) blindKey(k string) tea.Cmd {
	if k != "q" || m.shutdown.draining {
		return nil
	}
	return m.interrupt()
}

// paste gives pasted text to the open input. If none is open, the text is
// dropped: pasted text never acts as keys.
func (m *root) paste(p tea.PasteMsg) tea.Cmd {
	switch {
	case m.tooSmall():
	case len(m.over) > 0:
		return m.overlaid(p)
	case m.line.open():
		return m.typed(p)
	}
	m.warn("pasted text is ignored here; open / or : first")
	return nil
}

// chordKey handles the key after g, which opens a pane.
func (m *root) chordKey(keys string) tea.Cmd {
	if keys == "gg" {
		return m.moveTo(0)
	}
	if p, ok := paneOfKeys(keys); ok {
		return m.openByKey(p)
	}
	if keys != "gesc" {
		m.warn("no pane has the keys " + keys + "; gg goes to the first row, 0 lists the panes")
	}
	return nil
}

// openByKey opens a pane. If it is open already, the status line reports that,
// because the key would have no visible effect.
func (m *root) openByKey(p queue.Pane) tea.Cmd {
	if p.ID == m.at {
		m.inform(p.Title + " is open")
	}
	return m.open(p.ID)
}

func paneOfKeys(keys string) (queue.Pane, bool) {
	return queue.Find(Panes(), func(p queue.Pane) bool { return p.Keys == keys })
}

// paneKey handles the keys that move, open and select in a pane. It reports whether k is one.
func (m *root) paneKey(k string) (tea.Cmd, bool) {
	page := max(m.rows()-1, 1)
	switch k {
	case "j", "down":
		return m.move(1), true
	case "k", "up":
		return m.move(-1), true
	case "pgdown", "ctrl+f":
		return m.move(page), true
	case "pgup", "ctrl+b":
		return m.move(-page), true
	case "ctrl+d":
		return m.move(max(page/2, 1)), true
	case "ctrl+u":
		return m.move(-max(page/2, 1)), true
	case "G", "end":
		return m.moveTo(1 << 30), true
	case "home":
		return m.moveTo(0), true
	case "enter", "l", "right":
		return m.enter(), true
	case "esc", "h", "left":
		return m.back(), true
	case "tab":
		return m.cycle(1), true
	case "shift+tab":
		return m.cycle(-1), true
	case "space", "v", "ctrl+a":
		return m.selectKey(k), true
	}
	return nil, false
}

// globalKey handles the keys that work in every pane.
func (m *root) globalKey(k string) tea.Cmd {
	switch k {
	case "g":
		m.chord = true
	case "/":
		m.openFilter()
	case ":":
		m.openCommand()
	case "?":
		m.raise(m.help())
	case "0":
		m.raise(m.menu())
	case "o":
		m.raise(m.orders())
	case "n":
		return m.nextMatch()
	case "p":
		return m.pause()
	case "[":
		return m.travel(-1)
	case "]":
		return m.travel(1)
	case "t":
		m.display.utc = !m.display.utc
		m.inform(queue.Choose(m.display.utc, "times in UTC", "times in local time"))
		m.revision++
		m.settle()
	case "y":
		return m.copy()
	case "x":
		return m.export("")
	case "m":
		m.display.mouse = !m.display.mouse
		m.inform(queue.Choose(m.display.mouse, "mouse on: the terminal cannot select text until m is pressed again", "mouse off"))
	case "q":
		return m.quit()
	case "ctrl+z":
		return m.suspend()
	default:
		return m.digit(k)
	}
	return nil
}

// digit opens a pane by its number. If the key has an action in other panes
// only, the status line names those panes. All other keys are ignored.
func (m *root) digit(k string) tea.Cmd {
	if p, ok := paneOfKeys(k); ok {
		return m.openByKey(p)
	}
	if len(k) == 1 {
		m.explainKey(k)
	}
	return nil
}

// explainKey shows in the status line in which panes a capital letter has an
// action.
func (m *root) explainKey(k string) {
	var said []string
	for _, a := range m.actions {
		if a.Key != queue.Choose(k == "-", "+", k) { // both change a rate
			continue
		}
		var where []string
		for _, id := range a.Panes {
			where = append(where, m.panes[id].Title+" ("+m.panes[id].Keys+")")
		}
		said = append(said, "to "+strings.ToLower(a.Verb)+" in "+strings.Join(where, ", "))
	}
	if said != nil {
		m.warn(k + " works elsewhere: " + strings.Join(said, "; "))
		return
	}
	m.warn(k + " has no action in this version; ? lists the keys")
}
