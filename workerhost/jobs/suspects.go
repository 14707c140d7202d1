package jobs

import "time"

// isolateFor bounds how long a suspect waits for the other jobs to end, and how long it runs
// alone. A job that has run for longer has shown that it does not kill its host at once.
const isolateFor = 2 * time.Second

// suspects holds the claimed jobs that lost a lease before: any of them may have killed its
// host. A host works on them one at a time:
//
//  1. While there is a suspect, nothing is claimed.
//  2. The other jobs of its claim are worked on first. Further suspects are handed back, no
//     attempt spent.
//  3. The suspect begins when no other job is open here, or after isolateFor.
//  4. Claims continue when the suspect has ended or has run for isolateFor: first of one job
//     each, then of twice as many each time no suspect is among them.
//
// If the suspect kills this host too, no job that had just begun loses its lease with it.
// Only the owner of the loop uses suspects.
type suspects struct {
	*state
	results   *results
	waiting   []*run
	firstAt   time.Duration // when the first of waiting was claimed
	started   *run
	startedAt time.Duration // when started began
}

// separate keeps the suspects of a claim and returns its other jobs.
func (s *suspects) separate(runs []*run) (others []*run) {
	for _, r := range runs {
		if r.job.LostLeases == 0 {
			others = append(others, r)
			continue
		}
		if len(s.waiting) == 0 {
			s.firstAt = s.clock()
		}
		s.waiting = append(s.waiting, r)
	}
	return others
}

// blocksClaims reports that nothing may be claimed because of a suspect.
func (s *suspects) blocksClaims() bool {
	if s.started != nil && (s.started.isSettled() || s.clock()-s.startedAt > isolateFor) {
		s.started = nil
	}
	return s.started != nil || len(s.waiting) > 0
}

// next returns the suspect that may begin now, nil for none. claiming says that a claim is
// under way.
func (s *suspects) next(claiming bool) *run {
	if len(s.waiting) == 0 || s.started != nil || claiming || s.buffer.size() > 0 {
		return nil
	}
	if waitedLongEnough := s.clock()-s.firstAt > isolateFor; !waitedLongEnough && int(s.open.Load()) > len(s.waiting) {
		return nil
	}
	s.results.handBack(s.waiting[1:])
	s.started, s.startedAt, s.waiting = s.waiting[0], s.clock(), nil
	return s.started
}

// clear removes and returns the suspects that have not begun.
func (s *suspects) clear() []*run {
	waiting := s.waiting
	s.waiting = nil
	return waiting
}
