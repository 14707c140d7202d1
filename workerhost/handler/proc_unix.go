//go:build unix

package handler

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

const (
	terminate = syscall.SIGTERM
	kill      = syscall.SIGKILL
)

// signalGroup sends a signal to the process group of a command. os.ErrProcessDone means that no
// process of the group is left.
func signalGroup(pid int, sig syscall.Signal) error {
	err := syscall.Kill(-pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// endSignal returns the name, without "SIG", of the signal that ended a process; false if no
// signal did.
func endSignal(state *os.ProcessState) (string, bool) {
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return "", false
	}
	sig := status.Signal()
	names := map[syscall.Signal]string{
		syscall.SIGABRT: "ABRT", syscall.SIGALRM: "ALRM", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
		syscall.SIGHUP: "HUP", syscall.SIGILL: "ILL", syscall.SIGINT: "INT", syscall.SIGKILL: "KILL",
		syscall.SIGPIPE: "PIPE", syscall.SIGQUIT: "QUIT", syscall.SIGSEGV: "SEGV", syscall.SIGSYS: "SYS",
		syscall.SIGTERM: "TERM", syscall.SIGTRAP: "TRAP", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
		syscall.SIGXCPU: "XCPU", syscall.SIGXFSZ: "XFSZ",
	}
	if name, known := names[sig]; known {
		return name, true
	}
	return strconv.Itoa(int(sig)), true
}
