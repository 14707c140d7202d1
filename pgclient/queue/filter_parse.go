package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of a filter. They exist because a filter becomes one SQL statement.
const (
	filterMaxChars = 8192
	filterMaxTerms = 100
)

// ParseFilter parses a filter; times without a zone are UTC. The error is a *FilterError, which has
// the position of the mistake. An empty text gives an empty Filter.
func ParseFilter(s string, fields []Field) (*Filter, error) {
	return ParseFilterIn(s, fields, time.UTC)
}

// ParseFilterIn is ParseFilter with times without a zone in loc.
func ParseFilterIn(s string, fields []Field, loc *time.Location) (*Filter, error) {
	if loc == nil {
		loc = time.UTC
	}
	if err := checkFilterText(s); err != nil {
		return nil, err
	}
	f := &Filter{}
	for _, field := range fields {
		if field.Kind == FieldText || field.Kind == FieldID {
			f.any = append(f.any, field.Name)
		}
	}
	p := &filterReader{in: []rune(s), fields: fields, loc: loc}
	for {
		for p.more() && unicode.IsSpace(p.in[p.pos]) {
			p.pos++
		}
		if !p.more() {
			return f, nil
		}
		if len(f.Terms) == filterMaxTerms {
			return nil, p.fail(p.pos, fmt.Sprintf("more than %d terms", filterMaxTerms), "use alternatives in one term: id:1|2|3")
		}
		t, err := p.term()
		if err != nil {
			return nil, err
		}
		f.Terms = append(f.Terms, t)
	}
}

// checkFilterText refuses characters that a screen could not show as they were typed.
func checkFilterText(s string) error {
	column := 0
	for i, r := range s {
		column++
		if column > filterMaxChars {
			return &FilterError{Column: column, What: fmt.Sprintf("longer than %d characters", filterMaxChars), Do: "shorten it, or filter by a group"}
		}
		if _, size := utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && size == 1 {
			return &FilterError{Column: column, What: "a byte that is not UTF-8", Do: "use ? in its place"}
		}
		if Unsafe(r) && !unicode.IsSpace(r) {
			return &FilterError{Column: column, What: "the invisible character " + markOf(r), Do: "use ? in its place"}
		}
	}
	return nil
}

// filterReader parses the characters in one pass.
type filterReader struct {
	in     []rune
	pos    int
	fields []Field
	loc    *time.Location
}

func (p *filterReader) more() bool { return p.pos < len(p.in) }

func (p *filterReader) at(chars string) bool {
	return p.more() && strings.ContainsRune(chars, p.in[p.pos])
}

func (p *filterReader) fail(pos int, what, do string) *FilterError {
	return &FilterError{Column: pos + 1, What: what, Do: do}
}

// term parses [!]field op values or [!]words.
func (p *filterReader) term() (Term, error) {
	t := Term{Column: p.pos + 1}
	if p.at("!") {
		t.Negate = true
		p.pos++
		if p.at("!") {
			return t, p.fail(p.pos, "a second !", "one ! negates the term, none leaves it as it is")
		}
		if !p.more() || unicode.IsSpace(p.in[p.pos]) {
			return t, p.fail(p.pos-1, "! with nothing behind it", "write it directly before a term: !code:HTTP_503")
		}
	}
	start := p.pos
	end := start
	for end < len(p.in) && !unicode.IsSpace(p.in[end]) && !strings.ContainsRune(`"|\:=<>`, p.in[end]) && (end > start || p.in[end] != '\'') {
		end++
	}
	if end == len(p.in) || !strings.ContainsRune(":=<>", p.in[end]) {
		return p.bare(t)
	}
	p.pos = end
	return p.fielded(t, start, string(p.in[start:end]))
}

// bare parses words that are searched in every text field.
func (p *filterReader) bare(t Term) (Term, error) {
	words, err := p.words(true)
	if err != nil {
		return t, err
	}
	if len(words) == 1 && !words[0].quoted && isConnective(words[0].literal) {
		return t, p.fail(words[0].pos, "“"+words[0].literal+"” between terms",
			"a space means and, a|b in a value means or, ! means not; quote the word to search for it")
	}
	for _, w := range words {
		if w.literal == "" {
			return t, p.fail(w.pos, "an empty word", "leave it out, or compare a field: code:\"\"")
		}
		t.Values = append(t.Values, Value{Raw: w.glob, Glob: true})
	}
	return t, nil
}

