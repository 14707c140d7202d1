package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// actAsInit does nothing unless this process is process 1, as it is in a container without an init.
// Process 1 inherits the processes that a job's command leaves behind and has to reap them: each would
// otherwise stay as a zombie, until no process can be started. So process 1 runs the program as a
// child, passes signals on to it, reaps whatever ends, and exits as the child did.
func actAsInit() {
	if os.Getpid() != 1 {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return // without /proc the program runs, and reaps nothing
	}
	code, err := runAsInit(self, os.Args)
	if err != nil {
		return
	}
	os.Exit(code)
}

// runAsInit runs a program as the only child of this process, until it ends, and returns its exit
// code. It returns an error if the program could not be started.
func runAsInit(path string, argv []string) (int, error) {
	asked := make(chan os.Signal, 16)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the child ignores it too
		signal.Notify(asked, syscall.SIGHUP)
	}
	defer signal.Stop(asked)
	attr := &syscall.SysProcAttr{}
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err == nil { // stdin is a terminal
		// the signals of the terminal go to the child alone, not a second time by way of this process
		attr.Setpgid, attr.Foreground, attr.Ctty = true, true, int(os.Stdin.Fd())
	}
	child, err := os.StartProcess(path, argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", path, err)
	}
	go func() {
		for sig := range asked {
			_ = child.Signal(sig)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, nil // there is no child any more
		case pid != child.Pid:
		case status.Stopped(): // there is no shell that could continue it
			_ = child.Signal(syscall.SIGCONT)
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}
