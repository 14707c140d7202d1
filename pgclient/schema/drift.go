package schema

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/queue"
)

// Differences between the objects that the migrations made and those that the database has.
// remedy.go has the statements that repair them: a migration runs only once, so migrate up does
// not.

// ownersSQL finds relations, types and functions of qtop that another role owns. $1 is
// the owner, $2 are names of relations and types, $3 functions with their arguments.
const ownersSQL = `
SELECT format('%s %s', lower(what COLLATE "C"), name), format('belongs to %I', pg_get_userbyid(owner)), format('ALTER %s %s OWNER TO %I', what, full_name, $1::text) FROM (
	SELECT CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname::text, format('public.%I', c.relname), c.relowner
	FROM pg_class c LEFT JOIN pg_inherits i ON c.relispartition AND i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND COALESCE(p.relname, c.relname) = ANY ($2::text[])
		AND c.relname <> 'qtop_schema_version' -- it belongs to whoever installed qtop
		AND NOT (c.relkind = 'S' AND EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')))
	UNION ALL
	SELECT CASE y.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, y.typname, format('public.%I', y.typname), y.typowner
	FROM pg_type y WHERE y.typnamespace = 'public'::regnamespace AND y.typtype IN ('d', 'e') AND y.typname = ANY ($2::text[])
	UNION ALL
	SELECT 'FUNCTION', f.proname, i.identity, f.proowner
	FROM pg_proc f CROSS JOIN LATERAL pg_identify_object('pg_proc'::regclass, f.oid, 0) i
	WHERE f.pronamespace = 'public'::regnamespace AND i.identity = ANY ($3::text[])) x (what, name, full_name, owner)
WHERE owner IS DISTINCT FROM to_regrole($1)::oid`

// firingSQL finds triggers that are disabled, or enabled in another way than they should be, and
// that migrate up does not check: triggers of foreign keys, and triggers that partitions inherit.
// $1 are the names of tables.
const firingSQL = `
WITH t AS MATERIALIZED (SELECT c.oid, c.relname FROM pg_class c LEFT JOIN pg_inherits i ON c.relispartition AND i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND COALESCE(p.relname, c.relname) = ANY ($1::text[]))
SELECT format('constraint %s on %s', o.conname, t.relname), 'its triggers are disabled: it checks nothing',
	format('ALTER TABLE public.%I %s', t.relname, string_agg(format('ENABLE TRIGGER %I', g.tgname), ', ' ORDER BY g.tgname))
FROM t JOIN pg_trigger g ON g.tgrelid = t.oid JOIN pg_constraint o ON o.oid = g.tgconstraint
WHERE g.tgisinternal AND g.tgenabled <> 'O' GROUP BY o.conname, t.relname
UNION ALL
SELECT format('trigger %s on %s', g.tgname, t.relname), 'fires otherwise than on the partitioned table',
	format('ALTER TABLE public.%I %s TRIGGER %I', t.relname, CASE p.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE' END, g.tgname)
FROM t JOIN pg_trigger g ON g.tgrelid = t.oid JOIN pg_trigger p ON p.oid = g.tgparentid
WHERE NOT g.tgisinternal AND g.tgenabled <> p.tgenabled`

// addedTriggersSQL finds triggers on tables of qtop ($1) and their partitions that call a function of
// the owner ($2) and are not qtop's: neither among $3 ("name on table") nor the guard of a partition. Those
// that call a function of somebody else are foreign objects.
const addedTriggersSQL = `
SELECT format('trigger %s on %s', g.tgname, c.relname), format('is not qtop''s: it calls %s', f.oid::regprocedure), format('DROP TRIGGER %I ON public.%I', g.tgname, c.relname)
FROM pg_class c JOIN pg_trigger g ON g.tgrelid = c.oid JOIN pg_proc f ON f.oid = g.tgfoid
LEFT JOIN pg_inherits i ON c.relispartition AND i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relnamespace = 'public'::regnamespace AND COALESCE(p.relname, c.relname) = ANY ($1::text[]) AND f.proowner = to_regrole($2)
	AND NOT g.tgisinternal AND g.tgparentid = 0 AND format('%s on %s', g.tgname, c.relname) <> ALL ($3::text[])
	AND NOT (c.relispartition AND g.tgname = format('trg_%s_no_truncate', c.relname)::name)`

