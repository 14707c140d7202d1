package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// .ci/test.sh runs the tests that are built without the race detector also where the path has a space, and
// keeps settings of qtop and variables of libpq from tests.
func TestTheTestScript(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "a b")
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(tree, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o755))
	}
	for _, name := range []string{".ci/test.sh", ".ci/alone.sh", ".ci/testlog.awk"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		write(name, string(text))
	}
	write("go.mod", "module example.org/x\n")
	write("p/p.go", "package p\n")
	write("p/p_test.go", `//go:build !race

package p

import (
	"os"
	"testing"
)

func TestWithoutRace(t *testing.T) {
	for _, name := range []string{"QTOP_PROFILE", "PGOPTIONS", "DATABASE_URL", "QTOP_PG_BIN"} {
		t.Logf("%s=%s.", name, os.Getenv(name))
	}
	t.Fail()
}
`)
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(tree, ".ci/test.sh"), "./...")
	cmd.Env = append(ofADeveloper(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	for _, want := range []string{"--- FAIL: TestWithoutRace", "QTOP_PROFILE=.", "PGOPTIONS=.", "DATABASE_URL=.", "QTOP_PG_BIN=/kept.", "0 passed, 1 failed, 0 skipped"} {
		require.Contains(t, string(out), want)
	}
}

// ofADeveloper returns the environment with settings of qtop that are none of the tests', and without the
// variables of the command line of a make that runs them.
func ofADeveloper() (env []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "QTOP_") && !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "MFLAGS") {
			env = append(env, variable)
		}
	}
	return append(env, "QTOP_PROFILE=prod", "PGOPTIONS=-c statement_timeout=1", "DATABASE_URL=postgres://shop", "QTOP_PG_BIN=/kept")
}

// make lint, docs and tour read no settings and no configuration file of the user: they call a go that
// prints what it gets.
func TestScriptsReadNoSettings(t *testing.T) {
	t.Parallel()
	for _, target := range []string{".ci/lint.sh", ".ci/docs.sh", "make tour"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			argv := strings.Fields(target)
			if _, err := exec.LookPath("make"); err != nil && argv[0] == "make" {
				t.Skip("no make here")
			}
			source, tree := t.TempDir(), t.TempDir()
			write := func(name string, text []byte) {
				t.Helper()
				name = filepath.Join(source, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
				require.NoError(t, os.WriteFile(name, text, 0o755))
			}
			for _, name := range []string{".ci/lint.sh", ".ci/docs.sh", ".ci/alone.sh", ".ci/dependencies.sh", ".ci/dependencies.awk", "Makefile", "go.mod", "CONTRIBUTING.md"} {
				text, err := os.ReadFile(filepath.Join("..", "..", name))
				require.NoError(t, err)
				write(name, text)
			}
			write("bin/go", []byte(`#!/bin/sh
echo "$*: QTOP_PROFILE=$QTOP_PROFILE. PGOPTIONS=$PGOPTIONS. DATABASE_URL=$DATABASE_URL. QTOP_PG_BIN=$QTOP_PG_BIN." >>"$CALLS"
[ "$2" != -exec ] || $3 sh -c 'echo "./cmd/qtop reads $XDG_CONFIG_HOME" >>"$CALLS"'
`))
			for _, name := range []string{".ci/postgres.sh", ".ci/vuln.sh", "cmd/qtop/none"} {
				write(name, []byte("#!/bin/sh\n"))
			}
			// cp writes what is run: a file that this process has just written may be open in a process that another test starts.
			cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `cp -R "$0/." . && exec "$@"`, source}, argv...)...)
			cmd.Dir = tree
			calls := filepath.Join(tree, "calls")
			cmd.Env = append(ofADeveloper(), "PATH="+filepath.Join(tree, "bin")+":"+os.Getenv("PATH"), "CALLS="+calls, "XDG_CONFIG_HOME="+tree)
			out, _ := cmd.CombinedOutput() // lint fails where there is no gofmt
			said, err := os.ReadFile(calls)
			require.NoError(t, err, "%s", out)
			for line := range strings.Lines(string(said)) {
				if !strings.HasPrefix(line, "./cmd/qtop reads ") {
					require.Contains(t, line, ": QTOP_PROFILE=. PGOPTIONS=. DATABASE_URL=. QTOP_PG_BIN=/kept.")
					require.NotContains(t, line, "run ./cmd/qtop", "it would read the configuration file")
				}
			}
			require.Equal(t, queue.Choose(argv[0] == "make", 0, 3), strings.Count(string(said), "./cmd/qtop reads /nonexistent\n"), "%s", said)
		})
	}
}
