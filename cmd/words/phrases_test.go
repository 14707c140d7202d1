package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A phrase is found at its line in each kind of text that is read, but not in
// code and not inside an exception.
func TestPhrasesAreFoundInProseAlone(t *testing.T) {
	all, err := parse("# terms\n\nletters? => dead letter | dead letters?\n", words)
	require.NoError(t, err)
	files := map[string]string{
		"a.md":      "A Letter.\n\n`letter` and a dead letter\n```\nletter\n```\nthe\nletters\n",
		"a.go":      "package a\n\n// A letter.\nvar letter = \"letter\" // dead letters\n\nvar s = \"one letter\"\n\nvar q = \"SELECT letter FROM x\"\n",
		"a_test.go": "package a\n\nvar s = \"one letter\" // a letter\n",
		"a.sql":     "SELECT letter, 'one letter' -- the letter\n  FROM x WHERE y = 'letter';\n",
		"a.txt":     "letter\n",
	}
	want := map[string][]int{"a.md": {1, 8}, "a.go": {3, 6}, "a_test.go": {3}, "a.sql": {1, 1}, "a.txt": nil}
	for name, data := range files {
		texts, err := textsOf(name, []byte(data))
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

// A part of a name is found at its line in Go and SQL alone, in no comment, in
// no quotes and not inside an exception.
func TestPartsOfNamesAreFoundInCodeAlone(t *testing.T) {
	parts, err := parse("letter => dead letter | dead_?letter|fn_old_letter\n", partsOfNames)
	require.NoError(t, err)
	files := map[string]string{
		"letter.go":      "package a\n\n// jobLetter\nfunc jobLetter(deadLetter, DeadLetters, LETTERS int) { const _ = \"jobLetter\" }\n\nvar s = `\n` + x.letters\n",
		"dead_letter.go": "package a\n",
		"a_test.go":      "package a\n\nfunc TestLetter() {}\n",
		"a.sql":          "-- fn_letter\nSELECT fn_letter(), 'a\n letter', dead_letters, fn_old_letter() AS $$\nv_letters := 'it''s letters' $$;\n",
		"letter.md":      "letter\n",
	}
	want := map[string][]int{"letter.go": {1, 4, 4, 7}, "dead_letter.go": nil, "a_test.go": {3}, "a.sql": {2, 4}, "letter.md": nil}
	for name, data := range files {
		var lines []int
		for _, text := range nameTexts(name, data) {
			for _, f := range parts.find(text) {
				lines = append(lines, f.line)
			}
		}
		require.Equal(t, want[name], lines, name)
	}
}

func TestTheListsAreRead(t *testing.T) {
	all, err := parse(list, words)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	all, err = parse(nameList, partsOfNames)
	require.NoError(t, err)
	require.NotEmpty(t, all)
	_, err = parse("no arrow", words)
	require.ErrorContains(t, err, "line 1")
}
