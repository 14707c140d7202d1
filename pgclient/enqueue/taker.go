package enqueue

// This file is who may claim in the transaction of jobs, and who sends them.

import (
	"sync"

	"github.com/qtop/qtop/pgclient/work"
)

// Taker is a worker host in the process of those who enqueue. It may claim in the
// transaction of their jobs.
type Taker interface {
	// Offer is asked before jobs are sent. A claim goes with them, and Claimed is told
	// once what it brought, after the commit, and whether it left some of them: it
	// brings nothing where it fails or gives way. Without one, takes says that such jobs
	// are looked for, when Look is called.
	Offer(jobs []Job) (claim *work.Claim, takes bool)
	Claimed(jobs []work.Job, left bool, err error)
	Look()
}

// nobody takes nothing.
type nobody struct{}

func (nobody) Offer([]Job) (*work.Claim, bool)       { return nil, false }
func (nobody) Claimed(_ []work.Job, _ bool, _ error) {}
func (nobody) Look()                                 {}

// sender sends what enqueues jobs.
type sender struct {
	*Ringer
	mu    sync.Mutex
	taker Taker
}

func (s *sender) attach(t Taker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taker = t
}

func (s *sender) detach(t Taker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taker == t {
		s.taker = nobody{}
	}
}

func (s *sender) attached() Taker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taker
}
