// Package enqueue puts jobs into the queue.
//
// A producer and a worker host of the same process share one of it, and with it a
// protocol: the host claims before the commit, so that a job that it takes wakes
// nobody and is at work one round trip after it was enqueued.
//
//  1. Gather (gather.go): while a statement is under way, jobs without a key wait,
//     and then go together.
//  2. Offer (send.go): before jobs are sent, the [Taker] is asked. It gives a claim,
//     or says that it will look, or neither.
//  3. Claim (claim.go): the statement that enqueues and the claim go in one round trip
//     and are one transaction. Nothing is handed out before its commit.
//  4. Give way (claim.go): a transaction that fails, or that waits for a lock for
//     longer than claimPatience, is made again without the claim.
//  5. Tell (claim.go): after the commit the taker is told what the claim brought, and
//     the caller has its answer. A bell rings for the jobs that the claim left.
//  6. Ring (ring.go): without a claim the jobs commit alone (behind.go), with the bells
//     of their domains in the same round trip behind the commit, at most one per 5 ms
//     and domain. Where the taker said that it will look, it looks first, and a bell
//     follows in 5 to 10 ms for what is not claimed by then.
//
// Steps 2 to 6 are for jobs of which the caller wants the id. [In] puts jobs into a
// transaction of the caller's, who rings after the commit.
package enqueue

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

// Producer puts jobs into the queue for the writers of a process. One is enough for
// a process, and its worker host takes part in it: see workerhost.Options.
type Producer struct {
	pool   *pgpool.Pool
	gather *gathering
}

// New makes a producer. It uses the pool of the client's worker host, where there is
// one.
func New(c *pgclient.Client) *Producer {
	pool := c.Act()
	if c.Work() != nil {
		pool = c.Work()
	}
	return &Producer{pool: pool, gather: &gathering{sender: &sender{Ringer: NewRinger(pool), taker: nobody{}}}}
}

// Enqueue puts one job into the queue and rings. created is false when its key stood
// for a job already: id is then that job's. The worker host claims in the same
// transaction, where it has a place.
func (p *Producer) Enqueue(ctx context.Context, job Job) (id string, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	return p.gather.put(ctx, job)
}

// EnqueueMany puts jobs into the queue, all or none, and rings.
func (p *Producer) EnqueueMany(ctx context.Context, jobs []Job) (Made, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	m, err := In(ctx, p.pool, jobs)
	if err != nil {
		return m, err
	}
	for _, domain := range domainsOf(jobs) {
		p.Ring(domain)
	}
	return m, nil
}

// Ring wakes who listens to the domain, now or within 5 ms: see [Ringer.Ring].
func (p *Producer) Ring(domain string) { p.gather.Ring(domain) }

// Attach offers jobs to t first.
func (p *Producer) Attach(t Taker) { p.gather.attach(t) }

// Detach ends that, unless another was attached since.
func (p *Producer) Detach(t Taker) { p.gather.detach(t) }

// Claimed says what a worker host of this process has claimed by itself.
func (p *Producer) Claimed(jobs []work.Job) { p.gather.claimed(jobs) }
