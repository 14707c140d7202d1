package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// querier is a connection, a pooled connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// version reads the installed version; 0 = nothing is installed.
func version(ctx context.Context, q querier) (v int32, err error) {
	there, err := bookExists(ctx, q, versionTable)
	if err == nil && there {
		err = q.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&v)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = refuse(versionTable+" has no row: the schema was restored without its rows, or somebody deleted it", versionTable,
			"nothing was changed; restore a dump with its rows into an empty database, or install qtop in an empty one")
	}
	return v, err
}

// installedCode is the row of qtop_schema_code. Code 0: nothing is installed, or a
// schema of a release in which code had no number yet.
type installedCode struct {
	Code, Serves int
	Hash, Seeds  string
	Form         string // the form of the recorded hashes, see formOf
}

func readCode(ctx context.Context, q querier) (c installedCode, err error) {
	there, err := bookExists(ctx, q, "public.qtop_schema_code")
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

// admitServer refuses a server before PostgreSQL 15, by what the tables need of it: other servers may
// claim any version.
func admitServer(ctx context.Context, conn *pgx.Conn) error {
	var has bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'pg_index'::regclass AND attname = 'indnullsnotdistinct')").Scan(&has)
	if err != nil || has {
		return explain(err, "migrate up")
	}
	return refuse("the server is too old: PostgreSQL "+conn.PgConn().ParameterStatus("server_version"), "database "+conn.Config().Database,
		"nothing was changed; qtop needs PostgreSQL 15 or later")
}

// admit refuses a database that Up must not change, before Up creates anything in it. prefix is the
// role prefix for a new installation. admit returns the number of the newest installed migration; 0
// = nothing is installed.
func (r *Release) admit(ctx context.Context, q querier, prefix string) (from int32, err error) {
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
	set, err := storedRoles(ctx, q)
	if err != nil {
		return 0, err
	}
	if from == 0 {
		set.prefix = prefix
	}
	return from, r.refuseForeign(ctx, q, from, set)
}

var createRelation = regexp.MustCompile(`(?m)^CREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:TABLE|VIEW) public\.([a-z0-9_]+)`)

// refuseForeign refuses a database that has objects of other owners under names that Up would use,
// because Up must not overwrite, for example, an events table of another program. It checks
// relations, types and functions of the pending migrations, whatever their owner, and the other
// objects of the release unless queue_owner owns them. A function of the same name with other
// arguments is no conflict.
func (r *Release) refuseForeign(ctx context.Context, q querier, from int32, set roleSet) error {
	names := []string{} // of the relations that pending migrations create
	for _, m := range r.migrations[from:] {
		for _, hit := range createRelation.FindAllStringSubmatch(m.up, -1) {
			names = append(names, hit[1])
		}
	}
	if from == 0 {
		names = append(names, r.own.relations()...)
		for _, o := range r.objects {
			if o.kind == view {
				names = append(names, o.name)
			}
		}
	}
	partitioned := []string{}
	for _, m := range r.migrations {
		for _, hit := range createRelation.FindAllStringSubmatch(m.up, -1) {
			if parent, ok := strings.CutSuffix(hit[1], "_default"); ok {
				partitioned = append(partitioned, parent)
			}
		}
	}
	found, err := pgrow.Column[string](ctx, q, `
		WITH relation AS (
			SELECT c.oid, c.relname::text AS name, c.relowner AS owner, pg_identify_object('pg_class'::regclass, c.oid, 0) AS i FROM pg_class c
			WHERE c.relnamespace = 'public'::regnamespace AND c.oid IS DISTINCT FROM to_regclass($7) AND (c.relname::text = ANY ($1) OR c.relname::text = ANY ($2)
				OR c.relname ~ '_(default|[0-9]{4}_[0-9]{2}(_[0-9]{2})?)$' AND regexp_replace(c.relname, '_(default|[0-9]{4}_[0-9]{2}(_[0-9]{2})?)$', '') = ANY ($5))
		)
		SELECT DISTINCT format('%s %s (owner %s)', regexp_replace((f.i).type, '^composite ', ''), regexp_replace((f.i).identity, '\m(public|pg_catalog)\.', '', 'g'), pg_get_userbyid(f.owner)) FROM (
			SELECT i, owner FROM relation WHERE name = ANY ($1) OR $6 OR owner IS DISTINCT FROM to_regrole($4)
			UNION ALL
			SELECT pg_identify_object('pg_type'::regclass, t.oid, 0), t.typowner FROM pg_type t
			WHERE t.typnamespace = 'public'::regnamespace AND t.typrelid = 0 AND NOT (t.typcategory = 'A' AND t.typelem <> 0)
				AND (t.typname::text = ANY ($1) OR t.typname::text = ANY ($2) AND ($6 OR t.typowner IS DISTINCT FROM to_regrole($4)))
			UNION ALL
			SELECT pg_identify_object('pg_proc'::regclass, p.oid, 0), p.proowner FROM pg_proc p
			WHERE p.pronamespace = 'public'::regnamespace AND p.proname::text IN (SELECT split_part(split_part(x, '(', 1), '.', 2) FROM unnest($3::text[]) x)
				AND (pg_identify_object('pg_proc'::regclass, p.oid, 0)).identity = ANY ($3)
				AND (p.proowner IS DISTINCT FROM to_regrole($4) OR p.prokind <> 'f')
		) f ORDER BY 1`, names, r.own.relations(), r.own.functions(), set.owner(), partitioned, from == 0, versionTable)
	if err != nil || len(found) == 0 {
		return err
	}
	if from > 0 {
		var owned bool
		if err := q.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = to_regrole($1::text))", set.owner()).Scan(&owned); err != nil {
			return err
		}
		if !owned {
			return refuse(fmt.Sprintf("qtop's functions here do not belong to %s, as after pg_restore --no-owner: %s", set.owner(), few(found)), "schema public",
				"nothing was changed; restore the dump into an empty database without --no-owner")
		}
	}
	return refuse(queue.Plural(len(found), "object has a name that qtop would use and is not its own", "objects have names that qtop would use and are not its own")+": "+strings.Join(found, ", "), "schema public",
		"nothing was changed; use another database, or rename or move these objects")
}
