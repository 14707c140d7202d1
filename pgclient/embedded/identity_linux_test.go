package embedded

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func ownerUid(t *testing.T, path string) int {
	t.Helper()
	fi, err := os.Stat(path)
	require.NoError(t, err)
	st, ok := fi.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return int(st.Uid)
}

// If root starts the server, it runs as another user: preferably the one who called sudo. An
// existing data directory keeps its owner.
func TestRootDropsToAnotherUser(t *testing.T) {
	needRoot(t)
	nobody, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	require.NoError(t, err)
	for name, sudo := range map[string]string{"plain": "", "sudo": nobody.Uid, "unknown": "54321", "sudo by root": "0", "junk": "x"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SUDO_UID", sudo)
			dir := baseDir(t)
			s := start(t, Options{Dir: dir})
			require.NotZero(t, ownerUid(t, s.DataDir()))
			require.Equal(t, ownerUid(t, s.DataDir()), ownerUid(t, filepath.Join("/proc", strconv.Itoa(s.Pid()))))
			require.NoError(t, s.Stop(limit(t)))
			if name == "sudo" {
				require.Equal(t, uid, ownerUid(t, s.DataDir()))
				t.Setenv("SUDO_UID", "")
				s = start(t, Options{Dir: dir})
				require.Equal(t, uid, ownerUid(t, filepath.Join("/proc", strconv.Itoa(s.Pid()))))
			}
		})
	}
}

func TestClosedParentIsNamed(t *testing.T) {
	needRoot(t)
	t.Parallel()
	dir := baseDir(t)
	require.NoError(t, os.Chmod(dir, 0o700))
	_, err := Start(limit(t), Options{Dir: filepath.Join(dir, "below"), Test: true})
	require.ErrorContains(t, err, "cannot enter "+dir)
	require.ErrorContains(t, err, "chmod o+x "+dir)
}

// A umask of 077 does not close directories that qtop makes to the server's user. The umask belongs
// to the whole process, so a helper process sets it.
func TestTightUmask(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(baseDir(t), "a", "b")
	h := startHelper(t, helperOrder{Mode: "start", Dir: dir}, func(cmd *exec.Cmd) {
		cmd.Args = []string{"sh", "-c", `umask 077; exec "$0"`, cmd.Path}
		cmd.Path = "/bin/sh"
	})
	require.Empty(t, h.report.Err)
	h.end(t)
}

// A rootless container maps only uid 0, so there is no other user to run the server as.
func TestOnlyRootMapped(t *testing.T) {
	t.Parallel()
	dir := baseDir(t)
	inContainer := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	h := prepareHelper(t, helperOrder{Mode: "start", Dir: dir}, inContainer)
	if err := h.cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
			t.Skipf("this machine lets us make no user namespace: %v", err)
		}
		require.NoError(t, err)
	}
	h.awaitReport(t)
	require.Empty(t, h.report.Err)
	require.Equal(t, os.Getuid(), ownerUid(t, h.report.Data))
	h.kill(t)
	gone(t, h.report.Pid)
	empty(t, h.report.Data)

	again := startHelper(t, helperOrder{Mode: "start", Dir: dir}, inContainer)
	require.Empty(t, again.report.Err)
	again.end(t)
	if os.Geteuid() == 0 { // the same data outside the container: it belongs to root, so the server runs in a namespace again
		s := start(t, Options{Dir: dir})
		require.Equal(t, "1", query(t, s, "select 1::text"))
	}
}

// A container that was started with a bare uid has no passwd entry for that uid.
func TestBareUid(t *testing.T) {
	needRoot(t)
	t.Parallel()
	const uid = 54321
	dir := baseDir(t)
	exe := filepath.Join(dir, "embedded.test") // other users cannot reach the original
	copyProgram(t, exe)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	require.NoError(t, os.Chown(home, uid, uid))
	h := startHelper(t, helperOrder{Mode: "start", Dir: filepath.Join(home, "pg")}, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = exe, []string{exe}
		cmd.Env = append(cmd.Env, "HOME="+home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	})
	require.Empty(t, h.report.Err)
	require.Equal(t, uid, ownerUid(t, h.report.Data))
	h.kill(t)
	empty(t, h.report.Data)
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	in, err := os.Open(exe)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, os.Chmod(to, 0o755))
}
