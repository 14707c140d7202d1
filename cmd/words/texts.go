package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A text is a run of prose that starts at a line of a file.
type text struct {
	path string
	line int
	s    string
}

// textsOf returns the prose of one file; nil for file types without prose. data
// is the content.
func textsOf(path string, data []byte) ([]text, error) {
	switch filepath.Ext(path) {
	case ".go":
		return goTexts(path, data)
	case ".sql":
		return sqlTexts(path, string(data)), nil
	case ".md":
		return []text{{path, 1, prose(string(data))}}, nil
	}
	return nil, nil
}

// goTexts returns the comments of a Go file and, outside of tests, its string
// literals of more than one word.
func goTexts(path string, data []byte) ([]text, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, data, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var texts []text
	for _, group := range file.Comments {
		for _, c := range group.List {
			texts = append(texts, text{path, set.Position(c.Pos()).Line, c.Text})
		}
	}
	if strings.HasSuffix(path, "_test.go") {
		return texts, nil
	}
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		s, err := strconv.Unquote(lit.Value)
		if err != nil || !strings.Contains(strings.TrimSpace(s), " ") || isSQL(s) {
			return true
		}
		texts = append(texts, text{path, set.Position(lit.Pos()).Line, s})
		return true
	})
	return texts, nil
}

// isSQL reports whether a string is an SQL statement, which its keywords show.
func isSQL(s string) bool { return sqlKeywords.MatchString(s) }

var sqlKeywords = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|VALUES|WHERE|FROM|CREATE|ALTER|GRANT)\b`)

var (
	sqlComment  = regexp.MustCompile(`--.*`)
	sqlSentence = regexp.MustCompile(`'(?:[^'\n]|'')* (?:[^'\n]|'')*'`)
)

// sqlTexts returns the comments of an SQL file and its quoted strings of more
// than one word, line by line.
func sqlTexts(path, data string) []text {
	var texts []text
	for i, line := range strings.Split(data, "\n") {
		comment := sqlComment.FindString(line)
		code := strings.TrimSuffix(line, comment)
		if comment != "" {
			texts = append(texts, text{path, i + 1, comment})
		}
		for _, s := range sqlSentence.FindAllString(code, -1) {
			texts = append(texts, text{path, i + 1, s})
		}
	}
	return texts
}

var markdownCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// prose blanks the code of a Markdown text; lines stay where they are.
func prose(s string) string {
	return markdownCode.ReplaceAllStringFunc(s, func(code string) string {
		return "``" + strings.Repeat("\n", strings.Count(code, "\n"))
	})
}

var subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) `)

// helpTexts builds qtop and returns the help (--help) of each of its verbs.
func helpTexts(ctx context.Context) ([]text, error) {
	dir, err := os.MkdirTemp("", "words")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "qtop")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/qtop").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build ./cmd/qtop: %w: %s", err, out)
	}
	var texts []text
	var walk func(verb []string) error
	walk = func(verb []string) error {
		out, err := exec.CommandContext(ctx, program, append(verb, "--help")...).Output()
		if err != nil {
			return fmt.Errorf("qtop %s --help: %w", strings.Join(verb, " "), err)
		}
		help := string(out)
		texts = append(texts, text{strings.Join(append([]string{"qtop"}, append(verb, "--help")...), " "), 1, help})
		_, verbs, has := strings.Cut(help, "Available Commands:\n")
		if !has {
			return nil
		}
		verbs, _, _ = strings.Cut(verbs, "\n\n")
		for _, m := range subcommand.FindAllStringSubmatch(verbs, -1) {
			if m[1] == "completion" || m[1] == "help" {
				continue // verbs that cobra adds
			}
			if err := walk(append(verb[:len(verb):len(verb)], m[1])); err != nil {
				return err
			}
		}
		return nil
	}
	return texts, walk(nil)
}
