package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unit is one instance of a unit template.
type unit struct {
	*manager
	name, instance string

	mu       sync.Mutex
	state    string // inactive, activating, active, failed
	status   string // the last STATUS= text of the host
	result   string
	pid      int
	stopping chan struct{} // closed to request the end of the unit
	ended    chan struct{} // closed when the unit has ended
}

func (u *unit) set(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
}

func (u *unit) property(name string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return map[string]string{"MainPID": strconv.Itoa(u.pid), "StatusText": u.status, "Result": u.result, "ActiveState": u.state}[name]
}

func (u *unit) signal(s syscall.Signal) error {
	pid, _ := strconv.Atoi(u.property("MainPID"))
	if pid == 0 || s == 0 {
		return fmt.Errorf("%s does not run, or there is no such signal", u.name)
	}
	return unix.Kill(pid, s)
}

// note writes a line into the journal, as systemd does for its messages.
func (u *unit) note(format string, args ...any) {
	fmt.Fprintf(u.journal, "systemd: %s.service: "+format+"\n", append([]any{u.name}, args...)...)
}

// start runs the unit and waits until it is ready, at most TimeoutStartSec.
func (u *unit) start() error {
	if u.property("ActiveState") == "active" {
		return nil
	}
	s, err := u.settings()
	if err != nil {
		return err
	}
	u.set(func() {
		u.state, u.result, u.stopping, u.ended = "activating", "success", make(chan struct{}), make(chan struct{})
	})
	ready, limit := make(chan error, 1), s.seconds("TimeoutStartSec", 90*time.Second)
	go u.supervise(s, ready)
	select {
	case err := <-ready:
		return err
	case <-time.After(limit):
		u.end(unix.SIGKILL)
		return fmt.Errorf("the unit was not ready within %s", limit)
	}
}

// end sends s to the main process, kills it if it has not ended after TimeoutStopSec, and waits
// until it has ended.
func (u *unit) end(s syscall.Signal) {
	u.mu.Lock()
	ended := u.ended
	if u.stopping != nil {
		close(u.stopping)
		u.stopping = nil
	}
	u.mu.Unlock()
	if ended == nil {
		return
	}
	limit := 90 * time.Second
	if settings, err := u.settings(); err == nil {
		limit = settings.seconds("TimeoutStopSec", limit)
	}
	_ = u.signal(s)
	select {
	case <-ended:
	case <-time.After(limit):
		u.note("State 'stop-sigterm' timed out. Killing.")
		u.set(func() { u.result = "timeout" })
		_ = u.signal(unix.SIGKILL)
		<-ended
	}
}

