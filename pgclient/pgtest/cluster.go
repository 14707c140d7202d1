// The one cluster of this test process: started at the first use, stopped by Main.

package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
)

const (
	startPatience = 5 * time.Minute // includes a download of PostgreSQL, or waiting for another process that downloads it
	stepPatience  = time.Minute     // one administrative statement on a loaded machine
)

// cluster is the server that holds the databases of the tests.
type cluster struct {
	server   *embedded.Server // nil for a server named by QTOP_TEST_DSN
	given    *url.URL         // the DSN of that server
	admin    *pgxpool.Pool
	template string
	password string   // the password of every role that Login makes; only a server named by QTOP_TEST_DSN asks for it
	owners   sync.Map // maps a database to the name of its test
	released released
}

// shared returns the cluster of this process. It is a global because no other object of a test
// process outlives its tests; a cluster per test would take ten times as long.
var shared = sync.OnceValues(func() (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	c, err := open(ctx)
	if err == nil {
		running.set(c)
	}
	return c, err
})

// running returns the cluster without starting one, so that Main can stop it.
var running holder

type holder struct {
	mu sync.Mutex
	c  *cluster
}

func (h *holder) set(c *cluster) {
	h.mu.Lock()
	h.c = c
	h.mu.Unlock()
}

func (h *holder) take() *cluster {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.c
	h.c = nil
	return c
}

func open(ctx context.Context) (*cluster, error) {
	c := &cluster{password: unique(""), template: templateName(time.Now())}
	if dsn := os.Getenv("QTOP_TEST_DSN"); dsn != "" {
		u, err := url.Parse(dsn)
		if err != nil || u.Scheme == "" {
			return nil, errors.New("QTOP_TEST_DSN must be a postgres:// URL of a superuser")
		}
		c.given = u
	} else {
		seed, err := readySeed(ctx, c.template)
		if err != nil {
			return nil, err
		}
		c.server, err = embedded.Start(ctx, embedded.Options{Test: true, Major: major(), Seed: seed, Params: hostileParams(nil), Notice: say})
		if err != nil {
			return nil, err
		}
	}
	config, err := pgsession.PoolConfig(c.dsn("", ""))
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	config.MaxConns = 8
	if c.admin, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.given != nil {
		if err := c.ensureTemplate(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("QTOP_TEST_DSN: %w", err), c.close())
		}
	}
	return c, nil
}

// owner returns the name of the test for which a database was made.
func (c *cluster) owner(database string) string {
	name, _ := c.owners.Load(database)
	text, _ := name.(string)
	return text
}

func (c *cluster) close() error {
	var dropped error
	if c.server == nil { // a server that is given stays
		for _, name := range c.released.names {
			dropped = errors.Join(dropped, c.exec(context.Background(), "DROP DATABASE IF EXISTS "+quote(name)))
		}
	}
	if c.admin != nil {
		c.admin.Close()
	}
	if c.server == nil {
		return dropped
	}
	ctx, cancel := context.WithTimeout(context.Background(), stepPatience)
	defer cancel()
	return c.server.Stop(ctx)
}

// dsn returns a connection string. An empty user means the superuser; an empty database means the
// superuser's.
func (c *cluster) dsn(user, database string) string {
	if c.given == nil {
		if user == "" {
			user = embedded.Superuser
		}
		if database == "" {
			database = "postgres"
		}
		return c.server.DSN(user, database)
	}
	u := *c.given
	if user != "" {
		u.User = url.UserPassword(user, c.password)
	}
	if database != "" {
		u.Path = "/" + database
	}
	return u.String()
}

// exec runs one administrative statement.
func (c *cluster) exec(ctx context.Context, sql string) error {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	_, err := c.admin.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// major is the PostgreSQL version under test, from QTOP_TEST_PG; 0 = any. If the variable has a
// list of versions, the Makefile runs the tests once per version.
func major() int {
	first, _, _ := strings.Cut(os.Getenv("QTOP_TEST_PG"), ",")
	n, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return 0
	}
	return n
}

// unique returns a name that no other test process uses, valid as an SQL identifier.
func unique(prefix string) string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// say prints an important step, such as a download, to the output of the tests.
func say(line string) { fmt.Fprintln(os.Stderr, "pgtest:", line) }

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
