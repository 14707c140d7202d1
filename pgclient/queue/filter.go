package queue

// The filter language of panes, previews, bulk operations and verbs. Below are the syntax tree and
// the functions that write it back as text.

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// FieldKind is the type of a field's values; it determines the operators that the field accepts.
type FieldKind int

// The kinds of fields.
const (
	FieldText     FieldKind = iota // : and =
	FieldNumber                    // all operators; : means =
	FieldDuration                  // > < >= <=
	FieldTime                      // > < >= <=
	FieldID                        // : and = compare the text; > < >= <= take a whole number, and match only ids that are numbers
)

// Field is a field that a filter may name.
type Field struct {
	Name   string
	Kind   FieldKind
	Help   string
	Values []string // known values of the field, for completion
	Closed bool     // Values is complete: any other value is an error
}

// Op is how a term compares.
type Op string

// The operators.
const (
	OpContains Op = ""   // a bare word: a part of any text field, as a glob
	OpGlob     Op = ":"  // the whole value matches a glob
	OpEq       Op = "="  // the value is exactly this text
	OpGt       Op = ">"  //
	OpLt       Op = "<"  //
	OpGe       Op = ">=" //
	OpLe       Op = "<=" //
)

// Filter is a list of terms that must all hold. A nil Filter is the empty filter, which matches
// every row.
//
// The meaning of a term is the same in memory and in SQL:
//   - A missing text (NULL) is the empty string. Any other missing value makes a comparison false,
//     and so its negation true: not coalesce(<comparison>, false).
//   - A glob ignores case; = does not. Beyond ASCII, the locale of the database
//     decides which characters differ only in case.
//   - Values are alternatives; a negated term holds if none of the values matches.
//   - A bare word matches a row if one of its text fields (see AnyFields) contains the word.
type Filter struct {
	Terms []Term // in the order in which they were written

	any []string
}

// Term is one condition of a filter.
type Term struct {
	Negate bool      // the term must not hold
	Field  string    // "" = any text field
	Kind   FieldKind // the kind of Field
	Op     Op
	Values []Value // at least one; exactly one for > < >= <=
	Column int     // where the term begins: 1-based, in characters
}

// Value is a value to compare with.
type Value struct {
	// Raw is a pattern if Glob is set (* and ? are wildcards, a backslash makes
	// the next character literal), otherwise the literal text. For a number it
	// is the exact decimal.
	Raw      string
	Glob     bool
	Number   float64 // the nearest float64 to Raw, for FieldNumber and comparisons of FieldID
	Duration time.Duration
	Time     TimeRef
}

// TimeKind says what a TimeRef is relative to.
type TimeKind int

// The kinds of time references.
const (
	TimeNone     TimeKind = iota
	TimeAbsolute          // the time At
	TimeAgo               // the duration Ago before now
	TimeClock             // the last time at which the clock in Loc showed Clock
)

// TimeRef is a point in time, absolute or relative to now.
type TimeRef struct {
	Kind  TimeKind
	At    time.Time      // UTC, whole microseconds as in the database
	Ago   time.Duration  // for TimeAgo
	Clock time.Duration  // since midnight
	Loc   *time.Location // for TimeClock: the zone of the clock
}

// Resolve returns the point in time, relative to now.
func (r TimeRef) Resolve(now time.Time) time.Time {
	switch r.Kind {
	case TimeAgo:
		return now.Add(-r.Ago)
	case TimeClock:
		loc := r.Loc
		if loc == nil {
			loc = time.UTC
		}
		at := r.clockOn(now.In(loc), 0)
		if at.After(now) {
			at = r.clockOn(now.In(loc), -1)
		}
		return at
	}
	return r.At
}

// clockOn returns the last time until now at which the clock showed r.Clock, today or addDays later; if
// it has not shown it yet, a time after now. A clock that is set back shows an hour twice.
func (r TimeRef) clockOn(now time.Time, addDays int) time.Time {
	sec := int(r.Clock / time.Second)
	at := time.Date(now.Year(), now.Month(), now.Day()+addDays, sec/3600, sec/60%60, sec%60, 0, now.Location())
	_, offset := at.Zone()
	began, ends := at.ZoneBounds()
	for _, beside := range []time.Time{began.Add(-time.Second), ends} {
		_, other := beside.Zone()
		twin := at.Add(time.Duration(offset-other) * time.Second)
		if twin.Format(time.DateTime) == at.Format(time.DateTime) && !twin.After(now) && (at.After(now) || twin.After(at)) {
			return twin
		}
	}
	return at
}

// FilterError says what is wrong with a filter and at which character.
type FilterError struct {
	Column int // 1-based, in characters
	What   string
	Do     string
}

// Error returns the error in one line.
func (e *FilterError) Error() string {
	return fmt.Sprintf("filter, column %d: %s: %s", e.Column, e.What, e.Do)
}

// Empty reports whether the filter matches every row.
func (f *Filter) Empty() bool { return f == nil || len(f.Terms) == 0 }

// AnyFields returns the text fields in which a bare word is searched.
func (f *Filter) AnyFields() []string {
	if f == nil {
		return nil
	}
	return append([]string(nil), f.any...)
}

// With returns a filter with these terms, which searches a bare word in the same fields as f.
func (f *Filter) With(terms []Term) *Filter { return &Filter{Terms: terms, any: f.any} }

