package main

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// schemaFiles is a copy of the schema that a test may change.
func schemaFiles(t *testing.T) fstest.MapFS {
	t.Helper()
	src, out := os.DirFS(".."), fstest.MapFS{}
	for _, pattern := range []string{"migrations/*.sql", "code/*.sql", "moves/*.sql", "*.sql", "*.txt"} {
		names, err := fs.Glob(src, pattern)
		require.NoError(t, err)
		for _, name := range names {
			b, err := fs.ReadFile(src, name)
			require.NoError(t, err)
			out[name] = &fstest.MapFile{Data: b}
		}
	}
	return out
}

func TestSchemaIsClean(t *testing.T) {
	require.Empty(t, check(schemaFiles(t)))
}

// small is a schema of a few objects: fn_a is granted, fn_b is internal.
func small(t *testing.T) fstest.MapFS {
	t.Helper()
	const body = "\nLANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN END $$;\n"
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"migrations/001_a.sql": "CREATE TABLE public.b (x int);\n---- create above / drop below ----\nDROP TABLE public.b;\n",
		"migrations/002_b.sql": "---- create above / drop below ----\n",
		"code/a.sql":           "CREATE OR REPLACE FUNCTION public.fn_a() RETURNS void" + body + "GRANT EXECUTE ON FUNCTION public.fn_a TO :\"queue_viewer\";\n",
		"code/b.sql": "CREATE OR REPLACE FUNCTION public.fn_b() RETURNS trigger" + body + "CREATE OR REPLACE VIEW public.v_b AS SELECT 1;\n" +
			"COMMENT ON VIEW public.v_b IS 'one';\nCREATE OR REPLACE TRIGGER trg_b BEFORE UPDATE ON public.b FOR EACH ROW EXECUTE FUNCTION public.fn_b();\n",
		"seeds.sql":   "SELECT 0;\n",
		"objects.txt": "", "tables.txt": "", "rows.txt": "", "release.txt": "code 1 # first\n",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	text, err := frozen(files, "0.1.0")
	require.NoError(t, err)
	files["released.txt"] = &fstest.MapFile{Data: []byte(text)}
	require.Empty(t, check(files))
	return files
}

