// The hostile pass: every name that qtop's SQL uses has doubles in schema public and in a schema
// that is first on the search_path. None of the doubles may ever be called.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// Every function, relation and operator that a PL/pgSQL function of qtop uses, according to
// plpgsql_check, is in pg_catalog or belongs to qtop.
func TestHostileDependencies(t *testing.T) {
	c := newCore(t)
	if !get[bool](c, "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'plpgsql_check')") {
		t.Skip("NOT CHECKED: this server has no plpgsql_check (Debian: postgresql-15-plpgsql-check)")
	}
	c.exec("CREATE SCHEMA checker; CREATE EXTENSION plpgsql_check SCHEMA checker")
	pgtest.Hostile(t, c.db)
	pgtest.HostileOverloads(t, c.db)
	const foreign = `
		WITH fn AS (
			SELECT p.oid, COALESCE(min(t.tgrelid), 0) AS rel -- of a statement's trigger nothing is known without its rows
			FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
			LEFT JOIN pg_trigger t ON t.tgfoid = p.oid AND NOT t.tgisinternal AND t.tgparentid = 0
			WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = 'queue_owner'::regrole GROUP BY p.oid, p.prorettype
			HAVING p.prorettype <> 'trigger'::regtype OR min(t.tgrelid) IS NOT NULL AND max(COALESCE(t.tgnewtable, t.tgoldtable)) IS NULL)
		SELECT DISTINCT f.oid::regproc || ' → ' || d.type || ' ' || d.schema || '.' || d.name || COALESCE(d.params, '')
		FROM fn f CROSS JOIN LATERAL checker.plpgsql_show_dependency_tb(f.oid, f.rel) d
		LEFT JOIN pg_proc p ON d.type = 'FUNCTION' AND p.oid = d.oid
		LEFT JOIN pg_class r ON d.type = 'RELATION' AND r.oid = d.oid
		LEFT JOIN pg_operator o ON d.type = 'OPERATOR' AND o.oid = d.oid
		WHERE COALESCE(p.pronamespace, r.relnamespace, o.oprnamespace) <> 'pg_catalog'::regnamespace
			AND COALESCE(p.proowner, r.relowner, o.oprowner) <> 'queue_owner'::regrole`
	c.none("calls what is not ours", foreign)
	require.Empty(t, c.db.Calls(t))
}
