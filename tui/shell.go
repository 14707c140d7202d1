package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// shell holds the state that all panes share: the terminal, the snapshot, who
// acts, and the message in the status line.
type shell struct {
	calls
	size       views.Size
	sized      bool // the terminal has reported its size
	display    display
	feed       feed
	me         identity
	local      *queue.HostStatus // the host of this process, as of the last poll
	notice     notice
	lastNotice notice // the message before the current one, to count repetitions
	serial     int    // the last number that was given to a read or to a dialog
	revision   int    // increases when the data changes that pages show, so that they are built again
}

// display is what is known about the terminal, with the display settings, and
// the theme made from both.
type display struct {
	profile colorprofile.Profile
	known   bool // the terminal has reported how many colours it has
	light   bool
	utc     bool
	mouse   bool
	theme   theme.Theme
}

// notice is a message in the status line. It ends with the next key, when its
// time is over, or when holds returns false.
type notice struct {
	text  string
	bad   bool
	until time.Time
	holds func() bool // whether the message is still true; nil: always
	times int         // how often the same message was shown in a row
}

// shown returns the text, with a count if the message came several times in a
// row: otherwise the operator could not see that it came again.
func (n notice) shown() string {
	if n.times > 1 {
		return n.text + " (" + views.Count(int64(n.times)) + " times)"
	}
	return n.text
}

// retheme builds the theme again, after a property of the terminal became
// known or changed.
func (m *shell) retheme() {
	depth := theme.Sixteen
	switch {
	case m.o.NoColor || m.o.Theme == "mono" || (m.display.known && m.display.profile <= colorprofile.ASCII):
		depth = theme.Mono
	case m.display.known && m.display.profile >= colorprofile.ANSI256:
		depth = theme.Rich
	}
	m.display.theme = theme.New(theme.Options{Depth: depth, Light: m.display.light, ASCII: m.o.ASCII})
	m.revision++
}

// refresh starts to read a snapshot that is at most maxAge old. If a read is
// in progress, it only notes that another one must follow.
func (m *shell) refresh(maxAge time.Duration) tea.Cmd {
	if m.feed.paused {
		return nil
	}
	if m.feed.reading() {
		m.feed.again = true
		return nil
	}
	return m.refreshAtOnce(maxAge)
}

// refreshAtOnce starts to read a snapshot even if the session is being read.
func (m *shell) refreshAtOnce(maxAge time.Duration) tea.Cmd {
	if m.feed.acted { // a snapshot computed for another console may not have the change yet
		maxAge, m.feed.acted = 0, false
	}
	m.feed.inFlight, m.feed.again, m.feed.started = true, false, m.o.Now()
	return m.readSnapshot(maxAge)
}

// askSession reads the session. If the snapshot is being read, it waits until
// that has ended: both at once would need a second connection.
func (m *shell) askSession() tea.Cmd {
	m.feed.asked = m.o.Now()
	if m.feed.sessionDue = m.feed.reading(); m.feed.sessionDue {
		return nil
	}
	m.feed.asking = true
	return m.readSession()
}

// readAgain schedules the refresh that was requested during a read.
func (m *shell) readAgain() tea.Cmd {
	if !m.feed.again || m.feed.reading() || m.feed.paused || m.feed.waiting {
		return nil
	}
	m.feed.again, m.feed.waiting = false, true
	return later(max(m.feed.hintDelay(m.o.Now()), time.Millisecond), dueMsg{})
}

// inform shows a message for 6 s.
func (m *shell) inform(text string) {
	m.show(notice{text: text, until: m.o.Now().Add(6 * time.Second)})
}

// warn shows a refusal or an error for 9 s.
func (m *shell) warn(text string) { m.warnWhile(text, nil) }

// warnWhile is warn for a message that also ends when holds returns false;
// nil: it ends as with warn.
func (m *shell) warnWhile(text string, holds func() bool) {
	m.show(notice{text: text, bad: true, until: m.o.Now().Add(9 * time.Second), holds: holds})
}

func (m *shell) show(n notice) {
	n.times = 1
	if n.text == m.lastNotice.text {
		n.times = m.lastNotice.times + 1
	}
	m.notice, m.lastNotice = n, n
}

// expireNotice ends a message whose time is over or that is no longer true.
func (m *shell) expireNotice() {
	n := m.notice
	if n.text != "" && (m.o.Now().After(n.until) || n.holds != nil && !n.holds()) {
		m.notice = notice{}
	}
}

