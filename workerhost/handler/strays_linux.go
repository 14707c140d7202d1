package handler

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// strayRounds bounds how often killStrays searches for processes of a run: a process may fork
// while the others are killed.
const strayRounds = 20

// newRun returns a name for one run of a command, unique on this machine: the process id of the
// host, the time at which that process began, and a random number.
func newRun() string { return fmt.Sprintf("%s%x", runsOf(os.Getpid()), rand.Uint64()) }

// runsOf returns the common prefix of the names of all runs of a host process.
func runsOf(pid int) string {
	return fmt.Sprintf("%d.%s.", pid, began(pid))
}

// began returns the time at which a process began, in clock ticks since boot; "" if the process
// does not exist.
func began(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name of the program may contain any character
	if len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}

// killStrays kills the processes of a run until none is left, also those in other sessions: all
// of them began after the command and have inherited runVariable over fork, exec and setsid. A
// process that changed its user or cleared its environment is not found.
func killStrays(run string, command int) {
	mark := []byte(runVariable + "=" + run)
	for round := range strayRounds {
		found := false
		for _, pid := range processes(command) {
			if carries(pid, mark) {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
		time.Sleep(time.Duration(round+1) * time.Millisecond) // a killed process needs a moment to disappear
	}
}

// KillCommands kills, on Linux, every command that this process runs, and all processes that
// these commands started. It is for a program that must end at once.
func KillCommands() { killStrays(runsOf(os.Getpid()), 0) }

// processes returns the ids of the processes with an id greater than after, because these began
// later. If the kernel has begun to reuse ids since, it returns all processes.
func processes(after int) (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*")
	again := newest() < after
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil && (pid > after || again) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// newest returns the process id that the kernel assigned last.
func newest() int {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(f[len(f)-1])
	return pid
}

// carries reports whether the environment of a process has a variable that
// begins with mark. It returns false if the process has ended or belongs to
// another user, whose environment cannot be read.
func carries(pid int, mark []byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.HasPrefix(env, mark) && !bytes.Contains(env, append([]byte{0}, mark...)) {
		return false
	}
	return began(pid) != ""
}
