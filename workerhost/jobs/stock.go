package jobs

import "sync"

// stock is what is claimed and waits for a worker.
type stock struct {
	mu     sync.Mutex
	some   *sync.Cond
	runs   []*run
	next   int // of runs
	closed bool
}

func newStock() *stock {
	s := &stock{}
	s.some = sync.NewCond(&s.mu)
	return s
}

func (s *stock) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs) - s.next
}

func (s *stock) put(runs []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs[s.next:], runs...)
	s.next = 0
	s.some.Signal()
}

// take waits for a job; nil when there will be none. Who takes one wakes the next
// worker when there is more: a batch of no-ops does not need all of them.
func (s *stock) take() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.runs) == s.next {
		if s.closed {
			return nil
		}
		s.some.Wait()
	}
	r := s.runs[s.next]
	s.runs[s.next] = nil
	s.next++
	if len(s.runs) > s.next {
		s.some.Signal()
	}
	return r
}

// stale takes those that came before a tick: the oldest come first.
func (s *stock) stale(before int64) []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.next
	for n < len(s.runs) && s.runs[n].tick < before {
		n++
	}
	old := s.runs[s.next:n:n]
	s.next = n
	return old
}

// clear takes all.
func (s *stock) clear() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.runs[s.next:]
	s.runs, s.next = nil, 0
	return rest
}

// close takes all and sends the workers home.
func (s *stock) close() []*run {
	rest := s.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.some.Broadcast()
	return rest
}
