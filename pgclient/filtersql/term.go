package filtersql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/queue"
)

// SQL conditions for terms whose result is known without the database.
const (
	always = "true"
	never  = "false"
)

// conds returns the terms of the filter as conditions, all of which must hold.
func (b *Builder) conds(f *queue.Filter) (conds []string) {
	if f == nil {
		return nil
	}
	for _, t := range f.Terms {
		cond := b.decide(func() string {
			alts := b.oneOf(t)
			if alts == nil {
				for _, v := range t.Values {
					alts = append(alts, b.term(f, t, v))
				}
			}
			return negated(anyOf(alts), t.Negate)
		})
		if cond != always {
			conds = append(conds, cond)
		}
	}
	return conds
}

// decide calls build, which returns a condition and may add arguments. If the condition is always
// or never, decide drops these arguments again, because PostgreSQL refuses arguments that a
// statement does not use.
func (b *Builder) decide(build func() string) string {
	n := len(b.Args)
	cond := build()
	if cond == always || cond == never {
		b.Args = b.Args[:n]
	}
	return cond
}

// oneOf returns the condition that the text of a column is one of several values, in a form (= ANY)
// for which PostgreSQL can use an index at once; it cannot for an OR.
func (b *Builder) oneOf(t queue.Term) []string {
	c := b.columns[t.Field]
	if t.Op != queue.OpEq || len(t.Values) < 2 || t.Kind != queue.FieldText || c.Const || c.Shown != "" || len(c.Cases) > 0 {
		return nil
	}
	var texts []string
	for _, v := range t.Values {
		if v.Raw == "" { // the empty text also matches NULL
			return nil
		}
		texts = append(texts, v.Raw)
	}
	return []string{"(" + c.Expr + ")::text = ANY (" + b.Arg(texts) + "::text[])"}
}

// anyOf returns the condition that one of the alternatives holds.
func anyOf(alts []string) string {
	alts = slices.DeleteFunc(alts, func(cond string) bool { return cond == never })
	switch {
	case slices.Contains(alts, always):
		return always
	case len(alts) == 0:
		return never
	}
	return "(" + strings.Join(alts, " OR ") + ")"
}

// allOf returns the condition that all of these hold.
func allOf(conds []string) string {
	switch {
	case slices.Contains(conds, never):
		return never
	case len(conds) == 0:
		return always
	}
	return "(" + strings.Join(conds, " AND ") + ")"
}

func negated(cond string, negate bool) string {
	switch {
	case !negate:
		return cond
	case cond == always:
		return never
	case cond == never:
		return always
	}
	return "NOT COALESCE(" + cond + ", false)"
}

func decided(holds bool) string {
	if holds {
		return always
	}
	return never
}

// matches reports whether a text matches a value of a term.
func matches(text string, t queue.Term, v queue.Value) bool {
	t.Negate, t.Values = false, []queue.Value{v}
	one := &queue.Filter{Terms: []queue.Term{t}}
	return one.Match(func(string) (any, bool) { return text, true }, time.Time{})
}

