package handler

import (
	"bytes"
	"encoding/json"
	"time"
)

// Job is one attempt of a job, in the form that its handler receives. The JSON names are the
// column names of job_queue, with two exceptions: root_job_id is a column of job_root, and
// attempt is no column (the column attempts counts finished attempts).
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
	LeaseUntil     time.Time `json:"lease_until,omitzero"` // as of the claim; the host renews the lease later
	SourceRef      string    `json:"source_ref,omitempty"`
	TargetRef      string    `json:"target_ref,omitempty"`
	PayloadRef     string    `json:"payload_ref,omitempty"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	CorrelationID  string    `json:"correlation_id,omitempty"`
	// Payload is the text of the jsonb column as PostgreSQL wrote it, so that numbers keep all
	// digits. An empty Payload counts as {}.
	Payload json.RawMessage `json:"payload"`
}

// JSON returns the job in the form for commands and URLs: one line, without the line end. The
// payload is copied byte for byte (encoding/json would compact and escape it), except that a line
// break between its tokens, which PostgreSQL never writes, becomes a space.
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
	// The Payload field here replaces the embedded one and is omitted, so that JSON can append
	// the payload.
	err := enc.Encode(struct {
		plain
		Payload *struct{} `json:"payload,omitempty"`
	}{plain: plain(j)})
	if err != nil { // a time after the year 9999
		return nil, Permanent(Coded(CodeBadJob, err))
	}
	b.Truncate(b.Len() - len("}\n"))
	b.Grow(len(payload) + len(`,"payload":}`) + len("\n")) // room for the line end that Command adds
	b.WriteString(`,"payload":`)
	at := b.Len()
	b.Write(payload)
	for i, c := range b.Bytes()[at:] {
		if c == '\n' || c == '\r' { // between tokens: JSON strings contain no line breaks
			b.Bytes()[at+i] = ' '
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