func TestCheckFinds(t *testing.T) {
	add := func(name, text string) func(fstest.MapFS) {
		return func(f fstest.MapFS) {
			old := ""
			if at := f[name]; at != nil {
				old = string(at.Data)
			}
			f[name] = &fstest.MapFile{Data: []byte(old + text)}
		}
	}
	replace := func(name, old, text string) func(fstest.MapFS) {
		return func(f fstest.MapFS) {
			require.Contains(t, string(f[name].Data), old)
			f[name] = &fstest.MapFile{Data: []byte(strings.Replace(string(f[name].Data), old, text, 1))}
		}
	}
	const body = " RETURNS void\nLANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN END $$;\n"
	for _, c := range []struct {
		name   string
		change func(fstest.MapFS)
		want   string
	}{
		{"a function twice", add("code/a.sql", "CREATE OR REPLACE FUNCTION public.fn_b(p_key text)"+body), "function fn_b is defined already in code/a.sql"},
		{"an overload", add("code/a.sql", "CREATE OR REPLACE FUNCTION public.fn_b(p_key text, p_x int DEFAULT 1)"+body), "function fn_b is defined already"},
		{"a view twice", add("code/a.sql", "CREATE OR REPLACE VIEW public.v_b AS SELECT 1;\n"), "view v_b is defined already in code/a.sql"},
		{"a trigger twice", add("code/a.sql", "CREATE OR REPLACE TRIGGER trg_b BEFORE UPDATE ON public.b EXECUTE FUNCTION public.fn_b();\n"), "is defined already"},
		{"a comment twice", add("code/a.sql", "COMMENT ON VIEW public.v_b IS 'x';\n"), "comment VIEW v_b is defined already"},
		{"a long line", add("code/a.sql", "-- "+strings.Repeat("é", 118)+"\n"), "121 characters, at most 120"},
		{"a long line of a migration", add("migrations/999_x.sql", "-- "+strings.Repeat("x", 118)), "121 characters"},
		{"a released migration", add("migrations/001_a.sql", "\n-- more\n"), "migrations/001_a.sql: a released migration was changed"},
		{"a released migration gone", func(f fstest.MapFS) { delete(f, "migrations/002_b.sql") }, "it was released and must stay"},
		{"public on the path", replace("code/a.sql", "pg_catalog, pg_temp", "pg_catalog, public, pg_temp"), "search_path = pg_catalog, public, pg_temp: it must be"},
		{"public in quotes on the path", replace("code/a.sql", "search_path = pg_catalog, pg_temp", "search_path TO 'pg_catalog', 'public'"), "it must be pg_catalog, pg_temp"},
		{"compiled", replace("code/a.sql", "pg_temp AS", "pg_temp SET enable_seqscan = off AS"), "avoids a kind of plan and does not SET jit = off"},
		{"no path", replace("code/a.sql", " SET search_path = pg_catalog, pg_temp", ""), "does not SET search_path"},
		{"a backslash", replace("code/a.sql", "BEGIN END", `BEGIN PERFORM E'\\d' || 'it''s \d'; END`), "function fn_a has a backslash in a literal and does not SET"},
		{"code changed, number not", add("code/a.sql", "-- x\n"), "the number must rise"},
		{"seeds changed, number not", add("seeds.sql", "SELECT 1;\n"), "the number must rise"},
		{"a function gone", replace("code/b.sql", "FUNCTION public.fn_b(", "FUNCTION public.fn_c("), "function fn_b was released and is gone"},
		{"a granted function gone", replace("code/a.sql", "FUNCTION public.fn_a(", "FUNCTION public.fn_not("), "code/retired.sql: function fn_a was released and others may use it"},
		{"many arguments", add("code/a.sql", "CREATE OR REPLACE VIEW public.v_x AS SELECT public.fn_a('a', ',', (SELECT max(1, 2)), NULL, 'e', 'f');\n"), "the call of fn_a has 6 arguments without names"},
		{"a change of case", add("code/a.sql", "CREATE OR REPLACE VIEW public.v_x AS SELECT upper(left('i', 1)) AS x, lower('I' COLLATE \"C\") AS y;\n"), "code/a.sql:4: upper depends on the language of the database"},
		{"a placeholder", add("code/a.sql", "GRANT SELECT ON public.v_b TO :\"queue_veiwer\";\n"), `placeholder :"queue_veiwer" names no role and no list`},
		{"something else", add("code/a.sql", "CREATE TABLE public.x ();\n"), "declares no function, view, trigger, grant or comment"},
		{"a hole in the numbers", add("migrations/999_x.sql", "SELECT 1;\n"), "its number must be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := small(t)
			c.change(files)
			require.Contains(t, strings.Join(check(files), "\n"), c.want)
		})
	}
}

func TestBackslashThatNeedsNoSetting(t *testing.T) {
	for _, body := range []string{`RETURN E'\\d\'' || 'it''s';`, "RETURN 1; -- don't \\ \n", `RETURN '';`} {
		require.False(t, backslash("AS $$ BEGIN "+body+" END $$"), body)
	}
}

// What is released is retired for one release before it goes.
func TestRetiredForOneRelease(t *testing.T) {
	files := small(t)
	release := func(text string) { files["release.txt"] = &fstest.MapFile{Data: []byte(text)} }
	files["code/retired.sql"] = files["code/a.sql"]
	delete(files, "code/a.sql")
	require.Contains(t, strings.Join(check(files), "\n"), "the number must rise")
	release("code 2\n")
	require.Empty(t, check(files), "it is retired in release 2")
	now, err := frozen(files, "0.2.0")
	require.NoError(t, err)
	require.Contains(t, now, "function fn_a: granted retired")
	files["released.txt"] = &fstest.MapFile{Data: []byte(now)}
	delete(files, "code/retired.sql")
	release("code 3\ndropped function fn_a\n")
	require.Empty(t, check(files), "and gone in release 3")
}
