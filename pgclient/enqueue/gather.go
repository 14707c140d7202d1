package enqueue

// This file gathers jobs that are enqueued at the same time: while others are on
// their way, they wait and then go together, which costs the server a fraction. Two
// such statements at once were no faster, and slower under load.
// Each caller has its answer after the commit of its own job.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
)

// together is how many jobs go in one statement at most.
const together = 1000

// gathering is the jobs without a key that go to the server; with one they go
// alone, for each has an answer of its own.
type gathering struct {
	*sender
	mu       sync.Mutex
	underWay bool
	waiting  []*gathered
}

type gathered struct {
	job    Job
	answer chan enqueued
}

type enqueued struct {
	id  string
	err error
}

// put enqueues a job: at once, or with those that wait beside it.
func (g *gathering) put(ctx context.Context, job Job) (id string, created bool, err error) {
	job.Payload = bytes.Clone(job.Payload) // the caller may leave before it is sent
	if job.IdempotencyKey != "" {
		return g.enqueue(ctx, job)
	}
	g.mu.Lock()
	if !g.underWay {
		g.underWay = true
		g.mu.Unlock()
		defer g.next()
		return g.enqueue(ctx, job)
	}
	w := &gathered{job, make(chan enqueued, 1)}
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	select {
	case a := <-w.answer:
		return a.id, a.err == nil, a.err
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		g.waiting = slices.DeleteFunc(g.waiting, func(x *gathered) bool { return x == w })
		return "", false, pgerror.Translate(ctx.Err())
	}
}

// next sends those that wait, once a statement has ended.
func (g *gathering) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), together)
	if n == 0 {
		g.underWay = false
		return
	}
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	go func() {
		defer g.next()
		g.send(batch)
	}()
}

// send enqueues a batch and answers everybody. What is refused for what is in it is
// sent one by one, so that each has the answer of its own job; any other error may
// have come after the commit, and a second try would make the jobs twice.
func (g *gathering) send(batch []*gathered) {
	ctx, cancel := context.WithTimeout(context.Background(), pgpool.ActTimeout)
	defer cancel()
	ids, err := g.enqueueAll(ctx, batch)
	var pg *pgconn.PgError
	alone := len(batch) == 1 || errors.Is(err, errRefused) || errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "54") || pg.Code == "42501")
	for i, w := range batch {
		a := enqueued{err: pgerror.Translate(err)}
		switch {
		case alone:
			a.id, _, a.err = g.enqueue(ctx, w.job)
		case err == nil:
			a = enqueued{id: ids[i]}
		}
		w.answer <- a
	}
}

var errRefused = errors.New("refused")

// enqueueAll puts several jobs into the queue, all or none.
func (g *gathering) enqueueAll(ctx context.Context, batch []*gathered) (ids []string, err error) {
	if len(batch) == 1 {
		return nil, nil
	}
	jobs := make([]Job, len(batch))
	for i, w := range batch {
		jobs[i] = w.job
	}
	text, err := json.Marshal(jobs)
	if err != nil { // one of them is no JSON
		return nil, errRefused
	}
	a, err := g.commit(ctx, statement{enqueueManySQL, [][]byte{text}}, jobs)
	switch {
	case err != nil:
		return nil, err
	case len(a.IDs) != len(jobs):
		return nil, queue.NewError(queue.KindFailed, "the answer has not an id for each job", "fn_job_enqueue_many", "")
	}
	return a.IDs, nil
}
