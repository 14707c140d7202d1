// Hostile databases: see hostile.sql. The doubles are generated from the names in qtop's SQL, so
// that new names get doubles too.

package pgtest

import (
	"context"
	_ "embed" // for hostile.sql and this file
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/schema"
)

//go:embed hostile.sql
var hostileSQL string

//go:embed hostile.go
var hostileGo string

// hostilePath is the search_path of a hostile database and its logins.
const hostilePath = "evil, pg_catalog, public"

// Evil is the role that owns the doubles in a hostile database and nothing else.
const Evil = "evil"

// moduleRoot returns the directory of qtop's sources: the nearest one above the working directory
// that contains this package. A test runs in the directory of its package; the binary may have been
// built with -trimpath and then does not contain the path of its sources.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "pgclient", "pgtest", "hostile.sql")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("pgtest: the sources of qtop are not above the working directory: run the tests in the source tree")
		}
		dir = up
	}
}

// words returns all identifiers in qtop's SQL: in the installed code and in the string literals of
// its programs. The sources are megabytes, so each process reads them once.
var words = sync.OnceValues(func() ([]string, error) {
	seen := map[string]bool{}
	add := func(text string) {
		for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
			// A regular expression would take seconds for this under the race detector.
			if w = strings.TrimLeft(w, "0123456789"); len(w) > 1 {
				seen[w] = true
			}
		}
	}
	add(schema.SQL())
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"pgclient", "workerhost", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			add(string(text))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	all := make([]string, 0, len(seen))
	for w := range seen {
		all = append(all, w)
	}
	slices.Sort(all)
	return all, nil
})

// plant makes the doubles in the database of this connection, which must be a superuser's.
func plant(ctx context.Context, conn *pgx.Conn) error {
	all, err := words()
	if err != nil {
		return err
	}
	if err := run(ctx, conn, hostileSQL); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT evil.plant($1::text[])", all); err != nil {
		return err
	}
	if err := plantRelations(ctx, conn); err != nil {
		return err
	}
	for _, schema := range []string{"evil", "public"} {
		// A name that is also a type is not doubled here: a call of the name is a cast.
		if err := double(ctx, conn, schema, `p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ($1::text[])
			AND p.proname NOT IN (SELECT typname FROM pg_type)`, all); err != nil {
			return err
		}
	}
	return nil
}

// plantRelations makes doubles of the existing tables and views.
func plantRelations(ctx context.Context, conn *pgx.Conn) error {
	all, err := words()
	if err != nil {
		return err
	}
	if err := run(ctx, conn, "SET ROLE "+Evil); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT evil.plant_relations($1::text[])", all)
	return err
}

// likes are groups of types of which PostgreSQL may choose one for another when it resolves an
// overloaded function, because it converts them implicitly or prefers one of them.
var likes = [][]string{
	{"text", "character varying", "name", `"char"`, "character", "json", "double precision"},
	{"integer", "bigint", "double precision", "numeric", "smallint", "text"},
	{"timestamp with time zone", "timestamp without time zone", "date", "interval", "text"},
	{"jsonb", "json", "text"},
	{"oid", "regclass", "regprocedure", "regnamespace", "regrole", "text"},
	{"anyelement", "text", "integer", "bigint", "numeric", "timestamp with time zone", "jsonb", "uuid", "boolean", "regclass"},
	{"anyarray", "text[]", "integer[]", "bigint[]", "uuid[]", "jsonb[]", "name[]", "oid[]"},
	{"boolean", "text"}, {"uuid", "text"}, {"bytea", "text"},
}

var polymorphic = map[string]string{
	"anynonarray": "anyelement", "anycompatible": "anyelement", "anycompatiblenonarray": "anyelement", `"any"`: "anyelement",
	"anycompatiblearray": "anyarray",
}

