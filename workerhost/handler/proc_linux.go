package handler

import "syscall"

// attr: a session of its own, out of reach of the terminal's signals and unable
// to write on it, that the kernel ends when the host dies.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
