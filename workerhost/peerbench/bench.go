package main

// The server of the run and its databases. Each measurement has a new database, cloned from a
// template, so that no round has the dead rows of an earlier round.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/embedded"
)

// bench is one run of the program.
type bench struct {
	server       *embedded.Server
	admin        *pgxpool.Pool
	rounds       int
	quick, large bool
	progress     io.Writer

	part      string // the name of the current part
	databases int
	templates map[string]bool
	graphile  *nodePeer
	wrong     []string
}

// params keep the server durable and prevent checkpoints during a measurement; each measurement
// starts after a checkpoint.
func params() map[string]string {
	return map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on",
		"shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "30min",
	}
}

func (b *bench) start(ctx context.Context) (err error) {
	p := maps.Clone(params())
	b.server, err = embedded.Start(ctx, embedded.Options{Params: p, Notice: func(line string) { b.say("%s", line) }})
	if err != nil {
		return err
	}
	if b.admin, err = pgxpool.New(ctx, b.server.DSN(embedded.Superuser, "postgres")); err != nil {
		return errors.Join(err, b.stop())
	}
	b.templates = map[string]bool{}
	return nil
}

func (b *bench) stop() error {
	if b.admin != nil {
		b.admin.Close()
	}
	b.graphile.remove()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return b.server.Stop(ctx)
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.progress, format+"\n", args...) }

// scale returns the size of a part: quick with -quick, otherwise full.
func (b *bench) scale(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// database is one database of the run and a superuser's connection pool for it.
type database struct {
	name string
	pool *pgxpool.Pool
	b    *bench
}

func (d *database) dsn(user string) string { return d.b.server.DSN(user, d.name) }

// template is a database that is made when it is first needed and then cloned.
type template struct {
	name    string
	base    *template // nil = an empty database
	prepare func(ctx context.Context, d *database) error
}

// fresh returns a new database, cloned from the template.
func (b *bench) fresh(ctx context.Context, t *template) (*database, error) {
	from, err := b.ready(ctx, t)
	if err != nil {
		return nil, err
	}
	b.databases++
	return b.create(ctx, fmt.Sprintf("b%d_%s", b.databases, t.name), from)
}

// fed returns a contender (a participant of the measurement) that gets a new
// database, cloned from t, for each measurement.
func (b *bench) fed(name string, t *template, run func(ctx context.Context, d *database, put put) error) contender {
	return contender{name, func(ctx context.Context, put put) error {
		d, err := b.fresh(ctx, t)
		if err != nil {
			return err
		}
		defer d.drop()
		return run(ctx, d, put)
	}}
}

func (b *bench) ready(ctx context.Context, t *template) (name string, err error) {
	if t == nil {
		return "template0", nil
	}
	name = "tpl_" + t.name
	if b.templates[name] {
		return name, nil
	}
	from, err := b.ready(ctx, t.base)
	if err != nil {
		return "", err
	}
	d, err := b.create(ctx, name, from)
	if err == nil {
		err = t.prepare(ctx, d)
		d.pool.Close()
	}
	if err != nil {
		return "", fmt.Errorf("preparing %s: %w", t.name, err)
	}
	b.templates[name] = true
	return name, nil
}

func (b *bench) create(ctx context.Context, name, from string) (*database, error) {
	sql := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", pgx.Identifier{name}.Sanitize(), pgx.Identifier{from}.Sanitize())
	if _, err := b.admin.Exec(ctx, sql); err != nil {
		return nil, err
	}
	d := &database{name: name, b: b}
	cfg, err := pgxpool.ParseConfig(d.dsn(embedded.Superuser))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 40
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, err
	}
	return d, d.own(ctx)
}

// own adopts the database: it is a copy of a template, and qtop claims no work
// in a copy (clone) that was not adopted.
func (d *database) own(ctx context.Context) error {
	var installed bool
	err := d.pool.QueryRow(ctx, "SELECT to_regclass('public.queue_identity') IS NOT NULL").Scan(&installed)
	if err == nil && installed {
		_, err = d.pool.Exec(ctx, "SELECT public.fn_queue_adopt('keep'::text, $1::text, 'peerbench'::text, 'a copy of the template'::text, false)", d.name)
	}
	if err != nil {
		d.pool.Close()
	}
	return err
}

// login returns a connection pool for a login that is no superuser. silent switches the trigger's
// wake signal off in the sessions of the pool.
func (d *database) login(ctx context.Context, user string, conns int, silent bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(d.dsn(user))
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = int32(conns), int32(conns)
	if silent {
		cfg.ConnConfig.RuntimeParams["qtop.doorbell"] = "on"
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// drop ends the sessions of the database and removes it.
func (d *database) drop() {
	d.pool.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := d.b.admin.Exec(ctx, "DROP DATABASE "+pgx.Identifier{d.name}.Sanitize()+" WITH (FORCE)"); err != nil {
		d.b.say("dropping %s: %v", d.name, err)
	}
}

func (d *database) exec(ctx context.Context, sql string, args ...any) error {
	_, err := d.pool.Exec(ctx, sql, args...)
	return err
}

// settle gives all contenders the same start: new statistics, hint bits set, and no dirty pages
// from filling.
func (d *database) settle(ctx context.Context) error {
	if err := d.exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return err
	}
	return d.exec(ctx, "CHECKPOINT")
}

// count returns the result of a statement that counts.
func (d *database) count(ctx context.Context, sql string) (n int, err error) {
	err = d.pool.QueryRow(ctx, sql).Scan(&n)
	return n, err
}

// expect compares a count with want. If not all jobs were done, the measured
// rate means nothing, so it returns an error.
func (d *database) expect(ctx context.Context, want int, sql string) error {
	got, err := d.count(ctx, sql)
	if err == nil && got != want {
		err = fmt.Errorf("the database has %d rows where %d were expected, by %s", got, want, sql)
	}
	return err
}

// until runs a statement again and again until it returns true.
func (d *database) until(ctx context.Context, sql string) error {
	for {
		var yes bool
		if err := d.pool.QueryRow(ctx, sql).Scan(&yes); err != nil || yes {
			return err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for %s: %w", sql, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
