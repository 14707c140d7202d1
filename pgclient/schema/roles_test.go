// The database roles of a cluster: which existing roles migrate up uses, and databases with a
// separate set of roles.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/embedded"
	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// rolesWorld is a server whose roles only this test uses.
type rolesWorld struct {
	t      *testing.T
	server *embedded.Server
}

func newRolesWorld(t *testing.T) rolesWorld {
	t.Helper()
	t.Parallel()
	return rolesWorld{t, pgtest.OwnServer(t, nil)}
}

// in runs statements in a database, as the given user.
func (w rolesWorld) in(database, user string, statements ...string) error {
	w.t.Helper()
	conn, err := pgsession.Connect(w.t.Context(), w.server.DSN(user, database))
	require.NoError(w.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(w.t.Context())) }()
	for _, sql := range statements {
		if _, err := conn.Exec(w.t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}

func (w rolesWorld) run(database string, statements ...string) {
	w.t.Helper()
	require.NoError(w.t, w.in(database, embedded.Superuser, statements...))
}

func (w rolesWorld) one(database, sql string) (s string) {
	w.t.Helper()
	conn, err := pgsession.Connect(w.t.Context(), w.server.DSN(embedded.Superuser, database))
	require.NoError(w.t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(w.t.Context())) }()
	require.NoError(w.t, conn.QueryRow(w.t.Context(), sql).Scan(&s))
	return s
}

func (w rolesWorld) up(database string, o schema.UpOptions) (string, error) {
	var said lines
	o.Progress = said.add
	err := schema.Current().Up(w.t.Context(), w.server.DSN(embedded.Superuser, database), o)
	return said.String(), err
}

// Earlier releases made the viewer roles members of pg_read_all_stats. migrate up revokes that, no
// matter who granted it, even if it runs in several databases at once. If it has no right to
// revoke, it prints that and continues. The owner role stays a member.
func TestViewersLosePgReadAllStats(t *testing.T) {
	w := newRolesWorld(t)
	databases := []string{"one", "two", "three", "four"}
	w.run("postgres", "CREATE DATABASE one")
	_, err := w.up("one", schema.UpOptions{})
	require.NoError(t, err)
	for _, d := range databases[1:] {
		w.run("postgres", "CREATE DATABASE "+d+" TEMPLATE one STRATEGY FILE_COPY")
	}
	const members = `SELECT COALESCE(string_agg(DISTINCT m.rolname, ' ' ORDER BY m.rolname), '') FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member
		WHERE a.roleid = 'pg_read_all_stats'::regrole AND m.rolname LIKE 'queue%'`
	require.Equal(t, "queue_owner", w.one("one", members))
	w.run("postgres", "CREATE ROLE dba", "GRANT pg_read_all_stats TO dba WITH ADMIN OPTION", "CREATE ROLE migrator LOGIN IN ROLE queue_owner",
		"SET ROLE dba", "GRANT pg_read_all_stats TO queue_viewer", "RESET ROLE", "GRANT pg_read_all_stats TO queue_viewer")

	var told lines
	require.NoError(t, schema.Current().Up(t.Context(), w.server.DSN("migrator", "one"), schema.UpOptions{Progress: told.add}))
	require.Contains(t, told.String(), "still members of pg_read_all_stats")
	require.Equal(t, "queue_owner queue_viewer", w.one("one", members))

	errs := make(chan error)
	for _, d := range databases {
		go func() {
			_, err := w.up(d, schema.UpOptions{})
			errs <- err
		}()
	}
	for range databases {
		require.NoError(t, <-errs)
	}
	require.Equal(t, "queue_owner", w.one("one", members))
	said, err := w.up("one", schema.UpOptions{})
	require.NoError(t, err)
	require.NotContains(t, said, "pg_read_all_stats")
}

const origins = "SELECT string_agg(format('%s %s %s', name, role, origin), ', ' ORDER BY name) FROM public.qtop_schema_role WHERE name IN ('queue_owner', 'queue_viewer')"

