package main

// Creates files that are complete or do not exist.

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/queue/secrecy"
)

// newFile creates a file, lets write fill it, and returns its path. The file
// gets its name only when it is complete, and only its owner may read it. A
// file that exists is replaced only if force is true; a device, a link or
// anything else that is no regular file is never replaced.
func (a *app) newFile(name string, force bool, write func(io.Writer) error) (path string, err error) {
	if path, err = filepath.Abs(name); err != nil {
		return "", fileError(name, err)
	}
	if err := vacant(path, force); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".qtop-export-*")
	if err != nil {
		return "", fileError(path, err)
	}
	a.unfinished.Store(f.Name())
	defer func() { // removes the temporary file after an error; a rename has already removed that name
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	out := bufio.NewWriterSize(f, 1<<16)
	if err := write(out); err != nil {
		return "", fileError(path, err)
	}
	for _, step := range []func() error{out.Flush, f.Sync, f.Close} {
		if err := step(); err != nil {
			return "", fileError(path, err)
		}
	}
	if err := vacant(path, force); err != nil { // another process may have created it meanwhile
		return "", err
	}
	if !force { // unlike a rename, a hard link never replaces a file that exists
		switch err := os.Link(f.Name(), path); {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrExist):
			return "", exists(path)
		} // the file system has no hard links: use a rename
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fileError(path, err)
	}
	return path, nil
}

// dropUnfinished removes the temporary file of newFile, if it has not got its name yet.
func (a *app) dropUnfinished() {
	if name, ok := a.unfinished.Load().(string); ok {
		_ = os.Remove(name)
	}
}

// vacant returns an error if a new file must not get this name.
func vacant(path string, force bool) error {
	switch st, err := os.Lstat(path); {
	case err != nil:
		return nil
	case !st.Mode().IsRegular():
		return &queue.Error{Kind: queue.KindFailed, What: queue.Clean("the path exists and is not a regular file"), Where: queue.Clean(path), Do: queue.Clean("choose another name")}
	case !force:
		return exists(path)
	}
	return nil
}

func exists(path string) error {
	return &queue.Error{Kind: queue.KindFailed, What: queue.Clean("the file exists"), Where: queue.Clean(path), Do: queue.Clean("choose another name, or let --force replace it")}
}

// fileError adds the path and a remedy to an error of the file system. Other
// errors are returned unchanged.
func fileError(path string, err error) error {
	if _, ok := asQueueError(err); ok {
		return err
	}
	var pe *fs.PathError
	var le *os.LinkError
	switch {
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	default:
		return err
	}
	return &queue.Error{Kind: queue.KindFailed, What: queue.Clean(secrecy.Mask("the file cannot be written: " + err.Error())), Where: queue.Clean(path), Do: queue.Clean("choose another folder"), Err: err}
}

// fromHome replaces ~ in a file name by the user's home directory: no shell does that for
// names typed into the console.
func fromHome(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return name
}
