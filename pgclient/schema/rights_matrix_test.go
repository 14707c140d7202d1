// The rights of every role on every table, sequence and function, found by trying them and compared
// with testdata/rights.txt: a new right fails the test until the file has it.

package schema_test

import (
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the kept lists and generated documents anew")

// roles are those of the contract; nobody_in_particular has no rights and so shows those of PUBLIC.
var roles = []string{"queue_viewer", "dot_executor", "workflow_admin", "dead_letter_operator", "event_ingest_writer", "router_worker", "saga_orchestrator",
	"webhook_worker", "lease_reset_cleaner", "subscription_admin", "nobody_in_particular"}

// may_do runs a statement as a role, undoes it, and returns whether the role had the right; other
// errors of the statement count as success.
const mayDo = `
CREATE ROLE nobody_in_particular;
CREATE SCHEMA probe;
CREATE FUNCTION probe.may_do(p_role text, p_object text, p_sql text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('role', p_role, true);
  EXECUTE p_sql;
  RAISE EXCEPTION SQLSTATE 'P9999';
EXCEPTION WHEN insufficient_privilege THEN
  RETURN SQLERRM !~ ('^permission denied for [a-z ]+ ' || p_object || '$');
WHEN OTHERS THEN
  RETURN true;
END $$;
-- columns are all of them, or those named
CREATE FUNCTION probe.columns(p_role text, p_table regclass, p_verb text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  v_name text := (SELECT relname FROM pg_class WHERE oid = p_table);
  v_all text[] := ARRAY(SELECT quote_ident(attname) FROM pg_attribute WHERE attrelid = p_table AND attnum > 0 AND NOT attisdropped
    AND (p_verb = 'SELECT' OR attgenerated = '') ORDER BY attnum);
  v_one text;
  v_sql text := CASE p_verb WHEN 'SELECT' THEN 'SELECT %s FROM %s LIMIT 0'
    WHEN 'INSERT' THEN 'INSERT INTO %2$s (%1$s) OVERRIDING SYSTEM VALUE SELECT %3$s WHERE false'
    ELSE 'UPDATE %2$s SET (%1$s) = ROW(%4$s) WHERE false' END;
  v_some text[] := ARRAY[]::text[];
BEGIN
  IF probe.may_do(p_role, v_name, format(v_sql, array_to_string(v_all, ', '), p_table, array_to_string(array_fill('NULL'::text, ARRAY[array_length(v_all, 1)]), ', '),
    array_to_string(array_fill('DEFAULT'::text, ARRAY[array_length(v_all, 1)]), ', '))) THEN
    RETURN p_verb;
  END IF;
  FOREACH v_one IN ARRAY v_all LOOP
    IF probe.may_do(p_role, v_name, format(v_sql, v_one, p_table, 'NULL', 'DEFAULT')) THEN
      v_some := v_some || v_one;
    END IF;
  END LOOP;
  RETURN CASE WHEN v_some = '{}' THEN '' ELSE p_verb || '(' || array_to_string(v_some, ', ') || ')' END;
END $$`

const matrix = `
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
  SELECT format('%s %s: %s may %s', CASE c.relkind WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname, r, concat_ws(' ', VARIADIC v.verbs)) AS line
  FROM pg_class c CROSS JOIN unnest($1::text[]) r
  CROSS JOIN LATERAL (SELECT array_remove(CASE c.relkind
    WHEN 'S' THEN ARRAY[CASE WHEN probe.may_do(r, c.relname, format('SELECT nextval(%L)', c.oid::regclass)) THEN 'nextval' END,
      CASE WHEN probe.may_do(r, c.relname, format('SELECT setval(%L, 1)', c.oid::regclass)) THEN 'setval' END]
    WHEN 'v' THEN ARRAY[NULLIF(probe.columns(r, c.oid, 'SELECT'), ''), CASE WHEN has_table_privilege(r, c.oid, 'INSERT, UPDATE, DELETE') THEN 'WRITE' END]
    ELSE ARRAY[NULLIF(probe.columns(r, c.oid, 'SELECT'), ''), NULLIF(probe.columns(r, c.oid, 'INSERT'), ''), NULLIF(probe.columns(r, c.oid, 'UPDATE'), ''),
      CASE WHEN probe.may_do(r, c.relname, format('DELETE FROM %s WHERE false', c.oid::regclass)) THEN 'DELETE' END,
      CASE WHEN probe.may_do(r, c.relname, format('TRUNCATE %s', c.oid::regclass)) THEN 'TRUNCATE' END,
      CASE WHEN probe.may_do(r, c.relname, format('CREATE TRIGGER x BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()', c.oid::regclass)) THEN 'TRIGGER' END]
    END, NULL) AS verbs) v
  WHERE ` + publicRelations + ` AND c.relkind IN ('r', 'p', 'v', 'S') AND v.verbs <> '{}'
  UNION ALL
  SELECT format('function %s: %s may call it', p.oid::regprocedure, string_agg(r, ', ' ORDER BY r))
  FROM pg_proc p CROSS JOIN unnest($1::text[]) r
  WHERE ` + publicFunctions + ` AND probe.may_do(r, p.proname, format('SELECT %s(%s)', p.oid::regproc,
    (SELECT string_agg('NULL::' || format_type(a, NULL), ', ') FROM unnest(p.proargtypes) a)))
  GROUP BY p.oid
  UNION ALL
  SELECT format('function %s: internal', p.oid::regprocedure) FROM pg_proc p WHERE ` + publicFunctions + ` AND NOT EXISTS (
    SELECT 1 FROM unnest($1::text[]) r WHERE has_function_privilege(r, p.oid, 'EXECUTE'))
) l`

var leafName = regexp.MustCompile(`_(\d{4}_\d\d(_\d\d)?|default): `)

func TestRightsMatrix(t *testing.T) {
	c := newCore(t)
	c.exec("DROP ROLE IF EXISTS nobody_in_particular")
	c.exec(mayDo)
	t.Cleanup(func() { _, _ = c.root.Exec(context.Background(), "DROP ROLE IF EXISTS nobody_in_particular") })
	conn := c.db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "SET statement_timeout = '3min'")
	require.NoError(t, err)
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), matrix, roles).Scan(&text))
	var lines []string
	seen := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		line = leafName.ReplaceAllString(strings.ReplaceAll(line, "public.", ""), "_(leaf): ") // the leaves of a table share one line, or one per set of rights
		if !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/rights.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/rights.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "rights are not as they were written down; if they are meant: go test ./pgclient/schema -run RightsMatrix -update")
}
