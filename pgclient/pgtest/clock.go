package pgtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/qtop/qtop/pgclient/embedded"
)

// ClockedServer is OwnServer with a clock that the test can move: set moves it to an offset from
// the true time, such as "-1d", "+1s" or "+0", while the server runs. This program and its other
// children keep the true time. The test is skipped if libfaketime (Debian: faketime) is not
// installed.
func ClockedServer(t testing.TB, params map[string]string) (s *embedded.Server, set func(by string)) {
	t.Helper()
	libs, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(libs) == 0 {
		t.Skip("full: a server with a separate clock needs libfaketime (Debian: apt-get install faketime)")
	}
	dir, err := os.MkdirTemp("", "qtop-clock-") //nolint:usetesting // the server, which may run as another user, cannot read t.TempDir()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "by")
	set = func(by string) {
		t.Helper()
		next := file + ".next"
		if err := os.WriteFile(next, []byte(by+"\n"), 0o644); err != nil { //nolint:gosec // for the user of the server
			t.Fatalf("pgtest: %v", err)
		}
		if err := os.Rename(next, file); err != nil { // renamed when complete: a partly written file would be read as another time
			t.Fatalf("pgtest: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the user of the server reads it
		t.Fatalf("pgtest: %v", err)
	}
	set("+0")
	return OwnServerIn(t, "", params, []string{
		"LD_PRELOAD=" + libs[0], "FAKETIME_TIMESTAMP_FILE=" + file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", "DONT_FAKE_MONOTONIC=1",
	}), set
}
