package handler

import "syscall"

// attr puts a command into a separate session, where it gets no signals from the terminal and
// cannot write to the terminal. The kernel kills the command when the host dies.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
