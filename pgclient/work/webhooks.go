package work

import (
	"context"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
)

// WebhookJob is a claimed job with everything that is needed to send its request.
type WebhookJob struct {
	JobID          int64
	SagaID         int64
	AttemptNo      int
	LeaseToken     string
	LeaseUntil     time.Time // server time
	LeaseSeconds   int       // length of the lease, by the server's clock
	TimeoutSeconds int       // for the whole request; shorter than the lease
	EventID        int64
	EventType      string
	EventCreated   string // RFC 3339, UTC
	SubscriptionID int64
	CallbackURL    string
	SecretRef      *string // name of the secret to sign with; nil = unsigned
	WebhookID      string  // header webhook-id: the same for all attempts and requeues
	Payload        *string // nil: read it with WebhookPayload
	Paced          bool    // the claim used a token of a rate limit: within 250 ms send it or begin to read its payload, or release it
}

// ClaimWebhooks leases up to n jobs: at most per jobs of one subscription, and none of the
// subscriptions in skip. If after is not 0, jobs without a rate limit are leased only if their id
// is greater than after. The claim is committed before the jobs are returned; otherwise a worker
// could settle a job before other sessions see its lease. If the database cannot read the payload of
// one of the jobs, all that are stored apart from their rows are left out.
func (c *Client) ClaimWebhooks(ctx context.Context, workerID string, n int, skip []int64, per int, after int64) ([]WebhookJob, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	jobs, err := c.claimWebhooks(ctx, workerID, n, skip, per, after, ClaimedPayload)
	if pgerror.ValueUnreadable(err) {
		jobs, err = c.claimWebhooks(ctx, workerID, n, skip, per, after, 0)
	}
	return jobs, pgerror.Translate(err)
}

func (c *Client) claimWebhooks(ctx context.Context, workerID string, n int, skip []int64, per int, after int64, payloadBytes int) ([]WebhookJob, error) {
	return pgrow.All[WebhookJob](ctx, c.pool, `SELECT job_id, saga_id, attempt_no, lease_token::text, lease_until, lease_seconds,
		timeout_seconds, event_id, event_type, event_created, subscription_id, callback_url, secret_ref, webhook_id, payload, paced
		FROM public.fn_webhook_job_claim($1::text, $2::int, $3::bigint[], $4::int, $5::bigint, $6::int)`,
		workerID, n, skip, per, after, payloadBytes)
}

// WebhookClaimLost releases jobs that this worker host claimed in claims whose reply was lost: all
// its leases except those with the known tokens. It returns their number. The caller makes sure
// that no claim is in flight.
func (c *Client) WebhookClaimLost(ctx context.Context, workerID string, known []string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	err = c.pool.QueryRow(ctx, "SELECT public.fn_webhook_claim_lost($1::text, $2::text[]::uuid[])", workerID, known).Scan(&n)
	return n, pgerror.Translate(err)
}

// WebhookPayload reads the payload of an event whose claim did not include it; the text is nil if
// it is longer than maxBytes.
func (c *Client) WebhookPayload(ctx context.Context, event, maxBytes int64) (Payload, error) {
	p, err := c.payload(ctx, `SELECT octet_length(x.t)::bigint, CASE WHEN octet_length(x.t) <= $2::bigint THEN x.t END FROM (
		SELECT CASE WHEN public.fn_payload_fits(e.payload) THEN e.payload::text END AS t FROM public.events e WHERE e.id = $1::bigint OFFSET 0) x`, event, maxBytes)
	return p, pgerror.Translate(err)
}

// SecretRefs reads the secret references of subscriptions. The map has no entry for a subscription
// without a reference, or for an id that does not exist.
func (c *Client) SecretRefs(ctx context.Context, subscriptions []int64) (map[int64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	refs := map[int64]string{}
	var id int64
	var ref string
	err := pgrow.Visit(ctx, c.pool, []any{&id, &ref}, func() { refs[id] = ref },
		"SELECT s.id, s.secret_ref FROM public.subscriptions s WHERE s.id = ANY ($1::bigint[]) AND s.secret_ref IS NOT NULL", subscriptions)
	return refs, pgerror.Translate(err)
}

// WebhookReport is the outcome of one attempt.
type WebhookReport struct {
	JobID      int64      `json:"job_id"`
	LeaseToken string     `json:"lease_token"`
	Delivered  bool       `json:"delivered"`
	Status     *int       `json:"status"`      // HTTP status; nil = no answer
	Code       *string    `json:"code"`        // failure code such as HTTP_503 or TIMEOUT; nil = delivered
	Excerpt    string     `json:"excerpt"`     // the start of the answer
	RetryAfter *time.Time `json:"retry_after"` // from the header Retry-After; nil = none
	TookMS     float64    `json:"took_ms"`
	Unsent     bool       `json:"unsent,omitempty"` // the attempt failed before anything was sent, so it does not count against the endpoint
}

// JobOutcome is the database's answer to a report, a renewal or a release.
type JobOutcome struct {
	JobID   int64
	Outcome string // done, repeated, lease_lost
}

// ReportWebhooks records results. Safe to repeat, because the reply to a commit can be lost. A row
// that another session has locked fails the whole call.
func (c *Client) ReportWebhooks(ctx context.Context, reports []WebhookReport) ([]JobOutcome, error) {
	return c.outcomes(ctx, JobTimeout, "SELECT job_id, outcome FROM public.fn_webhook_job_report($1::jsonb)", reports)
}

// RenewWebhooks extends leases on webhook jobs to their full length from now.
func (c *Client) RenewWebhooks(ctx context.Context, ids []int64, tokens []string) ([]JobOutcome, error) {
	return c.outcomes(ctx, pgpool.ReadTimeout, "SELECT job_id, outcome FROM public.fn_webhook_job_renew($1::bigint[], $2::uuid[])", ids, tokens)
}

// ReleaseWebhooks returns jobs to the queue without using up an attempt.
func (c *Client) ReleaseWebhooks(ctx context.Context, ids []int64, tokens []string) ([]JobOutcome, error) {
	return c.outcomes(ctx, pgpool.ReadTimeout, "SELECT job_id, outcome FROM public.fn_webhook_job_release($1::bigint[], $2::uuid[])", ids, tokens)
}

func (c *Client) outcomes(ctx context.Context, within time.Duration, sql string, args ...any) ([]JobOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	out, err := pgrow.All[JobOutcome](ctx, c.pool, sql, args...)
	return out, pgerror.Translate(err)
}
