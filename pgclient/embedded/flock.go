// Ownership of a directory: an flock, which the kernel releases when its holder ends in any way.

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// tryLock takes the lock file at path, or returns nil if another process holds
// it. The lock lives as long as the returned file is open; children do not
// inherit it. A lock file that was removed between open and flock does not count.
func tryLock(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("opening the lock file: %w", err)
		}
		if ok, err := flock(f); err != nil || !ok {
			_ = f.Close()
			return nil, err
		}
		if sameFile(f, path) {
			return f, nil
		}
		_ = f.Close()
	}
}

// waitLock takes the lock file at path; if another process holds the lock, it waits.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := tryLock(path)
		if err != nil || f != nil {
			return f, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for the holder of %s: %w", path, err)
		}
	}
}

// flock locks an open file without waiting; false = another process holds it.
func flock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
	}
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// releaseLock releases a lock. Closing the file is not enough: a child that is being started has
// a copy of it until its program runs.
func releaseLock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// Exclusive waits for the lock file at path and holds it until unlock is called
// or this process ends.
func Exclusive(ctx context.Context, path string) (unlock func(), err error) {
	f, err := waitLock(ctx, path)
	if err != nil {
		return nil, err
	}
	return func() { _ = releaseLock(f) }, nil
}
