//go:build !linux

package main

import "syscall"

// endWithUs does nothing here: the kernel has no such signal.
func endWithUs() *syscall.SysProcAttr { return nil }
