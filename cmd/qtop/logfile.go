package main

// The log of a host inside the console.

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// mostLog is the size at which a log is put aside as FILE.1, which replaces the one put aside before:
// a host writes a line per attempt, for as long as a console is open.
const mostLog = 10 << 20

// logFile returns the log of a host inside the console. It is a file, because
// the screen belongs to the console. If the file cannot be opened, the log is
// discarded.
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
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return none()
	}
	f, err := openTurning(filepath.Join(dir, "qtop.log"), mostLog)
	if err != nil {
		return none()
	}
	return slog.New(slog.NewJSONHandler(logTo(f), nil)), func() { _ = f.Close() }
}

// turningFile is a file to which several processes append. One that finds it full puts it aside; the
// others then open the new one.
type turningFile struct {
	path string
	most int64
	mu   sync.Mutex
	f    *os.File
}

func openTurning(path string, most int64) (*turningFile, error) {
	f, err := openLog(path)
	return &turningFile{path: path, most: most, f: f}, err
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (t *turningFile) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	return t.f.Write(p)
}

// turn opens the path again if its file is full, or is no longer the open one. After an error the open
// file is used on.
func (t *turningFile) turn() {
	if size, there := t.atPath(); there && (size < t.most || !t.putAside()) {
		return
	}
	if f, err := openLog(t.path); err == nil {
		_ = t.f.Close()
		t.f = f
	}
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
