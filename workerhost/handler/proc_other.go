//go:build unix && !linux

package handler

import "syscall"

// attr puts a command into its own session, where the terminal's signals do not reach it and
// it cannot write to the terminal. These systems have no parent-death signal.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
