//go:build unix && !linux

package handler

import "syscall"

// attr: a session of its own, out of reach of the terminal's signals and unable
// to write on it. There are no parent-death signals here.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
