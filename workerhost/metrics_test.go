package workerhost_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
)

// A host whose login has queue_viewer serves the figures of the whole database, from one snapshot
// per 15 s. Without the role they are absent, and the reason names it.
func TestMetricsOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	executor(t, w.admin, "quiet", "resize", 1)
	w.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour' WHERE executor_id = 'quiet'")
	w.enqueue("resize", 7)
	w.exec("SELECT public.fn_job_enqueue('resize', 'other', 'DOT', p_process_after => now() + interval '1 hour')")
	served := func(roles ...string) func() string {
		client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: w.db.DSN(pgtest.Login(t, w.db, roles...)), WorkConns: 1})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		h, err := workerhost.New(client, workerhost.Options{ID: "metrics"})
		require.NoError(t, err)
		addr, err := h.ServeMetrics(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		return func() string { return scrape(t, addr.String()) }
	}

	viewer := served("dot_executor", "queue_viewer")
	first := viewer()
	for _, line := range []string{
		`qtop_database_readable{reason=""} 1`, "qtop_database_dead_letters_open 0", "qtop_database_hosts_alive 0", "qtop_database_silent_executors 1",
		`qtop_database_alerts{severity="critical",state="open"} 1`, `qtop_database_alerts{severity="warning",state="acked"} 0`,
		`qtop_database_waiting{domain="work",source="job",subject="resize"} 7`, `qtop_database_waiting{domain="other",source="job",subject="resize"} 1`,
		`qtop_database_oldest_waiting_seconds{domain="other",source="job",subject="resize"} 0`,
	} {
		require.Contains(t, first, line+"\n")
	}
	require.Regexp(t, `qtop_database_oldest_waiting_seconds\{domain="work",source="job",subject="resize"\} \d+\n`, first)

	w.enqueue("late", 1)
	another := served("dot_executor", "queue_viewer")
	when := regexp.MustCompile(`(?m)^qtop_database_snapshot_timestamp_seconds .*$`)
	require.Equal(t, when.FindString(first), when.FindString(viewer()), "a scrape within 15 s reads nothing")
	require.Equal(t, when.FindString(first), when.FindString(another()), "hosts share the snapshot")

	denied := served("dot_executor")()
	require.Regexp(t, `qtop_database_readable\{reason="login \S+ lacks a right: [^"]*the login needs one of the roles dead_letter_operator, queue_viewer, workflow_admin; [^"]*GRANT one of them TO [^"]*"\} 0\n`, denied)
	require.NotContains(t, denied, "qtop_database_dead_letters_open")
	require.Contains(t, denied, "qtop_loop_running")
}

// A database that does not answer costs a scrape two seconds, and takes no figure of the host away.
func TestMetricsOfASilentDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := pgtest.NewPath(t, pgtest.TCP(t, w.db.Server))
	dsn := pgtest.OverTCP(t, w.db.DSN(pgtest.Login(t, w.db, "dot_executor", "queue_viewer")), path.Addr())
	path.Hole(true)
	for started := time.Now(); ; {
		client, err := pgclient.Open(t.Context(), pgclient.Options{DSN: dsn, WorkConns: 1})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		h, err := workerhost.New(client, workerhost.Options{ID: "metrics"})
		require.NoError(t, err)
		addr, err := h.ServeMetrics(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		began := time.Now()
		got := scrape(t, addr.String())
		took := time.Since(began)
		require.Contains(t, got, `qtop_database_readable{reason="the database does not answer: see the log of the host"} 0`+"\n")
		require.Contains(t, got, "qtop_loop_running")
		if took < 4*time.Second {
			break
		}
		// a busy machine may be late once
		require.Less(t, time.Since(started), patience, "a scrape takes %v, as long as a read of a console", took)
	}
}
