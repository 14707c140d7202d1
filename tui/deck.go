package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
)

// deck holds the panes and the id of the open pane.
type deck struct {
	shell
	panes map[queue.PaneID]*pane
	at    queue.PaneID
}

// pane returns the open pane.
func (m *deck) pane() *pane { return m.panes[m.at] }

// scene returns the input of the functions that a pane declares: they draw it
// and find its rows.
func (m *deck) scene() scene {
	p := m.pane()
	return scene{
		snap: m.feed.snapshot, local: m.local, env: m.env(), size: m.size, now: m.o.Now(), paused: m.feed.paused, lost: m.feed.lost(), pane: p, level: p.top(),
	}
}

// env is the environment of the open level. Rows that were read with a query do not go back in time with
// a stored snapshot, and may be newer than a snapshot that is frozen or could not be read again: their
// ages are those at their own read, or at the live snapshot if that is later.
func (m *deck) env() views.Env {
	e, p := m.shell.env(), m.pane()
	if m.feed.snapshot == nil || !p.fromList(len(p.levels)-1) {
		return e
	}
	if live := m.feed.past.live; live != nil {
		e.Now = live.TakenAt
	}
	for _, l := range p.shown(len(p.levels) - 1) {
		if at := l.list.page.AsOf; at.After(e.Now) {
			e.Now = at
		}
	}
	return e
}

// body returns the size of the screen area that the pane gets.
func (m *deck) body() views.Size {
	l, ok := views.Split(m.size.W, m.size.H, len(m.banners()))
	if !ok {
		return views.Size{}
	}
	return views.Size{W: l.Body.W, H: l.Body.H}
}

// rows returns how many rows of the table with the cursor are visible; a pane
// may have two tables.
func (m *deck) rows() int {
	at := m.scene()
	return at.level.grid.view().Rows(at.env, at.tableSize(m.body()))
}

// banners returns the lines between the tabs and the pane. Each reports a
// problem of the snapshot or of the server.
func (m *deck) banners() []views.Banner {
	f, now := m.feed, m.o.Now()
	out := serverBanners(f.snapshot)
	switch {
	case f.lost():
		dot, parts := " "+m.display.theme.G.Dot+" ", []string{}
		if f.snapshot != nil {
			parts = append(parts, "last snapshot "+views.Age(int64(f.age(now).Seconds()))+" old")
		}
		if f.link.RetryIn > 0 {
			parts = append(parts, fmt.Sprintf("attempt %d in %ds", f.link.Attempt+1, int(math.Ceil(f.link.RetryIn))))
		}
		since := "since " + m.clock(f.linkAt)
		if r := f.link.Reason.String(); r != "" {
			since += ": " + r
		}
		text := strings.Join(append(parts, "actions off", since), dot)
		out = append(out, views.Banner{Word: "LOST", Text: text, Alarm: true})
	case f.err != nil && !f.paused:
		out = append(out, views.Banner{Word: queue.Choose(f.link.State == "slow", "SLOW", "NOT FRESH"), Text: "since " + m.clock(f.failing) + ": " + why(f.err)})
	}
	if f.past.live != nil {
		out = append(out, views.Banner{Word: "PAST", Text: m.pastWords()})
	}
	if f.snapshot != nil && f.snapshot.MonitoringOff {
		out = append(out, views.Banner{Word: "MONITORING OFF", Text: "the stale threshold is so high that no silence is reported; change it in Flags (gf)", Alarm: true})
	}
	if s := m.me.session; s != nil && s.Misfit != nil {
		out = append(out, views.Banner{Word: "SCHEMA", Text: misfitText(s.Misfit)})
	} else if s != nil && s.InRecovery {
		out = append(out, views.Banner{Word: "STANDBY", Text: "this server is a standby: its data may lag, actions are off" + lag(f.snapshot)})
	}
	return views.WrapBanners(out, m.env(), m.size.W)
}

// misfitText describes a schema that does not fit this qtop. The remedy comes first, because the
// banner is cut at the edge of the screen.
func misfitText(e *queue.Error) string {
	return queue.Choose(e.Do.Empty(), "", e.Do.String()+": ") + e.What.String()
}

// serverBanners returns the banners for a cloned database and for a server other than the
// expected one.
func serverBanners(p *queue.Snapshot) []views.Banner {
	if p == nil {
		return nil
	}
	var out []views.Banner
	if clone := p.Server.CloneOf.String(); clone != "" {
		of, _, _ := strings.Cut(strings.TrimPrefix(clone, "CLONE OF "), ": ")
		of, recorded, _ := strings.Cut(of, " (") // last, because the banner is cut at the edge of the screen
		out = append(out, views.Banner{Word: "CLONE OF", Text: of + ": nothing is claimed or sent here until you run :adopt" + queue.Choose(recorded == "", "", " ("+recorded), Alarm: true})
	}
	if other := p.Server.Unexpected.String(); other != "" {
		out = append(out, views.Banner{Word: "UNEXPECTED SERVER", Text: strings.TrimPrefix(other, "UNEXPECTED SERVER: "), Alarm: true})
	}
	return out
}

