package tui

// This file is the one line that is typed into at the foot of the screen: the
// filter and the command line. Text is edited by bubbles/textinput; what it
// draws is not used, for a line of qtop's own can show where an error is.

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// newInput is an editor without a clipboard of its own (it would run a program)
// and without a blink (it would send bytes at rest).
func newInput(value string) textinput.Model {
	in := textinput.New()
	in.Prompt = ""
	in.CharLimit = 4096
	in.SetVirtualCursor(false)
	in.KeyMap.Paste = key.NewBinding()
	in.KeyMap.DeleteCharacterForward = key.NewBinding(key.WithKeys("delete"))
	in.SetValue(clean(value))
	in.CursorEnd()
	_ = in.Focus()
	return in
}

// clean keeps what is typed or pasted to one line of safe text.
func clean(s string) string { return queue.Clean(strings.Join(strings.Fields(s), " ")).String() }

// edit hands a key or a paste to an input.
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

// prompt is the line while it is open.
type prompt struct {
	kind    promptKind
	input   textinput.Model
	was     string // the filter that stood before
	column  int    // of the error, from 1; 0: none
	problem string
	offers  []string // completions, in turn
	offer   int
	history []string
	export  queue.Export // what goes into the file that is named
	of      string       // how many rows that is
	recall  int
}

// set puts text into the line, with the cursor behind it.
func (p *prompt) set(text string) {
	p.input.SetValue(text)
	p.input.CursorEnd()
}

// close takes the line away; what was typed before stays to be recalled.
func (p *prompt) close() { *p = prompt{history: p.history} }

func (p prompt) open() bool { return p.kind != promptNone }

// mark is the character in front of the line.
func (p prompt) mark() string {
	switch p.kind {
	case promptCommand:
		return ":"
	case promptExport:
		return p.lead()
	case promptFilter, promptNone:
	}
	return "/"
}
