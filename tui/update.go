package tui

import (
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/views"
)

// Update routes one message to the method that handles it. It never waits.
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
		m.display.light = !msg.IsDark()
		m.retheme()
	case tea.ColorProfileMsg:
		m.display.profile, m.display.known = msg.Profile, true
		m.retheme()
	case tea.EnvMsg:
		return m, overSSH(msg)
	case openedMsg:
		return m, m.opened()
	case heartbeatMsg:
		return m, m.onHeartbeat()
	case dueMsg:
		m.feed.waiting = false
		return m, m.refresh()
	case hintMsg:
		return m, m.hint(msg)
	case polledMsg:
		return m, m.polled(msg)
	case snapshotMsg:
		return m, m.snapshotArrived(msg)
	case pastMsg:
		return m, m.arrived(msg)
	case sessionMsg:
		m.me.receive(msg)
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

// overSSH turns on synchronized output over SSH. Bubble Tea does not query SSH terminals
// for it, and a terminal that does not know the mode ignores it.
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
	m.revision++
	m.settle()
}
