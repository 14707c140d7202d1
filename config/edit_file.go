package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/qtop/qtop/pgclient/fileguard"
	"github.com/qtop/qtop/pgclient/queue"
)

// changeFile replaces the text of the file by the result of change, all at once. A symbolic link
// stays a link, and the file keeps its owner, group and mode; a new file is readable for its owner
// only. The error is a Problems.
func changeFile(path string, change func([]byte) ([]byte, error)) error {
	if path == "" {
		return Problems{{What: "no folder for the configuration file is known", Where: "env", Do: "set HOME or XDG_CONFIG_HOME"}}
	}
	cannot := func(err error) error {
		if ps, ok := AsProblems(err); ok {
			return ps
		}
		do := queue.Choose(errors.Is(err, fileguard.ErrNoAnswer), repairIt, "change it with an editor, as a user who may")
		var pe *fs.PathError
		var le *os.LinkError
		switch {
		case errors.As(err, &pe):
			err = pe.Err
		case errors.As(err, &le): // without the temporary name
			err = le.Err
		}
		return Problems{{What: "the configuration file cannot be changed: " + oneLine(err.Error()), Where: "file " + path, Do: do}}
	}
	real, err := fileguard.Within(func() (string, error) { return filepath.EvalSymlinks(path) })
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return Problems{{What: "the configuration file is a link that leads nowhere", Where: "file " + path, Do: "remove the link, or make the file to which it leads"}}
		}
		text, err := change(nil)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return cannot(err)
		}
		if err := put(path, text, func(*os.File) error { return nil }, func(from, to string) error { return placeNew(from, to, os.Link) }); err != nil {
			return cannot(err)
		}
		return nil
	}
	if err != nil {
		return cannot(err)
	}
	old, was, err := slurp(real)
	if err != nil {
		return cannot(err)
	}
	text, err := change(old)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return cannot(err)
	}
	like := func(f *os.File) error {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid()) {
			if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return fmt.Errorf("its owner and group cannot be kept: %w", errors.Unwrap(err))
			}
		}
		return f.Chmod(was.Mode().Perm())
	}
	if err := put(real, text, like, func(from, to string) error {
		if now, _, err := slurp(real); err != nil || !bytes.Equal(now, old) {
			return errChanging
		}
		return os.Rename(from, to)
	}); err != nil {
		return cannot(err)
	}
	return nil
}

var errChanging = errors.New("another process is changing the configuration file at this moment")

// placeNew gives a new file its name, unless that name exists by now. A hard link never replaces
// anything; if link makes none, because the file system has no hard links, the file is renamed.
func placeNew(from, to string, link func(from, to string) error) error {
	if err := link(from, to); err == nil {
		return nil
	}
	if _, err := os.Lstat(to); err == nil {
		return errChanging
	}
	return os.Rename(from, to)
}

// put writes a temporary file beside path, prepares it, and calls place to move it to path.
func put(path string, text []byte, prepare func(*os.File) error, place func(from, to string) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".qtop-config-*")
	if err != nil {
		return err
	}
	defer func() { // after a rename, the temporary name no longer exists, and this removes nothing
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	if _, err := f.Write(text); err != nil {
		return err
	}
	for _, step := range []func() error{func() error { return prepare(f) }, f.Sync, f.Close} {
		if err := step(); err != nil {
			return err
		}
	}
	return place(f.Name(), path)
}
