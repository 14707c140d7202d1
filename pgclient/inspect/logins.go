package inspect

import (
	"context"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgerror"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// LoginSetting is a parameter that a role, a database or the server's configuration sets for a
// session.
type LoginSetting struct {
	Role     queue.Text // quoted for a statement; empty = for every role
	Database queue.Text // quoted for a statement; empty = for every database

	Name   string // of the parameter, such as statement_timeout
	Value  queue.Text
	Mine   bool // it applies to the login of this session
	Server bool // it is set in the configuration of the server
}

// Login is a role that may log in and is a member of one of qtop's roles, or the login of this
// session.
type Login struct {
	Name       queue.Text
	Quoted     queue.Text // Name, quoted for a statement
	Attributes []string   // SUPERUSER, CREATEROLE, REPLICATION, BYPASSRLS
	Roles      []string   // qtop's roles of which it is a member
	Mine       bool       // it is the login of this session
	Owner      queue.Text // the role that owns qtop's objects, quoted for a statement
	Migrates   bool       // it can act as the owner of the database, and is no superuser
	OwnsSchema bool       // it can act as Owner, or give itself that right, as migrate up does
	Predefined []string   // roles of PostgreSQL of which it is a member, and with which it may do more to the queue than with qtop's; nil for a superuser
	Hands      []string   // qtop's roles that it may grant to others, quoted for a statement; nil for a superuser
	Limit      int        // how many connections it may have at once; -1 = any number
	Until      queue.Text // when its password ends, if that is within two weeks or has been; else empty
	Ended      bool       // that time has passed
}

// members lists the roles that are members of one of qtop's roles, directly or through other roles,
// and this login. $1 are the logical names of qtop's roles, $2 their names in the cluster.
const members = `WITH RECURSIVE held (member, role) AS (
		SELECT m.member, o.name FROM unnest($1::text[], $2::text[]) o (name, role) JOIN pg_catalog.pg_roles r ON r.rolname = o.role
			JOIN pg_catalog.pg_auth_members m ON m.roleid = r.oid
		UNION SELECT m.member, h.role FROM held h JOIN pg_catalog.pg_auth_members m ON m.roleid = h.member),
	login AS (SELECT r.* FROM pg_catalog.pg_roles r
		WHERE r.rolcanlogin AND (r.rolname = session_user OR r.oid IN (SELECT member FROM held))) `

// ofMembers runs a query that begins with members.
func ofMembers[T any](ctx context.Context, c *pgclient.Client, sql string) ([]T, error) {
	names, roles, err := schema.WholeSet(ctx, c.Read())
	if err != nil {
		return nil, pgerror.Translate(err)
	}
	return read[T](ctx, c, members+sql, names, roles)
}

// hurting lists the settings that change what a statement does, how fast it runs, how long it may
// run, or how much of it the server logs.
const hurting = `('role', 'search_path', 'client_encoding', 'default_transaction_read_only', 'session_replication_role', 'default_transaction_isolation',
	'statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout', 'lock_timeout', 'synchronous_commit',
	'plan_cache_mode', 'enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan', 'enable_nestloop', 'enable_hashagg', 'enable_hashjoin', 'enable_sort',
	'enable_partition_pruning', 'log_statement', 'log_min_duration_statement', 'log_min_duration_sample', 'log_transaction_sample_rate', 'auto_explain.log_min_duration',
	'log_parameter_max_length_on_error', 'zero_damaged_pages', 'ignore_system_indexes')`

// unbound lists the settings of hurting that log bound parameters, where the server is told to log
// none of these: then they do no harm. Before PostgreSQL 16 auto_explain logged none.
const unbound = `SELECT unnest('{log_min_duration_statement,log_min_duration_sample,log_transaction_sample_rate}'::text[]) WHERE current_setting('log_parameter_max_length') = '0'
	UNION ALL SELECT 'auto_explain.log_min_duration' WHERE current_setting('server_version_num')::int4 < 160000 OR current_setting('auto_explain.log_parameter_max_length', true) = '0'`

// LoginSettings returns the settings of this login, of the logins that have a role of qtop,
// and of this database, but only those that are in hurting and not in unbound.
func LoginSettings(ctx context.Context, c *pgclient.Client) ([]LoginSetting, error) {
	return ofMembers[LoginSetting](ctx, c, `SELECT * FROM (SELECT COALESCE(quote_ident(l.rolname), ''), COALESCE(quote_ident(d.datname), ''),
			split_part(s, '=', 1) AS name, substr(s, strpos(s, '=') + 1), x.setrole = 0 OR l.rolname = session_user, false
		FROM pg_catalog.pg_db_role_setting x LEFT JOIN login l ON l.oid = x.setrole LEFT JOIN pg_catalog.pg_database d ON d.oid = x.setdatabase,
			unnest(x.setconfig) s
		WHERE (x.setrole = 0 OR l.oid IS NOT NULL) AND (x.setdatabase = 0 OR d.datname = current_database())
			AND split_part(s, '=', 1) IN `+hurting+`
		UNION ALL SELECT '', '', g.name, COALESCE(g.reset_val || CASE WHEN g.unit = 'ms' AND g.reset_val <> '0' THEN 'ms' ELSE '' END, ''), true, true FROM pg_catalog.pg_settings g
			WHERE (g.name IN `+hurting+` AND g.name NOT IN ('search_path', 'client_encoding')
					OR g.name IN ('fsync', 'full_page_writes', 'autovacuum', 'track_counts', 'track_activities'))
				AND g.source IN ('configuration file', 'command line', 'environment variable')) x
		WHERE x.name NOT IN (`+unbound+`)
		ORDER BY 5 DESC, 3, 1, 2`)
}

// Logins returns the login of this session and all logins that have a role of qtop.
func Logins(ctx context.Context, c *pgclient.Client) ([]Login, error) {
	return ofMembers[Login](ctx, c, `SELECT l.rolname::text, quote_ident(l.rolname), array_remove(ARRAY[CASE WHEN l.rolsuper THEN 'SUPERUSER' END,
			CASE WHEN l.rolcreaterole THEN 'CREATEROLE' END, CASE WHEN l.rolreplication THEN 'REPLICATION' END,
			CASE WHEN l.rolbypassrls THEN 'BYPASSRLS' END], NULL),
			ARRAY(SELECT DISTINCT h.role::text FROM held h WHERE h.member = l.oid ORDER BY 1), l.rolname = session_user, quote_ident(($2::text[])[1]),
			NOT l.rolsuper AND pg_has_role(l.oid, d.datdba, 'MEMBER'),
			CASE WHEN current_setting('server_version_num')::int4 >= 160000 THEN pg_has_role(l.oid, o.oid, 'SET') ELSE l.rolcreaterole OR pg_has_role(l.oid, o.oid, 'MEMBER') END
				OR pg_has_role(l.oid, o.oid, 'MEMBER WITH ADMIN OPTION'),
			ARRAY(SELECT p.rolname::text FROM pg_catalog.pg_roles p WHERE NOT l.rolsuper AND pg_has_role(l.oid, p.oid, 'MEMBER')
				AND p.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program') ORDER BY 1),
			ARRAY(SELECT quote_ident(p.rolname) FROM pg_catalog.pg_roles p WHERE NOT l.rolsuper AND p.rolname::text = ANY ($2::text[])
				AND pg_has_role(l.oid, p.oid, 'MEMBER WITH ADMIN OPTION') ORDER BY 1),
			CASE WHEN l.rolsuper THEN -1 ELSE l.rolconnlimit END, CASE WHEN l.rolvaliduntil < now() + interval '14 days' THEN l.rolvaliduntil::text ELSE '' END,
			COALESCE(l.rolvaliduntil < now(), false)
		FROM login l, pg_catalog.pg_database d, pg_catalog.pg_roles o WHERE d.datname = current_database() AND o.rolname::text = ($2::text[])[1]
		ORDER BY l.rolname = session_user DESC, l.rolname`)
}
