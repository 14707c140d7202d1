package main

// River with the settings of River's benchmark.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverName          = "River"
	riverElsewhereName = "River, producer elsewhere" // the producer is another process
)

// riverNoop is a job that does nothing.
type riverNoop struct {
	N int `json:"n"`
}

func (riverNoop) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverNoop]
	handle func(ctx context.Context, n int) error
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverNoop]) error {
	return w.handle(ctx, job.Args.N)
}

// riverSystem returns River with a producer in the worker's program or in another process, as
// name says.
func riverSystem(name string) system {
	return system{
		name: name, template: &template{"river", nil, func(ctx context.Context, d *database) error {
			m, err := rivermigrate.New(riverpgxv5.New(d.pool), nil)
			if err == nil {
				_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			}
			return err
		}},
		fill: riverFill,
		open: func(ctx context.Context, d *database, handled func(int)) (session, error) {
			return riverOpen(ctx, d, handled, name == riverElsewhereName)
		},
		none: "SELECT NOT EXISTS (SELECT FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled'))",
		done: "SELECT count(*)::int FROM river_job WHERE state = 'completed'",
	}
}

// riverWorkers is how many jobs run at once in River's benchmark.
const riverWorkers = 2000

// riverClient returns a client that only inserts or, if handle is not nil, a client that runs up
// to workers jobs at once. The jobs of a killed client are run again after leaseSeconds.
func riverClient(pool *pgxpool.Pool, handle func(ctx context.Context, n int) error, workers int) (*river.Client[pgx.Tx], error) {
	cfg := &river.Config{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		// the cooldown is also the least time between two notifications of a client that only inserts
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
	}
	if handle != nil {
		cfg.Workers = river.NewWorkers()
		river.AddWorker(cfg.Workers, &riverWorker{handle: handle})
		cfg.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}
		cfg.JobTimeout, cfg.RescueStuckJobsAfter = leaseSeconds*time.Second, leaseSeconds*time.Second
	}
	return river.NewClient(riverpgxv5.New(pool), cfg)
}

func riverFill(ctx context.Context, d *database, n int) error {
	client, err := riverClient(d.pool, nil, 0)
	if err != nil {
		return err
	}
	for at := 0; at < n; at += fillBatch {
		var jobs []river.InsertManyParams
		for i := at; i < min(n, at+fillBatch); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: riverNoop{i}})
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// fillBatch is how many jobs are inserted with one call.
const fillBatch = 5000

func riverOpen(ctx context.Context, d *database, handled func(n int), apart bool) (session, error) {
	client, err := riverClient(d.pool, func(_ context.Context, n int) error {
		handled(n)
		return nil
	}, riverWorkers)
	if err != nil {
		return session{}, err
	}
	if err := client.Start(ctx); err != nil {
		return session{}, err
	}
	insert := func(ctx context.Context, n int) (time.Time, error) {
		_, err := client.Insert(ctx, riverNoop{n}, nil)
		return time.Time{}, err
	}
	var other *elsewhere
	if apart {
		if other, err = openElsewhere(producerSpec{DSN: d.dsn("postgres"), River: true}); err != nil {
			return session{}, errors.Join(err, client.Stop(ctx))
		}
		insert = other.insert
	}
	return session{
		insert: insert,
		stop: func() error {
			var ended error
			if other != nil {
				ended = other.producer.stop()
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return errors.Join(ended, client.Stop(ctx))
		},
	}, nil
}
