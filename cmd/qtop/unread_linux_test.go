package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// silent makes a file that no other process can open until the test ends.
func silent(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	pgtest.Silence(t, path)
	return path
}

// A file of the configuration or of the driver that cannot be opened is one line after 10 s, with the file and
// with what names it, and the exit code of a bad configuration.
func TestFilesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	const cannot, do = " cannot be read: its file system has not answered for 10 seconds", "repair that file system, or name another file"
	for name, x := range map[string]struct {
		full bool   // takes 20 s
		file string // the silent file
		env  func(dir, file string) []string
		args []string
		said func(file string) string
	}{
		"configuration": {file: "qtop/config.yaml", args: []string{"status"}, said: func(file string) string {
			return "qtop: the configuration file" + cannot + " (file " + file + "): repair that file system, or set XDG_CONFIG_HOME to another folder"
		}},
		"configuration to change": {full: true, file: "qtop/config.yaml", args: []string{"profile", "use", "prod"}, said: func(file string) string { // is read twice
			return "qtop: the configuration file cannot be changed: its file system has not answered for 10 seconds (file " + file + "): repair that file system, or set XDG_CONFIG_HOME to another folder"
		}},
		"passwords": {file: "pass", args: []string{"status"},
			env:  func(_, file string) []string { return []string{"PGPASSFILE=" + file} },
			said: func(file string) string { return "qtop: file " + file + cannot + " (env PGPASSFILE): " + do }},
		"passwords of the home folder": {file: ".pgpass", args: []string{"config", "check"},
			env:  func(dir, _ string) []string { return []string{"HOME=" + dir} },
			said: func(file string) string { return "qtop: file " + file + cannot + " (the default of PGPASSFILE): " + do }},
		"services": {file: "services", args: []string{"status"},
			env:  func(_, file string) []string { return []string{"PGSERVICEFILE=" + file} },
			said: func(file string) string { return "qtop: file " + file + cannot + " (env PGSERVICEFILE): " + do }},
		"passwords of a connection string": {file: "pass", args: []string{"status"},
			env: func(_, file string) []string { return []string{"QTOP_DSN=host=127.0.0.1 passfile=" + file} },
			said: func(string) string { // the path is masked, as every value behind pass…=
				return "qtop: file ****" + cannot + " (passfile of a connection string): " + do
			}},
		"certificates": {file: "root.crt", args: []string{"status"},
			env: func(_, file string) []string {
				return []string{"QTOP_DSN=host=127.0.0.1 sslmode=verify-full sslrootcert=" + file}
			},
			said: func(string) string {
				return "qtop: a password, service, key or certificate file of the connection" + cannot +
					" (dsn): repair that file system, or name other files: passfile, servicefile, sslkey, sslcert, sslrootcert, or the PG* variables"
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if x.full && os.Getenv("QTOP_TEST_FULL") == "" {
				t.Skip("full: waits twice for 10 s")
			}
			dir, err := os.MkdirTemp("", "q") //nolint:usetesting // a short path: pieces of a masked one are masked wherever they are
			require.NoError(t, err)
			defer os.RemoveAll(dir)
			file := silent(t, filepath.Join(dir, x.file))
			cmd := qtop(t, "host=127.0.0.1 port=1 sslmode=disable", x.args...)
			cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir)
			if x.env != nil {
				cmd.Env = append(cmd.Env, x.env(dir, file)...)
			}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			begin := time.Now()
			_ = cmd.Run()
			require.Equal(t, x.said(file)+"\n", errs.String())
			require.Equal(t, 78, cmd.ProcessState.ExitCode())
			require.Empty(t, out.String())
			require.Greater(t, time.Since(begin), 9*time.Second)
		})
	}
	t.Run("a verb without settings", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		cmd := qtop(t, "", "--help")
		cmd.Env = append(cmd.Env, "PGPASSFILE="+silent(t, filepath.Join(dir, "pass")), "PGSERVICEFILE="+silent(t, filepath.Join(dir, "services")))
		begin := time.Now()
		require.NoError(t, cmd.Run(), "needs no password")
		require.Less(t, time.Since(begin), 19*time.Second, "of several files one is waited for")
	})
}
