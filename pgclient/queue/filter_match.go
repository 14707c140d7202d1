package queue

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Match reports whether a row matches the filter, with the same meaning as in SQL. get returns a
// field's value as a string, Text, int, int64, float64, time.Time or time.Duration, and false if
// the value is missing. Any other type, the zero time and NaN count as missing. A number in a
// duration field is in seconds.
func (f *Filter) Match(get func(field string) (any, bool), now time.Time) bool {
	return f.MatchShown(get, func(string) string { return "" }, now)
}

// MatchShown is Match for a row on a screen. A term field=text also matches if text equals
// shown(field), which is what the screen shows for the field. A word without a field also matches
// if shown(""), the whole row as the screen shows it, contains the word. shown returns "" if the
// screen shows nothing.
func (f *Filter) MatchShown(get func(field string) (any, bool), shown func(field string) string, now time.Time) bool {
	if f.Empty() {
		return true
	}
	value := func(field string) any {
		if v, ok := get(field); ok {
			return v
		}
		return nil
	}
	for _, t := range f.Terms {
		if (t.matches(value, f.any, now) || t.reads(shown)) == t.Negate {
			return false
		}
	}
	return true
}

func (t Term) matches(get func(string) any, anyFields []string, now time.Time) bool {
	if t.Field != "" {
		row := get(t.Field)
		for _, v := range t.Values {
			if t.holds(row, v, now) {
				return true
			}
		}
		return false
	}
	for _, v := range t.Values {
		part := "*" + v.Raw + "*"
		for _, field := range anyFields {
			if matchGlob(part, textOf(get(field))) {
				return true
			}
		}
	}
	return false
}

// reads reports whether the term matches the text that the screen shows for its field.
func (t Term) reads(shown func(string) string) bool {
	text := shown(t.Field)
	for _, v := range t.Values {
		switch {
		case text == "":
		case t.Field == "" && matchGlob("*"+v.Raw+"*", text),
			t.Field != "" && v.Glob && matchGlob(v.Raw, text),
			t.Field != "" && !v.Glob && t.Kind == FieldText && t.Op == OpEq && v.Raw == text:
			return true
		}
	}
	return false
}

func (t Term) holds(row any, v Value, now time.Time) bool {
	order, ok := 0, false
	switch {
	case v.Glob:
		return matchGlob(v.Raw, textOf(row))
	case t.Kind == FieldText, t.Kind == FieldID && t.Op == OpEq:
		return textOf(row) == v.Raw
	case t.Kind == FieldDuration:
		order, ok = compareDuration(row, v.Duration)
	case t.Kind == FieldTime:
		at, is := row.(time.Time)
		order, ok = at.Compare(v.Time.Resolve(now)), is && !at.IsZero()
	default:
		order, ok = compareNumber(row, v.Raw)
	}
	if !ok {
		return false
	}
	switch t.Op {
	case OpGt:
		return order > 0
	case OpLt:
		return order < 0
	case OpGe:
		return order >= 0
	case OpLe:
		return order <= 0
	}
	return order == 0
}

// textOf returns the text of a value; a missing value is the empty string.
func textOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Text:
		return v.String()
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}

func compareDuration(row any, d time.Duration) (int, bool) {
	switch v := row.(type) {
	case time.Duration:
		return big.NewInt(int64(v)).Cmp(big.NewInt(int64(d))), true
	case int, int64, float64:
		seconds := new(big.Rat).SetFrac64(int64(d), int64(time.Second))
		r, ok := ratOf(v)
		if !ok {
			return 0, false
		}
		return r.Cmp(seconds), true
	}
	return 0, false
}

// compareNumber compares numbers exactly: a float64 could not distinguish ids above 2^53.
func compareNumber(row any, raw string) (int, bool) {
	r, ok := ratOf(row)
	if !ok {
		return 0, false
	}
	v, ok := parseNumber(raw)
	if !ok {
		return 0, false
	}
	n, ok := new(big.Rat).SetString(v.Raw)
	if !ok {
		return 0, false
	}
	return r.Cmp(n), true
}

func ratOf(v any) (*big.Rat, bool) {
	switch v := v.(type) {
	case int:
		return new(big.Rat).SetInt64(int64(v)), true
	case int64:
		return new(big.Rat).SetInt64(v), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, false
		}
		return new(big.Rat).SetFloat64(v), true
	case Text:
		return ratOf(v.String())
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return new(big.Rat).SetInt64(n), err == nil
	}
	return nil, false
}

// matchGlob matches the whole of s, ignoring case. It backtracks to the last star only, which is
// sufficient for globs and avoids exponential time.
func matchGlob(pattern, s string) bool {
	p, text := globRunes(pattern), []rune(s)
	i, j, star, from := 0, 0, -1, 0
	for j < len(text) {
		switch {
		case i < len(p) && p[i] == anyRun:
			star, from = i, j
			i++
		case i < len(p) && (p[i] == anyOne || p[i] == fold(text[j])):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == anyRun {
		i++
	}
	return i == len(p)
}

// Wildcards in a pattern of runes. They are negative, so no text contains them.
const (
	anyRun rune = -1
	anyOne rune = -2
)

func fold(r rune) rune { return unicode.ToLower(r) }

func globRunes(pattern string) []rune {
	var out []rune
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			out, escaped = append(out, fold(r)), false
		case r == '\\':
			escaped = true
		case r == '*':
			out = append(out, anyRun)
		case r == '?':
			out = append(out, anyOne)
		default:
			out = append(out, fold(r))
		}
	}
	if escaped { // a backslash at the end means itself
		out = append(out, '\\')
	}
	return out
}

func hasWildcard(pattern string) bool {
	for _, r := range globRunes(pattern) {
		if r == anyRun || r == anyOne {
			return true
		}
	}
	return false
}

// GlobToLike translates a pattern (Value.Raw of a glob) into one for LIKE or ILIKE with the
// backslash as its escape: * and ? become % and _, and the wildcards of LIKE are escaped. For a
// bare word, put % around it.
func GlobToLike(pattern string) string {
	var b strings.Builder
	literal := func(r rune) {
		if r == '%' || r == '_' || r == '\\' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			literal(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '*':
			b.WriteByte('%')
		case r == '?':
			b.WriteByte('_')
		default:
			literal(r)
		}
	}
	if escaped {
		literal('\\')
	}
	return b.String()
}
