package enqueue

import (
	"context"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/work"
)

// Claimer is a worker host in the same process as the producer. It may claim jobs in the
// transaction that enqueues them.
type Claimer interface {
	// Offer is called before jobs are sent. It returns a claim, or promises to look for the jobs
	// (willLook), or declines with nil and false.
	//
	// A claim runs in the transaction of the jobs. After the commit, Claimed is called once with
	// the jobs that the claim leased, and with whether it left some of the offered ones. It leased
	// none if the claim failed, or was dropped because of a lock. If there is no answer within 15 s,
	// Claimed is called with an error.
	//
	// After a promise, Look is called after the commit.
	Offer(jobs []Job) (claim *work.Claim, willLook bool)
	Claimed(jobs []work.Job, remaining bool, err error)
	Look()
}

// noClaimer declines every offer.
type noClaimer struct{}

func (noClaimer) Offer([]Job) (*work.Claim, bool)       { return nil, false }
func (noClaimer) Claimed(_ []work.Job, _ bool, _ error) {}
func (noClaimer) Look()                                 {}

// sender sends the statements that enqueue jobs.
type sender struct {
	*Notifier
	mu          sync.Mutex
	claimer     Claimer
	claimWithin time.Duration     // how long the claimer waits for the result of a claim
	explain     func(error) error // names the role that a refused login lacks
	turns       chan struct{}     // one value per call of turn that has not ended
}

// turn waits until a call may take a connection that may wait long: for a key that another transaction
// has given, or for many jobs. The caller calls end when the connection is free.
func (s *sender) turn(ctx context.Context) (end func(), err error) {
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, pgerror.Translate(ctx.Err())
	}
}

func (s *sender) attach(t Claimer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimer = t
}

func (s *sender) detach(t Claimer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimer == t {
		s.claimer = noClaimer{}
	}
}

func (s *sender) attached() Claimer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimer
}