// env returns what the functions of package views need to draw: theme, time
// and time zone.
func (m *shell) env() views.Env {
	e := views.Env{Theme: m.display.theme, Now: m.o.Now(), Here: m.o.Now(), Loc: time.Local, Host: m.local}
	if m.host == nil {
		e.Host = &queue.HostStatus{} // this process can run no host
	}
	if m.display.utc {
		e.Loc = time.UTC
	}
	if p := m.feed.snapshot; p != nil && !p.TakenAt.IsZero() {
		e.Now = p.TakenAt
	}
	e.Stale = m.feed.snapshot != nil && (m.feed.lost() || m.feed.old(m.o.Now()))
	return e
}

// clock returns a time of this machine, with its date if that is not today: the snapshot may be of yesterday.
func (m *shell) clock(t time.Time) string {
	e := m.env()
	e.Now = m.o.Now()
	return e.Clock(t)
}

// roleChanged reports whether snapshot and session disagree about whether the
// server is a standby: it was promoted, or another server answered. The
// session must then be read again, at most every 5 s.
func (m *shell) roleChanged(msg snapshotMsg) bool {
	s := m.me.session
	return s != nil && msg.err == nil && s.InRecovery != msg.snapshot.Server.InRecovery && m.o.Now().Sub(m.feed.asked) >= roleLife
}

// serverNow returns the current time of the server: that of the last live
// snapshot, plus the time that has passed here since it arrived. Before the first
// snapshot it is the time here.
func (m *shell) serverNow() time.Time {
	live, at := m.feed.past.live, m.feed.past.liveAt
	if live == nil {
		live, at = m.feed.snapshot, m.feed.received
	}
	if live == nil {
		return m.o.Now()
	}
	return live.TakenAt.Add(m.o.Now().Sub(at))
}

// pastAge returns how long ago the stored snapshot on the screen was taken; 0
// if the live one is shown.
func (m *shell) pastAge() time.Duration {
	if m.feed.past.live == nil {
		return 0
	}
	return max(m.serverNow().Sub(m.feed.snapshot.TakenAt), time.Second)
}

// pastClock returns when the stored snapshot on the screen was taken, with the
// date if that was another day.
func (m *shell) pastClock() string {
	e := m.env()
	at := m.feed.snapshot.TakenAt.In(e.Loc)
	if now := m.serverNow().In(e.Loc); at.YearDay() != now.YearDay() {
		return at.Format("01-02 15:04:05")
	}
	return at.Format("15:04:05")
}

// off returns the reason why an action is not available now, or "". The
// database would refuse it anyway; the console checks so that it does not
// offer what cannot work.
func (m *shell) off(a queue.Action) string {
	s := m.me.session
	here := a.Danger == queue.DangerLocal
	switch {
	case m.feed.past.live != nil:
		return "this is the snapshot of " + m.pastClock() + "; p returns to now"
	case m.feed.paused:
		return "the console is paused; p resumes"
	case m.o.ReadOnly || (s != nil && s.ReadOnly):
		return "this console is read-only"
	case here && m.host == nil:
		return "this process cannot run a worker host"
	case here && m.local != nil && m.local.Refused != "":
		return m.local.Refused
	case here:
		if a.Function != "" && s != nil && !s.Rights[a.ID] && !m.o.OwnLogin {
			return m.me.lacks(a)
		}
		return ""
	case m.feed.lost():
		return "the connection to the database is lost"
	case m.feed.snapshot == nil || s == nil:
		if m.me.err != nil && m.feed.snapshot != nil {
			return "the rights of this login are not known: " + why(m.me.err)
		}
		return "the database has not answered yet"
	case s.InRecovery:
		return "this server is a standby; it accepts no changes"
	case !s.Rights[a.ID]:
		return m.me.lacks(a)
	}
	return ""
}

// running reports whether loops run in this process.
func (m *shell) running() bool { return m.host != nil && m.local != nil && m.local.Running }

// cost returns the right side of the status line, in several lengths, longest
// first: when the snapshot was taken and how long the database worked on it.
func (m *shell) cost() []string {
	f := m.feed
	if f.snapshot == nil {
		return nil
	}
	at := "as of " + f.snapshot.TakenAt.In(m.env().Loc).Format("15:04:05")
	if f.snapshot.TookMS == 0 { // the database refused the snapshot
		return []string{at}
	}
	s := "db " + views.Millis(f.snapshot.TookMS)
	if f.snapshot.Shared {
		s += " shared"
	}
	if i := f.interval(); i > f.refresh {
		s += ", every " + views.Span(i)
	}
	return []string{at + " " + m.display.theme.G.Dot + " " + s, at, s}
}

// loopsRunning returns how many loops run in this process.
func (m *shell) loopsRunning() (n int) {
	for _, l := range m.local.Loops {
		if l.State == "running" || l.State == "draining" {
			n++
		}
	}
	return n
}
