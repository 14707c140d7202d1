package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakePrograms makes a folder whose postgres prints the given version.
func fakePrograms(t *testing.T, version string) string {
	t.Helper()
	dir := baseDir(t)
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	return dir
}

func TestLocate(t *testing.T) {
	t.Setenv("QTOP_OFFLINE", "1")
	t.Setenv("QTOP_PG_MIRROR", "")
	old, newer, newest := fakePrograms(t, "14.9"), fakePrograms(t, "77.1 (Debian 77.1-1)"), fakePrograms(t, "78beta1")
	t.Setenv("PATH", strings.Join([]string{old, newer, newest, "/usr/bin", "/bin"}, ":"))

	b, err := Locate(limit(t), 0, nil)
	require.NoError(t, err)
	require.Equal(t, Binaries{Dir: newest, Major: 78, Version: "78beta1", Origin: "PATH"}, b)
	b, err = Locate(limit(t), 77, nil)
	require.NoError(t, err)
	require.Equal(t, Binaries{Dir: newer, Major: 77, Version: "77.1", Origin: "PATH"}, b)
	_, err = Locate(limit(t), 14, nil)
	require.ErrorContains(t, err, "too old")
	_, err = Locate(limit(t), 76, nil)
	require.ErrorContains(t, err, "no PostgreSQL 76 found")
	require.ErrorContains(t, err, "install it with: ")

	t.Setenv("QTOP_PG_BIN", newer)
	b, err = Locate(limit(t), 0, nil)
	require.NoError(t, err)
	require.Equal(t, "QTOP_PG_BIN", b.Origin)
	require.Equal(t, 77, b.Major)
	_, err = Locate(limit(t), 78, nil)
	require.ErrorContains(t, err, "holds PostgreSQL 77.1, but 78 is needed")
	t.Setenv("QTOP_PG_BIN", old)
	_, err = Locate(limit(t), 0, nil)
	require.ErrorContains(t, err, "holds PostgreSQL 14.9, but 15 or newer is needed")
	t.Setenv("QTOP_PG_BIN", filepath.Join(old, "nowhere"))
	_, err = Locate(limit(t), 0, nil)
	require.ErrorContains(t, err, "no initdb there")
}

func TestPgConfigIsAsked(t *testing.T) {
	programs, bin := fakePrograms(t, "79.1"), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "pg_config"), []byte("#!/bin/sh\n[ \"$1\" = --bindir ] && echo "+programs+"\n"), 0o700))
	t.Setenv("QTOP_PG_BIN", "")
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	b, err := Locate(limit(t), 79, nil)
	require.NoError(t, err)
	require.Equal(t, Binaries{Dir: programs, Major: 79, Version: "79.1", Origin: "pg_config"}, b)
}

// A directory in PATH often has links to programs, whose real folder has the other programs too.
func TestLinksInPathAreFollowed(t *testing.T) {
	programs, bin := fakePrograms(t, "79.1"), t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(programs, "postgres"), filepath.Join(bin, "postgres")))
	t.Setenv("QTOP_PG_BIN", "")
	t.Setenv("PATH", bin)
	b, err := Locate(limit(t), 79, nil)
	require.NoError(t, err)
	require.Equal(t, programs, b.Dir)
}

// Programs that do not run here are skipped, and the error names them.
func TestBrokenProgramsArePassedOver(t *testing.T) {
	dir := fakePrograms(t, "79.1")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "postgres"), []byte("#!/bin/sh\necho 'libicu.so.60: not found' >&2\nexit 127\n"), 0o755))
	t.Setenv("QTOP_PG_BIN", "")
	t.Setenv("QTOP_OFFLINE", "1")
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	_, err := Locate(limit(t), 79, nil)
	require.ErrorContains(t, err, "libicu.so.60: not found")
	require.NotContains(t, err.Error(), "\n")
}

func TestInstallCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release string
		major   int
		want    string
	}{
		{"ID=debian\n", 0, "apt-get install -y postgresql"},
		{"ID=ubuntu\nID_LIKE=debian\n", 16, "apt-get install -y postgresql-16"},
		{"ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", 0, "apt-get install -y postgresql"},
		{"NAME=\"Alpine Linux\"\nID=alpine\n", 0, "apk add postgresql"},
		{"ID=alpine\n", 17, "apk add postgresql17"},
		{"ID=fedora\n", 0, "dnf install -y postgresql-server"},
		{"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", 0, "dnf install -y postgresql-server"},
		{"ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", 0, "zypper install -y postgresql-server"},
		{"ID=arch\n", 0, "pacman -S --noconfirm postgresql"},
		{"ID=plan9\n", 0, manual},
		{"", 0, manual},
	} {
		require.Equal(t, c.want, packageCommand(c.release, c.major), c.release)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	require.Equal(t, "no output", tail(" \n"))
	require.Equal(t, "b", tail("a\nb\n\n"))
	require.Equal(t, "FATAL: x; HINT: y", tail("LOG: a\nFATAL: x\nHINT: y\nLOG: bye\n"))
}
