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
	screen := m.screen().Draw(under, m.size, func(s views.Size) []string { return m.drawBody(body, s) })
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
	l := m.pane().top()
	s := m.tableSize(m.body(), l)
	return l.grid.view().Rows(m.env(), s)
}

// tableSize is what a table has of the body: pane gw keeps room for the other
// hosts and the wake stream under its loops, a level below another for its
// title.
func (m *root) tableSize(s views.Size, l *level) views.Size {
	s.H -= len(m.above(l, m.env(), s.W))
	need := l.grid.view().Need()
	switch {
	case l.kind != kindTable:
	case m.at == queue.PaneQueues:
		s.H, _ = views.QueuesTable(m.feed.picture, l.grid.view(), m.env(), s)
	case m.at == queue.PaneHost:
		s.H = min(max(need, 4), max(s.H*2/3, 4))
	case len(l.grid.order) == 0: // the words take the room
	case m.at != queue.PaneDead && need+views.PageRoom <= s.H:
		s.H = need
	}
	return s
}

// above is the lines over a table: the title of a level below another, and in
// pane gn what waits and who tells it.
func (m *root) above(l *level, e views.Env, w int) []string {
	switch {
	case l.listed():
		return []string{e.Theme.Title.Paint(e.Theme.Cut("   "+theme.Safe(views.Plain(l.title)), w))}
	case m.at == queue.PaneNotify && l.kind == kindTable:
		return views.NotificationHead(queue.Of[*queue.Notifications](l.list.page), e, w)
	case m.at == queue.PaneRules && l.kind == kindTable:
		return m.share(l, e, w)
	}
	return nil
}

// drawBeneath draws the page of the row under the cursor under its table, where
// there is room.
func (m *root) drawBeneath(e views.Env, s views.Size, p *pane, l *level) []string {
	i, ok := l.grid.current()
	if !ok || s.H < views.PageRoom {
		return nil
	}
	row := level{kind: kindPage, id: l.grid.src.ID(i)}
	if p.id == queue.PaneAudit {
		row.audit = queue.Of[[]queue.AuditEntry](l.list.page)[i]
	}
	if p.id == queue.PaneOps {
		row.op = queue.Of[[]queue.Operation](l.list.page)[i]
	}
	if p.id == queue.PaneWebhooks {
		row = m.hook(row.id, row)
	}
	page, ok := m.page(p, &row, e, s.W)
	if !ok {
		return nil
	}
	return views.Beneath(page, e, s)
}

func (m *root) drawBody(e views.Env, s views.Size) []string {
	p := m.pane()
	l := p.top()
	switch l.kind {
	case kindOverview:
		return views.Overview(views.OverviewState{Picture: m.feed.picture, Cursor: m.shownTarget(p)}, e, s).Lines
	case kindPage:
		return views.PageView{Page: l.built, Offset: l.offset, Find: l.find}.Visible(e, s)
	case kindTable, kindLetters, kindJobs:
	}
	if l.kind == kindTable && m.at == queue.PaneQueues {
		return views.Queues(m.feed.picture, l.grid.view(), e, s)
	}
	t := m.tableSize(s, l)
	out := m.above(l, e, s.W)
	out = append(out, l.grid.view().Lines(e, t)...)
	if l.kind == kindTable && m.at != queue.PaneHost && m.at != queue.PaneDead {
		brief := e
		brief.Brief = true
		out = append(out, m.drawBeneath(brief, views.Size{W: s.W, H: s.H - len(out)}, p, l)...)
	}
	if m.at == queue.PaneHost {
		for len(out) < t.H {
			out = append(out, "")
		}
		out = append(out, views.HostBelow(m.feed.picture, m.local, m.subject(), e, views.Size{W: s.W, H: s.H - len(out)})...)
	}
	return out
}

// shownTarget is the cursor of the Overview; one whose row is gone is not shown.
func (m *root) shownTarget(p *pane) views.Target {
	if !p.armed {
		return views.Target{}
	}
	return p.target
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
