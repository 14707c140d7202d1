package tui

import (
	"cmp"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views"
	"github.com/qtop/qtop/views/theme"
)

// shell holds what is not of one pane.
type shell struct {
	calls
	size   views.Size
	look   look
	feed   feed
	me     identity
	local  *queue.HostStatus // of this process, as of the last poll
	said   notice
	serial int // of reads and dialogs
	stamp  int // changes with everything that pages are built from
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

// retheme makes the theme anew after something about the terminal was learnt.
func (m *shell) retheme() {
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
func (m *shell) refresh() tea.Cmd {
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

func (m *shell) askSession() tea.Cmd {
	m.feed.asked = m.o.Now()
	return m.readSession()
}

// tell shows a line for a while; warn does the same for a refusal or an error.
func (m *shell) tell(text string) { m.said = notice{text, false, m.o.Now().Add(6 * time.Second)} }

func (m *shell) warn(text string) { m.said = notice{text, true, m.o.Now().Add(9 * time.Second)} }

// env is what drawings of the picture need.
func (m *shell) env() views.Env {
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

// otherKind tells that a picture is of a primary and the session of a standby, or the
// other way round: the standby was promoted, or another server answers.
func (m *shell) otherKind(msg pictureMsg) bool {
	s := m.me.session
	return s != nil && msg.err == nil && s.InRecovery != msg.picture.Server.InRecovery && m.o.Now().Sub(m.feed.asked) >= kindLife
}

// serverNow is the server's time as far as the last live picture tells.
func (m *shell) serverNow() time.Time {
	live, at := m.feed.past.live, m.feed.past.liveAt
	if live == nil {
		live, at = m.feed.picture, m.feed.received
	}
	return live.TakenAt.Add(m.o.Now().Sub(at))
}

// pastAge is how long ago the picture was taken that one looks back at.
func (m *shell) pastAge() time.Duration {
	if m.feed.past.live == nil {
		return 0
	}
	return max(m.serverNow().Sub(m.feed.picture.TakenAt), time.Second)
}

// pastClock is when it was taken, with the day where that is another.
func (m *shell) pastClock() string {
	e := m.env()
	at := m.feed.picture.TakenAt.In(e.Loc)
	if now := m.serverNow().In(e.Loc); at.YearDay() != now.YearDay() {
		return at.Format("01-02 15:04:05")
	}
	return at.Format("15:04:05")
}

// off is why an action cannot be used now; "" = it can. What the database would
// refuse is not offered, and says so before it is asked.
func (m *shell) off(a queue.Action) string {
	s := m.me.session
	here := a.Danger == queue.DangerLocal
	switch {
	case m.feed.past.live != nil:
		return "the picture is of " + m.pastClock() + "; p goes back to now"
	case m.feed.paused:
		return "the picture is paused; p goes on"
	case m.o.ReadOnly || (s != nil && s.ReadOnly):
		return "this console is read-only"
	case here && m.host == nil:
		return "no worker host can run in this process"
	case here && m.local != nil && m.local.Refused != "":
		return m.local.Refused
	case here:
		return ""
	case m.feed.lost():
		return "the connection to the database is lost"
	case m.feed.picture == nil || s == nil:
		if m.me.err != nil && m.feed.picture != nil {
			return "the rights of this login are not known: " + why(m.me.err)
		}
		return "the database has not answered yet"
	case s.InRecovery:
		return "this is a standby; it takes no changes"
	case !s.Rights[a.ID]:
		return s.User.String() + " lacks the role " + cmp.Or(s.Needs[a.ID], a.Role)
	}
	return ""
}

// running tells whether loops run in this process.
func (m *shell) running() bool { return m.host != nil && m.local != nil && m.local.Running }

// cost is of when the picture is and what it cost the database.
func (m *shell) cost() []string {
	f := m.feed
	if f.picture == nil {
		return nil
	}
	at := "as of " + f.picture.TakenAt.In(m.env().Loc).Format("15:04:05")
	s := "db " + views.Millis(f.picture.TookMS)
	if f.picture.Shared {
		s += " shared"
	}
	if i := f.interval(); i > f.refresh {
		s += ", every " + views.Span(i)
	}
	return []string{at + " " + m.look.theme.G.Dot + " " + s, at, s}
}

// loopsRunning is how many of them run.
func (m *shell) loopsRunning() (n int) {
	for _, l := range m.local.Loops {
		if l.State == "running" || l.State == "draining" {
			n++
		}
	}
	return n
}
