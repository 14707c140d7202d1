package lists

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

const (
	stagedLookedAt = 20_000 // the number of oldest waiting rows that are grouped for the screen
	failuresLooked = 20_000 // the number of failed rows that are grouped by reason
)

// notifications reads the staging table: the totals from the counters, the groups and failures
// from a bounded number of waiting and failed rows.
func notifications(ctx context.Context, db *pgpool.Pool, q queue.Query, p *queue.Page) error {
	f, err := queue.ParseFilter(q.Filter, queue.NotificationFields())
	if err != nil {
		return filtersql.Error(err)
	}
	if err := stamp(ctx, db, p); err != nil {
		return err
	}
	var n queue.Notifications
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}) // one PostgreSQL snapshot for all statements
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	err = tx.QueryRow(ctx, `SELECT b.waiting, b.failed, w.debounce, w.threshold, s.last_run_at, s.configured_interval_seconds, s.stale,
			(SELECT count(*) FROM (SELECT 1 FROM public.iu_notification_pending p WHERE p.processed_at IS NULL AND p.failed_at IS NULL
				AND p.created_at > now() - make_interval(secs => w.debounce) LIMIT $1) x)
		FROM public.fn_iu_notification_backlog() b
		CROSS JOIN (SELECT public.fn_iu_notification_debounce() AS debounce, public.fn_iu_notification_threshold() AS threshold) w
		JOIN public.v_queue_scheduler_status s ON s.worker_name = 'iu_notification_worker'`, filtersql.CountBound+1).
		Scan(&n.Waiting, &n.Failed, &n.DebounceSeconds, &n.Threshold, &n.LastRunAt, &n.IntervalSeconds, &n.Stale, &n.Debouncing)
	if err != nil {
		return err
	}
	if n.Debouncing > filtersql.CountBound {
		n.Debouncing, n.DebouncingBound = filtersql.CountBound, true
	}
	if n.Groups, err = stagedGroups(ctx, tx, n.DebounceSeconds, q.Limit); err != nil {
		return err
	}
	n.GroupsBound = n.Waiting > stagedLookedAt || len(n.Groups) == q.Limit
	if n.Failures, err = stagedFailures(ctx, tx); err != nil {
		return err
	}
	if n.Log, err = notificationRuns(ctx, tx); err != nil {
		return err
	}
	n.Keep(f, p.AsOf)
	p.Rows, p.Total, p.TotalBound = &n, int64(len(n.Groups)+len(n.Failures)+len(n.Log)), n.GroupsBound
	return nil
}

func stagedGroups(ctx context.Context, tx pgx.Tx, debounce int64, limit int) ([]queue.StagedGroup, error) {
	return pgrow.All[queue.StagedGroup](ctx, tx, `WITH oldest AS MATERIALIZED (
			SELECT p.*, COALESCE(p.source_document_ref, p.import_batch_ref) AS key FROM public.iu_notification_pending p
			WHERE p.processed_at IS NULL AND p.failed_at IS NULL ORDER BY p.created_at LIMIT $1
		)
		SELECT o.key, o.key IS NOT NULL, (array_agg(o.source_document_ref IS NOT NULL ORDER BY o.created_at, o.id))[1], count(*),
			count(*) FILTER (WHERE o.created_at <= now() - make_interval(secs => $2)), min(o.created_at), max(o.created_at),
			(array_agg(o.canonical_address ORDER BY o.created_at, o.id))[1], (array_agg(o.actor_ref ORDER BY o.created_at, o.id))[1]
		FROM oldest o GROUP BY o.key ORDER BY min(o.created_at), o.key LIMIT $3`, stagedLookedAt, debounce, limit)
}

func stagedFailures(ctx context.Context, tx pgx.Tx) ([]queue.StagedFailure, error) {
	var all []queue.StagedFailure
	var f queue.StagedFailure
	var r queue.StagedRow
	err := pgrow.Visit(ctx, tx, []any{
		&f.Failure, &f.N, &f.FirstAt, &f.LastAt, &r.ID, &r.Kind, &r.Address, &r.Key, &r.Actor, &r.StagedAt, &r.FailedAt,
	}, func() {
		if len(all) == 0 || all[len(all)-1].Failure != f.Failure {
			all = append(all, f)
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, r)
	}, `SELECT x.failure, x.of, x.first, x.last, x.id::text, x.event_kind, x.canonical_address, x.key, x.actor_ref, x.created_at, x.failed_at
		FROM (SELECT p.*, COALESCE(p.source_document_ref, p.import_batch_ref) AS key, count(*) OVER w AS of, min(p.failed_at) OVER w AS first,
				max(p.failed_at) OVER w AS last, row_number() OVER (PARTITION BY p.failure ORDER BY p.failed_at, p.id) AS nth
			FROM (SELECT * FROM public.iu_notification_pending q WHERE q.failed_at IS NOT NULL ORDER BY q.failed_at LIMIT $1) p
			WINDOW w AS (PARTITION BY p.failure)) x
		WHERE x.nth <= $2 ORDER BY x.of DESC, x.failure, x.nth`, failuresLooked, queue.FailuresShown)
	return all, err
}

func notificationRuns(ctx context.Context, tx pgx.Tx) ([]queue.NotificationRun, error) {
	return pgrow.All[queue.NotificationRun](ctx, tx, `SELECT l.id::text, l.run_at, l.pending_pre, l.pending_post, l.groups_emitted, l.pieces_emitted, l.conflicts_skipped,
			l.rows_marked, COALESCE(l.duration_ms, 0)::float8, l.error_count, l.error_text, l.failed_total
		FROM public.iu_notification_worker_log l ORDER BY l.run_at DESC LIMIT $1`, queue.RunsShown)
}