func TestHostileRoles(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE DATABASE queue", "CREATE DATABASE second", "CREATE DATABASE other", "CREATE ROLE queue_owner", "CREATE ROLE workflow_admin",
		"CREATE ROLE mallory LOGIN", "CREATE ROLE boss", "GRANT queue_owner TO mallory", "GRANT boss TO workflow_admin")
	w.run("other", "CREATE TABLE public.t (i int)", "ALTER TABLE public.t OWNER TO queue_owner")
	refuses := func(o schema.UpOptions, texts ...string) {
		t.Helper()
		_, err := w.up("queue", o)
		for _, text := range texts {
			require.ErrorContains(t, err, text)
		}
		require.NotContains(t, err.Error(), "\n")
		require.Equal(t, "0 2", w.one("queue", `SELECT (SELECT count(*) FROM pg_class WHERE `+publicRelations+`) || ' ' ||
			(SELECT count(*) FROM pg_roles WHERE rolname ~ '^(queue_|workflow_|webhook_|saga_|dot_|event_|router_|lease_|subscription_|dead_)')`), "nothing was changed")
	}
	for _, attribute := range []string{"LOGIN", "SUPERUSER", "CREATEROLE", "CREATEDB", "REPLICATION", "BYPASSRLS"} {
		for _, role := range []string{"queue_owner", "workflow_admin"} {
			w.run("postgres", "ALTER ROLE "+role+" "+attribute)
			for _, adopt := range []bool{false, true} {
				refuses(schema.UpOptions{AdoptRoles: adopt}, role, "has "+attribute, "ALTER ROLE "+role+" NO"+attribute, "rename the role", "--role-prefix")
			}
			w.run("postgres", "ALTER ROLE "+role+" NO"+attribute) // as the refusal says
		}
	}
	w.run("postgres", "ALTER ROLE queue_owner LOGIN SUPERUSER")
	refuses(schema.UpOptions{}, "queue_owner (members mallory; used in other databases other) has LOGIN, SUPERUSER", "ALTER ROLE queue_owner NOLOGIN NOSUPERUSER;")
	w.run("postgres", "ALTER ROLE queue_owner NOLOGIN NOSUPERUSER")
	refuses(schema.UpOptions{}, "queue_owner (members mallory; used in other databases other), workflow_admin (is a member of boss)", "--adopt-roles")

	// An operator adopts the roles with --adopt-roles; the installation records this.
	said, err := w.up("queue", schema.UpOptions{AdoptRoles: true})
	require.NoError(t, err)
	require.Contains(t, said, "adopted role queue_owner (members mallory; used in other databases other)")
	require.Equal(t, "queue_owner queue_owner adopted, queue_viewer queue_viewer made", w.one("queue", origins))
	said, err = w.up("queue", schema.UpOptions{})
	require.NoError(t, err)
	require.Contains(t, said, "already")
	// An adopted role that later gets a dangerous attribute is refused nevertheless.
	w.run("postgres", "ALTER ROLE dot_executor BYPASSRLS")
	_, err = w.up("queue", schema.UpOptions{AdoptRoles: true})
	require.ErrorContains(t, err, "ALTER ROLE dot_executor NOBYPASSRLS")
	w.run("postgres", "ALTER ROLE dot_executor NOBYPASSRLS")

	// A second qtop in the cluster uses the same roles, unless another role is a member of the
	// owner role and could have faked the installation.
	_, err = w.up("second", schema.UpOptions{})
	require.ErrorContains(t, err, "queue_owner (members mallory")
	w.run("postgres", "REVOKE queue_owner FROM mallory")
	said, err = w.up("second", schema.UpOptions{})
	require.NoError(t, err)
	require.Contains(t, said, "roles are shared with database other, queue:")
	require.Equal(t, "queue_owner queue_owner granted, queue_viewer queue_viewer granted", w.one("second", origins))
}

