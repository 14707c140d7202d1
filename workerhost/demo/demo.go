// Package demo makes the traffic and the incident of `qtop demo`: HTTP receivers that work or
// fail in different ways, producers and executors with ordinary logins, and one executor that has
// been silent for 95 hours. Start from Demo: Prepare fills the database, Start begins the traffic,
// Stop ends it. The console gets no data except the tables of the database.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/pgsession"
)

// Database is the demo's database in the embedded server.
const Database = "qtop"

// Demo makes the traffic of the demo: it runs receivers, producers and executors.
type Demo struct {
	dsn       func(user string) string
	log       *slog.Logger
	receivers []*receiver
	wg        sync.WaitGroup
	stop      context.CancelFunc
}

// New returns a Demo. dsn returns the connection string for a login.
func New(dsn func(user string) string, log *slog.Logger) *Demo {
	return &Demo{dsn: dsn, log: log}
}

// Prepare makes logins, flags, webhook subscriptions, executors and the incident in a migrated
// database. In the database of an earlier demo it makes no incident. superuser is the connection
// string of the owner of the database.
func (d *Demo) Prepare(ctx context.Context, superuser string) error {
	conn, err := pgsession.Connect(ctx, superuser)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if d.receivers, err = openReceivers(ctx); err != nil {
		return err
	}
	var again bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM public.queue_heartbeat WHERE executor_id = $1)", Executor).Scan(&again); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	subscriptions := func(ctx context.Context, conn *pgx.Conn) error { return subscribe(ctx, conn, d.receivers) }
	steps := []func(context.Context, *pgx.Conn) error{logins, flags, subscriptions, executors, jobExecutors}
	if !again {
		steps = append(steps, incident)
	}
	for _, step := range steps {
		if err := step(ctx, conn); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	return nil
}

// Start starts producers and executors, which run until Stop.
func (d *Demo) Start(ctx context.Context) error {
	ctx, d.stop = context.WithCancel(ctx)
	for _, p := range []struct {
		user string
		run  func(context.Context, *pgxpool.Pool) error
	}{{Producer, produce}, {Producer, enqueue}, {Producer, imports}, {HostUser, heartbeat}} {
		cfg, err := pgsession.PoolConfig(d.dsn(p.user))
		if err != nil {
			return err
		}
		cfg.MaxConns = 2
		pgsession.Set(cfg.ConnConfig, pgsession.Setting{Name: "application_name", Value: p.user})
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		d.wg.Go(func() {
			defer pool.Close()
			d.keep(ctx, func() error { return p.run(ctx, pool) })
		})
	}
	return nil
}

// keep calls f again after each error until ctx ends, because the database may
// have been unavailable for a while.
func (d *Demo) keep(ctx context.Context, f func() error) {
	for ctx.Err() == nil {
		if err := f(); err != nil && ctx.Err() == nil {
			d.log.Info("demo traffic pauses", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Stop ends the traffic and the receivers.
func (d *Demo) Stop() {
	if d.stop != nil {
		d.stop()
	}
	d.wg.Wait()
	for _, r := range d.receivers {
		r.close()
	}
}

// Flowing waits until the first webhook has been delivered, in this process or another, which may still
// be making the database and the login. viewer is the connection string to use.
func Flowing(ctx context.Context, viewer string) error {
	for {
		n, err := delivered(ctx, viewer)
		if n > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("demo: no webhook was delivered in time: %w", err)
			}
			return errors.New("demo: no webhook was delivered in time")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// delivered returns how many webhooks were delivered in the last minutes.
func delivered(ctx context.Context, viewer string) (n int64, err error) {
	conn, err := pgsession.Connect(ctx, viewer)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT COALESCE(sum(n), 0)::bigint FROM public.v_queue_counter WHERE scope = 'delivered_1m'").Scan(&n)
	return n, err
}
