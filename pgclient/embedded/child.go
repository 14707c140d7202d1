package embedded

import (
	"context"
	"strings"
	"time"
)

// startPatience is how long a server may take to start, including crash recovery of a kept data
// directory.
const startPatience = 2 * time.Minute

// childEnv returns the environment of the server programs. They get no variable of this process,
// because settings such as PGDATA or PGHOST must not reach them.
func childEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
}

// tail returns the last error lines of a program's output; without errors, its last line.
func tail(out string) string {
	var errs []string
	last := "no output"
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		last = line
		for _, mark := range []string{"FATAL:", "PANIC:", "error:", "ERROR:", "HINT:", "could not"} {
			if strings.Contains(line, mark) {
				errs = append(errs, line)
				break
			}
		}
	}
	if len(errs) == 0 {
		return last
	}
	return strings.Join(errs[max(0, len(errs)-3):], "; ")
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
