package main

import "syscall"

// endWithUs has the kernel kill a process when this one ends, however it ends.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
