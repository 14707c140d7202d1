package work

// This file is what a worker host asks of the job queue: claim, start, renew,
// and tell what became of each job.

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
)

// JobTimeout bounds one statement over up to a thousand jobs: on a loaded machine
// it may take seconds, and one that is given up may have been committed.
const JobTimeout = 15 * time.Second

// Job is a leased job.
type Job struct {
	ID, Token      pgtype.UUID
	Root           pgtype.UUID // the first job of a line of replays, else ID
	Kind, Domain   string
	Executor       string
	Priority       int32
	ProcessAfter   pgtype.Timestamptz // may be infinite
	Attempts       int32              // finished tries
	MaxAttempts    int32
	LostLeases     int32 // not 0: it may be what killed a host, and is worked on alone
	EnqueuedAt     time.Time
	LeaseUntil     time.Time     // server time, for the handler to see
	Lease          time.Duration // how long the lease lasts, by the server's clock alone
	SourceRef      string
	TargetRef      string
	PayloadRef     string
	IdempotencyKey string
	CorrelationID  string
	Payload        []byte // the text of the jsonb; nil: read it with JobPayload
}

// Lane names the lane of the job as JobKeys does.
func (j *Job) Lane() string { return j.Domain + "/" + j.Kind }

// Key is where the job stands in its lane.
func (j *Job) Key() JobKey { return JobKey{j.Priority, j.ProcessAfter, j.ID} }

// JobKey is a place in a lane.
type JobKey struct {
	Priority     int32
	ProcessAfter pgtype.Timestamptz
	ID           pgtype.UUID
}

// JobKeys says where a worker stopped in each lane, by Job.Lane.
type JobKeys map[string]JobKey

// argument is the form of p_after: nil for none.
func (k JobKeys) argument() any {
	if len(k) == 0 {
		return nil
	}
	out := make(map[string][3]any, len(k))
	for lane, key := range k {
		due := key.ProcessAfter.InfinityModifier.String()
		if key.ProcessAfter.InfinityModifier == pgtype.Finite {
			due = timeText(key.ProcessAfter.Time.UTC())
		}
		out[lane] = [3]any{key.Priority, due, key.ID.String()}
	}
	return out
}

// timeText is the form of a time that PostgreSQL reads, also before year 1, where RFC 3339 has none.
func timeText(t time.Time) string {
	year, era := t.Year(), ""
	if year < 1 {
		year, era = 1-year, " BC"
	}
	return fmt.Sprintf("%04d", year) + t.Format("-01-02T15:04:05.999999999Z07:00") + era
}

// interned keeps one copy of a text that repeats from row to row.
type interned struct{ last string }

// ScanBytes implements pgtype.BytesScanner.
func (s *interned) ScanBytes(v []byte) error {
	if string(v) != s.last { // does not allocate
		s.last = string(v)
	}
	return nil
}

// optional is a text whose NULL is "".
type optional struct{ s string }

// ScanBytes implements pgtype.BytesScanner.
func (o *optional) ScanBytes(v []byte) error {
	o.s = ""
	if len(v) > 0 {
		o.s = string(v)
	}
	return nil
}

// JobLease names a lease of a job: every result is fenced by its token.
type JobLease struct{ ID, Token pgtype.UUID }

// columns takes leases apart.
func columns(leases []JobLease) (ids, tokens pgtype.FlatArray[pgtype.UUID]) {
	ids, tokens = make([]pgtype.UUID, len(leases)), make([]pgtype.UUID, len(leases))
	for i, l := range leases {
		ids[i], tokens[i] = l.ID, l.Token
	}
	return ids, tokens
}

// JobStart says that leased jobs are being worked on; it returns those whose lease
// is lost.
func (c *Client) JobStart(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, "SELECT job_id FROM public.fn_job_start($1::uuid[], $2::uuid[]) WHERE outcome <> 'done'", ids, tokens)
}

// JobRenew makes leases last their full time from now; it returns those that are
// lost.
func (c *Client) JobRenew(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, "SELECT job_id FROM public.fn_job_renew($1::uuid[], $2::uuid[]) WHERE outcome <> 'done'", ids, tokens)
}

