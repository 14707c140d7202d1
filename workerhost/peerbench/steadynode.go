package main

// graphile-worker and pg-boss under a steady load.

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// pgbossVersion is the last version that runs on Node.js 20.
const pgbossVersion = "10.4.2"

//go:embed pgboss.mjs
var pgbossScript []byte

// nodePeer installs an npm package when it is first needed.
func (s *steadyRun) nodePeer(ctx context.Context, name, version, script string, text []byte) error {
	if s.node[name] == nil {
		if s.node == nil {
			s.node = map[string]*nodePeer{}
		}
		s.node[name] = installNode(ctx, name, version, script, text)
	}
	return s.node[name].err
}

func (s *steadyRun) removeInstalled() {
	for _, p := range s.node {
		p.remove()
	}
	if s.seed != "" {
		_ = os.RemoveAll(s.seed)
	}
}

// script returns a command of the peer's script on the database of the course.
func (w *world) script(name string, args ...string) *exec.Cmd {
	return w.node[name].command(context.Background(), w.server.SocketDir(), peerLogin, steadyDatabase, args...)
}

// migrated runs the command migrate of the peer's script.
func (w *world) migrated(name string, args ...string) error {
	out, err := w.script(name, append([]string{"migrate"}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

func (s *steadyRun) steadyGraphile() contestant {
	return contestant{
		name: graphileName, version: graphileVersion, load: jobsLoad, hot: "graphile_worker._private_jobs",
		gone: 15 * time.Second, // the jobs of a host that has ended are locked for four hours
		needs: func(ctx context.Context) error {
			return s.nodePeer(ctx, graphileName, graphileVersion, "graphile.mjs", graphileScript)
		},
		install: func(_ context.Context, w *world) error { return w.migrated(graphileName) },
		host:    func(w *world) (*exec.Cmd, error) { return w.script(graphileName, "serve", w.url), nil },
		producer: func(w *world) (*exec.Cmd, error) {
			return self(producerEnv, producerSpec{DSN: w.dsn(peerLogin),
				SQL: "SELECT graphile_worker.add_job('noop', json_build_object('n', $1::int))"})
		},
	}
}

func (s *steadyRun) steadyPgBoss() contestant {
	return contestant{
		name: pgbossName, version: pgbossVersion, load: jobsLoad, hot: "pgboss.job",
		needs: func(ctx context.Context) error {
			return s.nodePeer(ctx, pgbossName, pgbossVersion, "pgboss.mjs", pgbossScript)
		},
		install: func(ctx context.Context, w *world) error {
			return errors.Join(w.exec(ctx, "CREATE EXTENSION IF NOT EXISTS pgcrypto"), w.migrated(pgbossName, strconv.Itoa(leaseSeconds)))
		},
		host:     func(w *world) (*exec.Cmd, error) { return w.script(pgbossName, "serve", w.url), nil },
		producer: func(w *world) (*exec.Cmd, error) { return w.script(pgbossName, "produce"), nil },
		recorded: `SELECT (data ->> 'n')::int, created_on, completed_on FROM pgboss.job WHERE name = 'bench' AND state = 'completed'`,
	}
}
