package tui

// This file is the root model: what it holds, and how it starts.

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// root is the one model. Only the event loop touches it; commands get copies of
// what they need.
type root struct {
	o      Options
	store  Store
	host   Host
	ctx    context.Context //nolint:containedctx // the framework calls Update without one
	cancel context.CancelFunc

	size  views.Size
	look  look
	feed  feed
	me    identity
	local *queue.HostStatus // of this process, as of the last poll

	panes  map[queue.PaneID]*pane
	at     queue.PaneID
	over   []overlay // the last is on top
	line   prompt
	said   notice
	chord  bool // g was pressed, its second key is awaited
	leave  leaving
	saving *exporting // nil: no export runs
	serial int        // of reads and dialogs
	stamp  int        // changes with everything that pages are built from
}

// look is how the terminal shows things.
type look struct {
	profile colorprofile.Profile
	known   bool // the terminal has said its profile
	light   bool
	utc     bool
	mouse   bool
	theme   theme.Theme
}

// notice is the line that the status bar shows for a while.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

func newRoot(ctx context.Context, s Store, h Host, o Options) *root {
	o = o.withDefaults()
	ctx, cancel := context.WithCancel(ctx)
	m := &root{
		o: o, store: s, host: h, ctx: ctx, cancel: cancel,
		panes: newPanes(), at: home(), stamp: 1,
		feed: feed{refresh: o.Refresh, link: queue.Link{State: "connecting"}, linkAt: o.Now()},
	}
	m.me = identity{actor: o.Actor, ask: shared(o.Actor) && o.AnswerActor != nil}
	m.look = look{light: o.Theme == "light", utc: o.UTC, mouse: o.Mouse}
	m.retheme()
	return m
}

// Init starts the clock and asks for everything at once; the first frame does
// not wait for any of it.
func (m *root) Init() tea.Cmd {
	start := []tea.Cmd{beat(), m.poll(), m.listen(), func() tea.Msg { return openedMsg{} }}
	if m.o.Theme == "" || m.o.Theme == "auto" {
		start = append(start, tea.RequestBackgroundColor)
	}
	return tea.Batch(start...)
}

// opened asks for the first picture and goes to the pane that was asked for.
func (m *root) opened() tea.Cmd {
	cmds := []tea.Cmd{m.refresh(), m.askSession()}
	if m.o.StartPane != home() {
		cmds = append(cmds, m.open(m.o.StartPane))
	}
	if m.o.StartFilter != "" {
		cmds = append(cmds, m.setFilter(m.o.StartFilter))
	}
	return tea.Batch(cmds...)
}

// retheme makes the theme anew after something about the terminal was learnt.
func (m *root) retheme() {
	depth := theme.Sixteen
	switch {
	case m.o.NoColor || m.o.Theme == "mono" || (m.look.known && m.look.profile <= colorprofile.ASCII):
		depth = theme.Mono
	case m.look.known && m.look.profile >= colorprofile.ANSI256:
		depth = theme.Rich
	}
	m.look.theme = theme.New(theme.Options{Depth: depth, Light: m.look.light, ASCII: m.o.ASCII})
	m.stamp++
}

// refresh starts reading a picture, unless one is being read.
func (m *root) refresh() tea.Cmd {
	if m.feed.paused {
		return nil
	}
	if m.feed.inFlight {
		m.feed.again = true
		return nil
	}
	m.feed.inFlight, m.feed.again, m.feed.started = true, false, m.o.Now()
	return m.readPicture()
}

func (m *root) askSession() tea.Cmd {
	m.feed.asked = m.o.Now()
	return m.readSession()
}

// tell shows a line for a while; warn does the same for a refusal or an error.
func (m *root) tell(text string) { m.said = notice{text, false, m.o.Now().Add(6 * time.Second)} }
func (m *root) warn(text string) { m.said = notice{text, true, m.o.Now().Add(9 * time.Second)} }

// env is what drawings of the picture need.
func (m *root) env() views.Env {
	e := views.Env{Theme: m.look.theme, Now: m.o.Now(), Loc: time.Local}
	if m.look.utc {
		e.Loc = time.UTC
	}
	if p := m.feed.picture; p != nil && !p.TakenAt.IsZero() {
		e.Now = p.TakenAt
	}
	e.Stale = m.feed.picture != nil && (m.feed.lost() || m.feed.old(m.o.Now()))
	return e
}

// pane is the one that is open.
func (m *root) pane() *pane { return m.panes[m.at] }

// scene is what the open pane sees.
func (m *root) scene() scene {
	p := m.pane()
	return scene{
		pic: m.feed.picture, local: m.local, env: m.env(), size: m.size, now: m.o.Now(), paused: m.feed.paused, pane: p, level: p.top(),
	}
}
