//go:build !linux

package main

// actAsInit does nothing: only on Linux is a container's program process 1.
func actAsInit() {}
