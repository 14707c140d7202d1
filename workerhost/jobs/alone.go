package jobs

import "time"

// aloneFor bounds how long a job that may kill its host waits for the others to end, and
// how long it is alone once it runs: what runs for longer beside it, or it beside others,
// has shown that it does not kill at once.
const aloneFor = 2 * time.Second

// suspects are the claimed jobs that lost a lease before. One of them may have killed its
// host, so a host works on them one at a time:
//
//  1. While there is one, nothing is claimed.
//  2. What was claimed with it is worked on first; the other suspects go back, no attempt
//     spent.
//  3. Once nothing else is here, or what is has run for aloneFor, the suspect begins.
//  4. Claims go on when it has ended, or has run for aloneFor: of one job each, then of more
//     as long as they bring no suspect.
//
// If it kills this host too, no job that had just begun loses its lease with it. The owner
// of the loop owns them.
type suspects struct {
	*state
	results *results
	waiting []*run
	since   time.Duration // when the first of them came
	begun   *run
	at      time.Duration // when it began
}

// sift takes the suspects out of what a claim brought.
func (s *suspects) sift(runs []*run) (others []*run) {
	for _, r := range runs {
		if r.job.LostLeases == 0 {
			others = append(others, r)
			continue
		}
		if len(s.waiting) == 0 {
			s.since = s.clock()
		}
		s.waiting = append(s.waiting, r)
	}
	return others
}

// hold tells that nothing may be claimed.
func (s *suspects) hold() bool {
	if s.begun != nil && (s.begun.isSettled() || s.clock()-s.at > aloneFor) {
		s.begun = nil
	}
	return s.begun != nil || len(s.waiting) > 0
}

// next is the suspect that may begin; nil for none. claiming: a claim is under way.
func (s *suspects) next(claiming bool) *run {
	if len(s.waiting) == 0 || s.begun != nil || claiming || s.stock.size() > 0 {
		return nil
	}
	if late := s.clock()-s.since > aloneFor; !late && int(s.open.Load()) > len(s.waiting) {
		return nil
	}
	s.results.handBack(s.waiting[1:])
	s.begun, s.at, s.waiting = s.waiting[0], s.clock(), nil
	return s.begun
}

// clear takes those that have not begun.
func (s *suspects) clear() []*run {
	waiting := s.waiting
	s.waiting = nil
	return waiting
}
