package views

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/theme"
)

// Page is lines to scroll and search, such as the details of one row. It is built once per
// content and width, not per frame.
type Page struct {
	Title string
	Lines []string
	Note  string // why the lines may be old; drawn above them, however far the page is scrolled
}

// labelWidth is the width of the labels in cells; the longest label is "first attempts".
const labelWidth = 15

type pageBuilder struct {
	e     Env
	w     int
	lines []string
}

func newPage(e Env, w int) *pageBuilder { return &pageBuilder{e: e, w: max(w, 1)} }

func (p *pageBuilder) done(title string) Page { return Page{Title: theme.Safe(title), Lines: p.lines} }

func (p *pageBuilder) add(line string) { p.lines = append(p.lines, p.e.Theme.Cut(line, p.w)) }

func (p *pageBuilder) blank() { p.lines = append(p.lines, "") }

// head starts a part with a heading.
func (p *pageBuilder) head(text string) {
	if len(p.lines) > 0 {
		p.blank()
	}
	p.add(" " + p.e.Theme.Title.Paint(p.e.Theme.Cut(theme.Safe(text), p.w-2)))
}

// pair adds a label with its value, wrapped and indented. If the value is
// empty, it adds nothing.
func (p *pageBuilder) pair(label, value string) { p.paint(label, value, p.e.Theme.Text) }

func (p *pageBuilder) paint(label, value string, st theme.Style) {
	if value == "" {
		return
	}
	th := p.e.Theme
	indent := min(labelWidth+3, max(p.w/3, 1))
	if theme.Width(label) > indent-3 { // a name, which must be readable as a whole: it gets a line
		p.para(label, th.Dim)
		label = ""
	}
	for _, line := range hung("   "+th.Dim.Paint(th.Left(label, indent-3)), wrap(queue.Clean(value).Cut(queue.LineMost).String(), p.w-indent-1), st) {
		p.add(line)
	}
}

// part is a text in a column of a row: the next one begins width cells later, but never without a blank between.
type part struct {
	text  string
	width int
	style theme.Style
}

// row adds a line of parts after front. A part that does not fit goes to the next line, after under, so that none is
// cut.
func (p *pageBuilder) row(front, under string, parts ...part) {
	line, gap, empty := front, 0, true
	for _, x := range parts {
		n := theme.Width(x.text)
		if n > 0 && !empty && theme.Width(line)+gap+n > p.w {
			p.add(line)
			line, gap, empty = under, 0, true
		}
		if n > 0 {
			line, gap, empty = line+theme.Blank(gap)+x.style.Paint(x.text), 0, false
		}
		gap += max(x.width-n, min(n, 1))
	}
	p.add(line)
}

// reading adds a part that has not been read yet, with a line that reports
// this in its place.
func (p *pageBuilder) reading(head string) {
	p.head(head)
	p.list(false, 0, "")
}

// Unread returns the page with the reason why in place of the parts that are still being read,
// because they could not be read.
func (p Page) Unread(why string, e Env, w int) Page {
	b := newPage(e, w)
	for _, line := range p.Lines {
		if Contains(line, "reading"+e.Theme.G.Ellipsis) {
			b.para("this could not be read: "+why, e.Theme.Warning)
		} else {
			b.add(line)
		}
	}
	p.Lines = b.done(p.Title).Lines
	return p
}

// ReadingPage returns the page that is shown while a row is being read.
func ReadingPage(title string, e Env, w int) Page {
	p := newPage(e, w)
	p.reading(title)
	return p.done(title)
}

// list starts a list of n entries: it adds a line if the list is still being read, or the text none
// if it is empty.
func (p *pageBuilder) list(read bool, n int, none string) {
	switch {
	case !read:
		p.para("reading"+p.e.Theme.G.Ellipsis, p.e.Theme.Dim)
	case n == 0:
		p.para(none, p.e.Theme.Dim)
	}
}

// para adds wrapped text and keeps its line breaks.
func (p *pageBuilder) para(text string, st theme.Style) {
	for _, line := range strings.Split(text, "\n") {
		for _, part := range wrap(theme.Safe(line), p.w-4) {
			p.add("   " + st.Paint(part))
		}
	}
}

