package pgclient

// This file compiles the filter language to SQL. The same tree filters panes,
// previews and actions, so that what is counted is what is acted on.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// column is how a field reads in SQL; of an age, the time it counts from. Text
// columns compare as text; NULL is the empty string there, and no comparison of
// numbers or times holds for it.
type column struct {
	expr   string
	number string // what numbers compare with where expr is text; empty = expr
}

// builder collects conditions and their arguments.
type builder struct {
	columns map[string]column
	order   string
	now     string // what ages count to
	conds   []string
	args    []any
}

func newBuilder(columns map[string]column, order string) *builder {
	return &builder{columns: columns, order: order, now: "now()"}
}

func (b *builder) clone() *builder {
	c := *b
	c.conds, c.args = slices.Clone(b.conds), slices.Clone(b.args)
	return &c
}

func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return "$" + strconv.Itoa(len(b.args))
}

func (b *builder) and(cond string) { b.conds = append(b.conds, cond) }

func (b *builder) clause() string {
	if len(b.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(b.conds, " AND ")
}

// where adds the filter's terms.
func (b *builder) where(f *queue.Filter) {
	if f == nil {
		return
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
		b.and(cond)
	}
}

func (b *builder) term(f *queue.Filter, t queue.Term, v queue.Value) string {
	if t.Op == queue.OpContains {
		var alts []string
		pattern := b.arg("%" + like(v) + "%")
		for _, name := range f.AnyFields() {
			alts = append(alts, fmt.Sprintf("COALESCE((%s)::text, '') ILIKE %s", b.columns[name].expr, pattern))
		}
		return "(" + strings.Join(alts, " OR ") + ")"
	}
	c := b.columns[t.Field]
	switch t.Kind {
	case queue.FieldDuration:
		return fmt.Sprintf("%s - %s %s make_interval(secs => %s)", b.now, c.expr, sqlOp(t.Op), b.arg(v.Duration.Seconds()))
	case queue.FieldTime:
		return fmt.Sprintf("%s %s %s", c.expr, sqlOp(t.Op), b.when(v.Time))
	case queue.FieldNumber:
		return fmt.Sprintf("%s %s %s::numeric", c.expr, sqlOp(t.Op), b.arg(v.Raw))
	case queue.FieldText, queue.FieldID:
	}
	switch t.Op {
	case queue.OpGlob:
		return fmt.Sprintf("COALESCE((%s)::text, '') ILIKE %s", c.expr, b.arg(like(v)))
	case queue.OpEq:
		return fmt.Sprintf("COALESCE((%s)::text, '') = %s", c.expr, b.arg(v.Raw))
	}
	number := c.number
	if number == "" {
		number = c.expr
	}
	return fmt.Sprintf("%s %s %s::numeric", number, sqlOp(t.Op), b.arg(v.Raw))
}

// like is a value as a LIKE pattern.
func like(v queue.Value) string {
	if v.Glob {
		return queue.GlobToLike(v.Raw)
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(v.Raw)
}

// when is a point in time: absolute, or relative to now.
func (b *builder) when(t queue.TimeRef) string {
	if t.Kind == queue.TimeAgo {
		return fmt.Sprintf("%s - make_interval(secs => %s)", b.now, b.arg(t.Ago.Seconds()))
	}
	return b.arg(t.Resolve(time.Now())) + "::timestamptz"
}

func sqlOp(op queue.Op) string {
	if op == queue.OpGlob {
		return "="
	}
	return string(op)
}

// FilterError makes a usage error of a filter that does not parse.
func FilterError(err error) error {
	var fe *queue.FilterError
	if !errors.As(err, &fe) {
		return err
	}
	return &queue.Error{
		Kind: queue.KindUsage, What: queue.Clean(fe.What),
		Where: queue.Clean(fmt.Sprintf("filter, column %d", fe.Column)), Do: queue.Clean(fe.Do), Err: err,
	}
}

// AuditFields are the fields of the audit pane's filter.
func AuditFields() []queue.Field {
	return []queue.Field{
		{Name: "actor", Kind: queue.FieldText, Help: "the person claimed"},
		{Name: "role", Kind: queue.FieldText, Help: "the database login"},
		{Name: "action", Kind: queue.FieldText, Help: "what was done"},
		{Name: "target", Kind: queue.FieldText, Help: "what it was done to"},
		{Name: "reason", Kind: queue.FieldText, Help: "why"},
		{Name: "outcome", Kind: queue.FieldText, Help: "done, refused: …"},
		{Name: "at", Kind: queue.FieldTime, Help: "when"},
		{Name: "age", Kind: queue.FieldDuration, Help: "how long ago"},
	}
}

var auditColumns = map[string]column{
	"actor": {expr: "a.actor"}, "role": {expr: "a.db_role"}, "action": {expr: "a.action"},
	"target": {expr: "a.target"}, "reason": {expr: "a.reason"}, "outcome": {expr: "a.outcome"},
	"at": {expr: "a.at"}, "age": {expr: "a.at"},
}
