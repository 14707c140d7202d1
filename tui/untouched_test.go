package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// Changing one setting of a job subscription does not rewrite its notes, of which the form can show
// only one line without control characters. Edited notes are sent, also empty ones.
func TestAnInputThatWasNotEditedIsNotWritten(t *testing.T) {
	for name, x := range map[string]struct {
		keys []string
		want map[string]string // "-": not in the request
	}{
		"the floor":         {[]string{"tab", "tab", "9"}, map[string]string{"notes": "-"}},
		"the notes":         {[]string{"tab", "tab", "tab", "tab", "tab", "!"}, map[string]string{"notes": "first␊second third!"}},
		"the notes cleared": {[]string{"tab", "tab", "tab", "tab", "tab", "ctrl+u"}, map[string]string{"notes": ""}},
		"another job kind":  {[]string{"2"}, map[string]string{"notes": "first␊second  third"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			s.snap.JobSubscriptions[0].Notes = queue.Clean("first\nsecond  third")
			x0 := s.snap.JobSubscriptions[0]
			run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
				c.model(func(m *root) {
					m.open(queue.PaneExecutors)
					require.True(t, m.pane().top().grid.jump(x0.ExecutorID.String(), m.rows))
				})
				c.press("E")
				c.sees("first␊second third")
				c.model(func(m *root) { m.over[0].(*dialog).focus = 0 })
				c.press(x.keys...)
				c.model(func(m *root) {
					d := m.over[0].(*dialog)
					d.focus = len(d.form) - 1
				})
				c.typing("why")
				c.press("enter")
				c.rest(quiet)
				args := last(s.asked()).Args
				require.Equal(t, x0.Domain.String(), args["domain"])
				for k, v := range x.want {
					got, given := args[k]
					require.Equal(t, v, queue.Choose(given, got, "-"), args)
				}
			})
		})
	}
}

// A note that was typed on the command line is sent although nobody edits it in the form.
func TestATypedNoteIsWritten(t *testing.T) {
	s := newStore()
	run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
		c.press(":")
		c.typing("executor subscribe " + s.snap.JobSubscriptions[0].ExecutorID.String() + " --notes new")
		c.press("enter")
		c.model(func(m *root) {
			d := m.over[0].(*dialog)
			d.focus = len(d.form) - 1
		})
		c.typing("why")
		c.press("enter")
		c.rest(quiet)
		require.Equal(t, "new", last(s.asked()).Args["notes"])
	})
}

// The first digit replaces the number or duration that an input began with, so that a rate of 20 does not become 201. After any
// other key the number is edited.
func TestTheFirstDigitReplacesANumber(t *testing.T) {
	for _, x := range []struct{ from, keys, want string }{
		{"20", "5", "5"}, {"20", "15", "15"}, {"20", "end 5", "205"}, {"20", "backspace 5", "25"}, {"20", "left 5", "250"},
		{"0.5", "12", "12"}, {"20", "a", "20a"}, {"5m", "1h", "1h"}, {"5m", "end 1", "5m1"}, {"notes", "1", "notes1"}, {"", "20", "20"},
	} {
		f := newField(queue.Arg{Name: "rate", Default: x.from, Required: true})
		for _, k := range strings.Fields(x.keys) {
			if len(k) > 2 {
				f.edit(keyOf(k))
				continue
			}
			for _, r := range k {
				f.edit(keyOf(string(r)))
			}
		}
		require.Equal(t, x.want, f.value(), x)
	}
	f := newField(queue.Arg{Name: "rate", Default: "20"})
	f.edit(tea.PasteMsg{Content: " 7\n"})
	require.Equal(t, "7", f.value())
}

// The value of a flag that was not edited keeps its blanks.
func TestAValueThatWasNotEditedKeepsItsBlanks(t *testing.T) {
	f := newField(queue.Arg{Name: "value", Default: "10s  1m", Required: true})
	require.Equal(t, "10s  1m", f.value())
	f.edit(keyOf("!"))
	require.Equal(t, "10s 1m!", f.value())
}