// verbatim adds the output of a program, such as an error. Line ends in it were replaced by signs
// when the text was made safe; here they become line ends again.
func (p *pageBuilder) verbatim(text string) {
	if text != "" {
		p.para(strings.ReplaceAll(text, "␊", "\n"), p.e.Theme.Text)
	}
}

// wrap breaks a text at spaces. It breaks a word only if the word is longer than the line, so that
// ids and URLs stay whole if possible.
func wrap(s string, w int) []string {
	if w < 1 {
		w = 1
	}
	if theme.Width(s) <= w {
		return []string{s}
	}
	return strings.Split(ansi.Wrap(s, w, ""), "\n")
}

// wrapCommand wraps a command line at its blanks, never inside a quoted word or a flag; only a word
// that is wider than a line is cut.
func wrapCommand(s string, w int) []string {
	var lines []string
	quoted, from := false, 0
	take := func(word string) {
		last := len(lines) - 1
		if last >= 0 && theme.Width(lines[last])+1+theme.Width(word) <= w {
			lines[last] += " " + word
			return
		}
		lines = append(lines, wrapHard(word, w)...)
	}
	for i, r := range s {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == ' ' && !quoted:
			take(s[from:i])
			from = i + 1
		}
	}
	take(s[from:])
	return lines
}

func wrapHard(word string, w int) []string {
	return strings.Split(ansi.Hardwrap(word, max(w, 1), true), "\n")
}

// hung puts parts on separate lines: the first after the text front, the
// others indented by the width of front.
func hung(front string, parts []string, st theme.Style) []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		out[i] = front + st.Paint(part)
		front = theme.Blank(theme.Width(front))
	}
	return out
}

// Beneath draws the page of the row under the cursor below a table, cut to the
// size s that the table does not need.
func Beneath(p Page, e Env, s Size) []string {
	if s.H < 3 || len(p.Lines) == 0 {
		return nil
	}
	th := e.Theme
	rule := ""
	for range s.W - 2 {
		rule += th.G.Rule
	}
	out := []string{"", " " + th.Edge.Paint(rule)}
	return append(out, PageView{Page: p}.Visible(e, Size{s.W, s.H - len(out)})...)
}

// PageView is a page with a scroll position.
type PageView struct {
	Page   Page
	Offset int
	Find   string // lines with this text are marked
}

// Visible draws the lines that the scroll position shows.
func (v PageView) Visible(e Env, s Size) []string {
	out := make([]string, 0, max(s.H, 0))
	if v.Page.Note != "" && s.H > 0 {
		out = append(out, warningLine(e, v.Page.Note, s.W))
	}
	for i := max(v.Offset, 0); i < len(v.Page.Lines) && len(out) < s.H; i++ {
		line := v.Page.Lines[i]
		switch {
		case v.Find != "" && v.Page.Has(i, v.Find):
			line = e.Theme.Accent.Paint(e.Theme.G.Cursor) + strings.TrimPrefix(line, " ")
		case e.Stale:
			line = e.Theme.Dim.Paint(e.Theme.G.Stale) + strings.TrimPrefix(line, " ")
		}
		out = append(out, e.Theme.Cut(line, s.W))
	}
	return out
}

// Has reports whether line i contains words. If line i ends in the beginning
// of words, that counts too, because a long word goes on in the next line.
func (p Page) Has(i int, words string) bool {
	if Contains(p.Lines[i], words) {
		return true
	}
	if i+1 >= len(p.Lines) || Contains(p.Lines[i+1], words) {
		return false
	}
	head := strings.TrimRight(ansi.Strip(p.Lines[i]), " ")
	return Contains(head+strings.TrimLeft(ansi.Strip(p.Lines[i+1]), " "), words)
}

// Contains reports whether a painted line contains words, ignoring case.
func Contains(line, words string) bool {
	return strings.Contains(strings.ToLower(ansi.Strip(line)), strings.ToLower(words))
}
