package tui

// The audit has changes of the database. What a person does with the loops of this process changes none, so
// the console sets a mark that says it (queue.Action.Past), after the action and beside it: the action neither
// waits for the mark nor fails with it.

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// mostLabel is the largest length of the label of a mark.
const mostLabel = 200

// markLabel returns the label of the mark of a request about loops of this process, such as "anna started
// loop tick on worker-1". This process has a host.
func (m *shell) markLabel(a queue.Action, r queue.Request) string {
	label := fmt.Sprintf("%s %s %s %s on %s", cmp.Or(r.Actor, "somebody"), a.Past, a.Targets.Of, strings.Join(r.Targets, ", "), m.local.ID)
	return queue.Clean(label).Cut(mostLabel).String()
}

// unmarked returns why this console cannot set a mark now, or "".
func (m *shell) unmarked() string { return m.off(m.actions.ByID(queue.ActMark)) }

// mark sets a mark for the dialog of an action on loops of this process. The database refuses a label that the
// person has set within the last minute: a loop that was started again gets one with the time.
func (m *shell) mark(dialog int, label, actor string) tea.Cmd {
	r := queue.Request{Action: queue.ActMark, Actor: actor, Confirm: m.production()}
	now := m.serverNow().UTC().Format(" at 15:04:05Z")
	return m.forAction(m.ctx, r.Action, func(ctx context.Context, s Store) tea.Msg {
		msg := markedMsg{dialog: dialog}
		for _, text := range []string{label, queue.Clean(label).Cut(mostLabel-len(now)).String() + now} {
			r.Args = map[string]string{"label": text}
			p, err := s.Plan(ctx, r)
			if err == nil {
				msg.result, err = s.Apply(ctx, p)
			}
			if msg.err = err; err != nil || msg.result.Refused == "" {
				break
			}
		}
		return msg
	})
}

// marked says in the dialog of the action whether its mark was set; if the dialog was closed, and the mark was
// not set, in a message.
func (m *root) marked(msg markedMsg) {
	said := fmt.Sprintf("#%d, in Audit (ga): a mark", msg.result.AuditID)
	failed := cmp.Or(why(msg.err), msg.result.Refused)
	if failed != "" {
		said = notRecorded + failed
	}
	if d := m.dialog(msg.dialog); d != nil {
		d.mark = said
	} else if failed != "" {
		m.warn("audit: " + said)
	}
}

// notRecorded begins the text of why an action is not in the audit.
const notRecorded = "not recorded: "
