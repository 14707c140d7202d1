package schema

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// catalogueSQL lists what PostgreSQL has of the objects that code can declare, in
// schema public, each with a text that two objects share only when they are alike.
// It depends on nothing but the definitions under search_path = pg_catalog, pg_temp.
//
//	$1  our roles; rights of others are not compared
//	$2  the owner, quoted; functions of others are not ours, whatever they are called
const catalogueSQL = `
SELECT 'function' AS kind, p.proname::text AS name, string_agg(concat_ws(E'\n', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
	p.prolang, p.prosecdef, p.provolatile, p.proparallel, p.proisstrict, p.proleakproof, p.procost, p.prorows, p.proconfig, p.prosrc,
	pg_get_userbyid(p.proowner)), E'\n' ORDER BY p.oid) AS installed
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = ($2::text)::regrole GROUP BY p.proname
UNION ALL
SELECT 'view', c.relname, concat_ws(E'\n', pg_get_viewdef(c.oid), c.reloptions, pg_get_userbyid(c.relowner),
	(SELECT string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) FROM pg_attribute a
		WHERE a.attrelid = c.oid AND a.attnum > 0))
FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'
UNION ALL
SELECT 'trigger', format('%s on %s', t.tgname, c.relname), concat_ws(E'\n', pg_get_triggerdef(t.oid), t.tgenabled)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal AND t.tgparentid = 0
UNION ALL
SELECT 'rights', format('%s %s', o.what, o.name), COALESCE((
	SELECT string_agg(g.line, E'\n' ORDER BY g.line) FROM (
		SELECT format('%s %s %s %s', COALESCE(r.rolname, 'PUBLIC'), x.privilege_type, x.is_grantable, l.attname) AS line
		FROM (SELECT o.acl, ''::name AS attname UNION ALL
			SELECT a.attacl, a.attname FROM pg_attribute a WHERE o.relid IS NOT NULL AND a.attrelid = o.relid AND a.attacl IS NOT NULL) l
		CROSS JOIN LATERAL aclexplode(l.acl) x LEFT JOIN pg_roles r ON r.oid = x.grantee
		WHERE x.grantee = 0 OR r.rolname = ANY ($1) AND x.grantee <> o.owner) g), '')
FROM (
	SELECT 'FUNCTION' AS what, p.proname AS name, COALESCE(p.proacl, acldefault('f', p.proowner)) AS acl, NULL::oid AS relid, p.proowner AS owner
	FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = ($2::text)::regrole
	UNION ALL
	SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname, c.relacl, c.oid, c.relowner
	FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND (NOT c.relispartition OR c.relname LIKE '%\_default')) o
UNION ALL
SELECT 'comment', format('%s %s', o.what, o.name), d.description
FROM pg_description d JOIN (
	SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS what, c.relname::text AS name, c.oid, 0 AS sub, 'pg_class'::regclass AS class
	FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND (NOT c.relispartition OR c.relname LIKE '%\_default')
	UNION ALL
	SELECT 'COLUMN', format('%s.%s', c.relname, a.attname), c.oid, a.attnum, 'pg_class'::regclass
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE c.relnamespace = 'public'::regnamespace AND (NOT c.relispartition OR c.relname LIKE '%\_default')
	UNION ALL
	SELECT 'FUNCTION', p.proname, p.oid, 0, 'pg_proc'::regclass FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = ($2::text)::regrole
	UNION ALL
	SELECT CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, t.typname, t.oid, 0, 'pg_type'::regclass
	FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace) o ON (d.objoid, d.objsubid, d.classoid) = (o.oid, o.sub, o.class)`

// key names an object of the catalogue.
type key struct {
	kind kind
	name string
}

func (o object) key() key { return key{o.kind, o.name} }

// readCatalogue reads what is there, as a hash per object. The search path of the
// transaction must be pg_catalog, pg_temp.
func readCatalogue(ctx context.Context, q querier) (map[key]string, error) {
	rows, err := q.Query(ctx, catalogueSQL, Roles(), owner)
	if err != nil {
		return nil, err
	}
	out := map[key]string{}
	var k key
	var text string
	_, err = pgx.ForEachRow(rows, []any{&k.kind, &k.name, &text}, func() error {
		out[k] = shortHash(text)
		return nil
	})
	return out, err
}

// recorded is a row of qtop_schema_object: hashes of the source of an object and
// of what the catalogue made of it.
type recorded struct{ source, installed string }

// readRecords reads what the last migration recorded; nothing where it comes from
// before that was done.
func readRecords(ctx context.Context, q querier) (map[key]recorded, error) {
	out := map[key]recorded{}
	var there bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('public.qtop_schema_object') IS NOT NULL").Scan(&there); err != nil || !there {
		return out, err
	}
	rows, err := q.Query(ctx, "SELECT kind, name, source, installed FROM public.qtop_schema_object")
	if err != nil {
		return nil, err
	}
	var k key
	var r recorded
	_, err = pgx.ForEachRow(rows, []any{&k.kind, &k.name, &r.source, &r.installed}, func() error {
		out[k] = r
		return nil
	})
	return out, err
}
