// Stopping and restarting an owned server. The first signal is always SIGINT (fast shutdown);
// harder signals follow after a wait.

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	fastPatience  = 30 * time.Second // a fast shutdown writes a checkpoint
	graceOnCancel = 2 * time.Second  // time for a fast shutdown when ctx has ended
	quitPatience  = 8 * time.Second  // PostgreSQL kills its own children 5 s after SIGQUIT
)

// Stop ends an owned server with a fast shutdown, waits until it has ended, and removes a temporary
// base directory. For a joined server, Stop only ends the watch of the server. A second call
// returns the result of the first.
func (s *Server) Stop(ctx context.Context) error {
	s.op.Lock()
	defer s.op.Unlock()
	if s.stopped {
		return s.stopErr
	}
	s.stopped = true
	if s.stopJoin != nil {
		s.stopJoin()
		return nil
	}
	s.stopErr = s.current().stop(ctx)
	if s.stopErr == nil {
		s.stopErr = s.awaitBackends(ctx)
	}
	if s.stopErr != nil {
		// A server process still runs: keep the lock and the files.
		s.stopErr = fmt.Errorf("embedded postgres: stopping: %w", s.stopErr)
		return s.stopErr
	}
	s.release()
	return nil
}

// Restart ends the server if it still runs and starts it again on the same data
// and socket, so every DSN stays valid.
func (s *Server) Restart(ctx context.Context) error {
	s.op.Lock()
	defer s.op.Unlock()
	if s.stopped {
		return errors.New("embedded postgres: the server was stopped with Stop and cannot be restarted: start another one")
	}
	if s.stopJoin != nil {
		return fmt.Errorf("embedded postgres: the server in %s belongs to another process, which alone can restart it", s.dir)
	}
	err := s.current().stop(ctx)
	if err == nil {
		err = clearStale(ctx, s.data)
	}
	if err == nil {
		err = freshPrivate(s.sock, s.id)
	}
	if err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		return fmt.Errorf("embedded postgres: restarting: %w", err)
	}
	return nil
}

// awaitBackends waits for the children of a postmaster that did not end cleanly; they end by
// themselves shortly after the postmaster.
func (s *Server) awaitBackends(ctx context.Context) error {
	if s.current().clean() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quitPatience)
	defer cancel()
	return awaitEmpty(ctx, s.data)
}

// stop ends the process: by a fast shutdown, then an immediate one, then SIGKILL.
func (p *postmaster) stop(ctx context.Context) error {
	if p.ended() {
		return nil
	}
	_ = p.signal(syscall.SIGINT)
	select {
	case <-p.done:
		return nil
	case <-time.After(fastPatience):
	case <-ctx.Done():
		if p.wait(graceOnCancel) {
			return nil
		}
	}
	_ = p.signal(syscall.SIGQUIT)
	if p.wait(quitPatience) {
		return nil
	}
	_ = p.signal(syscall.SIGKILL)
	if p.wait(quitPatience) {
		return nil
	}
	return fmt.Errorf("process %d does not end", p.pid)
}

func (p *postmaster) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

func (p *postmaster) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// clean reports whether the process ended by itself with status 0.
func (p *postmaster) clean() bool { return p.ended() && p.err == nil }

// release releases the lock and removes the directories that were made for this server alone.
func (s *Server) release() {
	_ = os.Remove(filepath.Join(s.dir, stateFile))
	if s.sock != "" {
		removeSocketDir(s.sock)
	}
	if s.temp {
		_ = os.RemoveAll(s.dir)
	}
	if s.lock != nil {
		_ = releaseLock(s.lock)
		s.lock = nil
	}
}
