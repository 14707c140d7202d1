package main

import "syscall"

// endWithParent makes the kernel kill a child process when this process ends, even by SIGKILL.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
