// Rights and functions, checked in the catalogue: conditions that must hold for every table and
// function.

package schema_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

const ours = publicRelations + " AND relname <> 'qtop_schema_version'"

func (c *core) none(why, sql string) {
	c.t.Helper()
	require.Empty(c.t, get[[]string](c, "SELECT COALESCE(array_agg(x::text ORDER BY x::text), '{}') FROM ("+sql+") s (x)"), why)
}

func TestRolesEveryFunction(t *testing.T) {
	c := newCore(t)
	require.Greater(t, get[int](c, "SELECT count(*) FROM pg_proc WHERE "+publicFunctions), 50)
	const fns = "SELECT p.oid::regprocedure FROM pg_proc p WHERE " + publicFunctions + " AND "
	c.none("executable by PUBLIC", `SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
		WHERE a.grantee = 0 AND `+publicFunctions)
	c.none("not owned by queue_owner", fns+"p.proowner <> 'queue_owner'::regrole")
	c.none("search_path is not pg_catalog, pg_temp", fns+"NOT COALESCE(p.proconfig && ARRAY['search_path=pg_catalog, pg_temp'], false)")
	c.none("no comment", fns+"obj_description(p.oid, 'pg_proc') IS NULL")
	c.none("granted on", `SELECT p.oid::regprocedure FROM pg_proc p, aclexplode(p.proacl) a WHERE a.is_grantable
		AND a.grantee <> p.proowner AND `+publicFunctions)
	c.none("internal, and granted", fns+`(p.proname LIKE 'fn\_snapshot\_%' OR p.proname IN ('fn_operator_audit', 'fn_cfg_bool', 'fn_cfg_int', 'fn_queue_heartbeat_touch', 'fn_queue_wake',
		'fn_queue_snapshot_parts', 'fn_mask_json', 'fn_queue_tick_due', 'fn_queue_tick_worker_add', 'fn_dot_config_seed', 'fn_queue_alert_current'))
		AND EXISTS (SELECT 1 FROM aclexplode(p.proacl) a WHERE a.grantee <> p.proowner)`)
}

func TestRolesEveryTable(t *testing.T) {
	c := newCore(t)
	require.Greater(t, get[int](c, "SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p', 'v') AND "+ours), 30)
	c.none("not owned by queue_owner", "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'S') AND relowner <> 'queue_owner'::regrole AND "+ours)
	c.none("somebody else may delete or truncate", `SELECT relname || ' ' || a.grantee::regrole FROM pg_class, aclexplode(relacl) a
		WHERE a.privilege_type IN ('DELETE', 'TRUNCATE', 'TRIGGER', 'REFERENCES') AND a.grantee <> relowner AND `+ours)
	c.none("PUBLIC has a right, but to see which code is installed", `SELECT relname FROM pg_class, aclexplode(relacl) a WHERE a.grantee = 0
		AND (relname NOT LIKE 'qtop\_schema\_%' OR a.privilege_type <> 'SELECT') AND `+ours)
	c.none("no comment", "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'v') AND obj_description(oid, 'pg_class') IS NULL AND "+ours)
	c.none("a role of ours can log in or do more than its grants", `SELECT rolname FROM pg_roles WHERE rolname IN ('queue_owner', 'queue_viewer', 'dot_executor',
		'workflow_admin', 'dead_letter_operator', 'event_ingest_writer', 'router_worker', 'saga_orchestrator', 'webhook_worker', 'lease_reset_cleaner',
		'subscription_admin') AND (rolcanlogin OR rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication)`)
}

