package handler

// This file is what a handler is told about its job, in Go and as JSON.

import (
	"bytes"
	"encoding/json"
	"time"
)

// Job is one try of a job. The JSON names are those of the columns of job_queue;
// attempt is the one that is not a column: attempts there counts finished tries. root_job_id is of job_root.
type Job struct {
	ID             string    `json:"job_id"`
	RootID         string    `json:"root_job_id"` // the idempotency token: the same for every try and every replay
	Kind           string    `json:"job_kind"`
	Domain         string    `json:"event_domain"`
	Executor       string    `json:"executor"`
	Attempt        int       `json:"attempt"` // this try, from 1
	MaxAttempts    int       `json:"max_attempts"`
	Priority       int       `json:"priority"`
	EnqueuedAt     time.Time `json:"enqueued_at"`
	LeaseUntil     time.Time `json:"lease_until,omitzero"` // as claimed; the host renews it
	SourceRef      string    `json:"source_ref,omitempty"`
	TargetRef      string    `json:"target_ref,omitempty"`
	PayloadRef     string    `json:"payload_ref,omitempty"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	// Payload is the text PostgreSQL gave for the jsonb, so that no number in it
	// loses a digit. Empty counts as {}.
	Payload json.RawMessage `json:"payload"`
}

// JSON is the job as commands and URLs get it: one line, without the line end.
// The payload's bytes are in it as they are (encoding/json alone would compact
// and escape them); a line break between its tokens, which PostgreSQL never
// writes, becomes a blank.
func (j Job) JSON() ([]byte, error) {
	payload := []byte(j.Payload)
	if len(payload) == 0 {
		payload = []byte("{}")
	}
	if !json.Valid(payload) {
		return nil, Permanent(Coded(CodeBadJob, errText("the payload is not JSON")))
	}
	type plain Job
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// The outer payload hides the inner one and is itself left out.
	err := enc.Encode(struct {
		plain
		Payload *struct{} `json:"payload,omitempty"`
	}{plain: plain(j)})
	if err != nil { // a year beyond 9999
		return nil, Permanent(Coded(CodeBadJob, err))
	}
	b.Truncate(b.Len() - len("}\n"))
	b.Grow(len(payload) + len(`,"payload":}`) + len("\n")) // with room for the end of the line
	b.WriteString(`,"payload":`)
	at := b.Len()
	b.Write(payload)
	for i, c := range b.Bytes()[at:] {
		if c == '\n' || c == '\r' { // inside strings JSON has none
			b.Bytes()[at+i] = ' '
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
