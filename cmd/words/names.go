package main

import (
	_ "embed"
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed names.txt
var nameList string

// nameTexts returns the names in a file of Go or SQL: the name of the file
// itself, and the identifiers in it.
func nameTexts(path, data string) []text {
	texts := []text{{path, 1, filepath.Base(path)}}
	switch filepath.Ext(path) {
	case ".go":
		return append(texts, goNames(path, []byte(data))...)
	case ".sql":
		return append(texts, sqlNames(path, data)...)
	}
	return nil
}

func goNames(path string, data []byte) []text {
	set := token.NewFileSet()
	file := set.AddFile(path, -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, 0)
	var texts []text
	for {
		pos, tok, name := s.Scan()
		if tok == token.EOF {
			return texts
		}
		if tok == token.IDENT {
			texts = append(texts, text{path, file.Line(pos), name})
		}
	}
}

var (
	sqlQuoted = regexp.MustCompile(`'(?:[^']|'')*'|--.*`)
	sqlName   = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// sqlNames leaves out comments and what is in single quotes: values and keys of
// JSON. The text between dollar quotes is code.
func sqlNames(path, data string) []text {
	data = sqlQuoted.ReplaceAllStringFunc(data, func(quoted string) string {
		return strings.Repeat("\n", strings.Count(quoted, "\n"))
	})
	var texts []text
	for i, line := range strings.Split(data, "\n") {
		for _, name := range sqlName.FindAllString(line, -1) {
			texts = append(texts, text{path, i + 1, name})
		}
	}
	return texts
}