// A SECURITY DEFINER function must not read a temporary table of the caller that has the name of
// one of its tables.
func TestRolesNoCapture(t *testing.T) {
	c := newCore(t)
	conn := c.db.Conn(t, pgtest.Login(t, c.db, "workflow_admin", "dot_executor", "queue_viewer"))
	for _, sql := range []string{
		"CREATE TEMP TABLE dot_config (LIKE public.dot_config)",
		"INSERT INTO pg_temp.dot_config VALUES ('queue.notify.bridge_enabled', 'true', '', now(), 'eve')",
		"CREATE TEMP TABLE queue_operator_action (LIKE public.queue_operator_action INCLUDING DEFAULTS INCLUDING IDENTITY)",
		"CREATE TEMP TABLE queue_heartbeat (LIKE public.queue_heartbeat)",
		"CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT '2000-01-01'::timestamptz $$",
		"CREATE FUNCTION pg_temp.fn_operator_audit(text, text, text, text, text, bigint, jsonb, jsonb, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
		"SET search_path = pg_temp, public, pg_catalog",
	} {
		_, err := conn.Exec(context.Background(), sql)
		require.NoError(t, err, sql)
	}
	var on bool
	require.NoError(t, conn.QueryRow(context.Background(), "SELECT public.fn_queue_notify_enabled()").Scan(&on))
	require.False(t, on)
	_, err := conn.Exec(context.Background(), "SELECT public.fn_dot_config_set('webhook.max_attempts', '3', 'eve', 'capture')")
	require.NoError(t, err)
	_, err = conn.Exec(context.Background(), "SELECT public.fn_queue_stale_check(), public.fn_queue_snapshot('0')")
	require.NoError(t, err)
	require.Equal(t, "3 1", get[string](c, `SELECT value || ' ' || (SELECT count(*) FROM public.queue_operator_action WHERE target = key AND actor = 'eve')
		FROM public.dot_config WHERE key = 'webhook.max_attempts'`))
	var stolen int
	require.NoError(t, conn.QueryRow(context.Background(), "SELECT pg_catalog.count(*) FROM pg_temp.queue_operator_action").Scan(&stolen))
	require.Zero(t, stolen)
}

// Every PL/pgSQL function is checked statement by statement on servers that have the extension
// plpgsql_check.
func TestFunctionsPassPlpgsqlCheck(t *testing.T) {
	c := newCore(t)
	if !get[bool](c, "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'plpgsql_check')") {
		t.Skip("NOT CHECKED: this server has no plpgsql_check (Debian: postgresql-15-plpgsql-check)")
	}
	c.exec("CREATE SCHEMA checker; CREATE EXTENSION plpgsql_check SCHEMA checker")
	// A trigger function of several tables may use a column that one of the tables lacks: only a
	// message that appears for all its tables counts.
	c.none("plpgsql_check", `
		WITH fn AS (
			SELECT p.oid::regprocedure AS fn, COALESCE(t.rel, 0) AS rel, count(*) OVER (PARTITION BY p.oid) AS n,
				max(t.new) OVER (PARTITION BY p.oid) AS new, NULLIF(max(t.old) OVER (PARTITION BY p.oid), max(t.new) OVER (PARTITION BY p.oid)) AS old
			FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
			LEFT JOIN (SELECT tgfoid, tgrelid AS rel, max(tgnewtable) AS new, max(tgoldtable) AS old FROM pg_trigger
				WHERE NOT tgisinternal AND tgparentid = 0 GROUP BY tgfoid, tgrelid) t ON t.tgfoid = p.oid
			WHERE `+publicFunctions+` AND (p.prorettype <> 'trigger'::regtype OR t.rel IS NOT NULL))
		SELECT f.fn || ' line ' || COALESCE(r.lineno::text, '?') || ': ' || r.level || ' ' || r.message
		FROM fn f CROSS JOIN LATERAL checker.plpgsql_check_function_tb(f.fn, f.rel, oldtable => f.old, newtable => f.new,
			extra_warnings => true, performance_warnings => false, security_warnings => true) r
		-- they write out the defaults of a function of ours and the CHECKs of our tables, as the catalogue has them
		WHERE NOT (f.fn IN ('public.fn_queue_tick_run(text,text)'::regprocedure, 'public.fn_direct_row()'::regprocedure) AND r.level = 'security')
			-- steps have one signature
			AND NOT (f.fn::text ~ '^public\.fn_step_' AND r.message ~ '^unused parameter')
		GROUP BY f.fn, r.lineno, r.level, r.message HAVING count(DISTINCT f.rel) = max(f.n)`)
}
