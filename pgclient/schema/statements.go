package schema

import "strings"

// statement is one SQL statement of a file: its text up to the semicolon, without the comments
// before it, and the line on which it begins.
type statement struct {
	sql  string
	line int
}

// statements splits SQL text at the semicolons that are not in quotes, dollar quotes or comments.
// Text after the last semicolon is a statement too.
func statements(text string) []statement {
	var out []statement
	line, start, startLine := 1, -1, 0
	for i := 0; i < len(text); {
		n := skip(text[i:])
		switch {
		case strings.HasPrefix(text[i:], "--"), strings.HasPrefix(text[i:], "/*"), isSpace(text[i]):
		case start < 0:
			start, startLine = i, line
		}
		line += strings.Count(text[i:i+n], "\n")
		i += n
		if start >= 0 && text[i-1] == ';' && n == 1 {
			out = append(out, statement{text[start:i], startLine})
			start = -1
		}
	}
	if start >= 0 {
		out = append(out, statement{strings.TrimRight(text[start:], " \n\t"), startLine})
	}
	return out
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skip returns the length in bytes of the token at the start of s: a whole comment, a quoted or
// dollar-quoted text, or one byte.
func skip(s string) int {
	until := func(from int, end string) int {
		if at := strings.Index(s[from:], end); at >= 0 {
			return from + at + len(end)
		}
		return len(s)
	}
	switch {
	case strings.HasPrefix(s, "--"):
		return until(0, "\n")
	case strings.HasPrefix(s, "/*"):
		return until(2, "*/")
	case s[0] == '\'' || s[0] == '"': // a doubled quote ends one text and begins the next
		return until(1, s[:1])
	case s[0] == '$':
		if end := strings.IndexByte(s[1:], '$'); end >= 0 && isTag(s[1:end+1]) {
			return until(end+2, s[:end+2])
		}
	}
	return 1
}

// isTag reports whether s is the tag of a dollar quote and not a parameter such as $1.
func isTag(s string) bool {
	for i := range len(s) {
		c := s[i]
		if alphabetic := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'; !alphabetic && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// uncommented returns SQL text with every comment outside of quotes replaced by a newline.
func uncommented(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		n := skip(text[i:])
		if strings.HasPrefix(text[i:], "--") || strings.HasPrefix(text[i:], "/*") {
			b.WriteByte('\n')
		} else {
			b.WriteString(text[i : i+n])
		}
		i += n
	}
	return b.String()
}
