package config_test

// Single values: what each key accepts, and the message for everything else.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
)

func TestValuesRefused(t *testing.T) {
	tests := []struct{ key, raw, says string }{
		{"dsn", "just words", "neither a URL nor key=value"},
		{"dsn", "mysql://h/db", "scheme"},
		{"dsn", "host=h options='unclosed", "neither a URL nor key=value"},
		{"listen_dsn", "host=h\x1b]52;c;x\a", "unprintable character U+001B"},
		{"profile", " prod", "space"},
		{"actor", "an\u202ena", "U+202E"},
		{"actor", "\xff", "UTF-8"},
		{"actor", strings.Repeat("x", 201), "actor has more than 200 characters (flag --actor): shorten it"},
		{"read_only", "maybe", "use true or false"},
		{"read_only", "", "use true or false"},
		{"refresh", "2", "with its unit"},
		{"refresh", "1ms", "from 250ms"},
		{"refresh", "-1s", "from 250ms"},
		{"theme", "Dark", "auto, dark, light, mono"},
		{"concurrency", "0", "from 1 to"},
		{"concurrency", "1e3", "whole number"},
		{"concurrency", "99999999999999999999", "whole number"},
		{"loops", "tick,,wake", "entry 2 is empty"},
		{"loops", "tick,tick", "twice"},
		{"metrics_addr", "9187", "HOST:PORT"},
		{"metrics_addr", "h:99999", "port"},
		{"delivery.per_endpoint", "-1", "from 1 to"},
		{"delivery.allow_networks", "10.0.0.1", "write 10.0.0.1/32"},
		{"delivery.allow_networks", "10.0.0.1/8", "write 10.0.0.0/8"},
		{"delivery.allow_networks", "::ffff:10.0.0.0/104", "IPv4 network itself"},
		{"delivery.allow_networks", "localhost", "10.0.0.0/8"},
		{"delivery.secrets", "acme", "no ="},
		{"delivery.secrets", "acme=whsec_hunter2", "neither env: nor file:"},
		{"delivery.secrets", "acme=env:hunter2-x", "no environment variable"},
		{"delivery.secrets", "acme=file:hunter2", "not absolute"},
		{"delivery.secrets", "=env:A", "empty ref"},
		{"delivery.secrets", "a=env:A,a=env:A", "repeats an earlier entry"},
		{"handlers", "resize", "not JSON"},
		{"handlers", `{"kind":"a"}`, "must be a list"},
		{"handlers", `[] []`, "something after"},
		{"handlers", `[3]`, "entry 1 is a number"},
		{"handlers", `[{"kind":"a"}]`, "either command or url"},
		{"handlers", `[{"kind":"a","url":"http://h","command":["x"]}]`, "exactly one"},
		{"handlers", `[{"kind":"a","comand":["x"]}]`, "did you mean command?"},
		{"handlers", `[{"kind":"a","command":"resize -x"}]`, "list of the program"},
		{"handlers", `[{"kind":"a","command":[]}]`, "empty command"},
		{"handlers", `[{"kind":"a","command":["x"],"timeout":5}]`, "a timeout that must be a time with its unit"},
		{"handlers", `[{"kind":"a","command":["x"],"timeout":"0s"}]`, "from 1s to 1d"},
		{"handlers", `[{"kind":"a","command":["x",1]}]`, "in quotes"},
		{"handlers", `[{"kind":"a","url":"ftp://h"}]`, "https://"},
		{"handlers", `[{"command":["x"]}]`, "no kind"},
		{"handlers", `[{"kind":"a","command":["x"]},{"kind":"a","command":["y"]}]`, "again"},
		{"refreshh", "1s", "did you mean --refresh?"},
	}
	for _, tt := range tests {
		t.Run(tt.key+" "+tt.raw, func(t *testing.T) {
			got := problems(t, config.Sources{Flags: map[string]string{tt.key: tt.raw}})
			require.Len(t, got, 1)
			require.Contains(t, got[0], tt.says)
			require.NotContains(t, got[0], "hunter2", "what may be a secret stays unsaid")
			require.NotContains(t, got[0], "\x1b")
		})
	}
}

