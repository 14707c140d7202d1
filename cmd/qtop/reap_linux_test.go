package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asInit makes the test binary run a shell as process 1 runs the program.
const asInit = "QTOP_TEST_AS_INIT"

func init() {
	if script := os.Getenv(asInit); script != "" {
		code, err := runAsInit("/bin/sh", []string{"sh", "-c", script})
		if err != nil {
			code = 99
		}
		os.Exit(code)
	}
}

// inPIDNamespace returns a command that is process 1 of a separate PID namespace, as in a container.
func inPIDNamespace(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("root: a PID namespace must be made")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	return cmd
}

// children returns the children of a process by the names of their programs.
func children(parent int) map[string]int {
	found := map[string]int{}
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		name, rest, _ := strings.Cut(string(b), ") ")
		_, name, _ = strings.Cut(name, "(")
		f := strings.Fields(rest)
		if len(f) > 1 && f[1] == strconv.Itoa(parent) {
			found[name], _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

// As process 1 of a container, qtop reaps the processes that others left behind, passes signals on,
// and exits as the program did.
func TestActsAsInit(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	init := inPIDNamespace(t, self)
	init.Env = append(os.Environ(), asInit+`=trap 'exit 7' TERM; (sleep 300 &); echo up; sleep 300 & wait`)
	out, err := init.StdoutPipe()
	require.NoError(t, err)
	if err := init.Start(); err != nil {
		t.Skip("no PID namespace here: ", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "up\n", line)
	orphan := 0
	require.Eventually(t, func() bool { orphan = children(init.Process.Pid)["sleep"]; return orphan > 0 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, syscall.Kill(orphan, syscall.SIGKILL))
	require.Eventually(t, func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", orphan)); return os.IsNotExist(err) },
		time.Minute, 5*time.Millisecond, "it is a zombie")
	require.NoError(t, init.Process.Signal(syscall.SIGTERM))
	require.Error(t, init.Wait())
	require.Equal(t, 7, init.ProcessState.ExitCode())

	version, err := inPIDNamespace(t, filepath.Join(built, "qtop"), "--version").CombinedOutput()
	require.NoError(t, err, string(version))
	require.Contains(t, string(version), "qtop")
	require.Error(t, inPIDNamespace(t, filepath.Join(built, "qtop"), "no-such-verb").Run())
}
