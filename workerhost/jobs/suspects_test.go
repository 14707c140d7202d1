package jobs

import (
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