// leavesSQL finds partitions that were detached, that have a name or bounds which
// fn_queue_partitions_ensure does not give, are UNLOGGED, lost their trigger against TRUNCATE, or
// refuse rows that their table accepts: by a constraint, a NOT NULL or a unique index that only the
// partition has. $1 are the names of tables. The step of each table is in queue_partitioned too, which not
// every login may read.
const leavesSQL = `
WITH p AS (SELECT c.oid, c.relname AS name, c.relowner, s.step, CASE s.step WHEN '1 day' THEN 'YYYY_MM_DD' ELSE 'YYYY_MM' END AS form
	FROM pg_class c CROSS JOIN LATERAL (SELECT CASE c.relname WHEN 'event_outbox' THEN '1 month' ELSE '1 day' END AS step) s
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'p' AND c.relname = ANY ($1::text[])),
leaf AS MATERIALIZED (SELECT c.oid, c.relname AS name, c.relispartition, c.relpersistence, p.name AS parent, p.oid AS table_oid, p.step, n.part, a.at
	FROM p JOIN pg_class c ON c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relowner = p.relowner AND starts_with(c.relname, p.name || '_')
	CROSS JOIN LATERAL (SELECT substring(c.relname, length(p.name) + 2)) n (part)
	-- a part that is no date, as of 2026_13_45, is another one than its text
	CROSS JOIN LATERAL (SELECT CASE WHEN n.part ~ '^[0-9]{4}_(0[1-9]|1[0-2])(_[0-9]{2})?$'
		THEN to_date(left(n.part, 7), 'YYYY_MM') + COALESCE(NULLIF(substring(n.part, 9), ''), '1')::int - 1 END) a (at)
	WHERE n.part IN ('default', to_char(a.at, p.form))),
other AS MATERIALIZED (SELECT c.relname AS name, format('%s.%I', c.relnamespace::regnamespace, c.relname) AS full_name, p.name AS parent, pg_get_expr(c.relpartbound, 0) AS bound, p.name || to_char(b.since AT TIME ZONE 'UTC', '"_"' || p.form) AS proper,
		CASE WHEN c.relnamespace = 'public'::regnamespace AND b.since BETWEEN '0001-01-01 00:00Z' AND '9999-12-01 00:00Z' THEN (b.since AT TIME ZONE 'UTC' + p.step::interval) AT TIME ZONE 'UTC' = b.until
			AND date_trunc(substring(p.step, 3), b.since AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' = b.since END AS whole
	FROM p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid AND c.relowner = p.relowner
	CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, 0), '^FOR VALUES FROM \(''([^'']+)''\) TO \(''([^'']+)''\)$') AS m (range)
	CROSS JOIN LATERAL (SELECT m.range[1]::timestamptz, m.range[2]::timestamptz) b (since, until)
	WHERE c.relname <> p.name || '_default')
SELECT format('table %s', o.name), format('is a partition of %s that qtop did not make (%s): retention keeps it, and none is made for its time%s', o.parent, o.bound,
		CASE WHEN f.fits THEN '' ELSE '; detached, its rows are not seen' END),
	CASE WHEN f.fits THEN format('ALTER TABLE %s RENAME TO %I', o.full_name, o.proper) ELSE format('ALTER TABLE public.%I DETACH PARTITION %s', o.parent, o.full_name) END
FROM other o CROSS JOIN LATERAL (SELECT COALESCE(o.whole AND to_regclass('public.' || quote_ident(o.proper)) IS NULL, false)) f (fits)
WHERE NOT COALESCE(o.whole AND o.name = o.proper, false)
UNION ALL
SELECT format('table %s', l.name), format('is no partition of %s: its rows are not seen', l.parent),
	format('ALTER TABLE public.%I ATTACH PARTITION public.%I %s', l.parent, l.name, CASE WHEN l.part = 'default' THEN 'DEFAULT' ELSE
		format('FOR VALUES FROM (%L) TO (%L)', to_char(l.at, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(l.at + l.step::interval, 'YYYY-MM-DD') || ' 00:00:00+00') END)
FROM leaf l WHERE NOT l.relispartition
UNION ALL
SELECT format('table %s', l.name), 'is UNLOGGED: a crash of the server empties it', format('ALTER TABLE public.%I SET LOGGED', l.name) FROM leaf l WHERE l.relpersistence = 'u'
UNION ALL
SELECT format('trigger %s on %s', g.name, l.name), CASE WHEN t.oid IS NULL THEN 'missing: dropped by hand' ELSE 'disabled' END || ': nothing keeps the partition from TRUNCATE',
	CASE WHEN t.oid IS NULL THEN format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change()', g.name, l.name)
		ELSE format('ALTER TABLE public.%I ENABLE TRIGGER %I', l.name, g.name) END
FROM leaf l CROSS JOIN LATERAL (SELECT format('trg_%s_no_truncate', l.name) AS name) g LEFT JOIN pg_trigger t ON t.tgrelid = l.oid AND t.tgname = g.name::name
WHERE l.part <> 'default' AND (t.oid IS NULL OR t.tgenabled NOT IN ('O', 'A'))
UNION ALL
SELECT format('constraint %s on %s', o.conname, l.name), format('is not qtop''s: %s', regexp_replace(pg_get_constraintdef(o.oid), '\s*\n\s*', ' ', 'g')),
	format('ALTER TABLE public.%I DROP CONSTRAINT %I', l.name, o.conname)
FROM leaf l JOIN pg_constraint o ON o.conrelid = l.oid
WHERE l.relispartition AND o.contype IN ('c', 'p', 'u', 'x', 'f') AND o.conparentid = 0 AND o.coninhcount = 0
UNION ALL
SELECT format('column %s.%s', l.name, a.attname), 'is NOT NULL, which it is not in ' || l.parent, format('ALTER TABLE public.%I ALTER COLUMN %I DROP NOT NULL', l.name, a.attname)
FROM leaf l JOIN pg_attribute a ON a.attrelid = l.oid AND a.attnotnull JOIN pg_attribute t ON t.attrelid = l.table_oid AND t.attname = a.attname
WHERE l.relispartition AND a.attnum > 0 AND NOT t.attnotnull
UNION ALL
SELECT format('index %s on %s', c.relname, l.name), format('is not qtop''s: %s', pg_get_indexdef(i.indexrelid)), format('DROP INDEX public.%I', c.relname)
FROM leaf l JOIN pg_index i ON i.indrelid = l.oid AND i.indisunique JOIN pg_class c ON c.oid = i.indexrelid
WHERE l.relispartition AND NOT c.relispartition AND NOT EXISTS (SELECT FROM pg_constraint o WHERE o.conindid = i.indexrelid)`

