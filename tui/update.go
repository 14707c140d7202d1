package tui

import (
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/views"
)

// Update handles one message and returns the commands that it starts. It never
// waits.
func (m *root) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	n := len(m.banners())
	cmd := m.route(msg)
	m.expireNotice()
	if len(m.banners()) != n { // a banner came or went, so the pane has another height
		m.settle()
	}
	return m, cmd
}

// route hands the message to the method for its type.
func (m *root) route(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return m.press(msg)
	case tea.PasteMsg:
		return m.paste(msg)
	case tea.MouseMsg:
		return m.mouse(msg)
	case tea.WindowSizeMsg:
		m.resize(views.Size{W: msg.Width, H: msg.Height})
	case tea.BackgroundColorMsg:
		m.display.light = !msg.IsDark()
		m.retheme()
	case tea.ColorProfileMsg:
		m.display.profile, m.display.known = msg.Profile, true
		m.retheme()
	case tea.EnvMsg:
		return overSSH(msg)
	case openedMsg:
		return m.opened()
	case heartbeatMsg:
		return m.onHeartbeat()
	case dueMsg:
		m.feed.waiting = false
		return m.refresh(fresh)
	case hintMsg:
		return m.hint(msg)
	case polledMsg:
		return m.polled(msg)
	case snapshotMsg:
		return m.snapshotArrived(msg)
	case pastMsg:
		return m.arrived(msg)
	case sessionMsg:
		return m.sessionArrived(msg)
	case pageMsg:
		m.paged(msg)
		return nil
	case plannedMsg:
		return m.planned(msg)
	case lookedMsg:
		m.looked(msg)
	case appliedMsg:
		return m.applied(msg)
	case markedMsg:
		m.marked(msg)
	case savedMsg:
		m.saved(msg)
	case drainedMsg:
		return m.drained(msg)
	}
	return nil
}

// overSSH turns on synchronized output (each frame appears as a whole) over
// SSH. There, Bubble Tea does not ask the terminal whether it knows this mode;
// a terminal that does not know it ignores it.
func overSSH(env tea.EnvMsg) tea.Cmd {
	if env.Getenv("SSH_TTY") == "" {
		return nil
	}
	return func() tea.Msg {
		return tea.ModeReportMsg{Mode: ansi.ModeSynchronizedOutput, Value: ansi.ModeReset}
	}
}

func (m *root) resize(s views.Size) {
	m.size, m.sized = s, true
	m.revision++
	m.settle()
}