// reload runs the command of ExecReload.
func (u *unit) reload() error {
	s, err := u.settings()
	if err != nil {
		return err
	}
	argv := words(s.last("ExecReload"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: u.root}
	cmd.Env = []string{"PATH=/usr/bin:/bin", "MAINPID=" + u.property("MainPID")}
	return cmd.Run()
}

// supervise runs the main process, and starts it again after a failure.
func (u *unit) supervise(s settings, ready chan<- error) {
	u.mu.Lock()
	stopping, ended := u.stopping, u.ended
	u.mu.Unlock()
	defer close(ended)
	for {
		code, err := u.once(s, func() {
			u.set(func() { u.state = "active" })
			select {
			case ready <- nil:
			default:
			}
		})
		u.set(func() { u.pid = 0 })
		asked := false
		select {
		case <-stopping:
			asked = true
		default:
		}
		prevented := slices.Contains(strings.Fields(s.last("RestartPreventExitStatus")), strconv.Itoa(code))
		if code == 0 && err == nil || asked || prevented {
			u.set(func() {
				u.state = "inactive"
				if code != 0 || err != nil {
					u.state, u.result = "failed", "exit-code"
				}
			})
			select {
			case ready <- fmt.Errorf("%s ended with %d before it was ready (%v)", u.name, code, err):
			default:
			}
			return
		}
		u.note("Failed with code %d (%v); scheduled restart job.", code, err)
		u.set(func() { u.state = "activating" })
		select {
		case <-stopping:
			u.set(func() { u.state = "inactive" })
			return
		case <-time.After(s.seconds("RestartSec", 100*time.Millisecond)):
		}
	}
}

// once runs the main process until it ends. It calls ready when the process sends READY=1, and
// aborts a process that sends no WATCHDOG=1 within WatchdogSec.
func (u *unit) once(s settings, ready func()) (code int, err error) {
	socket := folder + "/notify-" + u.instance
	_ = os.Remove(u.root + socket)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: u.root + socket, Net: "unixgram"})
	if err != nil {
		return 1, err
	}
	defer func() { _ = conn.Close() }()
	if err := os.Chmod(u.root+socket, 0o777); err != nil {
		return 1, err
	}
	watchdog := s.seconds("WatchdogSec", 0)
	cmd, err := u.command(s, append(s.environment(), "NOTIFY_SOCKET="+socket, fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())))
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	u.set(func() { u.pid = cmd.Process.Pid })
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	said := make(chan string)
	go func() {
		defer close(said)
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			for line := range strings.SplitSeq(string(buf[:n]), "\n") {
				said <- line
			}
		}
	}()
	defer func() { // lets the goroutine that reads the socket end
		_ = conn.Close()
		for range said { //nolint:revive // drop the remaining lines
		}
	}()
	alive, look := time.Now(), time.NewTicker(50*time.Millisecond)
	defer look.Stop()
	isReady, aborted := false, false
	for {
		select {
		case line := <-said:
			switch {
			case line == "READY=1":
				isReady, alive = true, time.Now()
				ready()
			case line == "WATCHDOG=1":
				alive = time.Now()
			case strings.HasPrefix(line, "STATUS="):
				u.set(func() { u.status = strings.TrimPrefix(line, "STATUS=") })
			}
		case <-look.C:
			if isReady && watchdog > 0 && !aborted && time.Since(alive) > watchdog {
				aborted = true
				u.note("Watchdog timeout (limit %s)!", watchdog)
				_ = cmd.Process.Signal(unix.SIGABRT)
				_ = cmd.Process.Signal(unix.SIGCONT)
			}
		case err := <-over:
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the remaining processes of its group
			if aborted && err == nil {
				err = errors.New("watchdog")
			}
			if cmd.ProcessState.ExitCode() > 0 {
				return cmd.ProcessState.ExitCode(), nil
			}
			return 0, err // err is nil, or the process was ended by a signal
		}
	}
}

// command returns the main process, not started: in the chroot, as the user of the unit.
func (u *unit) command(s settings, env []string) (*exec.Cmd, error) {
	uid, gid, err := u.user(s.last("User"))
	if err != nil {
		return nil, err
	}
	if dir := s.last("StateDirectory"); dir != "" {
		path := filepath.Join(u.root, "/var/lib", dir)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return nil, err
		}
		if err := os.Chown(path, uid, gid); err != nil {
			return nil, err
		}
	}
	mask, err := strconv.ParseUint(s.last("UMask"), 8, 16)
	if err != nil {
		return nil, err
	}
	syscall.Umask(int(mask))
	argv := words(s.last("ExecStart"))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", env, u.journal, u.journal
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: u.root, Setsid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd, nil
}

// user returns the user id and group id of a user in the chroot.
func (u *unit) user(name string) (uid, gid int, err error) {
	f, err := os.Open(u.root + "/etc/passwd")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if part := strings.Split(lines.Text(), ":"); len(part) > 3 && part[0] == name {
			uid, _ = strconv.Atoi(part[2])
			gid, _ = strconv.Atoi(part[3])
			return uid, gid, nil
		}
	}
	return 0, 0, fmt.Errorf("there is no user %q", name)
}
