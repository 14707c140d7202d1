//go:build !linux

package main

import "syscall"

// endWithParent does nothing: the kernel of this system has no parent-death signal.
func endWithParent() *syscall.SysProcAttr { return nil }