// storedSQL finds columns of the tables $1 and of their partitions that cannot be compressed or stored
// outside of the row: PostgreSQL refuses a row that does not fit into a page.
const storedSQL = `
SELECT format('column %s.%s', c.relname, a.attname), 'is stored PLAIN: a row with more than 8 kB is refused',
	format('ALTER TABLE public.%I ALTER COLUMN %I SET STORAGE %s', c.relname, a.attname, CASE y.typstorage WHEN 'm' THEN 'MAIN' WHEN 'e' THEN 'EXTERNAL' ELSE 'EXTENDED' END)
FROM pg_class c LEFT JOIN pg_inherits i ON c.relispartition AND i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type y ON y.oid = a.atttypid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND COALESCE(p.relname, c.relname) = ANY ($1::text[])
	AND a.attstorage = 'p' AND y.typstorage <> 'p'
	AND NOT EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = p.oid AND t.attname = a.attname AND t.attstorage = 'p') -- the statement for the table changes its partitions too`

// schemaSQL finds roles of qtop ($1) that may not use schema public, and the owner ($2) if it may not
// create the coming partitions there.
const schemaSQL = `
SELECT 'rights SCHEMA public', format('%I may not %s it', r.rolname, p.verb), format('GRANT %s ON SCHEMA public TO %I', p.name, r.rolname)
FROM pg_roles r CROSS JOIN (VALUES ('USAGE', 'use'), ('CREATE', 'create in')) p (name, verb)
WHERE r.rolname::text = ANY ($1::text[]) AND (p.name = 'USAGE' OR r.rolname::text = $2::text) AND NOT has_schema_privilege(r.oid, 'public'::regnamespace, p.name)`

