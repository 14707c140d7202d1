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

// parse reads a list: a phrase per line as "pattern => instead", or "pattern =>
// instead | exception". compile makes the regular expression of a pattern: words
// or partsOfNames. Empty lines and lines that start with # are ignored.
func parse(list string, compile func(pattern string) (*regexp.Regexp, error)) (phrases, error) {
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
		if p.re, err = compile(pattern); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if has {
			if p.except, err = compile(except); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
		all = append(all, p)
	}
	return all, nil
}

// words matches whole words in any case.
func words(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`(?i)\b(?:` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`)
}

// partsOfNames matches any part of a name in any case.
func partsOfNames(pattern string) (*regexp.Regexp, error) {
	return regexp.Compile(`(?i)(?:` + pattern + `)`)
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
