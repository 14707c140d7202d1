package schema

// The tables in which an installation records itself, and the number of its newest migration.

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// versionTable has one number, that of the newest installed migration. Its name differs from the
// names of other programs' version tables.
const versionTable = "public.qtop_schema_version"

// bookSQL creates the version table, bookRightsSQL grants rights to it, and rowSQL makes its row.
const (
	bookSQL       = `CREATE TABLE public.qtop_schema_version (version int4 NOT NULL);`
	bookRightsSQL = `GRANT SELECT ON public.qtop_schema_version TO PUBLIC;
GRANT SELECT, INSERT, UPDATE ON public.qtop_schema_version TO :"queue_owner";`
	rowSQL = `INSERT INTO public.qtop_schema_version SELECT 0 WHERE NOT EXISTS (SELECT FROM public.qtop_schema_version);`
)

// identifySQL gives a replica identity to published tables without a primary key, as a publication FOR ALL TABLES has
// them: to the version table, and to those that this transaction has locked, because it made or altered them. PostgreSQL
// refuses every UPDATE and DELETE of such a table. Other tables would have to be locked for it, behind open
// transactions: `doctor` names those.
const identifySQL = `DO $$
DECLARE
	v_table regclass;
BEGIN
	FOR v_table IN
		SELECT DISTINCT c.oid FROM pg_publication b JOIN pg_publication_tables m ON m.pubname = b.pubname AND m.schemaname = 'public'
		JOIN pg_class c ON c.relname = m.tablename AND c.relnamespace = 'public'::regnamespace
		WHERE (b.pubupdate OR b.pubdelete) AND c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
			AND (c.oid = 'public.qtop_schema_version'::regclass OR EXISTS (SELECT FROM pg_locks l
				WHERE l.pid = pg_backend_pid() AND l.relation = c.oid AND l.mode = 'AccessExclusiveLock' AND l.granted))
	LOOP
		EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', v_table);
	END LOOP;
END $$;`

// bookExists reports whether a table exists in which qtop records its installation. It refuses a
// table whose owner could not have installed qtop, and anything that is not a table: a view, a
// trigger, a default or a policy would run with the rights of the login that reads or migrates.
// Call it before the first read or write of such a table. A member of the owner of the database or
// of a queue_owner is trusted as these are: it can act as them. So who installed qtop may lose
// CREATEROLE, and the database may get another owner.
func bookExists(ctx context.Context, q querier, table string) (bool, error) {
	var who, dba string
	var trusted bool
	err := q.QueryRow(ctx, `SELECT o.rolname::text, quote_ident(pg_get_userbyid(d.datdba)), c.relkind = 'r' AND (o.rolsuper OR o.rolcreaterole OR o.rolname = current_user
			OR pg_has_role(o.oid, d.datdba, 'MEMBER')
			OR EXISTS (SELECT FROM pg_roles g WHERE NOT g.rolcanlogin AND g.rolname::text ~ ('^[a-z0-9_]*' || $2::text || '$') AND pg_has_role(o.oid, g.oid, 'MEMBER')))
		FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner JOIN pg_database d ON d.datname = current_database()
		WHERE c.oid = to_regclass($1::text)`, table, owner).Scan(&who, &dba, &trusted)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil && !trusted {
		err = refuse(fmt.Sprintf("%s is not qtop's: it is not a table, or belongs to %s, who could not have installed qtop", table, who), "schema public",
			fmt.Sprintf("nothing was read or changed; find out who made it; if qtop is installed here, a superuser gives it back: ALTER TABLE %s OWNER TO %s", table, dba))
	}
	return err == nil, err
}

// recordVersion writes the number of the newest migration. The table belongs to the login that
// installed qtop, and a later login writes it as the owner of qtop's objects, which has been granted
// the right.
func (in *installer) recordVersion(ctx context.Context) error {
	in.doing = versionTable
	if err := exec(ctx, in.tx, "SET LOCAL ROLE NONE"); err != nil {
		return err
	}
	if there, err := bookExists(ctx, in.tx, versionTable); err != nil {
		return err
	} else if !there {
		if err := exec(ctx, in.tx, bookSQL); err != nil {
			return err
		}
	}
	var who string
	var mine, granted bool
	if err := in.tx.QueryRow(ctx, `SELECT quote_ident(o.rolname), pg_has_role(current_user, o.oid, 'USAGE'),
			has_table_privilege($2::text, c.oid, 'INSERT') AND has_table_privilege($2::text, c.oid, 'UPDATE') AND has_table_privilege($2::text, c.oid, 'SELECT')
		FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner WHERE c.oid = to_regclass($1::text)`, versionTable, in.roleSet.owner()).Scan(&who, &mine, &granted); err != nil {
		return err
	}
	if mine {
		if err := in.exec(ctx, in.tx, bookRightsSQL); err != nil {
			return err
		}
	} else if !granted {
		return refuse(versionTable+" belongs to "+who+", who installed qtop and has not granted it to "+in.roleSet.owner(), versionTable,
			fmt.Sprintf("nothing was changed; as %s or a superuser run GRANT SELECT, INSERT, UPDATE ON %s TO %s; then run migrate up again", who, versionTable, in.roleSet.owner()))
	}
	if err := exec(ctx, in.tx, identifySQL); err != nil {
		return err
	}
	return exec(ctx, in.tx, fmt.Sprintf("%s; %s UPDATE %s SET version = %d", in.roleSet.assume(), rowSQL, versionTable, in.release.Version()))
}
