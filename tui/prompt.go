package tui

import (
	"strings"
	"unicode"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// inputKeys are the keys of every input.
var inputKeys = func() textinput.KeyMap {
	keys := textinput.DefaultKeyMap()
	keys.Paste = key.NewBinding()
	keys.DeleteCharacterForward = key.NewBinding(key.WithKeys("delete"))
	return keys
}()

// newInput returns a line editor. Its paste key is off, because it would run a
// program that reads the clipboard; its cursor does not blink, because that
// would write to the terminal while nothing happens.
func newInput(value string) textinput.Model {
	in := textinput.New()
	in.Prompt = ""
	in.CharLimit = 64 << 10 // in characters: room for a printed command with a thousand ids
	in.SetVirtualCursor(false)
	in.KeyMap = inputKeys
	in.SetValue(oneLine(value))
	in.CursorEnd()
	_ = in.Focus()
	return in
}

// clean turns typed or pasted text into one line without control characters, in which each run of blanks is one.
func clean(s string) string { return queue.Clean(strings.Join(strings.Fields(s), " ")).String() }

// oneLine is clean for a filter or a command, whose blanks may be part of a quoted word: blanks within a line
// stay. Lines are joined with a blank, without the backslash with which a shell goes on in the next one.
func oneLine(s string) string {
	var lines []string
	for _, line := range strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if n := len(lines); n > 0 {
			lines[n-1] = strings.TrimSpace(strings.TrimSuffix(lines[n-1], `\`))
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return queue.Clean(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.Join(lines, " "))).String()
}

// edit applies a key or a paste to an input; pasted makes one line of pasted text.
func edit(in textinput.Model, msg tea.Msg, pasted func(string) string) textinput.Model {
	if p, ok := msg.(tea.PasteMsg); ok {
		msg = tea.PasteMsg{Content: pasted(p.Content)}
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

// prompt is the input line at the foot of the screen, for a filter, a command
// or a file name. bubbles/textinput edits the text; qtop draws it, so that it
// can mark where an error is.
type prompt struct {
	row     string // id under the cursor when / was pressed
	offset  int    // the first visible line of the page when / was pressed
	kind    promptKind
	input   textinput.Model
	was     string // the filter before / was pressed, which esc restores
	list    list   // the list of the open level, with its rows, when / was pressed
	applied bool   // a typed filter was applied since then
	column  int    // column of the error, counted in runes from 1; 0: the error has no position
	problem string
	offers  []string     // completions
	offer   int          // index of the completion that the line shows
	history []string     // earlier commands
	export  queue.Export // the export that waits for its file name
	of      string       // number of rows to export; "": not known
	recall  int          // index into history of the command that the line shows
}

// set replaces the text and puts the cursor at its end.
func (p *prompt) set(text string) {
	p.input.SetValue(text)
	p.input.CursorEnd()
}

// close closes the line and keeps the history.
func (p *prompt) close() { *p = prompt{history: p.history} }

func (p prompt) open() bool { return p.kind != promptNone }

// prefix returns the text before the typed text.
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
