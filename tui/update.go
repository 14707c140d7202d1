package tui

// This file routes messages. Each case is one call: what a message does stands
// with the thing that it is about.

import (
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/views"
)

// Update takes one message in. It never waits.
func (m *root) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		return m, m.paste(msg)
	case tea.MouseMsg:
		return m, m.mouse(msg)
	case tea.WindowSizeMsg:
		m.resize(views.Size{W: msg.Width, H: msg.Height})
	case tea.BackgroundColorMsg:
		m.look.light = !msg.IsDark()
		m.retheme()
	case tea.ColorProfileMsg:
		m.look.profile, m.look.known = msg.Profile, true
		m.retheme()
	case tea.EnvMsg:
		return m, overSSH(msg)
	case openedMsg:
		return m, m.opened()
	case beatMsg:
		return m, m.beat()
	case dueMsg:
		m.feed.waiting = false
		return m, m.refresh()
	case hintMsg:
		return m, m.hint(msg)
	case polledMsg:
		return m, m.polled(msg)
	case pictureMsg:
		return m, m.pictured(msg)
	case pastMsg:
		return m, m.arrived(msg)
	case sessionMsg:
		m.me.take(msg)
	case pageMsg:
		m.paged(msg)
		return m, nil
	case plannedMsg:
		return m, m.planned(msg)
	case appliedMsg:
		return m, m.applied(msg)
	case savedMsg:
		m.saved(msg)
	case drainedMsg:
		return m, m.drained(msg)
	}
	return m, nil
}

// overSSH tells the renderer that frames may be sent whole: it does not ask
// terminals over SSH by itself, and one that does not know the mode ignores it.
func overSSH(env tea.EnvMsg) tea.Cmd {
	if env.Getenv("SSH_TTY") == "" {
		return nil
	}
	return func() tea.Msg {
		return tea.ModeReportMsg{Mode: ansi.ModeSynchronizedOutput, Value: ansi.ModeReset}
	}
}

func (m *root) resize(s views.Size) {
	m.size = s
	m.stamp++
	m.settle()
}
