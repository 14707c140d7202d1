package views

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/views/table"
	"github.com/qtop/qtop/views/theme"
)

// Column is one column of a List. It is declared once for three uses: the pane
// draws a cell, the table of a command line verb prints the value, and an
// export writes the JSON member of the same name.
type Column[T any] struct {
	// Name is the JSON member of the row that the column shows, and the
	// column's name in exports. A column that combines several members has a
	// name that is no member, and sets Text, Cell or Plain.
	Name  string
	Title string // on the screen; "" = the name
	Head  string // in the table of a verb; "" = the title in capitals

	// The layout on the screen, as in table.Column. Width 0: the column is not on the screen.
	Width, Want, Max int
	Right, Lively    bool
	Drop             int // if there is no room, the column with the highest number is left out first; from 4 on, already before other columns get less than their Want; 0 = never left out

	Look  look
	Tone  func(row T, e Env) theme.Style // a style that depends on the row
	Say   func(e Env, v any) string      // formats the member for the screen; nil: Env.shown does, by type and name
	Text  func(row T, e Env) string      // the text of the cell, if it is not simply the member
	Cell  func(row T, e Env) table.Cell  // text and style of the cell
	Plain func(row T) string             // the text in the table of a verb; nil: the function plain formats the member

	// Lead is put before the text of the cell while the column LeadFor is left out.
	Lead    func(row T, e Env) string
	LeadFor string
}

// look says in which style a cell is drawn.
type look int

const (
	ordinary look = iota
	dim
	strong
	accent
	ofRow // in the style of the row's urgency
)

// List describes a table of rows of type T: its columns, its filter, and how a
// row is identified and drawn. It holds the rows too.
type List[T any] struct {
	Name    string // the name of the list in exports
	Rows    []T
	ID      func(row T) string // the id by which cursor and selection find a row again after a refresh
	Title   func(row T) string // names a row in a few words, for the dialogs of actions; nil = the id is used
	Columns []Column[T]
	First   string // names of the columns that the table of a verb has first
	// Filter lists the fields of the filter, separated by blanks; field=member
	// if the two names differ. Word returns the value of a field that is not a
	// JSON member.
	Filter string
	Word   func(row T, word string) (any, bool)
	// Look returns the sign of a row and the style of its urgency; nil = no row is urgent.
	Look func(row T, e Env) (sign table.Cell, urgent theme.Style)
	// Export returns to which list of queue.ExportLists a row belongs, and
	// what is exported for it. nil: the list Name, and the row itself.
	Export func(row T) (list string, rows []any)
}

// lines is a List without its type parameter: its functions take the index of
// a row, so that a Source can hold lists of different types.
type lines struct {
	list    string
	n       int
	id      func(i int) string
	title   func(i int) string
	columns []table.Column
	names   []string
	row     func(i int, e Env) table.Row
	export  func(i int) (string, []any)
	heads   []string
	plain   func(i int) []string
	words   []string
	value   func(i int, word string) (any, bool)
	shown   func(i int, word string, e Env) string
}

// lines returns the list in the form that does not depend on the type of its rows.
func (l List[T]) lines() lines {
	out := lines{list: l.Name, n: len(l.Rows), export: func(i int) (string, []any) {
		if l.Export != nil {
			return l.Export(l.Rows[i])
		}
		return l.Name, []any{l.Rows[i]}
	}}
	out.id = func(i int) string { return l.ID(l.Rows[i]) }
	out.title = out.id
	if l.Title != nil {
		out.title = func(i int) string { return l.Title(l.Rows[i]) }
	}
	members := map[string][]int{}
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Struct {
		for _, m := range queue.Members(t) {
			members[m.Name] = m.Index
		}
	}
	if l.Look == nil {
		l.Look = func(T, Env) (sign table.Cell, urgent theme.Style) { return sign, urgent }
	}
	for _, c := range l.Columns {
		out.names = append(out.names, c.Name)
		out.columns = append(out.columns, table.Column{Title: c.title(), Width: c.Width, Want: c.Want, Max: c.Max, Right: c.Right, Lively: c.Lively, Drop: c.Drop,
			LeadFor: max(0, slices.IndexFunc(l.Columns, func(x Column[T]) bool { return x.Name == c.LeadFor }))})
	}
	out.row = func(i int, e Env) table.Row {
		sign, urgent := l.Look(l.Rows[i], e)
		r := table.Row{Sign: sign, Cells: make([]table.Cell, len(l.Columns))}
		for k, c := range l.Columns {
			style := e.painted(c.Look, urgent)
			if c.Tone != nil {
				style = c.Tone(l.Rows[i], e)
			}
			switch {
			case c.Width == 0: // a column without width is for verbs and exports only
			case c.Cell != nil:
				r.Cells[k] = c.Cell(l.Rows[i], e)
			case c.Text != nil:
				r.Cells[k] = cell(c.Text(l.Rows[i], e), style)
			case c.Say != nil:
				r.Cells[k] = cell(c.Say(e, member(l.Rows[i], members, c.Name)), style)
			default:
				r.Cells[k] = cell(e.shown(c.Name, member(l.Rows[i], members, c.Name)), style)
			}
			if c.Lead != nil {
				r.Cells[k].Lead = c.Lead(l.Rows[i], e)
			}
		}
		return r
	}
	shown := l.inTable(members)
	for _, k := range shown {
		out.heads = append(out.heads, l.Columns[k].head())
	}
	out.plain = func(i int) []string {
		cells := make([]string, len(shown))
		for n, k := range shown {
			if c := l.Columns[k]; c.Plain != nil {
				cells[n] = c.Plain(l.Rows[i])
			} else {
				cells[n] = plain(c.Name, member(l.Rows[i], members, c.Name))
			}
		}
		return cells
	}
	of := map[string]string{}
	for _, w := range strings.Fields(l.Filter) {
		word, name, named := strings.Cut(w, "=")
		if !named {
			name = word
		}
		of[word], out.words = name, append(out.words, word)
	}
	out.shown = func(i int, word string, e Env) string {
		cells := out.row(i, e).Cells
		var all []string
		for k, c := range l.Columns {
			if word != "" && (c.Name == of[word] || c.Name == word) {
				return ansi.Strip(cells[k].Text)
			}
			all = append(all, ansi.Strip(cells[k].Text))
		}
		return queue.Choose(word == "", strings.Join(all, "\n"), "")
	}
	out.value = func(i int, word string) (any, bool) {
		if l.Word != nil {
			if v, ok := l.Word(l.Rows[i], word); ok {
				return v, true
			}
		}
		if _, ok := members[of[word]]; !ok {
			return nil, false
		}
		return compared(of[word], member(l.Rows[i], members, of[word]))
	}
	return out
}

