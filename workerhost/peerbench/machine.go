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
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/riverqueue/river" || m.Path == "github.com/jackc/pgx/v5" {
				vs = append(vs, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return strings.Join(append(vs, graphileName+" "+graphileVersion+" if run"), ", ")
}

// described returns the options of this run, its duration, and the load average of the machine
// before it.
func (b *bench) described(took time.Duration, load string) string {
	s := fmt.Sprintf("%s, load average before %s", took.Round(time.Second), load)
	var last float64
	if _, err := fmt.Sscan(load, &last); err == nil && last > busy {
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

// busy is the load average above which the figures are marked, because other work on the machine
// distorts them.
const busy = 0.5

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
