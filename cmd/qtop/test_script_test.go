package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	for _, name := range []string{".ci/test.sh", ".ci/testlog.awk"} {
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
	for _, name := range []string{"QTOP_PROFILE", "PGOPTIONS", "QTOP_PG_BIN"} {
		t.Logf("%s=%s.", name, os.Getenv(name))
	}
	t.Fail()
}
`)
	cmd := exec.CommandContext(t.Context(), filepath.Join(tree, ".ci/test.sh"), "./...")
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "QTOP_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "QTOP_PROFILE=prod", "PGOPTIONS=-c statement_timeout=1", "QTOP_PG_BIN=/kept", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	for _, want := range []string{"--- FAIL: TestWithoutRace", "QTOP_PROFILE=.", "PGOPTIONS=.", "QTOP_PG_BIN=/kept.", "0 passed, 1 failed, 0 skipped"} {
		require.Contains(t, string(out), want)
	}
}
