package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// querier is a connection, a pool's connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// version reads the installed version; 0 = nothing is installed.
func version(ctx context.Context, q querier) (v int32, err error) {
	var there bool
	if err = q.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", versionTable).Scan(&there); err == nil && there {
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
	var there bool
	err = q.QueryRow(ctx, "SELECT to_regclass('public.qtop_schema_code') IS NOT NULL").Scan(&there)
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
	rows, err := q.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relname = ANY ($1) ORDER BY 1`, names)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		return err
	}
	return refuse("tables that qtop would make exist already and are not its own: "+strings.Join(found, ", "), "schema public",
		"nothing was changed; use another database, or move them away")
}
