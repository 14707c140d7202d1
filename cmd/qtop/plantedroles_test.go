package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// The owner of a database can write qtop's table of roles. Its text is a part of statements that a
// superuser runs who only looks: it must not become code.
func TestPlantedRolesAreNotRun(t *testing.T) {
	t.Parallel()
	const evil = `CREATE FUNCTION public.evil() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil() was called''; END'`
	const role = `$$postgres'::regrole OR public.evil() GROUP BY p.proname --queue_owner$$`
	const cast = `CREATE TYPE public.word AS ENUM ('stranger');
		CREATE FUNCTION public.said(public.word) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil() was called''; END';
		CREATE CAST (public.word AS text) WITH FUNCTION public.said(public.word) AS IMPLICIT;`
	st, err := schema.GetStatus(t.Context(), pgtest.New(t).Conn(t, ""))
	require.NoError(t, err)
	books := `CREATE TABLE public.qtop_schema_version AS SELECT $version AS version;
		CREATE TABLE public.qtop_schema_code AS SELECT $code AS code, $code AS serves, 'x' AS hash, 'x' AS seeds, '16/1' AS recorded_form;`
	books = strings.NewReplacer("$version", strconv.Itoa(int(st.Latest)), "$code", strconv.Itoa(st.Code)).Replace(books)
	for name, plant := range map[string]struct {
		db  *pgtest.DB
		sql string
	}{
		"statement": {pgtest.Empty(t), evil + ";" + books + "CREATE TABLE public.qtop_schema_role AS SELECT 'queue_owner' AS name, " + role + " AS role"},
		"cast":      {pgtest.Empty(t), cast + books + "CREATE TABLE public.qtop_schema_role AS SELECT 'queue_owner' AS name, 'stranger'::public.word AS role"},
		"suffix":    {pgtest.Empty(t), books + "CREATE TABLE public.qtop_schema_role AS SELECT 'queue_owner' AS name, 'postgres' AS role"},
		"installed": {pgtest.New(t), evil + "; SET ROLE queue_owner; UPDATE public.qtop_schema_role SET role = " + role + " WHERE name = 'queue_owner'"},
	} {
		root := plant.db.Conn(t, "")
		groups := []string{}
		if name == "installed" {
			groups = append(groups, "queue_owner")
		}
		owner := pgtest.Login(t, plant.db, groups...)
		_, err := root.Exec(t.Context(), `ALTER DATABASE `+plant.db.Name+` OWNER TO `+owner+`; GRANT CREATE ON SCHEMA public TO `+owner)
		require.NoError(t, err)
		_, err = plant.db.Conn(t, owner).Exec(t.Context(), plant.sql)
		require.NoError(t, err, name)
		for _, verb := range []string{"migrate status", "version", "doctor", "migrate up --yes", "migrate down --discard --confirm " + plant.db.Name} {
			var out, errs bytes.Buffer
			code := run(t.Context(), append(strings.Fields(verb), "--dsn", plant.db.DSN("")), strings.NewReader(""), &out, &errs)
			said := out.String() + errs.String()
			require.NotContains(t, said, "evil() was called", "%s: %s", name, verb)
			require.Equal(t, verb == "version", code == 0, "%s: %s: %s", name, verb, said)
			require.Contains(t, said, "public.qtop_schema_role names roles that qtop never makes", "%s: %s", name, verb)
			require.NotContains(t, said, "regrole", "%s: %s", name, verb)
		}
		_, err = root.Exec(t.Context(), "ALTER DATABASE "+plant.db.Name+" OWNER TO postgres") // the login is dropped before the database
		require.NoError(t, err)
	}
}
