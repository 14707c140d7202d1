package main

// The description of the machine, the versions and the settings of a run: without these, ratios
// of two runs cannot be compared.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// header returns the machine, the versions and the method.
func (b *bench) header(ctx context.Context) [][2]string {
	rows := [][2]string{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 UTC")},
		{"machine", fmt.Sprintf("%s, %d cores, %s, %s/%s; server, peers and load share it",
			procField("/proc/cpuinfo", "model name"), runtime.NumCPU(), memory(), runtime.GOOS, runtime.GOARCH)},
		{"versions", b.versions()},
	}
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(params())) {
		var v string
		if err := b.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&v); err == nil {
			settings = append(settings, name+"="+v)
		}
	}
	return append(rows,
		[2]string{"server", strings.Join(settings, ", ") + "; data on " + medium(b.server.DataDir())},
		[2]string{"method", fmt.Sprintf("rounds: %d, contenders interleaved (A B C A B C …), each in a fresh database, vacuumed and "+
			"checkpointed after filling; values are medians (min–max), ratios are taken within the round; "+
			"every job is checked to be done", b.rounds)})
}

func (b *bench) versions() string {
	vs := []string{"PostgreSQL " + b.server.Version(), strings.Replace(runtime.Version(), "go", "Go ", 1)}
	for _, path := range []string{"github.com/jackc/pgx/v5", riverModule} {
		vs = append(vs, strings.TrimPrefix(path, "github.com/")+" "+moduleVersion(path))
	}
	return strings.Join(append(vs, graphileName+" "+graphileVersion+" if run"), ", ")
}

const riverModule = "github.com/riverqueue/river"

// moduleVersion returns the version of a Go module in this program.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of unknown version"
}

// described returns the options of this run, its duration, and the busy share of the machine before
// it.
func (b *bench) described(took time.Duration, share float64) string {
	s := fmt.Sprintf("%s, processors %.0f %% busy before", took.Round(time.Second), 100*share)
	if share > busy {
		s += " (**the machine was busy with other work: the figures are noise**)"
	}
	if b.quick {
		s += "; **quick: sizes too small for figures to be quoted**"
	}
	if b.graphile != nil && b.graphile.node != "" {
		s += "; node " + b.graphile.node
	}
	return s
}

// busy is the busy share above which the figures are marked, because other work on the machine
// distorts them.
const busy = 0.1

// busyShare measures for a moment which share of the time of all processors was in use. It is measured
// while nothing of the benchmark runs: a load average would contain what the benchmark did before.
func busyShare(ctx context.Context) float64 {
	before := processorTimes(procField("/proc/stat", ""))
	_ = pause(ctx, 2*time.Second)
	return processorTimes(procField("/proc/stat", "")).since(before)
}

// processors holds processor time since the boot, in ticks: in use and in all.
type processors struct{ used, all float64 }

// processorTimes reads the line "cpu user nice system idle iowait irq softirq steal guest guest_nice".
// The time of guests is also in user and nice.
func processorTimes(line string) (p processors) {
	for i, text := range strings.Fields(line) {
		var n float64
		if _, err := fmt.Sscan(text, &n); err != nil || i > 8 {
			continue
		}
		p.all += n
		if i != 4 && i != 5 { // idle, iowait
			p.used += n
		}
	}
	return p
}

// since returns the share of the time in use since before, from 0 to 1.
func (p processors) since(before processors) float64 {
	if p.all <= before.all {
		return 0
	}
	return (p.used - before.used) / (p.all - before.all)
}

// procField returns the value of the line "name : value" in a file of /proc, or the first line if
// name is empty.
func procField(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if name == "" {
			return strings.TrimSpace(line)
		}
		if k, v, found := strings.Cut(line, ":"); found && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func memory() string {
	var kb float64
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%f kB", &kb); err != nil {
		return "unknown memory"
	}
	return fmt.Sprintf("%.0f GiB", kb/1024/1024)
}

// medium returns the kind of the file system of dir: on an in-memory file system fsync costs
// nothing.
func medium(dir string) string {
	const tmpfs = 0x01021994
	var fs syscall.Statfs_t
	switch err := syscall.Statfs(dir, &fs); {
	case err != nil:
		return "an unknown file system"
	case int64(fs.Type) == tmpfs: //nolint:unconvert // the type differs between systems
		return "**a memory file system**: set TMPDIR to a disk"
	}
	return "disk"
}
