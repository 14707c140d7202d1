package lists

// The lineage of a dead letter is what led to it and what happened afterwards, over all
// generations: event → saga → jobs → dead letter → requeued saga, job → dead letter →
// replayed job, event → attempts → dead letter. Of a long chain, only the generations nearest
// to the dead letter are read.

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// steps runs the query sql for the lineage of a dead letter. Its columns are: kind, id, status,
// at, by, generation, number of generations left out.
func steps(ctx context.Context, db *pgpool.Pool, d *queue.DeadLetterDetail, sql string, args ...any) (err error) {
	d.Lineage, err = pgrow.Each(ctx, db, func(row pgx.CollectableRow) (queue.LineageStep, error) {
		var s queue.LineageStep
		var status queue.Text
		err := row.Scan(&s.Kind, &s.ID, &status, &s.At, &s.By, &s.Generation, &d.LineageLeft)
		s.Status, s.Current = status.String(), s.Kind == "dead_letter" && s.ID == queue.Clean(d.ID)
		return s, err
	}, sql, args...)
	return err
}

const lineageShown = queue.LineageShown

// hookLineage reads every saga of the event and subscription, each with its jobs, its dead letter
// and its requeue.
func hookLineage(ctx context.Context, db *pgpool.Pool, d *queue.DeadLetterDetail) error {
	near := "BETWEEN $3 - " + strconv.Itoa(lineageShown) + " AND $3 + " + strconv.Itoa(lineageShown)
	return steps(ctx, db, d, `
		WITH sagas AS (
			SELECT g.id, g.status::text AS status, g.updated_at, g.requeue_generation AS n FROM public.webhook_delivery_sagas g
			WHERE g.id IN (SELECT d.saga_id FROM public.dead_letters d WHERE d.event_id = $1 AND d.subscription_id = $2 UNION ALL
				SELECT l.id FROM public.webhook_delivery_sagas l WHERE l.event_id = $1 AND l.subscription_id = $2 AND l.status <> 'DeadLettered')
		), shown AS (SELECT * FROM sagas WHERE n `+near+`)
		SELECT kind, id, status, at, by, n, (SELECT count(*) FROM sagas WHERE n NOT `+near+`) FROM (
			SELECT 'event' AS kind, e.id::text AS id, e.event_type::text AS status, e.created_at AS at, NULL::text AS by, 0 AS n, -1 AS step, 0 AS no
			FROM public.events e WHERE e.id = $1
			UNION ALL
			SELECT 'saga', g.id::text, g.status, g.updated_at, NULL, g.n, 0, 0 FROM shown g
			UNION ALL
			SELECT 'job', j.id::text, COALESCE(j.error_code, j.status::text), COALESCE(j.finished_at, j.started_at, j.attempt_at), j.worker_id, g.n, 1, j.attempt_no
			FROM shown g JOIN public.webhook_delivery_jobs j ON j.saga_id = g.id
			UNION ALL
			SELECT 'dead_letter', l.id::text, l.final_error_code, l.failed_at, NULL, g.n, 2, 0 FROM shown g JOIN public.dead_letters l ON l.saga_id = g.id
			UNION ALL
			SELECT 'requeue', r.new_saga_id::text, r.reason, r.requeued_at, r.requeued_by, g.n, 3, 0
			FROM shown g JOIN public.dead_letters l ON l.saga_id = g.id JOIN public.dead_letter_requeues r ON r.dead_letter_id = l.id
			UNION ALL
			SELECT 'closed', l.id::text, x.resolution::text, x.at, x.by, g.n, 4, 0
			FROM shown g JOIN public.dead_letters l ON l.saga_id = g.id JOIN public.dead_letter_resolutions x ON x.dead_letter_id = l.id
		) steps ORDER BY n, step, no, at`, d.EventID, d.SubscriptionID, d.Generation)
}

