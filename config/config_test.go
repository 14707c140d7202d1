package config_test

// Tests of Load as a whole: precedence, origins, profiles, the mode of the file.

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/config"
)

// home writes a configuration file and returns the folder for Sources.ConfigHome.
func home(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "qtop"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "qtop", "config.yaml"), []byte(text), 0o600))
	return dir
}

func load(t *testing.T, src config.Sources) config.Settings {
	t.Helper()
	s, err := config.Load(withMachine(src))
	require.NoError(t, err)
	return s
}

// withMachine adds to src what System takes from the machine (host name and
// user), but not the configuration file of the person who runs the test.
func withMachine(src config.Sources) config.Sources {
	if src.Hostname == "" {
		src.Hostname = "db1"
	}
	if src.User == "" {
		src.User = "anna"
	}
	return src
}

// problems returns the lines of the error of a Load that must fail.
func problems(t *testing.T, src config.Sources) []string {
	t.Helper()
	_, err := config.Load(withMachine(src))
	require.Error(t, err)
	all, ok := config.AsProblems(err)
	require.True(t, ok)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(all), "each problem is one line")
	return lines
}

func origin(t *testing.T, s config.Settings, key string) config.Origin {
	t.Helper()
	for _, o := range s.Origins() {
		if o.Key == key {
			return o
		}
	}
	require.Fail(t, "no origin", key)
	return config.Origin{}
}

func TestDefaults(t *testing.T) {
	s := load(t, config.Sources{})
	require.Empty(t, s.DSN)
	require.Equal(t, time.Second, s.Refresh)
	require.Equal(t, 20*time.Second, s.Grace)
	require.Equal(t, "auto", s.Theme)
	require.Equal(t, "anna", s.Actor)
	require.Equal(t, "db1", s.HostID)
	require.Empty(t, s.Executor, "the host's id")
	require.Equal(t, 8, s.Delivery.PerEndpoint)
	require.Empty(t, s.Delivery.AllowNetworks)
	require.Empty(t, s.Loops)
	require.False(t, s.Mouse)
	require.False(t, s.ReadOnly)
	for _, o := range s.Origins() {
		require.Equal(t, "default", o.From, o.Key)
	}
	require.Len(t, s.Origins(), len(config.Keys()))
}

const layered = `
profile: prod
refresh: 4s
theme: light
read_only: true
dsn: service=top
profiles:
  prod:
    refresh: 3s
    dsn: service=prod
    production: true
  PROD-EU: {dsn: service=eu, refresh: 7s}
  2026: {dsn: service=year}
  empty:
`

func TestPrecedence(t *testing.T) {
	dir := home(t, layered)
	path := filepath.Join(dir, "qtop", "config.yaml")
	tests := []struct {
		name    string
		flags   map[string]string
		env     []string
		refresh time.Duration
		from    string
	}{
		{"profile over top", nil, nil, 3 * time.Second, "file " + path + `, profile "prod"`},
		{"env over profile", nil, []string{"QTOP_REFRESH=2s"}, 2 * time.Second, "env QTOP_REFRESH"},
		{"flag over env", map[string]string{"refresh": "1500ms"}, []string{"QTOP_REFRESH=2s"}, 1500 * time.Millisecond, "flag --refresh"},
		{"empty env is not set", nil, []string{"QTOP_REFRESH="}, 3 * time.Second, "file " + path + `, profile "prod"`},
		{"profile by env", nil, []string{"QTOP_PROFILE=PROD-EU"}, 7 * time.Second, "file " + path + `, profile "PROD-EU"`},
		{"profile by flag", map[string]string{"profile": "empty"}, []string{"QTOP_PROFILE=PROD-EU"}, 4 * time.Second, "file " + path},
		{"profile that looks like a number", map[string]string{"profile": "2026"}, nil, 4 * time.Second, "file " + path},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, config.Sources{Flags: tt.flags, Environ: tt.env, ConfigHome: dir})
			require.Equal(t, tt.refresh, s.Refresh)
			require.Equal(t, tt.from, origin(t, s, "refresh").From)
			require.Equal(t, "light", s.Theme, "the top level holds for every profile")
			require.True(t, s.ReadOnly)
		})
	}
	s := load(t, config.Sources{ConfigHome: dir})
	require.Equal(t, "prod", s.Profile)
	require.True(t, s.Production)
	require.Equal(t, "service=prod", s.DSN)
	s = load(t, config.Sources{ConfigHome: dir, Flags: map[string]string{"read-only": "false"}})
	require.False(t, s.ReadOnly, "a flag goes by its own name too and can switch off")
}

