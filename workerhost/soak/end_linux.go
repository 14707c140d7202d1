package main

import "syscall"

// endWithUs returns the attributes of a child process that the kernel kills
// when this process ends, even by SIGKILL.
func endWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
