// Package inspect reads what `qtop doctor` checks in the database: the schema, roles and
// logins, objects that others have added, the server, signing, and the tables. Each exported
// function reads one of these and changes nothing (EnsurePartitions is the exception).
package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/queue"
)

// Foreign is an object that does not belong to qtop and that changes, or could change, what
// qtop does.
type Foreign struct {
	Bad    bool       // it changes what qtop does now; false = it could
	What   queue.Text // what it is, and what it can do
	Remedy queue.Text // an SQL statement that removes it
}

// foreignSQL considers an object qtop's if the owner of the queue's tables owns it in schema
// public.
const foreignSQL = `
WITH o AS (SELECT c.relowner AS owner FROM pg_class c WHERE c.oid = to_regclass('public.job_queue')),
ours AS (SELECT c.* FROM pg_class c JOIN o ON o.owner = c.relowner WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v'))
SELECT bad, what, remedy FROM (
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
) s ORDER BY place, what LIMIT 100`

// ForeignObjects returns up to 100 objects that others made in or for qtop's schema, those that can
// change what qtop does first.
func ForeignObjects(ctx context.Context, c *pgclient.Client) ([]Foreign, error) {
	return read[Foreign](ctx, c, foreignSQL)
}