// JobAck records success; it returns those whose lease was lost. Safe to repeat,
// for the reply to a commit can be lost.
func (c *Client) JobAck(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, "SELECT job_id FROM public.fn_job_ack($1::uuid[], $2::uuid[]) WHERE outcome <> 'done'", ids, tokens)
}

// JobRelease hands jobs back without spending an attempt; it returns those whose
// lease was lost. Safe to repeat.
func (c *Client) JobRelease(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, "SELECT job_id FROM public.fn_job_release($1::uuid[], $2::uuid[]) WHERE outcome <> 'done'", ids, tokens)
}

// JobClaimLost hands back what claims of this client leased for an executor whose
// answer did not arrive: all leases but those with the known tokens. No claim for the
// executor may be under way.
func (c *Client) JobClaimLost(ctx context.Context, executor string, known []pgtype.UUID) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	err = c.pool.QueryRow(ctx, "SELECT public.fn_job_claim_lost($1::text, $2::uuid[])", executor, pgtype.FlatArray[pgtype.UUID](known)).Scan(&n)
	return n, pgerror.Translate(err)
}

// JobFailure is a try that failed.
type JobFailure struct {
	JobLease
	Code, Text string
	Permanent  bool // no further try
}

// JobFail records failed tries; it returns those whose lease was lost. Safe to
// repeat.
func (c *Client) JobFail(ctx context.Context, failures []JobFailure) ([]pgtype.UUID, error) {
	n := len(failures)
	ids, tokens := make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n)
	codes, texts, permanent := make([]string, n), make([]string, n), make([]bool, n)
	for i, f := range failures {
		ids[i], tokens[i], codes[i], texts[i], permanent[i] = f.ID, f.Token, f.Code, f.Text, f.Permanent
	}
	return c.lost(ctx, "SELECT job_id FROM public.fn_job_fail($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::boolean[]) WHERE outcome <> 'done'", ids, tokens, codes, texts, permanent)
}

// lost runs a statement that answers with the jobs whose lease is gone.
func (c *Client) lost(ctx context.Context, sql string, args ...any) ([]pgtype.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	gone, err := pgrow.Column[pgtype.UUID](ctx, c.pool, sql, args...)
	return gone, pgerror.Translate(err)
}

// JobStanding is how an executor stands with the queue.
type JobStanding struct {
	Refusal string        // why it gets no jobs; empty = it may
	Cadence time.Duration // within which it is expected to beat; 0 = it cannot beat
	Lease   time.Duration // how long a lease lasts from now on; 0 = unknown
}

// JobStanding asks how an executor stands.
func (c *Client) JobStanding(ctx context.Context, executor string) (JobStanding, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var cadence, lease int
	var s JobStanding
	err := c.pool.QueryRow(ctx, `SELECT COALESCE(public.fn_job_refusal($1::text), ''),
		COALESCE((SELECT expected_cadence_seconds FROM public.queue_heartbeat
			WHERE executor_id = $1 AND deregistered_at IS NULL AND NOT tick_worker), 0),
		COALESCE((SELECT n FROM public.v_dot_config_number WHERE key = 'queue.lease.duration_seconds'), 0)`, executor).Scan(&s.Refusal, &cadence, &lease)
	s.Cadence, s.Lease = time.Duration(cadence)*time.Second, time.Duration(lease)*time.Second
	return s, pgerror.Translate(err)
}

// JobRefusal says why an executor gets no jobs; empty = it may have some.
func (c *Client) JobRefusal(ctx context.Context, executor string) (string, error) {
	s, err := c.JobStanding(ctx, executor)
	return s.Refusal, err
}

// JobBeat is what an executor tells of itself when it beats.
type JobBeat struct {
	State      string     `json:"state"` // working, idle, stopped
	DoneTotal  int64      `json:"done_total"`
	InFlight   int        `json:"in_flight"`
	LastWorkAt *time.Time `json:"last_work_at"`
}

// ExecutorBeat writes a beat; a non-empty string is the refusal.
func (c *Client) ExecutorBeat(ctx context.Context, executor, actor string, b JobBeat) (string, error) {
	return c.call(ctx, "SELECT public.fn_queue_heartbeat_write($1::text, $2::jsonb, $3::text)", executor, b, actor)
}
