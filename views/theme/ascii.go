package theme

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// twin is the ASCII replacement of a sign: cell for the screen, where it must
// be as wide as the sign; text for running text, where it may be longer.
type twin struct{ sign, cell, text string }

// twins is the only mapping of signs to ASCII: screens, verbs and the lines of --accessible use it.
var twins = []twin{
	{"×", "x", "x"}, {"÷", "/", "/"}, {"±", "~", "+-"}, {"≈", "~", "~"}, {"≥", ">", ">="}, {"≤", "<", "<="}, {"µ", "u", "u"}, {"°", "o", "deg"},
	{"·", "-", "-"}, {"•", "*", "*"}, {"…", "~", "..."}, {"⋯", "~", "..."}, {"–", "-", "-"}, {"—", "-", "-"}, {"§", "$", "section "},
	{"‘", "'", "'"}, {"’", "'", "'"}, {"“", `"`, `"`}, {"”", `"`, `"`}, {"⟨", "<", "<"}, {"⟩", ">", ">"}, {"\u00a0", " ", " "},
	{"→", ">", "->"}, {"←", "<", "<-"}, {"↑", "^", "^"}, {"↓", "v", "v"},
	{"─", "-", "-"}, {"│", "|", "|"}, {"╭", "+", "+"}, {"╮", "+", "+"}, {"╰", "+", "+"}, {"╯", "+", "+"},
	{"└", "`", "`-"}, {"├", "|", "|-"}, {"┊", ":", ":"}, {"▌", ">", ">"}, {"▏", "_", "_"},
	{"✖", "X", "X"}, {"▲", "!", "!"}, {"✓", "+", "+"}, {"●", "*", "*"}, {"○", "o", "o"}, {"◯", "O", "O"}, {"‖", "=", "="}, {"◌", "?", "?"},
	{"◆", "#", "#"}, {"▼", "|", "|"}, {"▁", ".", "."}, {"▂", ":", ":"}, {"▃", "~", "~"}, {"▄", "=", "="}, {"▅", "+", "+"}, {"▆", "*", "*"}, {"▇", "%", "%"}, {"█", "#", "#"},
	{"␊", "/", `\n`}, {"␉", " ", `\t`}, {"␛", "?", `\e`}, {"␀", "?", `\0`}, {"␡", "?", `\x7f`},
}

var cellTwins, textTwins = replacers()

func replacers() (cells, text *strings.Replacer) {
	var c, t []string
	for _, w := range twins {
		c, t = append(c, w.sign, w.cell), append(t, w.sign, w.text)
	}
	return strings.NewReplacer(c...), strings.NewReplacer(t...)
}

// Twins returns s, a drawn screen or line, in ASCII if the theme is ASCII:
// signs become their twins, other characters question marks. The width does
// not change.
func (t Theme) Twins(s string) string {
	if !t.ASCII || isASCII(s) {
		return s
	}
	s = cellTwins.Replace(s)
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		if s[0] == 0x1b {
			_, _, n, _ := ansi.DecodeSequence(s, 0, nil)
			b.WriteString(s[:n])
			s = s[n:]
			continue
		}
		grapheme, width := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		s = s[len(grapheme):]
		if grapheme[0] < utf8.RuneSelf { // an ASCII character, perhaps with characters that combine with it
			b.WriteByte(grapheme[0])
			width--
		}
		b.WriteString(strings.Repeat("?", max(width, 0)))
	}
	return b.String()
}

// Spell returns text with its signs replaced by ASCII. Letters of other languages are kept.
func Spell(s string) string {
	if isASCII(s) {
		return s
	}
	return textTwins.Replace(s)
}

// ASCIIText returns text in ASCII: signs are replaced, and every other character is escaped as in
// JSON (\u00e9), so that nothing is lost and JSON in the text keeps its meaning.
func ASCIIText(s string) string {
	s = Spell(s)
	if isASCII(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(s[i])
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// inASCII returns the glyphs with ASCII twins in place of signs.
func (g Glyphs) inASCII() Glyphs {
	v := reflect.ValueOf(&g).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(Spell(f.String()))
		}
	}
	spark := make([]string, len(g.Spark))
	for i, s := range g.Spark {
		spark[i] = Spell(s)
	}
	g.Spark = spark
	g.Ellipsis = cellTwins.Replace(unicode.Ellipsis) // it ends the texts of cut cells
	g.Quiet = "."                                    // as the sign of a row; where the same glyph separates words, it becomes another character
	return g
}
