package main

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// asciiRun runs a verb with --ascii and returns its standard output and
// standard error.
func asciiRun(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var stdout, stderr bytes.Buffer
	run(ctx, append(args, "--ascii"), strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String()
}

func requireASCII(t *testing.T, text string, args []string) {
	t.Helper()
	require.NotRegexp(t, `[^\x00-\x7f]`, text, "%v", args)
}

// With --ascii the answers, refusals and help of every verb are ASCII, even if
// the data is not.
func TestEveryVerbSpeaksASCII(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	require.NoError(t, deadLetters(t.Context(), conn, 3, "HTTP_503"))
	require.NoError(t, deadJobs(t.Context(), conn, 3, "mail.render", "mail"))
	dsn := db.DSN("")
	out, errs := asciiRun(t, "mark", "Zoë → 監視 · 🚒 ≥ 3×", "--yes", "--dsn", dsn)
	require.Contains(t, out+errs, `Zo\u00eb -> \u76e3\u8996 - \ud83d\ude92 >= 3x`)

	root := commandLine(&app{})
	all := leaves(root, nil)
	for _, cmd := range allVerbs(root) {
		path := strings.Fields(cmd.CommandPath())[1:]
		out, errs := asciiRun(t, append(path, "--help")...)
		requireASCII(t, out+errs, path)
		require.NotEmpty(t, out, path)
		if cmd.HasSubCommands() {
			all = append(all, path)
		}
	}
	all = slices.DeleteFunc(all, func(verb []string) bool {
		return slices.Contains([]string{"worker", "completion", "migrate", "profile", "export"}, verb[0]) // they run on, print a script, change the schema or files, or print data
	})
	all = append(all, []string{"migrate", "status"}, []string{"no-such-verb"}, []string{"dlq", "--no-such-flag"}, []string{"dlq", "--filter", "code=“X”"})
	answers := 0
	for _, verb := range all {
		out, errs := asciiRun(t, append(slices.Clone(verb), "--dsn", dsn)...)
		requireASCII(t, out+errs, verb)
		if out != "" {
			answers++
		}
	}
	require.Greater(t, answers, 30)
	out, _ = asciiRun(t, "audit", "--dsn", dsn)
	require.Contains(t, out, `Zo\u00eb`)

	out, _ = asciiRun(t, "audit", "--dsn", dsn, "--output", "json")
	require.Contains(t, out, "Zoë → 監視 · 🚒 ≥ 3×", "JSON is data")
	out, errs = asciiRun(t, "export", "audit", "--dsn", dsn)
	require.Contains(t, out, "Zoë → 監視 · 🚒 ≥ 3×", "CSV is data")
	requireASCII(t, errs, []string{"export"})
	out, _ = asciiRun(t, "migrate", "sql")
	require.Regexp(t, `[^\x00-\x7f]`, out, "SQL is for a program")
}

// If neither the environment nor a flag asks for ASCII, the locale decides.
func TestLocaleAsksForASCII(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, errs := asciiRun(t, "mark", "Zoë", "--yes", "--dsn", db.DSN(""))
	require.Empty(t, errs)
	for _, c := range []struct {
		env, flag string
		ascii     bool
	}{
		{"LC_ALL=C", "", true}, {"LC_ALL=POSIX", "", true}, {"LC_ALL=en_US.ISO-8859-1", "", true}, {"LC_ALL=de_DE.ISO-8859-15@euro", "", true},
		{"LC_ALL=C.UTF-8", "", false}, {"LC_ALL=de_DE.utf8", "", false}, {"LC_ALL=en_US", "", false},
		{"LC_ALL= LC_CTYPE= LANG=", "", false}, {"LC_ALL= LC_CTYPE= LANG=C", "", true}, {"LC_ALL= LC_CTYPE=C.UTF-8 LANG=C", "", false},
		{"LC_ALL=C LC_CTYPE=C.UTF-8 LANG=C.UTF-8", "", true},
		{"LC_ALL=C", "--ascii=false", false}, {"LC_ALL=C QTOP_ASCII=false", "", false}, {"LC_ALL=C.UTF-8 QTOP_ASCII=on", "", true},
	} {
		args := []string{"audit", "--dsn", db.DSN("")}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(built, "qtop"), args...)
		cmd.Env = append([]string{"HOME=" + t.TempDir(), "QTOP_ACTOR=anna"}, strings.Fields(c.env)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), queue.Choose(c.ascii, `Zo\u00eb`, "Zoë"), "%v", c)

		cmd = exec.CommandContext(t.Context(), filepath.Join(built, "qtop"), strings.Fields("dlq --filter é: "+c.flag)...)
		cmd.Env = append([]string{"HOME=" + t.TempDir()}, strings.Fields(c.env)...)
		out, err = cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, !c.ascii, strings.Contains(string(out), "é"), "%v: %s", c, out)
	}
}

// In a locale that is not UTF-8 the console draws in ASCII also: panes, help,
// the form and the preview of an action.
func TestConsoleInALocaleWithoutUTF8(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	require.NoError(t, deadLetters(t.Context(), db.Conn(t, ""), 2, "HTTP_503"))
	cmd := qtop(t, db.DSN(operator(t, db)))
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	s := onScreen(t, 80, 24, cmd)
	s.until("NO HOST")
	s.keys("?")
	s.until("esc closes")
	s.keys("\x1b")
	s.gone("esc closes")
	s.keys("5")
	s.until("http_503.example")
	s.keys("R")
	s.until("Reason")
	s.quiet()
	s.keys("Zoë asks", enter)
	s.until("Keep")
	s.keys("\x1b")
	s.gone("Keep")
	s.keys("q")
	s.ends()
	requireASCII(t, string(s.raw.b), []string{"console"})
}

// A reload changes whether text is ASCII while the loops of a host log (the race detector watches).
func TestReloadWhileLoopsLog(t *testing.T) {
	t.Parallel()
	a := &app{}
	a.errs = asciiWriter{W: io.Discard, on: a.saysASCII}
	var logging sync.WaitGroup
	logging.Go(func() {
		log := hostLog(a.errs)
		for range 100 {
			log.Info("é")
		}
	})
	for i := range 100 {
		require.NoError(t, a.read(config.Sources{Hostname: "h", User: "u", Flags: map[string]string{"ascii": strconv.FormatBool(i%2 == 0)}}))
	}
	logging.Wait()
}
