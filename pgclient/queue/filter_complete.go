package queue

import (
	"strings"
	"unicode"
)

// CompleteFilter returns complete filter texts in which the word before the cursor (a position in
// characters) is completed: to a field name, or to a known value of the field, or to an example of
// its type. The text after the cursor is kept.
func CompleteFilter(s string, cursor int, fields []Field) []string {
	in := []rune(s)
	cursor = max(0, min(cursor, len(in)))
	start, op, value := wordBefore(in, cursor)
	head, after := string(in[:start]), string(in[cursor:])
	typed := string(in[start:cursor])

	var out []string
	offer := func(word string) {
		if word != typed {
			out = append(out, head+word+after)
		}
	}
	if op < 0 {
		name, negated := strings.CutPrefix(typed, "!")
		for _, f := range fields {
			if len(name) <= len(f.Name) && strings.EqualFold(name, f.Name[:len(name)]) {
				word := f.Name + string(firstOp(f.Kind))
				if negated {
					word = "!" + word
				}
				offer(word)
			}
		}
		return out
	}
	name := strings.TrimPrefix(string(in[start:op]), "!")
	part := string(in[value:cursor])
	for _, f := range fields {
		if !strings.EqualFold(f.Name, name) {
			continue
		}
		for _, v := range knownValues(f, string(in[op])) {
			if len(part) <= len(v) && strings.EqualFold(part, v[:len(part)]) {
				offer(string(in[start:value]) + quoteValue(Value{Raw: v}, false))
			}
		}
	}
	return out
}

// wordBefore finds the term at the cursor: where the term, its operator (-1 if there is none)
// and the value being typed start.
func wordBefore(in []rune, cursor int) (start, op, value int) {
	op = -1
	quote := rune(0)
	for i := 0; i < cursor; i++ {
		r := in[i]
		switch {
		case r == '\\':
			i++
		case r == quote:
			quote = 0
		case quote != 0:
		case r == '"':
			quote = r
		case unicode.IsSpace(r):
			start, op, value = i+1, -1, i+1
		case r == '|':
			value = i + 1
		case op < 0 && strings.ContainsRune(":=<>", r):
			op, value = i, i+1
		case op >= 0 && r == '=' && i == op+1:
			value = i + 1
		}
	}
	return start, op, value
}

func firstOp(k FieldKind) Op {
	switch k {
	case FieldNumber:
		return OpEq
	case FieldDuration, FieldTime:
		return OpGt
	}
	return OpGlob
}

// knownValues returns the values of a field, or examples of its type.
func knownValues(f Field, op string) []string {
	compares := op == string(OpGt) || op == string(OpLt)
	switch {
	case f.Kind == FieldDuration && compares:
		return []string{"5m", "30m", "2h", "1d"}
	case f.Kind == FieldTime && compares:
		return []string{"-5m", "-30m", "-2h", "-1d"}
	case compares:
		return nil
	}
	return f.Values
}
