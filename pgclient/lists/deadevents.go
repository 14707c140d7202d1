package lists

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/parseid"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

func eventDeadLetters(ctx context.Context, db *pgpool.Pool, b *filtersql.Builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	if b.None() {
		return nil, nil
	}
	mark.event.after(b)
	return pgrow.All[queue.DeadLetter](ctx, db, `SELECT 'event:' || d.dead_letter_id, 'event', `+filtersql.DeadEventState+`, d.failure_code, d.event_type,
		d.event_domain, 0, 0, d.event_type, 0, 0, d.last_failed_at, floor(public.fn_age(d.last_failed_at))::bigint, NULL::timestamptz, NULL::text FROM `+newest(b, limit)+` JOIN `+filtersql.DeadEventFrom+` USING (dead_letter_id)
		ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC`, db.Planned(b.Args)...)
}

func eventDeadLetter(ctx context.Context, db *pgpool.Pool, id string) (*queue.DeadLetterDetail, error) {
	uuid, err := parseid.UUID(id, "event dead letter", parseid.EventPrefix)
	if err != nil {
		return nil, err
	}
	d := queue.DeadLetterDetail{DeadLetter: queue.DeadLetter{ID: queue.EventDeadLetterID(uuid), Source: "event"}, Attempts: []queue.Attempt{}}
	var by, note, resolution queue.Text
	var at *time.Time
	err = db.QueryRow(ctx, `SELECT `+filtersql.DeadEventState+`, d.failure_code, d.event_type, d.event_domain, d.last_failed_at,
		floor(public.fn_age(d.last_failed_at))::bigint, d.event_id::text, d.worker_name, d.last_error,
		d.resolution, d.resolved_by, d.resolved_at, d.note
		FROM `+filtersql.DeadEventFrom+` WHERE d.dead_letter_id = $1`, uuid).
		Scan(&d.State, &d.Code, &d.EventType, &d.Domain, &d.FailedAt, &d.AgeSeconds, &d.RoutedID,
			&d.Worker, &d.LastError, &resolution, &by, &at, &note)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("there is no dead letter " + d.ID), Do: queue.Clean("qtop dlq lists those that are open; closed ones are removed by retention")}
	}
	if err != nil {
		return nil, err
	}
	d.Endpoint = d.EventType
	setClosure(&d, resolution, by, at, note)
	err = eventLineage(ctx, db, &d, uuid)
	return &d, err
}