// fielded parses the operator and the values of a field.
func (p *filterReader) fielded(t Term, start int, name string) (Term, error) {
	if name == "" {
		return t, p.fail(p.pos, "no field before “"+string(p.in[p.pos])+"”", "name one: "+fieldNames(p.fields))
	}
	if positive, ok := strings.CutSuffix(name, "!"); ok {
		return t, p.fail(p.pos-1, "! in front of the operator", "put it in front of the field: !"+brief(positive)+"=…")
	}
	field, err := p.field(start, name)
	if err != nil {
		return t, err
	}
	t.Field, t.Kind, t.Op = field.Name, field.Kind, Op(p.in[p.pos])
	opAt := p.pos
	p.pos++
	if p.at("=") && (t.Op == OpGt || t.Op == OpLt) {
		t.Op += OpEq
		p.pos++
	}
	if err := p.checkOp(opAt, field, &t); err != nil {
		return t, err
	}
	if p.at("!") {
		return t, p.fail(p.pos, "! in front of the value", "put it in front of the field: !"+brief(name)+string(t.Op)+"…; quote the value if ! is its text")
	}
	words, err := p.words(false)
	if err != nil {
		return t, err
	}
	if len(words) > 1 && t.Op != OpGlob && t.Op != OpEq {
		return t, p.fail(words[1].pos, "alternatives behind "+string(t.Op), "alternatives work with : and = only; write one value")
	}
	for _, w := range words {
		v, err := p.value(field, t.Op, w)
		if err != nil {
			return t, err
		}
		t.Values = append(t.Values, v)
	}
	return t, nil
}

func (p *filterReader) field(at int, name string) (Field, error) {
	names := make([]string, len(p.fields))
	for i, f := range p.fields {
		if strings.EqualFold(f.Name, name) {
			return f, nil
		}
		names[i] = f.Name
	}
	do := "fields are " + fieldNames(p.fields)
	if near := Nearest(name, names); near != "" {
		do = "did you mean “" + near + "”? " + do
	}
	return Field{}, p.fail(at, "unknown field “"+brief(name)+"”", do+"; quote the text to search for it")
}

// checkOp refuses operators that the kind of the field does not support.
func (p *filterReader) checkOp(at int, f Field, t *Term) error {
	compares := t.Op != OpGlob && t.Op != OpEq
	switch {
	case f.Kind == FieldText && compares:
		return p.fail(at, f.Name+" is text and has no order", "use "+f.Name+":glob or "+f.Name+"=value")
	case f.Kind == FieldDuration && !compares:
		return p.fail(at, f.Name+" is a duration", "compare it: "+f.Name+">2h or "+f.Name+"<30m")
	case f.Kind == FieldTime && !compares:
		return p.fail(at, f.Name+" is a time", "compare it: "+f.Name+">-30m or "+f.Name+"<2026-11-20T02:00")
	case f.Kind == FieldNumber && t.Op == OpGlob:
		t.Op = OpEq
	}
	return nil
}

// value converts a word to the type of its field.
func (p *filterReader) value(f Field, op Op, w word) (Value, error) {
	bad := func(what, do string) (Value, error) {
		return Value{}, p.fail(w.pos, "“"+brief(w.literal)+"” is "+what, do)
	}
	compares := op != OpGlob && op != OpEq
	switch {
	case f.Kind == FieldDuration:
		d, ok := parseDuration(w.literal)
		if !ok {
			return bad("not a duration", "write 90s, 30m, 2h30m, 3d or 1w, up to 100 years")
		}
		return Value{Raw: DurationText(d), Duration: d}, nil
	case f.Kind == FieldTime:
		v, ok := parseTime(w.literal, p.loc)
		if !ok {
			return bad("not a time", "write -30m, 02:00, 2026-11-20 or 2026-11-20T02:00Z")
		}
		return v, nil
	case f.Kind == FieldNumber:
		v, ok := parseNumber(w.literal)
		if !ok {
			return bad("not a number", "write digits only, such as "+f.Name+"=7")
		}
		return v, nil
	case f.Kind == FieldID && compares:
		n, err := strconv.ParseInt(w.literal, 10, 64)
		if err != nil {
			return bad("not a whole number", "only numbered ids have an order: "+f.Name+">4711")
		}
		return Value{Raw: strconv.FormatInt(n, 10), Number: float64(n)}, nil
	}
	if f.Closed && !(op == OpGlob && hasWildcard(w.glob)) {
		for _, known := range f.Values {
			if known == w.literal || (op == OpGlob && strings.EqualFold(known, w.literal)) {
				return typedText(op, w), nil
			}
		}
		do := f.Name + " is one of " + strings.Join(f.Values, ", ")
		if near := Nearest(w.literal, f.Values); near != "" {
			do = "did you mean “" + near + "”? " + do
		}
		return bad("no "+f.Name, do)
	}
	return typedText(op, w), nil
}

func typedText(op Op, w word) Value {
	if op == OpGlob {
		return Value{Raw: w.glob, Glob: true}
	}
	return Value{Raw: w.literal}
}
