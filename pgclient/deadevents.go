package pgclient

// This file reads the dead letters of events that could not be routed: their part
// of the list, and one with what failed and what became of it.

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/filtersql"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/queue"
)

const eventPrefix = "event:"

func isEventLetter(id string) bool { return strings.HasPrefix(strings.TrimSpace(id), eventPrefix) }

const deadEventFrom = "public.iu_route_dead_letter d"

const deadEventState = "CASE WHEN d.resolved_at IS NULL THEN 'open' WHEN d.resolution = 'replayed' THEN 'requeued' ELSE 'resolved' END"

var deadEventColumns = map[string]filtersql.Column{
	"id": {Expr: "'event:' || d.dead_letter_id", Number: "NULL::numeric"}, "code": {Expr: "d.failure_code"}, "endpoint": {Expr: "d.event_type"},
	"subscription": {Expr: "NULL::bigint"}, "domain": {Expr: "d.event_domain"}, "kind": {Expr: "'event'"},
	"type": {Expr: "d.event_type"}, "age": {Expr: "d.last_failed_at"}, "failed": {Expr: "d.last_failed_at"},
	"source": {Expr: "'event'"}, "state": {Expr: deadEventState},
}

func (c *Client) eventLetters(ctx context.Context, b *filtersql.Builder, mark deadMark, limit int) ([]queue.DeadLetter, error) {
	mark.event.after(b)
	rows, err := c.read.Query(ctx, `SELECT 'event:' || d.dead_letter_id, `+deadEventState+`, d.failure_code, d.event_type, d.event_domain,
		d.last_failed_at, floor(public.fn_age(d.last_failed_at))::bigint FROM `+deadEventFrom+b.Clause()+`
		ORDER BY d.last_failed_at DESC, d.dead_letter_id DESC LIMIT `+strconv.Itoa(limit), b.Args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (queue.DeadLetter, error) {
		l := queue.DeadLetter{Source: "event"}
		err := row.Scan(&l.ID, &l.State, pgscan.Text(&l.Code), pgscan.Text(&l.EventType), pgscan.Text(&l.Domain), &l.FailedAt, &l.AgeSeconds)
		l.Endpoint = l.EventType
		return l, err
	})
}

func (c *Client) eventLetter(ctx context.Context, id string) (*queue.DeadLetterDetail, error) {
	uuid, err := uuidOf(id, "event dead letter", eventPrefix)
	if err != nil {
		return nil, err
	}
	d := queue.DeadLetterDetail{DeadLetter: queue.DeadLetter{ID: queue.EventLetter(uuid), Source: "event"}}
	var by, note, resolution queue.Text
	var at *time.Time
	err = c.read.QueryRow(ctx, `SELECT `+deadEventState+`, d.failure_code, d.event_type, d.event_domain, d.last_failed_at,
		floor(public.fn_age(d.last_failed_at))::bigint, d.event_id::text, d.worker_name, d.last_error,
		d.resolution, d.resolved_by, d.resolved_at, d.note
		FROM `+deadEventFrom+` WHERE d.dead_letter_id = $1`, uuid).
		Scan(&d.State, pgscan.Text(&d.Code), pgscan.Text(&d.EventType), pgscan.Text(&d.Domain), &d.FailedAt, &d.AgeSeconds, &d.RoutedID,
			pgscan.Text(&d.Worker), pgscan.Text(&d.LastError), pgscan.Text(&resolution), pgscan.Text(&by), &at, pgscan.Text(&note))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &queue.Error{Kind: queue.KindFailed, What: queue.Clean("there is no dead letter " + d.ID)}
	}
	if err != nil {
		return nil, err
	}
	d.Endpoint = d.EventType
	switch d.State {
	case "requeued":
		d.RequeuedBy, d.RequeuedAt = by, at
	case "resolved":
		d.Resolution, d.ResolvedBy, d.ResolvedAt, d.ResolvedNote = resolution, by, at, note
	}
	err = c.eventLineage(ctx, &d, uuid)
	return &d, err
}
