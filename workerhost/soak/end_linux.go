package main

import "syscall"

// endWithUs makes the kernel kill a child process when this process ends, even by SIGKILL.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
