package workerhost

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A flood of what handlers say goes in several statements, and none waits for ever.
func TestResultsOfManyWords(t *testing.T) {
	s := &jobSink{ring: make(chan struct{}, 1)}
	for range 3 {
		s.queue = append(s.queue, &jobRun{text: strings.Repeat("x", mostSaid/2)})
	}
	s.queue = append(s.queue, &jobRun{text: strings.Repeat("x", mostSaid+1)}, &jobRun{}, &jobRun{})
	var sizes []int
	for batch := s.take(); len(batch) > 0; batch = s.take() {
		sizes = append(sizes, len(batch))
	}
	require.Equal(t, []int{2, 1, 1, 2}, sizes)
}
