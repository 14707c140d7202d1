package main

// The figures of a sample: of the processes, of the tables, of the backlog.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sample is a line of samples.jsonl: figures by name, and the time from the start of the soak in
// seconds.
type sample struct {
	Time    time.Time          `json:"time"`
	At      float64            `json:"at"`
	Figures map[string]float64 `json:"figures"`
}

func (s *soak) sample(ctx context.Context) error {
	now := time.Now()
	f := map[string]float64{}
	for _, h := range s.hosts {
		processFigures(f, "host "+h.id, h.cmd.Process.Pid)
		if text, err := h.get(ctx, "/metrics"); err == nil {
			goMetrics(f, "host "+h.id, text)
		} else if ctx.Err() == nil {
			s.fail("host %s does not answer: %v", h.id, err)
		}
	}
	processFigures(f, "console", s.console.cmd.Process.Pid)
	serverFigures(f, s.server.Pid())
	for _, kind := range []string{"job", "webhook"} {
		behind, done := s.ledger.behind(kind)
		f[kind+"s behind"], f[kind+"s done"] = float64(behind), float64(done)
	}
	if err := s.tableFigures(ctx, f); err != nil {
		return err
	}
	code, err := s.status(ctx)
	if err != nil {
		return err
	}
	if s.health == nil {
		s.health = map[int]int{}
	}
	if s.health[code]++; code != 0 && code != 3 {
		s.fail("qtop status ended with exit %d", code)
	}
	select {
	case <-s.console.done:
		return fmt.Errorf("the console of the soak ended with exit code %d", s.console.cmd.ProcessState.ExitCode())
	default:
	}
	one := sample{now.UTC(), now.Sub(s.began).Seconds(), f}
	s.samples = append(s.samples, one)
	return json.NewEncoder(s.file).Encode(one)
}

// readSamples reads the samples that a soak has written so far. It stops at a line that is cut
// off.
func readSamples(file string) (out []sample, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var one sample
		if d.Decode(&one) != nil {
			return out, nil
		}
		out = append(out, one)
	}
}

// processFigures adds the figures of a process from Linux's /proc; on other systems it adds
// nothing.
func processFigures(f map[string]float64, name string, pid int) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	if kb, ok := procNumber(filepath.Join(proc, "status"), "VmRSS:"); ok {
		f[name+" rss"] = kb * 1024
	}
	if fds, err := os.ReadDir(filepath.Join(proc, "fd")); err == nil {
		f[name+" fds"] = float64(len(fds))
	}
	if n, ok := procNumber(filepath.Join(proc, "status"), "Threads:"); ok {
		f[name+" threads"] = n
	}
}

// serverFigures adds the sums over all processes of the server: how many there
// are, their open files, and their memory without shared memory.
func serverFigures(f map[string]float64, postmaster int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	if err != nil {
		return
	}
	for _, pid := range append(strings.Fields(string(text)), strconv.Itoa(postmaster)) {
		if kb, ok := procNumber(filepath.Join("/proc", pid, "smaps_rollup"), "Anonymous:"); ok {
			f["server memory"] += kb * 1024
		}
		if fds, err := os.ReadDir(filepath.Join("/proc", pid, "fd")); err == nil {
			f["server fds"] += float64(len(fds))
		}
		f["server processes"]++
	}
}

// procNumber returns the number after word, in the line of file that begins with word.
func procNumber(file, word string) (float64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == word {
			n, err := strconv.ParseFloat(fields[1], 64)
			return n, err == nil
		}
	}
	return 0, false
}

// goMetrics adds the metrics of the host's Go runtime.
func goMetrics(f map[string]float64, name, text string) {
	for line := range strings.Lines(text) {
		for metric, word := range map[string]string{"go_goroutines": "goroutines", "go_memstats_heap_inuse_bytes": "heap"} {
			if rest, ok := strings.CutPrefix(line, metric+" "); ok {
				if n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
					f[name+" "+word] = n
				}
			}
		}
	}
}

// sizes reads the size of each table including its partitions, and of the catalog as a whole.
const sizes = `
SELECT CASE WHEN n.nspname = 'public' THEN COALESCE(pg_partition_root(c.oid)::regclass::text, c.relname) ELSE n.nspname END,
  sum(pg_table_size(c.oid))::float8, sum(pg_indexes_size(c.oid))::float8, sum(pg_stat_get_dead_tuples(c.oid))::float8
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND n.nspname NOT IN ('pg_toast', 'information_schema')
GROUP BY 1`

func (s *soak) tableFigures(ctx context.Context, f map[string]float64) error {
	rows, _ := s.admin.Query(ctx, sizes)
	var name string
	var heap, indexes, dead float64
	_, err := pgx.ForEachRow(rows, []any{&name, &heap, &indexes, &dead}, func() error {
		name = strings.TrimPrefix(name, "public.")
		f["table "+name+" heap"], f["table "+name+" indexes"], f["table "+name+" dead rows"] = heap, indexes, dead
		return nil
	})
	if err != nil {
		return err
	}
	var wal, all, backends, queue float64
	err = s.admin.QueryRow(ctx, `SELECT (SELECT sum(size) FROM pg_ls_waldir())::float8, pg_database_size(current_database())::float8,
		(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database())::float8, pg_notification_queue_usage() * 100`).Scan(&wal, &all, &backends, &queue)
	f["server wal"], f["database size"], f["server sessions"], f["server notify queue %"] = wal, all, backends, queue
	return err
}
