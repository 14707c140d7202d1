// The server of the fire drill: its clock can step and its disk can become full.
package workerhost_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgtest"
)

// drillServer is a server whose clock can step and, if the machine allows that, whose data is on
// a separate disk that can become full.
type drillServer struct {
	*embedded.Server
	disk    string // "" = no separate disk
	noDisk  error
	clock   string // the file with the offset of the server's clock; "" = the clock cannot step
	noClock error
	ledgers string // the directory for the ledgers of the hosts
}

const fakeClock = "/usr/lib/*/faketime/libfaketime.so.1"

func newDrillServer(t *testing.T, bytes int64) *drillServer {
	t.Helper()
	s := &drillServer{}
	dir, err := os.MkdirTemp("", "qtop-drill-") //nolint:usetesting // short, for a socket path, and readable for the server's user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // the server runs as another user
	disk := filepath.Join(dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o755)) //nolint:gosec // the server runs as another user
	// In memory, if that can be: handlers write into their ledger, and a disk that hangs for a minute
	// because of other work would be a fault of all hosts that the drill did not cause.
	s.ledgers = filepath.Join(dir, "ledgers")
	require.NoError(t, os.Mkdir(s.ledgers, 0o700))
	if mountTmpfs(s.ledgers, 256<<20) == nil {
		t.Cleanup(func() { _ = syscall.Unmount(s.ledgers, syscall.MNT_DETACH) })
	}
	base := filepath.Join(dir, "pg")
	if s.noDisk = mountTmpfs(disk, bytes); s.noDisk == nil {
		s.disk, base = disk, filepath.Join(disk, "pg")
		t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	}
	var env []string
	found, _ := filepath.Glob(fakeClock)
	if s.noClock = errors.New("libfaketime is not installed; make test-full installs it on Debian as root"); len(found) > 0 {
		s.clock, s.noClock = filepath.Join(dir, "clock"), nil
		require.NoError(t, os.WriteFile(s.clock, []byte("+0"), 0o644)) //nolint:gosec // the server reads it
		env = []string{
			"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + s.clock, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1",
		}
	}
	// With synchronous_commit, acknowledged rows survive when the server ends because its disk is
	// full.
	s.Server = pgtest.OwnServerIn(t, base, map[string]string{"synchronous_commit": "on"}, env)
	return s
}

// fill fills the disk; empty frees the space again.
func (s *drillServer) fill() (empty func(), err error) {
	ballast := filepath.Join(s.disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		return nil, err
	}
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	_ = f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		_ = os.Remove(ballast)
		return nil, err
	}
	return func() { _ = os.Remove(ballast) }, nil
}

// step sets the server's clock to a difference from the true time.
func (s *drillServer) step(by time.Duration) error {
	next := s.clock + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(by.Seconds())), 0o644); err != nil { //nolint:gosec // the server reads it
		return err
	}
	return os.Rename(next, s.clock) // a partly written file would be read as another time
}

// limitMemory makes the kernel end a process that uses more memory than bytes, by a memory cgroup.
// If this process may make none, it limits the address space, and err says why. how is the name of
// the limit.
func limitMemory(t *testing.T, pid int, bytes uint64) (how string, err error) {
	t.Helper()
	group := filepath.Join("/sys/fs/cgroup/memory", fmt.Sprintf("qtop-drill-%d", pid))
	if err = os.Mkdir(group, 0o700); err == nil {
		t.Cleanup(func() { _ = os.Remove(group) })
		if err = os.WriteFile(filepath.Join(group, "memory.limit_in_bytes"), fmt.Append(nil, bytes), 0o600); err == nil {
			err = os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0o600)
		}
		if err == nil {
			return "cgroup", nil
		}
	}
	limit := unix.Rlimit{Cur: 3 << 30, Max: 3 << 30}
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, &limit, nil); err != nil {
		return "none", err
	}
	return "address space", fmt.Errorf("no memory cgroup of version 1 can be made: %w", err)
}

// mountTmpfs mounts a tmpfs of the given size on dir, as a separate disk.
func mountTmpfs(dir string, bytes int64) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", bytes)); err != nil {
		return fmt.Errorf("no tmpfs can be mounted here: %w", err)
	}
	return nil
}

// holdFor waits for d or until ctx ends.
func holdFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
