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
		{"a function twice", add("code/why.sql", "CREATE OR REPLACE FUNCTION public.fn_cfg_bool(p_key text)"+body), "function fn_cfg_bool is defined already in code/config.sql"},
		{"an overload", add("code/why.sql", "CREATE OR REPLACE FUNCTION public.fn_cfg_bool(p_key text, p_x int DEFAULT 1)"+body), "function fn_cfg_bool is defined already"},
		{"a view twice", add("code/why.sql", "CREATE OR REPLACE VIEW public.v_job AS SELECT 1;\n"), "view v_job is defined already in code/job_tables.sql"},
		{"a trigger twice", add("code/why.sql", "CREATE OR REPLACE TRIGGER trg_events_immutable BEFORE UPDATE ON public.events EXECUTE FUNCTION public.fn_refuse_change();\n"), "is defined already"},
		{"a comment twice", add("code/why.sql", "COMMENT ON VIEW public.v_job IS 'x';\n"), "comment VIEW v_job is defined already"},
		{"a long line", add("code/why.sql", "-- "+strings.Repeat("é", 118)+"\n"), "121 characters, at most 120"},
		{"a long line of a migration", add("migrations/999_x.sql", "-- "+strings.Repeat("x", 118)), "121 characters"},
		{"a released migration", add("migrations/005_webhook_tables.sql", "\n-- more\n"), "migrations/005_webhook_tables.sql: a released migration was changed"},
		{"a released migration gone", func(f fstest.MapFS) { delete(f, "migrations/024_installed_objects.sql") }, "it was released and must stay"},
		{"public on the path", replace("code/why.sql", "pg_catalog, pg_temp", "pg_catalog, public, pg_temp"), "search_path = pg_catalog, public, pg_temp: it must be"},
		{"public in quotes on the path", replace("code/why.sql", "search_path = pg_catalog, pg_temp", "search_path TO 'pg_catalog', 'public'"), "it must be pg_catalog, pg_temp"},
		{"no path", replace("code/why.sql", " SET search_path = pg_catalog, pg_temp", ""), "does not SET search_path"},
		{"code changed, number not", add("code/why.sql", "-- x\n"), "the number must rise"},
		{"seeds changed, number not", add("seeds.sql", "SELECT 1;\n"), "the number must rise"},
		{"a function gone", replace("code/audit.sql", "FUNCTION public.fn_words(", "FUNCTION public.fn_wordy("), "function fn_words was released and is gone"},
		{"a granted function gone", replace("code/why.sql", "FUNCTION public.fn_queue_why(", "FUNCTION public.fn_queue_why_not("), "code/retired.sql: function fn_queue_why was released and others may use it"},
		{"many arguments", add("code/why.sql", "CREATE OR REPLACE VIEW public.v_x AS SELECT public.fn_why_link('a', ',', (SELECT max(1, 2)), NULL, 'e', 'f');\n"), "the call of fn_why_link has 6 arguments without names"},
		{"a placeholder", add("code/why.sql", "GRANT SELECT ON public.v_job TO :\"queue_veiwer\";\n"), `:"queue_veiwer" stands for nothing`},
		{"something else", add("code/why.sql", "CREATE TABLE public.x ();\n"), "declares no function, view, trigger, grant or comment"},
		{"a hole in the numbers", add("migrations/999_x.sql", "SELECT 1;\n"), "is due here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := schemaFiles(t)
			c.change(files)
			require.Contains(t, strings.Join(check(files), "\n"), c.want)
		})
	}
}

// What is released is retired for one release before it goes.
func TestRetiredForOneRelease(t *testing.T) {
	files := schemaFiles(t)
	text := string(files["code/why.sql"].Data)
	start := strings.Index(text, "CREATE OR REPLACE FUNCTION public.fn_queue_why(") // the last of its file
	files["code/retired.sql"] = &fstest.MapFile{Data: []byte(text[start:])}
	files["code/why.sql"] = &fstest.MapFile{Data: []byte(text[:start])}
	require.Contains(t, strings.Join(check(files), "\n"), "the number must rise")
	raise := func(n string) {
		files["release.txt"] = &fstest.MapFile{Data: []byte(strings.Replace(string(files["release.txt"].Data), "code 1 ", "code "+n+" ", 1))}
	}
	raise("2")
	require.Empty(t, check(files), "it is retired in release 2")
	now, err := frozen(files)
	require.NoError(t, err)
	require.Contains(t, now, "function fn_queue_why: granted retired")
	files["released.txt"] = &fstest.MapFile{Data: []byte(now)}
	delete(files, "code/retired.sql")
	files["release.txt"] = &fstest.MapFile{Data: []byte(strings.Replace(string(files["release.txt"].Data), "code 2 ", "code 3 ", 1) + "dropped function fn_queue_why\n")}
	require.Empty(t, check(files), "and gone in release 3")
}
