package main

// The worker host of a course: a child process that is started again whenever it ends.

import (
	"context"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// child is a child process, which this process can kill.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startChild starts a process. It keeps the thread that started the process, because the kernel
// kills the process when that thread ends.
func startChild(cmd *exec.Cmd, start func() error) (*child, error) {
	c := &child{cmd, make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(c.done)
	}()
	return c, <-started
}

func (c *child) kill() {
	if c.cmd.Process != nil {
		_ = c.cmd.Process.Kill()
	}
	<-c.done
}

// downFor is the time from the end of a host to its next start, as with a service manager.
const downFor = time.Second

// hostKeeper runs the host of a course. That a host ends does not end the course: what it cost is
// measured, and the restarts are counted.
type hostKeeper struct {
	start   func() (*child, error)
	say     func(format string, args ...any)
	downFor time.Duration
	end     context.CancelFunc
	done    chan struct{} // closed when no host is started any more

	mu       sync.Mutex
	host     *child
	killed   *child  // the host that kill has ended
	restarts []int64 // when hosts ended that nobody had killed, in nanoseconds since 1970
	err      error   // why a host could not be started again
}

// keepHost starts the host, and from then on again whenever it has ended, until stop.
func keepHost(start func() (*child, error), say func(string, ...any), down time.Duration) (*hostKeeper, error) {
	ctx, cancel := context.WithCancel(context.Background())
	k := &hostKeeper{start: start, say: say, downFor: down, end: cancel, done: make(chan struct{})}
	var err error
	if k.host, err = start(); err != nil {
		cancel()
		return nil, err
	}
	go k.keep(ctx)
	return k, nil
}

func (k *hostKeeper) keep(ctx context.Context) {
	defer close(k.done)
	for {
		host := k.current()
		select {
		case <-ctx.Done():
			return
		case <-host.done:
		}
		k.mu.Lock()
		alone := host != k.killed
		if alone {
			k.restarts = append(k.restarts, time.Now().UnixNano())
		}
		n := len(k.restarts)
		k.mu.Unlock()
		if alone && (n <= 3 || n%10 == 0) {
			k.say("the host ended with exit %d and is started again (%d)", host.cmd.ProcessState.ExitCode(), n)
		}
		if pause(ctx, k.downFor) != nil {
			return
		}
		next, err := k.start()
		k.mu.Lock()
		k.host, k.err = next, err
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (k *hostKeeper) current() *child {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.host
}

// kill ends the host as kill -9 does, and waits until the next one is started. It returns the time
// of the kill.
func (k *hostKeeper) kill(ctx context.Context) (time.Time, error) {
	at := time.Now()
	k.mu.Lock()
	host := k.host
	k.killed = host
	k.mu.Unlock()
	host.kill()
	for k.current() == host {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return at, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return at, k.err
}

// ended returns how often the host had to be started again from one time to another, without those
// that kill has ended.
func (k *hostKeeper) ended(from, to time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return within(k.restarts, from, to)
}

// stop ends the host for good.
func (k *hostKeeper) stop() {
	k.end()
	<-k.done
	if host := k.current(); host != nil {
		host.kill()
	}
}

// newHost starts a host process of the contestant.
func (w *world) newHost() (*child, error) {
	cmd, err := w.who.host(w)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w.log, w.log
	cmd.SysProcAttr = endWithParent()
	return startChild(cmd, cmd.Start)
}
