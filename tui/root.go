package tui

import (
	"context"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
)

// root is the Bubble Tea model. Only the event loop of Bubble Tea touches it;
// commands, which run on other goroutines, get copies of what they need.
type root struct {
	deck
	over     []overlay // open overlays, the topmost last
	line     prompt
	chord    bool // g was pressed, and the next key completes it
	shutdown shutdownState
	saving   *exporting // the export in progress; nil: none
	unshown  string     // the title of the dialog whose action was sent and whose result is not shown yet; "": none
}

func newRoot(ctx context.Context, s Store, h Host, o Options) *root {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	m := &root{
		deck: deck{panes: newPanes(), at: home(), shell: shell{
			calls: calls{o: o, store: s, actions: s.Actions(), host: h, ctx: ctx, cancel: cancel}, revision: 1,
			feed: feed{refresh: o.Refresh, link: queue.Link{State: "connecting"}, linkAt: o.Now()},
		}},
	}
	m.me = identity{actor: o.Actor, askName: shared(o.Actor) && o.AnswerActor != nil}
	m.display = display{light: o.Theme == "light", utc: o.UTC, mouse: o.Mouse}
	m.retheme()
	return m
}

// Init starts the heartbeat, the poll and the wait for change hints. The first
// frame is drawn before they answer.
func (m *root) Init() tea.Cmd {
	start := []tea.Cmd{heartbeat(), m.poll(), m.listen(), func() tea.Msg { return openedMsg{} }}
	if m.o.Theme == "" || m.o.Theme == "auto" {
		start = append(start, tea.RequestBackgroundColor)
	}
	return tea.Batch(start...)
}

// opened asks for the first snapshot and opens the start pane with its filter.
func (m *root) opened() tea.Cmd {
	cmds := []tea.Cmd{m.askSession(), m.refreshAtOnce(fresh)} // both at once, so that the first screen comes sooner
	if m.o.StartPane != home() {
		cmds = append(cmds, m.open(m.o.StartPane))
	}
	if m.o.StartFilter != "" {
		cmds = append(cmds, m.applyFilter(strings.TrimSpace(m.o.StartFilter))) // its times are UTC, like those of any --filter
	}
	return tea.Batch(cmds...)
}
