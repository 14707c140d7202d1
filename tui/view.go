package tui

// This file draws the screen from the model. It reads, it changes nothing.

import (
	"fmt"
	"math"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// View draws one frame.
func (m *root) View() tea.View {
	v := tea.NewView(m.frame())
	v.AltScreen = true
	v.WindowTitle = strings.TrimSpace("qtop " + theme.Safe(m.o.Profile))
	if m.look.mouse {
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
	if body.Stale {
		body.Theme = body.Theme.Faded()
	}
	screen := m.screen().Draw(under, m.size, func(s views.Size) []string {
		at := m.scene()
		at.env = body
		return at.draw(s)
	})
	for _, o := range m.over {
		box := o.lines(m.here())
		x, y := views.Centre(box, m.size)
		screen = views.Over(screen, box, x, y, m.size)
	}
	return screen
}

// screen is everything around the body.
func (m *root) screen() views.Screen {
	now := m.o.Now()
	h := views.Header{
		Profile: m.o.Profile, Production: m.o.Production != "", ReadOnly: m.o.ReadOnly, Actor: m.me.actor,
		Session: m.me.session, Link: m.feed.link, Age: m.feed.age(now), Old: m.feed.old(now),
		Paused: m.feed.paused, Past: m.pastAge(), Now: now,
	}
	if h.Profile == "" && h.Production {
		h.Profile = m.o.Production
	}
	if m.feed.picture != nil {
		h.Server = &m.feed.picture.Server
	}
	return views.Screen{
		Header: h, Tabs: views.Tabs(m.feed.picture, m.at), Banners: m.banners(),
		Status: m.status(), Hints: m.hints(), Problem: m.problem(),
	}
}

// body is the size that a pane has.
func (m *root) body() views.Size {
	l, ok := views.Split(m.size.W, m.size.H, len(m.banners()))
	if !ok {
		return views.Size{}
	}
	return views.Size{W: l.Body.W, H: l.Body.H}
}

// rows is how many rows of a table show.
func (m *root) rows() int {
	at := m.scene()
	return at.level.grid.view().Rows(at.env, at.tableSize(m.body()))
}

// banners are what is wrong with the picture itself.
func (m *root) banners() []views.Banner {
	f, now := m.feed, m.o.Now()
	zone := m.env()
	out := elsewhere(f.picture)
	switch {
	case f.lost():
		dot, parts := " "+m.look.theme.G.Dot+" ", []string{}
		if f.picture != nil {
			parts = append(parts, "last picture "+views.Age(int64(f.age(now).Seconds()))+" old")
		}
		if f.link.RetryIn > 0 {
			parts = append(parts, fmt.Sprintf("try %d in %ds", f.link.Attempt+1, int(math.Ceil(f.link.RetryIn))))
		}
		since := "since " + zone.Clock(f.linkAt)
		if r := f.link.Reason.String(); r != "" {
			since += ": " + r
		}
		text := strings.Join(append(parts, "actions off", since), dot)
		out = append(out, views.Banner{Word: "LOST", Text: text, Alarm: true})
	case f.err != nil && !f.paused:
		out = append(out, views.Banner{Word: "NOT FRESH", Text: "since " + zone.Clock(f.failing) + ": " + why(f.err)})
	}
	if f.past.live != nil {
		out = append(out, views.Banner{Word: "PAST", Text: m.pastWords()})
	}
	if f.picture != nil && f.picture.MonitoringOff {
		out = append(out, views.Banner{Word: "MONITORING OFF", Text: "the stale threshold is so high that no silence is reported; gf sets it back", Alarm: true})
	}
	if s := m.me.session; s != nil && s.Misfit != nil {
		out = append(out, views.Banner{Word: "SCHEMA", Text: misfit(s.Misfit)})
	} else if s != nil && s.InRecovery {
		out = append(out, views.Banner{Word: "STANDBY", Text: "this server only follows; what is shown may lag, actions are off" + lag(f.picture)})
	}
	return out
}

// misfit puts the remedy first: the banner is cut at the edge of the screen.
func misfit(e *queue.Error) string {
	if do := e.Do.String(); do != "" {
		return do + ": " + e.What.String()
	}
	return e.What.String()
}

// elsewhere says, above all else, that this is not the database or the server that
// is meant.
func elsewhere(p *queue.Snapshot) []views.Banner {
	if p == nil {
		return nil
	}
	var out []views.Banner
	if clone := p.Server.CloneOf.String(); clone != "" {
		of, _, _ := strings.Cut(strings.TrimPrefix(clone, "CLONE OF "), ": ")
		out = append(out, views.Banner{Word: "CLONE OF", Text: of + ": run :adopt; until then nothing is claimed or sent here", Alarm: true})
	}
	if other := p.Server.Unexpected.String(); other != "" {
		out = append(out, views.Banner{Word: "UNEXPECTED SERVER", Text: strings.TrimPrefix(other, "UNEXPECTED SERVER: "), Alarm: true})
	}
	return out
}

func lag(p *queue.Snapshot) string {
	if p == nil || p.Server.ReplayLagSeconds == nil {
		return ""
	}
	return fmt.Sprintf(" (replay lag %.1f s)", *p.Server.ReplayLagSeconds)
}
