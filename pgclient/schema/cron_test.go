// Tests with the real pg_cron, on a server that loads it (PostgreSQL 15 of Debian with
// postgresql-15-cron).

package schema_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// newCron starts a server with pg_cron and installs the schema in its database.
func newCron(t *testing.T) *core {
	t.Helper()
	about := pgtest.Empty(t)
	conn := about.Conn(t, "")
	var have bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_cron')").Scan(&have))
	if !have {
		t.Skip("NOT CHECKED: this server has no pg_cron (Debian: postgresql-15-cron)")
	}
	c := newOwn(t, map[string]string{
		"shared_preload_libraries": "pg_cron", "cron.database_name": "queue", "cron.use_background_workers": "on", "max_worker_processes": "20",
		"cron.max_running_jobs": "10", // at the full hour six cron jobs start: with the default of 5, the sixth would wait
	})
	c.exec("CREATE ROLE ops LOGIN IN ROLE workflow_admin")
	c.exec("CREATE ROLE second LOGIN IN ROLE workflow_admin, queue_viewer")
	return c
}

// login returns a pool of an existing role on the same server.
func (c *core) login(role string) *pgxpool.Pool {
	c.t.Helper()
	cfg := c.root.Config()
	cfg.ConnConfig.User = role
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(pool.Close)
	return pool
}

func (c *core) jobs() string {
	return get[string](c, "SELECT COALESCE(string_agg(concat_ws(' ', jobname, schedule, username, active, command), E'\n' ORDER BY jobname), '') FROM cron.job")
}

