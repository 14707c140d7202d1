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
	clock := " " + h.Now.In(e.loc()).Format("15:04:05") + " " + Zone(h.Now.In(e.loc())) + " "
	if w-theme.Width(state)-2-theme.Width(clock) < h.least(e) {
		clock = ""
	}
	right := theme.Width(state) + 2 + theme.Width(clock)
	left := h.left(e, w-right)
	fill := theme.Blank(w - right - theme.Width(left))
	word := ""
	if p := " " + strings.ToUpper(theme.Safe(h.Profile)) + " "; h.Profile != "" && strings.HasPrefix(left, p) && !h.Production {
		word, left = th.Word.Paint(p), left[len(p):]
	}
	return th.Cut(word+bar.Paint(left+fill)+look.Paint(" "+state+" ")+bar.Paint(clock), w)
}

// left returns the left side of the header: as many facts about server and login as fit, the most
// important first. The facts that an operator must not miss get room before the name of the server
// is written out, and before any other fact. The names of the profile, the database and the actor
// are cut where all of them are long, so that each can be recognized.
func (h Header) left(e Env, w int) string {
	th := e.Theme
	sep := " " + th.G.Dot + " "
	facts := h.facts()
	spare, cut := w-h.least(e), theme.Width(facts[0].shortest())-facts[0].least()
	lead := h.lead(e, max(spare-cut, spare/2))
	chosen := make([]string, len(facts))
	room := func(i int) int { // for fact i beside the chosen ones
		n := w - theme.Width(lead)
		for j, c := range chosen {
			if c != "" && j != i {
				n -= theme.Width(c) + theme.Width(sep)
			}
		}
		return n
	}
	choose := func(i int, forms []string) {
		for _, f := range forms {
			if f = theme.Safe(f); theme.Width(f) <= room(i) {
				chosen[i] = f
				return
			}
		}
	}
	for i, f := range facts {
		switch short := f.shortest(); {
		case f.warns:
			choose(i, []string{short})
		case f.acts:
			if left := room(i) - facts[0].least() - theme.Width(sep); left >= f.least() {
				chosen[i] = th.Cut(short, left)
			}
		}
	}
	for i, f := range facts {
		choose(i, f.forms)
		if i == 0 && chosen[i] == "" {
			chosen[i] = th.Cut(f.shortest(), room(i))
		}
	}
	return th.Cut(lead+strings.Join(slices.DeleteFunc(chosen, func(c string) bool { return c == "" }), sep), w)
}

// fact is a fact about the server or the login, in several lengths, the longest first.
type fact struct {
	forms []string
	warns bool // an operator must not miss it
	acts  bool // it names who acts
}

// leastName is how many cells of the name of a profile, a database or an actor remain beside others.
const leastName = 8

// shortest returns the shortest form of the fact.
func (f fact) shortest() string { return theme.Safe(f.forms[len(f.forms)-1]) }

// least returns how many cells the fact needs at least; a warning is never cut.
func (f fact) least() int {
	return queue.Choose(f.warns, theme.Width(f.shortest()), min(theme.Width(f.shortest()), leastName))
}

// least returns how many cells the left side needs at least: for the name of the profile, the
// place, the warnings and who acts. The clock gives way to them.
func (h Header) least(e Env) int {
	n := theme.Width(h.lead(e, 0))
	for i, f := range h.facts() {
		if i == 0 || f.warns || f.acts {
			n += f.least() + queue.Choose(i == 0, 0, theme.Width(" "+e.Theme.G.Dot+" "))
		}
	}
	return n
}

// lead returns the beginning of the left side: the name of the profile in leastName cells and up to
// more further ones.
func (h Header) lead(e Env, more int) string {
	if h.Profile == "" {
		return " "
	}
	return " " + e.Theme.Cut(strings.ToUpper(theme.Safe(h.Profile)), leastName+max(more, 0)) + "  "
}

// facts returns the facts of the header in their order; the first is the place.
func (h Header) facts() []fact {
	s := h.Session
	switch {
	case s == nil && h.Server == nil:
		return []fact{{forms: []string{"no answer from the database yet"}}}
	case s == nil:
		return []fact{{forms: []string{strings.TrimSpace(h.Server.Address.String() + " login not read"), "login not read"}}}
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
	facts := []fact{{forms: placeForms(s.Database.String(), address.String())}}
	if !s.TLS && !s.Local {
		facts = append(facts, fact{forms: []string{"NOT ENCRYPTED"}, warns: true})
	}
	if h.ReadOnly || s.ReadOnly {
		facts = append(facts, fact{forms: []string{"READ-ONLY"}, warns: true})
	}
	facts = append(facts, fact{forms: []string{shortVersion(s.Version.String()) + " " + kind, kind}, warns: standby})
	if s.Superuser {
		facts = append(facts, fact{forms: []string{"SUPERUSER"}})
	}
	facts = append(facts, fact{forms: who, acts: true})
	if s.TLS {
		facts = append(facts, fact{forms: []string{"TLS"}})
	}
	if s.Pooler {
		facts = append(facts, fact{forms: append(queue.Choose(behind.Empty(), nil, []string{"pooler to " + behind.String()}), "pooler")})
	}
	return facts
}

// placeForms returns the forms of a database and the address of its server: with the address, without the
// usual port, with the first label of the host's name, and the database alone.
func placeForms(database, address string) []string {
	place := database + "@" + address
	forms := []string{place, strings.TrimSuffix(place, ":5432")}
	label, _, more := strings.Cut(address, ".")
	if more && strings.Trim(label, "0123456789") != "" && !strings.ContainsAny(label, "/[") { // no IP address, no socket
		forms = append(forms, database+"@"+label)
	}
	return append(forms, database)
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
	case h.Link.State == "slow":
		return th.G.Warning + " SLOW, " + old + " old", th.Caution
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
