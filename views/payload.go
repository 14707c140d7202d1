package views

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// payload adds a payload: indented, but with every digit and character as
// stored; or, if it is not shown, the reason whyNot. size is its full length
// in characters; text is shorter if only a part was read. revealed is how many
// seconds the payload is still shown unmasked; 0: it is masked.
func (p *pageBuilder) payload(text, whyNot queue.Text, size int64, revealed int) {
	th := p.e.Theme
	if revealed > 0 {
		p.head("Payload, with its secrets")
		p.para(th.G.Warning+" UNMASKED: masked again in "+Age(int64(revealed))+", or when this page is closed", th.Critical)
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

// first returns the first n characters of s.
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

// indented indents JSON, also JSON that was cut, without changing values. Text that already has
// line ends is returned unchanged.
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

// json adds indented JSON. If it was made safe as one text, its line ends were replaced by signs.
// Inside a JSON string a line end is written \n, so each of these signs is a line end between
// values.
func (p *pageBuilder) json(text string, st theme.Style) {
	for _, line := range queue.Lines(strings.ReplaceAll(text, "␊", "\n")) {
		for _, part := range hardWrap(line.String(), p.w-4) {
			p.lines = append(p.lines, "   "+st.Paint(part)) // fits already; measuring thousands of lines again would be slow
		}
	}
}

// hardWrap breaks a line anywhere, and indents the continuation like the line.
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
