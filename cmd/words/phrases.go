package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A phrase is ruled out wherever its pattern matches, except inside a match of
// its exception.
type phrase struct {
	pattern string
	re      *regexp.Regexp
	instead string
	except  *regexp.Regexp // nil = none
}

type phrases []phrase

type finding struct {
	path    string
	line    int
	text    string
	pattern string
	instead string
}

// parse reads the list: a phrase per line as "pattern => instead", or "pattern
// => instead | exception". Patterns are regular expressions that match whole
// words in any case. Empty lines and lines that start with # are ignored.
func parse(list string) (phrases, error) {
	var all phrases
	for i, line := range strings.Split(list, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, rest, ok := strings.Cut(line, " => ")
		if !ok {
			return nil, fmt.Errorf("line %d: no ' => ' between the phrase and what to write instead", i+1)
		}
		instead, except, has := strings.Cut(rest, " | ")
		p := phrase{pattern: pattern, instead: instead}
		var err error
		if p.re, err = words(pattern); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if has {
			if p.except, err = words(except); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

func words(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`)
}

// find returns every match of a phrase in t.
func (all phrases) find(t text) []finding {
	var found []finding
	for _, p := range all {
		var allowed [][]int
		if p.except != nil {
			allowed = p.except.FindAllStringIndex(t.s, -1)
		}
		for _, at := range p.re.FindAllStringIndex(t.s, -1) {
			if slices.ContainsFunc(allowed, func(a []int) bool { return a[0] <= at[0] && at[1] <= a[1] }) {
				continue
			}
			found = append(found, finding{t.path, t.line + strings.Count(t.s[:at[0]], "\n"), t.s[at[0]:at[1]], p.pattern, p.instead})
		}
	}
	return found
}
