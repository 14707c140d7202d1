package lists

// This file reads what pg_cron has of the queue.

import (
	"context"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// cronOf is what keeps this login from pg_cron, and the jobs as far as it sees them.
func cronOf(ctx context.Context, db *pgpool.Pool, _ queue.Query) (*queue.Cron, error) {
	var out queue.Cron
	err := db.QueryRow(ctx, "SELECT public.fn_queue_scheduler_lacks()").Scan(&out.Lacks)
	if err != nil {
		return nil, err
	}
	out.Jobs, err = CronJobs(ctx, db)
	return &out, err
}

// CronJobs are the jobs that pg_cron has of the queue, as far as this login sees them.
func CronJobs(ctx context.Context, db *pgpool.Pool) ([]queue.CronJob, error) {
	return pgrow.All[queue.CronJob](ctx, db, `SELECT job_name, worker_name, schedule, run_as, installed_at, installed_by, found, active,
		last_start_at, last_status, last_message FROM public.fn_queue_cron_jobs() ORDER BY job_name`)
}
