package handler_test

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Commands that run hold no thread of the host: it would end, with all its loops, at the limit of threads. Not
// parallel, because it counts the threads of this process.
func TestCommandsHoldNoThread(t *testing.T) {
	const commands = 200
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	before := threads(t)
	dir := t.TempDir()
	h := command(t, 0, "sh", "-c", `: > "$0/$$"; exec sleep 300`, dir)
	var ended sync.WaitGroup
	for range commands {
		ended.Go(func() { _ = h.Handle(ctx, job()) })
	}
	require.Eventually(t, func() bool {
		running, err := os.ReadDir(dir)
		return err == nil && len(running) == commands
	}, time.Minute, 10*time.Millisecond)
	require.Less(t, threads(t), before+commands/4)
	stop()
	ended.Wait()
	require.Less(t, threads(t), before+commands/4, "while they ended")
}

// threads returns how many threads this process has.
func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^Threads:\s+(\d+)$`).FindSubmatch(status)
	require.NotNil(t, found)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}
