package main

// Tests that let other users change or read each file that decides what runs,
// and check what the program reports.

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestFilesOpenToOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // the usual mode of folders
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	bin := write("bin/resize", 0o755, "#!/bin/sh\n")
	script := write("scripts/run.sh", 0o644, "exit 0\n")
	rules := write("rules/all", 0o644, "")
	secret := write("secrets/acme", 0o600, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	file := write("home/qtop/config.yaml", 0o600, fmt.Sprintf(
		"handlers: [{kind: k, command: [%s]}, {kind: script, command: [/bin/sh, %s, job, '--rules=%s']}]\ndelivery: {secrets: [{ref: acme, from: 'file:%s'}]}\n",
		bin, script, rules, secret))
	service := write("service", 0o600, "[prod]\nhost=h\npassword=x1234\n")
	pass := write("pass", 0o600, "*:*:*:*:x1234\n")
	key := write("key.pem", 0o600, "x")
	check := func() (string, int) {
		cmd := qtop(t, "host=127.0.0.1 sslmode=disable sslkey="+key, "config", "check")
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+filepath.Join(dir, "home"), "PGSERVICEFILE="+service, "PGPASSFILE="+pass)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run()
		return out.String(), cmd.ProcessState.ExitCode()
	}
	said, code := check()
	require.Equal(t, "the configuration is fine\n", said)
	require.Zero(t, code)
	require.NoError(t, os.Chmod(bin, 0o644))
	said, code = check()
	require.Contains(t, said, fmt.Sprintf("command %q cannot be run: permission denied (handlers, entry 1, kind k)", bin))
	require.Equal(t, 78, code)
	require.NoError(t, os.Rename(bin, bin+"-away"))
	said, code = check()
	require.Contains(t, said, fmt.Sprintf("command %q cannot be run: stat %s: no such file or directory (handlers, entry 1, kind k)", bin, bin))
	require.Equal(t, 78, code)
	require.NoError(t, os.Rename(bin+"-away", bin))
	require.NoError(t, os.Chmod(bin, 0o755))
	for _, c := range []struct {
		path      string
		mode, was fs.FileMode
		code      int
		use, do   string
	}{
		{file, 0o602, 0o600, 78, "configuration file", "chmod go-w " + file},
		{file, 0o620, 0o600, 0, "configuration file", "chmod go-w " + file},
		{filepath.Dir(file), 0o777, 0o755, 78, "configuration file", "chmod go-w " + filepath.Dir(file)},
		{bin, 0o757, 0o755, 78, "handler of k", "chmod go-w " + bin},
		{bin, 0o775, 0o755, 0, "handler of k", "chmod go-w " + bin},
		{filepath.Dir(bin), 0o777, 0o755, 78, "handler of k", "chmod go-w " + filepath.Dir(bin)},
		{script, 0o646, 0o644, 78, "handler of script", "chmod go-w " + script},
		{script, 0o664, 0o644, 0, "handler of script", "chmod go-w " + script},
		{filepath.Dir(script), 0o777, 0o755, 78, "handler of script", "chmod go-w " + filepath.Dir(script)},
		{rules, 0o646, 0o644, 78, "handler of script", "chmod go-w " + rules},
		{secret, 0o644, 0o600, 78, "secret acme", "chmod 600 " + secret},
		{service, 0o644, 0o600, 78, "service file", "chmod 600 " + service},
		{pass, 0o640, 0o600, 78, "password file", "chmod 600 " + pass},
		{key, 0o604, 0o600, 78, "sslkey", "chmod 600 " + key},
	} {
		require.NoError(t, os.Chmod(c.path, c.mode))
		said, code := check()
		require.Equal(t, c.code, code, "%s %o: %s", c.path, c.mode, said)
		require.Contains(t, said, "("+c.use+")")
		require.Contains(t, said, c.do+"\n")
		require.NoError(t, os.Chmod(c.path, c.was))
	}
	// a link to a file in a folder that everybody writes
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Rename(bin, filepath.Join(open, "resize")))
	require.NoError(t, os.Symlink(filepath.Join(open, "resize"), bin))
	require.NoError(t, os.Chmod(open, 0o777)) //nolint:gosec // the fault that the test makes
	said, code = check()
	require.Equal(t, 78, code)
	require.Contains(t, said, "others may write folder "+open)
}

