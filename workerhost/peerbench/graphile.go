package main

// graphile-worker, which is installed into a temporary folder for the run: two node processes
// that start to work on a command, and report when they find no more work.

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/qtop/qtop/pgclient/embedded"
)

const (
	graphileName      = "graphile-worker"
	graphileVersion   = "0.18.0"
	graphileProcesses = 2
)

//go:embed graphile.mjs
var graphileScript []byte

func installGraphile(ctx context.Context) *nodePeer {
	return installNode(ctx, graphileName, graphileVersion, "graphile.mjs", graphileScript)
}

// graphileCommand returns a command of the script for graphile-worker, on a database of the run.
func graphileCommand(ctx context.Context, g *nodePeer, d *database, args ...string) *exec.Cmd {
	cmd := g.command(ctx, d.b.server.SocketDir(), embedded.Superuser, d.name, args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func graphileSystem(g *nodePeer) system {
	return system{
		name: graphileName, template: &template{"graphile", nil, func(ctx context.Context, d *database) error {
			if g.err != nil {
				return g.err
			}
			out, err := graphileCommand(ctx, g, d, "migrate").CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			// Finished jobs are deleted, so the workers record in this table how many they have
			// done.
			return errors.Join(err, d.exec(ctx, "CREATE TABLE public.ran (n int NOT NULL)"))
		}},
		fill: func(ctx context.Context, d *database, n int) error {
			return d.exec(ctx, `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(
				NULL::graphile_worker.job_spec, json_build_object('identifier', 'noop', 'payload', json_build_object('n', g)))
				FROM generate_series(0, $1 - 1) g))`, n)
		},
		open: func(ctx context.Context, d *database, _ func(int)) (session, error) { return graphileOpen(ctx, g, d) },
		none: "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)",
		done: "SELECT COALESCE(sum(n), 0)::int FROM public.ran",
	}
}

// graphileWorker is one node process.
type graphileWorker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	ran int
}

func graphileSpawn(ctx context.Context, g *nodePeer, d *database) (*graphileWorker, error) {
	w := &graphileWorker{cmd: graphileCommand(ctx, g, d, "work")}
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		w.in, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	line, err := w.out.ReadString('\n')
	if err != nil || line != "ready\n" {
		return w, fmt.Errorf("node said %q: %w", line, errors.Join(err, w.cmd.Cancel()))
	}
	return w, nil
}

// graphileOpen starts the processes. When all of them are connected, it starts their work, so
// that the start of node is not measured.
func graphileOpen(ctx context.Context, g *nodePeer, d *database) (session, error) {
	ctx, cancel := context.WithCancel(ctx)
	var workers []*graphileWorker
	for range graphileProcesses {
		w, err := graphileSpawn(ctx, g, d)
		if err != nil {
			cancel()
			return session{}, err
		}
		workers = append(workers, w)
	}
	return session{
		ready: func() error {
			for _, w := range workers {
				if _, err := io.WriteString(w.in, "go\n"); err != nil {
					return err
				}
			}
			return nil
		},
		idle: func(ctx context.Context) error {
			var wg sync.WaitGroup
			errs := make([]error, len(workers))
			for i, w := range workers {
				wg.Go(func() { _, errs[i] = fmt.Fscanf(w.out, "ran %d\n", &w.ran) })
			}
			wg.Wait()
			return errors.Join(errs...)
		},
		stop: func() error {
			defer cancel()
			for _, w := range workers {
				if err := d.exec(ctx, "INSERT INTO public.ran VALUES ($1)", w.ran); err != nil {
					return err
				}
				if err := w.cmd.Wait(); err != nil {
					return err
				}
			}
			return nil
		},
	}, nil
}
