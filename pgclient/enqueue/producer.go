// Package enqueue puts jobs into the queue.
//
// Two ways:
//
//   - [In] enqueues inside a transaction that is yours, so that your rows and their jobs are
//     committed together or not at all. It needs no client of qtop: any pgx pool, connection
//     or transaction will do. After the commit call [Notifier.Notify] for the domains of the
//     jobs; without it the work starts with the next poll of a host, within a second.
//   - [New] makes a [Producer] from a pgclient.Client. [Producer.Enqueue] and
//     [Producer.EnqueueMany] enqueue in a separate transaction and wake the hosts.
//
// One [Producer] or [Notifier] per process is enough; both are safe for many goroutines. A program that
// ends calls Close of it before it closes its connections: wake signals are sent after the calls return.
// The login needs event_ingest_writer.
//
// An error is a *queue.Error: one line with what is wrong and the remedy. If [MayHaveCommitted]
// returns false, nothing was enqueued: the jobs were refused. Otherwise (the connection broke, the
// server or a pooler ended the session, the context ended) it is unknown whether they were
// committed: give a job an IdempotencyKey, and enqueue it again.
//
// # One process that produces and works
//
// A producer and a worker host in the same process can share one Producer. The host then
// claims new jobs before they are committed: such a job needs no wake signal, and its work
// starts one round trip after it was enqueued. The protocol:
//
//  1. Batch (batch.go): while a statement is in flight, jobs without an idempotency key
//     wait and are sent together in the next statement.
//  2. Offer (send.go): before jobs are sent, they are offered to the [Claimer]. It returns a
//     claim, or promises to look for the jobs after the commit, or declines.
//  3. Claim (claim.go): the statement that enqueues and the claim are sent in one round trip,
//     as one transaction. No job is handed to a worker before its commit.
//  4. Retry without the claim (claim.go): a transaction that fails, or that waits for a lock
//     longer than 100 ms, is repeated without the claim.
//  5. Report (claim.go): after the commit, Claimed passes the claimed jobs to the claimer, and
//     the caller gets its answer. A wake signal is sent for jobs that the claim did not lease.
//  6. Notify (notifier.go): without a claim, the jobs are committed alone (send_notify.go). The wake
//     signals of their domains come with the commit, or after the pause of the last one, 2 ms and
//     more where commits are slow. If the claimer promised to look, it looks first, and a wake signal
//     is sent 8 ms later or soon after for the jobs that are not claimed by then.
//
// Steps 2 to 6 apply to [Producer.Enqueue] only; EnqueueMany and Put use a plain statement.
package enqueue

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

// Producer enqueues jobs for all goroutines of a process. A worker host of the process can
// claim through it: see workerhost.Options.
type Producer struct {
	client *pgclient.Client
	pool   *pgpool.Pool
	batch  *batcher
}

// New returns a producer. It uses the connection pool of the client's worker host if there is
// one, otherwise the pool for actions. Of the host's connections, jobs with an idempotency key and
// EnqueueMany take half at most: they may wait for other transactions, and the host must not.
func New(c *pgclient.Client) *Producer {
	pool := c.Act()
	turns := int(pool.Config().MaxConns)
	if c.Work() != nil {
		pool = c.Work()
		turns = max(1, int(pool.Config().MaxConns)/2)
	}
	return &Producer{client: c, pool: pool, batch: &batcher{sender: &sender{
		Notifier: NewNotifier(pool), claimer: noClaimer{}, claimWithin: work.JobTimeout, explain: pool.Explain, turns: make(chan struct{}, turns),
	}}}
}

// MayHaveCommitted reports whether the jobs of a call that returned err may nevertheless be enqueued.
// The call is one of Enqueue and EnqueueMany, In on a pool, or the Commit of the caller's own transaction,
// before which nothing is enqueued. MayHaveCommitted(nil) is false.
func MayHaveCommitted(err error) bool {
	return queue.KindOf(err) != queue.KindUsage && pgerror.MayHaveCommitted(err)
}

// Client returns the client of New. A worker host that claims through the producer has the same one.
func (p *Producer) Client() *pgclient.Client { return p.client }

// Enqueue enqueues one job and wakes its listeners. If a job with the same idempotency key
// exists, created is false and id is the id of that job. A worker host with a free slot
// claims the job in the same transaction. It takes a minute at most, whatever ctx allows.
func (p *Producer) Enqueue(ctx context.Context, job Job) (id string, created bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	return p.batch.put(ctx, job)
}

// EnqueueMany enqueues 1 to 1,000,000 jobs, all or none, and wakes their listeners. It takes a minute
// at most, whatever ctx allows.
func (p *Producer) EnqueueMany(ctx context.Context, jobs []Job) (Made, error) {
	ctx, cancel := context.WithTimeout(ctx, pgpool.ActTimeout)
	defer cancel()
	end, err := p.batch.turn(ctx)
	if err != nil {
		return Made{}, err
	}
	defer end()
	m, err := In(ctx, p.pool, jobs)
	if err == nil || MayHaveCommitted(err) {
		for _, domain := range domainsOf(jobs) {
			p.Notify(domain)
		}
	}
	return m, err
}

// Notify wakes the listeners of the domain, now or soon: see [Notifier.Notify].
func (p *Producer) Notify(domain string) { p.batch.Notify(domain) }

// Close waits until the wake signals of enqueued jobs are sent, or ctx ends: see [Notifier.Close]. A
// program that ends after it has enqueued calls it before it closes its client.
func (p *Producer) Close(ctx context.Context) { p.batch.Close(ctx) }

// Attach sets the claimer to which new jobs are offered.
func (p *Producer) Attach(t Claimer) { p.batch.attach(t) }

// Detach removes the claimer t, unless another one was attached since.
func (p *Producer) Detach(t Claimer) { p.batch.detach(t) }

// Claimed reports jobs that a worker host of this process claimed in the usual way: no wake
// signal is needed for them.
func (p *Producer) Claimed(jobs []work.Job) { p.batch.claimed(jobs) }
