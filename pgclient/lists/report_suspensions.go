package lists

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/queue"
)

// reportSnapshots is the largest number of stored snapshots that a report reads.
const reportSnapshots = 240

// reportSuspensions finds the suspensions and open circuits of the span: those in stored snapshots,
// those that the audit has, and those that last. Nothing else records when a circuit opened; one
// that closed again between two of the snapshots read is missing.
func reportSuspensions(ctx context.Context, tx pgx.Tx, r *queue.Report) (err error) {
	step := max(time.Minute, r.Until.Sub(r.Since)/reportSnapshots).Seconds()
	r.Suspensions, err = collect[queue.SuspendedTime](ctx, tx, r, "suspensions", `
		WITH stored AS MATERIALIZED (
			SELECT DISTINCT ON (p.taken_at) p.taken_at, p.body::jsonb -> 'suspended' AS suspended
			FROM generate_series($1::timestamptz, $2::timestamptz, make_interval(secs => $4)) t
			CROSS JOIN LATERAL public.fn_queue_picture_at(t) p WHERE p.taken_at >= $1::timestamptz - interval '2 minutes'
		), seen AS (
			SELECT (x.row ->> 'subscription_id')::bigint AS sub, (x.row ->> 'since')::timestamptz AS since, x.row ->> 'reason' AS reason,
				max(x.row ->> 'by') AS by, max(x.row ->> 'note') AS note, max(s.taken_at) AS last_at
			FROM stored s CROSS JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(s.suspended) WHEN 'array' THEN s.suspended ELSE '[]' END) x (row)
			GROUP BY 1, 2, 3
		), suspended AS (
			SELECT (a.after ->> 'subscription_id')::bigint AS sub, (a.after ->> 'since')::timestamptz AS since, a.after ->> 'reason' AS reason,
				a.after ->> 'by' AS by, a.after ->> 'note' AS note, (a.after ->> 'until')::timestamptz AS until
			FROM public.queue_operator_action a WHERE a.at >= $1 AND a.at < $2 AND a.action = 'endpoint_suspend' AND a.outcome = 'done'
		), resumed AS (
			SELECT (a.before ->> 'subscription_id')::bigint AS sub, (a.before ->> 'since')::timestamptz AS since, a.before ->> 'reason' AS reason,
				a.before ->> 'by' AS by, a.before ->> 'note' AS note, a.at, a.actor
			FROM public.queue_operator_action a WHERE a.at >= $1 AND a.at < $2 AND a.action = 'endpoint_resume' AND a.outcome = 'done'
		), lasting AS (
			SELECT g.subscription_id AS sub, g.suspended_since AS since, g.suspended_reason AS reason, g.suspended_by AS by, g.suspended_note AS note FROM public.v_webhook_gate g
			WHERE g.suspended_since < $2 AND (g.suspended_reason = 'circuit' OR COALESCE(g.suspended_until > now(), true))
		), keys AS (
			SELECT sub, since, reason FROM seen UNION SELECT sub, since, reason FROM suspended
			UNION SELECT sub, since, reason FROM resumed UNION SELECT sub, since, reason FROM lasting
		)
		SELECT count(*) OVER (), k.sub, COALESCE(s.endpoint::text, '(none)'), k.reason, k.since, COALESCE(o.by, n.by, u.by, l.by, ''), COALESCE(u.note, o.note, l.note, n.note, ''),
			CASE WHEN l.sub IS NOT NULL THEN NULL WHEN o.sub IS NOT NULL THEN o.at WHEN u.until <= now() THEN u.until ELSE n.last_at END,
			CASE WHEN l.sub IS NOT NULL THEN '' WHEN o.sub IS NOT NULL THEN 'resumed' WHEN u.until <= now() THEN 'expired'
				WHEN n.sub IS NOT NULL THEN 'last_seen' ELSE 'unknown' END, COALESCE(o.actor, '')
		FROM keys k LEFT JOIN seen n USING (sub, since, reason) LEFT JOIN suspended u USING (sub, since, reason)
		LEFT JOIN resumed o USING (sub, since, reason) LEFT JOIN lasting l USING (sub, since, reason)
		LEFT JOIN public.subscriptions s ON s.id = k.sub
		ORDER BY k.since, k.sub LIMIT $3`, r.Since, r.Until, reportRows, step)
	return err
}
