package work

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/pgrow"
)

// JobTimeout is the time limit of one statement about up to a thousand jobs, of the queue or of
// webhooks. On a loaded machine such a statement may take seconds. A statement that reached the limit
// may have been committed. Renewals and releases of webhook jobs have pgpool.ReadTimeout: the loop
// that sends webhooks waits for them.
const JobTimeout = 15 * time.Second

// Job is a leased job.
type Job struct {
	ID, Token      pgtype.UUID
	Root           pgtype.UUID // the first job of a chain of replays, otherwise ID
	Kind, Domain   string
	Executor       string // an executor kind
	Priority       int32
	ProcessAfter   pgtype.Timestamptz // may be infinite
	Attempts       int32              // number of finished attempts
	MaxAttempts    int32
	LostLeases     int32 // above 0, the job may have crashed a host, so a host runs it alone
	EnqueuedAt     time.Time
	LeaseUntil     time.Time     // server time, for information only
	Lease          time.Duration // length of the lease, measured by the server's clock alone
	SourceRef      string
	TargetRef      string
	PayloadRef     string
	IdempotencyKey string // the producer's key; empty = none
	CorrelationID  string
	Payload        []byte // the text of the jsonb; nil: read it with JobPayload
}

// Lane returns the queue lane of the job as domain/kind, the key of JobKeys.
func (j *Job) Lane() string { return j.Domain + "/" + j.Kind }

// Key returns the position of the job in its queue lane.
func (j *Job) Key() JobKey { return JobKey{j.Priority, j.ProcessAfter, j.ID} }

// JobKey is a position in a queue lane.
type JobKey struct {
	Priority     int32
	ProcessAfter pgtype.Timestamptz // when the job became due
	ID           pgtype.UUID
}

// JobKeys maps a queue lane (see Job.Lane) to the position up to which a worker has searched it.
type JobKeys map[string]JobKey

// argument returns the keys as in p_after.
func (k JobKeys) argument() map[string]any {
	out := make(map[string]any, len(k)+1)
	for lane, key := range k {
		due := key.ProcessAfter.InfinityModifier.String()
		if key.ProcessAfter.InfinityModifier == pgtype.Finite {
			due = timeText(key.ProcessAfter.Time.UTC())
		}
		out[lane] = [3]any{key.Priority, due, key.ID.String()}
	}
	return out
}

// timeText formats a time for PostgreSQL, also before the year 1, for which RFC 3339 has no form.
func timeText(t time.Time) string {
	year, era := t.Year(), ""
	if year < 1 {
		year, era = 1-year, " BC"
	}
	return fmt.Sprintf("%04d", year) + t.Format("-01-02T15:04:05.999999999Z07:00") + era
}

// interned scans a text that often repeats from row to row, and keeps one copy of it.
type interned struct{ last string }

// ScanBytes implements pgtype.BytesScanner.
func (s *interned) ScanBytes(v []byte) error {
	if string(v) != s.last { // this comparison does not allocate
		s.last = string(v)
	}
	return nil
}

// optional scans a text; NULL becomes "".
type optional struct{ s string }

// ScanBytes implements pgtype.BytesScanner.
func (o *optional) ScanBytes(v []byte) error {
	o.s = ""
	if len(v) > 0 {
		o.s = string(v)
	}
	return nil
}

// JobLease identifies a lease of a job. The token fences every result: a result is rejected if
// the job has been leased again since.
type JobLease struct{ ID, Token pgtype.UUID }

// columns splits leases into an array of ids and an array of tokens.
func columns(leases []JobLease) (ids, tokens pgtype.FlatArray[pgtype.UUID]) {
	ids, tokens = make([]pgtype.UUID, len(leases)), make([]pgtype.UUID, len(leases))
	for i, l := range leases {
		ids[i], tokens[i] = l.ID, l.Token
	}
	return ids, tokens
}