func TestDatabaseURLIsTheLastResort(t *testing.T) {
	env := []string{"DATABASE_URL=postgres://a:secret@h/db"}
	s := load(t, config.Sources{Environ: env})
	require.Equal(t, "postgres://a:secret@h/db", s.DSN)
	require.Equal(t, config.Origin{Key: "dsn", Value: "postgres://a:****@h/db", From: "env DATABASE_URL"}, origin(t, s, "dsn"))

	s = load(t, config.Sources{Environ: append(env, "QTOP_DSN=service=x")})
	require.Equal(t, "service=x", s.DSN)
	s = load(t, config.Sources{Environ: env, ConfigHome: home(t, "dsn: service=file")})
	require.Equal(t, "service=file", s.DSN)
	s = load(t, config.Sources{Environ: []string{"DATABASE_URL=mysql://x"}, Flags: map[string]string{"dsn": "service=flag"}})
	require.Equal(t, "service=flag", s.DSN, "another program's variable is no problem while it is not used")

	got := problems(t, config.Sources{Environ: []string{"DATABASE_URL=mysql://u:secret@x"}})
	require.Len(t, got, 1)
	require.Contains(t, got[0], "env DATABASE_URL")
	require.NotContains(t, got[0], "secret")
}

// A listen_dsn holds for the dsn of the same source: beside another database of a stronger source it
// would lead migrations and LISTEN to a database that nobody asked for.
func TestListenDSNBelongsToItsDSN(t *testing.T) {
	dir := home(t, `
dsn: service=pooler
listen_dsn: service=direct
profiles:
  prod: {dsn: service=prod}
  both: {dsn: service=both, listen_dsn: service=both-direct}
  listens: {listen_dsn: service=other-direct}
`)
	alone := home(t, "listen_dsn: service=direct")
	file := "file " + filepath.Join(dir, "qtop", "config.yaml")
	for _, tt := range []struct {
		name   string
		home   string
		flags  map[string]string
		env    []string
		listen string
		kept   string // the source of the dsn in the warning; "" = no warning
	}{
		{"one source", dir, nil, nil, "service=direct", ""},
		{"variable", dir, nil, []string{"QTOP_DSN=service=copy"}, "", "env QTOP_DSN"},
		{"flag", dir, map[string]string{"dsn": "service=copy"}, nil, "", "flag --dsn"},
		{"flag over variables", dir, map[string]string{"dsn": "service=copy"}, []string{"QTOP_DSN=service=a", "QTOP_LISTEN_DSN=service=b"}, "", "flag --dsn"},
		{"profile", dir, map[string]string{"profile": "prod"}, nil, "", file + `, profile "prod"`},
		{"profile with both", dir, map[string]string{"profile": "both"}, nil, "service=both-direct", ""},
		{"profile that listens", dir, map[string]string{"profile": "listens"}, nil, "service=other-direct", ""},
		{"both stronger", dir, map[string]string{"dsn": "service=copy", "listen_dsn": "service=copy-direct"}, nil, "service=copy-direct", ""},
		{"listen_dsn stronger still", dir, map[string]string{"listen_dsn": "service=l"}, []string{"QTOP_DSN=service=copy"}, "service=l", ""},
		{"same dsn again", dir, nil, []string{"QTOP_DSN=service=pooler"}, "service=direct", ""},
		{"file without dsn", alone, nil, []string{"QTOP_DSN=service=copy"}, "", "env QTOP_DSN"},
		{"DATABASE_URL", alone, nil, []string{"DATABASE_URL=postgres://h/copy"}, "", "env DATABASE_URL"},
		{"nothing names a dsn", alone, nil, nil, "service=direct", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, config.Sources{Flags: tt.flags, Environ: tt.env, ConfigHome: tt.home})
			require.Equal(t, tt.listen, s.ListenDSN)
			if tt.kept == "" {
				require.Empty(t, s.Warnings())
				return
			}
			require.Equal(t, config.Origin{Key: "listen_dsn", From: "default"}, origin(t, s, "listen_dsn"))
			require.Len(t, s.Warnings(), 1)
			require.Contains(t, s.Warnings()[0].What, "listen_dsn is not used: dsn comes from "+tt.kept)
		})
	}
}

