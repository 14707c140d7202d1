package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each incident of the runbook has the text that the screen shows, in the words
// of the views and the console, the keys to press, and a block of commands.
func TestRunbookHasTheWordsOfTheScreen(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	var screen strings.Builder
	for _, pattern := range []string{"../../views/*.go", "../../tui/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			if source, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, "_test.go") {
				screen.Write(source)
			}
		}
	}
	incidents := regexp.MustCompile(`(?m)^### \d+\. `).Split(string(text), -1)[1:]
	require.GreaterOrEqual(t, len(incidents), 20)
	words := 0
	for _, incident := range incidents {
		title, _, _ := strings.Cut(incident, "\n")
		shown := regexp.MustCompile(`(?s)\*\*The screen shows\*\* (.*?)\n\n`).FindStringSubmatch(incident)
		require.NotNil(t, shown, title)
		require.Contains(t, incident, "```sh\nqtop ", title)
		require.Contains(t, incident, "**Keys** ", title)
		for _, word := range regexp.MustCompile("`([A-Z ]+)`").FindAllStringSubmatch(shown[1], -1) {
			drawn := strings.Contains(screen.String(), `"`+word[1]+`"`) || strings.Contains(screen.String(), `"`+strings.ToLower(word[1])+`"`)
			require.True(t, drawn, "%s: no screen shows %s", title, word[1])
			words++
		}
	}
	require.Greater(t, words, 20)

	// Nor does a screen or qtop status show a word that the runbook lacks.
	status, err := os.ReadFile("status.go")
	require.NoError(t, err)
	screen.Write(status)
	found := 0
	for _, form := range []string{`label: "([A-Z][A-Z ]+)"`, `\{queue\.Alert\w+, "([A-Z ]+)"`, `queue\.Alert\w+: +\{"([A-Z]+(?: [A-Z]+)*)`} {
		for _, word := range regexp.MustCompile(form).FindAllStringSubmatch(screen.String(), -1) {
			require.Contains(t, string(text), word[1])
			found++
		}
	}
	require.Greater(t, found, 15)
	for _, state := range []string{"OFF", "INVALID", "OVERDUE"} {
		require.Contains(t, string(text), "`"+state+"`")
	}
}