func (b *Builder) term(f *queue.Filter, t queue.Term, v queue.Value) string {
	if t.Op == queue.OpContains {
		return b.contains(f.AnyFields(), v)
	}
	c := b.columns[t.Field]
	if c.Const {
		return decided(matches(c.Text, t, v))
	}
	switch t.Kind {
	case queue.FieldDuration: // the column is compared, not an expression over it, so that an index can serve the condition
		return fmt.Sprintf("%s %s %s - make_interval(secs => %s)", c.Expr, mirrored(t.Op), b.Now, b.Arg(v.Duration.Seconds()))
	case queue.FieldTime:
		return fmt.Sprintf("%s %s %s", c.Expr, t.Op, b.when(v.Time))
	case queue.FieldNumber:
		return fmt.Sprintf("%s %s %s", c.Expr, sqlOp(t.Op), b.number(v))
	case queue.FieldText, queue.FieldID:
	}
	if len(c.Cases) > 0 {
		var alts []string
		for _, x := range c.Cases {
			if matches(x.Text, t, v) {
				alts = append(alts, x.Cond)
			}
		}
		if len(alts) == len(c.Cases) {
			return always
		}
		return anyOf(alts)
	}
	switch t.Op {
	case queue.OpGlob:
		if c.Same != nil && !strings.ContainsAny(v.Raw, `*?\`) { // ids are stored in lower case
			return b.same(c, strings.ToLower(v.Raw))
		}
		if c.Upper && v.Raw != "" && !strings.ContainsAny(v.Raw, `*?\`) {
			same := b.same(c, strings.ToUpper(v.Raw))
			if v.Raw != strings.ToUpper(v.Raw) {
				same = "(" + same + " OR " + b.same(c, v.Raw) + ")"
			}
			return same
		}
		if c.Distinct != "" && b.open {
			return "(" + c.Expr + ")::text = ANY (ARRAY(" + c.Distinct + " AND v" + ilike(v) + b.Arg(like(v)) + "))"
		}
		pattern := ilike(v) + b.Arg(like(v))
		if c.Shown != "" {
			return "(" + textOf(c) + pattern + " OR (" + c.Shown + ")" + pattern + ")"
		}
		return textOf(c) + pattern
	case queue.OpEq:
		if c.Shown != "" {
			return "(" + b.same(c, v.Raw) + " OR " + c.Shown + " = " + b.Arg(v.Raw) + ")"
		}
		return b.same(c, v.Raw)
	}
	number := c.Number
	if number == "" {
		number = c.Expr
	}
	return fmt.Sprintf("%s %s %s", number, t.Op, b.number(v))
}

// contains returns the condition that one of these fields contains a bare word.
func (b *Builder) contains(fields []string, v queue.Value) string {
	part := queue.Value{Raw: "*" + v.Raw + "*", Glob: true}
	pattern := ""
	var alts []string
	for _, name := range fields {
		c := b.columns[name]
		if c.Const {
			alts = append(alts, decided(matches(c.Text, queue.Term{Field: name, Op: queue.OpGlob}, part)))
			continue
		}
		if pattern == "" {
			pattern = ilike(v) + b.Arg("%"+like(v)+"%")
		}
		alts = append(alts, textOf(c)+pattern)
		if c.Shown != "" {
			alts = append(alts, "("+c.Shown+")"+pattern)
		}
	}
	return anyOf(alts)
}

// ilike returns the operator that compares a text with the pattern of a value in any case. ASCII is
// compared by its own rules, because in the language of a Turkish database i is not the small letter of
// I; other characters are compared by the rules of the database.
func ilike(v queue.Value) string {
	if strings.ContainsFunc(v.Raw, func(r rune) bool { return r > unicode.MaxASCII }) {
		return " ILIKE "
	}
	return ` COLLATE "C" ILIKE `
}

// textOf returns the SQL of the text of a column, in which NULL is the empty string.
func textOf(c Column) string { return "COALESCE((" + c.Expr + ")::text, '')" }

// same returns the condition that the text of a column is this one. Only the empty text also
// matches NULL; any other text is compared with the column itself, so that an index can serve the
// condition.
func (b *Builder) same(c Column, text string) string {
	switch {
	case c.Same != nil:
		if cond, ok := c.Same(b, text); ok {
			return cond
		}
		return never
	case text == "":
		return textOf(c) + " = ''"
	}
	return "(" + c.Expr + ")::text = " + b.Arg(text)
}

// sameNumber returns a Column.Same for a column of whole numbers.
func sameNumber(column string) func(*Builder, string) (string, bool) {
	return func(b *Builder, text string) (string, bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != text {
			return "", false
		}
		return column + " = " + b.Arg(n) + "::bigint", true
	}
}

// sameUUID returns a Column.Same for a column of UUIDs that are shown with this prefix.
func sameUUID(column, prefix string) func(*Builder, string) (string, bool) {
	return func(b *Builder, text string) (string, bool) {
		id, err := parseid.UUID(text, "id", prefix)
		if err != nil || prefix+id != text {
			return "", false
		}
		return column + " = " + b.Arg(id) + "::uuid", true
	}
}

// number returns the SQL of a number. A whole number stays one, so that an index on a column of
// whole numbers can serve the condition.
func (b *Builder) number(v queue.Value) string {
	if n, err := strconv.ParseInt(v.Raw, 10, 64); err == nil {
		return b.Arg(n) + "::bigint"
	}
	return b.Arg(v.Raw) + "::numeric"
}

// like returns a value as a LIKE pattern.
func like(v queue.Value) string {
	if v.Glob {
		return queue.GlobToLike(v.Raw)
	}
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(v.Raw)
}

func sqlOp(op queue.Op) string {
	if op == queue.OpGlob {
		return "="
	}
	return string(op)
}

// mirrored returns the operator for a comparison of times instead of ages: an age above an hour
// means a time before an hour ago.
func mirrored(op queue.Op) string {
	return strings.NewReplacer("<", ">", ">", "<").Replace(string(op))
}
