package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the lists of this run")

// jsonRun runs a verb with --output json and returns its exit code, standard
// output and standard error.
func jsonRun(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code = run(ctx, append(args, "--output", "json"), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// jsonProcess does the same as jsonRun in a new process, which has one more
// environment variable.
func jsonProcess(t *testing.T, variable string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(built, "qtop"), append(args, "--output", "json")...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), variable), &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// requireError checks that the last line of errs is an error in the form of
// docs/json.md.
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

// With JSON lines, warnings are JSON as errors are.
func TestWarningsBesideJSONLines(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("QTOP_NO_SUCH_THING", "1")
	var out, errs bytes.Buffer
	require.Equal(t, 2, run(t.Context(), []string{"export", "flags", "-o", "jsonl", "--id", "z"}, strings.NewReader(""), &out, &errs))
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[0], `{"warning":{`), lines[0])
	require.True(t, strings.HasPrefix(lines[1], `{"error":{`), lines[1])
}
