package config

// Problems of the configuration: one line each, all reported at once.

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one mistake in the configuration. It prints as a single line that can be understood
// alone. Input is quoted in that line, so that it cannot control a terminal.
type Problem struct {
	What  string // what is wrong
	Where string // the source: a flag, a variable, a file
	Do    string // what to do about it
}

// Error returns the problem as one line.
func (p Problem) Error() string {
	return p.What + " (" + p.Where + "): " + p.Do
}

// Problems is the error of Load: every problem, in the order of the sources.
type Problems []Problem

// Error returns one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns each problem, for errors.As.
func (ps Problems) Unwrap() []error {
	all := make([]error, len(ps))
	for i, p := range ps {
		all[i] = p
	}
	return all
}

// AsProblems returns the problems in an error of Load, wrapped or not.
func AsProblems(err error) (Problems, bool) {
	return errors.AsType[Problems](err)
}

// err returns nil if there are no problems; a nil slice in an error interface would not be nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// quote returns input for a message: escaped, and shortened to fit on a line. Input that may
// contain a password is not shown.
func quote(s string) string {
	if mayHoldPassword(s) {
		return "(not shown: it may hold a password)"
	}
	const most = 60
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return strconv.Quote(s[:cut]) + "…"
	}
	return strconv.Quote(s)
}

// mayHoldPassword reports whether a text in the wrong place looks like a connection string or a
// part of one.
func mayHoldPassword(s string) bool {
	return beyondHex.MatchString(s) && strings.Contains(s, ":") || hasPassword(s) || strings.Contains(s, "://") || strings.ContainsAny(s, "@=?#%&|") || strings.Contains(strings.ToLower(s), "pass")
}

// beyondHex matches a character that no network address contains.
var beyondHex = regexp.MustCompile(`[g-zG-Z]`)

// oneLine turns a library's message into one printable line.
func oneLine(s string) string {
	quoted := strconv.Quote(strings.Join(strings.Fields(s), " "))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// meant returns the advice for a misspelt name: the nearest of names, or all of them if none is
// near. Each gets the prefix.
func meant(s, prefix string, names []string) string {
	name, far := nearest(s, names)
	switch {
	case name != "" && far <= max(3, len(s)/3):
		return "did you mean " + prefix + name + "?"
	case len(names) <= 10:
		return "use " + prefix + strings.Join(names, ", "+prefix)
	}
	return "qtop config show lists them"
}

// orElse joins a hint with the alternative.
func orElse(hint, do string) string {
	if strings.HasSuffix(hint, "?") {
		return hint + " else " + do
	}
	return do + "; " + hint
}

// nearest returns the name closest to s and its edit distance in bytes; "" and -1 if there are no
// names.
func nearest(s string, names []string) (string, int) {
	best, least := "", -1
	s = strings.ToLower(s)
	// Far longer than any name, so the distances need not be computed.
	if len(s) > 200 {
		s = s[:200]
	}
	for _, name := range names {
		if d := distance(s, strings.ToLower(name)); least < 0 || d < least {
			best, least = name, d
		}
	}
	return best, least
}

// distance counts the bytes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
