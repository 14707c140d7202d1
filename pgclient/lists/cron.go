package lists

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// cronOf returns the pg_cron jobs that this login can see, or the reason why it cannot use pg_cron.
func cronOf(ctx context.Context, db *pgpool.Pool, _ queue.Query) (*queue.Cron, error) {
	var out queue.Cron
	err := db.QueryRow(ctx, "SELECT public.fn_queue_scheduler_lacks()").Scan(&out.Lacks)
	if err != nil {
		return nil, err
	}
	out.Jobs, err = CronJobs(ctx, db)
	return &out, err
}

// CronJobs returns the pg_cron jobs of the queue that this login can see.
func CronJobs(ctx context.Context, db *pgpool.Pool) ([]queue.CronJob, error) {
	return pgrow.All[queue.CronJob](ctx, db, `SELECT job_name, worker_name, schedule, run_as, installed_at, installed_by, found, active,
		last_start_at, last_status, last_message FROM public.fn_queue_cron_jobs() ORDER BY job_name`)
}
