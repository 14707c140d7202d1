// No object that a caller creates can take the place of one that a function of qtop uses: every
// name in the body of the function is qualified, so it is found although schema public is on no
// search path, and the caller's objects are searched last.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCaptureIsImpossible(t *testing.T) {
	c := newCore(t)
	if !get[bool](c, "SELECT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'plpgsql_check')") {
		t.Skip("NOT CHECKED: this server has no plpgsql_check (Debian: postgresql-15-plpgsql-check)")
	}
	c.exec("CREATE SCHEMA checker; CREATE EXTENSION plpgsql_check SCHEMA checker")
	// Two functions that can be captured prove that the check finds such functions.
	c.exec(`CREATE FUNCTION public.fn_captured() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN (SELECT count(*) FROM dot_config); END'`)
	c.exec(`SET LOCAL check_function_bodies = off;
		CREATE FUNCTION public.fn_captured_too() RETURNS boolean LANGUAGE sql SECURITY DEFINER AS 'SELECT fn_queue_notify_enabled()'`)

	// PL/pgSQL bodies are checked with plpgsql_check, SQL bodies by creating the function again,
	// both with a search_path without public.
	c.exec(`DO $do$
		DECLARE f record;
		BEGIN
			CREATE TABLE checker.found (fn text, said text);
			FOR f IN SELECT p.oid::regprocedure AS fn, l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE ` + publicFunctions + ` LOOP
				EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f.fn);
				CONTINUE WHEN f.lanname <> 'sql';
				BEGIN
					EXECUTE pg_get_functiondef(f.fn);
				EXCEPTION WHEN undefined_table OR undefined_function OR undefined_object THEN
					INSERT INTO checker.found VALUES (f.fn, SQLERRM);
				END;
			END LOOP;
			SET LOCAL search_path = pg_catalog, pg_temp;
			INSERT INTO checker.found
			SELECT p.oid::regprocedure, r.message FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'plpgsql'
			LEFT JOIN LATERAL (SELECT tgrelid, max(tgnewtable) AS new, NULLIF(max(tgoldtable), max(tgnewtable)) AS old FROM pg_trigger
				WHERE tgfoid = p.oid AND NOT tgisinternal AND tgparentid = 0 GROUP BY 1 LIMIT 1) t ON true
			CROSS JOIN LATERAL checker.plpgsql_check_function_tb(p.oid, COALESCE(t.tgrelid, 0), oldtable => t.old, newtable => t.new, fatal_errors => false) r
			WHERE ` + publicFunctions + ` AND (p.prorettype <> 'trigger'::regtype OR t.tgrelid IS NOT NULL)
				AND r.sqlstate IN ('42P01', '42883', '42704', '3F000');
		END $do$`)
	require.Equal(t, "fn_captured(),fn_captured_too()", get[string](c, "SELECT string_agg(DISTINCT replace(fn, 'public.', ''), ',') FROM checker.found"),
		get[string](c, "SELECT string_agg(fn || ': ' || said, '; ') FROM checker.found"))
}
