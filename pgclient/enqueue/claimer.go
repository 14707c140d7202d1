package enqueue

import (
	"sync"

	"github.com/qtop/qtop/pgclient/work"
)

// Claimer is a worker host in the same process as the producer. It may claim jobs in the
// transaction that enqueues them.
type Claimer interface {
	// Offer is called before jobs are sent. If it returns a claim, that claim runs in the
	// transaction of the jobs, and Claimed is called once after the commit with the jobs that
	// it leased and whether it left some of the offered ones; it leases none if it fails or is
	// dropped because of a lock. Without a claim, willLook promises to look for the jobs: Look
	// is called after the commit.
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
	mu      sync.Mutex
	claimer Claimer
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
