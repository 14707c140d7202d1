//go:build !linux

package main

import "syscall"

// endWithParent does nothing here: the kernel has no such signal.
func endWithParent() *syscall.SysProcAttr { return nil }
