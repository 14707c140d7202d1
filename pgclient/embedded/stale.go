// Remains of an earlier server in a data directory whose lock this process holds: old lock files,
// and processes that still run.

package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// survivorPatience is how long to wait for a server that shuts down because the process that
// started it has died.
const survivorPatience = 15 * time.Second

// clearStale removes postmaster.pid if no server runs in the data directory. PostgreSQL refuses to
// start while the pid in that file exists, even if it is a zombie, or another program that got the
// number after a reboot. So clearStale looks for processes that work in the directory, and never
// trusts the number alone. If a server or a single backend still works there, the file stays.
func clearStale(ctx context.Context, data string) error {
	if _, err := os.Stat(data); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, survivorPatience)
	defer cancel()
	if err := awaitEmpty(wait, data); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(data, "postmaster.pid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a stale lock file: %w", err)
	}
	return nil
}

// awaitEmpty waits until no server process works in the data directory.
func awaitEmpty(ctx context.Context, data string) error {
	for {
		left, err := survivors(data)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if pause(ctx, 10*time.Millisecond) == nil {
			continue
		}
		var pids []string
		for _, p := range left {
			pids = append(pids, strconv.Itoa(p.pid))
		}
		return fmt.Errorf("processes of an earlier server still work in %s; end them with: kill -INT %s", data, strings.Join(pids, " "))
	}
}

// survivors are the server processes that work in a data directory.
func survivors(data string) ([]process, error) {
	all, err := processes()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var left []process
	for _, p := range all {
		if p.worksIn(data) {
			left = append(left, p)
		}
	}
	return left, nil
}

// worksIn reports whether p is a live server process of this data directory. Its working directory
// is the data directory. Where that cannot be read (other systems, containers without ptrace
// rights), the command line of the postmaster and the titles of its children name the data
// directory.
func (p process) worksIn(data string) bool {
	if p.zombie || !strings.Contains(p.name, "postgres") {
		return false
	}
	if p.cwd != "" {
		return p.cwd == data
	}
	return strings.Contains(p.args, "-D "+data+" ") || strings.Contains(p.args, clusterTag(data))
}

// clusterTag returns the cluster_name with which the server of a data directory is started. The
// title of every process of that server contains it, so that worksIn recognizes them.
func clusterTag(data string) string {
	sum := sha256.Sum256([]byte(data))
	return "qtop-" + hex.EncodeToString(sum[:6])
}

// pidFile has the parts of postmaster.pid that qtop reads.
type pidFile struct {
	pid    int
	status string // "starting", "ready", "stopping", "standby"; "" while it is being written
}

func readPidFile(data string) (pidFile, bool) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return pidFile{}, false
	}
	lines := strings.Split(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return pidFile{}, false
	}
	f := pidFile{pid: pid}
	if len(lines) > 7 {
		f.status = strings.TrimSpace(lines[7])
	}
	return f, true
}
