package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/actions"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/tui"
)

// docs/guide.md has a row for each pane, and names each verb that looks or acts.
func TestGuideNamesEveryPaneAndVerb(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guide.md")
	require.NoError(t, err)
	for _, p := range tui.Panes() {
		require.Contains(t, string(text), "| `"+p.Keys+"` "+p.Title+" |", "add the pane to the table of panes of docs/guide.md")
	}
	_, section, _ := strings.Cut(string(text), "\n## Verbs\n")
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for _, code := range docCode.FindAllString(section, -1) { // `ops plan|run` names ops plan and ops run
		words := strings.Trim(code, "`")
		at := strings.LastIndex(words, " ") + 1
		for last := range strings.SplitSeq(words[at:], "|") {
			named[words[:at]+last] = true
		}
	}
	seen := 0
	for _, c := range allVerbs(commandLine(&app{})) {
		top := c
		for top.Parent().HasParent() {
			top = top.Parent()
		}
		if slices.Contains([]string{groupLook, groupAct}, top.GroupID) {
			name := strings.TrimPrefix(c.CommandPath(), "qtop ")
			require.True(t, named[name], "add the verb %s to the lists under Verbs in docs/guide.md", name)
			seen++
		}
	}
	require.Greater(t, seen, 70)
}

// The flags of an action that its registry entry does not declare are in no generated document:
// docs/guide.md has a paragraph with the verb and each of them.
func TestGuideNamesFlagsBesideTheRegistry(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guide.md")
	require.NoError(t, err)
	paragraphs := strings.Split(string(text), "\n\n")
	verbs, seen := allVerbs(commandLine(&app{})), 0
	for _, entry := range actions.Registry() {
		at := slices.IndexFunc(verbs, func(c *cobra.Command) bool { return c.CommandPath() == "qtop "+entry.Words })
		if more[entry.ID] == nil || at < 0 {
			continue
		}
		verbs[at].LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			declared := slices.ContainsFunc(entry.Args, func(a queue.Arg) bool { return a.Name == f.Name })
			if declared || slices.Contains([]string{"dry-run", "yes", "reason", "confirm", "filter", "all", "help"}, f.Name) {
				return
			}
			require.True(t, slices.ContainsFunc(paragraphs, func(p string) bool {
				return strings.Contains(p, entry.Words) && strings.Contains(p, "`--"+f.Name+"`")
			}), "name --%s of %s in docs/guide.md", f.Name, entry.Words)
			seen++
		})
	}
	require.Equal(t, 6, seen)
	require.NotContains(t, string(text), "`qtop requeue` has no rate")
}

// docs/guide.md has every code with which a host may end an attempt, so that a person who sees one finds
// what it means: those of the sources, and LEASE_LOST of the database.
func TestGuideExplainsTheCodesOfAttempts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/guide.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Codes of failed attempts\n")
	require.True(t, found)
	codes := []string{"LEASE_LOST", "LEASE_LOST_LIMIT", "HTTP_nnn", "EXIT_N"}
	for _, file := range []string{"../../workerhost/sender/codes.go", "../../workerhost/handler/outcome.go"} {
		source, err := os.ReadFile(file) //nolint:gosec // a file of this repository
		require.NoError(t, err)
		in := codeConstant.FindAllStringSubmatch(string(source), -1)
		require.Greater(t, len(in), 5, file)
		for _, m := range in {
			codes = append(codes, m[1])
		}
	}
	for _, code := range codes {
		require.Contains(t, section, "`"+code+"`", "add the code to the table of docs/guide.md")
	}
}

var codeConstant = regexp.MustCompile(`(?m)^\tCode\w+ *= "([A-Z_]+)"`)