// jobLineage reads the chain of replays from the first job to the last. Of a job whose history
// partition was dropped, only its dead letter is known.
func jobLineage(ctx context.Context, db *pgpool.Pool, d *queue.DeadLetterDetail, deadLetter string) error {
	near := "BETWEEN -" + strconv.Itoa(lineageShown) + " AND " + strconv.Itoa(lineageShown)
	return steps(ctx, db, d, `
		WITH RECURSIVE up (id, job_id, n) AS (
			SELECT d.dead_letter_id, d.job_id, 0 FROM public.job_dead_letter d WHERE d.dead_letter_id = $1
			UNION ALL
			SELECT e.dead_letter_id, e.job_id, up.n - 1 FROM up JOIN public.job_dead_letter e ON e.replayed_job_id = up.job_id WHERE up.n > -1000
		), down (id, replayed, n) AS (
			SELECT d.dead_letter_id, d.replayed_job_id, 0 FROM public.job_dead_letter d WHERE d.dead_letter_id = $1
			UNION ALL
			SELECT e.dead_letter_id, e.replayed_job_id, down.n + 1 FROM down JOIN public.job_dead_letter e ON e.job_id = down.replayed WHERE down.n < 1000
		), whole AS (SELECT id, n FROM up UNION SELECT id, n FROM down
		), chain AS (
			SELECT d.dead_letter_id, d.job_id, d.failure_code, d.first_failed_at, d.last_failed_at, d.triage_status, d.triage_note,
				d.resolved_at, d.resolved_by, d.resolution, d.replayed_job_id, x.n
			FROM whole x JOIN public.job_dead_letter d ON d.dead_letter_id = x.id WHERE x.n `+near+`
		), jobs (job_id, n) AS (
			SELECT job_id, n FROM chain
			UNION ALL
			SELECT replayed_job_id, n + 1 FROM chain c
			WHERE replayed_job_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chain x WHERE x.job_id = c.replayed_job_id)
		)
		SELECT kind, id, status, at, by, n + $2::int, (SELECT count(*) FROM whole WHERE n NOT `+near+`) FROM (
			SELECT 'event' AS kind, v.causation_event_id::text AS id, '' AS status, NULL::timestamptz AS at, NULL::text AS by, j.n, -1 AS step
			FROM (SELECT job_id, n FROM jobs ORDER BY n LIMIT 1) j
			CROSS JOIN LATERAL (SELECT x.causation_event_id FROM public.v_job x WHERE x.job_id = j.job_id LIMIT 1) v WHERE v.causation_event_id IS NOT NULL
			UNION ALL
			SELECT 'job', j.job_id::text, COALESCE(v.status, 'its history was dropped'), v.at, v.runner, j.n, 0
			FROM jobs j
			LEFT JOIN LATERAL (SELECT x.status, COALESCE(x.finished_at, CASE WHEN x.lease_owner IS NULL THEN x.updated_at ELSE x.picked_at END) AS at,
				COALESCE(x.lease_owner, CASE WHEN x.finished_at IS NULL THEN x.actor END) AS runner FROM public.v_job x WHERE x.job_id = j.job_id LIMIT 1) v ON true
			UNION ALL
			SELECT 'dead_letter', 'job:' || dead_letter_id, failure_code, last_failed_at, NULL, n, 1 FROM chain
			UNION ALL
			SELECT 'requeue', replayed_job_id::text, triage_note, resolved_at, resolved_by, n, 2 FROM chain WHERE replayed_job_id IS NOT NULL
			UNION ALL
			SELECT 'closed', 'job:' || dead_letter_id, resolution, resolved_at, resolved_by, n, 2 FROM chain
			WHERE replayed_job_id IS NULL AND resolved_at IS NOT NULL
		) steps ORDER BY n, step`, deadLetter, d.Generation)
}

// eventLineage reads the event, the recipients that it reached, the dead letter, and the
// resolution that closed it.
func eventLineage(ctx context.Context, db *pgpool.Pool, d *queue.DeadLetterDetail, deadLetter string) error {
	return steps(ctx, db, d, `
		WITH l AS (SELECT d.dead_letter_id, d.event_id, d.event_type, d.failure_code, d.last_failed_at, d.worker_name, d.resolution, d.resolved_at,
			d.resolved_by FROM public.iu_route_dead_letter d WHERE d.dead_letter_id = $1)
		SELECT kind, id, status, at, by, 0, 0::bigint FROM (
			SELECT 'event' AS kind, l.event_id::text AS id, l.event_type AS status, e.created_at AS at, e.actor_ref AS by, 0 AS step
			FROM l LEFT JOIN LATERAL (SELECT o.created_at, o.actor_ref FROM public.event_outbox o WHERE o.id = l.event_id LIMIT 1) e ON true
			UNION ALL
			(SELECT 'attempt', a.recipient_ref, 'step ' || a.step, a.attempted_at, a.worker_name, 1
			FROM l JOIN public.iu_route_attempt a ON a.event_id = l.event_id ORDER BY a.attempted_at, a.recipient_ref LIMIT 100)
			UNION ALL
			SELECT 'dead_letter', 'event:' || l.dead_letter_id, l.failure_code, l.last_failed_at, l.worker_name, 2 FROM l
			UNION ALL
			SELECT 'closed', 'event:' || l.dead_letter_id, l.resolution, l.resolved_at, l.resolved_by, 3 FROM l WHERE l.resolved_at IS NOT NULL
		) steps ORDER BY step, at, id`, deadLetter)
}
