package config_test

// Whatever the environment or the file contains, Load returns settings or printable error lines,
// and none of them contains the password.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
)

// answers checks the settings and messages of one Load.
func answers(t *testing.T, src config.Sources) {
	t.Helper()
	s, err := config.Load(withMachine(src))
	if err != nil {
		all, ok := config.AsProblems(err)
		require.True(t, ok)
		require.NotEmpty(t, all)
		for _, p := range all {
			printable(t, p.Error())
			require.NotEmpty(t, p.What)
			require.NotEmpty(t, p.Where)
			require.NotEmpty(t, p.Do)
			require.NotContains(t, p.What, "internal")
			require.NotContains(t, p.Do, "bug")
		}
	}
	require.Len(t, s.Origins(), len(config.Keys()))
	for _, o := range s.Origins() {
		require.NotEmpty(t, o.From, o.Key)
		printable(t, o.Value)
		printable(t, o.From)
	}
}

func printable(t *testing.T, s string) {
	t.Helper()
	require.True(t, utf8.ValidString(s), "%q", s)
	for _, r := range s {
		require.True(t, unicode.IsPrint(r), "%U in %q", r, s)
	}
}

func FuzzEnviron(f *testing.F) {
	for _, seed := range []struct{ name, val string }{
		{"DSN", "postgres://a:b@h/db"}, {"DSN", "host=h password='x"}, {"LOOPS", "a,b"},
		{"HANDLERS", `[{"kind":"a","command":["b"]}]`}, {"HANDLERS", `[{"kind":1,"url":null}]`},
		{"DELIVERY_SECRETS", "a=env:B,c=file:/d"}, {"DELIVERY_ALLOW_NETWORKS", "::1/128, 10.0.0.0/8"},
		{"REFRESH", "1s"}, {"METRICS_ADDR", "[::1]:80"}, {"PROFILE", "x"}, {"NOSUCH\x1b[2J", "x\n"},
	} {
		f.Add(seed.name, seed.val)
	}
	f.Fuzz(func(t *testing.T, name, val string) {
		answers(t, config.Sources{Environ: []string{"QTOP_" + name + "=" + val, val, name}})
	})
}

// FuzzPassword checks that a password of any bytes, in its place in either form of a connection
// string, never appears in a message or a shown value.
func FuzzPassword(f *testing.F) {
	for _, seed := range []string{"plain", "with space", "a'b", `a\b`, "a@b/c?d#e", "a:b", "a&b=c", "a,b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		const mark = "QqZzQq"
		// A mark at both ends, so that a remaining part of the password is noticed.
		password := mark + raw + mark
		for _, dsn := range []string{
			"postgres://anna:" + password + "@h/db",
			"host=h password='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password) + "' dbname=d",
		} {
			src := config.Sources{Environ: []string{"QTOP_DSN=" + dsn}}
			answers(t, src)
			s, err := config.Load(withMachine(src))
			if err != nil {
				require.NotContains(t, err.Error(), mark)
			}
			require.NotContains(t, origin(t, s, "dsn").Value, mark, dsn)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add(layered)
	f.Add("profiles: {a: {profile: b}}\nprofile: a")
	f.Add("delivery: {secrets: [{ref: a, from: 'env:B'}]}")
	f.Add("handlers: [{kind: a, 1: 2}]")
	f.Add("dsn: !!binary aGVsbG8=\n? [a, b]\n: c")
	dir := f.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "qtop"), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "qtop", "config.yaml"), []byte(text), 0o600))
		answers(t, config.Sources{ConfigHome: dir})
	})
}
