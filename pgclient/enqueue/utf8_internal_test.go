package enqueue

import (
	"testing"

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
