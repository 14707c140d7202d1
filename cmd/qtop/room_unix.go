//go:build unix

package main

import "golang.org/x/sys/unix"

// room returns how many bytes of the file system of a directory are free for
// its users, and its size in bytes; 0, 0 if that is not known.
func room(dir string) (free, total uint64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil || s.Bsize <= 0 {
		return 0, 0
	}
	of := uint64(s.Bsize) //nolint:gosec,unconvert // Bsize has another type on other systems
	return s.Bavail * of, s.Blocks * of
}
