// Ready data directories: each is made once per PostgreSQL version and schema, kept in the cache,
// and copied at the start of every test process.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
)

// seedFormat is part of the name of a ready data directory; change it if the way of making one
// changes.
const seedFormat = "1"

// Unused ready data directories (about 35 MB each) are removed after seedKeep. While somebody works
// on the schema, new ones appear often: all but the latest seedCount are removed after seedBusy,
// which is longer than any test process takes to copy one.
const (
	seedKeep  = 7 * 24 * time.Hour
	seedCount = 8
	seedBusy  = 15 * time.Minute
)

// templateName returns the name of the template database. It contains a hash of the schema and the
// day, because an installation makes partitions for the days and months that follow it.
func templateName(now time.Time) string {
	return "qtop_template_" + schemaHash() + "_" + now.UTC().Format("20060102")
}

// readySeed returns the base directory of a stopped cluster that holds the template database; for
// an empty name, of a cluster without one. If the cache has none, readySeed makes one.
func readySeed(ctx context.Context, template string) (string, error) {
	bin, err := embedded.Locate(ctx, major(), say)
	if err != nil {
		return "", err
	}
	home, err := seedHome()
	if err != nil {
		return "", err
	}
	seed := filepath.Join(home, "pg"+bin.Version+"-v"+seedFormat)
	if HostilePass() {
		hash, err := hostileHash()
		if err != nil {
			return "", err
		}
		seed += "-hostile-" + hash
	}
	o := embedded.Options{Test: true, Major: bin.Major, Notice: say, Wipe: true}
	if template != "" {
		if o.Seed, err = readySeed(ctx, ""); err != nil {
			return "", err
		}
		seed += "-" + template
	}
	if markUsed(seed) {
		return seed, nil
	}
	// The test processes of several packages start together; one of them makes the directory, the
	// others wait.
	unlock, err := embedded.Exclusive(ctx, filepath.Join(home, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if markUsed(seed) {
		return seed, nil
	}
	sweepSeeds(home)
	o.Dir = filepath.Join(home, "making")
	if err := makeSeed(ctx, o, template); err != nil {
		return "", fmt.Errorf("making a ready test cluster: %w", err)
	}
	return seed, os.Rename(o.Dir, seed)
}

func makeSeed(ctx context.Context, o embedded.Options, template string) error {
	s, err := embedded.Start(ctx, o)
	if err != nil {
		return err
	}
	if template != "" {
		dsn := func(db string) string { return s.DSN(embedded.Superuser, db) }
		err = makeTemplate(ctx, dsn, template)
	} else if HostilePass() {
		err = plantServer(ctx, s)
	}
	return errors.Join(err, calledOn(s, func(database string) string { return database }), s.Stop(ctx))
}

// makeTemplate creates the template database and forbids connections to it: a database with
// connections cannot be cloned.
func makeTemplate(ctx context.Context, dsn func(db string) string, name string) error {
	conn, err := pgsession.Connect(ctx, dsn(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	steps := []func() error{
		func() error { return run(ctx, conn, "CREATE DATABASE "+quote(name)) },
		func() error { return schemaUp(ctx, dsn(name), func(string) {}) },
		func() error { return shadowTables(ctx, dsn(name)) },
		func() error { return run(ctx, conn, "ALTER DATABASE "+quote(name)+" WITH ALLOW_CONNECTIONS false") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// ensureTemplate makes the template on a server named by QTOP_TEST_DSN, where other test processes
// may be about to do the same. A template that still allows connections is incomplete, and is made
// again.
func (c *cluster) ensureTemplate(ctx context.Context) error {
	conn, err := c.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const lockKey = 0x71746f70 // the bytes of "qtop"
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(lockKey)); err != nil {
		return err
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(lockKey)) }()
	var open bool
	err = conn.QueryRow(ctx, "SELECT datallowconn FROM pg_database WHERE datname = $1", c.template).Scan(&open)
	switch {
	case err == nil && !open:
		return nil
	case err == nil:
		if err := run(ctx, conn.Conn(), "DROP DATABASE "+quote(c.template)+" WITH (FORCE)"); err != nil {
			return err
		}
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	return makeTemplate(ctx, func(db string) string { return c.dsn("", db) }, c.template)
}

// seedHome is the folder of the ready data directories. The server's user must
// be able to pass through it, whatever the umask.
func seedHome() (string, error) {
	cache, err := embedded.CacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "pgtest")
	if err := os.Mkdir(home, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return home, os.Chmod(home, 0o711)
}

// markUsed reports whether a ready data directory exists, and sets its time so that sweepSeeds does
// not remove it.
func markUsed(seed string) bool {
	now := time.Now()
	return os.Chtimes(seed, now, now) == nil
}

// sweepSeeds removes ready data directories that have not been used for long.
func sweepSeeds(home string) {
	entries, err := os.ReadDir(home)
	if err != nil {
		return
	}
	var seeds []os.FileInfo
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.IsDir() {
			seeds = append(seeds, fi)
		}
	}
	slices.SortFunc(seeds, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, fi := range seeds {
		unused := time.Since(fi.ModTime())
		if unused > seedKeep || i >= seedCount && unused > seedBusy {
			_ = os.RemoveAll(filepath.Join(home, fi.Name()))
		}
	}
}
