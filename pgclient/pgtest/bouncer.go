// A real PgBouncer in front of the server, as Debian sets it up.

package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Bouncer is a running PgBouncer.
type Bouncer struct{ dir, database string }

const (
	bouncerPort  = 6432
	bouncerAdmin = "bouncer_admin"
)

// NewBouncer starts a PgBouncer in front of a database, for these logins, with a pool mode (session
// or transaction). Except for its address and authentication, it has the default settings; more
// adds settings, one line each. It is stopped at cleanup. The test is skipped if PgBouncer is not
// installed.
func NewBouncer(t testing.TB, d *DB, mode string, logins []string, more ...string) *Bouncer {
	t.Helper()
	host, port, err := net.SplitHostPort(TCP(t, d.Server))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return NewBouncerAt(t, fmt.Sprintf("host=%s port=%s", host, port), d.Name, mode, logins, more...)
}

// NewBouncerAt is NewBouncer for another server; server is that server's connection string in
// PgBouncer's format.
func NewBouncerAt(t testing.TB, server, database, mode string, logins []string, more ...string) *Bouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("SKIP: pgbouncer is not installed; make test-full installs it on Debian as root")
	}
	dir, err := os.MkdirTemp("", "qtop-bouncer-") //nolint:usetesting // a short path for the socket; open to the user that runs PgBouncer
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users := fmt.Sprintf("%q \"\"\n", bouncerAdmin)
	for _, login := range logins {
		users += fmt.Sprintf("%q \"\"\n", login)
	}
	settings := append([]string{
		"[databases]", "* = " + server, "[pgbouncer]", "pool_mode = " + mode,
		"listen_addr =", fmt.Sprint("listen_port = ", bouncerPort), "unix_socket_dir = " + dir,
		"auth_type = trust", "auth_file = " + filepath.Join(dir, "users"), "admin_users = " + bouncerAdmin,
		"pidfile = " + filepath.Join(dir, "pid"),
	}, more...)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { // PgBouncer, which runs as another user, must read it
			t.Fatalf("pgtest: %v", err)
		}
	}
	write("users", users)
	write("ini", strings.Join(settings, "\n")+"\n")
	cmd := exec.Command(program, filepath.Join(dir, "ini")) //nolint:gosec,noctx // found on the PATH; it ends at cleanup
	if os.Getuid() == 0 {                                   // PgBouncer refuses to run as root
		const nobody = 65534
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("pgtest: pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // SIGQUIT ends PgBouncer without waiting for its clients
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", out.Bytes())
		}
	})
	b := &Bouncer{dir, database}
	for end := time.Now().Add(stepPatience); ; time.Sleep(10 * time.Millisecond) { // between two attempts to connect: PgBouncer does not report when it listens
		conn, err := net.Dial("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", bouncerPort))) //nolint:noctx // local
		if err == nil {
			_ = conn.Close()
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("pgtest: pgbouncer does not start: %v", err)
		}
	}
}

// DSN connects a login through the pooler.
func (b *Bouncer) DSN(user string) string { return b.dsn(user, b.database) }

func (b *Bouncer) dsn(user, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", user, database, b.dir, bouncerPort)
}

// Count returns how many transactions and queries passed the pooler. A query is one round trip of
// a client.
func (b *Bouncer) Count(t testing.TB) (transactions, queries int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	cfg, err := pgx.ParseConfig(b.dsn(bouncerAdmin, "pgbouncer"))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // PgBouncer's admin console supports no other mode
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatalf("pgtest: the console of pgbouncer: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SHOW STATS_TOTALS")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, r := range all {
		if r["database"] == b.database {
			for name, into := range map[string]*int64{"xact_count": &transactions, "query_count": &queries} {
				n, _ := r[name].(pgtype.Numeric)
				whole, err := n.Int64Value()
				if err != nil {
					t.Fatalf("pgtest: %v", err)
				}
				*into = whole.Int64
			}
		}
	}
	return transactions, queries
}