func others(kind string) []string {
	if p, ok := polymorphic[kind]; ok {
		kind = p
	}
	for _, group := range likes {
		if at := slices.Index(group, kind); at >= 0 {
			return append([]string{kind}, slices.Delete(slices.Clone(group), at, at+1)...)
		}
	}
	return []string{kind}
}

// signatures returns the argument lists of the doubles of a function: the same list; lists in which
// one argument or all have another type; shorter lists if some arguments have defaults; a single
// default argument by its name; and any number of arguments.
func signatures(types, names []string, defaults int) (out [][]string) {
	name := func(i int) string {
		if i < len(names) && names[i] != "" {
			return quote(names[i])
		}
		return fmt.Sprint("a", i+1)
	}
	add := func(types ...string) {
		args := make([]string, len(types))
		for i, kind := range types {
			args[i] = name(i) + " " + kind
		}
		out = append(out, args)
	}
	for n := len(types) - defaults; n <= len(types); n++ {
		var first, second []string
		for i, kind := range types[:n] {
			all := others(kind)
			first, second = append(first, all[0]), append(second, all[min(1, len(all)-1)])
			for _, other := range all[1:] {
				one := slices.Clone(types[:n])
				one[i] = other
				add(one...)
			}
		}
		add(first...)
		add(second...)
	}
	for i := len(types) - defaults; i < len(types); i++ {
		for _, kind := range others(types[i]) {
			out = append(out, []string{name(i) + " " + kind})
		}
	}
	if len(types) > 0 {
		out = append(out, []string{"VARIADIC a1 text[]"}, []string{"VARIADIC a1 anyarray"}, []string{"a1 " + types[0], "VARIADIC a2 text[]"})
	}
	if len(types) > 0 && types[len(types)-1] == `"any"` { // pairs of arguments of any type, any number of them
		for _, l := range []string{"text", "character varying", "integer", "jsonb", "uuid"} {
			for _, r := range []string{"text", "character varying", "integer", "bigint", "jsonb", "timestamp with time zone", "uuid"} {
				out = append(out, []string{"a1 " + l, "a2 " + r})
			}
		}
	}
	return out
}