// A whole number is decimal in every source, also where YAML reads an octal one.
func TestWholeNumbersAreDecimal(t *testing.T) {
	for text, want := range map[string]int{"010": 10, "08": 8, "64": 64} {
		for source, src := range map[string]config.Sources{
			"flag": {Flags: map[string]string{"concurrency": text}}, "env": {Environ: []string{"QTOP_CONCURRENCY=" + text}},
			"file": {ConfigHome: home(t, "concurrency: "+text)},
		} {
			require.Equal(t, want, load(t, src).Concurrency, "%s %s", source, text)
		}
	}
}

// An empty flag, such as "$PROD_DSN" of a script that did not set it, does not let another source
// count: it is refused, unless it clears the setting.
func TestAnEmptyFlagIsRefused(t *testing.T) {
	clears := []string{"listen_dsn", "metrics_addr", "delivery.allow_networks", "delivery.allow_plain_http"}
	dir := home(t, `
profile: prod
loops: [tick]
metrics_addr: ":9187"
dsn: service=pooler
listen_dsn: service=direct
delivery: {allow_networks: [10.0.0.0/8], allow_plain_http: [10.0.0.0/8]}
profiles: {prod: {expect_server: [db1]}}
`)
	for _, k := range config.Keys() {
		src := config.Sources{ConfigHome: dir, Flags: map[string]string{k.Flag: ""}}
		if slices.Contains(clears, k.Name) {
			require.Empty(t, origin(t, load(t, src), k.Name).Value, k.Name)
			continue
		}
		got := problems(t, src)
		require.Len(t, got, 1, k.Name)
		require.Regexp(t, `^`+k.Name+` (is empty \(flag --`+k.Flag+`\): give it a value or leave it out$|cannot be "")`, got[0])
	}
	require.Equal(t, []string{"loops is empty (flag --loops): give it a value or leave it out"},
		problems(t, config.Sources{Flags: map[string]string{"loops": " "}}))
	require.Regexp(t, `^host_id is empty \(file .*\): give it a value or take the line out$`, problems(t, config.Sources{ConfigHome: home(t, "host_id: ''")})[0])
}

func TestPasswordInAFlagIsRefused(t *testing.T) {
	for _, dsn := range []string{
		"postgres://a:hunter2@h/db",
		"postgresql://a:hunter2@h1:5432,h2:5432/db?sslmode=require",
		"postgres://a:hun/ter2@h/db",
		"postgres://a:hun?ter2@h/db",
		"postgres://a:hun@ter2@h/db",
		"postgres:///db?host=/tmp&password=hunter2",
		"postgres:///db?host=/tmp&p%61ssword=hunter2",
		"host=h password=hunter2",
		"host=h PASSWORD = 'hunter2 \\' x' dbname=d",
		"host=h sslpassword=hunter2",
	} {
		for _, key := range []string{"dsn", "listen_dsn"} {
			got := problems(t, config.Sources{Flags: map[string]string{key: dsn}})
			require.Len(t, got, 1, dsn)
			require.Contains(t, got[0], "process list", dsn)
			require.NotContains(t, got[0], "ter2", dsn)
		}
		// From other sources than a flag the value is accepted, and never shown.
		s := load(t, config.Sources{Environ: []string{"QTOP_DSN=" + dsn}})
		require.Equal(t, dsn, s.DSN)
		require.NotContains(t, origin(t, s, "dsn").Value, "ter2", dsn)
		require.Contains(t, origin(t, s, "dsn").Value, "****", dsn)
	}
	for _, dsn := range []string{
		"service=prod", "host=/run/postgresql dbname=queue user=anna", "passfile=/x host=h",
		"postgres://anna@h:5432/db", "postgres://h1:5432,h2:5432/db?application_name=a@b",
		"postgres://[::1]:5432/db?application_name=a@b", "postgres:///db?host=/tmp&password=",
	} {
		s := load(t, config.Sources{Flags: map[string]string{"dsn": dsn}})
		require.Equal(t, dsn, s.DSN)
		require.Equal(t, dsn, origin(t, s, "dsn").Value)
	}
}