// grantsSQL finds rights of PUBLIC and of qtop's roles ($1) that no comparison of installed rights
// shows: those that another role than the owner ($2) granted, which only that role or a superuser
// can revoke, and those on a partition of the tables $3 or, beyond those that migrate up grants, on
// the version table $4.
const grantsSQL = `
WITH o (what, name, oid, owner, acl, columns, bare) AS (
	SELECT 'FUNCTION', f.proname::text, f.oid, f.proowner, f.proacl, '', false
	FROM pg_proc f WHERE f.pronamespace = 'public'::regnamespace AND f.proowner = to_regrole($2)
	UNION ALL
	SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.relname::text, c.oid, c.relowner, a.acl, a.columns,
		c.oid = to_regclass($4) OR c.relispartition AND c.relname !~ '_default$'
			AND (SELECT p.relname = ANY ($3::text[]) FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent WHERE i.inhrelid = c.oid)
	FROM pg_class c CROSS JOIN LATERAL (
		SELECT c.relacl, '' UNION ALL SELECT t.attacl, format(' (%I)', t.attname) FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attacl IS NOT NULL) a (acl, columns)
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND (c.relowner = to_regrole($2) OR c.oid = to_regclass($4))),
x AS (
	SELECT o.what, o.name, CASE o.what WHEN 'FUNCTION' THEN o.oid::regprocedure::text ELSE format('public.%I', o.name) END AS full_name,
		COALESCE(quote_ident(r.rolname), 'PUBLIC') AS grantee, quote_ident(pg_get_userbyid(g.grantor)) AS grantor, g.grantor = o.owner AS plain,
		string_agg(g.privilege_type || o.columns, ', ' ORDER BY g.privilege_type) AS privileges
	FROM o CROSS JOIN LATERAL aclexplode(o.acl) g LEFT JOIN pg_roles r ON r.oid = g.grantee
	WHERE (g.grantee = 0 OR r.rolname::text = ANY ($1::text[])) AND g.grantee <> o.owner AND (g.grantor <> o.owner OR o.bare)
		AND NOT (o.oid = to_regclass($4) AND (g.privilege_type = 'SELECT' OR g.grantee = to_regrole($2) AND g.privilege_type IN ('INSERT', 'UPDATE')))
	GROUP BY o.what, o.name, o.oid, o.owner, o.columns, r.rolname, g.grantor)
SELECT format('rights %s %s', what, name), format('%s has %s, granted by %s', grantee, privileges, grantor),
	CASE WHEN plain THEN '' ELSE format('SET ROLE %s; ', grantor) END || format('REVOKE %s ON %s %s FROM %s CASCADE', privileges, what, full_name, grantee)
		|| CASE WHEN plain THEN '' ELSE '; RESET ROLE' END
FROM x`

