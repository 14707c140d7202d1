package handler

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process of a run may have a smaller id than its command, once the kernel has begun to reuse ids.
func TestStrayWithASmallerID(t *testing.T) {
	t.Parallel()
	run := newRun()
	stray := exec.Command("sleep", "300")
	stray.Env = append(os.Environ(), runVariable+"="+run)
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	later := exec.Command("true")
	require.NoError(t, later.Run())
	command := begun(later.ProcessState.Pid())
	if command.pid < stray.Process.Pid {
		t.Skip("the kernel has begun to reuse ids at this moment")
	}

	killStrays(run, command)
	require.NotContains(t, processes(command), stray.Process.Pid, "it began before the command")
	require.Empty(t, ended)

	command.forks -= 1 << 40 // the command began long ago: its id and all others were used again since
	killStrays(run, command)
	require.ErrorContains(t, <-ended, "killed")
}