// AbsoluteTimes returns the text of a filter in which dates and times without a zone, which are
// those of loc, are absolute, and a time without a date is the last one before now. A filter that
// has none of these, or that is not valid, is returned as it is.
func AbsoluteTimes(text string, fields []Field, now time.Time, loc *time.Location) string {
	there, err := ParseFilterIn(text, fields, loc)
	if err != nil {
		return text
	}
	utc, err := ParseFilterIn(text, fields, time.UTC)
	if fixed := there.At(now).String(); err == nil && fixed != utc.String() {
		return fixed
	}
	return text
}

// At returns f with every time of a clock replaced by the absolute time that it means at now. The
// text of the result selects the same rows on another machine and in any time zone. Durations are
// unchanged: an age, and the time of -30m, are computed when the filter is evaluated.
func (f *Filter) At(now time.Time) *Filter {
	if f.Empty() {
		return f
	}
	fixed := *f
	fixed.Terms = append([]Term(nil), f.Terms...)
	for i, t := range fixed.Terms {
		if t.Kind != FieldTime {
			continue
		}
		values := append([]Value(nil), t.Values...)
		for j, v := range values {
			if v.Time.Kind == TimeClock {
				values[j] = absoluteValue(v.Time.Resolve(now))
			}
		}
		fixed.Terms[i].Values = values
	}
	return &fixed
}

// String returns the canonical text. Parsing it with the same fields and location gives the same
// terms, and it contains no character that is unsafe to print.
func (f *Filter) String() string {
	if f.Empty() {
		return ""
	}
	terms := make([]string, len(f.Terms))
	for i, t := range f.Terms {
		terms[i] = t.String()
	}
	return strings.Join(terms, " ")
}

// String returns the canonical text of the term.
func (t Term) String() string {
	var b strings.Builder
	if t.Negate {
		b.WriteByte('!')
	}
	b.WriteString(t.Field + string(t.Op))
	for i, v := range t.Values {
		if i > 0 {
			b.WriteByte('|')
		}
		b.WriteString(quoteValue(v, t.Field == ""))
	}
	return b.String()
}

// quoteValue writes a value so that parsing the text returns the same value.
func quoteValue(v Value, bare bool) string {
	s := v.Raw
	if !v.Glob {
		s = strings.ReplaceAll(s, `\`, `\\`)
	}
	s = strings.ReplaceAll(s, `"`, `\"`)
	special := s == "" || strings.ContainsAny(s, `|"`) || strings.ContainsAny(s[:1], `:=<>!'`) ||
		strings.ContainsFunc(s, unicode.IsSpace)
	if bare {
		special = special || strings.ContainsAny(s, ":=<>") || isConnective(s)
	}
	if special {
		return `"` + s + `"`
	}
	return s
}

// isConnective reports whether s is a word such as "and", which other query languages put between
// terms.
func isConnective(s string) bool {
	switch strings.ToLower(s) {
	case "and", "or", "not":
		return true
	}
	return false
}

// DeadLetterFields returns the fields that a filter of dead letters may name.
func DeadLetterFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldID, Help: "the dead letter: a number for a webhook, job:UUID, event:UUID"},
		{Name: "code", Help: "the last error", Values: []string{"HTTP_500", "HTTP_502", "HTTP_503", "HTTP_504", "TIMEOUT", "HANDLER_ERROR", "LEASE_LOST_LIMIT"}},
		{Name: "endpoint", Help: "the receiver of the webhook; of a job, its kind"},
		{Name: "subscription", Kind: FieldNumber, Help: "number of the subscription; a job has none"},
		{Name: "domain", Help: "event domain"},
		{Name: "kind", Help: "kind of the job; webhook for a webhook"},
		{Name: "type", Help: "event type; a job has none"},
		{Name: "age", Kind: FieldDuration, Help: "time since it became a dead letter: age>2h"},
		{Name: "failed", Kind: FieldTime, Help: "when it became a dead letter: failed>-30m failed<2026-11-20T02:00 failed>02:00"},
		{Name: "source", Help: "which queue", Values: []string{"webhook", "job", "event"}, Closed: true},
		{Name: "state", Help: "its state", Values: []string{"open", "requeued", "resolved"}, Closed: true},
	}
}

// LaneFilter returns a filter for exactly the live jobs of a kind, a domain and a status; an empty
// argument means any.
func LaneFilter(kind, domain, status string) string {
	var f Filter
	for _, t := range [][2]string{{"kind", kind}, {"domain", domain}, {"status", status}} {
		if t[1] != "" {
			f.Terms = append(f.Terms, Term{Field: t[0], Op: OpEq, Values: []Value{{Raw: t[1]}}})
		}
	}
	return f.String()
}

// JobFields returns the fields that a filter of live jobs may name.
func JobFields() []Field {
	return []Field{
		{Name: "id", Kind: FieldID, Help: "the job"},
		{Name: "kind", Help: "the kind of job"},
		{Name: "domain", Help: "event domain"},
		{Name: "status", Help: "its status", Values: LiveJobStatuses(), Closed: true},
		{Name: "executor", Help: "the kind of executor that may run it", Values: ExecutorKinds()},
		{Name: "priority", Kind: FieldNumber, Help: "higher runs first: priority>100"},
		{Name: "attempts", Kind: FieldNumber, Help: "finished attempts"},
		{Name: "age", Kind: FieldDuration, Help: "time since it became due, or since it was claimed: age>2h"},
		{Name: "code", Help: "the last error", Values: []string{"HANDLER_ERROR", "LEASE_LOST"}},
		{Name: "owner", Help: "the executor that has leased it"},
	}
}
