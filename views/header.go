package views

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Header is the first line: server, login and freshness of the snapshot.
type Header struct {
	Profile    string
	Production bool
	ReadOnly   bool
	Actor      string
	Session    *queue.Session // nil until the database has answered
	Server     *queue.Server  // the server of the snapshot; nil without a snapshot
	Link       queue.Link
	Age        time.Duration // age of the snapshot
	Old        bool          // the snapshot is older than a working refresh would leave it
	Paused     bool
	Past       time.Duration // age of the stored snapshot on the screen; 0 = the snapshot is live
	Now        time.Time     // the operator's clock
}

// Line draws the header in exactly w cells.
func (h Header) Line(e Env, w int) string {
	th := e.Theme
	bar := h.calm(th)
	state, look := h.state(e)
	clock := h.Now.In(e.loc()).Format("15:04:05") + " " + Zone(h.Now.In(e.loc())) + " "
	right := theme.Width(state) + 2 + theme.Width(clock) + 1
	left := h.left(e, w-right)
	fill := theme.Blank(w - right - theme.Width(left))
	word := ""
	if p := " " + strings.ToUpper(theme.Safe(h.Profile)) + " "; h.Profile != "" && strings.HasPrefix(left, p) && !h.Production {
		word, left = th.Word.Paint(p), left[len(p):]
	}
	return th.Cut(word+bar.Paint(left+fill)+look.Paint(" "+state+" ")+bar.Paint(" "+clock), w)
}

// left returns the left side of the header: as many facts about server and
// login as fit, the most important first.
func (h Header) left(e Env, w int) string {
	th := e.Theme
	out := " " + queue.Choose(h.Profile != "", strings.ToUpper(theme.Safe(h.Profile))+"  ", "")
	for i, forms := range h.words() {
		sep := queue.Choose(i > 0, " "+th.G.Dot+" ", "")
		for f, p := range forms {
			p = theme.Safe(p)
			if theme.Width(out)+theme.Width(sep)+theme.Width(p) <= w {
				out += sep + p
				break
			}
			if i == 0 && f == len(forms)-1 {
				return th.Cut(out+p, w)
			}
		}
	}
	return th.Cut(out, w)
}

// words returns these facts, each in several lengths, the longest first.
func (h Header) words() [][]string {
	s := h.Session
	if s == nil {
		return [][]string{{"no answer from the database yet"}}
	}
	standby, address, behind := s.InRecovery, s.Address, queue.Text{}
	if h.Server != nil && !h.Server.Address.Empty() { // the server that answered last
		standby, address, behind = h.Server.InRecovery, h.Server.Address, h.Server.Behind
	}
	kind := queue.Choose(standby, "STANDBY", "primary")
	actor := cmp.Or(h.Actor, s.Actor, s.User.String())
	var who []string
	for _, roles := range RolesShown(s.Roles) {
		who = append(who, actor+" ("+roles+")")
	}
	who = append(who, actor)
	place := s.Database.String() + "@" + address.String()
	words := [][]string{{place, strings.TrimSuffix(place, ":5432"), s.Database.String()}}
	if !s.TLS && !s.Local {
		words = append(words, []string{"NOT ENCRYPTED"})
	}
	if h.ReadOnly || s.ReadOnly {
		words = append(words, []string{"READ-ONLY"})
	}
	words = append(words, []string{shortVersion(s.Version.String()) + " " + kind, kind}, who)
	if s.Superuser {
		words = append(words, []string{"SUPERUSER"})
	}
	if s.TLS {
		words = append(words, []string{"TLS"})
	}
	if s.Pooler {
		words = append(words, append(queue.Choose(behind.Empty(), nil, []string{"pooler to " + behind.String()}), "pooler"))
	}
	return words
}

// rolesFirst are the roles that say most about what a login may do in the console, most powerful
// first.
func rolesFirst() []string {
	return []string{"workflow_admin", "dead_letter_operator", "dot_executor", "queue_viewer"}
}

// RolesShown returns the roles of a login for the header, from all names to none: "workflow_admin,
// queue_viewer", "workflow_admin +1 role". The help (?) lists all of them.
func RolesShown(roles []string) []string {
	var all []string
	for _, r := range rolesFirst() {
		if slices.Contains(roles, r) {
			all = append(all, r)
		}
	}
	for _, r := range roles {
		if !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	switch n := len(all); n {
	case 0:
		return nil
	case 1:
		return all
	default:
		return []string{strings.Join(all, ", "), all[0] + " +" + Plural(int64(n-1), "role", "roles"), Plural(int64(n), "role", "roles")}
	}
}

func shortVersion(v string) string {
	v = strings.TrimPrefix(v, "PostgreSQL ")
	v, _, _ = strings.Cut(v, " ")
	return v
}

// state returns the freshness of the snapshot as a sign and words.
func (h Header) state(e Env) (string, theme.Style) {
	th := e.Theme
	old := Age(int64(h.Age.Seconds()))
	switch {
	case h.Link.State == "lost":
		if h.Server == nil {
			return th.G.Lost + " NO DATABASE", th.Alarm
		}
		return th.G.Lost + " LOST, " + old + " old", th.Alarm
	case h.Past > 0:
		return th.G.Paused + " PAST, " + Age(int64(h.Past.Seconds())) + " ago", th.Caution
	case h.Paused:
		return th.G.Paused + " PAUSED, " + old + " old", th.Caution
	case h.Server == nil:
		return th.G.Waiting + " connecting", h.calm(th)
	case h.Old:
		return th.G.Warning + " " + old + " old", th.Caution
	case h.Link.State == "polling":
		return th.G.Live + " polling", h.calm(th)
	case h.Link.State == "connecting":
		return th.G.Waiting + " connecting", h.calm(th)
	default:
		return th.G.Live + " live", h.calm(th)
	}
}

func (h Header) calm(th theme.Theme) theme.Style {
	return queue.Choose(h.Production, th.Alarm, th.Bar)
}