// lag returns the replay lag of a standby in words.
func lag(p *queue.Snapshot) string {
	if p == nil || p.Server.ReplayLagSeconds == nil {
		return ""
	}
	return fmt.Sprintf(" (replay lag %.1f s)", *p.Server.ReplayLagSeconds)
}

// pastWords returns the text of the banner PAST, shown above a stored
// snapshot.
func (m *deck) pastWords() string {
	dot := " " + m.display.theme.G.Dot + " "
	text := m.pastClock() + ", " + views.Age(int64(m.pastAge().Seconds())) + " ago" + dot
	if p := m.pane(); p.fromList(len(p.levels)-1) || p.localOnly {
		return text + "but this " + queue.Choose(p.top().page != nil, "page", "list") + " shows its last read" + dot + "p now"
	}
	return text + "[ ] back and forward" + dot + "p now" + dot + "actions off"
}

// settle brings the open level up to date after the snapshot, its list or the
// screen size has changed.
func (m *deck) settle() {
	l := m.pane().top()
	switch {
	case l.board != nil:
		m.settleOverview(l)
	case l.page != nil:
		m.settlePage(l)
	default:
		l.grid.refresh(l.table.rows(m.scene()), m.env())
		// Rows that were not read, or could not be, are not gone, nor are those that did not exist
		// at the time of a stored snapshot.
		if !l.grid.src.Unread && m.feed.past.live == nil {
			m.pruneSelection(l)
		}
		l.grid.scroll(m.rows())
	}
}

// pruneSelection drops selected rows that are not in the table any more, and warns. If only a part of
// the rows is loaded, they may have left that part.
func (m *deck) pruneSelection(l *level) {
	if lost := l.grid.prune(); lost > 0 && !l.grid.all {
		gone, partly, hidden := "gone", l.partly(), l.list.queried() && l.grid.text != ""
		switch {
		case partly && hidden:
			gone = "gone, hidden or not loaded now"
		case partly:
			gone = "gone or not loaded now"
		case hidden:
			gone = "gone or hidden by the filter"
		}
		m.warn(views.Plural(int64(lost), "selected row is ", "selected rows are ") + gone + "; still selected: " + views.Count(int64(len(l.grid.selected))))
	}
}

// settlePage builds the lines of a page again if the data that pages show
// (shell.revision) has changed since the last build. If the row is gone, it builds them from the data
// that last had the row.
func (m *deck) settlePage(l *level) {
	if l.revision == m.revision {
		return
	}
	at := m.scene()
	page, ok := l.page(at)
	if ok {
		l.goneAt = time.Time{}
		if m.feed.past.live == nil || l.seen.snap == nil { // a stored snapshot is not what was last read
			l.seen = at.seen()
		}
	} else {
		if l.goneAt.IsZero() {
			l.goneAt = at.env.Now
		}
		page = l.built
		if last, had := l.page(at.asOf(l.seen)); had {
			page = last
		}
	}
	if err := l.list.err; err != nil && !l.list.read {
		page = page.Unread(why(err), at.env, m.size.W)
	}
	switch late := m.late(); {
	case !ok:
		page.Note = "not listed at " + m.env().Clock(l.goneAt) + ": this page shows the row as it was last read"
	case late != nil:
		page.Note = "last read in full at " + m.clock(late.asOf) + queue.Choose(late.err == nil, "", ": "+why(late.err))
	}
	l.built, l.revision = page, m.revision
	l.scrollTo(l.offset, m.pageRows(l))
}

// late returns the list of the open page whose last read failed, or which is much older than the
// snapshot (behind); nil: there is none.
func (m *deck) late() *list {
	p := m.pane()
	for _, l := range p.shown(len(p.levels) - 1) {
		if l.list.err != nil && l.list.read {
			return &l.list
		}
	}
	return m.behind()
}

// pageRows returns how many lines of a page are visible.
func (m *deck) pageRows(l *level) int { return m.body().H - queue.Choose(l.built.Note == "", 0, 1) }

// settleOverview keeps the cursor of the Overview on its row. If the row is gone, the
// cursor acts on nothing until it is moved.
func (m *deck) settleOverview(l *level) {
	m.settleOn(l, l.board(m.scene(), m.body(), l.cursor))
}

