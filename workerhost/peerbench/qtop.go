package main

// qtop as a contender: one worker host in this process, with a host's login, whose one job kind
// does nothing.

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

// The settings of a host; its loops are those that a job queue needs.
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
		Loops:    []string{"job_executor", "job_queue_default", "lease_reaper", "counter_compactor"},
		Handlers: map[string]handler.Handler{"noop": handler.Func(noop)},
	})
	if err != nil {
		client.Close()
		return session{}, err
	}
	writer, err := pgclient.Open(ctx, pgclient.Options{DSN: d.dsn(writerLogin), Program: "bench producer", WorkConns: 32})
	if err != nil {
		client.Close()
		return session{}, err
	}
	apart := enqueue.New(writer)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- host.Run(ctx) }()
	return session{
		insert: func(ctx context.Context, n int) error {
			by := apart
			switch name {
			case qtopName:
				_, err := writer.Work().Exec(ctx, oneJob, n)
				return err
			case qtopOneName:
				by = beside
			}
			_, _, err := by.Enqueue(ctx, enqueue.Job{
				Kind: "noop", Domain: qtopDomain, Executor: "DOT", Payload: fmt.Appendf(nil, `{"n": %d}`, n),
			})
			return err
		},
		stop: func() error {
			cancel()
			err := <-ended
			writer.Close()
			client.Close()
			return err
		},
	}, nil
}
