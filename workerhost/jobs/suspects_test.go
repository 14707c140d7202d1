package jobs

import (
	"slices"
	"testing"

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

// Beside a suspect at its last lease no suspect may be open, and beside any suspect none at its last
// lease.
func TestSuspectsBesideEachOther(t *testing.T) {
	t.Parallel()
	const plain, suspect, last = "plain", "suspect", "last"
	jobs := map[string][]work.Job{
		plain:   {{MaxAttempts: 1}, {Attempts: 4, MaxAttempts: 5}},
		suspect: {{LostLeases: 1, MaxAttempts: 5}, {LostLeases: 1, Attempts: 3, MaxAttempts: 5}},
		last:    {{LostLeases: 2, Attempts: 1, MaxAttempts: 5}, {LostLeases: 1, Attempts: 4, MaxAttempts: 5}, {LostLeases: 1, MaxAttempts: 1}},
	}
	for _, c := range []struct {
		begun  []string
		refuse []string
	}{
		{nil, nil},
		{[]string{suspect}, []string{last}},
		{[]string{last}, []string{suspect, last}},
		{[]string{suspect, last}, []string{suspect, last}},
	} {
		s := &suspects{}
		for _, kind := range c.begun {
			s.begun = append(s.begun, &run{job: &jobs[kind][0]})
		}
		for kind, some := range jobs {
			for i := range some {
				require.Equal(t, slices.Contains(c.refuse, kind), s.running().refuse(&some[i]), "%s beside %v: %+v", kind, c.begun, some[i])
			}
		}
	}
	ended := &suspects{begun: []*run{{job: &jobs[last][0], state: settled}}}
	require.Equal(t, runningSuspects{}, ended.running())
}
