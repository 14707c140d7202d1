// Making a data directory, by initdb or as a copy of a stopped server's. The directory is made
// under another name and renamed when it is complete, so that an incomplete one is never used as a
// cluster.

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hba lets everyone connect who can enter the directory of the socket, without a password, and no
// one else.
const hba = "local all all trust\n"

func clusterDir(base string, major int) string { return filepath.Join(base, "pg"+strconv.Itoa(major)) }
func dataDir(base string, major int) string    { return filepath.Join(clusterDir(base, major), "data") }

// clusters lists the major versions that have a data directory in base, newest first.
func clusters(base string) []int {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil
	}
	var majors []int
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "pg")
		major, err := strconv.Atoi(digits)
		if !ok || err != nil || !e.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(dataDir(base, major), "PG_VERSION")); err == nil {
			majors = append(majors, major)
		}
	}
	slices.Sort(majors)
	slices.Reverse(majors)
	return majors
}

// prepare makes the directories of the server, and the data directory if it does not exist.
func (s *Server) prepare(ctx context.Context) error {
	if err := s.id.canReach(s.dir); err != nil {
		return err
	}
	sock, err := makeSocketDir(s.dir, s.id)
	if err != nil {
		return err
	}
	s.sock = sock
	home := filepath.Dir(s.data)
	if err := makePrivate(home, s.id); err != nil {
		return err
	}
	removeUnfinished(home)
	switch _, err := os.Stat(filepath.Join(s.data, "PG_VERSION")); {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// An empty directory can be used; anything else must not be removed.
	if err := os.Remove(s.data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is neither empty nor a PostgreSQL data directory; move it away", s.data)
	}
	fresh, err := os.MkdirTemp(home, "init-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if s.opts.Seed != "" {
		err = copyTree(dataDir(s.opts.Seed, s.bin.Major), fresh, s.id)
	} else {
		err = s.initdb(ctx, fresh)
	}
	if err != nil {
		return err
	}
	return os.Rename(fresh, s.data)
}

// removeUnfinished removes the directories of an initdb or a copy that was killed. It ignores
// errors: a dying initdb may still write, and no other process uses the name of its directory.
func removeUnfinished(home string) {
	dirs, _ := filepath.Glob(filepath.Join(home, "init-*"))
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
}

// wipe removes the directory of a cluster. The data directory gets the name of an unfinished one first:
// one that is removed in part is neither a cluster nor empty, and no later start could use it. Nothing is
// made before, for which a full disk would have no room.
func wipe(home string, remove func(string) error) error {
	removeUnfinished(home)
	if err := os.Rename(filepath.Join(home, "data"), filepath.Join(home, "init-wiped")); err != nil {
		return err
	}
	return remove(home)
}

// initdb makes a cluster in an empty directory.
func (s *Server) initdb(ctx context.Context, dir string) error {
	if err := s.id.give(dir); err != nil {
		return err
	}
	out, err := s.runInitdb(ctx, dir, s.id)
	if err != nil && namespaces && !s.id.drop && strings.Contains(out, "could not look up effective user ID") {
		// This user has no passwd entry, as in a container that was started with only a uid. Only
		// initdb needs the entry; in a user namespace it finds one.
		out, err = s.runInitdb(ctx, dir, inNamespace())
	}
	if err != nil {
		return fmt.Errorf("initdb%s: %w: %s", s.id.as(), err, tail(out))
	}
	conf := filepath.Join(dir, "pg_hba.conf")
	if err := os.Remove(conf); err != nil {
		return err
	}
	f, err := os.OpenFile(conf, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(hba)
	return errors.Join(err, f.Close(), s.id.give(conf))
}

func (s *Server) runInitdb(ctx context.Context, dir string, id identity) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	args := []string{
		"-D", dir, "-U", Superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if s.temp || s.opts.Test {
		args = append(args, "--no-sync")
	}
	if s.opts.Test {
		// Small WAL files make a data directory that is cheap to copy.
		args = append(args, "--wal-segsize=1")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin.Dir, "initdb"), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.SysProcAttr = id.attr()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	runtime.LockOSThread() // see spawn: the parent-death signal belongs to this thread
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.String(), err
}

// copyTree copies a stopped server's data directory into the empty directory
// dst and gives the copy to id.
func copyTree(src, dst string, id identity) error {
	if _, err := os.Stat(filepath.Join(src, "postmaster.pid")); err == nil {
		return fmt.Errorf("the server of the ready data directory %s was not shut down cleanly", src)
	}
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, rel)
		switch {
		case d.IsDir():
			if rel != "." {
				err = os.Mkdir(to, 0o700)
			}
		case d.Type().IsRegular():
			err = copyFile(path, to)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory", path)
		}
		if err != nil {
			return err
		}
		return id.give(to)
	})
	if err != nil {
		return fmt.Errorf("copying a ready data directory: %w", err)
	}
	return nil
}

func copyFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
