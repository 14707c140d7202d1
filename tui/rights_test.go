package tui

import (
	"strings"
	"testing"
	"testing/synctest"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// If a login lacks the right to an action, the key of the action is in
// brackets in each pane and in the help, and pressing it names the missing
// role. The other keys do not change.
func TestKeysWithoutRights(t *testing.T) {
	for _, a := range actions.Registry() {
		if a.Key == "" {
			continue
		}
		t.Run(string(a.ID), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWalker(t, walkSeed)
				defer w.close()
				w.send(tea.WindowSizeMsg{Width: 200, Height: 60})
				free := a.Role == ""
				require.Equal(t, free, a.Function == "", "the right of an action is that of a function and of a role")
				for _, pane := range a.Panes {
					w.m.over, w.m.notice = nil, notice{}
					w.exec(w.m.open(pane))
					w.settle()
					if drawn, ok := w.m.actionFor(a.Key); !ok || drawn.ID != a.ID {
						w.m.me.session.Rights[a.ID] = false // for the row under the cursor, the key starts its other action
						require.Contains(t, w.m.off(a)+"free", "lacks the role "+a.Role)
						continue
					}
					w.m.me.session.Rights[a.ID] = true
					require.False(t, hinted(w.m, a), pane)
					w.m.me.session.Rights[a.ID] = false
					offered := w.m.scene().acting().elsewhere(a.ID) == "" // else the key works on rows of a deeper level alone
					require.Equal(t, !free && offered, hinted(w.m, a), pane)
					if free {
						continue
					}
					require.Equal(t, offered, strings.Contains(ansi.Strip(w.m.frame()), "("+a.Key+" "+a.Word()+")"), pane)
					w.press(keyOf(a.Key))
					require.Empty(t, w.m.over, pane)
					require.Equal(t, a.Verb+" is off: "+w.m.me.session.User.String()+" lacks the role "+a.Role, w.m.notice.text)
				}
			})
		})
	}
}

// Where a login works with the rights of another role, a key that is off names that role: a GRANT to
// the login would have no effect.
func TestKeysOfTheRoleInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalker(t, walkSeed)
		defer w.close()
		s := w.m.me.session
		s.InForce = queue.Clean("app_ops")
		s.Rights[queue.ActRequeue] = false
		w.exec(w.m.open(queue.PaneDead))
		w.settle()
		w.press(keyOf(actions.Registry().ByID(queue.ActRequeue).Key))
		require.Equal(t, "Requeue is off: the role app_ops, with whose rights demo_operator works, lacks the role dead_letter_operator", w.m.notice.text)
	})
}

// hinted reports whether the footer shows the key of an action as not
// available.
func hinted(m *root, a queue.Action) bool {
	h, _ := queue.Find(m.hints(), func(h views.Hint) bool { return h.Key == a.Key && h.Acts })
	return h.Off
}
