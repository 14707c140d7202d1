package main

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/workerhost"
)

// serviceManager is the systemd that started this process as a service of
// Type=notify; without one, all methods do nothing. Through it (sd_notify(3))
// the host reports when it is ready, that it is alive (the watchdog), why it
// is not ready yet, and that it stops.
type serviceManager struct {
	conn     net.Conn               // nil: no systemd asked for notifications
	watchdog time.Duration          // the longest pause between two signs of life; 0 = none is expected
	starts   time.Duration          // how long the start may take: see startLimit
	old      atomic.Pointer[string] // why the host goes on with its old settings; nil: it does not
}

// startLimit is how long systemd, and so the boot of the machine, waits at most for a host that is
// not ready, because its database is away or another instance has its id. TimeoutStartSec of the
// unit is longer: it ends only a process that hangs.
const startLimit = time.Minute

// newServiceManager reads NOTIFY_SOCKET and WATCHDOG_USEC.
func newServiceManager(ctx context.Context, getenv func(string) string, log *slog.Logger) *serviceManager {
	path := getenv("NOTIFY_SOCKET")
	if path == "" {
		return &serviceManager{}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unixgram", path) // a leading @ is the abstract namespace
	if err != nil {
		log.Warn("the service manager cannot be notified", "socket", path, "error", err.Error())
		return &serviceManager{}
	}
	m := &serviceManager{conn: conn, starts: startLimit}
	if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
		m.watchdog = time.Duration(usec) * time.Microsecond
	}
	return m
}

// sendWithin is how long a notification waits for room in the socket of a manager that reads nothing.
const sendWithin = 50 * time.Millisecond

// send writes one notification, and reports whether it was taken. That it was not is no fault of the
// host: the manager is missing, or hangs.
func (m *serviceManager) send(lines ...string) bool {
	_ = m.conn.SetWriteDeadline(time.Now().Add(sendWithin))
	_, err := m.conn.Write([]byte(strings.Join(lines, "\n")))
	return err == nil
}

// follow reports the state of the host until living ends: READY=1 as soon as the
// host holds its id and every loop runs, or it has waited for startLimit, and a
// sign of life (WATCHDOG=1) at once and then twice per watchdog interval. The sign
// means only that the process runs and its state can be read: a loop that waits
// for the database or for a handler is no reason to kill the host. While heartbeats cannot be recorded,
// the state has the reason. Once working
// ends, the state is the one that stopping reports, and only the signs of life go on. A host that works with
// its old settings says why in place of "every loop runs".
func (m *serviceManager) follow(living, working context.Context, host *workerhost.Host) {
	if m.conn == nil {
		return
	}
	const look = 200 * time.Millisecond
	pause, last, alive := look, "", time.Time{}
	if m.watchdog > 0 {
		pause = min(look, m.watchdog/4)
	}
	began, ready := time.Now(), false
	for {
		why := host.Ready()
		state, failing, old := "every loop runs", host.Status().Failing, m.old.Load()
		switch {
		case why != "":
			state = "not ready: " + why
		case !failing.Empty():
			state += "; " + failing.String()
		case old != nil:
			state = *old
		}
		status := "STATUS=" + queue.Clean(state).Cut(200).String()
		switch {
		case working.Err() != nil:
		case !ready && (why == "" || time.Since(began) >= m.starts):
			if m.send("READY=1", status) {
				ready, last = true, status
			}
		case status != last && m.send(status):
			last = status
		}
		if m.watchdog > 0 && time.Since(alive) >= m.watchdog/2 && m.send("WATCHDOG=1") {
			alive = time.Now()
		}
		select {
		case <-living.Done():
			return
		case <-time.After(pause):
		}
	}
}

// reloading reports that the host drains for the settings that were read again. The next host reports
// when it is ready.
func (m *serviceManager) reloading() {
	m.old.Store(nil)
	if m.conn != nil {
		m.send("STATUS=draining, then it starts with the settings that were read again")
	}
}

// kept makes follow report why the host goes on with its old settings.
func (m *serviceManager) kept(err error) {
	m.old.Store(new("goes on with the old settings: " + err.Error()))
}

// failed gives the manager the reason why the host ended. It shows it until the next start. A nil
// err is no reason.
func (m *serviceManager) failed(err error) {
	if m.conn != nil && err != nil {
		m.send("STATUS=" + queue.Clean(err.Error()).Cut(200).String())
	}
}

// stopping notifies the manager that the host drains.
func (m *serviceManager) stopping() {
	if m.conn != nil {
		m.send("STOPPING=1", "STATUS=draining")
	}
}
