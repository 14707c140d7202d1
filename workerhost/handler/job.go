package handler

import (
	"bytes"
	"encoding/json"
	"time"
)

// Job is one attempt of a job, as its handler gets it. The JSON names are those of the columns
// of job_queue, with two exceptions: root_job_id is from job_root, and attempt is no column
// (the column attempts counts finished attempts).
type Job struct {
	ID             string    `json:"job_id"`
	RootID         string    `json:"root_job_id"` // the idempotency token: the same for every attempt and every replay
	Kind           string    `json:"job_kind"`
	Domain         string    `json:"event_domain"`
	Executor       string    `json:"executor"`
	Attempt        int       `json:"attempt"` // number of this attempt, from 1
	MaxAttempts    int       `json:"max_attempts"`
	Priority       int       `json:"priority"`
	EnqueuedAt     time.Time `json:"enqueued_at"`
	LeaseUntil     time.Time `json:"lease_until,omitzero"` // as claimed; the host renews it
	SourceRef      string    `json:"source_ref,omitempty"`
	TargetRef      string    `json:"target_ref,omitempty"`
	PayloadRef     string    `json:"payload_ref,omitempty"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	// Payload is the jsonb as text, as PostgreSQL wrote it, so that no number in it loses a
	// digit. An empty one counts as {}.
	Payload json.RawMessage `json:"payload"`
}

// JSON returns the job as commands and URLs get it: one line, without the line end. It
// contains the bytes of the payload unchanged (encoding/json would compact and escape them),
// except that a line break between its tokens, which PostgreSQL never writes, becomes a space.
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
	// The outer payload hides the inner one and is itself omitted.
	err := enc.Encode(struct {
		plain
		Payload *struct{} `json:"payload,omitempty"`
	}{plain: plain(j)})
	if err != nil { // a year beyond 9999
		return nil, Permanent(Coded(CodeBadJob, err))
	}
	b.Truncate(b.Len() - len("}\n"))
	b.Grow(len(payload) + len(`,"payload":}`) + len("\n")) // room for the line end that Command adds
	b.WriteString(`,"payload":`)
	at := b.Len()
	b.Write(payload)
	for i, c := range b.Bytes()[at:] {
		if c == '\n' || c == '\r' { // between tokens: JSON strings contain none
			b.Bytes()[at+i] = ' '
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
