//go:build unix && !linux

// Processes from ps, for systems without /proc and without parent-death signals.

package embedded

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// deathSignals says that this system has no parent-death signals; a supervisor on a pipe takes
// their place.
const deathSignals = false

// namespaces says that this system has no user namespaces.
const namespaces = false

func processes() ([]process, error) {
	out, err := exec.CommandContext(context.Background(), "ps", "-axww", "-o", "pid=", "-o", "stat=", "-o", "command=").Output()
	if err != nil {
		return nil, err
	}
	var all []process
	for line := range strings.Lines(string(out)) {
		if p, ok := parsePs(line); ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// lookup describes the process pid; false = there is no such process.
func lookup(pid int) (process, bool) {
	if pid <= 0 {
		return process{}, false
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-ww", "-o", "pid=", "-o", "stat=", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return process{}, false
	}
	return parsePs(string(out))
}

func parsePs(line string) (process, bool) {
	f := strings.Fields(line)
	if len(f) < 2 {
		return process{}, false
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil {
		return process{}, false
	}
	p := process{pid: pid, zombie: strings.HasPrefix(f[1], "Z")}
	if len(f) > 2 {
		p.name = filepath.Base(f[2])
		p.args = strings.Join(f[2:], " ") + " "
	}
	return p, true
}

// attr makes a child run as id in a separate session, out of reach of the terminal's signals.
func (id identity) attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if id.drop {
		a.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return a
}

func withoutDeathSignal(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }
