// Tests of a database that refuses results: for a while, always, or because its disk is full.
package workerhost_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// refuseResults makes the record of every result fail as long as the table fault has a row, with
// the SQLSTATE in that row.
func (w *world) refuseResults() {
	w.t.Helper()
	w.exec(`CREATE TABLE public.fault (code text)`)
	w.exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		DECLARE v_code text := (SELECT f.code FROM public.fault f LIMIT 1);
		BEGIN
			IF v_code IS NOT NULL THEN
				RAISE EXCEPTION 'refused' USING ERRCODE = v_code;
			END IF;
			RETURN NEW;
		END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
		WHEN (NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL) EXECUTE FUNCTION public.refuse('response_excerpt')`)
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON public.job_history FOR EACH ROW EXECUTE FUNCTION public.refuse('last_error')`)
}

// If a result was refused for a temporary reason, it is recorded when the reason has ended. The
// request is not repeated, the job does not run again, and no lease is lost.
func TestRefusedResultsAreRecordedAgain(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.notify.bridge_enabled", "true")
	w.refuseResults()
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	s := &seen{}
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"work": s}})
	h.listens()
	done := 0
	codes := []string{"53100", "57014"}
	if os.Getenv("QTOP_TEST_FULL") != "" {
		codes = append(codes, "40001", "57P05", "57P01", "53300", "25006", "P0001", "08006", "58030")
	}
	for _, code := range codes {
		w.exec("INSERT INTO public.fault VALUES ($1)", code)
		before := []int64{h.status("webhook_worker").Errors, h.status("job_executor").Errors}
		w.events("order.created", 3)
		w.exec(`SELECT public.fn_job_enqueue('work', 'work', 'DOT') FROM generate_series(1, 3)`)
		done += 3
		eventually(t, func() bool {
			return h.status("webhook_worker").Errors >= before[0]+2 && h.status("job_executor").Errors >= before[1]+2
		}, "the result is not retried after %s", code)
		w.exec("DELETE FROM public.fault")
		w.becomes(done, completed)
		w.becomes(done, jobsOf, "succeeded")
		require.Equal(t, done, r.count(), "%s: sent again", code)
		require.Equal(t, done, s.count(), "%s: worked on again", code)
	}
	require.Equal(t, "1 0", w.text("SELECT max(attempt_no) || ' ' || max(lease_resets) FROM public.webhook_delivery_jobs"))
	require.Equal(t, "0 0", w.text("SELECT max(attempts) || ' ' || max(lost_leases) FROM public.job_history"))
}

// If the statement that records a result is cancelled, its session is terminated and no
// connection slot is free, the result is nevertheless recorded once.
func TestResultsOfSessionsThatAreEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "queue.notify.bridge_enabled", "true")
	login := w.text("SELECT rolname FROM pg_roles WHERE rolcanlogin AND NOT rolsuper AND strpos('" + w.dsn + "', rolname) > 0")
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	h := w.run(workerhost.Options{})
	h.listens()
	for i, end := range []string{"pg_cancel_backend(pid)", "pg_terminate_backend(pid)"} {
		require.NoError(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE public.webhook_endpoint_state IN ACCESS EXCLUSIVE MODE") // the report has to wait for this lock
			require.NoError(t, err)
			w.events("order.created", 1)
			eventually(t, func() bool {
				return w.int(`SELECT count(`+end+`)::int FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'
					AND query LIKE '%fn_webhook_job_report%'`, login) > 0
			}, "no report waits")
			if i == 1 { // the host can get no other session at present
				w.exec("ALTER ROLE " + login + " CONNECTION LIMIT 0")
				w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", login)
				errs := h.status("webhook_worker").Errors
				eventually(t, func() bool { return h.status("webhook_worker").Errors > errs+1 }, "it has a session")
				w.exec("ALTER ROLE " + login + " CONNECTION LIMIT -1")
			}
			return nil
		}))
		w.becomes(i+1, completed)
		require.Equal(t, i+1, r.count())
	}
	require.Equal(t, "1 0", w.text("SELECT max(attempt_no) || ' ' || max(lease_resets) FROM public.webhook_delivery_jobs"))
}