// The owner of the database with CREATEROLE may install and upgrade qtop, even if the login
// does not inherit the rights of its roles, and may upgrade what a superuser installed, once the
// superuser has granted what an older release did not.
func TestOwnerOfTheDatabaseMigrates(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE ROLE olga LOGIN NOINHERIT CREATEROLE", "CREATE DATABASE queue OWNER olga", "CREATE DATABASE second OWNER olga")
	as := func(database, user string, r *schema.Release) error {
		return r.Up(w.t.Context(), w.server.DSN(user, database), schema.UpOptions{})
	}
	for _, database := range []string{"queue", "second"} {
		w.run(database, "ALTER SCHEMA public OWNER TO olga") // PostgreSQL 15: being the owner of the database is inherited, too
	}
	require.NoError(t, as("second", embedded.Superuser, schema.Current()))
	w.run("postgres", "GRANT queue_owner TO olga")
	require.NoError(t, as("queue", "olga", schema.Current()))
	next := newLater(t).write(fmt.Sprintf("migrations/%03d_test.sql", schema.Latest()+1), "SELECT 1;\n---- create above / drop below ----\nSELECT 1;\n").release()
	require.NoError(t, as("queue", "olga", next))

	w.run("second", "REVOKE ALL ON public.qtop_schema_version FROM queue_owner") // as if installed by an older release
	const remedy = "GRANT SELECT, INSERT, UPDATE ON public.qtop_schema_version TO queue_owner"
	err := as("second", "olga", next)
	require.ErrorContains(t, err, "public.qtop_schema_version belongs to "+embedded.Superuser)
	require.ErrorContains(t, err, remedy)
	w.run("second", remedy)
	require.NoError(t, as("second", "olga", next))
	for _, database := range []string{"queue", "second"} {
		require.Equal(t, fmt.Sprint(next.Version()), w.one(database, "SELECT version::text FROM public.qtop_schema_version"))
	}

	// Others believe what she installed also after she has lost CREATEROLE or the database.
	status := func() error {
		conn, err := pgsession.Connect(t.Context(), w.server.DSN(embedded.Superuser, "queue"))
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		_, err = schema.GetStatus(t.Context(), conn)
		return err
	}
	w.run("postgres", "CREATE ROLE team", "ALTER DATABASE queue OWNER TO team", "ALTER ROLE olga NOCREATEROLE")
	require.NoError(t, status(), "a member of queue_owner")
	w.run("postgres", "REVOKE queue_owner FROM olga", "GRANT team TO olga")
	require.NoError(t, status(), "a member of the owner of the database")
	w.run("postgres", "REVOKE team FROM olga")
	err = status()
	require.ErrorContains(t, err, "belongs to olga")
	require.ErrorContains(t, err, "ALTER TABLE public.qtop_schema_version OWNER TO team")
	require.NotContains(t, err.Error(), "drop it")
	w.run("postgres", "GRANT queue_owner TO olga")

	// She can also take it away.
	for _, o := range []schema.DownOptions{{DryRun: true}, {}} {
		require.NoError(t, next.Down(t.Context(), w.server.DSN("olga", "queue"), o, nil))
	}
	require.Equal(t, "0", w.one("queue", "SELECT count(*)::text FROM pg_class WHERE "+publicRelations))
}

// In a database that was made before PostgreSQL 15, the schema public does not belong to the owner of the
// database: migrate up names it, and works with the owner that it proposes.
func TestSchemaPublicOfAnotherOwner(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE ROLE olga LOGIN CREATEROLE", "CREATE ROLE nina LOGIN NOINHERIT CREATEROLE", "CREATE ROLE paul LOGIN")
	for name, c := range map[string]struct {
		login, before string
		refused       string // "": migrate up works
	}{
		"closed":    {"olga", "ALTER SCHEMA public OWNER TO " + embedded.Superuser, "ALTER SCHEMA public OWNER TO pg_database_owner"},
		"creates":   {"olga", "ALTER SCHEMA public OWNER TO " + embedded.Superuser + "; GRANT CREATE ON SCHEMA public TO olga", "ALTER SCHEMA public OWNER TO pg_database_owner"},
		"no usage":  {"olga", "ALTER SCHEMA public OWNER TO paul; REVOKE ALL ON SCHEMA public FROM PUBLIC", "ALTER SCHEMA public OWNER TO pg_database_owner"},
		"everybody": {"olga", "ALTER SCHEMA public OWNER TO " + embedded.Superuser + "; GRANT ALL ON SCHEMA public TO PUBLIC", ""},
		"granted":   {"olga", "ALTER SCHEMA public OWNER TO paul; GRANT ALL ON SCHEMA public TO olga WITH GRANT OPTION", ""},
		"noinherit": {"nina", "SELECT 1", "ALTER SCHEMA public OWNER TO nina"},
	} {
		w.run("postgres", fmt.Sprintf("CREATE DATABASE %q OWNER %s", name, c.login))
		w.run(name, c.before)
		up := func() error {
			return schema.Current().Up(w.t.Context(), w.server.DSN(c.login, name), schema.UpOptions{RolePrefix: "r" + strings.ReplaceAll(name, " ", "_") + "_"})
		}
		if err := up(); c.refused != "" {
			require.ErrorContains(t, err, "the schema public belongs to ", name)
			require.ErrorContains(t, err, c.refused, name)
			require.NotContains(t, err.Error(), "\n", name)
			require.Equal(t, "0", w.one(name, "SELECT count(*)::text FROM pg_class WHERE "+publicRelations), name)
			w.run(name, c.refused)
		} else {
			require.NoError(t, err, name)
			w.run(name, "ALTER SCHEMA public OWNER TO paul; REVOKE ALL ON SCHEMA public FROM olga CASCADE") // a later run needs no right to grant
			w.run(name, "GRANT USAGE, CREATE ON SCHEMA public TO r"+name+"_queue_owner")
		}
		require.NoError(t, up(), name)
	}
}