// A text of a handler that only looks like a password is a warning, in a flag and in a file that others
// may read: hosts of earlier releases start with it. What is only named there is no password.
func TestWhatMayBeAPassword(t *testing.T) {
	for text, want := range map[string]string{
		"PASSWORD=$(cat /run/secret) exec job":    "",
		`export PASSWORD="$SECRET"; exec job`:     "",
		"https://h:8443/@anna":                    "",
		"https://h:8443/@anna?user=a":             "",
		"PASSWORD=hunter2 exec job":               "may hold",
		"PASSWORD=$X psql 'host=h password=ter2'": "may hold",
		"psql postgres://u:hunter2@h/d":           "may hold",
		"/usr/bin/psql postgres://u:hunter2@h/d":  "may hold",
		"cd /srv && curl https://u:hunter2@h/":    "may hold",
		"PASSWORD='$hunter2' exec job":            "may hold",
		"curl https://h:8443/@anna":               "may hold",
		"host=h password=hunter2":                 "refused",
		"password=$hunter2":                       "refused",
		"postgres://u:hun/ter2@h/d":               "refused",
		"https://u:hunter2@h/jobs":                "refused",
		"https://h:8443/@anna?password=hunter2":   "refused",
	} {
		handlers, err := json.Marshal([]any{map[string]any{"kind": "k", "command": []string{"/bin/sh", "-c", text}}})
		require.NoError(t, err)
		dir := home(t, "handlers: "+string(handlers))
		require.NoError(t, os.Chmod(filepath.Join(dir, "qtop", "config.yaml"), 0o644))
		for source, src := range map[string]config.Sources{"flag": {Flags: map[string]string{"handlers": string(handlers)}}, "file": {ConfigHome: dir}} {
			s, err := config.Load(withMachine(src))
			if want == "refused" {
				require.Error(t, err, "%s: %s", source, text)
				require.NotContains(t, err.Error(), "ter2")
				continue
			}
			require.NoError(t, err, "%s: %s", source, text)
			require.Len(t, s.Handlers, 1)
			require.Len(t, s.Warnings(), min(len(want), 1), "%s: %s: %s", source, text, s.Warnings())
			if want != "" {
				require.Contains(t, s.Warnings()[0].Error(), want)
				require.NotContains(t, s.Warnings()[0].Error(), "ter2")
			}
		}
	}
}

// A value that YAML reads as a number, and that is not valid for the key, is reported as it was
// written.
func TestNumberInAFile(t *testing.T) {
	for raw, says := range map[string]string{
		"1e3": "concurrency cannot be 1000 (", "2.5": "concurrency cannot be 2.5 (", "99999999999999999999": "concurrency cannot be", "many": `concurrency cannot be "many" (`,
	} {
		lines := problems(t, config.Sources{ConfigHome: home(t, "concurrency: "+raw+"\n")})
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], says)
		require.Contains(t, lines[0], "use a whole number from 1 to 10000")
	}
}

// A name that YAML reads as a number or a date keeps its text, also as a key, behind an alias and in
// a merge; a number is still a number, and a switch is no name.
func TestNameThatLooksLikeANumber(t *testing.T) {
	for _, name := range []string{"010", "0123", "1.10", "10000000000000000001", "1e3", "0x1F", "1_000", "2026-11-26", "-0", "42"} {
		text := "host_id: " + name + "\nexecutor: &name " + name + "\nloops: [a, " + name + "]\nprofile: " + name + "\nconcurrency: 010\n" +
			"delivery:\n  secrets:\n    - {ref: " + name + ", from: env:A}\n" +
			"profiles:\n  other: &other\n    actor: " + name + "\n  " + name + ":\n    <<: *other\n    expect_server: [*name]\n"
		s := load(t, config.Sources{ConfigHome: home(t, text)})
		require.Equal(t, []string{name, name, name, name, name, name},
			[]string{s.HostID, s.Executor, s.Loops[1], s.Profile, s.Delivery.Secrets[0].Ref, s.Actor})
		require.Equal(t, []string{name}, s.ExpectServer)
		require.Equal(t, 10, s.Concurrency)
		require.Equal(t, name, origin(t, s, "host_id").Value)
	}
	for text, says := range map[string]string{
		"actor: true\n": "must be text, not a switch", "refresh: 2\n": "not a number", "read_only: 1\n": "not a number", "profiles: 010\n": "profiles is a number",
		"handlers:\n  - {kind: a, command: [x, 010]}\n": "has a number as word 2", "delivery: 010\n": "is a number",
		"profiles:\n  1.10: {}\n  \"1.10\": {}\n": `"1.10" is set twice, first in line 2`,
	} {
		lines := problems(t, config.Sources{ConfigHome: home(t, text)})
		require.Len(t, lines, 1, text)
		require.Contains(t, lines[0], says)
	}
}
