// Joining a server that another process owns: its owner describes the server in a state file in the
// base directory.

package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/qtop/qtop/pgclient/pgsession"
)

// state is the content of the state file server.json. The file exists while the server accepts
// connections; after a crash of the owner it is left over.
type state struct {
	Pid     int    `json:"pid"`   // of the postmaster
	Owner   int    `json:"owner"` // of the qtop process that owns the server
	Socket  string `json:"socket_dir"`
	Data    string `json:"data_dir"`
	Version string `json:"version"`
	Major   int    `json:"major"`
}

func (s *Server) writeState() error {
	b, err := json.Marshal(state{
		Pid: s.Pid(), Owner: os.Getpid(), Socket: s.sock, Data: s.data, Version: s.ver, Major: s.bin.Major,
	})
	if err != nil {
		return err
	}
	return writeAtomic(filepath.Join(s.dir, stateFile), b)
}

// join attaches to the running server of s.dir.
func (s *Server) join(ctx context.Context) error {
	path := filepath.Join(s.dir, stateFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("no running server has written its state file: %w", err)
	}
	var st state
	if err := json.Unmarshal(b, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if p, ok := lookup(st.Pid); !ok || p.zombie {
		return fmt.Errorf("%s names process %d, which has ended", path, st.Pid)
	}
	if s.opts.Major != 0 && st.Major != s.opts.Major {
		return fmt.Errorf("the server that runs there is PostgreSQL %s, not %d", st.Version, s.opts.Major)
	}
	ver, err := ping(ctx, st.Socket)
	if err != nil {
		return err
	}
	s.sock, s.data, s.ver = st.Socket, st.Data, ver
	watch, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &postmaster{pid: st.Pid, done: make(chan struct{})}
	s.setCurrent(p)
	s.stopJoin = cancel
	go watchPid(watch, p)
	return nil
}

// watchPid closes p.done when the postmaster, which is not a child of this process, has ended.
func watchPid(ctx context.Context, p *postmaster) {
	for pause(ctx, 100*time.Millisecond) == nil {
		if info, ok := lookup(p.pid); !ok || info.zombie {
			close(p.done)
			return
		}
	}
}

// ping makes one connection and returns the server's version.
func ping(ctx context.Context, sock string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgsession.Connect(ctx, socketDSN(sock, Superuser, "postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	if version == "" {
		return "", errors.New("the server does not report its version")
	}
	return version, nil
}

// socketPort is only part of the name of the socket file; the server listens on no TCP port.
const socketPort = 5432

func socketDSN(sock, user, database string) string {
	q := url.Values{}
	q.Set("host", sock)
	q.Set("port", strconv.Itoa(socketPort))
	q.Set("sslmode", "disable")
	// Neither pgx nor libpq reads + as a space.
	query := strings.ReplaceAll(q.Encode(), "+", "%20")
	u := url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database, RawQuery: query}
	return u.String()
}

// writeAtomic replaces a file in one step.
func writeAtomic(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}
