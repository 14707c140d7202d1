//go:build !race

package main

// These tests run every verb in this process, one after another, and
// TestEveryVerbSpeaksASCII does so under the race detector. .ci/test.sh runs
// these without it.

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every verb, with and without arguments: an answer is one JSON value whose
// keys are in snake case; a verb that fails or refuses writes one error with
// three parts. The keys and their types are those of keysFile: docs/json.md
// promises that no key is removed, renamed or given another type.
func TestEveryVerbSpeaksJSON(t *testing.T) {
	t.Parallel()
	f := furnish(t)
	dsn := f.db.DSN("")
	key := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	found := map[string]keyTypes{} // by verb
	answers, refusals := 0, 0
	bare := func(verb []string) []string { // the words of the verb, without arguments and flags
		return slices.DeleteFunc(slices.Clone(verb), func(word string) bool { return word == "1" || strings.HasPrefix(word, "--") })
	}
	own := "XDG_CONFIG_HOME=" + t.TempDir()
	try := func(args []string) {
		verb := strings.Join(bare(args), " ")
		words := slices.Clone(args)
		if verb == "profile add" || args[0] != "profile" {
			words = append(words, "--dsn", dsn)
		}
		var code int
		var out, errs string
		if args[0] == "profile" { // in a separate process, because these verbs change the configuration file
			code, out, errs = jsonProcess(t, own, words...)
		} else {
			code, out, errs = jsonRun(t, words...)
		}
		if out != "" {
			var v any
			require.NoError(t, json.Unmarshal([]byte(out), &v), "%v: %s", args, out)
			requireUnits(t, v, verb)
			if found[verb] == nil {
				found[verb] = keyTypes{}
			}
			found[verb].add(v, "")
			answers++
		}
		// Each skipped or failed item has a reason.
		partial := regexp.MustCompile(`"outcome":"(skipped|failed)"|[1-9][0-9]* attempted already`).MatchString(out)
		if code != 0 && !partial && args[0] != "doctor" && args[0] != "status" {
			requireError(t, errs, append(slices.Clone(args), out))
			refusals++
		}
	}
	done, lists, absent := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, x := range answering(f) {
		words := append(strings.Fields(x.verb), x.args...)
		if x.verb != "help" { // it reads no settings and refuses their flags
			words = append(words, "--dsn", dsn)
		}
		code, out, errs := jsonRun(t, words...)
		require.Equal(t, x.code, code, "%v: %s %s", words, out, errs)
		var v any
		require.NoError(t, json.Unmarshal([]byte(out), &v), "%v: %s %s", words, out, errs)
		fill(v, x.verb, lists)
		nulls(v, x.verb, absent)
		requireUnits(t, v, x.verb)
		if found[x.verb] == nil {
			found[x.verb] = keyTypes{}
		}
		found[x.verb].add(v, "")
		done[x.verb] = true
	}
	for path, filled := range lists {
		require.False(t, absent[path], "%s is a list in one answer and null in another", path)
		require.True(t, filled || slices.Contains(never, path), "%s is empty in every answer: put a row into furnish (furnished_test.go), or the path into never", path)
	}
	all := leaves(commandLine(&app{}), nil)
	for _, cmd := range allVerbs(commandLine(&app{})) {
		if cmd.HasSubCommands() { // a verb that prints a list and has subcommands
			all = append(all, strings.Fields(cmd.CommandPath())[1:])
		}
	}
	all = slices.DeleteFunc(all, func(verb []string) bool {
		return slices.Contains([]string{"worker", "completion", "migrate"}, verb[0]) // these run until stopped, print a script, or remove the schema
	})
	for _, verb := range all {
		name := strings.Join(bare(verb), " ")
		require.True(t, done[name] || verb[0] == "profile" || slices.Contains(grouping, name), "no command line of qtop %s: add one that is answered to answering in json_verbs_test.go (with an id from furnish), then go test ./cmd/qtop -run TestEveryVerbSpeaksJSON -update", name)
		try(verb) // with the word "1" for each argument
		if len(bare(verb)) < len(verb) {
			try(bare(verb))
		}
	}
	require.Greater(t, answers, 40)
	require.Greater(t, refusals, 40)
	answered := keyTypes{}
	for verb, paths := range found {
		for path, types := range paths {
			for part := range strings.SplitSeq(strings.ReplaceAll(path, "[]", ""), ".") {
				if part != "" {
					require.Regexp(t, key, part, verb)
				}
			}
			answered[verb+": "+path] = types
		}
	}
	requireKeys(t, answered)

	for _, args := range [][]string{
		{"dlq", "--limit", "x"}, {"dlq", "--no-such-flag"}, {"no-such-verb"}, {"dlq", "--filter", "cod:X"},
		{"ack", "no-such-executor", "--comment", "c", "--yes"}, {"flag", "set", "no.such.flag", "1", "--reason", "r", "--yes"},
		{"executor", "beat", "no-such-executor"}, {"migrate", "down"}, {"export", "no-such-list"},
	} {
		code, _, errs := jsonRun(t, append(args, "--dsn", dsn)...)
		require.NotZero(t, code, args)
		requireError(t, errs, args)
	}
	for _, verb := range append([]string{"profile", "migrate"}, grouping...) {
		code, out, errs := jsonRun(t, verb)
		require.Equal(t, 2, code, verb)
		require.Empty(t, out, verb)
		requireError(t, errs, []string{verb})
	}
	code, _, errs := jsonRun(t, "status", "--dsn", "postgres://nobody@127.0.0.1:1/none")
	require.Equal(t, 69, code)
	requireError(t, errs, []string{"status"})
}
