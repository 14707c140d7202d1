package tui

import (
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
