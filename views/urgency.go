package views

// The sign, word and colour of each state, in one place, so that a state looks the same everywhere.

import (
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// rank of a state: what an operator must see first has the greatest.
const (
	rankQuiet = iota
	rankWarning
	rankCritical
)

// rank sorts the states of every pane by urgency.
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

// sign is the glyph of a rank.
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

// byRank is the sign and the look of a row by how urgent it is.
func byRank[T any](rank func(T) int) func(T, Env) (table.Cell, theme.Style) {
	return func(row T, e Env) (table.Cell, theme.Style) { return e.atWork(rank(row), false) }
}

// atWork is the sign and the look of a rank; what is busy and not urgent is live.
func (e Env) atWork(r int, busy bool) (table.Cell, theme.Style) {
	return queue.Choose(busy && r == rankQuiet, cell(e.Theme.G.Live, e.Theme.Accent), e.sign(r)), e.tone(r)
}

// running is the sign and the look of what runs, of what is urgent, and of what is off.
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

// tone is the look of a rank.
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

// strongUnless is the look of a name, quiet where its row is out of use.
func (e Env) strongUnless(out bool) theme.Style {
	return queue.Choose(out, e.Theme.Dim, e.Theme.Strong)
}

// warn is the look of what is as it should be, or not.
func (e Env) warn(bad bool) theme.Style { return e.tone(rankOf(bad)) }

// severity says a severity so that its greater one is louder without colour.
func severity(s string) string {
	return queue.Choose(s == "critical", "CRITICAL", s)
}
