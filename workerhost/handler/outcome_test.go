// Tests of Outcome and Job.JSON.
package handler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/handler"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	endless := &handler.Failure{Code: "bad"}
	endless.Err = endless
	around := &both{}
	around.errs = []error{handler.Permanent(base), around, around}
	many := make([]error, 1000)
	for i := range many {
		many[i] = base
	}
	for _, tt := range []struct {
		name      string
		err       error
		code      string
		text      string
		permanent bool
	}{
		{"nil", nil, "", "", false},
		{"plain", base, "HANDLER_ERROR", "base", false},
		{"coded", handler.Coded("A_1", base), "A_1", "base", false},
		{"permanent", handler.Permanent(base), "HANDLER_ERROR", "base", true},
		{"both", handler.Permanent(handler.Coded("A", base)), "A", "base", true},
		{"the other way round", handler.Coded("A", handler.Permanent(base)), "A", "base", true},
		{"wrapped", fmt.Errorf("w: %w", handler.Coded("A", fmt.Errorf("x: %w", handler.Permanent(base)))), "A", "w: x: base", true},
		{"outermost code", handler.Coded("A", handler.Coded("B", base)), "A", "base", false},
		{"outermost good code", handler.Coded("a", handler.Coded("B", base)), "B", "base", false},
		{"joined", errors.Join(base, handler.Permanent(base)), "HANDLER_ERROR", "base\nbase", true},
		{"joined, both ours", errors.Join(handler.Coded("A", base), handler.Permanent(base)), "A", "base\nbase", true},
		{"joined, the other way round", errors.Join(handler.Permanent(base), handler.Coded("A", base)), "A", "base\nbase", true},
		{"joined, two codes", errors.Join(handler.Coded("A", base), handler.Coded("B", base)), "A", "base\nbase", false},
		{"joined, the first code is bad", errors.Join(handler.Coded("a", base), handler.Coded("B", base)), "B", "base\nbase", false},
		{"formatted", fmt.Errorf("%w; %w", handler.Coded("A", base), fmt.Errorf("x: %w", handler.Permanent(base))), "A", "base; x: base", true},
		{"within a failure", handler.Coded("A", errors.Join(handler.Coded("B", base), handler.Permanent(base))), "A", "base\nbase", true},
		{"joined, the last of many", errors.Join(append(many, handler.Permanent(handler.Coded("A", base)))...), "A", strings.Repeat("base\n", 1000)[:4096], true},
		{"within itself", around, "HANDLER_ERROR", "around", true},
		{"by another type", asFailure{}, "A", "other", true},
		{"by hand", &handler.Failure{Code: "A"}, "A", "A", false},
		{"lower case", handler.Coded("abc", base), "HANDLER_ERROR", "base", false},
		{"digit first", handler.Coded("1A", base), "HANDLER_ERROR", "base", false},
		{"underscore first", handler.Coded("_A", base), "HANDLER_ERROR", "base", false},
		{"line end", handler.Coded("A\n", base), "HANDLER_ERROR", "base", false},
		{"longest code", handler.Coded(strings.Repeat("A", 64), base), strings.Repeat("A", 64), "base", false},
		{"too long", handler.Coded(strings.Repeat("A", 65), base), "HANDLER_ERROR", "base", false},
		{"not text", errors.New("a\x00b\xffc"), "HANDLER_ERROR", "a\ufffdb\ufffdc", false},
		{"cut", errors.New(strings.Repeat("x", 4095) + "é"), "HANDLER_ERROR", strings.Repeat("x", 4095), false},
		{"not cut", errors.New(strings.Repeat("x", 4094) + "é"), "HANDLER_ERROR", strings.Repeat("x", 4094) + "é", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, text, permanent := handler.Outcome(tt.err)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.text, text)
			require.Equal(t, tt.permanent, permanent)
		})
	}
	require.NoError(t, handler.Permanent(nil))
	require.NoError(t, handler.Coded("A", nil))
	require.ErrorIs(t, handler.Permanent(handler.Coded("A", base)), base)
	f, ok := errors.AsType[*handler.Failure](fmt.Errorf("w: %w", handler.Permanent(base)))
	require.True(t, ok)
	require.True(t, f.Permanent)
}

// both is an error that wraps others.
type both struct{ errs []error }

func (*both) Error() string     { return "around" }
func (b *both) Unwrap() []error { return b.errs }

// asFailure is an error that says itself which Failure it is.
type asFailure struct{}

func (asFailure) Error() string { return "other" }

func (asFailure) As(target any) bool {
	f, ok := target.(**handler.Failure)
	if ok {
		*f = &handler.Failure{Code: "A", Permanent: true}
	}
	return ok
}

func TestJobAsJSON(t *testing.T) {
	t.Parallel()
	full := handler.Job{
		ID: "i", RootID: "r", Kind: "k", Domain: "d", Executor: "e", Attempt: 1, MaxAttempts: 5, Priority: 7,
		EnqueuedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), LeaseUntil: time.Date(2026, 1, 2, 3, 5, 5, 0, time.UTC),
		SourceRef: "s<1>", TargetRef: "t&2", PayloadRef: "p", IdempotencyKey: "key", CorrelationID: "c",
		Payload: json.RawMessage(`{"n": 1.0, "big": 9007199254740993, "t": "<&>\u2028"}`),
	}
	for _, tt := range []struct {
		name string
		job  handler.Job
		want string
	}{
		{"full", full, `{"job_id":"i","root_job_id":"r","job_kind":"k","event_domain":"d","executor":"e","attempt":1,"max_attempts":5,"priority":7,` +
			`"enqueued_at":"2026-01-02T03:04:05.000006Z","lease_until":"2026-01-02T03:05:05Z","source_ref":"s<1>","target_ref":"t&2",` +
			`"payload_ref":"p","idempotency_key":"key","correlation_id":"c","payload":{"n": 1.0, "big": 9007199254740993, "t": "<&>\u2028"}}`},
		{"bare", handler.Job{ID: "i"}, `{"job_id":"i","root_job_id":"","job_kind":"","event_domain":"","executor":"","attempt":0,"max_attempts":0,"priority":0,` +
			`"enqueued_at":"0001-01-01T00:00:00Z","payload":{}}`},
		{"several lines", handler.Job{Payload: json.RawMessage("[1,\r\n\t\"a\\nb\"]\n")}, `{"job_id":"","root_job_id":"","job_kind":"","event_domain":"","executor":"",` +
			`"attempt":0,"max_attempts":0,"priority":0,"enqueued_at":"0001-01-01T00:00:00Z","payload":[1,  	"a\nb"] }`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := string(tt.job.Payload)
			got, err := tt.job.JSON()
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
			require.Equal(t, before, string(tt.job.Payload), "the job's own payload is unchanged")
		})
	}
	line, err := full.JSON()
	require.NoError(t, err)
	var back handler.Job
	require.NoError(t, json.Unmarshal(line, &back))
	require.Equal(t, full, back)

	for _, bad := range []handler.Job{{Payload: json.RawMessage(`{}{}`)}, {EnqueuedAt: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		_, err := bad.JSON()
		code, _, permanent := handler.Outcome(err)
		require.Equal(t, handler.CodeBadJob, code)
		require.True(t, permanent)
	}
}
