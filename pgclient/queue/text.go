package queue

// Text from the database, the network or a configuration file becomes a Text before it is printed.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Text is a string that contains nothing that can control a terminal or deceive the reader. Only
// Clean and CleanLong make a Text that is not empty; the original cannot be recovered. Texts compare
// with ==; the zero value is the empty text.
//
// A character that cannot be shown is replaced by a mark:
//
//	␛ ␊ ␉ ␡          a C0 control character or DEL
//	⟨9B⟩              a C1 control character
//	⟨U+202E⟩          a character that is invisible, or that moves other characters
//	⟨xFF⟩             a byte that is not UTF-8
//	⟨+12⟩             12 characters stacked on the previous one were left out
//	◌                 a combining mark without a base character
//	…(+900 bytes)     this many bytes of the raw value were left out
//
// If a value contains a mark as ordinary characters, it looks the same as the mark. That is
// necessary for Clean(t.String()) == t; otherwise a text that is cleaned twice on its way to the
// screen would grow.
type Text struct{ s string }

// Clean makes a Text. It reads at most 64 KiB of raw and returns at most 64 KiB, so that the
// cost does not depend on the size of the value.
func Clean(raw string) Text {
	if plain(raw) {
		return Text{s: raw}
	}
	var c cleaner
	return Text{s: c.clean(raw)}
}

// CleanLong is Clean without a limit, for a payload that was requested as a whole. Calling Clean on
// its result applies the limit again.
func CleanLong(raw string) Text {
	var b strings.Builder
	b.Grow(len(raw))
	for len(raw) > textLimit/2 {
		part := keep(raw, textLimit/2)
		b.WriteString(Clean(part).s)
		raw = raw[len(part):]
	}
	b.WriteString(Clean(raw).s)
	return Text{s: b.String()}
}

// String returns the safe form.
func (t Text) String() string { return t.s }

// Cut returns the text, shortened to at most n bytes including an ellipsis.
func (t Text) Cut(n int) Text {
	if len(t.s) <= n {
		return t
	}
	return Text{s: keep(t.s, max(n-len("…"), 0)) + "…"}
}

// Len returns the length of the safe form in bytes, not in cells.
func (t Text) Len() int { return len(t.s) }

// Empty reports whether there is no text.
func (t Text) Empty() bool { return t.s == "" }

// IsZero is Empty, for the omitzero option of encoding/json.
func (t Text) IsZero() bool { return t.s == "" }

// MarshalText returns the safe form.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.s), nil }

// UnmarshalText cleans b.
func (t *Text) UnmarshalText(b []byte) error {
	*t = Clean(string(b))
	return nil
}

// MarshalJSON returns the safe form as a JSON string. Only two characters need an escape, because a
// Text has no control characters; the encoder that calls this escapes < > &.
func (t Text) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, len(t.s)+2)
	b = append(b, '"')
	for i := range len(t.s) {
		if t.s[i] == '"' || t.s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, t.s[i])
	}
	return append(b, '"'), nil
}

// UnmarshalJSON cleans a JSON string. null becomes the empty text; any other value becomes its
// compact JSON text, with its numbers unchanged.
func (t *Text) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	switch {
	case string(b) == "null":
		*t = Text{}
		return nil
	case len(b) > 0 && b[0] == '"':
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*t = Clean(s)
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		return err
	}
	*t = Clean(compact.String())
	return nil
}

// Scan cleans the value of a column, so that a row never holds the raw form. NULL becomes the empty
// text.
func (t *Text) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = Text{}
	case string:
		*t = Clean(v)
	case []byte:
		*t = Clean(string(v))
	default:
		return fmt.Errorf("a text cannot be read from a %T column: cast it to text in the query", src)
	}
	return nil
}

// The limits of Lines.
const (
	linesMaxBytes = 1 << 20
	linesMaxCount = 20_000
	tabSpaces     = "    "
)

// Lines is Clean for values of several lines, such as payloads: the value is split at line ends,
// each tab becomes four spaces, and each line is cleaned. At most 1 MiB and 20,000 lines are kept;
// a last line then says how many bytes were left out.
func Lines(raw string) []Text {
	var lines []Text
	rest := raw
	if len(rest) > linesMaxBytes {
		rest = keep(rest, linesMaxBytes)
	}
	left := len(raw) - len(rest)
	for rest != "" {
		if len(lines) == linesMaxCount {
			left += len(rest)
			break
		}
		line, after, _ := strings.Cut(rest, "\n")
		line = strings.TrimSuffix(line, "\r")
		lines = append(lines, Clean(strings.ReplaceAll(line, "\t", tabSpaces)))
		rest = after
	}
	if left > 0 {
		lines = append(lines, Clean(tail(left)))
	}
	return lines
}
