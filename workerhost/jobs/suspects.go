package jobs

import "time"

// isolateFor bounds how long a suspect waits for the other jobs to end, and then for how long no
// other job starts beside it. A job that has run for longer does not kill its host at once.
const isolateFor = 2 * time.Second

// suspects holds the claimed jobs that have lost a lease before: each of them may have killed its
// former host. A host works on suspects one at a time:
//
//  1. While there is a suspect, nothing is claimed.
//  2. The other jobs of its claim are worked on first. Further suspects are handed back, and no
//     attempt is counted.
//  3. The suspect begins when no other job is open in this process, or after isolateFor.
//  4. Claims continue when the suspect has ended or has run for isolateFor. The first claim is
//     limited to one job; the limit doubles with each claim in which there is no suspect.
//
// So if the suspect kills this host too, hardly any other job loses its lease because of it. Only
// the owner of the loop uses suspects.
type suspects struct {
	*state
	results   *results
	waiting   []*run
	firstAt   time.Duration // clock when the first job of waiting was claimed
	started   *run
	startedAt time.Duration // clock when the job started began
}

// separate puts the suspects of a claim aside and returns the other jobs.
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

// next returns the suspect that may begin now, or nil. claiming reports that a claim is under
// way.
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
