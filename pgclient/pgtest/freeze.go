// Freezing a server: the kernel still accepts connections, but the server answers nothing.

package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/qtop/qtop/pgclient/embedded"
)

// Freeze stops (SIGSTOP) all processes of the server until thaw is called or the test ends. It
// needs /proc; the test is skipped on systems without it.
func Freeze(t testing.TB, s *embedded.Server) (thaw func()) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("SKIP: there is no /proc here to find the processes of the server")
	}
	frozen := []int{s.Pid()} // the postmaster first, so that it starts no more backends meanwhile
	_ = syscall.Kill(s.Pid(), syscall.SIGSTOP)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, _ := os.ReadFile(name) //nolint:gosec // of /proc
		text := string(b)
		if f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]); len(f) > 1 && f[1] == fmt.Sprint(s.Pid()) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				frozen = append(frozen, pid)
			}
		}
	}
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		thawed = true
		for i := len(frozen) - 1; i >= 0; i-- {
			_ = syscall.Kill(frozen[i], syscall.SIGCONT)
		}
	}
	t.Cleanup(thaw)
	return thaw
}