func TestEverythingFromTheFile(t *testing.T) {
	s := load(t, config.Sources{ConfigHome: home(t, `
dsn: postgres://anna@db1:6432/queue
listen_dsn: host=db1 dbname=queue
actor: anna
ascii: true
mouse: on
clipboard: off
host_id: gw-7
executor: resizer
loops: [tick, wake]
concurrency: 200
grace: 5s
metrics_addr: ":9187"
handlers:
  - {kind: resize, command: [/usr/bin/resize, "-"]}
  - {kind: index, url: "https://kg.example/jobs", timeout: 90s}
  - {kind: export, url: "https://kg.example/export", timeout: 1d}
delivery:
  allow_networks: [10.0.0.0/8, "::1/128"]
  per_endpoint: 4
  secrets:
    - {ref: acme, from: "env:ACME_KEY"}
    - {ref: acme, from: "file:/etc/qtop/acme.old"}
`)})
	require.Equal(t, "postgres://anna@db1:6432/queue", s.DSN)
	require.Equal(t, "host=db1 dbname=queue", s.ListenDSN)
	require.True(t, s.ASCII)
	require.True(t, s.Mouse)
	require.False(t, s.Clipboard)
	require.Equal(t, "gw-7", s.HostID)
	require.Equal(t, "resizer", s.Executor)
	require.Equal(t, []string{"tick", "wake"}, s.Loops)
	require.Equal(t, 200, s.Concurrency)
	require.Equal(t, 5*time.Second, s.Grace)
	require.Equal(t, ":9187", s.MetricsAddr)
	require.Equal(t, []config.Handler{
		{Kind: "resize", Command: []string{"/usr/bin/resize", "-"}, Timeout: time.Hour},
		{Kind: "index", URL: "https://kg.example/jobs", Timeout: 90 * time.Second},
		{Kind: "export", URL: "https://kg.example/export", Timeout: 24 * time.Hour},
	}, s.Handlers)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, s.Delivery.AllowNetworks)
	require.Equal(t, 4, s.Delivery.PerEndpoint)
	require.Equal(t, []config.Secret{{Ref: "acme", Env: "ACME_KEY"}, {Ref: "acme", File: "/etc/qtop/acme.old"}}, s.Delivery.Secrets)
}

func TestListsFromTheEnvironment(t *testing.T) {
	s := load(t, config.Sources{Environ: []string{
		"QTOP_LOOPS=tick, wake",
		"QTOP_DELIVERY_ALLOW_NETWORKS=10.0.0.0/8,::1/128",
		"QTOP_DELIVERY_SECRETS=acme=env:ACME_KEY,new=file:/run/k=1",
		`QTOP_HANDLERS=[{"kind":"resize","command":["/usr/bin/resize"]}]`,
		"QTOP_PG_BIN=/x", "QTOP_PG_MIRROR=/y", "QTOP_OFFLINE=1", "QTOP_TEST_FULL=1", "HOME=/nowhere",
		"QTOP_JOB_ID=0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11", "QTOP_ROOT_JOB_ID=0190a6f0-7b1c-7c6e-9d5e-3f1f6a0c2b11", "QTOP_JOB_KIND=resize",
		"QTOP_JOB_DOMAIN=media", "QTOP_JOB_ATTEMPT=2", "QTOP_RUN=5",
	}})
	require.Empty(t, s.Warnings())
	require.Equal(t, []string{"tick", "wake"}, s.Loops)
	require.Len(t, s.Delivery.AllowNetworks, 2)
	require.Equal(t, []config.Secret{{Ref: "acme", Env: "ACME_KEY"}, {Ref: "new", File: "/run/k=1"}}, s.Delivery.Secrets)
	require.Equal(t, []config.Handler{{Kind: "resize", Command: []string{"/usr/bin/resize"}, Timeout: time.Hour}}, s.Handlers)
	require.Equal(t, "acme=env:ACME_KEY,new=file:/run/k=1", origin(t, s, "delivery.secrets").Value)
}