// settleOn does what settleOverview does, with an Overview that is already
// drawn. The rows of a drawn Overview do not depend on where the cursor was.
func (m *deck) settleOn(l *level, board views.OverviewView) {
	targets := board.Targets
	if (l.target == (views.Target{}) || !l.moved && !slices.Contains(targets, l.target)) && len(targets) > 0 {
		l.target = targets[0]
	}
	i := slices.Index(targets, l.target)
	l.armed, l.cursor, l.cure = i >= 0, l.target, ""
	if l.armed {
		l.place, l.cure = i, board.Cures[i]
	} else if len(targets) > 0 {
		l.place = min(l.place, len(targets)-1)
		l.cursor = targets[l.place]
	}
}

// rowsOfBoard returns the rows of the Overview that the cursor can be on.
func (m *deck) rowsOfBoard(l *level) []views.Target {
	return l.board(m.scene(), m.body(), l.cursor).Targets
}

// rowCount returns the number of rows, such as "120 of ≥10,000 rows", and of selected ones. It counts
// both tables of the pane; ≥ says that further rows of one of them were not read.
func (m *deck) rowCount(l *level) string {
	src := l.grid.src
	n, total, bound := int64(len(l.grid.order)), int64(src.Len), l.list.page.TotalBound
	if l.list.count != nil {
		total += l.list.page.Total - int64(l.list.rows())
	}
	if src.Second.AtLeast > 0 {
		total, bound = total+int64(src.Second.AtLeast-(src.Len-src.Second.From)), true
	}
	s := views.Count(n)
	switch {
	case n == 0 && (l.list.err != nil || l.grid.src.Note != "" && l.grid.src.Len == 0 || l.grid.src.Unread && !l.list.queried()):
		return "not read"
	case l.list.queried():
		if !l.list.read {
			return queue.Choose(m.feed.lost(), "not read", "reading"+m.display.theme.G.Ellipsis)
		}
		if total > n || bound {
			s += " of " + m.atLeast(bound) + views.Count(total)
		}
	case n != total || bound:
		s += " of " + m.atLeast(bound) + views.Count(total)
	}
	s += queue.Choose(s == "1", " row", " rows")
	switch k := len(l.grid.selected); {
	case l.grid.all:
		s = "all " + m.totalWords(l) + " selected"
	case k > 0:
		s = views.Count(int64(k)) + " selected, " + s
	}
	if l.grid.anchor != "" {
		s += ", range open: v ends the range"
	}
	return s
}

// crumbs returns the titles of the open levels, from the pane to the deepest
// level.
func (m *deck) crumbs(p *pane) string {
	name := p.Title
	for _, l := range p.levels[1:] {
		name += " " + m.display.theme.G.Right + " " + views.Plain(l.title)
	}
	return name
}

// leastCrumbs is how many cells of the titles of the open levels stay beside the number of rows.
// Where the line also says what became of the row under the cursor, and has no room for so many,
// there are no titles.
const leastCrumbs = 20

// position returns the left side of the status line: the titles of the open
// levels, then the number of rows, their order and the filter, or, for a page,
// the visible lines. Long titles are cut, so that the number of selected rows
// is always there.
func (m *deck) position() string {
	p := m.pane()
	l := p.top()
	dot := " " + m.display.theme.G.Dot + " "
	var parts []string
	switch {
	case l.board != nil:
		if l.armed && l.cure != "" {
			parts = append(parts, l.cure)
		}
		if m.o.Demo != "" {
			parts = append(parts, m.o.Demo)
		}
	case l.page != nil:
		parts = append(parts, m.crumbs(p))
		if n, h := len(l.built.Lines), m.pageRows(l); n > h {
			parts = append(parts, "lines "+views.Count(int64(l.offset+1))+"-"+views.Count(int64(min(l.offset+h, n)))+" of "+views.Count(int64(n)))
		}
		if l.find != "" {
			parts = append(parts, "search "+l.find)
		}
	default:
		parts = append(parts, m.rowCount(l))
		if l.list.tooLong() || m.behind() != nil {
			parts = append(parts, "read at "+m.clock(l.list.asOf))
		}
		if g := l.grid; g.sort < len(g.src.Sorts) && len(g.src.Sorts) > 1 {
			parts = append(parts, g.src.Sorts[g.sort].Name+queue.Choose(g.src.Sorts[g.sort].Less != nil && l.list.partly(), ", of the loaded rows", ""))
		}
		if l.grid.text != "" {
			parts = append(parts, "filter "+l.grid.text)
		}
		rest := strings.Join(parts, dot)
		gone := queue.Choose(l.cursorLost(), l.lostRow()+dot, "")
		room := m.size.W - 2 - cells(gone+dot+rest)
		if gone != "" && room < leastCrumbs {
			return gone + rest
		}
		return gone + m.display.theme.Cut(m.crumbs(p), max(room, leastCrumbs)) + dot + rest
	}
	return strings.Join(parts, dot)
}
