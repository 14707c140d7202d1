package main

// A recognisable password (the canary) is put everywhere where a password can
// be given; the tests fail if any part of it is in the program's output.

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// The two halves of the canary. Between them the tests put characters at which
// a parser may split a password.
const (
	canaryHead = "Zk7wQ9xVbT3m"
	canaryTail = "Hy5rNc8dLp2g"
)

// seen returns six bytes of the canary that said contains, in upper or lower
// case; "" if it contains none. Six are enough, because a parser may print
// only a part of a password.
func seen(said string) string {
	said = strings.ToLower(said)
	for _, half := range []string{canaryHead, canaryTail} {
		half = strings.ToLower(half)
		for at := 0; at+6 <= len(half); at++ {
			if strings.Contains(said, half[at:at+6]) {
				return half[at : at+6]
			}
		}
	}
	return ""
}

// mutants makes connection strings, files and variables that contain a canary.
type mutants struct{ *rand.Rand }

func (m mutants) one(all ...string) string { return all[m.IntN(len(all))] }

// password returns the canary with awkward characters in it.
func (m mutants) password() string {
	special := []string{
		"", "@", ":", "/", "?", "#", "&", "=", "%", "%40", "%zz", "'", `"`, `\`, " ", ",", ";", "[", "]", "{", "}", "ü", "日本", "\t", "@/", "://", "?@",
		"#@h/", "\x7f", "$", "`", "*", "!", "|", ">", "- ", ": ", " #", "@h/db", "@h?a=b", "password=", "%3a",
	}
	s := canaryHead + m.one(special...) + canaryTail
	for range m.IntN(3) {
		s = m.one(special...) + s + m.one(special...)
	}
	return s
}

// dsn returns a connection string. The colon before the password and the @
// behind it are never edited: without them nobody can distinguish the password
// from a name.
func (m mutants) dsn() string {
	p := m.password()
	switch m.IntN(6) {
	case 0:
		return m.edit(m.one("postgres://u", "postgresql://me", "postgres://")) + ":" + p + "@" + m.edit("127.0.0.1:1/db?sslmode=disable")
	case 1:
		return "postgres://u:" + p + "@" + m.edit("h,g:5/db")
	case 2:
		return m.edit("postgres://127.0.0.1:1/db?") + m.one("password", "sslpassword", "pasword") + "=" + p + m.edit("&sslmode=nope&port=x")
	case 3:
		return m.edit("host=h ") + m.one("password=", "password = ", "PASSWORD=", "sslpassword=", "passwrd=") + p + m.edit(" port=x dbname=d")
	case 4:
		return m.edit("user=u ") + "password='" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(p) + m.edit("' host=127.0.0.1 port=1")
	}
	return m.one("u", "") + ":" + p + "@127.0.0.1"
}

// edit changes up to two bytes of s.
func (m mutants) edit(s string) string {
	b := []byte(s)
	for range m.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := m.IntN(len(b))
		switch m.IntN(4) {
		case 0:
			b = append(b[:at], b[at+1:]...)
		case 1:
			b[at] = "@:/?#%= '\"\\x,\n"[m.IntN(14)]
		case 2:
			b = append(b[:at], append([]byte{"@:/?#%= '\"\\x,\n"[m.IntN(14)]}, b[at:]...)...)
		default:
			b = append(b, b[at])
		}
	}
	return string(b)
}

// profile returns the text of a configuration file.
func (m mutants) profile() string {
	d := m.dsn()
	switch m.IntN(4) {
	case 0:
		d = strconv.Quote(d)
	case 1:
		d = "'" + strings.ReplaceAll(d, "'", "''") + "'"
	}
	key := m.one("dsn", "listen_dsn", "dns", "theme", "refresh", "handlers", "delivery", "actor: {x", "profile")
	if key == "actor: {x" { // broken YAML
		return m.edit("profile: p\nprofiles:\n  p: {actor: {dsn: ") + d + m.edit("}\n")
	}
	if key == "profile" { // no profile has this name
		return "profile: " + strconv.Quote(d) + m.edit("\nprofiles: {a: {dsn: service=x}}\n")
	}
	return m.edit("read_only: true\nprofile: p\nprofiles:\n  q:\n    read_only: false\n  p:\n    ") + key + ": " + d + m.edit("\n    ascii: true\n")
}

// service returns the text of a service file.
func (m mutants) service() string {
	return m.edit("[prod]\nhost=127.0.0.1\nport=1\nuser=u\n") + m.one("password=", "password = ", "sslpassword=", "pasword=") + m.password() + m.edit("\ndbname=d\nsslmode=x\n")
}

func (m mutants) pgpass() string {
	return m.edit("127.0.0.1:1:*:u:") + strings.ReplaceAll(m.password(), ":", `\:`) + m.edit("\n*:*:*:*:x\n")
}

// variable returns a PG or QTOP variable in which somebody put the text of
// another one.
func (m mutants) variable() string {
	return m.one("PGHOST", "PGSSLMODE", "PGPORT", "PGSERVICE", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS", "PGSSLROOTCERT", "DATABASE_URL",
		"QTOP_LISTEN_DSN", "QTOP_THEME", "QTOP_REFRESH", "QTOP_HANDLERS", "QTOP_DELIVERY_SECRETS", "QTOP_LOOPS", "QTOP_CONCURRENCY", "QTOP_METRICS_ADDR",
		"QTOP_PROFILE", "QTOP_DSM")
}