// A role that merely has the name of a role of qtop, with grants in a database without qtop, is not
// taken for qtop's role.
func TestRolesOfNoInstalledQtop(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE DATABASE queue", "CREATE DATABASE other", "CREATE ROLE queue_viewer", "COMMENT ON ROLE queue_viewer IS 'qtop: made by migrate up in database other'", "CREATE ROLE queue_owner")
	w.run("other", "CREATE TABLE public.t (i int)", "GRANT SELECT ON public.t TO queue_viewer, queue_owner")
	w.run("queue", "CREATE TABLE public.mine (i int)", "GRANT SELECT ON public.mine TO queue_viewer")
	_, err := w.up("queue", schema.UpOptions{})
	require.ErrorContains(t, err, "queue_viewer (used in other databases other; its comment names qtop)")
	require.ErrorContains(t, err, "--adopt-roles")
}

// Two databases of one cluster have a separate set of roles each: a member of one set has no rights
// in the other database.
func TestRolePrefix(t *testing.T) {
	w := newRolesWorld(t)
	w.run("postgres", "CREATE DATABASE prod", "CREATE DATABASE staging")
	_, err := w.up("prod", schema.UpOptions{})
	require.NoError(t, err)
	for _, bad := range []string{"Stg_", "1a", "pg_x", "a-b", `x"`, strings.Repeat("a", 41)} {
		_, err := w.up("staging", schema.UpOptions{RolePrefix: bad})
		require.ErrorContains(t, err, "--role-prefix", bad)
	}
	_, err = w.up("staging", schema.UpOptions{RolePrefix: "stg_"})
	require.NoError(t, err)
	require.Equal(t, "queue_owner stg_queue_owner made, queue_viewer stg_queue_viewer made", w.one("staging", origins))
	const used = `SELECT COALESCE(string_agg(DISTINCT r.rolname, ' '), '') FROM pg_shdepend x JOIN pg_roles r ON r.oid = x.refobjid JOIN pg_database d ON d.oid = x.dbid
		WHERE x.refclassid = 'pg_authid'::regclass AND d.datname = current_database() AND r.rolname <> '` + pgtest.Evil + `' AND (r.rolname LIKE 'stg\_%') = `
	require.Empty(t, w.one("staging", used+"false"), "nothing of staging belongs to the roles of prod, or is granted to them")
	require.Empty(t, w.one("prod", used+"true"))

	again, err := w.up("staging", schema.UpOptions{})
	require.NoError(t, err)
	require.Contains(t, again, "already", "the stored prefix is used")
	_, err = w.up("staging", schema.UpOptions{RolePrefix: "other_"})
	require.ErrorContains(t, err, `have the prefix "stg_", not "other_"`)
	_, err = w.up("prod", schema.UpOptions{RolePrefix: "stg_"})
	require.ErrorContains(t, err, `have the prefix "", not "stg_"`)
	conn, err := pgsession.Connect(t.Context(), w.server.DSN(embedded.Superuser, "staging"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.Empty(t, differences(t, conn))
	w.run("staging", "ALTER TABLE public.queue_mark OWNER TO postgres")
	astray := differences(t, conn)
	require.Len(t, astray, 1)
	require.Equal(t, "ALTER TABLE public.queue_mark OWNER TO stg_queue_owner", astray[0].Remedy)
	w.run("staging", astray[0].Remedy)
	require.Empty(t, differences(t, conn))
	st, err := schema.GetStatus(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, "stg_", st.RolePrefix)
	require.Equal(t, w.one("prod", "SELECT string_agg(kind || name || source, ' ' ORDER BY kind, name) FROM public.qtop_schema_object"),
		w.one("staging", "SELECT string_agg(kind || name || source, ' ' ORDER BY kind, name) FROM public.qtop_schema_object"), "hashes are of the text before roles are named")

	w.run("staging", "INSERT INTO public.executor_producer VALUES ('Codex', 'event_ingest_writer'), ('Codex', 'router_worker')")
	w.run("postgres", "CREATE ROLE app_stg LOGIN")
	w.run("staging", "GRANT EXECUTE ON FUNCTION public.fn_job_producer_check TO app_stg", "GRANT USAGE ON SCHEMA public TO app_stg",
		"GRANT SELECT ON public.executor_producer TO app_stg", "GRANT EXECUTE ON FUNCTION public.fn_queue_role_name TO app_stg")
	var refusal *pgconn.PgError
	require.ErrorAs(t, w.in("staging", "app_stg", "SELECT public.fn_job_producer_check('{Codex}')"), &refusal)
	require.Equal(t, "GRANT one of these roles TO app_stg: stg_event_ingest_writer, stg_router_worker", refusal.Hint, "roles of this database")
	require.Equal(t, "there is no role nobody in this cluster", w.one("staging", "SELECT public.fn_executor_producer_set('Codex', 'nobody', true, 'ann', 'r') ->> 'reason'"))
	w.run("staging", "DELETE FROM public.executor_producer", "DROP OWNED BY app_stg")

	w.run("postgres", "CREATE ROLE of_prod LOGIN IN ROLE workflow_admin, queue_viewer", "CREATE ROLE of_staging LOGIN IN ROLE stg_workflow_admin, stg_queue_viewer")
	flip := "SELECT public.fn_dot_config_set('webhook.max_attempts', '7', 'eve', 'test')"
	inbox := "SELECT count(*) FROM public.fn_event_inbox('role:workflow_admin')"
	for database, may := range map[string]string{"prod": "of_prod", "staging": "of_staging"} {
		mayNot := map[string]string{"of_prod": "of_staging", "of_staging": "of_prod"}[may]
		require.NoError(t, w.in(database, may, flip, inbox), database)
		for _, sql := range []string{flip, inbox, "SELECT * FROM public.v_queue_health"} {
			require.ErrorContains(t, w.in(database, mayNot, sql), "42501", "%s in %s: %s", mayNot, database, sql)
		}
		require.NoError(t, w.in(database, may, "SELECT public.fn_queue_heartbeat_register('x', 'DOT', '{}', 30, 600, 'ann')"))
		require.NoError(t, w.in(database, may, "SELECT public.fn_queue_executor_register('y', 'DOT', '{}', 30, 600, 'dot_executor', 'ann')"))
	}
	require.Equal(t, "stg_dot_executor stg_dot_executor", w.one("staging", "SELECT string_agg(owner_role, ' ') FROM public.queue_heartbeat WHERE executor_id IN ('x', 'y')"))
	require.Equal(t, "dot_executor dot_executor", w.one("prod", "SELECT string_agg(owner_role, ' ') FROM public.queue_heartbeat WHERE executor_id IN ('x', 'y')"))
	require.Equal(t, "2", w.one("staging", "SELECT count(*)::text FROM public.event_subscription WHERE recipient_ref = 'role:workflow_admin'"), "rows keep the logical name")

	// The output of migrate sql with a role prefix makes the same schema.
	w.run("postgres", "CREATE DATABASE by_hand")
	text, err := schema.Current().SQL("stg_")
	require.NoError(t, err)
	hand, err := pgsession.Connect(t.Context(), w.server.DSN(embedded.Superuser, "by_hand"))
	require.NoError(t, err)
	_, err = hand.PgConn().Exec(t.Context(), "BEGIN;"+text+"COMMIT").ReadAll()
	require.NoError(t, err)
	require.Equal(t, stable(t, conn), stable(t, hand))
	require.NoError(t, hand.Close(t.Context()))
	again, err = w.up("by_hand", schema.UpOptions{})
	require.NoError(t, err)
	require.NotRegexp(t, "function|view|trigger", again)

	require.NoError(t, schema.Current().Down(t.Context(), w.server.DSN(embedded.Superuser, "staging"), schema.DownOptions{Discard: true}, nil))
	require.Equal(t, "0", w.one("staging", "SELECT count(*)::text FROM pg_proc WHERE "+publicFunctions))
}
