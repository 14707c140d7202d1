package theme

// The signs of states. Each state has a sign and a word, so that the screen can be read without
// colours and with an incomplete font. Every sign is one cell wide; none is an emoji or needs a
// patched font.

// Glyphs is one set of signs.
type Glyphs struct {
	Critical, Warning, Quiet, Good string
	Live, Lost, Paused, Waiting    string
	Cursor, Mark, Stale            string
	Ellipsis, Times, Dot, Dash     string
	Up, Down, Right                string
	Approx, AtLeast                string
	H, V, TL, TR, BL, BR, Rule     string
	Spark                          []string // the bars from low to high
	Tee                            string
	Pin                            string // the sign of a mark above a curve of the last hour
	Caret                          string
}

var unicode = Glyphs{
	Critical: "✖", Warning: "▲", Quiet: "·", Good: "✓",
	Live: "●", Lost: "○", Paused: "‖", Waiting: "◌",
	Cursor: "▌", Mark: "◆", Stale: "┊",
	Ellipsis: "…", Times: "×", Dot: "·", Dash: "–",
	Up: "↑", Down: "↓", Right: "→",
	Approx: "≈", AtLeast: "≥",
	H: "─", V: "│", TL: "╭", TR: "╮", BL: "╰", BR: "╯", Rule: "─",
	Spark: []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	Tee:   "└", Caret: "▏", Pin: "▼",
}

var ascii = unicode.inASCII()
