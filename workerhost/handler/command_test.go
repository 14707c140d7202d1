// Tests of commands as real processes: input, environment, end and output.
package handler_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost/handler"
)

func TestCommandOutcomes(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte{0, 1, 2}, 0o700))
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	for _, tt := range []struct {
		name      string
		argv      []string
		code      string
		text      string
		permanent bool
	}{
		{"done", sh("echo noise; exit 0"), "", "", false},
		{"done without reading", sh("exec 0<&-; exit 0"), "", "", false},
		{"exit code", sh("echo out; echo err >&2; echo out; exit 3"), "EXIT_3", "exit code 3: out\nerr\nout", false},
		{"silent", sh("exit 1"), "EXIT_1", "exit code 1", false},
		{"highest", sh("exit 255"), "EXIT_255", "exit code 255", false},
		{"usage", sh("echo what; exit 64"), "EXIT_64", "exit code 64: what", true},
		{"data", sh("exit 65"), "EXIT_65", "exit code 65", true},
		{"next to them", sh("exit 66"), "EXIT_66", "exit code 66", false},
		{"killed", sh("kill -KILL $$"), "SIGNAL_KILL", "ended by signal KILL", false},
		{"crash", sh("echo last words; kill -ABRT $$"), "SIGNAL_ABRT", "ended by signal ABRT: last words", false},
		{"not text", sh(`printf 'a\377\000b'; exit 1`), "EXIT_1", "exit code 1: a\ufffd\ufffdb", false},
		{"not a program", []string{garbage}, "START_FAILED", "fork/exec " + garbage + ": ", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, text, permanent := handler.Outcome(command(t, 0, tt.argv...).Handle(t.Context(), job()))
			if tt.code == "START_FAILED" {
				require.Contains(t, text, tt.text)
				text = tt.text
			}
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.text, text)
			require.Equal(t, tt.permanent, permanent)
		})
	}
}

func TestCommandGetsTheJobAsOneLine(t *testing.T) {
	t.Parallel()
	j := job()
	j.Payload = json.RawMessage(`{"n": 12345678901234567890.123456789, "t": "<a> & é"}`)
	want, err := j.JSON()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "stdin")
	require.NoError(t, command(t, 0, "sh", "-c", `cat >"$0"`, file).Handle(t.Context(), j))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want)+"\n", string(got))
}

func TestArgumentsReachTheCommandAsTheyAre(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "args")
	args := []string{
		file, "two words", `"double" 'single'`, "$(touch /nonexistent)", "`id`", "$HOME", "a;b|c&d>e<f", "line\nbreak\ttab", "",
		"*", "~", `back\slash`, "--", "é\u202e", "\xff",
	}
	require.NoError(t, command(t, 0, self(t, "args", args...)...).Handle(t.Context(), job()))
	args[len(args)-1] = "\ufffd" // the child reports its arguments as JSON, which cannot hold the original bytes
	require.Equal(t, args, readJSON[[]string](t, file))
}

// Not parallel, because the test changes the environment of this process.
func TestCommandSeesNoSecretOfTheHost(t *testing.T) {
	for name, value := range map[string]string{
		"PGPASSWORD": "secret", "DATABASE_URL": "postgres://u:secret@h/d", "QTOP_DSN": "secret", "QTOP_JOB_ID": "forged",
		"AWS_SECRET_ACCESS_KEY": "secret", "LANGUAGE": "secret", "PATHS": "secret",
		"PATH": os.Getenv("PATH"), "HOME": "/home/x", "LANG": "C", "LC_ALL": "C", "LC_TIME": "C", "TZ": "UTC", "TMPDIR": "/var/tmp",
	} {
		t.Setenv(name, value)
	}
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, command(t, 0, self(t, "env", file)...).Handle(t.Context(), job()))
	env := readJSON[[]string](t, file)
	if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "QTOP_RUN=") }); runtime.GOOS == "linux" {
		require.GreaterOrEqual(t, i, 0)
		env = slices.Delete(env, i, i+1)
	}
	require.ElementsMatch(t, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "LANG=C", "LC_ALL=C", "LC_TIME=C", "TZ=UTC", "TMPDIR=/var/tmp",
		"QTOP_JOB_ID=" + job().ID, "QTOP_ROOT_JOB_ID=" + job().RootID, "QTOP_JOB_KIND=resize", "QTOP_JOB_DOMAIN=media", "QTOP_JOB_ATTEMPT=2",
	}, env)
}