// saidOf returns all that the program prints about an environment and a
// configuration: problems, settings, and the error of the connection string.
func saidOf(environ []string, home string) (said string, fine int) {
	var b bytes.Buffer
	a := &app{writer: writer{out: &b, errs: secrecy.Writer{W: &b}, output: "table"}}
	secrecy.Learn(environ)
	err := a.read(config.Sources{Environ: environ, ConfigHome: home, Hostname: "h", User: "u"})
	a.exit(err)
	a.showConfig(true)
	for _, dsn := range []string{a.settings.DSN, a.settings.ListenDSN} {
		cc, err := pgpool.ParseDSN(dsn)
		a.exit(err)
		if err == nil {
			fine++
		}
		if err == nil { // the error of a driver that cannot reach the server
			a.exit(pgerror.Connect(fmt.Errorf("failed to connect to `user=%s database=%s`: hostname resolving error: lookup %s: no such host", cc.User, cc.Database, cc.Host)))
		}
		a.exit(pgerror.Connect(fmt.Errorf("parse %q: invalid port", dsn)))
	}
	return b.String(), fine
}

// TestCanaryInProcess: no part of a text in the place of a password, in any
// source, is ever printed.
func TestCanaryInProcess(t *testing.T) { //nolint:paralleltest // the driver reads the process's environment
	worlds, seed := 1_000, uint64(25) // a sample; the full run makes another one, a hundred times as large
	if os.Getenv("QTOP_TEST_FULL") != "" {
		worlds, seed = 100_000, rand.Uint64()
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, name := range []string{"PGHOST", "PGSSLMODE", "PGSERVICE", "PGPASSWORD", "PGSERVICEFILE", "PGPASSFILE", "PGPORT", "PGCONNECT_TIMEOUT", "PGTARGETSESSIONATTRS", "PGSSLROOTCERT", "PGUSER"} {
		t.Setenv(name, "") // restored at the end
	}
	t.Cleanup(secrecy.Forget)
	m := mutants{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // no secret
	told, refused := 0, 0
	for i := range worlds {
		secrecy.Forget()
		env := map[string]string{}
		home := ""
		switch i % 6 {
		case 0, 1:
			env["QTOP_DSN"] = m.dsn()
		case 2:
			home = filepath.Dir(filepath.Dir(write("home/qtop/config.yaml", m.profile())))
		case 3:
			env["PGSERVICEFILE"], env["QTOP_DSN"] = write("service", m.service()), "service="+m.one("prod", "none")
		case 4:
			env["PGPASSFILE"], env["QTOP_DSN"] = write("pass", m.pgpass()), m.one("postgres://u@127.0.0.1:1/d", "host=127.0.0.1 port=x")
			env["PGPASSWORD"] = m.one("", m.password())
		case 5:
			env[m.variable()] = m.dsn()
		}
		var environ []string
		for name, val := range env {
			if strings.ContainsRune(val, 0) {
				continue
			}
			environ = append(environ, name+"="+val)
			if strings.HasPrefix(name, "PG") {
				require.NoError(t, os.Setenv(name, val)) //nolint:usetesting // put back below; thousands of them
			}
		}
		said, fine := saidOf(environ, home)
		for name := range env {
			if strings.HasPrefix(name, "PG") {
				require.NoError(t, os.Unsetenv(name))
			}
		}
		if p := seen(said); p != "" {
			text, _ := os.ReadFile(filepath.Join(dir, "home/qtop/config.yaml"))
			t.Fatalf("seed %d, world %d says %q of the canary\n%q\n%s\nit said:\n%s", seed, i, p, environ, text, said)
		}
		if strings.Contains(said, "percent-encode") {
			told++
		}
		if fine < 2 {
			refused++
		}
	}
	t.Logf("%d worlds, %d refused, %d of them told to percent-encode", worlds, refused, told)
	require.Greater(t, told, worlds/20)
	require.Greater(t, worlds, refused, "some are fine")
}

// A panic prints no secret either.
func TestPanicIsMasked(t *testing.T) { //nolint:paralleltest // the secrets of this process
	t.Cleanup(secrecy.Forget)
	secrecy.Know(canaryHead)
	var errs bytes.Buffer
	code := run(t.Context(), []string{"version", "--dsn", "host=" + t.TempDir()}, strings.NewReader(""), panics{canaryHead}, &errs)
	require.Equal(t, exitPanic, code)
	require.Contains(t, errs.String(), "panic: ****")
	require.Empty(t, seen(errs.String()))
	errs.Reset()
	require.Equal(t, exitPanic, run(t.Context(), []string{"version", "--dsn", "host=" + t.TempDir()}, strings.NewReader(""), panics{"a\x1b]52;c;x\a\nb"}, &errs))
	require.Contains(t, errs.String(), "panic: a␛]52;c;x␇␊b\n", "it cannot control a terminal")
	require.NotContains(t, errs.String(), "\x1b")
}

type panics struct{ with string }

func (p panics) Write([]byte) (int, error) { panic(p.with) }

// leaves returns the words of every verb, with the arguments that it needs to
// get as far as the database.
func leaves(cmd *cobra.Command, words []string) [][]string {
	var all [][]string
	for _, c := range cmd.Commands() {
		own := append(append([]string(nil), words...), c.Name())
		if c.HasSubCommands() {
			all = append(all, leaves(c, own)...)
		} else if c.Name() != "demo" && c.Name() != "keys" && c.Name() != "man" {
			for word := range strings.FieldsSeq(c.Use) {
				if word == strings.ToUpper(word) && !strings.HasPrefix(word, "[") {
					own = append(own, "1")
				}
			}
			for flag, val := range map[string]string{"reason": "r", "comment": "c", "yes": "true"} {
				if c.Flags().Lookup(flag) != nil {
					own = append(own, "--"+flag+"="+val)
				}
			}
			all = append(all, own)
		}
	}
	return all
}

var _ io.Writer = panics{}