// begins, the name of a function of leased jobs, leased, further arguments and ends form a statement that
// returns the ids of the jobs whose lease is lost. The first argument of the function needs what
// set_config returns, so the limit of waits for locks is in force before the call.
const (
	begins = "SELECT r.job_id FROM set_config('lock_timeout', $1::text, true) AS w (most), LATERAL public."
	leased = "(CASE WHEN w.most IS NOT NULL THEN $2::uuid[] END, $3::uuid[]"
	ends   = ") AS r WHERE r.outcome <> 'done'"
)

// lockWait returns how long a statement waits for a lock of another session, which somebody may hold in
// psql: a fifteenth of the time that it has, so that what remains suffices for the other jobs of the
// statement. That is a second, and less when a host stops.
func lockWait(ctx context.Context) string {
	end, _ := ctx.Deadline()
	return strconv.FormatInt(max(time.Until(end)/15, 20*time.Millisecond).Milliseconds(), 10)
}

// JobStart records that work on leased jobs has begun; it returns the ids of jobs whose lease is
// lost.
func (c *Client) JobStart(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, begins+"fn_job_start"+leased+ends, ids, tokens)
}

// JobRenew extends leases to their full length from now; it returns the ids of jobs whose lease
// is lost.
func (c *Client) JobRenew(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, begins+"fn_job_renew"+leased+ends, ids, tokens)
}

// JobAck records success; it returns the ids of jobs whose lease is lost. Safe to repeat, because
// the reply to a commit can be lost.
func (c *Client) JobAck(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, begins+"fn_job_ack"+leased+ends, ids, tokens)
}

// JobRelease returns jobs to the queue without using up an attempt; it returns the ids of jobs
// whose lease is lost. Safe to repeat.
func (c *Client) JobRelease(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ids, tokens := columns(leases)
	return c.lost(ctx, begins+"fn_job_release"+leased+ends, ids, tokens)
}

// JobClaimLost releases jobs that this client claimed for an executor in claims whose reply was
// lost: all leases except those with the known tokens. It returns their number. The caller makes
// sure that no claim for the executor is in flight.
func (c *Client) JobClaimLost(ctx context.Context, executor string, known []pgtype.UUID) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	err = c.pool.QueryRow(ctx, "SELECT public.fn_job_claim_lost($1::text, $2::uuid[])", executor, pgtype.FlatArray[pgtype.UUID](known)).Scan(&n)
	return n, pgerror.Translate(err)
}

// watermarkTimeout is the time limit of JobWatermarkAdvance, which once a minute reads the index
// entries of all jobs that an old snapshot keeps. If it were shorter than that takes, there would be
// no watermarks when they are needed most. The server ends the statement watermarkGrace before the
// client would.
const (
	watermarkTimeout = 5 * time.Minute
	watermarkGrace   = 5 * time.Second
)

// JobWatermarkAdvance moves the watermarks at which claims begin to look for jobs, while an old
// snapshot keeps dead rows. Call it once a second.
func (c *Client) JobWatermarkAdvance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watermarkTimeout+watermarkGrace)
	defer cancel()
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return pgerror.Translate(err)
	}
	// Both statements are one transaction and one round trip. The limit of a statement counts from its
	// start, so another statement has to set it.
	var b pgx.Batch
	b.Queue("SELECT set_config('statement_timeout', $1::text, true)", strconv.FormatInt(watermarkTimeout.Milliseconds(), 10))
	b.Queue("SELECT public.fn_job_watermark_advance()")
	err = conn.SendBatch(ctx, &b).Close()
	conn.Release()
	return pgerror.Translate(c.pool.Explain(err))
}

