// Command adapter runs qtop in the public comparison of PostgreSQL job queues
// (github.com/hardbyte/postgresql-job-queue-benchmarking). It is a worker host with all its loops
// and a producer in one process. The environment controls it, and its output is JSON lines.
//
// The contract is CONTRIBUTING_ADAPTERS.md of that repository. The settings are in contract.go,
// the producer is in producer.go, the output records are in sampler.go. README.md describes how
// to register the adapter there. The adapter has two scenarios: long_horizon, and migrate_only,
// which ends when the schema is installed.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/schema"
	"github.com/qtop/qtop/workerhost"
	"github.com/qtop/qtop/workerhost/handler"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "qtop adapter:", err)
		os.Exit(1) //nolint:forbidigo // exit code of main; run has stopped everything that it started
	}
}

//go:embed adapter.json
var manifestText []byte

// manifest is adapter.json, which the comparison reads before it starts the adapter.
type manifest struct {
	System      string   `json:"system"`
	EventTables []string `json:"event_tables"`
	Extensions  []string `json:"extensions"`
}

const (
	domain    = "bench"
	jobKind   = "bench"
	executor  = "bench"
	leaseTime = 30 * time.Second // as in the adapters of other systems: after that time the jobs of a killed instance can be claimed again
	grace     = 3 * time.Second  // grace time of the host; the contract allows five seconds for the whole end
)

// run runs the adapter until ctx ends.
func run(ctx context.Context, env func(string) string, in io.Reader, out io.Writer) error {
	s, err := readSettings(env)
	if err != nil {
		return err
	}
	var m manifest
	if err := json.Unmarshal(manifestText, &m); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := prepare(ctx, s.dsn, pool); err != nil {
		return err
	}
	if s.scenario == "migrate_only" {
		return nil
	}
	a := &adapter{settings: s, pool: pool, records: &records{out: out, system: m.System, instance: s.instance}, latency: newWindow(), endToEnd: newWindow()}
	if err := a.describe(m); err != nil {
		return err
	}
	return a.work(ctx, in)
}

// prepare installs the schema, the executor and the job subscription. Several instances may call
// it at once.
func prepare(ctx context.Context, dsn string, pool *pgxpool.Pool) error {
	if err := schema.Current().Up(ctx, dsn, schema.UpOptions{AdoptRoles: true}); err != nil {
		return err
	}
	for _, sql := range []string{
		"SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'bench', 'measured with wakes')::text",
		fmt.Sprintf("SELECT public.fn_dot_config_set('queue.lease.duration_seconds', '%.0f', 'bench', 'measured with kills')::text", leaseTime.Seconds()),
		"SELECT public.fn_queue_heartbeat_register('" + executor + "', 'DOT', '{}', 10, 3600, 'bench')::text",
		"SELECT public.fn_job_subscription_set('" + executor + "', NULL, NULL, 0::smallint, 1000000, true, NULL, 'bench', 'measured', false)::text",
	} {
		var answer string
		if err := pool.QueryRow(ctx, sql).Scan(&answer); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		var a struct {
			Refused bool
			Code    string
			Reason  string
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "qtop adapter:", answer)
		if a.Refused && a.Code != "unchanged" {
			return fmt.Errorf("%s: %s", sql, a.Reason)
		}
	}
	return nil
}

// adapter is one instance: a worker host and a producer.
type adapter struct {
	settings
	pool     *pgxpool.Pool
	records  *records
	producer *enqueue.Producer

	counts            counts
	latency, endToEnd *window
}

// describe writes the descriptor (which system, which version, which tables),
// the first line of the output. The comparison checks it against adapter.json.
func (a *adapter) describe(m manifest) error {
	cfg, err := pgx.ParseConfig(a.dsn)
	if err != nil {
		return err
	}
	return a.records.write(map[string]any{
		"kind": "descriptor", "system": m.System, "event_tables": m.EventTables, "extensions": m.Extensions, "version": version(),
		"schema_version": strconv.Itoa(int(schema.Latest())), "db_name": cfg.Database, "started_at": now(),
	})
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// work runs the host, the producer and the sampler until ctx ends or the host fails.
func (a *adapter) work(ctx context.Context, in io.Reader) error {
	client, err := pgclient.Open(ctx, pgclient.Options{DSN: a.dsn, Program: "qtop adapter", WorkConns: 16})
	if err != nil {
		return err
	}
	defer client.Close()
	a.producer = enqueue.New(client)
	host, err := workerhost.New(client, workerhost.Options{
		Producer: a.producer, ID: fmt.Sprintf("bench-%d", a.instance), Version: version(), Executor: executor,
		Concurrency: a.workers, Grace: grace, Handlers: map[string]handler.Handler{jobKind: handler.Func(a.handle)},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { a.produce(ctx, in) })
	parts.Go(func() { a.watchDepth(ctx) })
	parts.Go(func() { a.sample(ctx) })
	err = host.Run(ctx)
	cancel()
	parts.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// payload is the payload of a job.
type payload struct {
	Seq  int64  `json:"seq"`
	Sent int64  `json:"sent"` // just before the insert, in nanoseconds since 1970
	Fill string `json:"fill"`
}

// handle runs a job: it waits for the time that the comparison sets.
func (a *adapter) handle(ctx context.Context, job handler.Job) error {
	var p payload
	if err := json.Unmarshal(job.Payload, &p); err != nil {
		return err
	}
	sent := time.Unix(0, p.Sent)
	a.latency.add(time.Since(sent))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(a.workTime):
	}
	a.endToEnd.add(time.Since(sent))
	a.counts.completed.Add(1)
	return nil
}
