package schema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatements(t *testing.T) {
	const text = `-- a comment; with a semicolon
CREATE TABLE a (b text DEFAULT 'it''s; here'); -- behind
/* another; one */
DO $do$ BEGIN RAISE NOTICE 'x;'; EXECUTE $$ SELECT 1; $$; END $do$;

SELECT $1, "odd;name"; SELECT 2`
	var got []string
	var lines []int
	for _, s := range statements(text) {
		got, lines = append(got, s.sql), append(lines, s.line)
	}
	require.Equal(t, []string{
		`CREATE TABLE a (b text DEFAULT 'it''s; here');`,
		`DO $do$ BEGIN RAISE NOTICE 'x;'; EXECUTE $$ SELECT 1; $$; END $do$;`,
		`SELECT $1, "odd;name";`, `SELECT 2`,
	}, got)
	require.Equal(t, []int{2, 4, 6, 6}, lines)
	require.Empty(t, statements("-- nothing\n"))
	require.Equal(t, "SELECT 1 \n, '-- no'", strings.TrimSpace(uncommented("SELECT 1 -- one\n, '-- no'")))
}

func FuzzStatements(f *testing.F) {
	f.Add("SELECT 1; -- x\nSELECT $a$ ; $a$;")
	f.Add("'open")
	f.Add("$a$ open")
	f.Add("/* open")
	f.Fuzz(func(t *testing.T, text string) {
		at := 0
		for _, s := range statements(text) { // each statement must be in the text, after the one before
			i := strings.Index(text[at:], s.sql)
			require.GreaterOrEqual(t, i, 0)
			at += i + len(s.sql)
		}
	})
}

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		`GRANT SELECT ON t TO :"queue_viewer", :"dot_executor";`:        `GRANT SELECT ON t TO "queue_viewer", "dot_executor";`,
		`current_user <> :'queue_owner'`:                                `current_user <> 'queue_owner'`,
		`x IN (:executor_kinds)`:                                        `x IN ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')`,
		`:'executor_kinds'::text[]`:                                     `'{DOT,Agent,Hermes,Codex,PG_worker,external_worker,future_Kestra_adapter}'::text[]`,
		`a::denied_keys, a:denied_keys, '{"a":"b"}', v := 1, x[1:2], :`: `a::denied_keys, a:denied_keys, '{"a":"b"}', v := 1, x[1:2], :`,
		`to_char(t, 'HH24:MI:SS"Z"') ':' ::text`:                        `to_char(t, 'HH24:MI:SS"Z"') ':' ::text`,
	} {
		got, err := expand(in, roleSet{})
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	_, err := expand(`:'queue_veiwer'`, roleSet{})
	require.ErrorContains(t, err, "names no role and no list")
}

func TestDeclared(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE OR REPLACE FUNCTION public.fn_a(x int) RETURNS int AS $$ $$;":                                        "function fn_a",
		"CREATE OR REPLACE VIEW public.v_a AS SELECT 1;":                                                             "view v_a",
		"CREATE OR REPLACE TRIGGER t BEFORE UPDATE OF a, b ON public.x\n  FOR EACH ROW EXECUTE FUNCTION public.f();": "trigger t on x",
		"CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON public.x DEFERRABLE FOR EACH ROW EXECUTE FUNCTION public.f();":  "trigger t on x",
		"GRANT SELECT (a, b), UPDATE ON public.x, public.y\n  TO :\"queue_viewer\";":                                 "rights TABLE x, rights TABLE y",
		"GRANT EXECUTE ON FUNCTION public.fn_a TO :\"queue_viewer\";":                                                "rights FUNCTION fn_a",
		"COMMENT ON COLUMN public.x.a IS 'it is; so';":                                                               "comment COLUMN x.a",
	} {
		all, err := declared(statement{sql, 1}, "f.sql")
		require.NoError(t, err, sql)
		var got []string
		for _, o := range all {
			got = append(got, o.String())
		}
		require.Equal(t, want, strings.Join(got, ", "))
	}
	for _, sql := range []string{"CREATE FUNCTION public.f() RETURNS int", "CREATE OR REPLACE VIEW v AS SELECT 1;", "SELECT 1;"} {
		_, err := declared(statement{sql, 3}, "f.sql")
		require.ErrorContains(t, err, "f.sql:3", sql)
	}
}