// inTable returns the indices of the columns in the table of a verb, in the order of that table.
func (l List[T]) inTable(members map[string][]int) (shown []int) {
	for _, name := range strings.Fields(l.First) {
		k := slices.IndexFunc(l.Columns, func(c Column[T]) bool { return c.Name == name })
		if k < 0 {
			panic("views: " + l.Name + " has no column " + name)
		}
		shown = append(shown, k)
	}
	for k, c := range l.Columns {
		if (members[c.Name] != nil || c.Plain != nil) && !slices.Contains(shown, k) {
			shown = append(shown, k)
		}
	}
	return shown
}

// member returns the value of a JSON member of a row; nil if the value is null.
func member[T any](row T, members map[string][]int, name string) any {
	at, ok := members[name]
	if !ok {
		panic(fmt.Sprintf("views: %T has no member %s", row, name))
	}
	v := reflect.ValueOf(row).FieldByIndex(at)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}

func (c Column[T]) title() string {
	return cmp.Or(c.Title, strings.ReplaceAll(c.Name, "_", " "))
}

func (c Column[T]) head() string {
	return cmp.Or(c.Head, strings.ToUpper(c.title()))
}

func (e Env) painted(l look, urgent theme.Style) theme.Style {
	switch l {
	case dim:
		return e.Theme.Dim
	case strong:
		return e.Theme.Strong
	case accent:
		return e.Theme.Accent
	case ofRow:
		return urgent
	case ordinary:
	}
	return e.Theme.Text
}

// with fills the Source with its tables: the first list and, if given, a
// second list below it.
func (s Source) with(first lines, second ...lines) Source {
	s.lists = append([]lines{first}, second...)
	s.Columns, s.Len = first.columns, first.n
	for _, l := range second {
		s.Second.Columns, s.Second.From, s.Len = l.columns, first.n, first.n+l.n
	}
	at := func(i int) (lines, int) {
		if i >= first.n {
			return second[0], i - first.n
		}
		return first, i
	}
	s.ID = func(i int) string { l, k := at(i); return l.id(k) }
	s.Title = func(i int) string { l, k := at(i); return l.title(k) }
	s.Row = func(i int, e Env) table.Row { l, k := at(i); return l.row(k, e) }
	if first.list != "" {
		s.Export = func(i int) (string, []any) { l, k := at(i); return l.export(k) }
	}
	s.Field = func(i int, word string) (any, bool) { l, k := at(i); return l.value(k, word) }
	s.Shown = func(i int, word string, e Env) string {
		if s.Stored {
			return ""
		}
		l, k := at(i)
		return l.shown(k, word, e)
	}
	if s.Fields == nil && len(first.words) > 0 {
		s.Fields = fields(first.words...)
	}
	return s
}

// Table returns the rows of one list for the table of a verb: with every column, nothing shortened,
// in their original order.
func (s Source) Table(list string) (heads []string, rows [][]string) {
	for _, l := range s.lists {
		if l.list != list {
			continue
		}
		heads = l.heads
		for i := range l.n {
			if name, _ := l.export(i); name == list {
				rows = append(rows, l.plain(i))
			}
		}
	}
	return heads, rows
}

// column returns the index of a column of the first table, or -1.
func (s Source) column(name string) int {
	if len(s.lists) == 0 {
		return -1
	}
	return slices.Index(s.lists[0].names, name)
}

// pick returns row i of the first table, reduced to the named columns.
func (s Source) pick(i int, e Env, names ...string) table.Row {
	row := s.Row(i, e)
	cells := make([]table.Cell, len(names))
	for n, name := range names {
		cells[n] = row.Cells[s.column(name)]
	}
	row.Cells = cells
	return row
}
