// Tests of hosts on a clone of a database, made by pg_dump and pg_restore or by a base backup.
package workerhost_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// pgProgram returns the path of a program that is installed with the server. It skips the test if
// the program is missing.
func pgProgram(t *testing.T, s *embedded.Server, name string) string {
	t.Helper()
	if s != nil {
		if path := filepath.Join(s.Binaries().Dir, name); runs(path) {
			return path
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT CHECKED: there is no %s beside the server or in PATH (Debian: postgresql-client-15)", name)
	}
	return path
}

func runs(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode()&0o111 != 0
}

func program(t *testing.T, path string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", path, out)
}

// waitingWork makes a webhook event for the receiver at url and a job. Both
// are due, and no host has claimed them.
func (w *world) waitingWork(url string) {
	w.t.Helper()
	executor(w.t, w.admin, "host", "", 10)
	w.enqueue("mail", 3)
	w.subscribe("order", url, nil)
	w.events("order", 3)
	w.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'webhook.worker.enabled'")
	eventually(w.t, func() bool {
		w.exec("SELECT public.fn_webhook_router_run(100::int), public.fn_saga_orchestrator_run(100::int)")
		return w.int(jobs) == 3
	}, "no webhook jobs")
}

const cloneOf = "SELECT public.fn_queue_clone_of()"

// restored copies the world's database with pg_dump and pg_restore.
func (w *world) restored() *world {
	w.t.Helper()
	dump, restore := pgProgram(w.t, w.db.Server, "pg_dump"), pgProgram(w.t, w.db.Server, "pg_restore")
	file := filepath.Join(w.t.TempDir(), "dump")
	program(w.t, dump, "-Fc", "-f", file, w.db.DSN(""))
	db := pgtest.Empty(w.t)
	if pgtest.HostilePass() { // the dump contains the schema evil of the hostile pass too
		_, err := db.Conn(w.t, "").Exec(w.t.Context(), "DROP SCHEMA evil CASCADE; DROP SCHEMA public CASCADE; CREATE SCHEMA public")
		require.NoError(w.t, err)
	}
	program(w.t, restore, "--exit-on-error", "-d", db.DSN(""), file)
	return &world{t: w.t, db: db, admin: db.Pool(w.t, ""), dsn: db.DSN(pgtest.Login(w.t, db, hostRoles()...))}
}

// refusedBy waits until the host h ends by itself, and requires an error that
// contains words.
func (w *world) refusedBy(h *hosted, words string) {
	w.t.Helper()
	eventually(w.t, func() bool {
		select {
		case <-h.done:
			return true
		default:
			return false
		}
	}, "the host does not end")
	require.ErrorContains(w.t, h.err, words)
	require.NotContains(w.t, h.err.Error(), "\n")
}

func TestRestoredDumpSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := receive(t, ok)
	w.waitingWork(r.URL)
	c := w.restored()
	require.Equal(t, 3, c.int(jobs), "the work came with the dump")
	require.Contains(t, c.text(cloneOf), "CLONE OF "+w.db.Name)

	// A host does not start on the clone and returns a one-line error.
	did := &seen{}
	options := workerhost.Options{Handlers: map[string]handler.Handler{"mail": did}}
	c.refusedBy(c.run(options), "CLONE OF "+w.db.Name)
	// In the clone, the calls of a host claim and send nothing, even without the check at its
	// start.
	client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: c.dsn, WorkConns: 2})
	require.NoError(t, err)
	defer client.Close()
	sent, err := work.New(client).ClaimWebhooks(t.Context(), "old", 10, nil, 10, 0)
	require.NoError(t, err)
	require.Empty(t, sent)
	claimed, err := work.New(client).JobClaim(t.Context(), work.Claim{Executor: "host", Kinds: []string{"mail"}, Most: 10})
	require.NoError(t, err)
	require.Empty(t, claimed)
	for _, loop := range []string{"webhook_router", "saga_orchestrator", "job_queue_default", "lease_reaper", "bulk_operation_runner"} {
		res, err := work.New(client).Tick(t.Context(), loop, "wake")
		require.NoError(t, err)
		require.Equal(t, "clone", res.Skipped, loop)
		require.Contains(t, res.Reason, "CLONE OF")
	}
	require.Zero(t, r.count())
	require.Zero(t, c.int(leased)+c.int(jobLeases))

	// After its adoption the clone is an ordinary database.
	require.Equal(t, "false", c.text("SELECT public.fn_queue_adopt('keep'::text, $1::text, 'ann'::text, 'staging'::text, false) ? 'refused'", c.db.Name))
	c.run(options)
	c.becomes(3, completed)
	eventually(t, func() bool { return did.count() == 3 }, "no jobs")
	require.Equal(t, 3, r.count(), "each once")
}

