// Package filtersql compiles the filter language to SQL. Panes, previews and actions use the
// same compiled filter, so that an action changes exactly the rows that its preview counted.
// Start with [Parse], or with [Dead] and [Jobs] for dead letters and jobs.
package filtersql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
)

// Column is the SQL of a field. For an age, Expr is the time at which the age begins. Text columns
// compare as text, with NULL as the empty string; a comparison of numbers or times with NULL is
// false.
type Column struct {
	Expr   string // the SQL of the field in the FROM clause of its builder
	Shown  string // the SQL of the words that screens show instead of the stored text; a filter may use either. Empty = Expr
	Number string // the SQL to compare with numbers if Expr is text; empty = Expr
	// Const says that Expr has the same value, Text, in every row. Terms on this column are decided
	// without the database.
	Const bool
	Text  string
	// Cases lists the possible values of Expr; nil = not known.
	Cases []Case
	// Distinct is a query for the values v of this column in open dead letters. It reads one index
	// entry per value.
	Distinct string
	// Upper reports that qtop writes only upper-case values of Expr. A text without wildcards is then
	// compared with Expr in capitals and as typed, which an index can serve, however many values
	// there are.
	Upper bool
	// Same returns the SQL condition that Expr is exactly this text, in a form that an index on
	// the column behind Expr can serve, or false if no row can have this text. Same nil = compare
	// the text of Expr itself.
	Same func(b *Builder, text string) (string, bool)
}

// Words returns the SQL of the words that screens show for the stored values of expr.
func Words(expr string, words []queue.Word) string {
	var b strings.Builder
	b.WriteString("CASE " + expr)
	for _, w := range words { // constants of this program
		fmt.Fprintf(&b, " WHEN '%s' THEN '%s'", w.Stored, w.Shown)
	}
	return b.String() + " ELSE " + expr + " END"
}

// Case is a value of a column, and the SQL of the rows that have it.
type Case struct{ Text, Cond string }

// Builder collects conditions and their arguments.
type Builder struct {
	columns map[string]Column
	From    string   // the FROM clause to which the conditions belong
	Rows    string   // From without the tables that only supply columns of the list; used to find and count rows
	Key     string   // the column that identifies a row of Rows
	open    bool     // only open dead letters are selected
	Now     string   // the SQL of the time up to which ages are counted
	Conds   []string // conditions, all of which must hold
	Args    []any    // the arguments of Conds, in the order of their placeholders
}

// New returns a builder over these columns.
func New(columns map[string]Column) *Builder {
	return &Builder{columns: columns, Now: "now()"}
}

// Parse parses a filter over fields, and returns a builder with the filter's conditions on columns.
func Parse(text string, fields []queue.Field, columns map[string]Column) (*Builder, *queue.Filter, error) {
	f, err := queue.ParseFilter(text, fields)
	if err != nil {
		return nil, nil, Error(err)
	}
	b := New(columns)
	b.Where(f)
	return b, f, nil
}

// Clone returns a copy with separate conditions and arguments.
func (b *Builder) Clone() *Builder {
	c := *b
	c.Conds, c.Args = slices.Clone(b.Conds), slices.Clone(b.Args)
	return &c
}

// Arg adds an argument of the statement and returns its placeholder, such as $3.
func (b *Builder) Arg(v any) string {
	b.Args = append(b.Args, v)
	return "$" + strconv.Itoa(len(b.Args))
}

// And adds a condition that must hold in addition.
func (b *Builder) And(cond string) { b.Conds = append(b.Conds, cond) }

// Clause returns the WHERE clause of all conditions; empty without one.
func (b *Builder) Clause() string {
	if len(b.Conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(b.Conds, " AND ")
}

// None reports whether the conditions exclude every row, whatever the database holds.
func (b *Builder) None() bool { return slices.Contains(b.Conds, never) }

// Where adds the terms of the filter as conditions.
func (b *Builder) Where(f *queue.Filter) {
	for _, cond := range b.conds(f) {
		b.And(cond)
	}
}

// when returns the SQL of a point in time: absolute, or relative to now.
func (b *Builder) when(t queue.TimeRef) string {
	switch t.Kind {
	case queue.TimeAgo:
		return fmt.Sprintf("%s - make_interval(secs => %s)", b.Now, b.Arg(t.Ago.Seconds()))
	case queue.TimeClock: // by the clock of the server, in UTC
		return fmt.Sprintf("(SELECT c.at - CASE WHEN c.at > %s THEN interval '1 day' ELSE interval '0' END FROM (SELECT date_trunc('day', %[1]s, 'UTC') + make_interval(secs => %s)) c (at))",
			b.Now, b.Arg(t.Clock.Seconds()))
	}
	return b.Arg(t.At) + "::timestamptz"
}

// Before adds the condition for the rows after mark, the Page.Next of the previous page, in a list
// that is sorted by descending number; mark "" = no condition.
func (b *Builder) Before(number, mark string) error {
	if mark == "" {
		return nil
	}
	n, err := strconv.ParseInt(mark, 10, 64)
	if err != nil {
		return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the position of the next page cannot be read"), Do: queue.Clean("begin again with the first page"), Err: err}
	}
	b.And(number + " < " + b.Arg(n))
	return nil
}

// CountBound is the highest count of a filtered list. A list with more rows is shown as "at least"
// this number.
const CountBound = 100_000