// JobNextDue returns when the next job becomes due that is not claimable yet, by the server's clock,
// and how long that is from now; due is zero if there is none. If that is the due time told, it
// returns the first job that is due at since or later. Zero times exclude nothing.
func (c *Client) JobNextDue(ctx context.Context, told, since time.Time) (due time.Time, in time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ReadTimeout)
	defer cancel()
	var next *time.Time
	var at time.Time
	if err := c.pool.QueryRow(ctx, "SELECT next_due, at FROM public.fn_job_next_due($1::timestamptz, $2::timestamptz)", told, since).Scan(&next, &at); err != nil || next == nil {
		return time.Time{}, 0, pgerror.Translate(err)
	}
	return *next, next.Sub(at), nil
}

// JobFailure is a failed attempt.
type JobFailure struct {
	JobLease
	Code, Text string // an upper-case word such as TIMEOUT, and the error text
	Permanent  bool   // true: no retry and no dead letter, the job ends as failed
}

// JobFail records failed attempts; it returns the ids of jobs whose lease is lost. Safe to
// repeat.
func (c *Client) JobFail(ctx context.Context, failures []JobFailure) ([]pgtype.UUID, error) {
	n := len(failures)
	ids, tokens := make(pgtype.FlatArray[pgtype.UUID], n), make(pgtype.FlatArray[pgtype.UUID], n)
	codes, texts, permanent := make([]string, n), make([]string, n), make([]bool, n)
	for i, f := range failures {
		ids[i], tokens[i], codes[i], texts[i], permanent[i] = f.ID, f.Token, f.Code, f.Text, f.Permanent
	}
	return c.lost(ctx, begins+"fn_job_fail"+leased+", $4::text[], $5::text[], $6::boolean[]"+ends, ids, tokens, codes, texts, permanent)
}

// lost runs a statement that returns the ids of jobs whose lease is lost; its first argument is lockWait.
func (c *Client) lost(ctx context.Context, sql string, args ...any) ([]pgtype.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	gone, err := pgrow.Column[pgtype.UUID](ctx, c.pool, sql, append([]any{lockWait(ctx)}, args...)...)
	return gone, pgerror.Translate(err)
}

// JobLocked returns the ids of the jobs for which a statement would have to wait, because another session
// has locked their row or their lease. It does not wait itself.
func (c *Client) JobLocked(ctx context.Context, leases []JobLease) ([]pgtype.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, JobTimeout)
	defer cancel()
	ids, tokens := columns(leases)
	locked, err := pgrow.Column[pgtype.UUID](ctx, c.pool, "SELECT public.fn_job_locked($1::uuid[], $2::uuid[])", ids, tokens)
	return locked, pgerror.Translate(err)
}

// JobStanding says whether an executor may claim jobs, and how long its heartbeat interval and
// leases are.
type JobStanding struct {
	Refusal string        // why it may not claim; empty = it may
	Cadence time.Duration // the longest interval between heartbeats; 0 = this executor sends none
	Lease   time.Duration // length of leases that are claimed from now on; 0 = unknown
}

// JobStanding reads whether an executor may claim jobs.
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

// JobRefusal returns why an executor may not claim jobs; empty = it may.
func (c *Client) JobRefusal(ctx context.Context, executor string) (string, error) {
	s, err := c.JobStanding(ctx, executor)
	return s.Refusal, err
}

// JobHeartbeat is the content of an executor's heartbeat.
type JobHeartbeat struct {
	State      string     `json:"state"`      // working, idle, stopped
	DoneTotal  int64      `json:"done_total"` // jobs finished since the executor started
	InFlight   int        `json:"in_flight"`  // jobs that it is working on
	LastWorkAt *time.Time `json:"last_work_at"`
	// Now is the time of the heartbeat by the clock of LastWorkAt: the database stores how long
	// ago that was, by its own clock.
	Now *time.Time `json:"now,omitempty"`
}

// ExecutorHeartbeat writes a heartbeat of an executor; a non-empty string says why it was refused.
func (c *Client) ExecutorHeartbeat(ctx context.Context, executor, actor string, b JobHeartbeat) (string, error) {
	return c.call(ctx, "SELECT public.fn_queue_heartbeat_write($1::text, $2::jsonb, $3::text)", executor, b, actor)
}
