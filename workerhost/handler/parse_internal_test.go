package handler

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The timeout of a kind also frees the slot of a handler that does not return.
func TestTimeoutOfAKindEndsAHandlerThatHangs(t *testing.T) {
	t.Parallel()
	r := &Runner{Grace: func() time.Duration { return 0 }}
	t.Cleanup(r.Close)
	release, ended := make(chan struct{}), make(chan error, 1)
	defer close(release)
	h := limited{Func(func(context.Context, Job) error { <-release; return nil }), time.Second}
	go func() { ended <- r.Run(context.Background(), h, Job{}) }()
	select {
	case err := <-ended:
		code, _, _ := Outcome(err)
		require.Equal(t, CodeHung, code)
	case <-time.After(30 * time.Second):
		t.Fatal("the handler keeps its slot")
	}
}
