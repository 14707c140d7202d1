package tui

import (
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// View draws one frame. It changes nothing in the model.
func (m *root) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen = true
	v.WindowTitle = m.display.theme.Twins(strings.TrimSpace("qtop " + theme.Safe(m.o.Profile)))
	if m.display.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

func (m *root) frame() string {
	e := m.env()
	if _, ok := views.Split(m.size.W, m.size.H, 0); !ok {
		return views.TooSmall(e, m.size)
	}
	under := e
	if len(m.over) > 0 {
		under.Theme = e.Theme.Faded()
	}
	body := under
	if l := m.behind(); l != nil && !l.tooLong() { // the status line has the time of a list that is too long
		body.Stale = true
	}
	if body.Stale {
		body.Theme = body.Theme.Faded()
	}
	screen := m.screen().Draw(under, m.size, func(s views.Size) []string {
		at := m.scene()
		at.env = body
		return at.draw(s)
	})
	for _, o := range m.over {
		box := o.lines(m.overlayContext())
		x, y := views.Centre(box, m.size)
		screen = views.Overlay(screen, box, x, y, m.size)
	}
	return e.Theme.Twins(screen)
}

// screen returns everything around the body: header, tabs, banners, status and hints.
func (m *root) screen() views.Screen {
	now := m.o.Now()
	h := views.Header{
		Profile: m.o.Profile, Production: m.production() != "", ReadOnly: m.o.ReadOnly, Actor: m.me.actor,
		Session: m.me.session, Link: m.feed.link, Age: m.feed.age(now), Old: m.feed.old(now),
		Paused: m.feed.paused, Past: m.pastAge(), Now: now,
	}
	if h.Profile == "" && h.Production {
		h.Profile = m.production()
	}
	if m.feed.snapshot != nil {
		h.Server = &m.feed.snapshot.Server
	}
	return views.Screen{
		Header: h, Tabs: m.tabs(), Banners: m.banners(),
		Status: m.status(), Hints: m.hints(), Problem: m.problem(),
	}
}
