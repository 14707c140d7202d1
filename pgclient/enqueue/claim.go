package enqueue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

// claimInTx sends the enqueueing statement and a claim in one transaction, then wakes listeners
// for the jobs that the claim did not lease. If the server refuses one of the two, for example
// because a wait for a lock exceeded claimLockTimeout while an operator changes a job
// subscription, the jobs are sent again without the claim (sendAndNotify): enqueueing matters more
// than the claim.
func (s *sender) claimInTx(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, claimer Claimer, claim *work.Claim) (answer, error) {
	statementWithTimeout := statement{enqueue.sql + noTrigger + shortLockWait, enqueue.args}
	// Claimed jobs must be delivered to workers even if the caller has given up, so the end of its
	// context does not cancel the statements.
	both, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgpool.ActTimeout)
	defer cancel()
	// The host makes no other claim until it has the result of this one. After claimWithin it gets
	// an error, and hands back what the claim may still lease.
	var once sync.Once
	give := func(jobs []work.Job, remaining bool, err error) (given bool) {
		once.Do(func() {
			given = true
			if err == nil {
				s.claimed(jobs)
			}
			claimer.Claimed(jobs, remaining, err)
		})
		return given
	}
	late := time.AfterFunc(s.claimWithin, func() { give(nil, false, pgerror.Translate(context.DeadlineExceeded)) })
	defer late.Stop()
	p := startPipeline(both, conn, []statement{statementWithTimeout, {work.ClaimSQL, claim.Arguments(conn.TypeMap())}})
	var got []work.Job
	var broken error // the jobs are leased, but their rows cannot be decoded
	var refused *pgconn.PgError
	a, err := readAnswer(p)
	made := err == nil
	if made {
		broken = readNext(p, func(rows *pgconn.ResultReader) (err error) {
			got, err = work.ReadClaimed(pgx.RowsFromResultReader(conn.TypeMap(), rows), claim.Most)
			return err
		})
		if err = readEnd(p); errors.As(broken, &refused) {
			err = broken
		}
	}
	_ = p.Close()
	if errors.As(err, &refused) && !conn.IsClosed() { // the server refused a statement, so the transaction is rolled back
		give(nil, made, nil)
		return s.sendAndNotify(ctx, conn, enqueue, jobs, claimer, true)
	} else if err != nil {
		give(nil, false, pgerror.Translate(err))
		claimer.Look()
		return a, err
	}
	remaining := !a.within(got)
	if !give(got, remaining, pgerror.Translate(broken)) || remaining {
		for _, domain := range domainsOf(jobs) {
			s.Notify(domain)
		}
	}
	return a, nil
}
