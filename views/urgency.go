package views

// The sign, style and urgency of each state, in one place, so that a state looks the same
// everywhere.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// A rank says how urgent a state is: the higher, the sooner an operator must
// see it.
const (
	rankQuiet = iota
	rankWarning
	rankCritical
)

// rank returns the rank of a state, by which panes sort their rows.
func rank(state string) int {
	switch state {
	case "critical", "dead", "stale", "failed", "lost", "invalid", "overdue", "refused":
		return rankCritical
	case "warning", "unwatched", "stuck", "held", "open", "off", "draining", "suspended", "polling", "partial", "over":
		return rankWarning
	default:
		return rankQuiet
	}
}

func rankOf(bad bool) int { return queue.Choose(bad, rankWarning, rankQuiet) }

// sign returns the glyph of a rank.
func (e Env) sign(r int) table.Cell {
	th := e.Theme
	switch r {
	case rankCritical:
		return cell(th.G.Critical, th.Critical)
	case rankWarning:
		return cell(th.G.Warning, th.Warning)
	default:
		return cell(th.G.Quiet, th.Dim)
	}
}

// byRank returns a function for the sign and the style of a row, made of a function for its rank.
func byRank[T any](rank func(T) int) func(T, Env) (table.Cell, theme.Style) {
	return func(row T, e Env) (table.Cell, theme.Style) { return e.atWork(rank(row), false) }
}

// atWork returns sign and style of a rank; if the row is not urgent but busy,
// the sign is "live".
func (e Env) atWork(r int, busy bool) (table.Cell, theme.Style) {
	return queue.Choose(busy && r == rankQuiet, cell(e.Theme.G.Live, e.Theme.Accent), e.sign(r)), e.tone(r)
}

// running returns sign and style of a row that can be switched off: those of
// its rank or, if it is not urgent and does not run, those of "off".
func (e Env) running(r int, runs bool) (table.Cell, theme.Style) {
	switch th := e.Theme; {
	case runs:
		return cell(th.G.Live, th.Accent), th.Accent
	case r > rankQuiet:
		return e.sign(r), e.tone(r)
	default:
		return cell(th.G.Lost, th.Dim), th.Dim
	}
}

// tone returns the style of a rank.
func (e Env) tone(r int) theme.Style {
	switch r {
	case rankCritical:
		return e.Theme.Critical
	case rankWarning:
		return e.Theme.Warning
	default:
		return e.Theme.Text
	}
}

// strongUnless returns the style of a row's name: strong, or dim if the row is
// out of use.
func (e Env) strongUnless(out bool) theme.Style {
	return queue.Choose(out, e.Theme.Dim, e.Theme.Strong)
}

// warn returns the style of a warning if bad is true, otherwise the normal one.
func (e Env) warn(bad bool) theme.Style { return e.tone(rankOf(bad)) }

// severity returns a severity in a form in which critical stands out without colour.
func severity(s string) string {
	return queue.Choose(s == "critical", "CRITICAL", s)
}
