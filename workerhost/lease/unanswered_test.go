package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/workerhost/lease"
)

// The work of a claim without an answer is released again and again until the claim can no longer
// be committed, at most once a second.
func TestUnansweredClaimsAreReleasedAgain(t *testing.T) {
	t.Parallel()
	var u lease.Unanswered
	at := time.Now()
	after := func(d time.Duration) time.Time { return at.Add(d) }
	require.False(t, u.Due(at))
	u.Add()
	require.True(t, u.New() && u.Due(at))
	u.Released(after(-5*time.Minute), at) // the server was frozen for so long
	require.True(t, u.Open(), "the claim may be committed after the release")
	require.False(t, u.New())
	require.False(t, u.Due(after(900*time.Millisecond)))
	require.True(t, u.Due(after(time.Second)))
	u.Released(after(119*time.Second), after(130*time.Second))
	require.True(t, u.Open(), "that release began too early")
	u.Add()
	require.True(t, u.New() && u.Due(after(131*time.Second)))
	u.Released(after(131*time.Second), after(131*time.Second))
	require.True(t, u.Open(), "the time of the first claim does not count for the second")
	u.Released(after(251*time.Second), after(252*time.Second))
	require.False(t, u.Open())
	require.False(t, u.Due(after(time.Hour)))
}