// Of a handler only the program or the host is shown: arguments, paths and queries may have tokens.
func TestTokensOfHandlersAreNotShown(t *testing.T) {
	s := load(t, config.Sources{Environ: []string{`QTOP_HANDLERS=[{"kind":"a","command":["/bin/a","--token","hush"]},
		{"kind":"b","url":"https://h.example:8443/in/hush?host=hush&user=hush"},{"kind":"c","url":"https://h.example/?port=hush"},{"kind":"d","url":"https://h.example"}]`}})
	require.Equal(t, `a → "/bin/a",b → https://h.example:8443/****,c → https://h.example/****,d → https://h.example`, origin(t, s, "handlers").Value)
}

func TestEveryProblemAtOnce(t *testing.T) {
	dir := home(t, "refresch: 2s\ntheme: pink\nprofiles: {prod: {grace: 20, delivery: {per_endpoints: 3}}}\n")
	got := problems(t, config.Sources{
		ConfigHome: dir,
		Flags:      map[string]string{"dsn": "postgres://anna:hunter2@h/db", "refresh": "1"},
		Environ:    []string{"QTOP_DNS=postgres://anna:hunter2@h", "QTOP_PROFILE=prud"},
	})
	path := "file " + filepath.Join(dir, "qtop", "config.yaml")
	require.Equal(t, []string{
		`a password in --dsn is refused: anyone on this machine can read it in the process list (flag --dsn): put it in ~/.pgpass, PGPASSWORD or QTOP_DSN and give the rest`,
		`refresh cannot be "1" (flag --refresh): use a time from 250ms to 1h with its unit, such as 500ms, 2s or 5m`,
		`unknown key "refresch" (` + path + `:1): did you mean refresh? else take it out`,
		`theme cannot be "pink" (` + path + `:2): use one of auto, dark, light, mono`,
		`unknown key "delivery.per_endpoints" (` + path + `:3, profile "prod"): did you mean delivery.per_endpoint? else take it out`,
		`grace must be a time with its unit, not a number (` + path + `:3, profile "prod"): use a time from 0s to 1h with its unit, such as 500ms, 2s or 5m`,
		`there is no profile "prud" (env QTOP_PROFILE): did you mean prod?`,
	}, got)
}

// A variable with an unknown name is only a warning: the settings are valid.
func TestUnknownVariablesWarn(t *testing.T) {
	s, err := config.Load(config.Sources{Environ: []string{"QTOP_DNS=postgres://anna:hunter2@h", "QTOP_TEST_X=1", "QTOP_REFRESH=2s"}, Hostname: "h", User: "anna"})
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, s.Refresh)
	require.Len(t, s.Warnings(), 1)
	require.Equal(t, `the environment has the unknown variable "QTOP_DNS" (env): did you mean QTOP_DSN? else unset it`, s.Warnings()[0].Error())

	s, err = config.Load(config.Sources{Environ: []string{"QTOP_NO_SUCH_THING=1"}, Hostname: "h", User: "anna"})
	require.NoError(t, err)
	require.Equal(t, `the environment has the unknown variable "QTOP_NO_SUCH_THING" (env): unset it; qtop config show lists them`, s.Warnings()[0].Error(), "no name is near")
}

func TestFileWithPasswordMustBePrivate(t *testing.T) {
	for _, text := range []string{
		"dsn: postgres://a:secret@h/db",
		"profiles: {other: {listen_dsn: host=h password=secret}}",
		"handlers: [{kind: k, url: 'https://a:secret@h/'}]",
	} {
		dir := home(t, text)
		load(t, config.Sources{ConfigHome: dir})
		path := filepath.Join(dir, "qtop", "config.yaml")
		for _, mode := range []os.FileMode{0o640, 0o604, 0o644} {
			require.NoError(t, os.Chmod(path, mode))
			got := problems(t, config.Sources{ConfigHome: dir})
			require.Len(t, got, 1)
			require.Contains(t, got[0], "chmod 600 "+path)
			require.NotContains(t, got[0], "secret")
		}
	}
	dir := home(t, "dsn: postgres://a@h/db")
	require.NoError(t, os.Chmod(filepath.Join(dir, "qtop", "config.yaml"), 0o644))
	load(t, config.Sources{ConfigHome: dir})
}

