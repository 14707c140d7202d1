package embedded

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// Superuser is the superuser role of every cluster that this package makes.
const Superuser = "postgres"

const (
	logFile   = "server.log"
	stateFile = "server.json"
)

// Options say which server to start and where. The zero value is a temporary server with full
// durability.
type Options struct {
	Dir    string            // base directory; "" = a fresh temporary one that Stop removes
	Test   bool              // fsync, full_page_writes, synchronous_commit and jit off
	Major  int               // 0 = the newest from 15 on, or the major of an existing data directory
	Notice func(line string) // called with a line per important step; nil = no lines
	Wipe   bool              // remove the data before the start; never while another process owns the server
	Params map[string]string // further settings; the server gets them as -c options
	Env    []string          // further environment variables of the server, NAME=value
	Seed   string            // base directory of a stopped server; its data is copied instead of running initdb

	pipe bool // use the pipe supervisor also where parent-death signals exist
}

// Server is a running PostgreSQL server, which this process owns, or which it has joined because
// another process owns it: see Start.
type Server struct {
	dir  string
	sock string
	data string
	ver  string
	opts Options
	bin  Binaries
	id   identity
	temp bool // dir must be removed by Stop
	lock *os.File

	op       sync.Mutex // one Stop or Restart at a time
	stopped  bool
	stopErr  error
	stopJoin context.CancelFunc // ends the watch of a joined server; nil for an owner

	mu   sync.Mutex
	proc *postmaster
}

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

// Done returns a channel that is closed when the postmaster has ended, by Stop or otherwise. After
// a Restart, Done returns the channel of the new postmaster.
func (s *Server) Done() <-chan struct{} { return s.current().done }

// LogFile returns the path of the file to which the server writes its messages.
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

// postmaster is one run of the server program.
type postmaster struct {
	pid    int                       // of postgres itself, known once it is ready
	done   chan struct{}             // closed when the process has ended
	err    error                     // how the process ended; valid after done is closed
	signal func(sig os.Signal) error // nil for a joined server
}

// spawn runs the server as a direct child of this process. A parent-death signal is sent when the
// thread that forked ends. So a separate goroutine starts the server and keeps its thread until the
// server has ended.
func spawn(cmd *exec.Cmd, attr *syscall.SysProcAttr) (*postmaster, error) {
	cmd.SysProcAttr = attr
	p := &postmaster{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid, p.signal = cmd.Process.Pid, cmd.Process.Signal
	return p, nil
}
