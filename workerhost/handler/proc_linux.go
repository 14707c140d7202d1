package handler

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// attr puts a command into a separate session, where it gets no signals from the terminal and
// cannot write to the terminal. The kernel kills the command when the host dies.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// starter is the thread that starts commands. It lives until all that it started have ended, because the kernel
// sends them the parent-death signal when their thread ends. A thread per command would be the end of the host,
// with all its loops, at the limit of threads of Go or of the system. One thread starts as many commands as
// several, because syscall.ForkLock lets only one process begin at a time.
var starter struct {
	mu       sync.Mutex
	commands int // that begin or run
	asked    chan func()
}

// startCommand starts a command that is killed when this process ends, but not before. The caller calls ended
// when the command has ended.
func startCommand(cmd *exec.Cmd) (ended func(), err error) {
	starter.mu.Lock()
	if starter.commands++; starter.commands == 1 {
		starter.asked = make(chan func())
		go serveStarts(starter.asked)
	}
	asked := starter.asked
	starter.mu.Unlock()
	started := make(chan error)
	asked <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		oneCommandLess()
		return nil, err
	}
	return oneCommandLess, nil
}

// serveStarts calls what it is sent, on one thread, until the channel is closed.
func serveStarts(asked <-chan func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for start := range asked {
		start()
	}
}

func oneCommandLess() {
	starter.mu.Lock()
	defer starter.mu.Unlock()
	if starter.commands--; starter.commands == 0 {
		close(starter.asked)
	}
}

// awaitEnd returns when a child process that nobody has waited for has ended. Unlike Cmd.Wait it keeps no thread
// meanwhile. It returns at once if there is no descriptor for that, or the kernel is older than 5.10.
func awaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	conn, err := process.SyscallConn()
	if err != nil {
		return
	}
	// an error means that the runtime cannot wait for this file: then Cmd.Wait does
	_ = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor fits
		return n > 0 || err != nil && !errors.Is(err, syscall.EINTR)
	})
}
