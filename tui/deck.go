package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// deck is the panes and the one that is open.
type deck struct {
	shell
	panes map[queue.PaneID]*pane
	at    queue.PaneID
}

// pane is the one that is open.
func (m *deck) pane() *pane { return m.panes[m.at] }

// scene is what the open pane sees.
func (m *deck) scene() scene {
	p := m.pane()
	return scene{
		pic: m.feed.picture, local: m.local, env: m.env(), size: m.size, now: m.o.Now(), paused: m.feed.paused, pane: p, level: p.top(),
	}
}

// body is the size that a pane has.
func (m *deck) body() views.Size {
	l, ok := views.Split(m.size.W, m.size.H, len(m.banners()))
	if !ok {
		return views.Size{}
	}
	return views.Size{W: l.Body.W, H: l.Body.H}
}

// rows is how many rows of a table show.
func (m *deck) rows() int {
	at := m.scene()
	return at.level.grid.view().Rows(at.env, at.tableSize(m.body()))
}

// banners are what is wrong with the picture itself.
func (m *deck) banners() []views.Banner {
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
	return queue.Choose(e.Do.Empty(), "", e.Do.String()+": ") + e.What.String()
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

func (m *deck) pastWords() string {
	dot := " " + m.look.theme.G.Dot + " "
	text := m.pastClock() + ", " + views.Age(int64(m.pastAge().Seconds())) + " ago" + dot
	if p := m.pane(); p.top().list.asks() || p.here {
		return text + "but this list is as last read" + dot + "p now"
	}
	return text + "[ ] back and forward" + dot + "p now" + dot + "actions off"
}

// settle brings the open level up to date with the picture, its list, the size.
func (m *deck) settle() {
	l := m.pane().top()
	switch {
	case l.board != nil:
		m.settleOverview(l)
	case l.page != nil:
		m.settlePage(l)
	default:
		if lost := l.grid.refresh(l.table.rows(m.scene()), m.env().Now); lost > 0 {
			m.warn(views.Count(int64(lost)) + " marked rows are gone; " + views.Count(int64(len(l.grid.marks))) + " are left")
		}
		l.grid.scroll(m.rows())
	}
}

// settlePage builds a page anew where what it shows has changed.
func (m *deck) settlePage(l *level) {
	if l.stamp == m.stamp {
		return
	}
	if page, ok := l.page(m.scene()); ok {
		l.built = page
	}
	l.stamp = m.stamp
	l.scrollTo(l.offset, m.body().H)
}

// settleOverview keeps the cursor on what it was on; where that is gone it
// stays in sight but acts on nothing.
func (m *deck) settleOverview(l *level) {
	targets := m.rowsOfBoard(l)
	l.armed = slices.Contains(targets, l.target)
	if l.target == (views.Target{}) && len(targets) > 0 {
		l.target, l.armed = targets[0], true
	}
}

// rowsOfBoard are the rows of the Overview that the cursor can be on.
func (m *deck) rowsOfBoard(l *level) []views.Target {
	return l.board(m.scene(), m.body(), l.target).Targets
}

// counted is n of total, marked as a bound where the count was bounded.
func (m *deck) counted(l *level) string {
	n, total := int64(len(l.grid.order)), int64(l.grid.src.Len)
	s := views.Count(n)
	switch {
	case n == 0 && (l.list.err != nil || l.grid.src.Note != ""):
		return "not read"
	case l.list.asks():
		if !l.list.read {
			return "reading" + m.look.theme.G.Ellipsis
		}
		if l.list.page.Total > n || l.list.page.TotalBound {
			s += " of " + m.totalWords(l)
		}
	case n != total:
		s += " of " + views.Count(total)
	}
	s += queue.Choose(s == "1", " row", " rows")
	switch k := len(l.grid.marks); {
	case l.grid.all:
		s = "all " + m.totalWords(l) + " selected"
	case k > 0:
		s = views.Count(int64(k)) + " marked, " + s
	}
	if l.grid.anchor >= 0 {
		s += ", range: v ends it"
	}
	return s
}

// crumbs is the way that led here.
func (m *deck) crumbs(p *pane) string {
	name := p.Title
	for _, l := range p.levels[1:] {
		name += " " + m.look.theme.G.Right + " " + views.Plain(l.title)
	}
	return name
}

// where is where one is: rows, order, filter, selection, or lines of a page.
func (m *deck) where() string {
	p := m.pane()
	l := p.top()
	dot := " " + m.look.theme.G.Dot + " "
	var parts []string
	switch {
	case l.board != nil:
		if m.o.Demo != "" {
			parts = append(parts, m.o.Demo)
		}
	case l.page != nil:
		parts = append(parts, m.crumbs(p))
		if n, h := len(l.built.Lines), m.body().H; n > h {
			parts = append(parts, "lines "+views.Count(int64(l.offset+1))+"-"+views.Count(int64(min(l.offset+h, n)))+" of "+views.Count(int64(n)))
		}
		if l.find != "" {
			parts = append(parts, "search "+l.find)
		}
	default:
		if l.grid.gone && len(l.grid.order) > 0 {
			parts = append(parts, "the row you were on is gone")
		}
		parts = append(parts, m.crumbs(p), m.counted(l))
		if g := l.grid; g.sort < len(g.src.Sorts) && len(g.src.Sorts) > 1 {
			parts = append(parts, g.src.Sorts[g.sort].Name)
		}
		if l.grid.text != "" {
			parts = append(parts, "filter "+l.grid.text)
		}
	}
	return strings.Join(parts, dot)
}
