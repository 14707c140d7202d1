package tui

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// A typed value that is none of those to choose from does not become another one: no form opens.
func TestATypedValueIsNeverReplaced(t *testing.T) {
	run(t, setup{w: 160, h: 40}, func(c *console) {
		for line, says := range map[string]string{
			"flag set webhook.worker.enabled off":        `:flag set: "off" is none of true, false`,
			"executor subscribe reindex_1 --enabled no":  `:executor subscribe: "no" is none of true, false`,
			"tick metrics_samplr":                        `:tick: "metrics_samplr" is none of `,
			"flag set queue.scheduler.mode intern":       `:flag set: "intern" is none of `,
			"resolve 91000 --resolution done":            `:resolve: "done" is none of `,
			"executor register x --kind Agnt":            `:executor register: "Agnt" is none of `,
			"environment set prod --guard closed":        `:environment set: "closed" is none of guarded, open`,
			"flag set webhook.worker.enabled true --for": `--for needs a value`,
		} {
			c.press(":")
			c.typing(line)
			c.press("enter")
			require.Zero(t, c.overlays(), line)
			c.sees(says)
		}
		c.press(":")
		c.typing("flag set webhook.worker.enabled false")
		c.press("enter")
		require.Equal(t, 1, c.overlays())
		c.model(func(m *root) {
			require.Equal(t, "false", m.over[0].(*dialog).form[0].value())
		})
	})
}

// The same for every action that has an input with options.
func TestNoFormOpensWithAValueThatItLacks(t *testing.T) {
	m, tried := newStill(newStore(), nil, Options{Actor: "anna"}), 0
	for _, a := range m.actions {
		for _, arg := range a.Args {
			if len(arg.Options()) == 0 {
				continue
			}
			tried++
			m.ask(asked{action: a, req: queue.Request{Targets: []string{"x"}, Args: map[string]string{arg.Name: "no-such-value"}}})
			require.Empty(t, m.over, a.ID)
			require.Contains(t, m.notice.text, `"no-such-value" is none of `, a.ID)
		}
	}
	require.Greater(t, tried, 4)
}

// Where a plan is refused, or cannot be made, the form opens again with what was typed: one of many
// values may be wrong. A preview that can be confirmed has no such button.
func TestARefusedFormIsEdited(t *testing.T) {
	for name, refuse := range map[string]func(r queue.Request) (queue.Plan, error){
		"refused": func(r queue.Request) (queue.Plan, error) {
			r.Action, r.Targets, r.Args = queue.ActMark, []string{"another"}, map[string]string{"owner-role": "another"} // plans of some actions confirm another one
			return queue.Plan{Request: r, Refused: "there is no login or role r1"}, nil
		},
		"an error": func(queue.Request) (queue.Plan, error) {
			return queue.Plan{}, queue.NewError(queue.KindFailed, "there is no login or role r1", "", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			s.plan = refuse
			run(t, setup{store: s, w: 120, h: 40}, func(c *console) {
				c.press("4", "N")
				c.typing("exec9")
				c.press("enter")
				c.typing("r1")
				c.press("enter", "enter", "enter", "enter", "enter")
				c.rest(quiet)
				c.sees("there is no login or role r1", editForm)
				c.model(func(m *root) {
					d := m.over[0].(*dialog)
					d.focus = slices.Index(d.buttons(), editForm)
				})
				c.press("enter")
				c.sees("exec9", "r1")
				c.press("enter") // from the first input to the next
				c.typing("x")
				s.set(func(s *fakeStore) { s.plan = nil })
				c.press("enter", "enter", "enter", "enter", "enter")
				c.rest(quiet)
				require.Len(t, s.asked(), 2)
				was, is := s.asked()[0], s.asked()[1]
				require.Equal(t, "r1", was.Args["owner-role"])
				was.Args["owner-role"] = "r1x"
				require.Equal(t, was, is, "all else is as it was typed")
				c.seesNot(editForm)
			})
		})
	}
}
