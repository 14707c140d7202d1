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
	"sync"
	"time"
)

// Superuser is the superuser role of every cluster made here.
const Superuser = "postgres"

// minMajor is the oldest PostgreSQL that qtop supports.
const minMajor = 15

// Options say which server to start and where. The zero value is a throw-away
// server with full durability.
type Options struct {
	Dir    string            // base directory; "" = a fresh temporary one that Stop removes
	Test   bool              // fsync, full_page_writes and synchronous_commit off
	Major  int               // 0 = newest >= 15 (an existing data directory pins its own)
	Notice func(line string) // told once per noteworthy step; nil = silent
	Wipe   bool              // remove the data before the start; never while another process owns it
	Params map[string]string // further settings, given to the server with -c
	Seed   string            // base directory of a stopped server whose data is copied in place of initdb

	pipe bool // use the pipe supervisor also where parent-death signals exist
}

// Server is a running server, owned or joined.
type Server struct {
	dir  string
	sock string
	data string
	ver  string
	opts Options
	bin  Binaries
	id   identity
	temp bool // dir is ours to remove
	lock *os.File

	op       sync.Mutex // one Stop or Restart at a time
	stopped  bool
	stopErr  error
	stopJoin context.CancelFunc // ends the watch of a joined server; nil for an owner

	mu   sync.Mutex
	proc *postmaster
}

// Start runs a server, or joins the one that another process runs in o.Dir.
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

// lockOrJoin takes the ownership of the base directory, or joins its owner's
// server. An owner that ends meanwhile leaves the lock to us.
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

// own prepares the data directory and starts the server; the lock is held.
func (s *Server) own(ctx context.Context) error {
	have := clusters(s.dir)
	for _, major := range have {
		if err := clearStale(ctx, dataDir(s.dir, major)); err != nil {
			return err
		}
	}
	if s.opts.Wipe {
		for _, major := range have {
			if err := os.RemoveAll(clusterDir(s.dir, major)); err != nil {
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

// choose settles the programs and the user to run them as.
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

// release gives up ownership and removes what was made for this server alone.
func (s *Server) release() {
	_ = os.Remove(filepath.Join(s.dir, stateFile))
	if s.sock != "" {
		removeSocketDir(s.sock)
	}
	if s.temp {
		_ = os.RemoveAll(s.dir)
	}
	if s.lock != nil {
		_ = s.lock.Close()
		s.lock = nil
	}
}

// DSN is a connection string for the server's socket; pgx, libpq and psql take it.
func (s *Server) DSN(user, database string) string { return socketDSN(s.sock, user, database) }

// Joined reports whether another qtop process owns the server.
func (s *Server) Joined() bool { return s.stopJoin != nil }

// Pid is the process id of the postmaster.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
}

// Dir is the base directory.
func (s *Server) Dir() string { return s.dir }

// DataDir is the PostgreSQL data directory.
func (s *Server) DataDir() string { return s.data }

// SocketDir is the directory of the unix socket, the host of a connection.
func (s *Server) SocketDir() string { return s.sock }

// Version is the server's version, for example "17.6".
func (s *Server) Version() string { return s.ver }

// Binaries are the programs that the server runs; empty for a joined server.
func (s *Server) Binaries() Binaries { return s.bin }

// Done is closed when the postmaster ended, by Stop or otherwise. After a
// Restart, Done returns the channel of the new postmaster.
func (s *Server) Done() <-chan struct{} { return s.current().done }

// LogFile is the file that the server's messages go to.
func (s *Server) LogFile() string { return filepath.Join(s.dir, logFile) }

func (s *Server) current() *postmaster {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) setCurrent(p *postmaster) {
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()
}

// reserved names the settings that keep the server private and recognisable.
func reserved(name string) bool {
	switch strings.ToLower(name) {
	case "listen_addresses", "unix_socket_directories", "unix_socket_permissions", "unix_socket_group", "port", "cluster_name", "hba_file", "data_directory", "external_pid_file":
		return true
	}
	return false
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
