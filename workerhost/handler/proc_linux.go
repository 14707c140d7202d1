package handler

import "syscall"

// attr puts a command into its own session, where the terminal's signals do not reach it and
// it cannot write to the terminal. The kernel kills the command when the host dies.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
