// Leftovers of processes that were killed: temporary base directories whose
// lock is free, and short socket directories whose base is gone.

package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sweep removes the leftovers of this user. It ignores errors: the next start removes what
// remains.
func sweep() {
	roots := []string{tempRoot(), "/tmp", shmDir}
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		entries, err := os.ReadDir(root)
		if err != nil {
			continue // not every system has all of these directories
		}
		for _, e := range entries {
			path := filepath.Join(root, e.Name())
			switch {
			case !e.IsDir():
			case strings.HasPrefix(e.Name(), tempPrefix):
				sweepBase(path)
			case strings.HasPrefix(e.Name(), makingPrefix):
				sweepMaking(path)
			case strings.HasPrefix(e.Name(), sockPrefix):
				sweepSocket(path)
			}
		}
	}
}

// sweepMaking removes a temporary base directory whose making stopped at least an hour ago.
func sweepMaking(dir string) {
	fi, err := os.Lstat(dir)
	if err != nil || !ours(fi) || time.Since(fi.ModTime()) <= time.Hour {
		return
	}
	if isFile(filepath.Join(dir, tempNote)) {
		_ = os.RemoveAll(dir)
	} else {
		_ = os.Remove(dir) // only if it is empty
	}
}

// sweepBase removes a temporary base directory that no process owns and in which no server works.
func sweepBase(dir string) {
	fi, err := os.Lstat(dir)
	if err != nil || !ours(fi) || !isFile(filepath.Join(dir, tempNote)) {
		return
	}
	lock, err := tryLock(filepath.Join(dir, "lock"))
	if err != nil || lock == nil {
		return
	}
	defer func() { _ = releaseLock(lock) }()
	for _, major := range clusters(dir) {
		if left, err := survivors(dataDir(dir, major)); err != nil || len(left) > 0 {
			return
		}
	}
	_ = os.RemoveAll(dir)
}

// sweepSocket removes a short socket directory whose base directory is gone or
// has no owner.
func sweepSocket(top string) {
	fi, err := os.Lstat(top)
	if err != nil || !ours(fi) {
		return
	}
	base, err := os.ReadFile(filepath.Join(top, baseNote))
	if err != nil {
		return
	}
	if _, err := os.Stat(string(base)); err == nil {
		lock, err := tryLock(filepath.Join(string(base), "lock"))
		if err != nil || lock == nil {
			return
		}
		defer func() { _ = releaseLock(lock) }()
	}
	_ = os.RemoveAll(top)
}

func ours(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