// A file that the connection needs and that is not there is found by config check, before a host
// is started, and named with the reason; a secret file that is not there is a warning, since it
// may come.
func TestConfigCheckReadsTheFilesOfTheConnection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, secret := filepath.Join(dir, "db-ca.pem"), filepath.Join(dir, "acme")
	check := func(dsn, listen string) (string, int) {
		cmd := qtop(t, dsn, "config", "check", "--delivery-secrets", "acme=file:"+secret)
		cmd.Env = append(cmd.Env, "QTOP_LISTEN_DSN="+listen)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	missing := "a file of the connection string cannot be read: " + ca + ": no such file or directory (dsn)"
	for _, dsn := range []string{"host=db.example sslrootcert=" + ca, "postgres://anna@db.example/app?sslrootcert=" + ca} {
		said, code := check(dsn, "")
		require.Contains(t, said, missing)
		require.Equal(t, 78, code)
		said, code = check("host=db.example", dsn)
		require.Contains(t, said, missing, "listen_dsn")
		require.Equal(t, 78, code)
	}
	said, code := check("host=127.0.0.1 sslmode=verify-ca sslrootcert='"+ca+" "+canaryHead+"'", "")
	require.Empty(t, seen(said), said)
	require.Equal(t, 78, code)
	said, code = check("host=db.example", "")
	require.Zero(t, code, said)
	require.Contains(t, said, `warning: secret_ref "acme": file `+secret+" does not exist: ")
	require.NoError(t, os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600))
	said, _ = check("host=db.example", "")
	require.Equal(t, "the configuration is fine\n", said)
}

// What a worker host refuses in its settings when it starts, config check finds before, all at once:
// one line for each.
func TestConfigCheckRefusesWhatAHostRefuses(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://nobody@127.0.0.1:1/none"
	for _, x := range []struct {
		env  []string
		says []string
	}{
		{[]string{"QTOP_LOOPS=webhok_worker,job_exector"}, []string{"there is no loop webhok_worker (loops)", "there is no loop job_exector (loops)"}},
		{[]string{`QTOP_HANDLERS=[{"kind":"webhook_router","command":["/bin/true"]},{"kind":"lease_reaper","command":["/bin/true"]}]`},
			[]string{"this job kind is built in (handlers, kind lease_reaper)", "this job kind is built in (handlers, kind webhook_router)"}},
		{[]string{"QTOP_HOST_ID=" + strings.Repeat("x", 192), "QTOP_LOOPS=nothing"}, []string{"the host id has 192 characters (host_id)", "there is no loop nothing"}},
		{[]string{"QTOP_DELIVERY_SECRETS=acme 2026=env:X,süd=env:X,whsec_abc=env:X"},
			[]string{`this is no ref of a secret (delivery.secrets, entry 1, ref "acme 2026")`, "entry 2", "entry 3, ref (a secret, not a reference)"}},
		{[]string{`QTOP_HANDLERS=[{"kind":"a","command":["/no/such/program"]}]`, "QTOP_DELIVERY_SECRETS=a b=env:X"}, []string{"handlers, entry 1, kind a", "delivery.secrets, entry 1"}},
	} {
		for _, verb := range [][]string{{"config", "check"}, {"worker"}} {
			cmd := qtop(t, dsn, verb...)
			cmd.Env = append(cmd.Env, x.env...)
			out, _ := cmd.CombinedOutput()
			require.Equal(t, 78, cmd.ProcessState.ExitCode(), "%v %v: %s", verb, x.env, out)
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.Len(t, lines, len(x.says), "%v: %s", verb, out)
			for i, want := range x.says {
				require.Contains(t, lines[i], want, verb)
			}
		}
	}
}

// Mistakes of every kind are found in one run, and a command that others may write counts once.
func TestConfigCheckFindsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bin, ca := filepath.Join(dir, "resize"), filepath.Join(dir, "db-ca.pem")
	require.NoError(t, os.WriteFile(bin, nil, 0o700)) //nolint:gosec // it is a program
	require.NoError(t, os.Chmod(bin, 0o777))          //nolint:gosec // the fault that the test makes
	cmd := qtop(t, "host=db.example sslrootcert="+ca, "config", "check", "--loops", "job_executor,nothing")
	cmd.Env = append(cmd.Env, `QTOP_HANDLERS=[{"kind":"a","command":["/no/such/program"]},{"kind":"b","command":["`+bin+`"]}]`)
	out, _ := cmd.CombinedOutput()
	require.Equal(t, 78, cmd.ProcessState.ExitCode())
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 4, "%s", out)
	for i, want := range []string{"run chmod go-w " + bin, "kind a", "there is no loop nothing", ca} {
		require.Contains(t, lines[i], want)
	}
}

// A service file that is a pipe does not stop a verb.
func TestServiceFileThatIsAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	cmd := qtop(t, "host=db.example", "config", "check")
	cmd.Env = append(cmd.Env, "PGSERVICEFILE="+pipe)
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	require.NoError(t, cmd.Wait())
}

