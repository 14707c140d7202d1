package enqueue

// This file sends jobs with the claim of a worker host of this process, in one
// transaction.

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/pgpool"
	"github.com/qtop/qtop/pgclient/work"
)

// claimWith claims in the transaction that enqueues, and rings for the jobs that the
// claim did not bring. A transaction that fails is made again without the claim, which
// gives way to the jobs where it has to wait for a lock, such as that of a rule
// somebody changes, for longer than claimPatience.
func (s *sender) claimWith(ctx context.Context, conn *pgx.Conn, enqueue statement, jobs []Job, taker Taker, claim *work.Claim) (answer, error) {
	patient := statement{enqueue.sql + patiently, enqueue.args}
	// What is claimed is to be worked, even if nobody waits for the enqueueing. The
	// server ends each statement earlier.
	both, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*pgpool.WorkTimeout+work.JobTimeout)
	defer cancel()
	p := inOneGo(both, conn, []statement{patient, {work.ClaimSQL, claim.Arguments(conn.TypeMap())}}, false)
	var got []work.Job
	var broken error // the jobs are leased, but cannot be read
	var refused *pgconn.PgError
	a, err := readAnswer(p)
	made := err == nil
	if made {
		broken = readNext(p, func(rows *pgconn.ResultReader) (err error) {
			got, err = work.ReadClaimed(pgx.RowsFromResultReader(conn.TypeMap(), rows), claim.Most)
			return err
		})
		if err = readOn(p); errors.As(broken, &refused) {
			err = broken
		}
	}
	_ = p.Close()
	if errors.As(err, &refused) && !conn.IsClosed() { // rolled back
		taker.Claimed(nil, made, nil)
		return s.ringBehind(ctx, conn, enqueue, jobs, taker, true)
	} else if err != nil {
		taker.Claimed(nil, false, pgerror.Translate(err))
		taker.Look()
		return a, err
	}
	s.claimed(got)
	left := !a.within(got)
	taker.Claimed(got, left, pgerror.Translate(broken))
	if left {
		for _, domain := range domainsOf(jobs) {
			s.Ring(domain)
		}
	}
	return a, nil
}