// A running host whose database becomes a clone stops claiming, reports why, and continues once
// the clone is adopted.
func TestHostComesToAClone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := receive(t, ok)
	w.subscribe("order", r.URL, nil)
	w.exec("UPDATE public.dot_config SET value = 'true' WHERE key = 'webhook.worker.enabled'")
	h := w.run(workerhost.Options{})
	w.events("order", 1)
	w.becomes(1, completed)
	w.exec("UPDATE public.queue_identity SET database_oid = 1")
	w.events("order", 5)
	eventually(t, func() bool { return strings.HasPrefix(h.Status().Refused, "CLONE OF") }, "the host does not report the clone")
	require.Equal(t, 1, r.count())
	require.Equal(t, 1, w.int(completed))
	w.exec("SELECT public.fn_queue_adopt('keep'::text, $1::text, 'ann'::text, 'r'::text, false)", w.db.Name)
	w.becomes(6, completed)
	eventually(t, func() bool { return h.Status().Refused == "" }, "the refusal does not end")
}

// copied starts a server on a base backup of the world's server, which is made with the arguments
// args.
func (w *world) copied(primary *embedded.Server, backup string, args ...string) (*world, *embedded.Server) {
	t := w.t
	t.Helper()
	hba, err := os.OpenFile(filepath.Join(primary.DataDir(), "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = hba.WriteString("\nlocal replication all trust\n")
	require.NoError(t, err)
	require.NoError(t, hba.Close())
	require.Equal(t, "true", w.text("SELECT pg_reload_conf()"))

	base := filepath.Join(t.TempDir(), "standby")
	owner := owned(t, primary.DataDir())
	for dir := base; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) { // the server's user needs access to all folders above
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			require.NoError(t, os.MkdirAll(dir, 0o711))
		}
		require.NoError(t, os.Chmod(dir, 0o711))
	}
	home := filepath.Join(base, "pg"+strconv.Itoa(primary.Binaries().Major))
	data := filepath.Join(home, "data")
	require.NoError(t, os.Mkdir(home, 0o700))
	program(t, backup, append(args, "-D", data, "-X", "stream", "-c", "fast", "-d", primary.DSN(embedded.Superuser, "postgres"))...)
	require.NoError(t, filepath.WalkDir(home, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}))
	standby, err := embedded.Start(t.Context(), embedded.Options{Test: true, Dir: base, Major: primary.Binaries().Major})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop(t.Context())) })
	poolConfig, err := pgsession.PoolConfig(standby.DSN(embedded.Superuser, "postgres"))
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	return &world{t: t, admin: admin, dsn: standby.DSN("test_host", "postgres")}, standby
}

// A promoted standby has the identity of its primary, also after a restart, so it does not count
// as a clone. Only the option expect_server can distinguish it from the primary.
func TestPromotedStandbyIsNoClone(t *testing.T) {
	t.Parallel()
	w, primary := ownWorld(t)
	backup := pgProgram(t, primary, "pg_basebackup")
	r := receive(t, ok)
	w.waitingWork(r.URL)
	require.Empty(t, w.text(cloneOf))
	require.NoError(t, primary.Restart(t.Context()))
	w.admin.Reset()
	eventually(t, func() bool { return w.admin.Ping(t.Context()) == nil }, "no restart")
	require.Empty(t, w.text(cloneOf))

	s, standby := w.copied(primary, backup, "-R")
	require.Equal(t, "true", s.text("SELECT pg_is_in_recovery()"))
	require.Empty(t, s.text(cloneOf))
	s.becomes(3, jobs)
	require.Equal(t, "true", s.text("SELECT pg_promote()"))
	eventually(t, func() bool { return s.text("SELECT pg_is_in_recovery()") == "false" }, "no promotion")
	require.Empty(t, s.text(cloneOf), "no alarm")

	// A host whose profile expects the primary refuses to run on the promoted copy.
	primaryName := w.text("SELECT current_setting('cluster_name')")
	wrong := runHostOn(t, pgclient.Options{DSN: s.dsn, WorkConns: hostConns, Actor: "test", ExpectServer: []string{primaryName, "192.0.2.1:5432"}}, workerhost.Options{})
	s.refusedBy(wrong, "UNEXPECTED SERVER")
	require.Equal(t, queue.KindFailed, queue.KindOf(wrong.err), "a supervisor starts it again, as after a clone or a standby")
	viewer, err := pgclient.Open(t.Context(), pgclient.Options{DSN: standby.DSN(embedded.Superuser, "postgres"), WorkConns: 1, ExpectServer: []string{primaryName}})
	require.NoError(t, err)
	defer viewer.Close()
	snap, err := viewer.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	require.Contains(t, snap.Server.Unexpected.String(), primaryName)
	_, err = work.New(viewer).ClaimWebhooks(t.Context(), "x", 1, nil, 1, 0)
	require.ErrorContains(t, err, "UNEXPECTED SERVER", "no connection on which a host could claim")
	require.Zero(t, r.count())

	runHostOn(t, pgclient.Options{DSN: s.dsn, WorkConns: hostConns, Actor: "test", ExpectServer: []string{s.text("SELECT current_setting('cluster_name')")}}, workerhost.Options{})
	s.becomes(3, completed)
	require.Equal(t, 3, r.count())
}

func owned(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return st
}
