package theme

import "strings"

// signs are the ASCII twins, cell for cell, of signs in words that were not made with Glyphs.
var signs = strings.NewReplacer(
	"×", "x", "·", "-", "…", "~", "–", "-", "→", ">", "←", "<", "↑", "^", "↓", "v", "≥", ">", "≈", "~", "•", "*",
	"─", "-", "│", "|", "╭", "+", "╮", "+", "╰", "+", "╯", "+", "└", "`", "├", "|", "┊", ":", "▌", ">", "▏", "_",
	"✖", "X", "▲", "!", "✓", "+", "●", "*", "○", "o", "‖", "=", "◌", "?", "◆", "#", "▼", "|", "␊", "/",
)

// Twins returns a drawn screen or a line without the signs that only a complete font has, if the
// theme is ASCII. Letters of other languages in data stay. Widths do not change.
func (t Theme) Twins(s string) string {
	if !t.ASCII || plain(s) {
		return s
	}
	return signs.Replace(s)
}