// The doctor names the subscriptions that hosts cannot sign, and what is wrong
// with the secrets on this machine.
func TestDoctorNamesSigning(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), `INSERT INTO public.queue_host (host_id, instance, version, loops, progress) VALUES
		('a', gen_random_uuid(), '', '{webhook_worker}', '{"webhook_worker": {"unsigned": [{"subscription": 7, "what": "file /x has mode 0644", "do": "chmod 600 /x"}]}}'),
		('b', gen_random_uuid(), '', '{webhook_worker}', '{"webhook_worker": {"unsigned": [7, {"subscription": "x"}, {}]}}')`)
	require.NoError(t, err)
	cmd := qtop(t, db.DSN(operator(t, db)), "doctor")
	cmd.Env = append(cmd.Env, "QTOP_DELIVERY_SECRETS=acme=env:QTOP_TEST_NONE,short=env:QTOP_TEST_SHORT", "QTOP_TEST_SHORT=whsec_c2hvcnQ=")
	out, _ := cmd.CombinedOutput()
	require.Regexp(t, `note +signing +host a sends nothing of subscription 7: file /x has mode 0644 +chmod 600 /x`, string(out))
	require.Regexp(t, `note +signing +on this machine: secret_ref "acme": environment variable QTOP_TEST_NONE is not set +set it for the worker host`, string(out))
	require.Regexp(t, `note +signing +secret_ref "short": secret 1 of 1 has 5 bytes, not 24 to 64 +make a new one .*the next release refuses this one`, string(out))
	_, err = conn.Exec(t.Context(), "UPDATE public.queue_host SET last_seen_at = now(), stopped_at = CASE WHEN host_id = 'b' THEN now() END") // live for 15 s
	require.NoError(t, err)
	out, _ = qtop(t, db.DSN(operator(t, db)), "doctor").CombinedOutput()
	require.Regexp(t, `bad +signing +host a sends nothing of subscription 7`, string(out), "no other host has it")
}

// The doctor names a secret that hosts lack before a delivery fails, once per host.
func TestDoctorNamesSecretsThatHostsLack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(`INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref) VALUES
		('a', 'https://a.example/h', true, true, 'acme'), ('b', 'https://a.example/h', true, true, 'acme'), ('c', 'https://a.example/h', false, true, 'gone'),
		('d', 'https://a.example/h', true, false, 'later'), ('e', 'https://a.example/h', true, false, NULL)`)
	beat := func(host, progress string) {
		exec(`INSERT INTO public.queue_host (host_id, instance, version, loops, progress) VALUES ('` + host + `', gen_random_uuid(), '', '{webhook_worker}', '{"webhook_worker": ` + progress + `}')
			ON CONFLICT (host_id) DO UPDATE SET progress = excluded.progress, last_seen_at = now()`)
	}
	login, host, jobs, bare := operator(t, db), pgtest.Login(t, db, "dot_executor", "webhook_worker"), pgtest.Login(t, db, "dot_executor"), pgtest.Login(t, db)
	doctorOf := func(login string) string {
		exec("UPDATE public.queue_host SET last_seen_at = now()") // runs take seconds on a slow machine, and hosts are live for 15 s
		out, _ := qtop(t, db.DSN(login), "doctor").CombinedOutput()
		return string(out)
	}
	doctor := func() string { return doctorOf(login) }
	says := `signing +host a cannot sign with secret_ref "acme", which 2 active webhook subscriptions name: the first is 1 +add it to delivery.secrets`
	beat("a", `{"secrets": []}`)
	out := doctor()
	require.Regexp(t, `bad +`+says, out)
	for _, nothingIsSent := range []string{"gone", "later", "unsigned"} {
		require.NotRegexp(t, `signing .*`+nothingIsSent, out)
	}
	require.Regexp(t, `bad +`+says, doctorOf(host), "a host's login may see the names of the secrets")
	beat("b", `{"secrets": ["acme"]}`)
	require.Regexp(t, `note +`+says, doctor())
	beat("b", `{}`)
	require.Regexp(t, `note +`+says, doctor(), "an older host does not report its secrets")
	beat("a", `{"secrets": [], "unsigned": [{"subscription": 1, "what": "no such secret", "do": "add it"}]}`)
	out = doctor()
	require.Contains(t, out, "host a sends nothing of subscription 1: no such secret")
	require.NotContains(t, out, "cannot sign with")
	out = doctorOf(jobs)
	require.Contains(t, out, "host a sends nothing of subscription 1: no such secret", "it may not read the subscriptions, but may read this")
	require.Regexp(t, `note +signing +in part not looked at: this login may not read it`, out)
	require.Len(t, regexp.MustCompile(`(?m)^note +signing +not looked at: this login may not read it`).FindAllString(doctorOf(bare), -1), 1)
	beat("a", `{"secrets": ["acme"]}`)
	require.Regexp(t, `ok +signing`, doctor())
	exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref) SELECT 'f', 'https://a.example/h' || i, true, true, 'r' || i FROM generate_series(1, 25) i")
	require.Regexp(t, `note +signing +5 more findings like these`, doctor())
}

// The doctor names jobs of an older release whose due time never comes.
func TestDoctorNamesJobsThatAreNeverDue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	out, _ := qtop(t, db.DSN(operator(t, db)), "doctor").CombinedOutput()
	require.Regexp(t, `ok +due times +every job has a time`, string(out))
	_, err := conn.Exec(t.Context(), `INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, ready)
		SELECT kind, 'iu', 'DOT', 'infinity', false FROM unnest('{a,a,b}'::text[]) kind`)
	require.NoError(t, err)
	out, _ = qtop(t, db.DSN(operator(t, db)), "doctor").CombinedOutput()
	require.Regexp(t, `note +due times +jobs of an older release that are never due: 3 \(1 of b in iu, 2 of a in iu\) +qtop job cancel ID`, string(out))
}
