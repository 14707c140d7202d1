package tui

// This file is one input of a dialog and what is wrong with it.

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

type field struct {
	arg     queue.Arg
	input   textinput.Model
	choice  int
	problem string
}

func newField(a queue.Arg) *field {
	f := &field{arg: a, input: newInput(a.Default)}
	if i := slices.Index(a.Choices, a.Default); i > 0 {
		f.choice = i
	}
	return f
}

func (f *field) value() string {
	if len(f.arg.Choices) > 0 {
		return f.arg.Choices[f.choice]
	}
	return strings.TrimSpace(f.input.Value())
}

// edit takes a key or a paste.
func (f *field) edit(msg tea.Msg) {
	f.problem = ""
	n := len(f.arg.Choices)
	if n == 0 {
		f.input = edit(f.input, msg)
		return
	}
	if k, ok := msg.(tea.KeyPressMsg); ok {
		switch k.String() {
		case "right", "space", "l":
			f.choice = (f.choice + 1) % n
		case "left", "h":
			f.choice = (f.choice - 1 + n) % n
		}
	}
}

// check says what the database would refuse, before it is asked. It is a help,
// not the guard: the database still decides.
func (f *field) check(a queue.Action) bool {
	v := f.value()
	f.problem = ""
	switch {
	case v == "" && f.arg.Required:
		f.problem = strings.ToLower(f.arg.Label) + " is needed"
	case v == "":
	case f.arg.Name == "for" || f.arg.Name == "cadence" || f.arg.Name == "stale-after":
		if days, ok := strings.CutSuffix(v, "d"); ok {
			v = days + "h"
		}
		if d, err := time.ParseDuration(v); err != nil || d <= 0 {
			f.problem = "a length of time such as 90s, 30m, 2h or 1d"
		}
	case a.ID == queue.ActJobSubscribe && f.arg.Name == "floor":
		if _, err := strconv.ParseInt(v, 10, 16); err != nil {
			f.problem = "a whole number, such as 0 or 100"
		}
	case a.ID == queue.ActJobSubscribe && f.arg.Name == "parallel":
		if n, err := strconv.ParseInt(v, 10, 32); err != nil || n < 1 {
			f.problem = "a whole number from 1 on"
		}
	case a.ID == queue.ActExecRegister && f.arg.Name == "kind":
		if !slices.Contains(queue.ExecutorKinds(), v) {
			f.problem = "one of " + strings.Join(queue.ExecutorKinds(), ", ")
		}
	case a.ID == queue.ActExecRegister && f.arg.Name == "id" && strings.ContainsAny(v, " \t,"):
		f.problem = "one word, without spaces or commas"
	}
	return f.problem == ""
}

// shown is the field as it is drawn.
func (f *field) shown() views.Field {
	return views.Field{
		Label: f.arg.Label, Value: f.shownValue(), Caret: f.input.Position(), Help: f.arg.Help,
		Error: f.problem, Choices: len(f.arg.Choices) > 0,
	}
}

func (f *field) shownValue() string {
	if len(f.arg.Choices) > 0 {
		return f.value()
	}
	return f.input.Value()
}
