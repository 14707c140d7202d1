package views

// This file maps states to sign, word and look, in one place, so that a state
// looks the same wherever it appears.

import (
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
	case "warning", "stuck", "held", "open", "off", "draining", "suspended", "polling", "partial", "over":
		return rankWarning
	default:
		return rankQuiet
	}
}

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

// severity says a severity so that its greater one is louder without colour.
func severity(s string) string {
	if s == "critical" {
		return "CRITICAL"
	}
	return s
}
