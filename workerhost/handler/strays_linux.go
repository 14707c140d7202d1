package handler

// This file finds what a command left behind, wherever it moved: by a variable of its
// environment, which is inherited over fork, exec and setsid.

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

// strayRounds bounds how often what is left is looked for: a process may fork while
// the others are killed.
const strayRounds = 20

// newRun names one run of a command: the process id of the host, when that process
// began, and a number. No other run on this machine has it.
func newRun() string { return fmt.Sprintf("%s%x", runsOf(os.Getpid()), rand.Uint64()) }

// runsOf begins the names of all runs of a host process.
func runsOf(pid int) string {
	return fmt.Sprintf("%d.%s.", pid, began(pid))
}

// began is when a process began, in ticks since boot; "" where there is no such
// process any more.
func began(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // a name may hold anything
	if len(f) < 20 || f[0] == "Z" {
		return ""
	}
	return f[19]
}

// killStrays kills the processes of a run, all of which began after the command, until
// none is left. What changed its user, or left its process group and cleared its
// environment, is not found.
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
		time.Sleep(time.Duration(round+1) * time.Millisecond) // a killed process needs a moment to be gone
	}
}

// KillCommands kills, on Linux, every command that this process runs and what those
// left behind: for a program that ends at once.
func KillCommands() { killStrays(runsOf(os.Getpid()), 0) }

// processes lists those with a greater id than after, which are those that were
// started later, or all where the ids have begun again since.
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

// newest is the process id that was given last.
func newest() int {
	b, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if len(f) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(f[len(f)-1])
	return pid
}

// carries tells whether a process lives and its environment has a variable that
// begins so. That of a process of another user cannot be read.
func carries(pid int, mark []byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.HasPrefix(env, mark) && !bytes.Contains(env, append([]byte{0}, mark...)) {
		return false
	}
	return began(pid) != ""
}
