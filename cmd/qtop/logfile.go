package main

// The log of a host inside the console.

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/qtop/qtop/pgclient/queue"
)

// mostLog is the size at which a log is put aside as FILE.1, which replaces the one put aside before:
// a host writes a line per attempt, for as long as a console is open.
const mostLog = 10 << 20

// logFile returns the log of a host inside the console. It is a file, because
// the screen belongs to the console. The first line opens it; lines that come while the
// file cannot be opened are counted. Without a home directory, the log is discarded.
func (a *app) logFile() (*slog.Logger, func()) {
	none := func() (*slog.Logger, func()) { return slog.New(slog.DiscardHandler), func() {} }
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the XDG rules require to ignore a relative one
		home, err := os.UserHomeDir()
		if err != nil {
			return none()
		}
		dir = filepath.Join(home, ".local", "state")
	}
	dir = filepath.Join(dir, "qtop")
	f := &turningFile{path: filepath.Join(dir, "qtop.log"), most: mostLog}
	lines := &lineQueue{w: f}
	lines.start(sayMissing)
	return slog.New(slog.NewJSONHandler(logTo(lines), nil)), func() {
		if lines.end(flushWithin) { // else a write still waits for the file system
			_ = f.Close()
		}
	}
}

// turningFile is a file to which several processes append. One that finds it full puts it aside; the
// others then open the new one. Its directory is made if it is missing.
type turningFile struct {
	path string
	most int64
	mu   sync.Mutex
	f    *os.File // nil: not opened yet
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (t *turningFile) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.turn(); err != nil {
		return 0, err
	}
	return t.f.Write(p)
}

// turn opens the path if it is not open, if its file is full, or if that is no longer the open one. If
// it cannot be opened again, the open file is used on.
func (t *turningFile) turn() error {
	if t.f != nil {
		if size, there := t.atPath(); there && (size < t.most || !t.putAside()) {
			return nil
		}
	}
	f, err := openLog(t.path)
	if err != nil {
		return queue.Choose(t.f == nil, err, nil)
	}
	_ = t.f.Close() // of nil it only returns an error
	t.f = f
	return nil
}

// atPath reports whether the open file is still the one at the path, and its size.
func (t *turningFile) atPath() (size int64, there bool) {
	open, err := t.f.Stat()
	if err != nil {
		return 0, true
	}
	now, err := os.Stat(t.path)
	return open.Size(), err == nil && os.SameFile(now, open)
}

// putAside renames the open file to FILE.1 and reports whether the path is to be opened again. It holds a
// lock of the file: a process that renamed later than another would put the new file over the full one.
func (t *turningFile) putAside() bool {
	fd := int(t.f.Fd())
	if errors.Is(syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return false // another process is about to
	}
	defer func() { _ = syscall.Flock(fd, syscall.LOCK_UN) }()
	_, there := t.atPath()
	return !there || os.Rename(t.path, t.path+".1") == nil
}

// Close closes the open file.
func (t *turningFile) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.f.Close()
}
