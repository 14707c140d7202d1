package main

import "syscall"

// endWithParent has the kernel kill a process when this one ends, however it ends.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
