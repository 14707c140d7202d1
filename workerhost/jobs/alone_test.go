package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/work"
	"github.com/qtop/qtop/workerhost/lease"
)

// Claims are of one job after one that brought a suspect, and grow again after it.
func TestClaimsAfterASuspect(t *testing.T) {
	t.Parallel()
	plain, suspect := []work.Job{{}, {}}, []work.Job{{}, {LostLeases: 1}}
	require.Zero(t, fewer(0, plain))
	few := fewer(0, suspect)
	require.Equal(t, 1, few)
	require.Equal(t, 1, fewer(64, suspect))
	claims := 0
	for ; few > 0; claims++ {
		require.LessOrEqual(t, few, lease.Most)
		few = fewer(few, plain)
	}
	require.Equal(t, 10, claims)
}
