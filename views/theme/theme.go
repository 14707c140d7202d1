// Package theme holds what all parts of the console draw with: styles as prebuilt escape sequences,
// glyphs with their ASCII twins, and the functions that bring a string to a width.
package theme

// Makes styles. They are declared with Lip Gloss, and their escape sequences are extracted once:
// the console draws some thousand styled cells per second, and a call of Style.Render for each
// would be most of the cost of a frame.

import (
	"strings"

	"charm.land/lipgloss/v2"
)

// Depth is the number of colours that the terminal shows.
type Depth int

// The depths. The styles are designed for sixteen colours; more colours only
// refine the shades.
const (
	Mono Depth = iota
	Sixteen
	Rich // 256 or more
)

// Style is a prebuilt style. The zero Style changes nothing.
type Style struct{ open, on string }

const reset = "\x1b[m"

// Paint returns the text in this style.
func (s Style) Paint(text string) string {
	if s.open == "" || text == "" {
		return text
	}
	return s.open + text + reset
}

// PaintOn returns the text in this style for the row under the cursor.
func (s Style) PaintOn(text string) string {
	if s.on == "" || text == "" {
		return text
	}
	return s.on + text + reset
}

// Options determine a Theme.
type Options struct {
	Depth Depth
	Light bool // the terminal's background is light
	ASCII bool
}

// Theme has all styles and glyphs that the console draws with. It is a value: Faded returns a copy
// for old data and for the screen under a dialog.
type Theme struct {
	Options
	G Glyphs

	Text     Style // ordinary words
	Strong   Style // the most important text of a row
	Dim      Style // labels, units, context
	Title    Style // section and column heads
	Accent   Style // keys, work in progress, links to other panes
	Critical Style
	Warning  Style
	Word     Style // a word drawn as a badge, such as the name of the profile
	Alarm    Style // a badge that must not be overlooked: production, lost
	Caution  Style // a badge of a warning: PAUSED, READ-ONLY
	Bar      Style // the header line
	Tab      Style // the pane that is open
	Field    Style // an input field
	Caret    Style // the cell of an input field where typed text appears
	Button   Style
	Chosen   Style // the button that the enter key presses
	Edge     Style // frames
}

// New makes the theme for a terminal.
func New(o Options) Theme {
	t := Theme{Options: o, G: unicode}
	if o.ASCII {
		t.G = ascii
	}
	p := t.palette()
	t.Text = t.style(p.text)
	t.Strong = t.style(p.text.Bold(true))
	t.Dim = t.style(p.dim)
	t.Title = t.style(p.title)
	t.Accent = t.style(p.accent)
	t.Critical = t.style(p.critical)
	t.Warning = t.style(p.warning)
	t.Word = t.style(p.word)
	t.Alarm = t.style(p.alarm)
	t.Caution = t.style(p.caution)
	t.Bar = t.style(p.bar)
	t.Tab = t.style(p.tab)
	t.Field = t.style(p.field)
	t.Caret = t.style(p.text.Reverse(true))
	t.Button = t.style(p.button)
	t.Chosen = t.style(p.text.Bold(true).Reverse(true))
	t.Edge = t.style(p.edge)
	return t
}

// Faded returns the theme for old data and for the screen under a dialog: the same words without
// emphasis.
func (t Theme) Faded() Theme {
	d := t.Dim
	t.Text, t.Strong, t.Title, t.Accent = d, d, d, d
	t.Critical, t.Warning, t.Word, t.Alarm, t.Caution, t.Tab = d, d, d, d, d, d
	return t
}

// palette has one style per role. Meaning never depends on colour alone: each state also has a glyph
// and a word, and no two roles differ only by red and green.
type palette struct {
	text, dim, title, accent, critical, warning         lipgloss.Style
	word, alarm, caution, bar, tab, field, button, edge lipgloss.Style
}