// A file of root may be read by the group of a service, which could not read it with the mode 0600.
func TestGroupMayReadAFileOfRootWithAPassword(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root has a file of root")
	}
	const nobody = 65534
	dir := home(t, "dsn: postgres://a:secret@h/db")
	path := filepath.Join(dir, "qtop", "config.yaml")
	for _, folder := range []string{filepath.Dir(dir), dir, filepath.Dir(path)} {
		require.NoError(t, os.Chmod(folder, 0o755)) //nolint:gosec // another user reads the file
	}
	require.NoError(t, os.Chown(path, 0, nobody))
	require.NoError(t, syscall.Setegid(nobody))
	require.NoError(t, syscall.Seteuid(nobody))
	as := func(mode os.FileMode, read func()) {
		require.NoError(t, syscall.Seteuid(0))
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, syscall.Seteuid(nobody))
		read()
	}
	defer func() {
		require.NoError(t, syscall.Seteuid(0))
		require.NoError(t, syscall.Setegid(0))
	}()
	as(0o640, func() { load(t, config.Sources{ConfigHome: dir}) })
	as(0o644, func() { require.Contains(t, problems(t, config.Sources{ConfigHome: dir})[0], "run chmod 640 "+path) })
}

func TestFilesThatAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"not YAML":      "a: [",
		"a list":        "- a\n- b\n",
		"a word":        "hunter2",
		"same key":      "dsn: service=a\ndsn: service=b\n",
		"two documents": "dsn: service=a\n---\ndsn: service=b\n",
		"huge":          "# " + strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			got := problems(t, config.Sources{ConfigHome: home(t, text), Flags: map[string]string{"profile": "p"}})
			require.Len(t, got, 1, "a broken file is one problem: %q", got)
			require.NotContains(t, got[0], "hunter2")
		})
	}
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "qtop", "config.yaml"), 0o755))
	require.Contains(t, problems(t, config.Sources{ConfigHome: dir})[0], "not a regular file")

	load(t, config.Sources{ConfigHome: home(t, "")})
	load(t, config.Sources{ConfigHome: home(t, "# all commented out\n---\ndelivery:\n  # per_endpoint: 3\nprofiles:\n")})
	require.Contains(t, problems(t, config.Sources{ConfigHome: home(t, "dsn:\n")})[0], "dsn has no value")
	require.Contains(t, problems(t, config.Sources{ConfigHome: home(t, "nonsense: {}\n")})[0], `unknown key "nonsense"`)
	require.Contains(t, problems(t, config.Sources{ConfigHome: home(t, "delivery: 3\n")})[0], `"delivery" is a number`)
	require.Contains(t, problems(t, config.Sources{ConfigHome: home(t, "delivery: {per_endpoint: 3}\ndelivery.per_endpoint: 4\n")})[0], "twice")
}

func TestConfigHome(t *testing.T) {
	dir := home(t, "actor: ben")
	require.Equal(t, "ben", load(t, config.Sources{Environ: []string{"XDG_CONFIG_HOME=" + dir}}).Actor)
	require.Equal(t, "anna", load(t, config.Sources{Environ: []string{"XDG_CONFIG_HOME=relative", "HOME=" + dir}}).Actor)
	require.NoError(t, os.Rename(filepath.Join(dir, "qtop"), filepath.Join(t.TempDir(), "away")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".config", "qtop"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".config", "qtop", "config.yaml"), []byte("actor: carl"), 0o600))
	require.Equal(t, "carl", load(t, config.Sources{Environ: []string{"HOME=" + dir}}).Actor)
}

func TestHostNameIsNeeded(t *testing.T) {
	_, err := config.Load(config.Sources{})
	require.ErrorContains(t, err, "host_id")
	_, err = config.Load(config.Sources{Environ: []string{"QTOP_HOST_ID=a"}})
	require.NoError(t, err)
}

func TestKeysAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range config.Keys() {
		require.NotEmpty(t, k.Help, k.Name)
		require.NotEmpty(t, k.Type, k.Name)
		require.False(t, seen[k.Flag] || seen[k.Env], "%s shares its flag or variable with another key", k.Name)
		seen[k.Flag], seen[k.Env] = true, true
	}
	for _, env := range []string{"QTOP_DSN", "QTOP_LISTEN_DSN", "QTOP_READ_ONLY", "QTOP_HOST_ID", "QTOP_DELIVERY_PER_ENDPOINT"} {
		require.True(t, seen[env], env)
	}
}

func TestSystem(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SUDO_USER", "anna")
	src := config.System(map[string]string{"refresh": "2s"})
	require.Equal(t, "anna", src.User)
	require.NotEmpty(t, src.Environ)
	s, err := config.Load(src)
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, s.Refresh)
}
