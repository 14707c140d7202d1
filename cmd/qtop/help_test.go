package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// allVerbs returns the verbs below cmd that do something.
func allVerbs(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range cmd.Commands() {
		if c.Runnable() && c.Example != "" || !c.HasSubCommands() {
			all = append(all, c)
		}
		all = append(all, allVerbs(c)...)
	}
	return all
}

// Every verb belongs to a group of the help and has an example. The verb
// accepts its example: without a database it fails only when it connects.
func TestExamplesAreTaken(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("QTOP_DSN", "postgres://nobody@127.0.0.1:1/none")
	root := commandLine(&app{})
	seen := 0
	for _, c := range root.Commands() {
		require.NotEmpty(t, c.GroupID, c.CommandPath())
	}
	for _, c := range allVerbs(root) {
		words, ok := queue.SplitWords(strings.TrimSpace(c.Example))
		require.True(t, ok, c.Example)
		require.True(t, strings.HasPrefix(strings.TrimSpace(c.Example)+" ", c.CommandPath()+" "), "the example of %s is %q", c.CommandPath(), c.Example)
		if slices.Contains([]string{"demo", "keys", "man", "worker"}, c.Name()) {
			continue // two of these verbs run until they are stopped, two need no database
		}
		if i := slices.Index(words, ">"); i >= 0 {
			words = words[:i]
		}
		// With --watch the verb would repeat for ever.
		words = slices.DeleteFunc(words, func(word string) bool { return word == "--watch" })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var out, errs bytes.Buffer
		code := run(ctx, words[1:], strings.NewReader(""), &out, &errs)
		cancel()
		want := 69
		switch c.CommandPath() {
		case "qtop help", "qtop version", "qtop config show", "qtop config check", "qtop migrate sql",
			"qtop completion bash", "qtop completion fish", "qtop completion powershell", "qtop completion zsh", "qtop profile add", "qtop profile list", "qtop profile use": // they need no database
			want = 0
		case "qtop doctor": // it reports the missing database as a finding
			want = 1
		}
		if code != want {
			t.Errorf("%s ends with %d, not %d: %s", strings.TrimSpace(c.Example), code, want, errs.String())
		}
		seen++
	}
	require.Greater(t, seen, 70)
}

// A flag that has no effect on a verb is not in its help and is refused. On
// verbs on which it has an effect, it is in the help and accepted.
func TestSettingsOnlyWhereTheyAct(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	said := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		return code, out.String() + errs.String()
	}
	for _, x := range []struct {
		verb, flag string
		acts       bool
	}{
		{"status", "refresh", true}, {"status", "loops", false}, {"ack", "refresh", false}, {"ack", "actor", true}, {"worker", "loops", true},
		{"worker", "theme", false}, {"demo", "theme", true}, {"demo", "dsn", false}, {"migrate up", "listen-dsn", true}, {"flag set", "listen-dsn", false},
		{"config show", "theme", true}, {"executor beat", "concurrency", false},
	} {
		words := strings.Fields(x.verb)
		for _, help := range [][]string{append(slices.Clone(words), "--help"), append([]string{"help"}, words...)} {
			code, text := said(help...)
			require.Zero(t, code, help)
			require.Equal(t, x.acts, strings.Contains(text, "--"+x.flag+" "), "%v and --%s:\n%s", help, x.flag, text)
		}
		_, text := said(append([]string{cobra.ShellCompNoDescRequestCmd}, append(words, "--")...)...)
		require.Equal(t, x.acts, strings.Contains(text, "--"+x.flag+"\n"), "completion of %s and --%s:\n%s", x.verb, x.flag, text)
	}
	code, text := said("status", "--loops", "x", "--dsn", "postgres://nobody@127.0.0.1:1/none")
	require.Equal(t, 2, code)
	require.Equal(t, "qtop: --loops has no effect on qtop status (command line): leave it out; see qtop status --help\n", text)
}

