// The directories of PostgreSQL's server programs on common systems.

package embedded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// candidate is a directory that may hold server programs.
type candidate struct {
	dir, origin string
	given       bool // named by the user: used or reported, never skipped
}

// usual are the program directories of packagers, as glob patterns.
func usual() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // PGDG RPM
		"/usr/lib64/pgsql/bin",                               // openSUSE, Slackware
		"/usr/lib/postgresql*/bin",                           // openSUSE per version
		"/usr/libexec/postgresql*",                           // Alpine
		"/usr/local/pgsql/bin",                               // built from source
		"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew, Apple silicon
		"/usr/local/opt/postgresql*/bin",                     // Homebrew, Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
		"/Library/PostgreSQL/*/bin",                          // EDB installer, macOS
		"/opt/PostgreSQL/*/bin",                              // EDB installer, Linux
		"/opt/local/lib/postgresql*/bin",                     // MacPorts
		"/run/current-system/sw/bin",                         // NixOS
		"/usr/local/lib/postgresql*/bin",                     // BSD ports
	}
}

// candidates returns the directories that may have programs, in the order in which Locate looks
// into them, each once.
func candidates() []candidate {
	if dir := os.Getenv("QTOP_PG_BIN"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		return []candidate{{dir: dir, origin: "QTOP_PG_BIN", given: true}}
	}
	var all []candidate
	seen := map[string]bool{}
	add := func(dir, origin string) {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err != nil {
			return
		}
		// The directory in PATH often has only links; the real directory has all programs.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(real), "initdb")); err == nil {
				dir = filepath.Dir(real)
			}
		}
		if !seen[dir] {
			seen[dir] = true
			all = append(all, candidate{dir: dir, origin: origin})
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			add(dir, "PATH")
		}
	}
	if dir := fromPgConfig(); dir != "" {
		add(dir, "pg_config")
	}
	for _, pattern := range usual() {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			add(dir, "installed")
		}
	}
	return all
}

func fromPgConfig() string {
	path, err := exec.LookPath("pg_config")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
