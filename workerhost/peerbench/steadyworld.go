package main

// The environment of one contestant during one course: a new server, the host, the producer, the
// receiver, and for qtop a console on a terminal.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/creack/pty"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/embedded"
)

const (
	steadyDatabase = "steady"
	peerLogin      = "peer"             // owns the database; not a superuser
	observer       = "peerbench steady" // application name of the sessions of this program
)

// world holds everything that runs during one course.
type world struct {
	*steadyRun
	who      contestant
	server   *embedded.Server
	admin    *pgxpool.Pool
	viewer   *pgxpool.Pool // asks for snapshots; nil without a console
	receiver *http.Server
	url      string
	ledger   *steadyLedger
	hosts    *hostKeeper
	console  *child
	producer *producer
	draining bool // jobs still completed when -drain ended
	log      *os.File
}

func (w *world) dsn(login string) string { return w.server.DSN(login, steadyDatabase) }

func (w *world) connect(ctx context.Context) (*pgx.Conn, error) {
	return w.connectAs(ctx, embedded.Superuser)
}

func (w *world) connectAs(ctx context.Context, login string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(w.dsn(login))
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = observer
	return pgx.ConnectConfig(ctx, cfg)
}

// exec runs statements as a superuser.
func (w *world) exec(ctx context.Context, sql ...string) error {
	for _, s := range sql {
		if _, err := w.admin.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// call runs a function of qtop that returns JSON. It returns an error if the function refuses.
func (w *world) call(ctx context.Context, sql string) error {
	var answer string
	if err := w.admin.QueryRow(ctx, sql).Scan(&answer); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	if err := refusal(answer); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// open starts everything except the producer.
func (s *steadyRun) open(ctx context.Context, who contestant) (w *world, err error) {
	w = &world{steadyRun: s, who: who, ledger: &steadyLedger{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	name := strings.NewReplacer(" ", "-", "/", "-").Replace(who.name) + ".log"
	if w.log, err = os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return w, err
	}
	params := map[string]string{"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "15min",
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on"}
	seed, err := s.seeded(ctx)
	if err != nil {
		return w, err
	}
	if w.server, err = embedded.Start(ctx, embedded.Options{Seed: seed, Params: params, Notice: func(line string) { s.say("%s", line) }}); err != nil {
		return w, err
	}
	if err := w.createDatabase(ctx); err != nil {
		return w, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return w, err
	}
	w.url = "http://" + l.Addr().String()
	w.receiver = &http.Server{Handler: w.ledger, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.receiver.Serve(l) }()
	if err := who.install(ctx, w); err != nil {
		return w, fmt.Errorf("installing: %w", err)
	}
	if w.hosts, err = keepHost(w.newHost, w.say, downFor); err != nil {
		return w, err
	}
	if who.watched != "" {
		if err := w.startConsole(); err != nil {
			return w, err
		}
		// Opened now, because in pool-exhausted the server gives no more sessions.
		if w.viewer, err = w.openObserver(ctx, viewerLogin, 1); err != nil {
			return w, err
		}
	}
	cmd, err := who.producer(w)
	if err != nil {
		return w, err
	}
	cmd.Stderr = w.log
	w.producer, err = startProducer(cmd, w.ledger.tell)
	return w, err
}

// seeded makes the server of which those of the courses are copies: initdb for each takes longer.
func (s *steadyRun) seeded(ctx context.Context) (string, error) {
	if s.seed != "" {
		return s.seed, nil
	}
	dir, err := os.MkdirTemp("", "peerbench-seed-")
	if err != nil {
		return "", err
	}
	var server *embedded.Server
	if err = os.Chmod(dir, 0o755); err == nil { //nolint:gosec // the user of the server is another one if root runs this; the data is private
		server, err = embedded.Start(ctx, embedded.Options{Dir: dir})
	}
	if err == nil {
		err = server.Stop(ctx)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	s.seed = dir
	return dir, nil
}

func (w *world) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.server.DSN(embedded.Superuser, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{"CREATE ROLE " + peerLogin + " LOGIN", "CREATE DATABASE " + steadyDatabase + " OWNER " + peerLogin} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	w.admin, err = w.openObserver(ctx, embedded.Superuser, 3)
	return err
}

// openObserver opens a connection pool of this program and its first session.
func (w *world) openObserver(ctx context.Context, login string, conns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(w.dsn(login))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.RuntimeParams["application_name"] = observer
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// close stops everything that open started.
func (w *world) close() error {
	var errs []error
	if w.producer != nil {
		errs = append(errs, w.producer.stop())
	}
	if w.hosts != nil {
		w.hosts.stop()
	}
	if w.console != nil {
		w.console.kill()
	}
	if w.receiver != nil {
		_ = w.receiver.Close()
	}
	for _, pool := range []*pgxpool.Pool{w.viewer, w.admin} {
		if pool != nil {
			pool.Close()
		}
	}
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		errs = append(errs, w.server.Stop(ctx))
	}
	if w.log != nil {
		_ = w.log.Close()
	}
	return errors.Join(errs...)
}

// stopServer ends PostgreSQL by a fast shutdown, as the operating system does. Restart starts it
// again.
func (w *world) stopServer(ctx context.Context) error {
	ended := w.server.Done()
	p, err := os.FindProcess(w.server.Pid())
	if err == nil {
		err = p.Signal(os.Interrupt)
	}
	if err != nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ended returns an error if the console has ended.
func (w *world) ended() error {
	if w.console == nil {
		return nil
	}
	select {
	case <-w.console.done:
		return fmt.Errorf("the console ended with exit %d; see %s", w.console.cmd.ProcessState.ExitCode(), w.log.Name())
	default:
		return nil
	}
}

// startConsole opens a console on a pseudo-terminal. The console shows the live panes during the
// whole course.
func (w *world) startConsole() error {
	cmd := exec.Command(w.who.watched, "--read-only") //nolint:noctx // killed at the end
	cmd.Env = w.qtopEnv(viewerLogin, "TERM=xterm-256color", "LANG=C.UTF-8")
	var tty *os.File
	var err error
	w.console, err = startChild(cmd, func() (err error) {
		tty, err = pty.StartWithSize(cmd, &pty.Winsize{Cols: 140, Rows: 45})
		return err
	})
	if err == nil {
		go func() {
			_, _ = io.Copy(io.Discard, tty)
			_ = tty.Close()
		}()
	}
	return err
}

// qtopEnv returns the environment of a qtop process: it has only the settings of the benchmark,
// and none from the caller's environment.
func (w *world) qtopEnv(login string, more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "QTOP_") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "XDG_") {
			env = append(env, v)
		}
	}
	none := w.server.Dir() + "/none"
	return append(append(env, "QTOP_DSN="+w.dsn(login), "XDG_CONFIG_HOME="+none, "XDG_STATE_HOME="+none), more...)
}

// self returns a command that runs this program as another process, with spec as JSON in the
// environment variable env.
func self(env string, spec any) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe) //nolint:noctx // its parent ends it
	cmd.Env = append(os.Environ(), env+"="+string(text))
	return cmd, nil
}

// cpu returns the pid and the processor seconds of the postmaster, including all its children,
// also those that have ended.
func (w *world) cpu() (pid int, seconds float64) {
	pid = w.server.Pid()
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	seconds = processTime(pid, true)
	for _, one := range strings.Fields(string(text)) {
		var n int
		if _, err := fmt.Sscan(one, &n); err == nil {
			seconds += processTime(n, false)
		}
	}
	return pid, seconds
}

// processTime returns the processor seconds of a process; withEnded includes its children that
// have ended.
func processTime(pid int, withEnded bool) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name of the program before it may have spaces
	f := strings.Fields(rest)
	if len(f) < 15 {
		return 0
	}
	const hertz = 100 // USER_HZ of every Linux that Go runs on
	var sum float64
	for i, ticks := range f[11:15] { // utime, stime, cutime, cstime
		var n float64
		if _, err := fmt.Sscan(ticks, &n); err == nil && (withEnded || i < 2) {
			sum += n / hertz
		}
	}
	return sum
}
