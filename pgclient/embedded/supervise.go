// The pipe supervisor, for systems without parent-death signals. This program is started a second
// time, as the supervisor: it runs the server and reads a pipe whose other end only the first
// process, the host, has open. When the host ends, in whatever way, the pipe ends, and the
// supervisor shuts the server down.

package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	superviseEnv = "QTOP_SUPERVISE"
	lifelineFd   = 3
)

// supervised is the command that a supervisor runs; superviseEnv passes it as JSON.
type supervised struct {
	Path     string
	Args     []string // without the program's name
	Env      []string
	Uid, Gid int
	Name     string
	Drop     bool
}

// SuperviseMain runs this process as the supervisor and then exits, if the process was started as
// one. Call it first in main, and in a TestMain that starts servers; in any other process it
// returns at once.
func SuperviseMain() {
	order := os.Getenv(superviseEnv)
	if order == "" {
		return
	}
	var job supervised
	_ = json.Unmarshal([]byte(order), &job) // an order that cannot be read names no program, so the start fails with an error
	status := supervise(job, os.NewFile(lifelineFd, "lifeline"))
	os.Exit(status) //nolint:forbidigo // this process is the supervisor and nothing else; no caller has anything to drain
}

// supervise runs the server until it ends and returns its exit status.
func supervise(job supervised, lifeline io.Reader) int {
	id := identity{uid: job.Uid, gid: job.Gid, name: job.Name, drop: job.Drop}
	cmd := exec.CommandContext(context.Background(), job.Path, job.Args...)
	cmd.Dir, cmd.Env = "/", job.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	asked := make(chan os.Signal, 4)
	wanted := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the server outlives the terminal, as this program does
		wanted = append(wanted, syscall.SIGHUP)
	}
	signal.Notify(asked, wanted...)
	p, err := spawn(cmd, withoutDeathSignal(id.attr())) // the pipe alone ends the server, on every system
	if err != nil {
		fmt.Fprintln(os.Stderr, "qtop supervisor: FATAL:", err)
		return 1
	}
	host := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		close(host)
	}()
	for {
		select {
		case <-p.done:
			return exitStatus(p.err)
		case <-host:
			return exitStatus(p.lastStop())
		case sig := <-asked:
			if sig != syscall.SIGQUIT {
				sig = syscall.SIGINT
			}
			_ = p.signal(sig)
		}
	}
}

// lastStop stops a server whose host has ended; after it nobody is left to send harder signals.
func (p *postmaster) lastStop() error {
	for _, step := range []struct {
		sig      syscall.Signal
		patience time.Duration
	}{{syscall.SIGINT, fastPatience}, {syscall.SIGQUIT, quitPatience}, {syscall.SIGKILL, quitPatience}} {
		_ = p.signal(step.sig)
		if p.wait(step.patience) {
			return p.err
		}
	}
	return errors.New("the server does not end")
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	return 1
}

// spawnSupervised runs the server under a supervisor. Signals go to the supervisor, which forwards
// them to the server. SIGKILL, which a process cannot forward, is sent to the server itself.
func spawnSupervised(ctx context.Context, server *exec.Cmd, id identity, data string) (*postmaster, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(supervised{
		Path: server.Path, Args: server.Args[1:], Env: server.Env,
		Uid: id.uid, Gid: id.gid, Name: id.name, Drop: id.drop,
	})
	if err != nil {
		return nil, err
	}
	lifeline, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), superviseEnv+"="+string(job))
	cmd.Stdout, cmd.Stderr = server.Stdout, server.Stderr
	cmd.ExtraFiles = []*os.File{lifeline}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = lifeline.Close()
	if err != nil {
		_ = hold.Close()
		return nil, err
	}
	p := &postmaster{done: make(chan struct{}), pid: cmd.Process.Pid}
	p.signal = func(sig os.Signal) error {
		if f, ok := readPidFile(data); ok && sig == syscall.SIGKILL {
			return syscall.Kill(f.pid, syscall.SIGKILL)
		}
		return cmd.Process.Signal(sig)
	}
	go func() {
		p.err = cmd.Wait()
		_ = hold.Close()
		endOrphan(data)
		close(p.done)
	}()
	return p, nil
}

// endOrphan shuts down a server whose supervisor was killed.
func endOrphan(data string) {
	for range int(fastPatience / (50 * time.Millisecond)) {
		f, ok := readPidFile(data)
		if !ok {
			return
		}
		if info, ok := lookup(f.pid); !ok || !info.worksIn(data) {
			return
		}
		_ = syscall.Kill(f.pid, syscall.SIGINT)
		time.Sleep(50 * time.Millisecond) // between two signals, because nothing signals the end of a process that is not a child of this one
	}
}
