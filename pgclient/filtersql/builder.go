// Package filtersql compiles the filter language to SQL. Panes, previews and actions use the
// same compiled filter, so that an action changes exactly the rows that its preview counted.
// Start with [Parse], or with [Dead] and [Jobs] for dead letters and jobs.
package filtersql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// Column is the SQL of a field; for an age, the time from which it counts. Text columns compare
// as text, with NULL as the empty string; a comparison of numbers or times with NULL is false.
type Column struct {
	Expr   string
	Number string // the SQL to compare with numbers if Expr is text; empty = Expr
}

// Builder collects conditions and their arguments.
type Builder struct {
	columns map[string]Column
	Now     string // the SQL of the time at which ages end
	Conds   []string
	Args    []any
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

// Clone returns an independent copy.
func (b *Builder) Clone() *Builder {
	c := *b
	c.Conds, c.Args = slices.Clone(b.Conds), slices.Clone(b.Args)
	return &c
}

// Arg adds an argument and returns its placeholder.
func (b *Builder) Arg(v any) string {
	b.Args = append(b.Args, v)
	return "$" + strconv.Itoa(len(b.Args))
}

// And adds a condition.
func (b *Builder) And(cond string) { b.Conds = append(b.Conds, cond) }

// Clause returns the WHERE clause of all conditions; empty without one.
func (b *Builder) Clause() string {
	if len(b.Conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(b.Conds, " AND ")
}

// Where adds the filter's terms.
func (b *Builder) Where(f *queue.Filter) {
	for _, cond := range b.conds(f) {
		b.And(cond)
	}
}

// conds returns the filter's terms as conditions, which must all hold.
func (b *Builder) conds(f *queue.Filter) (conds []string) {
	if f == nil {
		return nil
	}
	for _, t := range f.Terms {
		var alts []string
		for _, v := range t.Values {
			alts = append(alts, b.term(f, t, v))
		}
		cond := "(" + strings.Join(alts, " OR ") + ")"
		if t.Negate {
			cond = "NOT COALESCE(" + cond + ", false)"
		}
		conds = append(conds, cond)
	}
	return conds
}

func (b *Builder) term(f *queue.Filter, t queue.Term, v queue.Value) string {
	if t.Op == queue.OpContains {
		var alts []string
		pattern := b.Arg("%" + like(v) + "%")
		for _, name := range f.AnyFields() {
			alts = append(alts, fmt.Sprintf("COALESCE((%s)::text, '') ILIKE %s", b.columns[name].Expr, pattern))
		}
		return "(" + strings.Join(alts, " OR ") + ")"
	}
	c := b.columns[t.Field]
	switch t.Kind {
	case queue.FieldDuration:
		return fmt.Sprintf("%s - %s %s make_interval(secs => %s)", b.Now, c.Expr, sqlOp(t.Op), b.Arg(v.Duration.Seconds()))
	case queue.FieldTime:
		return fmt.Sprintf("%s %s %s", c.Expr, sqlOp(t.Op), b.when(v.Time))
	case queue.FieldNumber:
		return fmt.Sprintf("%s %s %s::numeric", c.Expr, sqlOp(t.Op), b.Arg(v.Raw))
	case queue.FieldText, queue.FieldID:
	}
	switch t.Op {
	case queue.OpGlob:
		return fmt.Sprintf("COALESCE((%s)::text, '') ILIKE %s", c.Expr, b.Arg(like(v)))
	case queue.OpEq:
		return fmt.Sprintf("COALESCE((%s)::text, '') = %s", c.Expr, b.Arg(v.Raw))
	}
	number := c.Number
	if number == "" {
		number = c.Expr
	}
	return fmt.Sprintf("%s %s %s::numeric", number, sqlOp(t.Op), b.Arg(v.Raw))
}

// like returns a value as a LIKE pattern.
func like(v queue.Value) string {
	if v.Glob {
		return queue.GlobToLike(v.Raw)
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(v.Raw)
}

// when returns the SQL of a point in time: absolute, or relative to now.
func (b *Builder) when(t queue.TimeRef) string {
	if t.Kind == queue.TimeAgo {
		return fmt.Sprintf("%s - make_interval(secs => %s)", b.Now, b.Arg(t.Ago.Seconds()))
	}
	return b.Arg(t.Resolve(time.Now())) + "::timestamptz"
}

func sqlOp(op queue.Op) string {
	if op == queue.OpGlob {
		return "="
	}
	return string(op)
}

// Before adds the condition for the rows after a page mark, in a list with descending numbers.
func (b *Builder) Before(number, mark string) error {
	if mark == "" {
		return nil
	}
	n, err := strconv.ParseInt(mark, 10, 64)
	if err != nil {
		return &queue.Error{Kind: queue.KindUsage, What: queue.Clean("the page mark cannot be read"), Err: err}
	}
	b.And(number + " < " + b.Arg(n))
	return nil
}

// CountBound is the largest count of a filtered list: above it, the total is shown as "at least".
const CountBound = 100_000
