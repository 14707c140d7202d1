package enqueue

// Batching: while a statement is in flight, further jobs wait, and are sent together in the next
// statement, which costs the server a fraction of single statements. Two such statements at the
// same time were no faster, and slower under load. Each caller gets its answer after its job is
// committed.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// maxBatch is the largest number of jobs in one statement.
const maxBatch = 1000

// mostInVain is how long jobs that are sent one by one may wait in vain, all in a row together.
const mostInVain = 1500 * time.Millisecond

// batcher collects jobs without an idempotency key and sends them in batches. A job with a
// key is sent alone, because its answer also says whether it was created.
type batcher struct {
	*sender
	mu       sync.Mutex
	inFlight bool
	waiting  []*waitingJob
}

type waitingJob struct {
	job    Job
	answer chan enqueueResult
}

type enqueueResult struct {
	id  string
	err error
}

// put enqueues a job: alone if it has a key, at once if no statement is in flight, otherwise together
// with other waiting jobs.
func (g *batcher) put(ctx context.Context, job Job) (id string, created bool, err error) {
	if len(job.Payload) > 0 && !json.Valid(job.Payload) { // the server would quote a part of it in its log
		return "", false, queue.NewError(queue.KindUsage, "the payload is not JSON", "", "nothing was enqueued; make it with json.Marshal")
	}
	job = job.clone() // the caller may return, and change what its fields point to, before the job is sent
	if job.IdempotencyKey != "" {
		end, err := g.turn(ctx)
		if err != nil {
			return "", false, err
		}
		defer end()
		return g.enqueue(ctx, job)
	}
	g.mu.Lock()
	if !g.inFlight {
		g.inFlight = true
		g.mu.Unlock()
		defer g.next()
		return g.enqueue(ctx, job)
	}
	w := &waitingJob{job, make(chan enqueueResult, 1)}
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	select {
	case a := <-w.answer:
		return a.id, a.err == nil, a.err
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting = slices.DeleteFunc(g.waiting, func(x *waitingJob) bool { return x == w })
		return "", false, pgerror.Translate(ctx.Err())
	}
}

// next is called when a statement has ended: it sends the next batch of waiting jobs in another
// goroutine, if any wait.
func (g *batcher) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxBatch)
	if n == 0 {
		g.inFlight = false
		return
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	go func() {
		defer g.next()
		g.send(batch)
	}()
}

// send enqueues a batch and answers every caller. If the batch is refused, perhaps because of one job, its
// jobs are sent one by one, so that each caller gets the answer for its own job, as long as the time of the batch
// lasts. When some in a row have waited in vain, such as for a locked table, that is the answer to the rest too: each
// would wait as long. Any other error may have come after the commit: sending the batch again could create the jobs twice.
func (g *batcher) send(batch []*waitingJob) {
	ctx, cancel := context.WithTimeout(context.Background(), pgpool.ActTimeout)
	defer cancel()
	ids, err := g.enqueueAll(ctx, batch)
	alone := len(batch) == 1 || errors.Is(err, errRefused) || refusedForOne(err)
	inVain, since := 0, time.Now() // how many in a row have failed alone for a cause that may pass, and when the first began
	for i, w := range batch {
		a := enqueueResult{err: pgerror.Translate(err)}
		switch {
		case alone && ctx.Err() != nil:
			a.err = pgerror.Translate(ctx.Err())
		case alone && (inVain < 2 || time.Since(since) < mostInVain):
			if a.id, _, a.err = g.enqueue(ctx, w.job); a.err != nil && pgerror.Retryable(a.err) {
				inVain, err = inVain+1, a.err
			} else {
				inVain, since = 0, time.Now()
			}
		case err == nil:
			a = enqueueResult{id: ids[i]}
		}
		w.answer <- a
	}
}

// refusedForOne reports whether nothing of a batch was committed, perhaps because of one of its jobs: a value, a
// right, a trigger or constraint of the site. What keeps every job from being written, such as a full disk, is
// the answer to all of them.
func refusedForOne(err error) bool {
	fate, smaller := pgerror.FateOf(err)
	return err != nil && !pgerror.MayHaveCommitted(err) && (fate != pgerror.Again || smaller)
}

var errRefused = errors.New("refused")

// enqueueAll enqueues several jobs, all or none.
func (g *batcher) enqueueAll(ctx context.Context, batch []*waitingJob) (ids []string, err error) {
	if len(batch) == 1 {
		return nil, nil
	}
	jobs := make([]Job, len(batch))
	for i, w := range batch {
		jobs[i] = w.job
	}
	text, err := asJSON(jobs)
	if err != nil {
		return nil, errRefused
	}
	a, err := g.commit(ctx, statement{enqueueManySQL, [][]byte{text}}, jobs)
	switch {
	case err != nil:
		return nil, err
	case len(a.IDs) != len(jobs):
		return nil, queue.NewError(queue.KindFailed, fmt.Sprintf("the answer has %s for %s", queue.Plural(len(a.IDs), "id", "ids"), queue.Plural(len(jobs), "job", "jobs")), "fn_job_enqueue_many", "the jobs may exist: enqueue them again only with their idempotency keys")
	}
	return a.IDs, nil
}
