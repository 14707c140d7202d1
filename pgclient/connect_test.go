// Connecting: how the server is verified, and the error messages, which never contain a secret.

package pgclient_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// If the operator sets no sslmode, a server on another machine is verified in full (verify-full).
func TestParseDSNVerifies(t *testing.T) {
	for _, v := range []string{"PGSSLMODE", "PGSERVICE", "PGHOST", "PGSSLROOTCERT"} {
		t.Setenv(v, "")
	}
	services := filepath.Join(t.TempDir(), "services")
	require.NoError(t, os.WriteFile(services, []byte("[bare]\nhost=db.example.org\n[plain]\nhost=db.example.org\nsslmode=disable\n"), 0o600))
	t.Setenv("PGSERVICEFILE", services)
	for dsn, verified := range map[string]bool{
		"postgres://u@db.example.org/q":                           true,
		"postgres://u@db.example.org/q?application_name=x":        true,
		"host=db.example.org user=u":                              true,
		"host=10.0.0.7":                                           true,
		"postgres://u@db.example.org/q?sslmode=disable":           false,
		"postgres://u@db.example.org/q?a=b&sslmode=disable":       false,
		"host=db.example.org sslmode=disable":                     false,
		"host=db.example.org sslmode = disable":                   false,
		"host=/var/run/postgresql user=u":                         false,
		"postgres:///q?host=/run/postgresql":                      false,
		"postgres://u@localhost/q":                                false,
		"postgres://u@127.0.0.1:5433/q":                           false,
		"postgres://u@[::1]/q":                                    false,
		"host=localhost,db.example.org":                           true,
		"postgres://u@/q?host=/run/postgresql,db.example.org":     true,
		"host=db.example.org password='x sslmode=disable'":        true,
		"host=db.example.org password=xsslmode=disable":           true,
		"postgres://u:xsslmode=disable@db.example.org/q":          true,
		"host=db.example.org options='-c service=1' user=u":       true,
		"postgres://u@db.example.org/q?application_name=service":  true,
		`host=db.example.org application_name=x\ sslmode=disable`: true,
		`host=db.example.org application_name=x\`:                 true,
		"host=db.example.org password=a://b":                      true,
		"service=bare":                                            true,
		"service=bare host=db2.example.org":                       true,
		"postgres:///?service=bare":                               true,
		"service=plain":                                           false,
		"service=bare sslmode=disable":                            false,
		"host=db.example.org sslmode='disable'":                   false,
		"postgres://u@db.example.org/q?sslmode=":                  true,
		"postgres://u@db.example.org/q?sslmode=&a=b":              true,
	} {
		cc, err := pgpool.ParseDSN(dsn)
		require.NoError(t, err, dsn)
		full := cc.TLSConfig != nil && !cc.TLSConfig.InsecureSkipVerify && cc.TLSConfig.ServerName != ""
		for _, f := range cc.Fallbacks {
			if !strings.HasPrefix(f.Host, "/") {
				full = full && f.TLSConfig != nil
			}
		}
		if strings.HasPrefix(cc.Host, "/") && verified { // the socket in a list that also has hosts
			full = len(cc.Fallbacks) > 0 && cc.Fallbacks[len(cc.Fallbacks)-1].TLSConfig != nil
		}
		require.Equal(t, verified, full, dsn)
	}
	for _, dsn := range []string{
		"host=db.example.org sslmode=", "host=db.example.org sslmode=''", "sslmode='' host=localhost,db.example.org", "service=bare sslmode=''",
	} {
		_, err := pgpool.ParseDSN(dsn)
		require.ErrorContains(t, err, "sslmode without a value", dsn)
	}
	for _, dsn := range []string{"postgres://u@localhost/q?sslmode=", "host=/run/postgresql sslmode=''"} {
		_, err := pgpool.ParseDSN(dsn)
		require.NoError(t, err, dsn)
	}
	// An sslmode of the operator that would go on without TLS if the server, or somebody in
	// between, refuses TLS.
	require.NoError(t, os.WriteFile(services, []byte("[bare]\nhost=db.example.org\n[plain]\nhost=db.example.org\nsslmode=disable\n"+
		"[prefer]\nhost=db.example.org\nsslmode=prefer\n[allow]\nhost=db.example.org\nsslmode=allow\n"), 0o600))
	for _, dsn := range []string{
		"host=db.example.org sslmode=prefer", "host=db.example.org sslmode=allow", "postgres://db.example.org/q?sslmode=prefer",
		"postgres://db.example.org,db2.example.org,10.0.0.7:5433/q?sslmode=allow", "host=/run/postgresql,localhost,db.example.org sslmode=prefer",
		"host=db.example.org,localhost sslmode=allow", "service=prefer", "service=allow", "service=allow host=db2.example.org",
	} {
		cc, err := pgpool.ParseDSN(dsn)
		require.NoError(t, err, dsn)
		networked := 0
		for _, f := range append([]*pgconn.FallbackConfig{{Host: cc.Host, TLSConfig: cc.TLSConfig}}, cc.Fallbacks...) {
			if strings.HasSuffix(f.Host, "example.org") || strings.HasPrefix(f.Host, "10.") {
				require.NotNil(t, f.TLSConfig, "%s: %s", dsn, f.Host)
				networked++
			}
		}
		require.NotZero(t, networked, dsn)
		require.Equal(t, strings.Contains(dsn, "localhost"), slices.ContainsFunc(cc.Fallbacks, func(f *pgconn.FallbackConfig) bool {
			return f.Host == "localhost" && f.TLSConfig == nil
		}), "%s: loopback may do without", dsn)
	}
	for env, dsn := range map[string]string{"PGSSLMODE": "host=db.example.org", "PGHOST": ""} {
		t.Setenv(env, map[string]string{"PGSSLMODE": "prefer", "PGHOST": "db.example.org"}[env])
		cc, err := pgpool.ParseDSN(dsn)
		require.NoError(t, err)
		require.NotNil(t, cc.TLSConfig, env)
		require.Empty(t, cc.Fallbacks, env)
		t.Setenv(env, "")
	}
	t.Setenv("PGSERVICE", "bare")
	cc, err := pgpool.ParseDSN("")
	require.NoError(t, err)
	require.Equal(t, "db.example.org", cc.TLSConfig.ServerName, "a service that is named in the environment is verified too")
	t.Setenv("PGSERVICE", "")
	t.Setenv("PGSSLMODE", "disable")
	cc, err = pgpool.ParseDSN("host=db.example.org")
	require.NoError(t, err)
	require.Nil(t, cc.TLSConfig, "the environment is the operator's word too")
}

// A session counts as encrypted only if the server reports it: a request for TLS is not enough,
// because the server, or somebody in between, may have refused it.
func TestSessionKnowsWhetherItIsEncrypted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cc, err := pgpool.ParseDSN(db.DSN(pgtest.Login(t, db, "queue_viewer")))
	require.NoError(t, err)
	between, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = between.Close() })
	go func() {
		for {
			conn, err := between.Accept()
			if err != nil {
				return
			}
			go refuseTLS(conn, cc)
		}
	}()
	dsn := fmt.Sprintf("host=127.0.0.1 port=%d sslmode=prefer user=%s password='%s' dbname=%s", between.Addr().(*net.TCPAddr).Port, cc.User, cc.Password, cc.Database)
	s, err := open(t, pgclient.Options{DSN: dsn, Actor: "ann"}).Session(t.Context())
	require.NoError(t, err)
	require.False(t, s.TLS)
}

// The server says whether the session is encrypted. Of several hosts, the one that answered is
// named. Through a pooler, both parts of the way must be encrypted.
func TestSessionSaysWhoAnswersAndHow(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("NOT CHECKED: this system has one loopback address, and the test needs several")
	}
	t.Parallel()
	ctx := t.Context()
	ip := fmt.Sprintf("127.%d.%d.2", 1+os.Getpid()%200, os.Getpid()/200%250)
	socket := withTLS(t, pgtest.New(t).Server, ip)
	dsn := "host=" + socket + " user=postgres dbname=postgres"
	at := func(dsn string) (queue.Session, queue.Server) {
		c := open(t, pgclient.Options{DSN: dsn, Actor: "ann"})
		session, err := c.Session(ctx)
		require.NoError(t, err, dsn)
		pic, err := c.Snapshot(ctx, 0)
		require.NoError(t, err, dsn)
		require.Equal(t, session.Address, pic.Server.Address, dsn)
		return session, pic.Server
	}
	for _, c := range []struct {
		dsn, address, says string
		tls, local         bool
	}{
		{dsn, "local socket", "not encrypted on this machine", false, true},
		{"host=" + ip + " user=postgres dbname=postgres sslmode=disable", ip + ":5432", "not encrypted on this machine", false, true},
		{"host=" + ip + " user=postgres dbname=postgres sslmode=require", ip + ":5432", "encrypted (TLSv1", true, false},
		{"host=" + ip + "," + ip + " port=1,5432 user=postgres dbname=postgres sslmode=require", ip + ":5432", "encrypted (TLSv1", true, false},
		{"host=/nowhere,localhost," + ip + " port=5432,1,5432 user=postgres dbname=postgres sslmode=prefer", ip + ":5432", "encrypted (TLSv1", true, false},
	} {
		session, server := at(c.dsn)
		require.Equal(t, c.address, session.Address.String(), c.dsn)
		require.Contains(t, session.Encryption.String(), c.says, c.dsn)
		require.Equal(t, c.tls, session.TLS, c.dsn)
		require.Equal(t, c.local, session.Local, c.dsn)
		require.Empty(t, server.Behind.String(), c.dsn)
	}
	pooled := func(server string, more ...string) (queue.Session, queue.Server) {
		return at(pgtest.NewBouncerAt(t, server, "postgres", "transaction", []string{"postgres"}, more...).DSN("postgres"))
	}
	session, server := pooled("host=" + socket)
	require.False(t, session.TLS)
	require.True(t, session.Local)
	require.Equal(t, "blue", server.Behind.String())
	require.Equal(t, "to the pooler not encrypted on this machine, behind it not encrypted on this machine", session.Encryption.String())
	session, _ = pooled("host="+ip+" port=5432", "server_tls_sslmode = require")
	require.True(t, session.TLS, session.Encryption)
	require.Contains(t, session.Encryption.String(), "behind it encrypted (TLSv1")
}

// withTLS starts a second server, with cluster_name blue, which uses the binaries and the user of
// the server like. Clients reach it with TLS on the address ip, and without on a socket, whose folder
// is returned.
func withTLS(t *testing.T, like *embedded.Server, ip string) (socket string) {
	t.Helper()
	if like == nil {
		t.Skip("SKIP: QTOP_TEST_DSN names a server whose programs are not known")
	}
	socket, err := os.MkdirTemp("", "qtop-tls-") //nolint:usetesting // short, for the path of the socket, and open to another user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(socket) })
	info, err := os.Stat(like.DataDir())
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(t, errors.Join(os.Chown(socket, int(owner.Uid), int(owner.Gid)), os.Chmod(socket, 0o755))) //nolint:gosec // the pooler runs as another user
	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(like.Binaries().Dir, program), args...) //nolint:gosec // of the test server; it ends at cleanup
		cmd.Dir = socket
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
		return cmd
	}
	data := filepath.Join(socket, "data")
	out, err := command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N").CombinedOutput()
	require.NoError(t, err, "%s", out)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(ip)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: secret}} {
		path := filepath.Join(data, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
	}
	hba, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = hba.WriteString("\nhost all all 127.0.0.0/8 trust\n")
	require.NoError(t, errors.Join(err, hba.Close()))
	server := command("postgres", "-D", data, "-k", socket, "-h", ip, "-c", "ssl=on", "-c", "cluster_name=blue", "-c", "shared_buffers=16MB", "-c", "fsync=off")
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), "host="+socket+" user=postgres dbname=postgres")
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return socket
}

// refuseTLS answers a request for TLS with N (no), and forwards everything else.
func refuseTLS(client net.Conn, to *pgx.ConnConfig) {
	defer client.Close()
	first := make([]byte, 8)
	if _, err := io.ReadFull(client, first); err != nil {
		return
	}
	if string(first) == "\x00\x00\x00\x08\x04\xd2\x16\x2f" {
		first = nil
		if _, err := client.Write([]byte("N")); err != nil {
			return
		}
	}
	network, address := pgconn.NetworkAddress(to.Host, to.Port)
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, io.MultiReader(bytes.NewReader(first), client))
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// No error message contains a password, in whatever form the DSN gives it.
func TestErrorsHoldNoPassword(t *testing.T) {
	const s = "S3cr3tV4lue"
	for _, dsn := range []string{
		"postgres://u:" + s + "@h/q?sslmode=nope", "postgres://u:a@" + s + "@h/q?sslmode=nope", "postgres://u:" + s + "@h:port/q",
		"host=h password=" + s + " sslmode=nope", "host=h password = " + s + " sslmode=nope", "host=h password='a " + s + "' sslmode=nope",
		`host=h password='a\' ` + s + `' sslmode=nope`, `host=h password=a\ ` + s + ` sslmode=nope`, "host=h PASSWORD=" + s + " port=x",
		"postgres://h/q?password=" + s + "&sslmode=nope", "host=h sslpassword=" + s + " sslmode=nope", "host=h password='" + s,
		"postgres://u:" + s + "%zz@h/q", "host=h password=a&" + s + " sslmode=nope", "postgres://u:" + s + "/@h/q\x7f",
	} {
		_, err := pgclient.Open(context.Background(), pgclient.Options{DSN: dsn})
		kind(t, queue.KindConfig, err)
		require.NotContains(t, err.Error(), s, dsn)
	}
	c := open(t, pgclient.Options{DSN: "host=" + t.TempDir() + " user=u password=" + s})
	_, err := c.Snapshot(context.Background(), 0)
	kind(t, queue.KindUnavailable, err)
	require.NotContains(t, err.Error(), s)
	require.Equal(t, "lost", c.Link().State)
	require.NotContains(t, c.Link().Reason.String(), s)
}

func TestErrorKinds(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	viewer := w.client("queue_viewer")

	_, err := open(t, pgclient.Options{DSN: "host=" + filepath.Join(t.TempDir(), "none") + " user=u"}).List(ctx, queue.Query{Kind: queue.ListAudit})
	kind(t, queue.KindUnavailable, err)
	require.Contains(t, err.Error(), "qtop doctor")

	_, err = open(t, pgclient.Options{DSN: strings.Replace(w.db.DSN(""), w.db.Name, "no_such_db", 1)}).Snapshot(ctx, 0)
	kind(t, queue.KindUnavailable, err)

	set := queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"}
	_, err = viewer.Plan(ctx, set)
	kind(t, queue.KindPermission, err)
	require.Contains(t, err.Error(), "role")
	_, err = viewer.Apply(ctx, plan(t, w.client("workflow_admin"), set))
	kind(t, queue.KindPermission, err)
	require.Contains(t, err.Error(), "role")

	may := w.client("queue_viewer", "workflow_admin", "dead_letter_operator")
	for _, r := range []queue.Request{
		{Action: "no_such"}, {Action: queue.ActFlagSet, Reason: "r", Args: map[string]string{"value": "1"}},
		{Action: queue.ActFlagSet, Reason: " ", Targets: []string{"x"}, Args: map[string]string{"value": "1"}},
		{Action: queue.ActFlagSet, Reason: "r", Targets: []string{"x"}}, {Action: queue.ActTick, Args: map[string]string{"worker": "no_such"}},
		{Action: queue.ActAck, Args: map[string]string{"comment": "c"}}, {Action: queue.ActRequeue, Reason: "r", Targets: []string{"x"}},
		{Action: queue.ActRequeue, Reason: "r", Targets: []string{"-1"}}, {Action: queue.ActRequeue, Reason: "r"},
		{Action: queue.ActRequeue, Reason: "r", Filter: "nofield:x"},
		{Action: queue.ActFlagSet, Reason: "r", Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "1", "for": "soon"}},
	} {
		_, err := may.Plan(ctx, r)
		kind(t, queue.KindUsage, err)
	}
	_, err = viewer.Plan(ctx, queue.Request{Action: queue.ActRequeue, Reason: "r", Filter: "nofield:x"})
	kind(t, queue.KindPermission, err) // nothing is read for what this login may not do
	_, err = viewer.List(ctx, queue.Query{Kind: queue.ListDeadLetters, Filter: "code:[x y:z"})
	kind(t, queue.KindUsage, err)
	require.Contains(t, err.Error(), "column")
	_, err = viewer.List(ctx, queue.Query{Kind: queue.ListAudit, After: "x"})
	kind(t, queue.KindUsage, err)
	_, err = viewer.List(ctx, queue.Query{Kind: "no_such"})
	kind(t, queue.KindUsage, err)
	_, err = viewer.List(ctx, queue.Query{Kind: queue.ListDeadLetter, ID: "99"})
	kind(t, queue.KindFailed, err)

	admin := w.client("workflow_admin")
	_, err = admin.Apply(ctx, queue.Plan{Request: queue.Request{Action: queue.ActExecRegister, Actor: "ann",
		Args: map[string]string{"id": " x", "kind": "DOT", "cadence": "60s"}}})
	kind(t, queue.KindUsage, err)
	_, err = admin.Apply(ctx, queue.Plan{Request: queue.Request{Action: queue.ActExecRegister, Actor: "ann",
		Args: map[string]string{"id": "x", "kind": "DOT", "cadence": "2000000h"}}})
	kind(t, queue.KindUsage, err)

	readonly := open(t, pgclient.Options{DSN: w.db.DSN(""), Actor: "ann", ReadOnly: true})
	_, err = readonly.Snapshot(ctx, 0)
	require.NoError(t, err)
	p, err := readonly.Plan(ctx, queue.Request{Action: queue.ActFlagSet, Targets: []string{"webhook.max_attempts"}, Args: map[string]string{"value": "4"}, Reason: "r"})
	require.NoError(t, err)
	_, err = readonly.Apply(ctx, p)
	kind(t, queue.KindFailed, err)
	require.Contains(t, err.Error(), "read-only")
}

func TestWithoutSchemaOrRights(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	empty := pgtest.Empty(t)
	c := open(t, pgclient.Options{DSN: empty.DSN("")})
	s, err := c.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.Contains(t, s.Missing["all"].String(), "qtop migrate up")
	require.False(t, s.TakenAt.IsZero())
	require.Equal(t, empty.Name, s.Server.Database.String())
	_, err = c.List(ctx, queue.Query{Kind: queue.ListAudit})
	kind(t, queue.KindFailed, err)
	require.Contains(t, err.Error(), "qtop migrate up")
	page, err := c.List(ctx, queue.Query{Kind: queue.ListSession})
	require.NoError(t, err)
	require.Contains(t, queue.Of[*queue.Session](page).Misfit.Do.String(), "qtop migrate up")

	db := pgtest.New(t)
	nobody := open(t, pgclient.Options{DSN: db.DSN(pgtest.Login(t, db))})
	s, err = nobody.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.Contains(t, s.Missing["all"].String(), "queue_viewer")
	_, err = nobody.List(ctx, queue.Query{Kind: queue.ListDeadLetters})
	kind(t, queue.KindPermission, err)

	viewer := open(t, pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "queue_viewer"))})
	s, err = viewer.Snapshot(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, s.Missing)
	require.NotEmpty(t, s.Flags)
	require.Equal(t, "live", viewer.Link().State)
	page, err = viewer.List(ctx, queue.Query{Kind: queue.ListSession})
	require.NoError(t, err)
	require.Equal(t, []string{"queue_viewer"}, queue.Of[*queue.Session](page).Roles)
	require.False(t, queue.Of[*queue.Session](page).Rights[queue.ActRequeue])
	require.Equal(t, "dead_letter_operator", queue.Of[*queue.Session](page).Needs[queue.ActRequeue])
	require.Nil(t, queue.Of[*queue.Session](page).Misfit)
	require.False(t, queue.Of[*queue.Session](page).Pooler)
}

// A client that reads the snapshot as columns and one that reads it as jsonb get the same snapshot.
func TestSnapshotBothForms(t *testing.T) {
	w := newWorld(t)
	w.die(deadLetter{"order", "https://a.example/x", "HTTP_500", 0})
	w.silent("kg", 4000)
	viewer := open(t, pgclient.Options{DSN: w.db.DSN(pgtest.Login(t, w.db, "queue_viewer"))})
	_, err := viewer.Snapshot(context.Background(), 0)
	require.NoError(t, err)
	got, err := viewer.Snapshot(context.Background(), time.Hour)
	require.NoError(t, err)
	var want queue.Snapshot
	require.NoError(t, json.Unmarshal(get[[]byte](w, "SELECT public.fn_queue_snapshot('1 hour')"), &want))
	require.True(t, got.Shared)
	require.NotEmpty(t, got.Alerts)
	require.NotEmpty(t, got.DeadGroups)
	require.Equal(t, want.TakenAt.Format(time.RFC3339Nano), got.TakenAt.Format(time.RFC3339Nano), "in UTC wherever the client is")
	require.Equal(t, want.Alerts, got.Alerts)
	require.Equal(t, want.DeadGroups, got.DeadGroups)
	require.True(t, get[bool](w, `SELECT p.body::jsonb = public.fn_queue_snapshot('1 hour') - '{taken_at,took_ms,shared}'::text[]
		FROM public.fn_queue_picture('1 hour') p`))
}

func TestCanClaimJobsNeedsWorkConns(t *testing.T) {
	t.Parallel()
	c := open(t, pgclient.Options{DSN: "postgres://u@127.0.0.1:1/d"})
	err := c.CanClaimJobs(t.Context())
	require.EqualError(t, err, "the client has no work pool (WorkConns): set pgclient.Options.WorkConns, such as 4")
	kind(t, queue.KindConfig, err)
}

// The end of application_name distinguishes the processes of a login, so it must be
// stored whole. A connection that has failed silently does not hold up the next call for long.
func TestOpenChecksTheProgram(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{"": true, "shop worker 7": true, strings.Repeat("x", 35): true, strings.Repeat("x", 36): false, "café": false, "a\tb": false} {
		c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: "host=/nowhere", Program: name, WorkConns: 1})
		if !good {
			require.ErrorContains(t, err, "1 to 35 visible ASCII characters", name)
			require.Equal(t, queue.KindConfig, queue.KindOf(err))
			continue
		}
		require.NoError(t, err, name)
		for _, pool := range []*pgpool.Pool{c.Look(), c.Read(), c.Act(), c.Work()} {
			require.Equal(t, 3*time.Second, pool.Config().PingTimeout)
			require.LessOrEqual(t, len(pool.Config().ConnConfig.RuntimeParams["application_name"]), 63)
		}
		c.Close()
	}
}

// A login that may not even connect gets that as an error.
func TestWithoutConnect(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	login := pgtest.Login(t, db, "queue_viewer")
	_, err := db.Pool(t, "").Exec(t.Context(), "REVOKE CONNECT ON DATABASE "+pgx.Identifier{db.Name}.Sanitize()+" FROM PUBLIC")
	require.NoError(t, err)
	c := open(t, pgclient.Options{DSN: db.DSN(login), Actor: "ann"})
	_, err = c.Snapshot(t.Context(), 0)
	require.Equal(t, queue.KindPermission, queue.KindOf(err), "%v", err)
}
