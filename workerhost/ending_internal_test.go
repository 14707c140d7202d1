package workerhost

import (
	"sync"
	"testing"
)

// The console may start a loop in the moment in which the host begins to end.
func TestEndBesideAStart(t *testing.T) {
	t.Parallel()
	h := &Host{}
	var all sync.WaitGroup
	all.Go(func() {
		for range 1_000_000 {
			h.ending.Store(nil) // as startLoops
		}
	})
	for range 1_000_000 {
		_ = h.endBegan()
	}
	all.Wait()
}
