package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// After a claim with a suspect, the next claim is limited to one job; then the limit grows again.
func TestClaimsAfterASuspect(t *testing.T) {
	t.Parallel()
	plain, suspect := []work.Job{{}, {}}, []work.Job{{}, {LostLeases: 1}}
	require.Zero(t, nextLimit(0, plain))
	few := nextLimit(0, suspect)
	require.Equal(t, 1, few)
	require.Equal(t, 1, nextLimit(64, suspect))
	claims := 0
	for ; few > 0; claims++ {
		require.LessOrEqual(t, few, lease.MaxBatch)
		few = nextLimit(few, plain)
	}
	require.Equal(t, 10, claims)
}

// Beside a suspect at its last lease claims refuse all suspects, and beside any other suspect those at
// their last lease.
func TestSuspectsBesideEachOther(t *testing.T) {
	t.Parallel()
	suspect := []work.Job{{LostLeases: 1, MaxAttempts: 5}, {LostLeases: 1, Attempts: 3, MaxAttempts: 5}}
	last := []work.Job{{LostLeases: 2, Attempts: 1, MaxAttempts: 5}, {LostLeases: 1, Attempts: 4, MaxAttempts: 5}, {LostLeases: 1, MaxAttempts: 1}}
	beside := func(begun ...*work.Job) work.Refusal {
		s := &suspects{}
		for _, j := range begun {
			s.begun = append(s.begun, &run{job: j})
		}
		return s.refusal()
	}
	require.Equal(t, work.RefuseNone, beside())
	for i := range suspect {
		require.Equal(t, work.RefuseLastLease, beside(&suspect[i]), suspect[i])
	}
	for i := range last {
		require.Equal(t, work.RefuseLostLease, beside(&last[i]), last[i])
		require.Equal(t, work.RefuseLostLease, beside(&suspect[0], &last[i]), last[i])
	}
	require.Equal(t, work.RefuseLostLease, (&suspects{returned: []*run{{job: &last[0]}}}).refusal(), "handed back, and not in the queue yet")
	ended := &suspects{begun: []*run{{job: &last[0], state: settled}}}
	require.Equal(t, work.RefuseNone, ended.refusal())
}

// A suspect that was handed back and whose row somebody has locked holds up claims for isolateFor at most:
// then the suspect that waits begins, or is handed back too, where the two must not be open beside each
// other.
func TestSuspectBesideALockedOne(t *testing.T) {
	t.Parallel()
	plain, last := work.Job{LostLeases: 1, MaxAttempts: 5}, work.Job{LostLeases: 2, MaxAttempts: 5}
	for _, c := range []struct {
		waiting, returned work.Job
		begins            bool
		refuses           work.Refusal // afterwards
	}{
		{plain, plain, true, work.RefuseLastLease},
		{plain, last, false, work.RefuseLostLease},
		{last, plain, false, work.RefuseLostLease},
	} {
		s := &suspects{state: &state{began: time.Now().Add(-time.Hour), buffer: newBuffer()}, results: &results{returns: &lease.Results[*run]{}}}
		waiting := &run{job: &c.waiting}
		s.waiting, s.waitsFrom, s.returned = waiting, s.clock(), []*run{{job: &c.returned, state: reported}}
		require.Nil(t, s.next(false), "it waits for the other")
		require.True(t, s.blocksClaims())
		s.waitsFrom -= isolateFor + time.Second
		if begun := s.next(false); c.begins {
			require.Same(t, waiting, begun)
			require.True(t, s.blocksClaims(), "rule 3")
		} else {
			require.Nil(t, begun)
			require.EqualValues(t, released, waiting.outcome)
			require.False(t, s.blocksClaims())
		}
		require.Equal(t, c.refuses, s.refusal())
	}
}
