package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	docLink    = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)`)
	docHeading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	docCode    = regexp.MustCompile("`[^`\n]*`")
	// docPunct matches the characters that a heading loses when it becomes an
	// anchor.
	docPunct = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// prose returns a document without its fenced blocks.
func prose(text string) string {
	fenced := false
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			return true
		}
		return fenced
	}), "\n")
}

// anchors returns the anchors of the headings of a document, as GitHub makes
// them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range docHeading.FindAllStringSubmatch(prose(text), -1) {
		heading := docLink.ReplaceAllString(strings.TrimSpace(m[1]), "]")
		name := strings.ReplaceAll(docPunct.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
		anchor := name
		for n := 1; all[anchor]; n++ { // a heading that occurs twice
			anchor = fmt.Sprintf("%s-%d", name, n)
		}
		all[anchor] = true
	}
	return all
}

// deadLinks returns the relative links of a document whose file or heading does
// not exist, and the number of good links.
func deadLinks(path string) (dead []string, good int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range docLink.FindAllStringSubmatch(docCode.ReplaceAllString(prose(string(text)), ""), -1) {
		if regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`).MatchString(m[1]) {
			continue // https:, mailto:
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		target := path
		if file != "" {
			target = filepath.Join(filepath.Dir(path), file)
		}
		there, err := os.Stat(target)
		switch {
		case err != nil:
			dead = append(dead, m[1]+": there is no such file")
			continue
		case anchor == "":
		case there.IsDir() || filepath.Ext(target) != ".md":
			dead = append(dead, m[1]+": only a document has headings")
			continue
		default:
			headings, err := os.ReadFile(target)
			if err != nil {
				return nil, 0, err
			}
			if !anchors(string(headings))[anchor] {
				dead = append(dead, m[1]+": there is no such heading")
				continue
			}
		}
		good++
	}
	return dead, good, nil
}

// Every relative link of the documents leads to an existing file and, if it
// names a heading, to a heading of that file.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../*.md")
	require.NoError(t, err)
	all := 0
	for _, name := range append(names, more...) {
		dead, good, err := deadLinks(name)
		require.NoError(t, err)
		for _, link := range dead {
			t.Errorf("%s: %s", filepath.Base(name), link)
		}
		all += good
	}
	require.Greater(t, all, 40)
}

// Dead links are noticed.
func TestDeadLinksAreSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	for name, text := range map[string]string{
		"a.md": "# One `two`: three!\n\n## Twice\n\n## Twice\n\n```sh\n# not a heading\n[x](no.md)\n```\n\n[a](#one-two-three) [b](#twice-1) [c](sub/b.md#über-uns_x) " +
			"[d](https://example.org/no.md) `[e](no.md)` [f](sub) ![g](sub/b.md \"title\")\n" +
			"[1](no.md) [2](#not-a-heading) [3](#twice-2) [4](sub/b.md#nowhere) [5](sub#x) [6](b.md)\n",
		"sub/b.md": "## Über uns_x\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	dead, good, err := deadLinks(filepath.Join(dir, "a.md"))
	require.NoError(t, err)
	require.Equal(t, 5, good)
	require.Equal(t, []string{
		"no.md: there is no such file", "#not-a-heading: there is no such heading", "#twice-2: there is no such heading",
		"sub/b.md#nowhere: there is no such heading", "sub#x: only a document has headings", "b.md: there is no such file",
	}, dead)
}

// Homebrew refuses a formula from a path: it must be in a tap.
func TestDocumentsInstallNoFormulaFromAPath(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, path := range append(paths, "../../README.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotRegexp(t, `brew install [^`+"`"+`\n]*\.rb`, string(text), path)
	}
}

// The quick start says in which program its SQL is typed: its other blocks are for the shell.
func TestQuickStartNamesPsqlBeforeItsSQL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/quickstart.md")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "\n```sql\n")
	require.Len(t, blocks, 4)
	for _, before := range blocks[:3] {
		paragraphs := strings.Split(strings.TrimSpace(regexp.MustCompile(`<!--.*-->`).ReplaceAllString(before, "")), "\n\n")
		require.Contains(t, paragraphs[len(paragraphs)-1], "psql")
	}
}

// What docs/producers.md promises, it or docs/workers.md explains.
func TestPromisedFunctionsAreExplained(t *testing.T) {
	t.Parallel()
	producers, err := os.ReadFile("../../docs/producers.md")
	require.NoError(t, err)
	workers, err := os.ReadFile("../../docs/workers.md")
	require.NoError(t, err)
	before, promise, found := strings.Cut(string(producers), "\n## What is stable\n")
	require.True(t, found)
	row := regexp.MustCompile(`(?m)^\| SQL functions of this page.*$`).FindString(promise)
	names := regexp.MustCompile("`(fn_[a-z_]+)`").FindAllStringSubmatch(row, -1)
	require.Greater(t, len(names), 14)
	for _, m := range names {
		require.Contains(t, before+string(workers), m[1]+"(", "explain how it is called")
	}
	for _, m := range regexp.MustCompile(`(fn_[a-z_]+)\(`).FindAllStringSubmatch(before, -1) {
		require.True(t, strings.Contains(row, "`"+m[1]+"`") || m[1] == "fn_job_cancel", "promise %s, or say that it is not", m[1])
	}
}