// tableDifferences returns the differences of tables, columns, constraints, indexes, sequences,
// types and owners, of the triggers of partitions and foreign keys, and triggers that are not qtop's.
// records are the objects that the last migration recorded. astray holds the relations
// and functions that another role owns.
func (r *Release) tableDifferences(ctx context.Context, q querier, set roleSet, records map[key]recorded) (out []Difference, astray map[string]bool, err error) {
	names := r.tables.names()
	found, err := readForms(ctx, q, set.owner(), names)
	if err != nil {
		return nil, nil, err
	}
	for k, want := range r.tables {
		live, there := found[k]
		switch {
		case !there && k.name != k.relation() && !found.has(table, k.relation()) && !found.has(domain, k.relation()): // the missing table is reported, not its parts
		case !there && k.kind == sequence && r.identityOf(k.name, found): // dropped with the identity, and created again with it
		case !there:
			out = append(out, r.missing(k, want, set.owner()))
		case live != want:
			out = append(out, r.changed(k, want, live))
		}
	}
	for k, live := range found {
		if _, known := r.tables[k]; !known && (r.tables.has(table, k.relation()) || r.tables.has(domain, k.relation())) {
			out = append(out, r.added(k, live))
		}
	}
	look := func(sql string, args ...any) error {
		d := Difference{harm: true}
		return pgrow.Visit(ctx, q, []any{&d.Object, &d.Why, &d.Remedy}, func() { out = append(out, d) }, sql, args...)
	}
	before := len(out)
	if err := look(ownersSQL, set.owner(), append(r.own.relations(), names...), r.own.functions()); err != nil {
		return nil, nil, err
	}
	astray = map[string]bool{}
	for _, d := range out[before:] {
		_, name, _ := strings.Cut(d.Object, " ")
		astray[name] = true
	}
	if err := look(schemaSQL, set.all(), set.owner()); err != nil {
		return nil, nil, err
	}
	if err := look(grantsSQL, set.all(), set.owner(), names, versionTable); err != nil {
		return nil, nil, err
	}
	if err := look(firingSQL, names); err != nil {
		return nil, nil, err
	}
	var triggers []string
	for k := range records { // also those of another release, which migrate up drops
		if k.kind == trigger {
			triggers = append(triggers, k.name)
		}
	}
	for _, o := range r.objects {
		if o.kind == trigger {
			triggers = append(triggers, o.name)
		}
	}
	if err := look(addedTriggersSQL, names, set.owner(), triggers); err != nil {
		return nil, nil, err
	}
	if err := look(leavesSQL, names); err != nil {
		return nil, nil, err
	}
	if err := look(storedSQL, names); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(out, func(a, b Difference) int { // types first: how a constraint is printed depends on its type
		isType := func(d Difference) int { return queue.Choose(strings.HasPrefix(d.Object, "enum "), 0, 1) }
		return cmp.Or(cmp.Compare(isType(a), isType(b)), strings.Compare(a.Object+a.Why, b.Object+b.Why))
	})
	return out, astray, nil
}

// identityOf reports whether the sequence belongs to an identity column that the database has lost.
func (r *Release) identityOf(name string, found forms) bool {
	for k, want := range r.tables {
		if k.kind == column && strings.HasSuffix(want, " AS IDENTITY") && strings.ReplaceAll(k.name, ".", "_")+"_seq" == name {
			return found[k] != want
		}
	}
	return false
}

// relation returns the name of the table or type that the part is, or to which it belongs.
func (k part) relation() string {
	switch k.kind {
	case column:
		name, _, _ := strings.Cut(k.name, ".")
		return name
	case constraint, index:
		_, of, _ := strings.Cut(k.name, " on ")
		return of
	default:
		return k.name
	}
}

// ident returns the name of the part without its table, as an SQL identifier.
func (k part) ident() string {
	name, _, _ := strings.Cut(k.name, " on ")
	if k.kind == column {
		_, name, _ = strings.Cut(name, ".")
	}
	return quoted(name)
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quoted returns the identifier, in quotes if it needs them. Names of qtop never need quotes, and
// none is a keyword.
func quoted(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
