package jobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A heartbeat is sent in the background while the loop goes on: it keeps the time that it was made
// with.
func TestHeartbeatKeepsItsTime(t *testing.T) {
	t.Parallel()
	s := &standing{state: &state{Executor: &Executor{}}}
	require.Nil(t, s.progress().LastWorkAt)
	s.Outcomes[0].Add(1)
	first := s.progress().LastWorkAt
	was := *first
	s.Outcomes[0].Add(1)
	next := s.progress().LastWorkAt
	require.True(t, next.After(was))
	require.Equal(t, was, *first)
}