// help works with broken settings, and suggests a verb for a misspelt one.
func TestHelpVerb(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	require.NoError(t, os.MkdirAll(home+"/qtop", 0o700))
	require.NoError(t, os.WriteFile(home+"/qtop/config.yaml", []byte("nonsense: 1\n"), 0o600))
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"help"}, 0, "Look (these change nothing):"},
		{[]string{"help", "dlq", "show"}, 0, "qtop dlq show 4812"},
		{[]string{"help", "ack", "-o", "json"}, 0, `"verb":"qtop ack","group":"act"`},
		{[]string{"help", "-o", "xml"}, 2, `--output cannot be "xml" (command line): use table or json`},
		{[]string{"help", "ack", "--loops", "x"}, 2, "--loops has no effect on qtop help"},
		{[]string{"completion", "bash", "-o", "xml"}, 2, `--output cannot be "xml"`},
		{[]string{"completion", "bash", "--dsn", "service=x"}, 2, "--dsn has no effect on qtop completion bash"},
		{[]string{"completion", "bash", "--no-descriptions"}, 0, "complete"},
		{[]string{"help", "akc"}, 2, "there is no verb qtop akc (command line): did you mean ack?"},
		{[]string{"help", "executor", "regster"}, 2, "there is no verb qtop executor regster (command line): did you mean register?"},
		{[]string{"dlq", "shwo"}, 2, `unknown command "shwo" for "qtop dlq" (command line): did you mean show?`},
		{[]string{""}, 2, `unknown command "" for "qtop" (command line): see qtop --help`},
		{[]string{"dlq", "shwo", "84"}, 2, "qtop dlq does not take 2 arguments (command line): did you mean show?"},
		{[]string{"status", "-watch"}, 2, "unknown shorthand flag: 'w' in -watch (command line): did you mean --watch? see qtop status --help"},
		{[]string{"status", "-dsn=service=x"}, 2, "did you mean --dsn? see qtop status --help"},
		{[]string{"status", "-json"}, 2, "did you mean --output json? see qtop status --help"},
		{[]string{"dlq", "--lmit", "3"}, 2, "unknown flag: --lmit (command line): did you mean --limit? see qtop dlq --help"},
		{[]string{"ack", "--coment", "3"}, 2, "did you mean --comment?"},
		{[]string{"status", "--watch=maybe"}, 2, `--watch cannot be "maybe" (command line): use true or false`},
		{[]string{"dlq", "--limit", "many"}, 2, `--limit cannot be "many" (command line): use a whole number`},
		{[]string{"export", "jobs", "--limit", "99999999999999999999"}, 2, `--limit cannot be "99999999999999999999" (command line): use a smaller number`},
		{[]string{"status", "--json"}, 2, "unknown flag: --json (command line): did you mean --output json? see qtop status --help"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), x.args, strings.NewReader(""), &out, &errs)
		require.Equal(t, x.code, code, "%v: %s", x.args, errs.String())
		require.Contains(t, out.String()+errs.String(), x.want, x.args)
	}
}

// Where a question asks for yes, y is enough, and no other word counts as yes.
func TestYesIsY(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dsn := db.DSN(operator(t, db))
	for _, x := range []struct {
		typed string
		code  int
	}{{"n", 1}, {"", 1}, {"yess", 1}, {"Y", 0}} {
		s := open(t, dsn, "flag", "set", "webhook.worker.enabled", "false", "--reason", "r")
		s.until("Type yes to do it")
		_, err := s.tty.WriteString(x.typed + "\r")
		require.NoError(t, err)
		if x.code == 0 {
			s.until("webhook.worker.enabled set")
			require.NoError(t, <-s.exit)
		} else {
			s.exits(x.code)
		}
	}
	var value string
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT value FROM public.dot_config WHERE key = 'webhook.worker.enabled'").Scan(&value))
	require.Equal(t, "false", value)
}

// A command in a text of the program, the functions of the schema or the documents has only flags
// that its verb has: a remedy that is refused helps nobody.
func TestTextsNameFlagsThatExist(t *testing.T) {
	command := regexp.MustCompile("\\bqtop ([a-z][a-z-]+(?: [a-z][a-z-]+)?)([^`\"\n;(),]*)")
	flag := regexp.MustCompile(`--([a-z][a-z-]+)`)
	root := commandLine(&app{})
	seen := 0
	for _, folder := range []string{"cmd/qtop", "config", "docs", "pgclient", "tui", "views", "workerhost"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".md", ".sql"}, filepath.Ext(path)) ||
				strings.Contains(path, "/migrations/") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range command.FindAllStringSubmatch(string(text), -1) {
				verb, _, err := root.Find(strings.Fields(m[1]))
				if err != nil || verb == root || verb.HasSubCommands() && strings.HasPrefix(m[2], " %") {
					continue // prose, or the verb is not in the text
				}
				for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
					seen++
					verb.InitDefaultHelpFlag()
					if verb.Flags().Lookup(f[1]) == nil && verb.InheritedFlags().Lookup(f[1]) == nil {
						t.Errorf("%s: %q has no flag --%s", path, strings.TrimSpace(m[0]), f[1])
					}
				}
			}
			return nil
		}))
	}
	require.Greater(t, seen, 100)
}