// Not parallel, because the test measures how much memory this process allocates.
func TestFloodCostsNoMemory(t *testing.T) {
	h := command(t, 0, "sh", "-c", "yes 0123456789 | head -c 220000000; echo the end >&2; exit 7")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	code, text, _ := handler.Outcome(h.Handle(t.Context(), job()))
	runtime.ReadMemStats(&after)
	require.Equal(t, "EXIT_7", code)
	require.True(t, strings.HasPrefix(text, "exit code 7: …"), text[:40])
	require.True(t, strings.HasSuffix(text, "0123456789\nthe end"), text[len(text)-40:])
	require.LessOrEqual(t, len(text), handler.MaxText)
	require.Greater(t, len(text), handler.MaxText-64)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
}

func TestOutputIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	// Blank lines at the end are removed, so that the kept text begins exactly where the kept
	// output begins.
	for _, blank := range []string{"0", "200"} {
		for _, end := range []string{"x", "xx", "xxx"} {
			const script = `yes € | head -n 4000 | tr -d '\n'; echo "$1"; yes '' | head -n "$2"; exit 1`
			_, text, _ := handler.Outcome(command(t, 0, "sh", "-c", script, "sh", end, blank).Handle(t.Context(), job()))
			require.NotContains(t, text, "\ufffd")
			require.LessOrEqual(t, len(text), handler.MaxText)
			require.True(t, strings.HasPrefix(text, "exit code 1: …€"), text[:40])
			require.True(t, strings.HasSuffix(text, "€"+end), text[len(text)-8:])
		}
	}
}

func TestJobThatIsNotRead(t *testing.T) {
	t.Parallel()
	j := job()
	j.Payload = json.RawMessage(`"` + strings.Repeat("x", 10<<20) + `"`)
	for _, tt := range []struct{ name, script, code string }{
		{"ends at once", "exit 0", ""},
		{"ends at once and fails", "exit 3", "EXIT_3"},
		{"reads a little", "head -c 10 >/dev/null; exit 0", ""},
		{"leaves it to a process that does not read", "sleep 300 >/dev/null 2>&1 <&0 & exit 0", ""},
		{"reads all", "cat >/dev/null; exit 0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := command(t, 100*time.Millisecond, "sh", "-c", tt.script)
			code, _, _ := handler.Outcome(within(t, func() error { return h.Handle(t.Context(), j) }))
			require.Equal(t, tt.code, code)
		})
	}
	t.Run("runs on", func(t *testing.T) {
		t.Parallel()
		p := newPresence(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-p.lines; cancel() }()
		h := command(t, 100*time.Millisecond, "sh", "-c", `exec 9>"$0"; echo up >&9; exec sleep 300`, p.path)
		code, _, _ := handler.Outcome(within(t, func() error { return h.Handle(ctx, j) }))
		require.Equal(t, handler.CodeStopped, code)
		p.none(t)
	})
}

func TestCommandThatCannotBe(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "run.sh")
	require.NoError(t, os.WriteFile(open, nil, 0o600))
	require.NoError(t, os.Chmod(open, 0o646)) //nolint:gosec // writable by everyone, which must be refused
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"none", nil, "the command is empty: name a program and its arguments"},
		{"empty", []string{""}, "the command is empty: name a program and its arguments"},
		{"unknown", []string{"qtop-no-such-program", "x"}, `command "qtop-no-such-program" cannot be run: executable file not found in $PATH: install it, or give its whole path`},
		{"a directory", []string{t.TempDir()}, "cannot be run: is a directory: install it"},
		{"one line for a shell", []string{"echo hello"}, `command "echo hello" cannot be run`},
		{"a script of everybody", []string{"sh", open}, `command "sh": others may write file ` + open + " (mode 0646): chmod go-w " + open},
		{"NUL", []string{"sh", "a\x00b"}, "the command holds a NUL byte"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := handler.Command(tt.argv, handler.CommandOptions{})
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, queue.KindConfig, queue.KindOf(err))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestCommandWithoutAJob(t *testing.T) {
	t.Parallel()
	j := job()
	j.Payload = json.RawMessage(`{"a": `)
	code, text, permanent := handler.Outcome(command(t, 0, "true").Handle(t.Context(), j))
	require.Equal(t, handler.CodeBadJob, code)
	require.Equal(t, "the payload is not JSON", text)
	require.True(t, permanent)
}
