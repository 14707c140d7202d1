package pgclient

// This file is what a worker host asks of the database: to be announced, to
// tick, to claim, report and hand back webhook jobs.

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgscan"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/queue"
)

// call runs a jsonb function on the work pool and returns its refusal, if any.
func (c *Client) call(ctx context.Context, sql string, args ...any) (string, error) {
	var r pgscan.Refusal
	if err := c.work.QueryRow(ctx, sql, args...).Scan(&r); err != nil {
		return "", pgerror.Translate(err)
	}
	if r.Refused {
		return r.Reason, nil
	}
	return "", nil
}

// HostRegister announces a host; a non-empty string is the refusal.
func (c *Client) HostRegister(ctx context.Context, id, instance, version string, loops []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	return c.call(ctx, "SELECT public.fn_queue_host_register($1::text, $2::uuid, $3::text, $4::text[])", id, instance, version, loops)
}

// HostBeat is a sign of life; a non-empty string says that the id was lost.
func (c *Client) HostBeat(ctx context.Context, id, instance string, loops []string, inFlight int, progress map[string]queue.LoopMark) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	return c.call(ctx, "SELECT public.fn_queue_host_beat($1::text, $2::uuid, $3::text[], $4::int, $5::jsonb)", id, instance, loops, inFlight, progress)
}

// HostStop says that the host ended cleanly.
func (c *Client) HostStop(ctx context.Context, id, instance string) error {
	_, err := c.call(ctx, "SELECT public.fn_queue_host_stop($1::text, $2::uuid)", id, instance)
	return err
}

// NewListener makes a listener beside the console's own.
func (c *Client) NewListener(use string, onWake func(queue.Wake), resync func()) (*Listener, error) {
	dsn, route := c.opts.ListenDSN, &pgsession.Route{}
	if dsn == "" {
		dsn, route = c.opts.DSN, c.route
	}
	cc, err := pgpool.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return newListener(cc, route, c.opts.Program+" "+use, c.read, onWake, resync), nil
}

// TickResult is what fn_queue_tick_request answers.
type TickResult struct {
	Ran     bool
	Skipped string
	Reason  string
	Failed  bool
	Error   string
	TookMS  float64
	AuditID int64            // of an operator's tick
	Result  map[string]int64 // the numbers of the worker's own result
	Raw     json.RawMessage
}

// Work is how much the tick did, by the rule of fn_queue_tick_request.
func (t TickResult) Work() int64 {
	var sum int64
	for k, n := range t.Result {
		switch k {
		case "held", "waiting", "in_flight", "checked", "total":
		default:
			sum += n
		}
	}
	return sum
}

// Tick asks for one run of a tick worker.
func (c *Client) Tick(ctx context.Context, worker, source string) (TickResult, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.WorkTimeout)
	defer cancel()
	var raw []byte
	err := c.work.QueryRow(ctx, "SELECT public.fn_queue_tick_request($1::text, $2::text)", worker, source).Scan(&raw)
	if err != nil {
		return TickResult{}, pgerror.Translate(err)
	}
	return ParseTick(raw)
}

// ParseTick reads what a tick answered.
func ParseTick(raw []byte) (TickResult, error) {
	var body struct {
		Ran     bool                       `json:"ran"`
		Skipped string                     `json:"skipped"`
		Reason  string                     `json:"reason"`
		Failed  bool                       `json:"failed"`
		Error   string                     `json:"error"`
		TookMS  float64                    `json:"took_ms"`
		AuditID int64                      `json:"audit_id"`
		Result  map[string]json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return TickResult{}, err
	}
	res := TickResult{
		Ran: body.Ran, Skipped: body.Skipped, Reason: body.Reason, Failed: body.Failed, Error: body.Error,
		TookMS: body.TookMS, AuditID: body.AuditID, Result: map[string]int64{}, Raw: raw,
	}
	for k, v := range body.Result {
		var n int64
		if json.Unmarshal(v, &n) == nil {
			res.Result[k] = n
		}
	}
	return res, nil
}

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
	rows, err := c.work.Query(ctx, `SELECT job_id, saga_id, attempt_no, lease_token::text, lease_until, lease_seconds,
		timeout_seconds, event_id, event_type, subscription_id, callback_url, secret_ref, webhook_id, payload
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
	rows, err := c.work.Query(ctx, "SELECT s.id, s.secret_ref FROM public.subscriptions s WHERE s.id = ANY ($1::bigint[]) AND s.secret_ref IS NOT NULL", subscriptions)
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

// SigningFault is a subscription that a live host cannot sign.
type SigningFault struct {
	Host         queue.Text
	Subscription int64
	What, Do     queue.Text
}

// SigningFaults lists them, and counts the live hosts that send webhooks.
func (c *Client) SigningFaults(ctx context.Context) (faults []SigningFault, hosts int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	rows, err := c.read.Query(ctx, `SELECT f.host_id, f.subscription_id, f.what, f.remedy FROM public.v_signing_fault f
		ORDER BY f.subscription_id, f.host_id LIMIT 100`)
	if err != nil {
		return nil, 0, pgerror.Translate(err)
	}
	if faults, err = pgx.CollectRows(rows, pgx.RowToStructByPos[SigningFault]); err != nil {
		return nil, 0, pgerror.Translate(err)
	}
	err = c.read.QueryRow(ctx, `SELECT count(*)::int FROM public.queue_host q WHERE q.stopped_at IS NULL
		AND q.last_seen_at > now() - interval '15 seconds' AND 'webhook_worker' = ANY (q.loops)`).Scan(&hosts)
	return faults, hosts, pgerror.Translate(err)
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
	rows, err := c.work.Query(ctx, sql, args...)
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByName[JobOutcome])
	return out, pgerror.Translate(err)
}