// While a job runs the login of its host is refused, for longer than the lease: the result is recorded when the
// login is let in again, and the job does not run again.
func TestResultsOfARefusedLogin(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.lease.duration_seconds", "4")
	login := w.text("SELECT rolname FROM pg_roles WHERE rolcanlogin AND NOT rolsuper AND strpos('" + w.dsn + "', rolname) > 0")
	refused := make(chan struct{})
	s := &seen{then: func(context.Context, handler.Job) error { <-refused; return nil }}
	w.run(workerhost.Options{Handlers: map[string]handler.Handler{"work": s}, Loops: []string{"job_executor"}}) // nothing reaps the lease
	w.enqueue("work", 1)
	eventually(t, func() bool { return s.count() == 1 }, "it does not run")
	w.exec("ALTER ROLE " + login + " NOLOGIN")
	w.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", login)
	w.becomes(0, "SELECT count(*)::int FROM pg_stat_activity WHERE usename = $1", login)
	close(refused)
	w.becomes(1, "SELECT count(*)::int FROM public.job_lease WHERE lease_until < clock_timestamp() - interval '1 second'")
	w.exec("ALTER ROLE " + login + " LOGIN")
	w.becomes(1, jobsOf, "succeeded")
	require.Equal(t, 1, s.count())
	require.Equal(t, "0 0", w.text("SELECT attempts || ' ' || lost_leases FROM public.job_history"))
}

// If the database refuses the text of a result, the result is recorded without the text.
func TestResultsWhoseTextIsRefused(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10)
	w.refuseResults()
	r := receive(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("thank you")) })
	w.subscribe("order.created", r.URL, nil)
	w.exec(`CREATE OR REPLACE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF to_jsonb(NEW) ->> TG_ARGV[0] <> '' THEN RAISE EXCEPTION 'refused' USING ERRCODE = '22021'; END IF;
			RETURN NEW;
		END $$`)
	w.run(workerhost.Options{})
	w.events("order.created", 2)
	w.becomes(2, completed)
	require.Equal(t, 2, r.count())
	require.Equal(t, 2, w.int("SELECT count(*)::int FROM public.webhook_delivery_jobs WHERE response_excerpt = '' AND response_status = 200"))
}

// No work begins while results cannot be recorded: waiting jobs and webhooks are handed back, and
// no attempt is counted.
func TestNothingBeginsWhileResultsAreRefused(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 10, "queue.notify.bridge_enabled", "true")
	w.refuseResults()
	r := receive(t, ok)
	w.subscribe("order.created", r.URL, nil)
	s := &seen{}
	h := w.run(workerhost.Options{Handlers: map[string]handler.Handler{"work": s}})
	h.listens()
	w.exec("INSERT INTO public.fault VALUES ('53100')")
	w.events("order.created", 1)
	w.exec(`SELECT public.fn_job_enqueue('work', 'work', 'DOT')`)
	eventually(t, func() bool {
		return h.status("webhook_worker").Errors >= 4 && h.status("job_executor").Errors >= 4
	}, "results are not tried")
	w.events("order.created", 20)
	w.exec(`SELECT public.fn_job_enqueue('work', 'work', 'DOT') FROM generate_series(1, 20)`)
	w.becomes(21, jobs) // all of them are free to be claimed
	errs := []int64{h.status("webhook_worker").Errors, h.status("job_executor").Errors}
	eventually(t, func() bool {
		return h.status("webhook_worker").Errors >= errs[0]+2 && h.status("job_executor").Errors >= errs[1]+2
	}, "results are not tried")
	require.Equal(t, 1, r.count())
	require.Equal(t, 1, s.count())
	w.exec("DELETE FROM public.fault")
	w.becomes(21, completed)
	w.becomes(21, jobsOf, "succeeded")
	require.Equal(t, 21, r.count())
	require.Equal(t, 21, s.count())
}

