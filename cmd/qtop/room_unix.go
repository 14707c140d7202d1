//go:build unix

package main

import "golang.org/x/sys/unix"

// room is how many bytes of the file system of a directory are free for its users, and
// how many it has; 0, 0 where that cannot be asked.
func room(dir string) (free, total uint64) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil || s.Bsize <= 0 {
		return 0, 0
	}
	of := uint64(s.Bsize) //nolint:gosec,unconvert // int64 here, uint32 there
	return s.Bavail * of, s.Blocks * of
}