func TestCronInstall(t *testing.T) {
	c := newCron(t)
	ops := c.login("ops")
	lacks := func() string {
		t.Helper()
		return fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_install('ann', 'try')")["reason"])
	}
	require.Equal(t, "pg_cron is loaded but not created here: as a superuser: CREATE EXTENSION pg_cron in queue (cron.database_name must name it)", lacks())
	c.exec("CREATE EXTENSION pg_cron")
	require.Equal(t, "ops may not use pg_cron: as a superuser, GRANT USAGE ON SCHEMA cron TO ops", lacks())
	c.exec("GRANT USAGE ON SCHEMA cron TO ops, second, workflow_admin")
	tx := c.begin(ops)
	_, err := tx.Exec(t.Context(), "SET LOCAL ROLE workflow_admin")
	require.NoError(t, err)
	var why string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_queue_scheduler_install('ann', 'try') ->> 'reason'").Scan(&why))
	require.Contains(t, why, "workflow_admin cannot log in")
	require.NoError(t, tx.Rollback(t.Context()))

	// The launcher of pg_cron, a background worker, is shown as another session is.
	tx = c.begin(c.root)
	_, err = tx.Exec(t.Context(), "LOCK TABLE cron.job IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	c.exec("UPDATE pg_catalog.pg_class SET relname = relname WHERE oid = 'cron.job'::regclass") // it reads the table again
	eventually(t, "the launcher waits for cron.job", func() bool {
		all := activity(t, c.root)
		blocks := all[pid(t, tx)].Block
		return len(blocks) == 1 && len(all[blocks[0]].BlockedBy) == 1
	})
	require.NoError(t, tx.Rollback(t.Context()))

	require.Contains(t, fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_install('ann', 'try', true)")["results"]), "would_create")
	require.Empty(t, c.jobs(), "a dry run changes nothing")
	claimedAlone(t, c, ops)
	got := call(t, ops, "public.fn_queue_scheduler_install('ann', 'try pg_cron')")
	require.Equal(t, 6, strings.Count(fmt.Sprint(got["results"]), "created"))
	var want []string
	for _, name := range slices.Sorted(maps.Keys(cronJobs)) {
		want = append(want, fmt.Sprintf("%s %s ops t SELECT public.fn_queue_tick_request('%s'::pg_catalog.text, 'pg_cron'::pg_catalog.text)", name, cronJobs[name][1], cronJobs[name][0]))
	}
	require.Equal(t, strings.Join(want, "\n"), c.jobs())
	require.Equal(t, 6, strings.Count(fmt.Sprint(call(t, quoting(t, c, ops), "public.fn_queue_scheduler_install('ann', 'again')")["results"]), "kept"))
	require.Equal(t, strings.Join(want, "\n"), c.jobs(), "a second time it changes nothing")
	c.exec("UPDATE cron.job SET schedule = '5 * * * *' WHERE jobname = 'queue_lease_reaper'")
	c.exec("UPDATE cron.job SET active = false WHERE jobname = 'queue_stale_heartbeat_check'")
	require.Equal(t, 2, strings.Count(fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_install('ann', 'mend')")["results"]), "changed"))
	require.Equal(t, strings.Join(want, "\n"), c.jobs(), "what was changed by hand is right again")
	require.Equal(t, "done,done,done", get[string](c, "SELECT string_agg(outcome, ',') FROM public.queue_operator_action WHERE action = 'scheduler_install' AND outcome = 'done'"))

	// The cron jobs belong to the login that installed them: a second login is refused. pg_cron
	// itself hides the jobs of other logins.
	second := c.login("second")
	require.Equal(t, "not_yours", call(t, second, "public.fn_queue_scheduler_install('bob', 'me too')")["rule"])
	require.Equal(t, "not_yours", call(t, second, "public.fn_queue_scheduler_remove('bob', 'away')")["rule"])
	row := func(pool *pgxpool.Pool) (s string) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT concat_ws(' ', run_as, installed_by, COALESCE(found::text, 'unseen'), active) FROM public.fn_queue_cron_jobs() WHERE job_name = 'queue_lease_reaper'").Scan(&s))
		return s
	}
	require.Equal(t, "ops ann unseen", row(second))
	require.Equal(t, "ops ann true t", row(ops))
	require.Equal(t, "ops ann true t", row(c.root))
	require.Equal(t, "* * * * * ops", get[string](c, "SELECT cron_schedule || ' ' || cron_run_as FROM public.v_queue_scheduler_status WHERE worker_name = 'lease_reaper'"))

	require.Contains(t, fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_remove('ann', 'away', true)")["results"]), "would_remove")
	require.NotEmpty(t, c.jobs())
	require.Equal(t, 6, strings.Count(fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_remove('ann', 'away')")["results"]), "removed"))
	require.Empty(t, c.jobs())
	require.Zero(t, get[int](c, "SELECT count(run_as) FROM public.queue_cron_job"))
	require.Equal(t, 6, strings.Count(fmt.Sprint(call(t, ops, "public.fn_queue_scheduler_remove('ann', 'again')")["results"]), "absent"))

	// migrate down removes the cron jobs of qtop and leaves all other cron jobs.
	require.NotNil(t, call(t, ops, "public.fn_queue_scheduler_install('ann', 'once more', false)")["audit_id"])
	require.Equal(t, 6, get[int](c, "SELECT count(run_as) FROM public.queue_cron_job"))
	c.exec("SELECT cron.schedule('vacuum', '0 3 * * *', 'VACUUM')")
	var dry, down steps
	dsn := c.root.Config().ConnString()
	require.NoError(t, schema.Down(t.Context(), dsn, schema.DownOptions{DryRun: true, Discard: true}, dry.add))
	require.Contains(t, strings.Join(dry.lines, "\n"), "would unschedule the cron jobs iu-notification-worker, queue_iu_outbound_default")
	require.Contains(t, c.jobs(), "queue_lease_reaper")
	require.NoError(t, schema.Down(t.Context(), dsn, schema.DownOptions{Discard: true}, down.add))
	require.Contains(t, strings.Join(down.lines, "\n"), "unscheduled the cron jobs iu-notification-worker")
	require.Equal(t, "vacuum 0 3 * * * postgres t VACUUM", c.jobs())
}

// pg_cron is in another database of the cluster: the refusal is one line that names that database.
func TestCronElsewhere(t *testing.T) {
	c := newCron(t)
	c.exec("CREATE EXTENSION pg_cron")
	c.exec("CREATE DATABASE other")
	cfg := c.root.Config()
	cfg.ConnConfig.Database = "other"
	dsn := strings.Replace(c.root.Config().ConnString(), "@/queue?", "@/other?", 1)
	require.Contains(t, dsn, "other")
	require.NoError(t, schema.Up(t.Context(), dsn, nil))
	other, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	got := call(t, other, "public.fn_queue_scheduler_install('ann', 'try')")
	require.Equal(t, "no_pg_cron", got["rule"])
	require.Regexp(t, `^pg_cron runs in database queue \(cron\.database_name\), not here: .* cron\.schedule_in_database\(…, 'other'\)$`, got["reason"])
}

// run is a recorded run of a tick worker.
type run struct {
	Worker, Source string
	Began, Ended   time.Time
}

// Real minutes: every cron job runs its tick worker each minute, also after a long run and beside
// worker hosts that ask at any time. No worker runs twice within 0.9 of its interval, and callers
// that the scheduler mode excludes are refused.
func TestCronTicks(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("takes five minutes of real time: QTOP_TEST_FULL=1; the marks with jitter are TestSchedulerJitter")
	}
	c := newCron(t)
	c.exec("CREATE EXTENSION pg_cron; GRANT USAGE ON SCHEMA cron TO ops")
	ops := c.login("ops")
	// A trigger records every run. The reaper is slow: it takes longer than a tenth of its minute.
	c.exec(`CREATE TABLE public.ran (worker text, source text, began timestamptz, ended timestamptz DEFAULT clock_timestamp());
		CREATE FUNCTION public.log_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			INSERT INTO public.ran VALUES (NEW.worker_name, NEW.last_result ->> 'source', NEW.last_run_at); RETURN NULL; END $$;
		CREATE TRIGGER log_run AFTER UPDATE OF last_run_at ON public.queue_tick_worker FOR EACH ROW EXECUTE FUNCTION public.log_run();
		CREATE FUNCTION public.fn_test_slow() RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(8); RETURN '{"returned": 1}'; END $$;
		UPDATE public.queue_tick_worker SET function = 'fn_test_slow' WHERE worker_name = 'lease_reaper'`)
	minutely := get[[]string](c, `SELECT array_agg(w.worker_name ORDER BY w.worker_name) FROM public.queue_tick_worker w JOIN public.queue_cron_job j USING (worker_name) WHERE j.schedule = '* * * * *'`)
	require.Len(t, minutely, 3)
	runs := func(since time.Time) map[string][]run {
		t.Helper()
		rows, err := c.root.Query(t.Context(), "SELECT worker, source, began, ended FROM public.ran WHERE began > $1 ORDER BY began", since)
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[run])
		require.NoError(t, err)
		by := map[string][]run{}
		for _, r := range all {
			by[r.Worker] = append(by[r.Worker], r)
		}
		return by
	}
	// marks waits until pg_cron has finished the runs of n more full minutes.
	marks := func(n int) {
		t.Helper()
		first := get[time.Time](c, "SELECT date_trunc('minute', clock_timestamp()) + interval '1 minute'")
		until := first.Add(time.Duration(n-1)*time.Minute + 12*time.Second)
		require.Eventually(t, func() bool {
			return get[bool](c, `SELECT clock_timestamp() > $1 AND NOT EXISTS (SELECT 1 FROM cron.job_run_details WHERE status IN ('starting', 'running'))`, until)
		}, time.Duration(n+2)*time.Minute, 250*time.Millisecond)
	}

	// Mode external: the cron jobs run, and their ticks are refused.
	call(t, ops, "public.fn_queue_scheduler_install('ann', 'try pg_cron')")
	marks(1)
	require.Empty(t, runs(time.Time{}))
	require.NotZero(t, get[int](c, "SELECT count(*) FROM cron.job_run_details WHERE status = 'succeeded'"), "pg_cron did ask")

	// Mode pg_cron: each minute. The ticks of a host are refused only for the tick workers that
	// have a cron job.
	setFlag(t, ops, "queue.scheduler.mode", "pg_cron")
	began := get[time.Time](c, "SELECT clock_timestamp()")
	require.Equal(t, "mode", tick(t, c, "lease_reaper", "external")["skipped"])
	require.Equal(t, true, tick(t, c, "config_expiry", "external")["ran"])
	marks(2)
	for _, w := range minutely {
		got := runs(began)[w]
		require.Len(t, got, 2, "%s: every mark, none twice: %v", w, got)
		for _, r := range got {
			require.Equal(t, "pg_cron", r.Source)
			require.Less(t, r.Began.Sub(r.Began.Truncate(time.Minute)), 10*time.Second, "%s at its mark", w)
		}
	}
	slow := runs(began)["lease_reaper"]
	require.Greater(t, slow[0].Ended.Sub(slow[0].Began), 7*time.Second, "and the slow one as well: its last run ended 52 s before the next mark")

	// Mode hybrid: hosts ask all the time beside pg_cron.
	setFlag(t, ops, "queue.scheduler.mode", "hybrid")
	began = get[time.Time](c, "SELECT clock_timestamp()")
	var asked atomic.Int64
	stop := make(chan struct{})
	done := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				case <-time.After(200 * time.Millisecond): // two hosts that ask five times a second
				}
				for _, w := range minutely {
					if _, err := tryCall(c.root, "public.fn_queue_tick_request($1, 'external')", w); err != nil {
						done <- err
						return
					}
					asked.Add(1)
				}
			}
		}()
	}
	marks(2)
	close(stop)
	for range 2 {
		require.NoError(t, <-done)
	}
	require.Greater(t, asked.Load(), int64(500))
	for _, w := range minutely {
		every := time.Duration(get[int](c, "SELECT configured_interval_seconds FROM public.v_queue_scheduler_status WHERE worker_name = $1", w)) * time.Second
		all := runs(time.Time{})[w]
		require.NotEmpty(t, runs(began)[w], w)
		for i, r := range all[1:] {
			gap := r.Began.Sub(all[i].Began)
			require.GreaterOrEqual(t, gap, every*9/10, "%s ran twice: %v", w, all)
			require.LessOrEqual(t, gap, time.Minute+2*time.Second, "%s: a tick was skipped: %v", w, all)
		}
	}
}
