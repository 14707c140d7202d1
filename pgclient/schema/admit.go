package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// querier is a connection, a pool's connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// bookThere tells whether a table exists in which an installation keeps its books. It refuses one of somebody who
// could not have installed qtop, and anything that is no table: a view, a trigger, a default or a policy of theirs would
// run with the rights of whoever reads or migrates. Ask it before the first read or write.
func bookThere(ctx context.Context, q querier, table string) (bool, error) {
	var who string
	var trusted bool
	err := q.QueryRow(ctx, `SELECT o.rolname::text, c.relkind = 'r' AND (o.rolsuper OR o.rolcreaterole OR o.rolname = current_user OR o.oid = d.datdba
			OR NOT o.rolcanlogin AND o.rolname::text ~ ('^[a-z0-9_]*' || $2::text || '$'))
		FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner JOIN pg_database d ON d.datname = current_database()
		WHERE c.oid = to_regclass($1::text)`, table, owner).Scan(&who, &trusted)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil && !trusted {
		err = refuse(fmt.Sprintf("%s is not qtop's: it is no table, or belongs to %s, who could not have installed qtop", table, who), "schema public",
			"nothing was read or changed; look at who made it, then drop it, or give it to the owner of the database")
	}
	return err == nil, err
}

// version reads the installed version; 0 = nothing is installed.
func version(ctx context.Context, q querier) (v int32, err error) {
	there, err := bookThere(ctx, q, versionTable)
	if err == nil && there {
		err = q.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&v)
	}
	return v, err
}

// installedCode is the row of qtop_schema_code; Code 0 = none: the schema comes
// from before code had a number, or nothing is installed.
type installedCode struct {
	Code, Serves int
	Hash, Seeds  string
	Form         string // of the hashes that were recorded with it
}

func readCode(ctx context.Context, q querier) (c installedCode, err error) {
	there, err := bookThere(ctx, q, "public.qtop_schema_code")
	if err != nil || !there {
		return c, err
	}
	err = q.QueryRow(ctx, "SELECT code, serves, hash, seeds, recorded_form FROM public.qtop_schema_code").
		Scan(&c.Code, &c.Serves, &c.Hash, &c.Seeds, &c.Form)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return c, err
}

// admit refuses a database that Up must not touch, before anything of ours is
// made in it.
func (r *Release) admit(ctx context.Context, q querier) (from int32, err error) {
	if from, err = version(ctx, q); err != nil {
		return 0, err
	}
	if from > r.Version() {
		return 0, refuse(fmt.Sprintf("the schema is at version %d, this qtop knows %d", from, r.Version()), versionTable, "use a newer qtop")
	}
	code, err := readCode(ctx, q)
	if err != nil {
		return 0, err
	}
	if code.Code > r.Code {
		return 0, refuse(fmt.Sprintf("code %d is installed, this qtop carries the older code %d", code.Code, r.Code),
			"public.qtop_schema_code", "use the qtop that installed it, or a newer one")
	}
	return from, r.refuseForeign(ctx, q, from)
}

var createRelation = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:TABLE|VIEW) public\.([a-z0-9_]+)`)

// refuseForeign finds tables and views of the pending migrations that exist already: a
// foreign events or subscriptions table is nobody's to overwrite.
func (r *Release) refuseForeign(ctx context.Context, q querier, from int32) error {
	var names []string
	for _, m := range r.migrations[from:] {
		for _, hit := range createRelation.FindAllStringSubmatch(m.up, -1) {
			names = append(names, hit[1])
		}
	}
	if from == 0 {
		for _, o := range r.objects {
			if o.kind == view {
				names = append(names, o.name)
			}
		}
	}
	found, err := pgrow.Column[string](ctx, q, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY ($1) ORDER BY 1`, names)
	if err != nil || len(found) == 0 {
		return err
	}
	return refuse("tables that qtop would make exist already and are not its own: "+strings.Join(found, ", "), "schema public",
		"nothing was changed; use another database, or move them away")
}
