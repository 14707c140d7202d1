//go:build !linux

package main

import "syscall"

// endWithUs does nothing: the kernel of this system has no parent-death signal.
func endWithUs() *syscall.SysProcAttr { return nil }
