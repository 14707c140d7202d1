package workerhost_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// A claim was committed but its answer did not arrive. Its jobs are run soon,
// not only after their lease of five minutes has expired. Jobs that the host
// runs meanwhile keep their lease.
func TestJobsClaimedWithoutAnswer(t *testing.T) {
	t.Parallel()
	w := jobWorld(t, 1000)
	p := pgtest.NewPath(t, pgtest.TCP(t, w.db.Server))
	release := make(chan struct{})
	long := &seen{then: func(context.Context, handler.Job) error { <-release; return nil }}
	s := &seen{}
	log := &lines{}
	runHost(t, pgtest.OverTCP(t, w.dsn, p.Addr()), workerhost.Options{
		Loops: []string{"job_executor"}, Executor: "host", Concurrency: 8, Log: slog.New(slog.NewJSONHandler(log, nil)),
		Handlers: map[string]handler.Handler{"long": long, "unanswered": s},
	})
	w.enqueue("long", 1)
	eventually(t, func() bool { return long.count() == 1 }, "the long one does not begin")
	p.DropReplyWith("unanswered")
	w.exec("SELECT public.fn_job_enqueue('unanswered', 'work', 'DOT')")
	w.becomes(1, jobsOf, "succeeded")
	require.Len(t, p.Dropped(), 1)
	require.Len(t, log.of(t, "handed back jobs of a claim whose answer did not arrive"), 1)
	require.Equal(t, 1, s.count())
	require.Equal(t, 1, w.int(jobsHeld), "the running job keeps its lease")

	// Another claim without an answer is committed only now, after its jobs were to be handed back.
	require.NoError(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT public.fn_job_enqueue('unanswered', 'work', 'DOT');
			SELECT set_config('application_name', a.application_name, true), set_config('test.login', a.usename, true)
				FROM pg_stat_activity a WHERE a.datname = current_database() AND a.application_name LIKE '% work %' LIMIT 1;
			DO $$ BEGIN EXECUTE format('SET LOCAL SESSION AUTHORIZATION %I', current_setting('test.login')); END $$;
			SELECT 1 / count(*) FROM public.fn_job_claim('host', '{unanswered}', 1)`)
		return err
	}))
	w.becomes(2, jobsOf, "succeeded")
	require.Len(t, log.of(t, "handed back jobs of a claim whose answer did not arrive"), 2)
	close(release)
	w.becomes(3, jobsOf, "succeeded")
	require.Equal(t, 1, long.count())
	require.Zero(t, w.int("SELECT sum(lost_leases)::int + sum(attempts)::int FROM public.job_history"), "an attempt was spent")
}
