package work

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
)

// TickResult is the result of fn_queue_tick_request.
type TickResult struct {
	Ran     bool   // false: Skipped or Failed says why
	Quick   bool   // a quick run, which may have left rows that are older than the last full run: request another run a second later
	Skipped string // clone, off, mode, not_due or lease_held: see fn_queue_tick_due; empty = not skipped
	Reason  string // why it was skipped, in words
	Failed  bool   // the worker failed with Error
	Error   string
	TookMS  float64
	AuditID int64            // set only if an operator requested the tick
	Result  map[string]int64 // the numbers in the worker's result
	// Unfinished is true if the run left rows behind because of a cause that may pass, such as a lock.
	Unfinished bool
	Log        Outcomes        // what the tick decided about jobs that did not succeed
	Raw        json.RawMessage // the worker's whole result
}

// Outcome is what a tick decided about one job: retry or dead letter after a failed attempt,
// reset or failed after an expired lease. Source document R02 §5.3 requires these fields in
// the log; jobs of the queue have no saga.
type Outcome struct {
	Outcome         string     `json:"outcome"`
	SagaID          int64      `json:"saga_id"`
	JobID           any        `json:"job_id"` // a json.Number for a webhook job, a UUID for a job of the queue
	ErrorCode       string     `json:"error_code"`
	LeaseExpiration *time.Time `json:"lease_expiration"`
	WorkerID        string     `json:"worker_id"`
}

// Outcomes is a list that decodes numeric job ids without loss of digits.
type Outcomes []Outcome

// UnmarshalJSON implements json.Unmarshaler.
func (o *Outcomes) UnmarshalJSON(raw []byte) error {
	numbers := json.NewDecoder(bytes.NewReader(raw))
	numbers.UseNumber()
	return numbers.Decode((*[]Outcome)(o))
}

// Counted reports whether a number in a worker's result counts work that the tick did; the other
// numbers describe the current state.
func Counted(key string) bool {
	return !slices.Contains([]string{"held", "waiting", "in_flight", "checked", "total"}, key)
}

// Work returns how much the tick did, computed as in fn_queue_tick_run: rows_marked if the result
// has it, otherwise the sum of the counted numbers.
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

// tickGrace is how much longer than statement_timeout the client waits for a tick. If a tick takes
// too long, the server stops it, records the rows that it was processing, and commits.
const tickGrace = 15 * time.Second

// Tick requests one run of a tick worker. While others have all connections that ticks may have
// (see New), it waits.
func (c *Client) Tick(ctx context.Context, worker, source string) (TickResult, error) {
	select {
	case c.ticks <- struct{}{}:
		defer func() { <-c.ticks }()
	case <-ctx.Done():
		return TickResult{}, pgerror.Translate(ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, pgpool.WorkTimeout+tickGrace)
	defer cancel()
	return c.tick(ctx, worker, source)
}

// WebhookHeartbeat records the heartbeat of the webhook worker, which is a tick that does nothing else.
// It waits for no other tick; ctx limits its time.
func (c *Client) WebhookHeartbeat(ctx context.Context, worker string) (TickResult, error) {
	return c.tick(ctx, worker, "external")
}

func (c *Client) tick(ctx context.Context, worker, source string) (TickResult, error) {
	var raw []byte
	err := c.pool.QueryRow(ctx, "SELECT public.fn_queue_tick_request($1::text, $2::text)", worker, source).Scan(&raw)
	if err != nil {
		return TickResult{}, pgerror.Translate(err)
	}
	return ParseTick(raw)
}

// ParseTick decodes the result of a tick.
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
		Ran: body.Ran, Quick: body.Quick, Skipped: body.Skipped, Reason: said(body.Reason), Failed: body.Failed, Error: said(body.Error),
		TookMS: body.TookMS, AuditID: body.AuditID, Result: map[string]int64{}, Raw: raw,
	}
	for k, v := range body.Result {
		if (k == "unfinished" || k == "timed_out") && string(v) == "true" {
			res.Unfinished = true
		}
		var n int64
		if json.Unmarshal(v, &n) == nil {
			res.Result[k] = n
		}
	}
	if log, ok := body.Result["log"]; ok {
		return res, res.Log.UnmarshalJSON(log)
	}
	return res, nil
}
