package tui

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// field is one input of a dialog: a line of text, or a choice if arg has options.
type field struct {
	arg     queue.Arg
	input   textinput.Model
	choice  int
	number  bool // the input still has the number or duration that it began with: the first digit replaces it
	problem string
}

func newField(a queue.Arg) *field {
	f := &field{arg: a, input: newInput(clean(a.Default)), number: isNumber(a.Default) || isDuration(a.Default)}
	if i := slices.Index(a.Options(), a.Default); i > 0 {
		f.choice = i
	}
	return f
}

func (f *field) value() string {
	if all := f.arg.Options(); len(all) > 0 {
		return all[f.choice]
	}
	if !f.edited() {
		return strings.TrimSpace(f.arg.Default) // in the input, each run of blanks is one blank
	}
	return strings.TrimSpace(f.input.Value())
}

// edited reports whether the text is not the one that the input began with.
func (f *field) edited() bool { return f.input.Value() != clean(f.arg.Default) }

// edit applies a key or a paste.
func (f *field) edit(msg tea.Msg) {
	f.problem = ""
	n := len(f.arg.Options())
	if n == 0 {
		if f.number && startsNumber(msg) {
			f.input.Reset()
		}
		f.number, f.input = false, edit(f.input, msg, clean)
		return
	}
	switch pressed(msg) {
	case "right", "space", "l":
		f.choice = (f.choice + 1) % n
	case "left", "h":
		f.choice = (f.choice - 1 + n) % n
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// startsNumber reports whether msg is a typed digit, or a pasted number or duration.
func startsNumber(msg tea.Msg) bool {
	switch m := msg.(type) {
	case tea.KeyPressMsg:
		return isNumber(m.Text)
	case tea.PasteMsg:
		text := strings.TrimSpace(m.Content)
		return isNumber(text) || isDuration(text)
	}
	return false
}

func isDuration(s string) bool {
	_, ok := queue.Duration(s)
	return ok
}

// check validates the value with Arg.Check and Arg.Missing, as the headless
// verb and the plan do, and sets problem. args are the values of all inputs.
func (f *field) check(args map[string]string) bool {
	f.problem = ""
	var refused *queue.Error
	if errors.As(f.arg.Check(f.value()), &refused) || errors.As(f.arg.Missing(args), &refused) {
		f.problem = refused.What.String()
	}
	return f.problem == ""
}

// shown returns the field as package views draws it.
func (f *field) shown() views.Field {
	return views.Field{
		Label: f.arg.Label, Value: queue.Choose(len(f.arg.Options()) > 0, f.value(), f.input.Value()), Caret: f.input.Position(), Help: f.arg.Explained(),
		Error: f.problem, Choices: len(f.arg.Options()) > 0,
	}
}
