package work

// This file asks for one run of a tick worker.

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
)

// TickResult is what fn_queue_tick_request answers.
type TickResult struct {
	Ran     bool
	Quick   bool // it may have left what is older than the last full run; ask again a second later
	Skipped string
	Reason  string
	Failed  bool
	Error   string
	TookMS  float64
	AuditID int64            // of an operator's tick
	Result  map[string]int64 // the numbers of the worker's own result
	Log     []Outcome        // what the tick decided of jobs that did not succeed
	Raw     json.RawMessage
}

// Outcome is what a tick decided of one job: retry or dead letter after a failed attempt, reset or failed after an
// expired lease. These are the fields that R02 §5.3 wants logged; jobs of the queue have no saga.
type Outcome struct {
	Outcome         string     `json:"outcome"`
	SagaID          int64      `json:"saga_id"`
	JobID           any        `json:"job_id"` // json.Number of webhooks, a UUID of the queue
	ErrorCode       string     `json:"error_code"`
	LeaseExpiration *time.Time `json:"lease_expiration"`
	WorkerID        string     `json:"worker_id"`
}

// Counted tells whether a number of a worker's result says how much it did; the others
// say how things stand.
func Counted(key string) bool {
	return !slices.Contains([]string{"held", "waiting", "in_flight", "checked", "total"}, key)
}

// Work is how much the tick did, by the rule of fn_queue_tick_run: rows_marked, where a
// result has it, stands for all.
func (t TickResult) Work() int64 {
	if n, ok := t.Result["rows_marked"]; ok {
		return n
	}
	var sum int64
	for k, n := range t.Result {
		if Counted(k) {
			sum += n
		}
	}
	return sum
}

// tickGrace is how much longer than statement_timeout a tick is waited for: the server ends what takes too long itself,
// keeps which rows it was about, and commits.
const tickGrace = 15 * time.Second

// Tick asks for one run of a tick worker.
func (c *Client) Tick(ctx context.Context, worker, source string) (TickResult, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.WorkTimeout+tickGrace)
	defer cancel()
	var raw []byte
	err := c.pool.QueryRow(ctx, "SELECT public.fn_queue_tick_request($1::text, $2::text)", worker, source).Scan(&raw)
	if err != nil {
		return TickResult{}, pgerror.Translate(err)
	}
	return ParseTick(raw)
}

// ParseTick reads what a tick answered.
func ParseTick(raw []byte) (TickResult, error) {
	var body struct {
		Ran     bool                       `json:"ran"`
		Quick   bool                       `json:"quick"`
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
		Ran: body.Ran, Quick: body.Quick, Skipped: body.Skipped, Reason: body.Reason, Failed: body.Failed, Error: body.Error,
		TookMS: body.TookMS, AuditID: body.AuditID, Result: map[string]int64{}, Raw: raw,
	}
	for k, v := range body.Result {
		var n int64
		if json.Unmarshal(v, &n) == nil {
			res.Result[k] = n
		}
	}
	if log, ok := body.Result["log"]; ok {
		numbers := json.NewDecoder(bytes.NewReader(log))
		numbers.UseNumber()
		return res, numbers.Decode(&res.Log)
	}
	return res, nil
}
