package queue

import (
	"strings"
	"unicode"
)

// word is one alternative value as typed: as a glob, in which quoted characters are escaped, and
// as the literal text.
type word struct {
	glob, literal string
	quoted        bool
	pos           int
}

// words parses alternatives up to the next space, with quotes and escapes.
func (p *filterReader) words(bare bool) ([]word, error) {
	var all []word
	for {
		w, err := p.word(bare)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
		if !p.at("|") {
			return all, nil
		}
		p.pos++
	}
}

func (p *filterReader) word(bare bool) (word, error) {
	start := p.pos
	w := word{pos: start}
	var glob, literal strings.Builder
	quote, quoteAt := rune(0), 0
	for p.more() {
		r := p.in[p.pos]
		switch {
		case quote == 0 && (r == '|' || unicode.IsSpace(r)):
			return p.endWord(w, &glob, &literal)
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || (r == '\'' && p.pos == start)):
			quote, quoteAt, w.quoted = r, p.pos, true
		case r == '\\':
			p.pos++
			if !p.more() {
				return w, p.fail(p.pos-1, "a backslash at the end", `write \\ for a backslash`)
			}
			if r = p.in[p.pos]; Unsafe(r) {
				return w, p.invisible(r)
			}
			if strings.ContainsRune(`*?\`, r) {
				glob.WriteByte('\\')
			}
			glob.WriteRune(r)
			literal.WriteRune(r)
		case quote == 0 && p.misplaced(r, start, bare):
			return w, p.fail(p.pos, "“"+string(r)+"” where a value is expected", "quote the value if that is its text")
		case Unsafe(r): // inside quotes, a tab or line end is unsafe; between terms it counts as a space
			return w, p.invisible(r)
		default:
			glob.WriteRune(r)
			literal.WriteRune(r)
		}
		p.pos++
	}
	if quote != 0 {
		return w, p.fail(quoteAt, "a quote that is not closed", "close it with "+string(quote))
	}
	return p.endWord(w, &glob, &literal)
}

func (p *filterReader) invisible(r rune) error {
	return p.fail(p.pos, "the invisible character "+markOf(r), "use ? in its place")
}

// misplaced reports whether r is an operator that is probably not meant as text.
func (p *filterReader) misplaced(r rune, start int, bare bool) bool {
	if p.pos == start && r == '!' {
		return true
	}
	return (bare || p.pos == start) && strings.ContainsRune(":=<>", r)
}

func (p *filterReader) endWord(w word, glob, literal *strings.Builder) (word, error) {
	if p.pos == w.pos {
		return w, p.fail(w.pos, "a value is missing", `write one, or "" for the empty one`)
	}
	w.glob, w.literal = glob.String(), literal.String()
	return w, nil
}
