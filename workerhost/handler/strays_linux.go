package handler

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/qtop/qtop/workerhost/sender"
)

// strayRounds bounds how often search.kill searches for processes of a run: a process may fork
// while the others are killed. unsureRounds bounds the searches in a row that find none, but
// processes of which it is not known.
const (
	strayRounds  = 20
	unsureRounds = 4
)

// search looks at processes. If this host has no file descriptor left to read /proc, a search waits for one, until
// that time: commands end, and their own descriptors become free, but others take them too.
type search struct{ until time.Time }

// How long the searches wait for a file descriptor.
const (
	strayPatience = 2 * time.Second        // of all searches of one run together, as long as commandGrace
	endPatience   = 100 * time.Millisecond // at the end of this process
)

// within returns a search that waits for a file descriptor at most for this time.
func within(patience time.Duration) search { return search{time.Now().Add(patience)} }

// waits calls open again until it does not fail for lack of something of this host, or the time is over.
func (s search) waits(open func() error) error {
	for {
		err := open()
		if err == nil || sender.ProcessShortage(err) == nil || !time.Now().Before(s.until) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// read reads a file of /proc.
func (s search) read(path string) (content []byte, err error) {
	err = s.waits(func() (err error) {
		content, err = os.ReadFile(path)
		return err
	})
	return content, err
}

// newRun returns a name for one run of a command, unique on this machine: the process id of the
// host, the time at which that process began, and a random number.
func newRun() string { return fmt.Sprintf("%s%x", within(0).runsOf(os.Getpid()), rand.Uint64()) }

// runsOf returns the common prefix of the names of all runs of a host process.
func (s search) runsOf(pid int) string {
	return fmt.Sprintf("%d.%s.", pid, s.began(pid))
}

// began returns the time at which a process began, in clock ticks since boot; "" if the process
// does not exist.
func (s search) began(pid int) string {
	if f := s.stat(pid); f != nil {
		return f[19]
	}
	return ""
}

// stat returns the fields of /proc/PID/stat from the state on; nil if the process has ended.
func (s search) stat(pid int) []string {
	b, err := s.read(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name of the program may contain any character
	if len(f) < 20 || f[0] == "Z" {
		return nil
	}
	return f
}

// start is the moment at which a command began.
type start struct {
	pid   int   // process id of the command
	forks int64 // by then
}

// begun returns the start of a command that has just begun.
func begun(pid int) start { return start{pid, within(0).forks()} }

// strays searches for the processes of a run. A search after another waits for a file descriptor only as long as
// that one left over.
type strays struct {
	run     string
	command start

	mu       sync.Mutex // one search at a time: a second one finds what the first could not
	patience time.Duration
}

// straysOf returns the strays of a run whose command has begun.
func straysOf(run string, command start) *strays {
	return &strays{run: run, command: command, patience: strayPatience}
}

// kill kills the processes of the run until none is left, also those in other sessions: see search.kill.
func (s *strays) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := within(s.patience)
	look.kill(s.run, s.command)
	s.patience = max(time.Until(look.until), 0)
}

// kill kills the processes of a run until none is left: all of them began after the command and have
// inherited runVariable over fork, exec and setsid. A process that changed its user or cleared its
// environment is not found.
func (s search) kill(run string, command start) {
	mark := []byte(runVariable + "=" + run)
	ends := map[int]bool{} // processes that ended while they were looked at
	unsure := 0
	for round := range strayRounds {
		found, again := false, false
		for _, pid := range s.processes(command) {
			switch s.look(pid, mark) {
			case ours:
				_ = syscall.Kill(pid, syscall.SIGKILL)
				found = true // it may have started another process since the list was read
			case ended: // so may this one, if it was ours
				again = again || !ends[pid]
				ends[pid] = true
			case executes:
				again = true
			case other:
			}
		}
		switch {
		case found:
			unsure = 0
		case again && unsure+1 < unsureRounds:
			unsure++
		default:
			return
		}
		time.Sleep(time.Duration(round+1) * time.Millisecond) // a killed process needs a moment to disappear
	}
}

// KillCommands kills, on Linux, every command that this process runs, and all processes that
// these commands started. It is for a program that must end at once.
func KillCommands() {
	s := within(endPatience)
	s.kill(s.runsOf(os.Getpid()), start{})
}

// processes returns the ids of the processes that may have begun after a command: those with a
// greater id or, if the kernel may have begun to reuse ids since, all.
func (s search) processes(command start) (pids []int) {
	var all []os.DirEntry
	_ = s.waits(func() (err error) {
		all, err = os.ReadDir("/proc")
		return err
	})
	reused := s.reusesIDs(command)
	for _, entry := range all {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && (pid > command.pid || reused) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reusesIDs reports whether the kernel may have begun to reuse process ids since a command began. The
// id that it assigned last is then smaller than that of the command, unless it has assigned nearly
// all ids in the meantime.
func (s search) reusesIDs(command start) bool {
	most, now := s.number("/proc/sys/kernel/pid_max", ""), s.forks()
	return s.newest() < command.pid || most == 0 || now == 0 || now-command.forks > most/2
}

// newest returns the process id that the kernel assigned last.
func (s search) newest() int {
	b, _ := s.read("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(f[len(f)-1])
	return pid
}

// forks returns how many processes and threads began since the machine started; 0 if that is unknown.
func (s search) forks() int64 { return s.number("/proc/stat", "processes ") }

// number returns the number in the line of a file that begins with a prefix; 0 if there is none.
func (s search) number(path, prefix string) int64 {
	b, _ := s.read(path)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

type sight int

// What look finds out about a process.
const (
	other    sight = iota // not of the run, or of another user, whose environment cannot be read
	ours                  // of the run
	executes              // unknown: it begins another program at that moment
	ended                 // unknown
)

// look reports whether the environment of a process has a variable that begins with mark. A process
// that begins another program has neither environment nor command line until that is loaded, and
// only a part of the old environment may have been read.
func (s search) look(pid int, mark []byte) sight {
	read := func(file string) ([]byte, error) { return s.read(fmt.Sprintf("/proc/%d/%s", pid, file)) }
	env, err := read("environ")
	if bytes.HasPrefix(env, mark) || bytes.Contains(env, append([]byte{0}, mark...)) {
		return ours
	}
	f := s.stat(pid)
	if f == nil {
		return ended
	}
	if flags, _ := strconv.ParseInt(f[6], 10, 64); flags&kernelThread != 0 {
		return other
	}
	if errors.Is(err, syscall.ESRCH) { // it exits, and has no memory any more
		return ended
	}
	if err != nil {
		return other
	}
	again, _ := read("environ")
	if line, _ := read("cmdline"); !bytes.Equal(env, again) || len(env) == 0 && len(line) == 0 {
		return executes
	}
	return other
}

// kernelThread is PF_KTHREAD in the flags of /proc/PID/stat.
const kernelThread = 0x200000
