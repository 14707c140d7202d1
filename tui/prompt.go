package tui

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// newInput returns a line editor. Its own clipboard is off, because it would run a program,
// and so is the blinking cursor, because it would send bytes while nothing happens.
func newInput(value string) textinput.Model {
	in := textinput.New()
	in.Prompt = ""
	in.CharLimit = 64 << 10 // in characters: room for a printed command with a thousand ids
	in.SetVirtualCursor(false)
	in.KeyMap.Paste = key.NewBinding()
	in.KeyMap.DeleteCharacterForward = key.NewBinding(key.WithKeys("delete"))
	in.SetValue(clean(value))
	in.CursorEnd()
	_ = in.Focus()
	return in
}

// clean turns typed or pasted text into one line without control characters.
func clean(s string) string { return queue.Clean(strings.Join(strings.Fields(s), " ")).String() }

// edit applies a key or a paste to an input.
func edit(in textinput.Model, msg tea.Msg) textinput.Model {
	if p, ok := msg.(tea.PasteMsg); ok {
		msg = tea.PasteMsg{Content: clean(p.Content)}
	}
	in, _ = in.Update(msg)
	return in
}

type promptKind int

const (
	promptNone promptKind = iota
	promptFilter
	promptCommand
	promptExport
)

// prompt is the input line at the foot of the screen: filter, command or file name.
// bubbles/textinput edits the text, but qtop draws it, to show where an error is.
type prompt struct {
	row     string // id under the cursor when / was pressed
	kind    promptKind
	input   textinput.Model
	was     string // the filter before it was edited
	column  int    // column of the error, from 1; 0: no error position
	problem string
	offers  []string     // completions
	offer   int          // index of the completion in the line
	history []string     // earlier commands
	export  queue.Export // the export whose file name is typed
	of      string       // number of rows to export; "": not known
	recall  int          // index into history
}

// set replaces the text and puts the cursor at its end.
func (p *prompt) set(text string) {
	p.input.SetValue(text)
	p.input.CursorEnd()
}

// close closes the line and keeps the history.
func (p *prompt) close() { *p = prompt{history: p.history} }

func (p prompt) open() bool { return p.kind != promptNone }

// prefix returns the text in front of the line.
func (p prompt) prefix() string {
	switch p.kind {
	case promptCommand:
		return ":"
	case promptExport:
		return p.lead()
	case promptFilter, promptNone:
	}
	return "/"
}
