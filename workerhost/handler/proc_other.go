//go:build unix && !linux

package handler

import "syscall"

// attr puts a command into a separate session, where it gets no signals from the terminal and
// cannot write to the terminal. On these systems the command survives the death of the host.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
