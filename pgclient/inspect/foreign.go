// Package inspect reads what `qtop doctor` checks in the database: the schema, roles and
// logins, objects that others have added, the server, signing, and the tables. Each exported
// function reads one of these and changes nothing (EnsurePartitions is the exception).
package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// Foreign is an object that does not belong to qtop and that changes, or could change, what
// qtop does.
type Foreign struct {
	Bad    bool       // it changes what qtop does now; false = it could
	What   queue.Text // what it is, and what it can do
	Remedy queue.Text // an SQL statement that removes it
	Of     int        // all such objects and rights, also those that are not returned
}

// foreignSQL considers an object qtop's if the owner of the queue's tables owns it in schema
// public. $1 are the roles of qtop. Rights on many objects are several rows: each has a statement that
// is short enough to be printed whole.
const foreignSQL = `
WITH o AS (SELECT c.relowner AS owner FROM pg_class c WHERE c.oid = to_regclass('public.job_queue')),
ours AS (SELECT c.* FROM pg_class c JOIN o ON o.owner = c.relowner WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v'))
SELECT bad, what, remedy, (count(*) OVER ())::int FROM (
	SELECT 1 AS place, true AS bad, format('trigger %I on %s calls %s of %I: its code runs with the rights of whoever writes the table, the owner too',
			t.tgname, t.tgrelid::regclass, p.oid::regprocedure, pg_get_userbyid(p.proowner)) AS what,
		format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass) AS remedy
	FROM pg_trigger t JOIN ours c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid CROSS JOIN o
	WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND p.proowner <> o.owner
	UNION ALL
	SELECT 2, true, format('rule %I on %s rewrites statements: rows can go elsewhere, or nowhere', r.rulename, r.ev_class::regclass),
		format('DROP RULE %I ON %s', r.rulename, r.ev_class::regclass)
	FROM pg_rewrite r JOIN ours c ON c.oid = r.ev_class WHERE r.rulename <> '_RETURN' OR c.relkind <> 'v'
	UNION ALL
	SELECT 3, c.relrowsecurity, format('row security on %s%s: rows can be hidden from hosts, consoles and functions, so that work stands unseen', c.oid::regclass,
			COALESCE(' (' || (SELECT string_agg(format('%I', p.polname), ', ' ORDER BY p.polname) FROM pg_policy p WHERE p.polrelid = c.oid) || ')', '')),
		format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', c.oid::regclass)
	FROM ours c WHERE c.relrowsecurity OR c.relforcerowsecurity OR EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid)
	UNION ALL
	SELECT 4, true, format('%s of %I inherits from %s: its rows count as the queue''s, and were never checked', i.inhrelid::regclass, pg_get_userbyid(h.relowner), i.inhparent::regclass),
		CASE WHEN h.relispartition THEN format('ALTER TABLE %s DETACH PARTITION %s', i.inhparent::regclass, i.inhrelid::regclass)
			ELSE format('ALTER TABLE %s NO INHERIT %s', i.inhrelid::regclass, i.inhparent::regclass) END
	FROM pg_inherits i JOIN ours c ON c.oid = i.inhparent AND c.relkind IN ('r', 'p') JOIN pg_class h ON h.oid = i.inhrelid CROSS JOIN o
	WHERE NOT h.relispartition OR h.relowner <> o.owner
	UNION ALL
	SELECT 4, true, format('%s inherits from %s of %I: statements on that table read and change rows of the queue with the rights on that table alone', c.oid::regclass, h.oid::regclass, pg_get_userbyid(h.relowner)),
		CASE WHEN c.relispartition THEN format('ALTER TABLE %s DETACH PARTITION %s', h.oid::regclass, c.oid::regclass) ELSE format('ALTER TABLE %s NO INHERIT %s', c.oid::regclass, h.oid::regclass) END
	FROM pg_inherits i JOIN ours c ON c.oid = i.inhrelid AND c.relkind IN ('r', 'p') JOIN pg_class h ON h.oid = i.inhparent CROSS JOIN o
	WHERE NOT c.relispartition OR h.relowner <> o.owner
	UNION ALL
	SELECT 4, true, format('publication %I publishes changes of %s: PostgreSQL refuses every UPDATE and DELETE of its rows, because %s', b.pubname, c.oid::regclass,
			CASE WHEN k.columns IS NULL THEN 'it has no replica identity' ELSE 'the filter or the columns of the publication do not fit its replica identity' END),
		CASE WHEN k.columns IS NOT NULL THEN format('ALTER PUBLICATION %I DROP TABLE %s', b.pubname, c.oid::regclass) ELSE format('ALTER TABLE %s REPLICA IDENTITY %s', c.oid::regclass,
			CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) THEN 'DEFAULT' ELSE 'FULL' END) END
	FROM pg_publication b JOIN pg_publication_tables m ON m.pubname = b.pubname AND m.schemaname = 'public' JOIN ours c ON c.relname = m.tablename
	CROSS JOIN LATERAL (SELECT CASE c.relreplident WHEN 'f' THEN ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
		ELSE (SELECT i.indkey::int2[] FROM pg_index i WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END) END) k (columns)
	LEFT JOIN pg_publication_rel r ON r.prpubid = b.oid AND r.prrelid = c.oid
	WHERE (b.pubupdate OR b.pubdelete) AND (k.columns IS NULL OR NOT k.columns <@ COALESCE(r.prattrs::int2[], k.columns)
		OR r.prqual IS NOT NULL AND r.prattrs IS NULL AND EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid
			AND d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND d.refobjsubid > 0 AND d.refobjsubid::int2 <> ALL (k.columns)))
	UNION ALL
	SELECT 5, true, format('function %s of %I has the name of one of ours: a call that gives its arguments by name or without their types could meet it, or fail',
			p.oid::regprocedure, pg_get_userbyid(p.proowner)),
		format('DROP FUNCTION %s', p.oid::regprocedure)
	FROM pg_proc p CROSS JOIN o WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> o.owner
		AND EXISTS (SELECT 1 FROM pg_proc q WHERE q.pronamespace = p.pronamespace AND q.proname = p.proname AND q.proowner = o.owner)
	UNION ALL
	SELECT 6, false, format('event trigger %I calls %s of %I: its code runs with the rights of whoever migrates', e.evtname, p.oid::regprocedure, pg_get_userbyid(p.proowner)),
		format('DROP EVENT TRIGGER %I, where it is not meant', e.evtname)
	FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid
	WHERE e.evtenabled <> 'D' AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_event_trigger'::regclass AND d.objid = e.oid AND d.deptype = 'e')
	UNION ALL
	SELECT 7, false, format('%s may create in schema %I: functions there can make a call by name ambiguous, and be called by statements of others that trust their path',
			CASE WHEN a.grantee = 0 THEN 'everybody' ELSE format('%I', pg_get_userbyid(a.grantee)) END, n.nspname),
		format('REVOKE CREATE ON SCHEMA %I FROM %s, where it is not meant', n.nspname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE format('%I', pg_get_userbyid(a.grantee)) END)
	FROM pg_namespace n CROSS JOIN LATERAL aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) a CROSS JOIN o
	WHERE n.nspname IN ('public', 'cron') AND a.privilege_type = 'CREATE' AND a.grantee <> o.owner
		AND pg_get_userbyid(a.grantee) <> 'pg_database_owner' AND NOT COALESCE((SELECT r.rolsuper FROM pg_roles r WHERE r.oid = a.grantee), false)
	UNION ALL
	SELECT 8, false, format('%I has %s on %s%s of the queue itself, not by a role of qtop: no check compares such rights, and what is done with them is not audited',
			g.grantee, g.privileges, array_to_string(g.names[:3], ', '), CASE WHEN cardinality(g.names) > 3 THEN format(' and %s more', cardinality(g.names) - 3) ELSE '' END),
		format('REVOKE ALL ON %s %s FROM %I CASCADE, where it is not meant', g.kind, array_to_string(g.names, ', '), g.grantee)
	FROM (SELECT w.kind, w.grantee, string_agg(DISTINCT p.privilege, ', ' ORDER BY p.privilege) AS privileges, array_agg(DISTINCT w.name ORDER BY w.name) AS names
		FROM (SELECT x.kind, r.rolname AS grantee, x.name, array_agg(x.privilege) AS privileges,
				sum(octet_length(x.name) + 2) OVER (PARTITION BY x.kind, r.rolname ORDER BY x.name) / 7000 AS part
			FROM (SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, a.privilege_type, a.grantee
				FROM pg_class c JOIN o ON o.owner = c.relowner CROSS JOIN LATERAL (SELECT c.relacl UNION ALL SELECT t.attacl FROM pg_attribute t WHERE t.attrelid = c.oid) l (acl) CROSS JOIN LATERAL aclexplode(l.acl) a
				WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S')
				UNION ALL
				SELECT 'FUNCTION', p.oid::regprocedure::text, a.privilege_type, a.grantee
				FROM pg_proc p JOIN o ON o.owner = p.proowner CROSS JOIN LATERAL aclexplode(p.proacl) a WHERE p.pronamespace = 'public'::regnamespace) x (kind, name, privilege, grantee)
			JOIN pg_roles r ON r.oid = x.grantee WHERE r.rolname::text <> ALL ($1::text[]) AND NOT r.rolsuper GROUP BY x.kind, r.rolname, x.name) w
		CROSS JOIN LATERAL unnest(w.privileges) p (privilege) GROUP BY w.kind, w.grantee, w.part) g
) s ORDER BY bad DESC, place, what LIMIT 100`

// ForeignObjects returns up to 100 objects that others made in or for qtop's schema, and rights that
// others have on its objects, what changes what qtop does now first.
func ForeignObjects(ctx context.Context, c *pgclient.Client) ([]Foreign, error) {
	_, roles, err := schema.WholeSet(ctx, c.Read())
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	return read[Foreign](ctx, c, foreignSQL, roles)
}
