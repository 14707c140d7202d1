// The tables in which an installation records itself: if another role owns them, migrate neither
// reads nor writes them.

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/schema"
)

// A login that may CREATE in schema public makes an object under the name of such a table. Its
// view, trigger or default would run as the migrator, a superuser, if migrate read or wrote it.
func TestForeignBooks(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE ROLE planter LOGIN", "CREATE DATABASE queue")
	w.run("queue", "GRANT CREATE ON SCHEMA public TO planter")
	require.NoError(t, w.in("queue", "planter", "CREATE SEQUENCE public.called",
		"CREATE FUNCTION public.trap() RETURNS int LANGUAGE sql AS 'SELECT nextval(''public.called'')::int'",
		"CREATE FUNCTION public.trigger_trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.called''); RETURN NEW; END'"))
	for _, c := range []struct{ name, make, drop string }{
		{"trigger", `CREATE TABLE public.qtop_schema_version (version int4 NOT NULL); INSERT INTO public.qtop_schema_version VALUES (0);
			CREATE TRIGGER t BEFORE UPDATE ON public.qtop_schema_version FOR EACH ROW EXECUTE FUNCTION public.trigger_trap()`, "TABLE public.qtop_schema_version"},
		{"default", "CREATE TABLE public.qtop_schema_version (version int4 NOT NULL, x int DEFAULT public.trap())", "TABLE public.qtop_schema_version"},
		{"view of the version", "CREATE VIEW public.qtop_schema_version AS SELECT public.trap() - public.trap() AS version", "VIEW public.qtop_schema_version"},
		{"view of the code", `CREATE VIEW public.qtop_schema_code AS SELECT public.trap() AS code, 1 AS serves, '' AS hash, '' AS seeds, '' AS recorded_form`,
			"VIEW public.qtop_schema_code"},
		{"view of the roles", `CREATE VIEW public.qtop_schema_role AS SELECT 'queue_owner' AS name, 'queue_owner' AS role WHERE public.trap() > 0`, "VIEW public.qtop_schema_role"},
		{"view of the objects", `CREATE VIEW public.qtop_schema_object AS SELECT '' AS kind, '' AS name, '' AS source, '' AS installed WHERE public.trap() > 0`,
			"VIEW public.qtop_schema_object"},
	} {
		require.NoError(t, w.in("queue", "planter", c.make), c.name)
		_, err := w.up("queue", schema.UpOptions{})
		require.Error(t, err, c.name)
		require.Regexp(t, "belongs to planter|(is|are) not its own", err.Error(), c.name)
		require.NotContains(t, err.Error(), "\n")
		conn, err := pgsession.Connect(t.Context(), w.server.DSN(embedded.Superuser, "queue"))
		require.NoError(t, err)
		if c.name != "view of the objects" { // which only a migration and the comparison of objects read
			_, err = schema.GetStatus(t.Context(), conn)
			require.ErrorContains(t, err, "belongs to planter", c.name)
		}
		require.NoError(t, conn.Close(t.Context()))
		require.Equal(t, "false", w.one("queue", "SELECT is_called::text FROM public.called"), "%s: nothing of planter's was called", c.name)
		require.NoError(t, w.in("queue", "planter", "DROP "+c.drop), c.name)
	}
	_, err := w.up("queue", schema.UpOptions{})
	require.NoError(t, err)
	require.Equal(t, "false", w.one("queue", "SELECT is_called::text FROM public.called"))
}
