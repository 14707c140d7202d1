package lists

// All parts of a report are read in one transaction, as of one moment. Each list is bounded;
// Report.More says how many rows were left out.

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// The largest numbers of rows in a report.
const (
	reportTimeout     = 60 * time.Second
	reportRows        = 100     // for most lists
	reportActions     = 500     // for audit rows
	reportDeadLetters = 100_000 // for the dead letters that are read per source
)

// Report reads what was recorded between since and until; a zero until means now. The report names
// actor as the person who asked for it.
func Report(ctx context.Context, db *pgpool.Pool, actor string, since, until time.Time) (queue.Report, error) {
	r, err := report(ctx, db, actor, since, until)
	return r, pgerror.Translate(err)
}

func report(ctx context.Context, db *pgpool.Pool, actor string, since, until time.Time) (queue.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r := queue.Report{Since: since.UTC(), Actor: queue.Clean(actor), More: map[string]int{}}
	return r, pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '30s'"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, "SELECT now(), current_database(), current_setting('server_version'), session_user::text").
			Scan(&r.AsOf, &r.Database, &r.Version, &r.Login)
		if err != nil {
			return err
		}
		r.AsOf, r.Until = r.AsOf.UTC(), until.UTC()
		if until.IsZero() || r.Until.After(r.AsOf) {
			r.Until = r.AsOf
		}
		if !r.Since.Before(r.Until) {
			return queue.NewError(queue.KindUsage, "there is no time between "+r.Since.Format(time.RFC3339)+" and "+r.Until.Format(time.RFC3339), "--since, --until", "begin before the end, and before now")
		}
		for _, part := range []func(context.Context, pgx.Tx, *queue.Report) error{
			reportSilences, reportSuspensions, reportFlags, reportOperations, reportDead, reportMarks, reportCurves, reportAudit,
		} {
			if err := part(ctx, tx, &r); err != nil {
				return err
			}
		}
		return nil
	})
}

// collect runs a query that has a LIMIT and whose first column is the total number of rows. It
// records the number of rows left out in Report.More.
func collect[T any](ctx context.Context, tx pgx.Tx, r *queue.Report, list, sql string, args ...any) ([]T, error) {
	total := 0
	out, err := pgrow.Each(ctx, tx, func(row pgx.CollectableRow) (T, error) {
		return pgx.RowToStructByPos[T](behindCount{row, &total})
	}, sql, args...)
	if total > len(out) {
		r.More[list] = total - len(out)
	}
	if out == nil {
		out = []T{}
	}
	return out, err
}

// behindCount is a row whose first column is a count: Scan stores the count in n, and the other
// columns in the given variables.
type behindCount struct {
	pgx.CollectableRow
	n *int
}

func (r behindCount) RawValues() [][]byte { return r.CollectableRow.RawValues()[1:] }

func (r behindCount) Scan(into ...any) error {
	return r.CollectableRow.Scan(append([]any{r.n}, into...)...)
}

// reportSilences finds the silences in the span: those that were sampled, those that were
// acknowledged, and those that are open now.
func reportSilences(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	r.Silences, err = collect[queue.Silence](ctx, tx, r, "silences", `
		WITH seen AS (
			SELECT s.labels ->> 'alert' AS alert, s.labels ->> 'executor' AS executor, max(s.at) AS last_at,
				max(s.value) FILTER (WHERE s.at < $2) AS worst
			FROM public.queue_metric_sample s WHERE s.metric = 'silent_age_seconds' AND s.at >= $1 GROUP BY 1, 2 HAVING min(s.at) < $2
		), acked AS (
			SELECT a.alert_key, a.subject, max(a.cleared_at) FILTER (WHERE a.cleared_reason IN ('beat_returned', 'deregistered')) AS ended_at,
				max(a.cleared_reason) FILTER (WHERE a.cleared_reason IN ('beat_returned', 'deregistered')) AS ended
			FROM public.queue_alert_ack a WHERE a.acked_at < $2 AND COALESCE(a.cleared_at, a.expires_at) >= $1 GROUP BY 1, 2
		), standing AS (
			SELECT v.alert_key, v.subject, v.age_seconds - extract(epoch FROM now() - least(now(), $2::timestamptz)) AS age
			FROM public.v_queue_alert v WHERE v.kind = 'silence' AND v.since < $2
		), keys AS (
			SELECT alert, executor FROM seen UNION SELECT alert_key, subject FROM acked UNION SELECT alert_key, subject FROM standing
		), told AS (
			SELECT k.alert, k.executor, CASE WHEN k.alert ~ '^silence:.*:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$' THEN right(k.alert, 27)::timestamptz END AS beat_at,
				CASE WHEN t.alert_key IS NULL THEN COALESCE(a.ended_at, s.last_at) END AS ended_at,
				CASE WHEN t.alert_key IS NOT NULL THEN '' ELSE COALESCE(a.ended, CASE WHEN s.last_at IS NOT NULL THEN 'last_seen' ELSE 'unknown' END) END AS ended,
				greatest(s.worst, t.age, 0)::bigint AS worst, COALESCE(h.expected_cadence_seconds, 0) AS cadence
			FROM keys k LEFT JOIN seen s ON s.alert = k.alert LEFT JOIN acked a ON a.alert_key = k.alert
			LEFT JOIN standing t ON t.alert_key = k.alert LEFT JOIN public.queue_heartbeat h ON h.executor_id = k.executor
		)
		SELECT count(*) OVER (), t.alert, t.executor, t.beat_at, t.ended_at, t.ended, t.worst, t.cadence
		FROM told t ORDER BY t.worst DESC, t.executor, t.alert LIMIT $3`, r.Since, r.Until, reportRows)
	if err != nil {
		return err
	}
	acks, err := collect[queue.AlertAck](ctx, tx, r, "acks", "SELECT count(*) OVER (), "+ackColumns+`
		FROM public.queue_alert_ack WHERE acked_at < $2 AND COALESCE(cleared_at, expires_at) >= $1 ORDER BY ack_id LIMIT $3`,
		r.Since, r.Until, reportActions)
	for i := range r.Silences {
		r.Silences[i].Acks = []queue.AlertAck{}
		for _, a := range acks {
			if r.Silences[i].Alert == a.AlertKey {
				r.Silences[i].Acks = append(r.Silences[i].Acks, a)
			}
		}
	}
	return err
}

