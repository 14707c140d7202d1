package views

// This file draws a payload: JSON by its shape, every digit and character as
// stored, masked or for a moment with its secrets.

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// payload is what is carried, or why it is not shown. size is the characters that
// it has; where text has fewer it was bounded. revealed is the seconds for which
// it stands unmasked.
func (p *pageBuilder) payload(text, whyNot queue.Text, size int64, revealed int) {
	th := p.e.Theme
	if revealed > 0 {
		p.head("Payload, with its secrets")
		p.para(th.G.Warning+" UNMASKED: masked again in "+Age(int64(revealed))+", or when this page is left", th.Critical)
	} else {
		p.head("Payload, secrets masked")
	}
	if w := whyNot.String(); w != "" && revealed == 0 {
		p.para(w, th.Warning)
		return
	}
	s := text.String()
	if s == "" {
		p.para("none", th.Dim)
		return
	}
	if cut := first(s, queue.PayloadShown); len(cut) < len(s) {
		size, s = max(size, int64(utf8.RuneCountInString(s))), cut
	}
	if size > queue.PayloadShown {
		p.para("the first "+Count(queue.PayloadShown)+" of "+Count(size)+" characters; qtop dlq show and qtop job show print all", th.Warning)
	}
	p.json(indented(s), th.Text)
}

// first is the first n characters of s.
func first(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for at := range s {
		if n--; n < 0 {
			return s[:at]
		}
	}
	return s
}

// indented lays JSON out to be read by its shape, also where it was cut; digits
// and all else stay as they are. What has line ends of its own stays whole.
func indented(s string) string {
	if strings.ContainsAny(s, "\n␊") || !strings.ContainsAny(s[:min(len(s), 1)], `{[`) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) * 2)
	depth, quoted, escaped := 0, false, false
	line := func() {
		b.WriteByte('\n')
		for range min(depth, 200) {
			b.WriteString("  ")
		}
	}
	for i, r := range s {
		switch {
		case quoted:
			b.WriteRune(r)
			quoted = escaped || r != '"'
			escaped = !escaped && r == '\\'
		case r == ' ' || r == '\t':
		case r == '{' || r == '[':
			b.WriteRune(r)
			depth++
			if rest := strings.TrimLeft(s[i+1:], " "); !strings.HasPrefix(rest, "}") && !strings.HasPrefix(rest, "]") {
				line()
			}
		case r == '}' || r == ']':
			depth = max(depth-1, 0)
			if before := strings.TrimRight(s[:i], " "); !strings.HasSuffix(before, "{") && !strings.HasSuffix(before, "[") {
				line()
			}
			b.WriteRune(r)
		case r == ',':
			b.WriteRune(r)
			line()
		case r == ':':
			b.WriteString(": ")
		default:
			b.WriteRune(r)
			quoted = r == '"'
		}
	}
	return b.String()
}

// json is pretty-printed JSON. Where it was made safe as one text, its line ends
// stand as marks: inside a JSON string a line end is spelt \n, so that each mark
// is one of the printing.
func (p *pageBuilder) json(text string, st theme.Style) {
	for _, line := range queue.Lines(strings.ReplaceAll(text, "␊", "\n")) {
		for _, part := range hardWrap(line.String(), p.w-4) {
			p.lines = append(p.lines, "   "+st.Paint(part)) // it fits: measuring thousands again is what costs
		}
	}
}

// hardWrap breaks anywhere and keeps the indent: JSON is read by its shape.
func hardWrap(s string, w int) []string {
	if w < 8 {
		w = 8
	}
	if theme.Width(s) <= w {
		return []string{s}
	}
	indent := len(s) - len(strings.TrimLeft(s, " "))
	if indent > w/2 {
		return strings.Split(ansi.Hardwrap(s, w, true), "\n")
	}
	parts := strings.Split(ansi.Hardwrap(s[indent:], w-indent, true), "\n")
	for i := range parts {
		parts[i] = theme.Blank(indent) + parts[i]
	}
	return parts
}
