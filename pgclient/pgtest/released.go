package pgtest

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // for the fixture files
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgsession"
)

// The schema of the last release before code had a number (version 23), as `migrate sql` of that
// release printed it, and statements that put rows into each of its tables.
var (
	//go:embed testdata/before_code_numbers.sql.gz
	releasedSchema []byte
	//go:embed testdata/before_code_numbers_rows.sql
	releasedRows string
)

// Released makes a database like one of the last release before code numbers, with rows in every
// table that are at most a minute old; it is dropped at cleanup.
func Released(t testing.TB) *DB {
	t.Helper()
	c := use(t)
	name, err := c.releasedTemplate()
	if err != nil {
		t.Fatalf("pgtest: the fixture of the released schema: %v", err)
	}
	return c.create(t, "TEMPLATE "+quote(name)+" STRATEGY FILE_COPY")
}

// releasedAge is how long Released copies one template. It is shorter than the leases among the
// rows.
const releasedAge = 30 * time.Second

// released are the templates of Released.
type released struct {
	mu    sync.Mutex
	names []string // the last one is in use; others may still be copied
	made  time.Time
}

// releasedTemplate returns the name of a database for Released to copy. Making one takes twenty
// times as long as a copy, and the tests that need one run close together.
func (c *cluster) releasedTemplate() (string, error) {
	r := &c.released
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.names); n > 0 && time.Since(r.made) < releasedAge {
		return r.names[n-1], nil
	}
	name := unique("released_")
	r.names, r.made = append(r.names, name), time.Time{}
	err := c.makeReleased(context.Background(), name)
	if err == nil {
		r.made = time.Now()
	}
	return name, err
}

func (c *cluster) makeReleased(ctx context.Context, name string) error {
	if err := c.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE template0 STRATEGY FILE_COPY"); err != nil { // not from template1, which may be hostile: that release calls doubles
		return err
	}
	zip, err := gzip.NewReader(bytes.NewReader(releasedSchema))
	if err != nil {
		return err
	}
	sql, err := io.ReadAll(zip)
	if err != nil {
		return err
	}
	conn, err := pgsession.Connect(ctx, c.dsn("", name))
	if err != nil {
		return err
	}
	// The schema is installed in one transaction, for which it sets its role. Each row statement
	// has a separate transaction, because routers wait for open transactions. The membership
	// of queue_viewer is left out, because memberships belong to the whole cluster: viewers of
	// other tests would have it too, until a migration.
	schema := strings.Replace(string(sql), "GRANT pg_read_all_stats TO queue_owner, queue_viewer", "GRANT pg_read_all_stats TO queue_owner", 1)
	texts := append([]string{"BEGIN;\n" + schema + "\nCOMMIT;"}, strings.Split(releasedRows, ";\n")...)
	for _, text := range texts {
		if err := runFixture(ctx, conn, text); err != nil {
			return errors.Join(fmt.Errorf("%w\n%.200s", err, text), conn.Close(ctx))
		}
	}
	if err := conn.Close(ctx); err != nil { // a database with connections cannot be copied
		return err
	}
	return c.exec(ctx, "ALTER DATABASE "+quote(name)+" WITH ALLOW_CONNECTIONS false")
}

var until = regexp.MustCompile(`(?m)^-- until (.+)$`)

// runFixture runs a statement. If it ends with a comment "-- until CONDITION", runFixture repeats
// the statement until the SQL condition holds.
func runFixture(ctx context.Context, conn *pgx.Conn, text string) error {
	condition := until.FindStringSubmatch(text)
	for deadline := time.Now().Add(stepPatience); ; time.Sleep(20 * time.Millisecond) { // between two checks: nothing signals the end of another transaction
		if _, err := conn.PgConn().Exec(ctx, text).ReadAll(); err != nil || condition == nil {
			return err
		}
		var done bool
		if err := conn.QueryRow(ctx, "SELECT "+condition[1]).Scan(&done); err != nil || done {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("never: " + condition[1])
		}
	}
}

// Columns returns the columns of each table in schema public, except the tables that record what
// is installed.
func Columns(t testing.TB, conn *pgx.Conn) map[string][]string {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT LIKE 'qtop\_schema\_%'
		AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum`)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	out := map[string][]string{}
	var table, column string
	_, err = pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		out[table] = append(out[table], column)
		return nil
	})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return out
}

// RowSums returns a checksum of the rows of each of these tables, over these columns alone, so
// that columns of a later migration do not change it; "" for an empty table. Flags and leases are
// left out, because a release may change the defaults of flags and add leases.
func RowSums(t testing.TB, conn *pgx.Conn, columns map[string][]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for table, names := range columns {
		if table == "dot_config" || table == "dot_config_rule" || table == "dot_iu_runtime_lease" {
			continue
		}
		quoted := make([]string, len(names))
		for i, n := range names {
			quoted[i] = "x." + quote(n)
		}
		var sum string
		err := conn.QueryRow(context.Background(), "SELECT COALESCE(md5(string_agg(r::text, ',' ORDER BY r::text)), '') FROM (SELECT ROW("+
			strings.Join(quoted, ", ")+") AS r FROM public."+quote(table)+" x) y").Scan(&sum)
		if err != nil {
			t.Fatalf("pgtest: %s: %v", table, err)
		}
		out[table] = sum
	}
	return out
}
