package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/qtop/qtop/pgclient/schema"
)

// maxWidth is the longest line of SQL, in characters.
const maxWidth = 120

// maxPositional is how many unnamed arguments a call of a function of qtop may have.
const maxPositional = 5

// check returns a line per problem of the schema in fsys.
func check(fsys fs.FS) []string {
	var out []string
	for _, pattern := range []string{"migrations/*.sql", "code/*.sql", "moves/*.sql", "seeds.sql"} {
		names, _ := fs.Glob(fsys, pattern) // cannot fail: the patterns are valid
		for _, name := range names {
			text, err := fs.ReadFile(fsys, name)
			if err != nil {
				out = append(out, err.Error())
				continue
			}
			out = append(out, widths(name, string(text))...)
			out = append(out, paths(name, string(text))...)
			out = append(out, calls(name, string(text))...)
			if strings.HasPrefix(name, "code/") {
				out = append(out, folds(name, string(text))...)
			}
		}
	}
	r, err := schema.Load(fsys)
	if err != nil {
		return append(out, err.Error())
	}
	out = append(out, functions(r)...)
	return append(out, sinceReleased(fsys, r)...)
}

func widths(name, text string) (out []string) {
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > maxWidth {
			out = append(out, fmt.Sprintf("%s:%d: %d characters, at most %d", name, i+1, n, maxWidth))
		}
	}
	return out
}

var (
	setPath = regexp.MustCompile(`(?i)\bsearch_path\s*(?:=|TO)\s*([^\n;]*?)(?:\s+AS\b|\s+SET\b|;|\n|$)`)
	onPath  = regexp.MustCompile(`(?i)\bSET search_path = pg_catalog, pg_temp\b`)

	// avoids matches a setting that makes a kind of plan seem very expensive. If PostgreSQL has to choose it
	// nevertheless, such as for a table without a fitting index, it would compile the query each time it runs.
	avoids = regexp.MustCompile(`\bSET enable_\w+ = off\b`)
)

// paths refuses every search path but one: with public in the path, an overload that
// matches better would be called instead.
func paths(name, text string) (out []string) {
	for _, at := range setPath.FindAllStringSubmatchIndex(text, -1) {
		if path := strings.TrimSpace(text[at[2]:at[3]]); path != "pg_catalog, pg_temp" {
			out = append(out, fmt.Sprintf("%s:%d: search_path = %s: it must be pg_catalog, pg_temp", name, lineOf(text, at[0]), path))
		}
	}
	return out
}

func functions(r *schema.Release) (out []string) {
	for _, d := range r.Declared() {
		if d.Kind == "function" && !onPath.MatchString(d.SQL) {
			out = append(out, fmt.Sprintf("%s:%d: function %s does not SET search_path = pg_catalog, pg_temp", d.File, d.Line, d.Name))
		}
		if d.Kind == "function" && avoids.MatchString(d.SQL) && !strings.Contains(d.SQL, "SET jit = off") {
			out = append(out, fmt.Sprintf("%s:%d: function %s avoids a kind of plan and does not SET jit = off", d.File, d.Line, d.Name))
		}
		if d.Kind == "function" && backslash(d.SQL) && !strings.Contains(d.SQL, "SET standard_conforming_strings = on") {
			out = append(out, fmt.Sprintf("%s:%d: function %s has a backslash in a literal and does not SET standard_conforming_strings = on", d.File, d.Line, d.Name))
		}
	}
	return out
}

// backslash reports whether the body of a function has a literal with a backslash whose meaning
// depends on standard_conforming_strings: PostgreSQL reads the statements of a body with the setting
// of the session that calls the function first.
func backslash(sql string) bool {
	_, body, _ := strings.Cut(sql, "$")
	for i := 0; i < len(body); i++ {
		switch {
		case strings.HasPrefix(body[i:], "--"):
			for i < len(body) && body[i] != '\n' {
				i++
			}
		case body[i] == '\'':
			escapes := i > 0 && (body[i-1] == 'E' || body[i-1] == 'e') && (i < 2 || strings.ContainsRune(" \n(,|", rune(body[i-2])))
			for i++; i < len(body) && body[i] != '\''; i++ {
				if body[i] == '\\' {
					if !escapes {
						return true
					}
					i++
				}
			}
		}
	}
	return false
}

var fold = regexp.MustCompile(`\b(lower|upper|initcap)\(`)