// double makes doubles, in a schema, of the functions that fulfil the condition. It skips doubles
// that exist already and those that PostgreSQL refuses to create.
func double(ctx context.Context, conn *pgx.Conn, schema, condition string, args ...any) error {
	rows, err := conn.Query(ctx, `SELECT p.proname::text, p.pronargdefaults::int, ARRAY(SELECT format_type(a, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY x (a, n) ORDER BY n),
		COALESCE((SELECT array_agg(a ORDER BY n) FROM unnest(p.proargnames) WITH ORDINALITY x (a, n)
			WHERE p.proargmodes IS NULL OR p.proargmodes[n] IN ('i', 'b', 'v')), '{}'),
		CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || CASE WHEN t.typtype = 'p' AND t.typname <> 'void' THEN 'text' ELSE format_type(t.oid, NULL) END
		FROM pg_proc p JOIN pg_type t ON t.oid = p.prorettype
		WHERE t.typname NOT IN ('trigger', 'event_trigger', 'internal') AND `+condition+` ORDER BY p.proname, p.pronargs DESC`, args...)
	if err != nil {
		return err
	}
	var name, returns string
	var types, names []string
	var defaults int
	var sql strings.Builder
	seen := map[string]bool{}
	_, err = pgx.ForEachRow(rows, []any{&name, &defaults, &types, &names, &returns}, func() error {
		for _, signature := range signatures(types, names, defaults) {
			list := strings.Join(signature, ", ")
			if slices.ContainsFunc(signature, forbidden) || seen[name+list] {
				continue
			}
			seen[name+list] = true
			end := "RETURN NULL;"
			if strings.HasPrefix(returns, "SETOF ") || returns == "void" {
				end = "RETURN;"
			}
			what := strings.ReplaceAll(schema+"."+name+"("+list+")", "'", "''")
			fmt.Fprintf(&sql, `BEGIN CREATE FUNCTION %s.%s(%s) RETURNS %s LANGUAGE plpgsql AS $x$BEGIN RAISE LOG '%s%% %%', pg_catalog.current_database(), '%s'; %s END$x$; EXCEPTION WHEN OTHERS THEN NULL; END;`+"\n",
				schema, quote(name), list, returns, hostileMark, what, end)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(seen) < 1000 {
		return fmt.Errorf("only %d doubles of functions", len(seen))
	}
	return run(ctx, conn, "SET ROLE "+Evil+"; DO $do$BEGIN SET LOCAL check_function_bodies = off;\n"+sql.String()+"END$do$")
}

// forbidden reports whether PL/pgSQL functions cannot have an argument of this type.
func forbidden(argument string) bool {
	kind := strings.TrimSuffix(argument[strings.LastIndexByte(argument, ' ')+1:], "[]")
	return slices.Contains([]string{"internal", "cstring", "record", "anyenum"}, kind)
}

// Hostile makes the database of a test a hostile one: every name in qtop's SQL gets doubles in
// schema public and in schema evil, which is first in the search_path of the database and of logins
// that are made later.
func Hostile(t testing.TB, d *DB) {
	t.Helper()
	if d.Server == nil {
		t.Skip("NOT CHECKED: the log of a server that is given cannot be read")
	}
	if HostilePass() { // the database is hostile already, except for tables that were made since
		d.asSuperuser(t, plantRelations)
		return
	}
	d.asSuperuser(t, plant)
	if err := d.setPath(context.Background()); err != nil {
		t.Fatalf("pgtest: the hostile world: %v", err)
	}
}

// HostileOverloads makes doubles of qtop's functions in schema public too, so that a call whose
// arguments do not have exactly the declared types calls a double.
func HostileOverloads(t testing.TB, d *DB) {
	t.Helper()
	d.asSuperuser(t, func(ctx context.Context, conn *pgx.Conn) error {
		return double(ctx, conn, "public", "p.pronamespace = 'public'::regnamespace AND p.proowner = 'queue_owner'::regrole")
	})
}

func (d *DB) asSuperuser(t testing.TB, do func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx := context.Background()
	conn := d.Conn(t, "")
	_, err := conn.Exec(ctx, "SET statement_timeout = 0") // on a busy machine, hundreds of doubles take minutes
	if err := errors.Join(err, do(ctx, conn), conn.Close(ctx)); err != nil {
		t.Fatalf("pgtest: the hostile world: %v", err)
	}
}

// setPath sets the search_path of the database and makes Login set it for later logins.
func (d *DB) setPath(ctx context.Context) error {
	d.hostile.Store(true)
	return d.cluster.exec(ctx, "ALTER DATABASE "+quote(d.Name)+" SET search_path = "+hostilePath)
}

// Calls returns the doubles that were called in the database so far, each once.
func (d *DB) Calls(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile(d.Server.LogFile())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return calls(string(text), d.Name)
}

const hostileMark = "qtop-hostile "

// pgCron begins the second line after a call by pg_cron itself, which records its runs with operators by
// their bare names.
const pgCron = "\tSQL statement \"update cron.job_run_details"

// calls returns the doubles that were called in a database, from the server's log; "" means any
// database.
func calls(log, database string) []string {
	var out []string
	lines := strings.Split(log, "\n")
	for i, line := range lines {
		at := strings.Index(line, "LOG:  "+hostileMark)
		if at < 0 || i+2 < len(lines) && strings.HasPrefix(lines[i+2], pgCron) {
			continue
		}
		where, what, _ := strings.Cut(line[at+len("LOG:  "+hostileMark):], " ")
		if database == "" {
			what = where + ": " + what
		}
		if (database == "" || where == database) && !slices.Contains(out, what) {
			out = append(out, what)
		}
	}
	slices.Sort(out)
	return out
}