// smallDisk returns a world on a separate server whose tables are on a disk of mb MB. full fills
// the disk and free empties it.
func smallDisk(t *testing.T, mb int) (w *world, full, free func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root: a small file system must be mounted")
	}
	s := pgtest.OwnServer(t, nil)
	dir, err := os.MkdirTemp("/tmp", "qtop-disk-") //nolint:usetesting // the test unmounts it before it is removed, and the server's user needs access
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm,mode=0755", mb), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: no small file system here: %s", strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	space := filepath.Join(dir, "space")
	require.NoError(t, os.Mkdir(space, 0o700))
	info, err := os.Stat(s.DataDir())
	require.NoError(t, err)
	owner, isUnix := info.Sys().(*syscall.Stat_t)
	require.True(t, isUnix)
	require.NoError(t, os.Chown(space, int(owner.Uid), int(owner.Gid)))
	super := s.DSN(embedded.Superuser, "postgres")
	poolConfig, err := pgsession.PoolConfig(super)
	require.NoError(t, err)
	admin, err := pgxpool.NewWithConfig(t.Context(), poolConfig)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	w = &world{t: t, admin: admin, dsn: s.DSN("test_host", "postgres")}
	w.exec("CREATE TABLESPACE small LOCATION '" + space + "'")
	require.NoError(t, schema.Up(t.Context(), super, func(string) {}))
	w.exec("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small")
	w.exec("ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small")
	w.exec("CREATE ROLE test_host LOGIN IN ROLE dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner")
	w.quick()
	full = func() {
		w.exec("CREATE TABLE public.filler (t text) TABLESPACE small")
		w.exec("ALTER TABLE public.filler ALTER COLUMN t SET STORAGE PLAIN")
		for rows := 1000; rows > 0; {
			if _, err := admin.Exec(t.Context(), "INSERT INTO public.filler SELECT repeat('x', 8000) FROM generate_series(1, $1::int)", rows); err != nil {
				require.Contains(t, err.Error(), "53100")
				rows /= 10
			}
		}
	}
	free = func() { w.exec("DROP TABLE public.filler") }
	return w, full, free
}

// The disk is full while responses arrive. Each result is recorded when there is space again, no
// request or job is repeated, and the console shows the queue meanwhile.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: a separate server on a small disk; TestRefusedResultsAreRecordedAgain is the small form")
	}
	w, full, free := smallDisk(t, 48)
	executor(t, w.admin, "host", "", 100)
	const n = 40
	release := make(chan struct{})
	var answer strings.Builder // a text that cannot be compressed
	for range 40 {
		answer.WriteString(rand.Text() + " ")
	}
	r := receive(t, func(rw http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
			_, _ = rw.Write([]byte(answer.String()))
		case <-req.Context().Done():
		}
	})
	w.subscribe("order.created", r.URL, nil)
	s := &seen{then: func(ctx context.Context, _ handler.Job) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}
	h := runHost(t, w.dsn, workerhost.Options{Concurrency: 3 * n, PerEndpoint: 3 * n,
		Handlers: map[string]handler.Handler{"work": s}})
	w.events("order.created", n)
	w.exec("SELECT public.fn_job_enqueue('work', 'work', 'DOT', jsonb_build_object('t', (SELECT string_agg(md5(x + random() || ''), '') FROM generate_series(1, 40) AS x))) FROM generate_series(1, $1::int) g", n)
	eventually(t, func() bool { return r.count() == n && s.count() == n }, "no load")
	full()
	errs := []int64{h.status("webhook_worker").Errors, h.status("job_executor").Errors}
	close(release)
	eventually(t, func() bool {
		return h.status("webhook_worker").Errors >= errs[0]+4 && h.status("job_executor").Errors >= errs[1]+4
	}, "results are not tried")
	_, err := w.admin.Exec(t.Context(), "INSERT INTO public.filler SELECT repeat('x', 8000)")
	require.ErrorContains(t, err, "53100", "there is room still")
	var shown int
	require.NoError(t, w.admin.QueryRow(t.Context(), "SELECT length(p.body) FROM public.fn_queue_picture('0') p").Scan(&shown))
	require.Positive(t, shown)
	free()
	w.becomes(n, completed)
	w.becomes(n, jobsOf, "succeeded")
	require.Equal(t, n, r.count())
	require.Equal(t, n, s.count())
}