// folds refuses a change of case by the rules of the database's language: in Turkish, the small
// letter of I is not i, and names and codes are ASCII.
func folds(name, text string) (out []string) {
	for _, at := range fold.FindAllStringSubmatchIndex(text, -1) {
		end, depth := at[1], 1
		for ; end < len(text) && depth > 0; end++ {
			switch text[end] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		if !strings.HasSuffix(text[:end], ` COLLATE "C")`) {
			out = append(out, fmt.Sprintf(`%s:%d: %s depends on the language of the database; end its argument with COLLATE "C"`, name, lineOf(text, at[0]), text[at[2]:at[3]]))
		}
	}
	return out
}

func lineOf(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

var call = regexp.MustCompile(`\bpublic\.(fn_\w+)\(`)

// calls finds calls of functions of qtop with more than maxPositional unnamed arguments.
func calls(name, text string) (out []string) {
	for _, at := range call.FindAllStringSubmatchIndex(text, -1) {
		if strings.HasSuffix(strings.TrimRight(text[:at[0]], " \n"), "FUNCTION") {
			continue
		}
		if n := positional(text[at[1]:]); n > maxPositional {
			out = append(out, fmt.Sprintf("%s:%d: the call of %s has %d arguments without names, at most %d",
				name, lineOf(text, at[0]), text[at[2]:at[3]], n, maxPositional))
		}
	}
	return out
}

// positional counts the unnamed arguments in text, which begins after the opening
// parenthesis of a call.
func positional(text string) int {
	n, depth, named, any := 0, 0, false, false
	end := func() {
		if any && !named {
			n++
		}
		named, any = false, false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'':
			any = true
			for i++; i < len(text) && text[i] != '\''; i++ {
			}
		case strings.HasPrefix(text[i:], "--"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '(' || c == '[':
			depth++
		case (c == ')' || c == ']') && depth == 0:
			end()
			return n
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			end()
		case depth == 0 && strings.HasPrefix(text[i:], "=>"):
			named = true
		case c != ' ' && c != '\n':
			any = true
		}
	}
	return n
}

// released is the content of released.txt: what the last release contained.
type released struct {
	release    string
	code       int
	hash       string
	migrations map[string]string   // checksum by name
	objects    map[string][]string // marks by kind and name: granted, retired
}

var releasedLine = regexp.MustCompile(`^(release|code|migration|function|view|trigger) (.+)$`)

func readReleased(fsys fs.FS) (released, error) {
	out := released{migrations: map[string]string{}, objects: map[string][]string{}}
	text, err := fs.ReadFile(fsys, "released.txt")
	if err != nil {
		return out, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		m := releasedLine.FindStringSubmatch(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case m == nil:
			return out, fmt.Errorf("released.txt: %q is not a known line", line)
		case m[1] == "release":
			out.release = m[2]
		case m[1] == "code":
			_, err = fmt.Sscanf(m[2], "%d %s", &out.code, &out.hash)
		case m[1] == "migration":
			name, sum, _ := strings.Cut(m[2], " ")
			out.migrations[name] = sum
		default:
			name, marks, _ := strings.Cut(m[2], ": ")
			out.objects[m[1]+" "+name] = strings.Fields(marks)
		}
		if err != nil {
			return out, fmt.Errorf("released.txt: %q: %w", line, err)
		}
	}
	return out, nil
}

// retiredFile holds the functions and views that this release does not use, but
// programs of the previous release may.
const retiredFile = "code/retired.sql"

// sinceReleased compares the schema with the last release: its migrations are
// unchanged, changed code has a higher number, and an object that others may call is
// removed only after a release in which it was retired.
func sinceReleased(fsys fs.FS, r *schema.Release) (out []string) {
	last, err := readReleased(fsys)
	if err != nil {
		return []string{err.Error()}
	}
	for name, sum := range last.migrations {
		switch now, err := checksum(fsys, name); {
		case err != nil:
			out = append(out, fmt.Sprintf("migrations/%s: it was released and must stay: %v", name, err))
		case now != sum:
			out = append(out, fmt.Sprintf("migrations/%s: a released migration was changed; put the change into a new one", name))
		}
	}
	if r.Hash != last.hash && r.Code <= last.code {
		out = append(out, fmt.Sprintf("release.txt: code %d was released with another hash (%s, now %s); the number must rise", r.Code, last.hash, r.Hash))
	}
	declared, dropped := map[string]bool{}, r.Dropped()
	for _, d := range r.Declared() {
		declared[d.Kind+" "+d.Name] = true
	}
	for object, marks := range last.objects {
		if declared[object] {
			continue
		}
		if !slices.Contains(dropped, object) {
			out = append(out, fmt.Sprintf("release.txt: %s was released and is gone; add the line `dropped %s`", object, object))
		}
		if slices.Contains(marks, "granted") && !slices.Contains(marks, "retired") {
			out = append(out, fmt.Sprintf("%s: %s was released and others may use it; keep it here for one release", retiredFile, object))
		}
	}
	slices.Sort(out)
	return out
}
