package work

// This file is what a worker host asks of webhook jobs: claim, renew, and tell what
// became of each.

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
)

// WebhookJob is a claimed job with everything its request needs.
type WebhookJob struct {
	JobID          int64     `db:"job_id"`
	SagaID         int64     `db:"saga_id"`
	AttemptNo      int       `db:"attempt_no"`
	LeaseToken     string    `db:"lease_token"`
	LeaseUntil     time.Time `db:"lease_until"` // server time, for logs only
	LeaseSeconds   int       `db:"lease_seconds"`
	TimeoutSeconds int       `db:"timeout_seconds"`
	EventID        int64     `db:"event_id"`
	EventType      string    `db:"event_type"`
	EventCreated   string    `db:"event_created"` // RFC 3339, UTC
	SubscriptionID int64     `db:"subscription_id"`
	CallbackURL    string    `db:"callback_url"`
	SecretRef      *string   `db:"secret_ref"`
	WebhookID      string    `db:"webhook_id"`
	Payload        *string   `db:"payload"` // nil: it is too long to be handed out
}

// ClaimWebhooks leases up to n jobs, at most per of one subscription and none of
// the subscriptions in skip. The statement commits before anything is
// returned: a job handed out earlier could be settled before its lease shows.
func (c *Client) ClaimWebhooks(ctx context.Context, workerID string, n int, skip []int64, per int) ([]WebhookJob, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	rows, err := c.pool.Query(ctx, `SELECT job_id, saga_id, attempt_no, lease_token::text, lease_until, lease_seconds,
		timeout_seconds, event_id, event_type, subscription_id, callback_url, secret_ref, webhook_id, payload, event_created
		FROM public.fn_webhook_job_claim($1::text, $2::int, $3::bigint[], $4::int)`, workerID, n, skip, per)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByName[WebhookJob])
	return jobs, pgerror.Translate(err)
}

// SecretRefs reads the references of subscriptions; one that has none, or that is
// gone, has none.
func (c *Client) SecretRefs(ctx context.Context, subscriptions []int64) (map[int64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	rows, err := c.pool.Query(ctx, "SELECT s.id, s.secret_ref FROM public.subscriptions s WHERE s.id = ANY ($1::bigint[]) AND s.secret_ref IS NOT NULL", subscriptions)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	refs := map[int64]string{}
	var id int64
	var ref string
	_, err = pgx.ForEachRow(rows, []any{&id, &ref}, func() error {
		refs[id] = ref
		return nil
	})
	return refs, pgerror.Translate(err)
}

// WebhookReport is the outcome of one attempt.
type WebhookReport struct {
	JobID      int64      `json:"job_id"`
	LeaseToken string     `json:"lease_token"`
	Delivered  bool       `json:"delivered"`
	Status     *int       `json:"status"`
	Code       *string    `json:"code"`
	Excerpt    string     `json:"excerpt"`
	RetryAfter *time.Time `json:"retry_after"`
	TookMS     float64    `json:"took_ms"`
	Unsent     bool       `json:"unsent,omitempty"` // it failed before anything was sent: the endpoint is not to blame
}

// JobOutcome is what the database made of a report, a renewal or a release.
type JobOutcome struct {
	JobID   int64  `db:"job_id"`
	Outcome string `db:"outcome"` // done, repeated, lease_lost
}

// ReportWebhooks records results; safe to repeat, for the reply to a commit can
// be lost.
func (c *Client) ReportWebhooks(ctx context.Context, reports []WebhookReport) ([]JobOutcome, error) {
	return c.outcomes(ctx, "SELECT job_id, outcome FROM public.fn_webhook_job_report($1::jsonb)", reports)
}

// RenewWebhooks prolongs leases.
func (c *Client) RenewWebhooks(ctx context.Context, ids []int64, tokens []string) ([]JobOutcome, error) {
	return c.outcomes(ctx, "SELECT job_id, outcome FROM public.fn_webhook_job_renew($1::bigint[], $2::uuid[])", ids, tokens)
}

// ReleaseWebhooks hands jobs back unattempted.
func (c *Client) ReleaseWebhooks(ctx context.Context, ids []int64, tokens []string) ([]JobOutcome, error) {
	return c.outcomes(ctx, "SELECT job_id, outcome FROM public.fn_webhook_job_release($1::bigint[], $2::uuid[])", ids, tokens)
}

func (c *Client) outcomes(ctx context.Context, sql string, args ...any) ([]JobOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	rows, err := c.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByName[JobOutcome])
	return out, pgerror.Translate(err)
}
