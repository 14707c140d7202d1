package jobs

import (
	"slices"
	"time"

	"github.com/qtop/qtop/pgclient/work"
)

// isolateFor bounds how long a suspect waits for the other jobs to end, and then for how long no
// other job starts beside it. A job that has run for longer does not kill its host at once.
const isolateFor = 2 * time.Second

// suspects holds the claimed jobs that have lost a lease before: each of them may have killed its
// former host. A suspect is at its last lease if the next lost lease makes it a dead letter. The
// rules of a host:
//
//  1. The jobs of a claim that are not suspects are worked on first. One suspect waits, further
//     suspects are handed back, and no attempt is counted. While a suspect waits, nothing is claimed.
//  2. The suspect begins when no other job is open in this process and the suspects that were handed back
//     are in the queue again, or after isolateFor: somebody may have locked the row of one of them. If
//     rule 4 forbids it then, the suspect is handed back too.
//  3. Claims continue when the suspect has ended or has run for isolateFor. The first claim is
//     limited to one job; the limit doubles with each claim in which there is no suspect.
//  4. A suspect at its last lease is never open beside another suspect: while it is open, claims
//     refuse all suspects; while another suspect is open, they refuse suspects at their last lease.
//  5. A claim passes over the jobs that it refuses (work.Refusal): they keep their place in the queue,
//     where other hosts find them. Other jobs are claimed as usual.
//
// What the jobs beside a job that kills its host lose, on one host or on several:
//
//   - At the first kill it is no suspect: all jobs that are open in the process lose a lease.
//   - At the second, a suspect beside it that is not at its last lease may lose its second lease,
//     but only if both run for longer than isolateFor (rules 1 to 3).
//   - At the third it is at its last lease: no suspect is open beside it (rule 4).
//
// So it costs another job two leases at most, and never makes it a dead letter, unless that job was
// at its last lease before the first kill. A job that is no suspect loses its first lease. Jobs at their
// last lease run one at a time in each process; everything else runs beside them.
//
// Only the owner of the loop uses suspects.
type suspects struct {
	*state
	results   *results
	waiting   *run          // has not begun
	waitsFrom time.Duration // clock when waiting was claimed
	returned  []*run        // handed back because of waiting
	begun     []*run        // have begun and are not settled
	started   *run          // the last of begun, while nothing may be claimed because of it
	startedAt time.Duration // clock when started began
}

// separate puts the suspects of a claim aside and returns the other jobs.
func (s *suspects) separate(runs []*run) (others []*run) {
	returned := len(s.returned)
	for _, r := range runs {
		switch {
		case r.job.LostLeases == 0:
			others = append(others, r)
		case s.waiting == nil:
			s.waiting, s.waitsFrom = r, s.clock()
		default:
			s.returned = append(s.returned, r)
		}
	}
	s.results.handBack(s.returned[returned:])
	return others
}

// blocksClaims reports that nothing may be claimed because of a suspect.
func (s *suspects) blocksClaims() bool {
	if s.started != nil && (s.started.isSettled() || s.clock()-s.startedAt > isolateFor) {
		s.started = nil
	}
	return s.started != nil || s.waiting != nil
}

// next returns the suspect that may begin now, or nil. claiming reports that a claim is under way.
func (s *suspects) next(claiming bool) *run {
	if s.waiting == nil || s.started != nil || claiming || s.buffer.size() > 0 {
		return nil
	}
	s.returned = slices.DeleteFunc(s.returned, (*run).isSettled)
	waitedLongEnough := s.clock()-s.waitsFrom > isolateFor
	switch {
	case !waitedLongEnough && (len(s.returned) > 0 || s.open.Load() > 1):
		return nil
	case len(s.returned) > 0 && (atLastLease(s.waiting.job) || slices.ContainsFunc(s.returned, isLast)):
		s.returned = append(s.returned, s.waiting)
		s.results.handBack(s.clear())
		return nil
	}
	s.started, s.startedAt, s.waiting = s.waiting, s.clock(), nil
	s.begun = append(s.begun, s.started)
	return s.started
}

// clear removes and returns the suspect that has not begun.
func (s *suspects) clear() (waiting []*run) {
	if s.waiting != nil {
		waiting = []*run{s.waiting}
	}
	s.waiting = nil
	return waiting
}

// refusal returns which jobs must not be claimed, because of the suspects that are open in this process:
// those that have begun, and those that were handed back and are not in the queue again.
func (s *suspects) refusal() work.Refusal {
	s.begun = slices.DeleteFunc(s.begun, (*run).isSettled)
	s.returned = slices.DeleteFunc(s.returned, (*run).isSettled)
	switch {
	case len(s.begun)+len(s.returned) == 0:
		return work.RefuseNone
	case slices.ContainsFunc(s.begun, isLast), slices.ContainsFunc(s.returned, isLast):
		return work.RefuseLostLease
	}
	return work.RefuseLastLease
}

func isLast(r *run) bool { return atLastLease(r.job) }

// atLastLease reports whether the job becomes a dead letter when it loses another lease, as fn_job_reap
// decides.
func atLastLease(j *work.Job) bool {
	return j.LostLeases >= 2 || j.LostLeases > 0 && j.Attempts+1 >= j.MaxAttempts
}
