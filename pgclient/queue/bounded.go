package queue

// Limits for the JSON answers of verbs: a program that writes rows to the database must not be able
// to make the output of a verb arbitrarily long.

import "strings"

const (
	// FieldMost is the largest number of bytes of JSON in a field of an answer.
	FieldMost = 64 << 10
	// CellMost is the largest number of columns in a table cell; LineMost is the largest number of
	// bytes of a value outside of a table.
	CellMost = 200
	LineMost = 8 << 10

	mostMembers = 1000 // the most members kept of an object that is too long; no row of a list has as many
	deepest     = 64   // the most levels of objects and arrays in a field that is too long; deeper values become null
)

// BoundJSON shortens the fields of a valid JSON text so that no field takes more than FieldMost. It
// shortens texts, arrays of numbers and texts, and objects with more members than a row has. The
// object around a shortened field gets a member "truncated" that names the field. Lists of rows are
// not shortened, and neither is a payload, because the caller asked for it.
func BoundJSON(text string) string {
	if len(text) <= FieldMost {
		return text
	}
	b := bounder{in: text}
	if end := b.value(0, 0); end == len(text) {
		return b.out.String()
	}
	return text
}

type bounder struct {
	in  string
	out strings.Builder
}

// value writes the JSON value that begins at position i of the input, and returns the position
// after it.
func (b *bounder) value(i, depth int) int {
	switch b.in[i] {
	case '{':
		return b.object(i, depth)
	case '[':
		return b.rows(i, depth)
	}
	end := skip(b.in, i)
	b.out.WriteString(b.in[i:end])
	return end
}

// object writes the object that begins at i, and a member "truncated" if a field was shortened.
func (b *bounder) object(i, depth int) int {
	var cut []string
	b.out.WriteByte('{')
	i++
	for n := 0; b.in[i] != '}'; n++ {
		if b.in[i] == ',' {
			i++
		}
		keyEnd := skip(b.in, i)
		key := b.in[i:keyEnd]
		if n >= mostMembers {
			i = skip(b.in, keyEnd+1)
			if n == mostMembers {
				cut = append(cut, `"…"`)
			}
			continue
		}
		if n > 0 {
			b.out.WriteByte(',')
		}
		if len(key) > FieldMost {
			key = cutString(key)
		}
		b.out.WriteString(key)
		b.out.WriteByte(':')
		end, whole := b.field(keyEnd+1, depth, depth == 0 && key == `"payload"`)
		if !whole {
			cut = append(cut, key)
		}
		i = end
	}
	if len(cut) > 0 {
		b.out.WriteString(`,"truncated":[` + strings.Join(cut, ",") + "]")
	}
	b.out.WriteByte('}')
	return i + 1
}

// field writes the value of a member that begins at i; whole is false if the value was shortened.
// asked: the caller asked for this member, so it is not shortened.
func (b *bounder) field(i, depth int, asked bool) (end int, whole bool) {
	end = skip(b.in, i)
	raw := b.in[i:end]
	switch {
	case len(raw) <= FieldMost || asked:
		b.out.WriteString(raw)
	case depth >= deepest:
		b.out.WriteString("null")
		return end, false
	case raw[0] == '"':
		b.out.WriteString(cutString(raw))
		return end, false
	case raw[0] == '[' && plainArray(raw):
		b.out.WriteString(raw[:max(lastElement(raw, FieldMost-1), 1)] + "]")
		return end, false
	default:
		b.value(i, depth+1)
	}
	return end, true
}

// rows writes the array that begins at i, element by element: rows of a list are never left out.
func (b *bounder) rows(i, depth int) int {
	b.out.WriteByte('[')
	i++
	for b.in[i] != ']' {
		if b.in[i] == ',' {
			b.out.WriteByte(',')
			i++
		}
		switch end := skip(b.in, i); {
		case end-i <= FieldMost:
			b.out.WriteString(b.in[i:end])
			i = end
		case depth >= deepest:
			b.out.WriteString("null")
			i = end
		case b.in[i] == '"':
			b.out.WriteString(cutString(b.in[i:end]))
			i = end
		default:
			i = b.value(i, depth+1)
		}
	}
	b.out.WriteByte(']')
	return i + 1
}

// plainArray reports whether no element is an object or an array.
func plainArray(raw string) bool {
	for i := 1; raw[i] != ']'; {
		switch raw[i] {
		case ',':
			i++
		case '{', '[':
			return false
		default:
			i = skip(raw, i)
		}
	}
	return true
}

// lastElement returns where the last element ends that lies completely within the first `most`
// bytes of a plain array.
func lastElement(raw string, most int) int {
	last := 0
	for i := 1; raw[i] != ']' && i < most; {
		if raw[i] == ',' {
			last = i
			i++
			continue
		}
		i = skip(raw, i)
	}
	return last
}

// cutString returns a JSON string shortened to at most FieldMost bytes, with an ellipsis.
func cutString(raw string) string {
	end := 1
	for i := 1; i < FieldMost-len(`…"`); {
		end = i
		switch {
		case raw[i] == '\\' && raw[i+1] == 'u':
			i += 6
		case raw[i] == '\\':
			i += 2
		default:
			i += len(keepRune(raw[i:]))
		}
	}
	return raw[:end] + `…"`
}

// keepRune returns the first character of s as a string.
func keepRune(s string) string {
	n := 1
	for n < len(s) && s[n]&0xc0 == 0x80 {
		n++
	}
	return s[:n]
}

// skip returns the position after the value that begins at i.
func skip(s string, i int) int {
	depth := 0
	for ; ; i++ {
		switch s[i] {
		case '"':
			for i++; s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ':':
			if depth == 0 {
				return i
			}
		}
		if i+1 == len(s) {
			return len(s)
		}
	}
}