func (t Theme) palette() palette {
	n := lipgloss.NewStyle()
	if t.Depth == Mono {
		return palette{
			text: n, dim: n.Faint(true), title: n.Bold(true), accent: n.Bold(true),
			critical: n.Bold(true), warning: n.Bold(true),
			word: n.Reverse(true), alarm: n.Reverse(true).Bold(true), caution: n.Reverse(true),
			bar: n.Bold(true), tab: n.Reverse(true), field: n.Underline(true), button: n, edge: n.Faint(true),
		}
	}
	// Of sixteen colours, the dark ones are invisible on black and the bright ones on white, and
	// bright black is the background itself in some palettes. So Dim uses the attribute faint
	// instead of a colour.
	pick := lipgloss.LightDark(!t.Light)
	red, yellow := pick(lipgloss.Red, lipgloss.BrightRed), pick(lipgloss.Magenta, lipgloss.BrightYellow)
	cyan, blue := pick(lipgloss.Blue, lipgloss.BrightCyan), pick(lipgloss.Blue, lipgloss.Cyan)
	p := palette{
		text: n, dim: n.Faint(true), title: n.Foreground(blue).Bold(true), accent: n.Foreground(cyan),
		critical: n.Foreground(red).Bold(true), warning: n.Foreground(yellow),
		word:    n.Reverse(true),
		alarm:   n.Background(lipgloss.Red).Foreground(lipgloss.BrightWhite).Bold(true),
		caution: n.Background(lipgloss.Yellow).Foreground(lipgloss.Black),
		bar:     n.Bold(true), tab: n.Foreground(cyan).Reverse(true).Bold(true),
		field: n.Underline(true), button: n.Foreground(cyan), edge: n.Faint(true),
	}
	if t.Depth != Rich {
		return p
	}
	p.dim = n.Foreground(pick(lipgloss.Color("242"), lipgloss.Color("246")))
	p.edge = n.Foreground(pick(lipgloss.Color("248"), lipgloss.Color("240")))
	p.title = n.Foreground(pick(lipgloss.Color("25"), lipgloss.Color("110"))).Bold(true)
	p.accent = n.Foreground(pick(lipgloss.Color("30"), lipgloss.Color("80")))
	p.critical = n.Foreground(pick(lipgloss.Color("160"), lipgloss.Color("203"))).Bold(true)
	p.warning = n.Foreground(pick(lipgloss.Color("130"), lipgloss.Color("221")))
	p.alarm = n.Background(lipgloss.Color("160")).Foreground(lipgloss.Color("231")).Bold(true)
	p.caution = n.Background(lipgloss.Color("221")).Foreground(lipgloss.Color("16"))
	p.word = n.Background(pick(lipgloss.Color("25"), lipgloss.Color("67"))).Foreground(lipgloss.Color("231")).Bold(true)
	p.bar = n.Background(pick(lipgloss.Color("254"), lipgloss.Color("236"))).Foreground(pick(lipgloss.Color("235"), lipgloss.Color("252")))
	p.tab = n.Background(pick(lipgloss.Color("30"), lipgloss.Color("80"))).Foreground(pick(lipgloss.Color("231"), lipgloss.Color("16"))).Bold(true)
	p.button = n.Foreground(pick(lipgloss.Color("30"), lipgloss.Color("80")))
	p.field = n.Background(pick(lipgloss.Color("254"), lipgloss.Color("237"))).Foreground(pick(lipgloss.Color("235"), lipgloss.Color("252")))
	return p
}

// style extracts the escape sequences of a Lip Gloss style: normally, and for the row under the
// cursor. That row has a quiet background if there are enough colours; otherwise it is in reverse
// video without colour, because reversed colours would be hard to read.
func (t Theme) style(s lipgloss.Style) Style {
	on := lipgloss.NewStyle().Reverse(true).Bold(s.GetBold())
	if t.Depth == Rich {
		pick := lipgloss.LightDark(!t.Light)
		on = s.Background(pick(lipgloss.Color("252"), lipgloss.Color("238")))
		if _, none := s.GetForeground().(lipgloss.NoColor); none {
			on = on.Foreground(pick(lipgloss.Color("232"), lipgloss.Color("255")))
		}
	}
	return Style{open: opening(s), on: opening(on)}
}

func opening(s lipgloss.Style) string {
	open, _, _ := strings.Cut(s.Render("x"), "x")
	return open
}
