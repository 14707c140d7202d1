// Processes on Linux, from /proc, and parent-death signals.

package embedded

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// deathSignals says that the kernel can signal the server when the process that started it has
// died.
const deathSignals = true

func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := lookup(pid); ok {
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
	base := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(base, "stat"))
	if err != nil {
		// /proc may hide other users' processes; kill still finds them.
		return process{pid: pid}, errors.Is(syscall.Kill(pid, 0), syscall.EPERM)
	}
	p := process{pid: pid}
	// "123 (name) S ...": the name may contain spaces and parentheses.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, true
	}
	p.name = string(stat[open+1 : end])
	state := strings.Fields(string(stat[end+1:]))
	p.zombie = len(state) > 0 && (state[0] == "Z" || state[0] == "X")
	if !strings.Contains(p.name, "postgres") {
		return p, true
	}
	p.cwd, _ = os.Readlink(filepath.Join(base, "cwd"))
	args, _ := os.ReadFile(filepath.Join(base, "cmdline"))
	p.args = string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
	return p, true
}

// attr makes a child run as id in a separate session (Ctrl-C and a closed terminal do not reach
// it), with a signal to shut down when this process dies.
func (id identity) attr() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGINT}
	switch {
	case id.ns:
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobodyID, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobodyID, HostID: os.Getgid(), Size: 1}}
	case id.drop:
		a.Credential = &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}
	}
	return a
}

// namespaces says that a user namespace can replace a second user.
const namespaces = true

// withoutDeathSignal removes the parent-death signal, for short runs that are started from a thread
// that may end before the child.
func withoutDeathSignal(a *syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = 0
	return a
}
