// Command words finds phrases and names that the project does not use: `make
// lint` runs it. phrases.txt lists each phrase with its replacement, and
// names.txt each part of a name.
//
//	go run ./cmd/words                 every text of the project
//	go run ./cmd/words PATH…           files and folders below these alone
//	go run ./cmd/words -count PATH…    the number per phrase, most frequent first
//
// It reads the prose of Markdown files (not their code), Go comments, the
// sentences among Go's string literals outside of tests, the comments and
// quoted sentences of SQL files, and the help of every verb of qtop. Released
// migrations and generated documents are not read: their sources are.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed phrases.txt
var list string

func main() {
	count := flag.Bool("count", false, "print how often each phrase stands, not where")
	flag.Parse()
	found, err := check(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
	if *count {
		printCounts(found)
	} else {
		for _, f := range found {
			fmt.Printf("%s:%d: %q: write %s\n", f.path, f.line, f.text, f.instead)
		}
	}
	if len(found) > 0 {
		fmt.Fprintf(os.Stderr, "words: %d phrases and names that phrases.txt and names.txt in cmd/words rule out\n", len(found))
		os.Exit(1)
	}
}

// check returns the phrases found in the files below paths. Without paths it
// checks the whole tree and the help of the program.
func check(paths []string) ([]finding, error) {
	phrases, err := parse(list, words)
	if err != nil {
		return nil, fmt.Errorf("phrases.txt: %w", err)
	}
	parts, err := parse(nameList, partsOfNames)
	if err != nil {
		return nil, fmt.Errorf("names.txt: %w", err)
	}
	var texts, names []text
	if len(paths) == 0 {
		paths = []string{"."}
		if texts, err = helpTexts(context.Background()); err != nil {
			return nil, err
		}
	}
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && skipped(path):
				return fs.SkipDir
			case d.IsDir() || skipped(path):
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			more, err := textsOf(path, data)
			texts = append(texts, more...)
			names = append(names, nameTexts(path, string(data))...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var found []finding
	for _, t := range texts {
		found = append(found, phrases.find(t)...)
	}
	for _, n := range names {
		found = append(found, parts.find(n)...)
	}
	return found, nil
}

// skipped reports whether path is not checked: generated, frozen, or no text of
// the project.
func skipped(path string) bool {
	path = filepath.ToSlash(path)
	switch path {
	case ".git", "dist", "docs/keys.md", "docs/schema.md", "cmd/words":
		return true
	}
	return strings.HasSuffix(path, "pgclient/schema/migrations") || strings.HasSuffix(path, "/testdata")
}

func printCounts(found []finding) {
	counts := map[string]int{}
	for _, f := range found {
		counts[f.pattern]++
	}
	patterns := make([]string, 0, len(counts))
	for p := range counts {
		patterns = append(patterns, p)
	}
	slices.SortFunc(patterns, func(a, b string) int { return counts[b] - counts[a] })
	for _, p := range patterns {
		fmt.Printf("%6d  %s\n", counts[p], p)
	}
}