func reportFlags(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	r.Flags, err = collect[queue.FlagChange](ctx, tx, r, "flags", `SELECT count(*) OVER (), a.at, a.target, a.before ->> 'value', a.after ->> 'value',
			(a.after ->> 'reverts_at')::timestamptz, a.actor, a.reason
		FROM public.queue_operator_action a WHERE a.at >= $1 AND a.at < $2 AND a.action IN ('flag_set', 'flag_revert') AND a.outcome = 'done'
		ORDER BY a.id LIMIT $3`, r.Since, r.Until, reportRows)
	return err
}

func reportOperations(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	const in = "WHERE o.created_at < $2 AND (o.state IN ('running', 'paused') OR o.state_at >= $1)"
	var total int
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM public.queue_bulk_operation o "+in, r.Since, r.Until).Scan(&total); err != nil {
		return err
	}
	r.Operations, err = pgrow.Operations(ctx, tx, in+" ORDER BY o.operation_id LIMIT $3", r.Since, r.Until, reportRows)
	if total > len(r.Operations) {
		r.More["operations"] = total - len(r.Operations)
	}
	return err
}

func reportMarks(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	r.Marks, err = collect[queue.Mark](ctx, tx, r, "marks", `SELECT count(*) OVER (), m.at, m.label, m.created_by
		FROM public.queue_mark m WHERE m.at >= $1 AND m.at < $2 ORDER BY m.at LIMIT $3`, r.Since, r.Until, reportRows)
	return err
}

func reportAudit(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	r.Actions, err = collect[queue.AuditEntry](ctx, tx, r, "actions", "SELECT count(*) OVER (), "+foldedSelect+`
		FROM public.queue_operator_action a`+lastBatch+` WHERE a.at >= $1 AND a.at < $2 AND COALESCE(a.batch, 1) = 1 ORDER BY a.id LIMIT $3`,
		r.Since, r.Until, reportActions)
	return err
}

// reportDead groups the dead letters of the span. It reads the newest reportDeadLetters of each source.
func reportDead(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	type story struct {
		queue.DeadStory
		OfSource int64
	}
	stories, err := collect[story](ctx, tx, r, "dead", `
		WITH hooks AS (
			SELECT d.id, d.final_error_code, d.subscription_id, d.failed_at FROM public.dead_letters d
			WHERE d.failed_at >= $1 AND d.failed_at < $2 ORDER BY d.failed_at DESC LIMIT $4
		), jobs AS (
			SELECT d.failure_code, d.job_kind, d.event_domain, d.last_failed_at, d.triage_status FROM public.job_dead_letter d
			WHERE d.last_failed_at >= $1 AND d.last_failed_at < $2 ORDER BY d.last_failed_at DESC LIMIT $4
		), events AS (
			SELECT d.failure_code, d.event_type, d.event_domain, d.last_failed_at, d.resolved_at, d.resolution FROM public.iu_route_dead_letter d
			WHERE d.last_failed_at >= $1 AND d.last_failed_at < $2 ORDER BY d.last_failed_at DESC LIMIT $4
		), dead AS (
			SELECT 'webhook' AS source, h.final_error_code AS code, COALESCE(s.endpoint, '(none)') AS endpoint, 'webhook' AS domain, h.failed_at AS at,
				o.dead_letter_id IS NOT NULL AS open, o.dead_letter_id IS NULL AND q.dead_letter_id IS NOT NULL AS requeued, g.status = 'Completed' AS delivered
			FROM hooks h JOIN public.subscriptions s ON s.id = h.subscription_id
			LEFT JOIN public.dead_letter_open o ON o.dead_letter_id = h.id LEFT JOIN public.dead_letter_requeues q ON q.dead_letter_id = h.id
			LEFT JOIN public.webhook_delivery_sagas g ON g.id = q.new_saga_id
			UNION ALL
			SELECT 'job', j.failure_code, j.job_kind, j.event_domain, j.last_failed_at, j.triage_status = 'open', j.triage_status = 'replayed', NULL FROM jobs j
			UNION ALL
			SELECT 'event', e.failure_code, e.event_type, e.event_domain, e.last_failed_at, e.resolved_at IS NULL, COALESCE(e.resolution = 'replayed', false), NULL FROM events e
		)
		SELECT count(*) OVER (), l.source, l.code, l.endpoint, l.domain, count(*), count(*) FILTER (WHERE l.open), count(*) FILTER (WHERE l.requeued),
			CASE l.source WHEN 'webhook' THEN count(*) FILTER (WHERE l.delivered) END, count(*) FILTER (WHERE NOT l.open AND NOT l.requeued),
			min(l.at), max(l.at), sum(count(*)) OVER (PARTITION BY l.source)::bigint
		FROM dead l GROUP BY 2, 3, 4, 5 ORDER BY count(*) DESC, 2, 3, 4, 5 LIMIT $3`,
		r.Since, r.Until, reportRows, reportDeadLetters+1)
	r.Dead = make([]queue.DeadStory, len(stories))
	for i, s := range stories {
		r.Dead[i] = s.DeadStory
		r.DeadBound = r.DeadBound || s.OfSource > reportDeadLetters
	}
	return err
}
