// Starting the server program and waiting until it accepts connections.

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"time"
)

// launch runs postgres on the prepared data directory and returns when it
// accepts connections.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(s.bin.Dir, "postgres"), s.args()...)
	cmd.Dir = "/"
	cmd.Env = childEnv()
	if s.opts.Test {
		cmd.Env = append(cmd.Env, "LANGUAGE=de") // the language of messages, once a session sets lc_messages to C.UTF-8
	}
	cmd.Env = append(cmd.Env, s.opts.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	var p *postmaster
	if s.opts.pipe || !deathSignals {
		p, err = spawnSupervised(ctx, cmd, s.id, s.data)
	} else {
		p, err = spawn(cmd, s.id.attr())
	}
	if err != nil {
		return fmt.Errorf("starting %s%s: %w", cmd.Path, s.id.as(), err)
	}
	s.setCurrent(p)
	if err := s.awaitReady(ctx, p); err != nil {
		stopErr := p.stop(ctx)
		return errors.Join(err, stopErr)
	}
	if s.ver, err = ping(ctx, s.sock); err == nil {
		err = s.writeState()
	}
	if err != nil {
		return errors.Join(err, p.stop(ctx))
	}
	return nil
}

func (s *Server) args() []string {
	args := []string{"-D", s.data}
	set := func(k, v string) { args = append(args, "-c", k+"="+v) }
	set("max_connections", "200")
	set("max_wal_size", "1GB")
	if s.opts.Test {
		set("fsync", "off")
		set("full_page_writes", "off")
		set("synchronous_commit", "off")
		set("jit", "off") // compiling the plan of a query takes longer than running it on the few rows of a test
	}
	names := make([]string, 0, len(s.opts.Params))
	for name := range s.opts.Params {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		set(name, s.opts.Params[name])
	}
	set("listen_addresses", "")
	set("port", strconv.Itoa(socketPort))
	set("unix_socket_directories", s.sock)
	set("unix_socket_permissions", "0700")
	set("cluster_name", clusterTag(s.data))
	return args
}

// awaitReady waits for the state in postmaster.pid, which the server writes, as pg_ctl does.
func (s *Server) awaitReady(ctx context.Context, p *postmaster) error {
	deadline := time.Now().Add(startPatience)
	for {
		f, ok := readPidFile(s.data)
		if ok && f.status == "ready" {
			s.mu.Lock()
			p.pid = f.pid
			s.mu.Unlock()
			return nil
		}
		if p.ended() {
			return fmt.Errorf("the server ended while starting: %s", s.logTail())
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server did not become ready in %s: %s", startPatience, s.logTail())
		}
		if err := pause(ctx, 4*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the server: %w: %s", err, s.logTail())
		}
	}
}

// logTail returns the lines of the server's log that say why it does not run.
func (s *Server) logTail() string {
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		return err.Error()
	}
	return tail(string(b))
}
