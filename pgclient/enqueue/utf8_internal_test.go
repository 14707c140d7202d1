package enqueue

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// JSON cannot hold a text that is not UTF-8: both keys would be the same, and the second job lost.
func TestTextThatIsNotUTF8(t *testing.T) {
	good := Job{Kind: "k", Domain: "shop", Executor: "DOT", IdempotencyKey: "scan-Müller.pdf", Actor: "Jörg"}
	for name, spoil := range map[string]func(*Job){
		"job_kind":        func(j *Job) { j.Kind = "k\xfc" },
		"event_domain":    func(j *Job) { j.Domain = "shop\xfc" },
		"executor":        func(j *Job) { j.Executor = "DOT\xfc" },
		"idempotency_key": func(j *Job) { j.IdempotencyKey = "scan-M\xfcller.pdf" },
		"scope":           func(j *Job) { j.Scope = "s\xfc" },
		"actor":           func(j *Job) { j.Actor = "J\xf6rg" },
	} {
		bad := good
		spoil(&bad)
		_, err := In(t.Context(), nil, []Job{good, bad}) // it must not reach the database
		require.EqualError(t, err, "p_jobs[1]."+name+" is not UTF-8: nothing was enqueued; convert the text to UTF-8")
		require.Equal(t, queue.KindUsage, queue.KindOf(err))
		_, err = (&batcher{}).enqueueAll(t.Context(), []*waitingJob{{job: good}, {job: bad}})
		require.ErrorIs(t, err, errRefused, name) // so that each job is sent alone
	}
	require.NoError(t, checkTexts([]Job{good, {}}))
}

// A job that JSON cannot hold is refused with its index before anything is sent: sent again, it would
// be refused again.
func TestJobThatIsNotJSON(t *testing.T) {
	good := Job{Kind: "k", Domain: "shop", Executor: "DOT", Payload: json.RawMessage(`{"order": 1}`), ProcessAfter: new(time.Now())}
	for want, spoil := range map[string]func(*Job){
		"payload is not JSON: nothing was enqueued; make it with json.Marshal": func(j *Job) { j.Payload = json.RawMessage("{'order': 1}") },
		"process_after cannot be written as RFC 3339: nothing was enqueued; use a year from 1 to 9999, in UTC": func(j *Job) {
			j.ProcessAfter = new(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
		},
	} {
		bad := good
		spoil(&bad)
		_, err := In(t.Context(), nil, []Job{good, bad, bad}) // it must not reach the database
		require.EqualError(t, err, "p_jobs[1]."+want)
		require.Equal(t, queue.KindUsage, queue.KindOf(err))
		require.False(t, MayHaveCommitted(err))
		var cause *json.MarshalerError
		require.ErrorAs(t, err, &cause)
		_, err = (&batcher{}).enqueueAll(t.Context(), []*waitingJob{{job: good}, {job: bad}})
		require.ErrorIs(t, err, errRefused) // so that each job is sent alone
	}
}
