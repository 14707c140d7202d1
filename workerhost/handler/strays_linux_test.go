package handler

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

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

	straysOf(run, command).kill()
	require.NotContains(t, within(0).processes(command), stray.Process.Pid, "it began before the command")
	require.Empty(t, ended)

	command.forks -= 1 << 40 // the command began long ago: its id and all others were used again since
	straysOf(run, command).kill()
	require.ErrorContains(t, <-ended, "killed")
}

// While this host has no file descriptor left, a search waits for one: no process outlives its run. Not
// parallel, because the test changes the limit of this process.
func TestStrayWithoutAFileDescriptor(t *testing.T) {
	name := newRun()
	stray := exec.Command("sleep", "300")
	stray.Env = append(os.Environ(), runVariable+"="+name)
	require.NoError(t, stray.Start())
	t.Cleanup(func() { _ = stray.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- stray.Wait() }()
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	without := func(free time.Duration, f func()) {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
		freed := time.AfterFunc(free, func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
		f()
		freed.Stop()
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	}
	const soon = 50 * time.Millisecond

	left := straysOf(name, start{})
	left.patience = soon
	without(time.Hour, left.kill) // the wait has an end
	require.Empty(t, ended)
	require.Zero(t, left.patience, "the next search of the attempt waits no more")
	without(soon, func() { require.True(t, strings.HasPrefix(name, within(time.Minute).runsOf(os.Getpid()))) })
	left.patience = time.Minute
	without(soon, left.kill)
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "killed")
	case <-time.After(time.Minute):
		require.Fail(t, "the process is still there")
	}
}
