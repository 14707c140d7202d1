package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/qtop/qtop/pgclient/pgrow"
)

// catalogueForm must be raised whenever catalogueSQL changes the text of an unchanged definition:
// hashes of different forms cannot be compared.
const catalogueForm = 1

// formOf returns the form of the hashes on this server: hashes can be compared only if their forms
// are equal. PostgreSQL's major version is part of the form, because another version may print
// definitions differently.
func formOf(conn *pgx.Conn) string {
	return fmt.Sprintf("%s/%d", major(conn), catalogueForm)
}

// major is the number of the server's major version.
func major(conn *pgx.Conn) string {
	n, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), ".")
	return n
}

// catalogueSQL lists, per kind, the objects of schema public in the catalogue, each with a text
// that describes it: two objects have the same text only if their definitions are equal. The text
// depends only on the definitions, under search_path = pg_catalog, pg_temp. Functions of other
// owners and rights of other roles are not listed.
var catalogueSQL = map[kind]string{
	function: `
SELECT p.proname::text AS name, string_agg(concat_ws(E'\n', pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
	(SELECT l.lanname FROM pg_language l WHERE l.oid = p.prolang), p.prosecdef, p.provolatile, p.proparallel, p.proisstrict, p.proleakproof, p.procost, p.prorows, p.proconfig, p.prosrc,
	pg_get_userbyid(p.proowner)), E'\n' ORDER BY p.oid) AS installed
FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = :'queue_owner'::regrole GROUP BY p.proname`,
	view: `
SELECT c.relname, concat_ws(E'\n', pg_get_viewdef(c.oid), c.reloptions, pg_get_userbyid(c.relowner),
	(SELECT string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) FROM pg_attribute a
		WHERE a.attrelid = c.oid AND a.attnum > 0))
FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'`,
	trigger: `
SELECT format('%s on %s', t.tgname, c.relname), concat_ws(E'\n', pg_get_triggerdef(t.oid),
	-- these two become ALWAYS when nobody writes events (fn_event_stamps_always)
	CASE WHEN t.tgname IN ('trg_events_stamp', 'trg_event_outbox_admit') AND t.tgenabled = 'A' THEN 'O' ELSE t.tgenabled END)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal AND t.tgparentid = 0`,
	rights: `
SELECT format('%s %s', o.what, o.name), COALESCE((
	SELECT string_agg(g.line, E'\n' ORDER BY g.line) FROM (
		SELECT format('%s %s %s %s', COALESCE(r.rolname, 'PUBLIC'), x.privilege_type, x.is_grantable, l.attname) AS line
		FROM (SELECT o.acl, ''::name AS attname UNION ALL
			SELECT a.attacl, a.attname FROM pg_attribute a WHERE o.relid IS NOT NULL AND a.attrelid = o.relid AND a.attacl IS NOT NULL) l
		CROSS JOIN LATERAL aclexplode(l.acl) x LEFT JOIN pg_roles r ON r.oid = x.grantee
		-- what others granted, migrate up cannot revoke: grantsSQL finds it
		WHERE x.grantor = o.owner AND (x.grantee = 0 OR r.rolname IN (` + literalRoles() + `) AND x.grantee <> o.owner)) g), '')
FROM (
	SELECT 'FUNCTION' AS what, p.proname AS name, COALESCE(p.proacl, acldefault('f', p.proowner)) AS acl, NULL::oid AS relid, p.proowner AS owner
	FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = :'queue_owner'::regrole
	UNION ALL
	SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname, c.relacl, c.oid, c.relowner
	FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND (NOT c.relispartition OR c.relname LIKE '%\_default')) o`,
	comment: `
SELECT format('%s %s', o.what, o.name), d.description
FROM pg_description d JOIN (
	SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS what, c.relname::text AS name, c.oid, 0 AS sub, 'pg_class'::regclass AS class
	FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND (NOT c.relispartition OR c.relname LIKE '%\_default')
	UNION ALL
	SELECT 'COLUMN', format('%s.%s', c.relname, a.attname), c.oid, a.attnum, 'pg_class'::regclass
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE c.relnamespace = 'public'::regnamespace AND (NOT c.relispartition OR c.relname LIKE '%\_default')
	UNION ALL
	SELECT 'FUNCTION', p.proname, p.oid, 0, 'pg_proc'::regclass FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = :'queue_owner'::regrole
	UNION ALL
	SELECT CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, t.typname, t.oid, 0, 'pg_type'::regclass
	FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace) o ON (d.objoid, d.objsubid, d.classoid) = (o.oid, o.sub, o.class)`,
}

// key identifies an object of the catalogue.
type key struct {
	kind kind
	name string
}

func (o object) key() key { return key{o.kind, o.name} }

// allKinds are the kinds of objects, in the order of their installation.
var allKinds = []kind{function, view, trigger, rights, comment}

// readCatalogue returns a hash of the text (catalogueSQL) of each object of these kinds in the
// catalogue. The search path of the transaction must be pg_catalog, pg_temp.
func readCatalogue(ctx context.Context, q querier, set roleSet, of ...kind) (map[key]string, error) {
	out := map[key]string{}
	for _, k := range of {
		sql, err := expand(catalogueSQL[k], set)
		if err != nil {
			return nil, err
		}
		var name, text string
		if err := pgrow.Visit(ctx, q, []any{&name, &text}, func() { out[key{k, name}] = shortHash(text) }, sql); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// readOne returns the text (catalogueSQL) of one object.
func readOne(ctx context.Context, q querier, set roleSet, k kind, name string) (text string, err error) {
	sql, err := expand(catalogueSQL[k], set)
	if err == nil {
		err = q.QueryRow(ctx, "SELECT installed FROM ("+sql+") c (name, installed) WHERE name = $1", name).Scan(&text)
	}
	return text, err
}

// literalRoles is the list of qtop's roles as placeholders.
func literalRoles() string {
	var all []string
	for _, r := range Roles() {
		all = append(all, ":'"+r+"'")
	}
	return strings.Join(all, ", ")
}

// recorded is a row of qtop_schema_object: hashes of the source of an object and
// of its text in the catalogue.
type recorded struct{ source, installed string }

// readRecords reads the hashes that the last migration recorded. It returns an empty map if the
// installed release did not record objects yet.
func readRecords(ctx context.Context, q querier) (map[key]recorded, error) {
	out := map[key]recorded{}
	there, err := bookExists(ctx, q, "public.qtop_schema_object")
	if err != nil || !there {
		return out, err
	}
	var k key
	var r recorded
	return out, pgrow.Visit(ctx, q, []any{&k.kind, &k.name, &r.source, &r.installed}, func() { out[k] = r },
		"SELECT kind, name, source, installed FROM public.qtop_schema_object")
}
