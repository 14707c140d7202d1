package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A phrase is found at its line in each kind of text that is read, but not in
// code and not inside an exception.
func TestPhrasesAreFoundInProseAlone(t *testing.T) {
	all, err := parse("# terms\n\nletters? => dead letter | dead letters?\n")
	require.NoError(t, err)
	dir := t.TempDir()
	files := map[string]string{
		"a.md":      "A Letter.\n\n`letter` and a dead letter\n```\nletter\n```\nthe\nletters\n",
		"a.go":      "package a\n\n// A letter.\nvar letter = \"letter\" // dead letters\n\nvar s = \"one letter\"\n\nvar q = \"SELECT letter FROM x\"\n",
		"a_test.go": "package a\n\nvar s = \"one letter\" // a letter\n",
		"a.sql":     "SELECT letter, 'one letter' -- the letter\n  FROM x WHERE y = 'letter';\n",
		"a.txt":     "letter\n",
	}
	want := map[string][]int{"a.md": {1, 8}, "a.go": {3, 6}, "a_test.go": {3}, "a.sql": {1, 1}, "a.txt": nil}
	for name, data := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
		texts, err := textsOf(path)
		require.NoError(t, err)
		var lines []int
		for _, text := range texts {
			for _, f := range all.find(text) {
				lines = append(lines, f.line)
			}
		}
		require.Equal(t, want[name], lines, name)
	}
}

func TestTheListIsRead(t *testing.T) {
	all, err := parse(list)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	_, err = parse("no arrow")
	require.ErrorContains(t, err, "line 1")
}
