// docs/schema.md is made from the catalogue of a database that has just been migrated, so that it
// always agrees with the schema. This command writes it again:
//
//	go test ./pgclient/schema -run SchemaDocument -update

package schema_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const documentHead = `# The schema

What ` + "`qtop migrate up`" + ` installs in schema public, with what the catalogue says of it. Written by ` + "`make docs`" + ` from a fresh database;
in psql the same stands in ` + "`\\d+`, `\\df+` and `\\dp`" + `. All objects belong to queue_owner, which nobody logs in as; functions that
change anything run with its rights, so that a role needs EXECUTE alone. S, I, U after a role: SELECT, INSERT, UPDATE of the whole
table; lower case: of some columns, those that are no payload.

`

// chapters has one query per chapter; each query returns one or more lines of Markdown per object,
// ordered by name.
var chapters = []struct{ title, sql string }{
	{"Tables", `
		WITH rights AS (
			SELECT c.oid, string_agg(g.role || ' ' || g.may, ', ' ORDER BY g.role) AS text FROM pg_class c CROSS JOIN LATERAL (
				SELECT r.rolname AS role, string_agg(x.letter, '' ORDER BY x.n) AS may FROM pg_roles r
				CROSS JOIN LATERAL (SELECT v.n, CASE WHEN has_table_privilege(r.oid, c.oid, v.verb) THEN v.letter
					WHEN has_any_column_privilege(r.oid, c.oid, v.verb) THEN lower(v.letter) END AS letter
					FROM (VALUES (1, 'SELECT', 'S'), (2, 'INSERT', 'I'), (3, 'UPDATE', 'U')) v (n, verb, letter)) x
				WHERE r.rolname = ANY ($1) AND x.letter IS NOT NULL GROUP BY r.rolname) g
			WHERE ` + publicRelations + ` GROUP BY c.oid)
		SELECT format(E'### %s\n\n%s\n\n', c.relname, obj_description(c.oid)) || CASE WHEN c.relkind = 'p' THEN
				(SELECT format(E'Partitioned by %s, one leaf a %s (UTC), made %s ahead.\n\n', p.time_column, p.step, p.ahead) FROM public.queue_partitioned p WHERE p.parent = c.relname) ELSE '' END
			|| COALESCE('May: ' || r.text || E'.\n\n', E'No role may touch it; functions do.\n\n')
			|| E'| column | type | default | |\n|---|---|---|---|\n'
			|| (SELECT string_agg(format('| %s | %s | %s | %s |', a.attname, format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
					CASE WHEN a.attidentity <> '' THEN 'identity' WHEN a.attgenerated <> '' THEN 'generated' ELSE replace(COALESCE(pg_get_expr(d.adbin, d.adrelid), ''), '|', '\|') END,
					replace(COALESCE(col_description(c.oid, a.attnum), ''), '|', '\|')), E'\n' ORDER BY a.attnum)
				FROM pg_attribute a LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum) WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
			|| COALESCE(E'\n\n' || (SELECT string_agg('- ' || regexp_replace(regexp_replace(pg_get_indexdef(i.indexrelid), '\s+', ' ', 'g'), '^CREATE (UNIQUE )?INDEX (\w+) ON (ONLY )?public\.\w+ USING (btree )?', '\2: \1'), E'\n' ORDER BY i.indisprimary DESC, i.indexrelid::regclass::text)
				FROM pg_index i WHERE i.indrelid = c.oid), '')
			|| COALESCE(E'\n' || (SELECT string_agg(format('- %s: %s', o.conname, replace(regexp_replace(pg_get_constraintdef(o.oid), '\s+', ' ', 'g'), '::text', '')), E'\n' ORDER BY o.conname)
				FROM pg_constraint o WHERE o.conrelid = c.oid AND o.contype IN ('c', 'f')), '') || E'\n'
		FROM pg_class c LEFT JOIN rights r USING (oid)
		WHERE ` + publicRelations + ` AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname <> 'qtop_schema_version' ORDER BY c.relname`},
	{"Domains", `
		SELECT format('- **%s** %s: %s %s', t.typname, format_type(t.typbasetype, t.typtypmod), obj_description(t.oid, 'pg_type'),
			(SELECT string_agg(replace(regexp_replace(pg_get_constraintdef(o.oid), '\s+', ' ', 'g'), '::text', ''), ' ') FROM pg_constraint o WHERE o.contypid = t.oid))
		FROM pg_type t WHERE ` + publicTypes + ` AND t.typtype = 'd' AND $1::text[] IS NOT NULL ORDER BY t.typname`},
	{"Views", `
		SELECT format(E'### %s\n\n%s\n\nMay: %s.\n\n%s\n', c.relname, obj_description(c.oid),
			COALESCE((SELECT string_agg(r.rolname || CASE WHEN has_table_privilege(r.oid, c.oid, 'SELECT') THEN ' S' ELSE ' s' END, ', ' ORDER BY r.rolname) FROM pg_roles r
				WHERE r.rolname = ANY ($1) AND has_any_column_privilege(r.oid, c.oid, 'SELECT')), 'functions alone'),
			(SELECT string_agg(format('- %s %s%s', a.attname, format_type(a.atttypid, a.atttypmod), COALESCE(': ' || col_description(c.oid, a.attnum), '')), E'\n' ORDER BY a.attnum)
				FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0))
		FROM pg_class c WHERE ` + publicRelations + ` AND c.relkind = 'v' AND $1::text[] IS NOT NULL ORDER BY c.relname`},
	{"Functions", `
		SELECT format(E'- **%s**(%s) → %s. %s *%s*', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), obj_description(p.oid),
			COALESCE((SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname) FROM pg_roles r WHERE r.rolname = ANY ($1) AND has_function_privilege(r.oid, p.oid, 'EXECUTE')), 'internal'))
		FROM pg_proc p WHERE ` + publicFunctions + ` AND p.prorettype <> 'trigger'::regtype ORDER BY p.proname, p.oid::regprocedure::text`},
	{"Triggers", `
		SELECT format('- %s: %s', string_agg(t.tgname || ' on ' || t.tgrelid::regclass, ', ' ORDER BY t.tgrelid::regclass::text, t.tgname), obj_description(p.oid))
		FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid AND NOT c.relispartition
		WHERE NOT t.tgisinternal AND ` + publicRelations + ` AND $1::text[] IS NOT NULL GROUP BY p.oid, p.proname ORDER BY p.proname`},
	{"Flags (dot_config)", `
		SELECT '| key | default | |' UNION ALL SELECT '|---|---|---|' UNION ALL
		(SELECT format('| %s | %s | %s |', key, value, description) FROM public.dot_config WHERE $1::text[] IS NOT NULL ORDER BY key)`},
	{"Tick workers", `
		SELECT '| worker | function | flag | pg_cron job |' UNION ALL SELECT '|---|---|---|---|' UNION ALL
		(SELECT format('| %s | %s | %s | %s |', worker_name, function, COALESCE(flag_key, ''), CASE WHEN cron_job THEN 'yes' ELSE '' END)
		FROM public.queue_tick_worker WHERE $1::text[] IS NOT NULL ORDER BY worker_name)`},
}

func TestSchemaDocument(t *testing.T) {
	c := newCore(t)
	got := documentHead
	for _, chapter := range chapters {
		rows, err := c.root.Query(t.Context(), chapter.sql, roles[:10])
		require.NoError(t, err, chapter.title)
		got += "## " + chapter.title + "\n\n"
		for _, line := range texts(t, rows) {
			got += strings.ReplaceAll(line, "public.", "") + "\n"
		}
		got += "\n"
	}
	const path = "../../docs/schema.md"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "docs/schema.md is not as the schema is: make docs")
}
