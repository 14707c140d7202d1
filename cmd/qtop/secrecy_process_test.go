package main

// The real program with servers, files and variables that are broken in many
// ways. The password is the canary, a text that the tests recognise in any
// output.

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// talkative starts a server whose refusal repeats the password that it
// received.
func talkative(t *testing.T) (port string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				b := pgproto3.NewBackend(c, c)
				if _, err := b.ReceiveStartupMessage(); err != nil {
					return
				}
				b.Send(&pgproto3.AuthenticationCleartextPassword{})
				if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
					return
				}
				said, _ := b.Receive()
				p, _ := said.(*pgproto3.PasswordMessage)
				if p == nil {
					return
				}
				b.Send(&pgproto3.ErrorResponse{
					Severity: "FATAL", Code: "XX000", Message: "the gate does not know " + p.Password + " of " + p.Password[:len(p.Password)/2], Detail: p.Password, Hint: p.Password,
				})
				_ = b.Flush()
			}()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// TestCanaryInRealRuns runs every verb with every broken source of settings.
// Each prints something, and never the canary.
func TestCanaryInRealRuns(t *testing.T) {
	t.Parallel()
	full := os.Getenv("QTOP_TEST_FULL") != ""
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const canary = canaryHead + canaryTail
	port := talkative(t)
	worlds := [][]string{
		{"QTOP_DSN=postgres://u:a@" + canary + "@nowhere.invalid/db"},
		{"QTOP_DSN=postgres://u:x@" + canary + "/y@127.0.0.1:1/db"},
		{"QTOP_DSN=postgres://u:" + canary + "?x@127.0.0.1:1/db"},
		{"QTOP_DSN=postgres://u:" + canary + "@127.0.0.1:" + port + "/db?sslmode=disable"},
		{"QTOP_DSN=host=127.0.0.1 port=" + port + " user=u sslmode=disable", "PGPASSWORD=" + canaryHead + "@/" + canaryTail},
		{"QTOP_DSN=host=127.0.0.1 user=u password=" + canaryHead + " " + canaryTail},
		{"PGHOST=postgres://u:" + canary + "@h/db"},
		{"PGHOST=u:" + canaryHead + "@" + canaryTail},
		{"QTOP_DSN=service=prod", "PGSERVICEFILE=" + write("service", "[prod]\nhost=127.0.0.1\nport="+port+"\nuser=u\nsslmode=disable\npassword="+canary+"\n")},
		{"QTOP_DSN=service=prod", "PGSERVICEFILE=" + write("broken", "[prod]\nhost=127.0.0.1:"+canary+"\n"+canary+"\n")},
		{"QTOP_DSN=host=127.0.0.1 port=" + port + " user=u sslmode=disable", "PGPASSFILE=" + write("pass", "*:*:*:*:"+canary+"\n")},
		{"XDG_CONFIG_HOME=" + filepath.Dir(filepath.Dir(write("home/qtop/config.yaml", "profile: p\nprofiles: {p: {dsn: 'postgres://u:"+canaryHead+"#"+canaryTail+"@h/db'}}\n")))},
		{"QTOP_DSN=postgres://u:" + canary + "@127.0.0.1:1/db", "QTOP_LISTEN_DSN=postgres://u:" + canary + "@@/", `QTOP_HANDLERS=[{"kind":"k","url":"https://u:` + canary + `@h/"}]`},
	}
	verbs := leaves(commandLine(&app{}), nil)
	for i := range verbs {
		// Every second verb gets a further flag, which not all verbs know.
		verbs[i] = append(verbs[i], "--dry-run")[:len(verbs[i])+i%2]
	}
	runs := 14
	if full {
		runs = max(200, len(verbs)*3)
	}
	for i := range runs {
		args, world := verbs[(i*5)%len(verbs)], worlds[i%len(worlds)]
		switch i % 4 {
		case 1:
			args = append(append([]string(nil), args...), "-o", "json")
		case 2:
			args = append(append([]string(nil), args...), "postgres://u:"+canary+"@h/db", "--reason", "password="+canary, "--yes")
		}
		t.Run(fmt.Sprintf("%d %.30s", i, strings.Join(args, " ")), func(t *testing.T) {
			t.Parallel()
			cmd := qtop(t, "", args...)
			cmd.Env = append(cmd.Env, world...)
			var out lockedBuffer
			cmd.Stdout, cmd.Stderr = &out, &out
			require.NoError(t, cmd.Start())
			ended := make(chan struct{})
			go func() {
				_ = cmd.Wait()
				close(ended)
			}()
			enough := time.After(3 * time.Second)
			require.Eventually(t, func() bool { return out.text() != "" }, patience, 20*time.Millisecond, "it says nothing")
			select { // a host waits for its server until a signal ends it
			case <-ended:
			case <-enough:
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-ended
			}
			require.Empty(t, seen(out.text()), "%q %q says:\n%s", world, args, out.text())
		})
	}
	t.Run("screen", func(t *testing.T) {
		t.Parallel()
		cmd := qtop(t, "")
		state := t.TempDir()
		cmd.Env = append(cmd.Env, worlds[3]...)
		cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+state)
		s := onScreen(t, 120, 40, cmd)
		s.until("the gate does not know ****")
		require.Empty(t, seen(s.text()))
		s.keys("gw")
		s.until("****")
		require.Empty(t, seen(s.text()))
		s.keys("q")
		log, _ := os.ReadFile(filepath.Join(state, "qtop", "qtop.log"))
		require.Empty(t, seen(string(log)), "%s", log)
	})
	t.Run("log", func(t *testing.T) {
		t.Parallel()
		cmd := qtop(t, "", "worker")
		cmd.Env = append(cmd.Env, worlds[3]...)
		path := filepath.Join(t.TempDir(), "log")
		file, err := os.Create(path)
		require.NoError(t, err)
		defer file.Close()
		cmd.Stderr = file
		said := func() string {
			text, _ := os.ReadFile(path)
			return string(text)
		}
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return strings.Contains(said(), "the gate does not know") }, patience, 20*time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
		require.Empty(t, seen(said()), "%s", said())
	})
}
