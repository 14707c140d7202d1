package main

// The processes of qtop that a soak runs: hosts, and a console on a terminal.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// environment returns the environment of a qtop process: it has only the settings of the soak,
// and none from the caller's environment.
func (s *soak) environment(login string, more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QTOP_") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "XDG_CONFIG_HOME=") {
			env = append(env, v)
		}
	}
	return append(append(env, "QTOP_DSN="+s.dsn(login), "XDG_CONFIG_HOME="+s.server.Dir()+"/none"), more...)
}

// process is one running process of qtop.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// begin starts the process. When the process has ended, begin calls then and closes done. Linux
// kills the process when the thread that started it ends (endWithUs), so that thread must not end
// earlier.
func (p *process) begin(start func() error, then func()) error {
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
		}
		then()
		close(p.done)
	}()
	return <-started
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// endsWithin waits for the end of the process and returns the exit code; -1 = the process had not
// ended after d and was killed.
func (p *process) endsWithin(d time.Duration) int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(d):
		p.kill()
		return -1
	}
}

// host is a worker host. After a kill, it starts a new process with the same host id.
type host struct {
	*process
	soak    *soak
	id      string
	log     string
	metrics string // address of its metrics listener
}

// start starts the host and waits until it is ready.
func (h *host) start(ctx context.Context) error {
	s := h.soak
	handlers, err := json.Marshal([]map[string]string{{"kind": jobKind, "url": s.url + "/job", "timeout": "30s"}})
	if err != nil {
		return err
	}
	args := []string{
		"worker", "--host-id", h.id, "--executor", executor, "--metrics-addr", "127.0.0.1:0", "--handlers", string(handlers),
		"--delivery-allow-networks", "127.0.0.0/8", "--delivery-allow-plain-http", "127.0.0.0/8", "--delivery-secrets", secretName + "=env:" + secretName,
	}
	cmd := exec.Command(s.qtop, args...) //nolint:noctx // the soak kills it, at the latest at its end
	cmd.Env = s.environment(hostLogin, secretName+"=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	h.log = filepath.Join(s.dir, h.id+".log")
	log, err := os.OpenFile(h.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = endWithUs()
	h.process = &process{cmd: cmd}
	if err := h.begin(cmd.Start, func() { _ = log.Close() }); err != nil {
		return err
	}
	return h.ready(ctx, from)
}

// ready waits until /readyz reports that the host is ready. The host writes the address to its
// log.
func (h *host) ready(ctx context.Context, from int64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for h.metrics = ""; ; {
		if h.metrics == "" {
			h.metrics = said(h.log, from, "metrics", "address")
		} else if _, err := h.get(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-h.done:
			return fmt.Errorf("host %s ended with exit code %d before it was ready: %s says why", h.id, h.cmd.ProcessState.ExitCode(), h.log)
		default:
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("host %s did not report ready within 2 minutes: %s says why", h.id, h.log)
		}
	}
}

// said returns an attribute of the first line with the message msg in a JSON log, from the offset
// from on.
func said(log string, from int64, msg, key string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) == nil && line["msg"] == msg {
			text, _ := line[key].(string)
			return text
		}
	}
	return ""
}

// get sends a GET request to the metrics listener of the host.
func (h *host) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.metrics+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// stop ends the host with SIGTERM, as a service manager does, and returns the exit code.
func (h *host) stop() int {
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	return h.endsWithin(time.Minute)
}

// console is a console on a pseudo-terminal, which is used during the soak.
type console struct {
	*process
	tty *os.File
	mu  sync.Mutex
}

func (s *soak) openConsole() (*console, error) {
	cmd := exec.Command(s.qtop, "--read-only") //nolint:noctx // the soak ends it
	cmd.Env = s.environment(viewerLogin, "TERM=xterm-256color", "LANG=C.UTF-8", "XDG_STATE_HOME="+s.server.Dir()+"/none")
	c := &console{process: &process{cmd: cmd}}
	err := c.begin(func() (err error) {
		c.tty, err = pty.StartWithSize(cmd, &pty.Winsize{Cols: 140, Rows: 45}) // when the soak ends, the terminal hangs up and ends the console
		return err
	}, func() { _ = c.tty.Close() })
	if err != nil {
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, c.tty) }() // ends with the process
	return c, nil
}

// use opens one pane after another until ctx ends.
func (c *console) use(ctx context.Context) {
	for {
		for _, keys := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "gf", "gs", "gn", "gw", "gl", "ga"} {
			if pause(ctx, 4*time.Second) != nil {
				return
			}
			c.press(keys)
		}
	}
}

func (c *console) press(keys string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.tty.WriteString(keys)
}

// quit leaves the console with the keys that a person uses, and returns the exit code.
func (c *console) quit() int {
	c.press("1q")
	return c.endsWithin(30 * time.Second)
}

// status runs `qtop status` and returns its exit code.
func (s *soak) status(ctx context.Context) (int, error) {
	cmd := exec.CommandContext(ctx, s.qtop, "status", "-o", "json")
	cmd.Env = s.environment(viewerLogin)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}
