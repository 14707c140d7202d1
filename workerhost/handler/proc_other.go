//go:build unix && !linux

package handler

import (
	"os/exec"
	"syscall"
)

// attr puts a command into a separate session, where it gets no signals from the terminal and
// cannot write to the terminal. On these systems the command survives the death of the host.
func attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// startCommand starts a command. The caller calls ended when the command has ended.
func startCommand(cmd *exec.Cmd) (ended func(), err error) {
	return func() {}, cmd.Start()
}

// awaitEnd leaves the waiting to Cmd.Wait.
func awaitEnd(int) {}
