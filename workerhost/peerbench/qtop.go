package main

// qtop as a contender: one worker host in this process, with the login of a host and one job kind
// that does nothing.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// The settings of the host, which runs all loops, as `qtop worker` does.
const (
	hostConns       = 8
	hostConcurrency = 100
)

func qtopOpen(ctx context.Context, d *database, handled func(int), name string) (session, error) {
	login := hostLogin
	if name == qtopOneName {
		login = bothLogin
	}
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: d.dsn(login), Program: "bench host", WorkConns: hostConns})
	if err != nil {
		return session{}, err
	}
	noop := func(_ context.Context, job handler.Job) error {
		var p struct {
			N int `json:"n"`
		}
		if err := json.Unmarshal(job.Payload, &p); err != nil {
			return err
		}
		handled(p.N)
		return nil
	}
	beside := enqueue.New(client)
	host, err := workerhost.New(client, workerhost.Options{
		Producer: beside, ID: "bench", Version: "bench", Executor: qtopExecutor, Concurrency: hostConcurrency, Grace: 10 * time.Second,
		Handlers: map[string]handler.Handler{"noop": handler.Func(noop)},
	})
	if err != nil {
		client.Close()
		return session{}, err
	}
	insert, end, err := qtopInsert(ctx, d, beside, name)
	if err != nil {
		client.Close()
		return session{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	return session{
		insert: insert,
		stop: func() error {
			err := end()
			cancel()
			err = errors.Join(err, <-ended)
			client.Close()
			return err
		},
	}, nil
}

// qtopInsert returns insert, which inserts as the producer that name names, and end, which ends
// that producer. beside is the producer in the host's program.
func qtopInsert(ctx context.Context, d *database, beside *enqueue.Producer, name string) (
	insert func(context.Context, int) (time.Time, error), end func() error, err error) {
	switch name {
	case qtopElsewhereName:
		other, err := openElsewhere(producerSpec{DSN: d.dsn(writerLogin), Client: true})
		if err != nil {
			return nil, nil, err
		}
		return other.insert, other.producer.stop, nil
	case qtopOneName:
		return func(ctx context.Context, n int) (time.Time, error) {
			_, _, err := beside.Enqueue(ctx, noopJob(n))
			return time.Time{}, err
		}, func() error { return nil }, nil
	}
	pool, err := d.login(ctx, writerLogin, 32, false)
	if err != nil {
		return nil, nil, err
	}
	insert = func(ctx context.Context, n int) (time.Time, error) {
		_, err := pool.Exec(ctx, oneJob, n)
		return time.Time{}, err
	}
	end = func() error {
		pool.Close()
		return nil
	}
	return insert, end, nil
}

// noopJob returns a job with the number n.
func noopJob(n int) enqueue.Job {
	return enqueue.Job{Kind: "noop", Domain: qtopDomain, Executor: "DOT", Payload: fmt.Appendf(nil, `{"n": %d}`, n)}
}
