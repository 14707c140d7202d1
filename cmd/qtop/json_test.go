package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// jsonRun is what a verb printed with --output json.
func jsonRun(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code = run(ctx, append(args, "--output", "json"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// requireError checks that the last line of errs is an error as docs/json.md has it.
func requireError(t *testing.T, errs string, args []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	var said struct {
		Error map[string]string `json:"error"`
	}
	last := lines[len(lines)-1]
	require.NoError(t, json.Unmarshal([]byte(last), &said), "%v: %q", args, errs)
	require.Len(t, said.Error, 3, "%v: %s", args, last)
	require.NotEmpty(t, said.Error["what"], "%v: %s", args, last)
	require.Contains(t, said.Error, "where", args)
	require.Contains(t, said.Error, "do", args)
}

// Every verb, with and without arguments: an answer is one JSON value whose keys are
// words in snake case; a verb that fails or refuses writes one error of three parts.
func TestEveryVerbSpeaksJSON(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	require.NoError(t, deadLetters(t.Context(), db.Conn(t, ""), 3, "HTTP_503"))
	dsn := db.DSN("")
	key := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	var keys func(v any, args []string)
	keys = func(v any, args []string) {
		switch v := v.(type) {
		case map[string]any:
			for k, member := range v {
				require.Regexp(t, key, k, args)
				if k != "payload" && k != "progress" && k != "before" && k != "after" && k != "last_result" { // stored JSON
					keys(member, args)
				}
			}
		case []any:
			for _, member := range v {
				keys(member, args)
			}
		}
	}
	answers, refusals := 0, 0
	try := func(args []string) {
		code, out, errs := jsonRun(t, append(slices.Clone(args), "--dsn", dsn)...)
		if out != "" {
			var v any
			require.NoError(t, json.Unmarshal([]byte(out), &v), "%v: %s", args, out)
			keys(v, args)
			answers++
		}
		partial := strings.Contains(out, `"outcome":"skipped"`) || strings.Contains(out, `"outcome":"failed"`) // each has its reason
		if code != 0 && !partial && args[0] != "doctor" && args[0] != "status" {
			requireError(t, errs, args)
			refusals++
		}
	}
	for _, verb := range leaves(commandLine(&app{}), nil) {
		if slices.Contains([]string{"worker", "completion", "migrate"}, verb[0]) {
			continue // they run on, print a script, remove the schema
		}
		try(verb) // as far as a word "1" for each argument gets
		try(slices.DeleteFunc(slices.Clone(verb), func(word string) bool { return word == "1" || strings.HasPrefix(word, "--") }))
	}
	require.Greater(t, answers, 40)
	require.Greater(t, refusals, 40)

	for _, args := range [][]string{
		{"dlq", "--limit", "x"}, {"dlq", "--no-such-flag"}, {"no-such-verb"}, {"dlq", "--filter", "cod:X"},
		{"ack", "no-such-executor", "--comment", "c", "--yes"}, {"flag", "set", "no.such.flag", "1", "--reason", "r", "--yes"},
		{"executor", "beat", "no-such-executor"}, {"migrate", "down"}, {"export", "no-such-list"},
	} {
		code, _, errs := jsonRun(t, append(args, "--dsn", dsn)...)
		require.NotZero(t, code, args)
		requireError(t, errs, args)
	}
	code, _, errs := jsonRun(t, "status", "--dsn", "postgres://nobody@127.0.0.1:1/none")
	require.Equal(t, 69, code)
	requireError(t, errs, []string{"status"})
}
