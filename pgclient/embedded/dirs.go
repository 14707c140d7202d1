// The directories of a server: base directories, temporary ones, the socket, the cache.

package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Names of temporary directories. A base directory is made under the second name and renamed once
// its lock is held, so that sweep never removes a directory that is still being made. A directory that
// a caller chose may have such a name too: only one with the file tempNote is removed.
const (
	tempPrefix   = "qtop-pg-"
	makingPrefix = "qtop-new-"
	sockPrefix   = "qtop-s-"
	tempNote     = "temporary"
)

// DefaultDir returns the base directory of `qtop demo --keep`: in the user's state directory; for
// root, a directory that the server's user can reach.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return ownDir("/var/lib/qtop/demo", "/tmp/qtop-demo-0")
	}
	fallback := filepath.Join(os.TempDir(), "qtop-demo-"+strconv.Itoa(os.Geteuid()))
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ownDir(fallback)
		}
		state = filepath.Join(home, ".local", "state")
		if runtime.GOOS == "darwin" {
			state = filepath.Join(home, "Library", "Application Support")
		}
	}
	return ownDir(filepath.Join(state, "qtop", "demo"), fallback)
}

// CacheDir returns the directory where fetched programs and ready test clusters are kept.
func CacheDir() (string, error) {
	if os.Geteuid() != 0 {
		fallback := filepath.Join(os.TempDir(), "qtop-cache-"+strconv.Itoa(os.Geteuid()))
		if dir, err := os.UserCacheDir(); err == nil {
			return ownDir(filepath.Join(dir, "qtop"), fallback)
		}
		return ownDir(fallback)
	}
	var places []string
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) && openToAll(dir) {
		places = append(places, filepath.Join(dir, "qtop"))
	}
	return ownDir(append(places, "/var/cache/qtop", "/tmp/qtop-cache-0")...)
}

// ownDir returns the first of these directories that can be used, and makes it if needed. Programs from
// below this directory are run, so a directory to which another user can write is refused.
func ownDir(places ...string) (string, error) {
	var errs []error
	for _, dir := range places {
		path, err := openBase(dir)
		if err == nil {
			err = ownedByUs(path)
		}
		if err == nil {
			err = writable(path)
		}
		if err == nil {
			return path, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func ownedByUs(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || !ok || int(st.Uid) != os.Geteuid() || fi.Mode()&0o022 != 0 {
		return fmt.Errorf("%s must be a directory of this user that nobody else can write to: chown and chmod go-w it, or choose another one", dir)
	}
	return nil
}

func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// openBase makes a base directory and returns its real path, which is later compared with the
// working directory of server processes. If root makes the directory, the server's user can pass
// through it; a directory that another user makes is closed to everyone else.
func openBase(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		_, err := os.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		missing = append(missing, d)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], baseMode()); err != nil {
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return "", err
		}
		if err := os.Chmod(missing[i], baseMode()); err != nil { // the umask may have removed the execute bits
			return "", err
		}
	}
	return filepath.EvalSymlinks(dir)
}

func baseMode() os.FileMode {
	if os.Geteuid() == 0 {
		return 0o711
	}
	return 0o700
}

// tempBase makes a temporary base directory and takes its lock. For a test server the directory is
// in memory if there is room, unless TMPDIR is set.
func tempBase(test bool) (string, *os.File, error) {
	root := tempRoot()
	if mem := memoryRoot(); test && mem != "" && os.Getenv("TMPDIR") == "" {
		root = mem
	}
	making, err := os.MkdirTemp(root, makingPrefix)
	if err != nil {
		return "", nil, err
	}
	fail := func(err error) (string, *os.File, error) {
		_ = os.RemoveAll(making)
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(making, tempNote), nil, 0o600); err != nil {
		return fail(err)
	}
	if err := os.Chmod(making, baseMode()); err != nil {
		return fail(err)
	}
	lock, err := tryLock(filepath.Join(making, "lock"))
	if err != nil {
		return fail(err)
	}
	if lock == nil {
		return fail(fmt.Errorf("another process locked %s first", making))
	}
	dir := filepath.Join(filepath.Dir(making), tempPrefix+strings.TrimPrefix(filepath.Base(making), makingPrefix))
	if err := os.Rename(making, dir); err != nil {
		_ = releaseLock(lock)
		return fail(err)
	}
	return dir, lock, nil
}

// shmDir is where Linux has its memory file system.
const shmDir = "/dev/shm"

// tempRoot returns the real path of the directory for temporary files; for root, a directory that
// other users can pass through.
func tempRoot() string {
	places := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if os.Geteuid() != 0 {
		places = places[:1]
	}
	for _, dir := range places {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil && (os.Geteuid() != 0 || openToAll(real)) {
			return real
		}
	}
	return places[0]
}

// openToAll reports whether every user can pass through dir and its parents. If dir does not exist
// yet, its nearest existing parent is checked.
func openToAll(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		fi, err := os.Stat(dir)
		if err == nil && fi.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// socketLimit is the longest path of a unix socket that PostgreSQL accepts, in bytes: the limit of
// macOS, the smallest, used on every system.
const socketLimit = 103

// makeSocketDir makes the directory of the socket: run in the base directory, or, if that path
// would be too long or has a comma, a short one named after the base directory. Clients read a path
// with a comma as a list of hosts.
func makeSocketDir(base string, id identity) (string, error) {
	dir := filepath.Join(base, "run")
	if len(dir)+len("/.s.PGSQL.5432") <= socketLimit && !strings.Contains(dir, ",") {
		return dir, freshPrivate(dir, id)
	}
	sum := sha256.Sum256([]byte(base))
	top := filepath.Join("/tmp", sockPrefix+strconv.Itoa(os.Geteuid())+"-"+hex.EncodeToString(sum[:6]))
	err := os.Mkdir(top, baseMode())
	if errors.Is(err, fs.ErrExist) {
		err = ownedByUs(top)
	}
	if err != nil { // another user has made a directory of this name
		if top, err = os.MkdirTemp("/tmp", sockPrefix); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(top, baseMode()); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(top, baseNote), []byte(base), 0o600); err != nil {
		return "", err
	}
	dir = filepath.Join(top, shortName)
	return dir, freshPrivate(dir, id)
}

// shortName is the name of a short socket directory in its parent.
const shortName = "s"

// baseNote is the file in a short socket directory's parent that names the base
// directory it serves.
const baseNote = "base"

// removeSocketDir removes a short socket directory. The directory run stays in its base, whatever the
// base is called.
func removeSocketDir(dir string) {
	top := filepath.Dir(dir)
	if filepath.Base(dir) == shortName && strings.HasPrefix(filepath.Base(top), sockPrefix) && isFile(filepath.Join(top, baseNote)) {
		_ = os.RemoveAll(top)
	}
}

func isFile(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular()
}

// freshPrivate makes an empty directory that only id can enter. It removes an old one with the
// files of a dead server; the caller holds the lock.
func freshPrivate(dir string, id identity) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return makePrivate(dir, id)
}

// makePrivate makes sure that dir exists, is a directory and is id's alone.
func makePrivate(dir string, id identity) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return id.give(dir)
}
