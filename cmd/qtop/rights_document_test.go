package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// docs/rights.md says what the code says, and names no verb that does not exist.
func TestRightsDocument(t *testing.T) {
	t.Parallel()
	schema, err := os.ReadFile("../../docs/schema.md")
	require.NoError(t, err)
	root := commandLine(&app{})
	text, err := rightsMarkdown(root, string(schema))
	require.NoError(t, err)
	document, err := os.ReadFile("../../docs/rights.md")
	require.NoError(t, err)
	require.Equal(t, string(document), text, "docs/rights.md is stale: run make docs")
	for verb := range verbRights {
		require.Contains(t, verbNames(root), verb)
	}
	_, err = rightsMarkdown(root, strings.ReplaceAll(string(schema), "*dead_letter_operator*", "*queue_viewer*"))
	require.ErrorContains(t, err, "does not grant")
}

// One role of docs/rights.md is enough for each verb, and without any role the verb is refused. The
// verbs that change something are run with --dry-run.
func TestRolesOfTheDocumentAreEnough(t *testing.T) {
	t.Parallel()
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: over two hundred verbs, each with its own login")
	}
	schema, err := os.ReadFile("../../docs/schema.md")
	require.NoError(t, err)
	f, granted, acts := furnish(t), functionRoles(string(schema)), map[string][]string{}
	for verb, a := range verbActions() {
		acts[verb], err = actionRoles(a, granted)
		require.NoError(t, err)
	}
	logins := map[string]string{"": pgtest.Login(t, f.db)}
	as := func(role string, x jsonVerb) (int, string) {
		if logins[role] == "" {
			logins[role] = pgtest.Login(t, f.db, role)
		}
		words := append(strings.Fields(x.verb), x.args...)
		if i := slices.Index(words, "--yes"); i >= 0 {
			words[i] = "--dry-run"
		}
		code, out, errs := jsonRun(t, append(words, "--dsn", f.db.DSN(logins[role]))...)
		return code, out + errs
	}
	tried := 0
	for _, x := range answering(f) {
		roles, other := acts[x.verb], verbRights[x.verb]
		switch {
		case x.verb == "help":
			continue
		case roles == nil && other == "":
			roles = []string{"queue_viewer"}
		case strings.Count(other, "`") == 2 && strings.HasPrefix(other, "`"):
			roles = []string{strings.Split(other, "`")[1]} // executor beat needs more: its executor is open to every member here
		}
		for _, role := range roles {
			code, said := as(role, x)
			require.NotEqual(t, 77, code, "%s %v as %s: %s", x.verb, x.args, role, said)
			tried++
		}
		anybody := strings.HasPrefix(other, anyLogin)
		if anybody || len(roles) > 0 {
			code, said := as("", x)
			require.Equal(t, anybody, code != 77, "%s %v without a role, exit code %d: %s", x.verb, x.args, code, said)
		}
	}
	require.Greater(t, tried, 90)
}
