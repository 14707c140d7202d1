package schema_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// unidentified returns the published tables that PostgreSQL refuses to change.
func unidentified(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	tables, err := pgrow.Column[string](t.Context(), conn, `SELECT DISTINCT c.oid::regclass::text FROM pg_publication_tables m JOIN pg_class c ON c.relname = m.tablename
		JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = m.schemaname
		WHERE c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) ORDER BY 1`)
	require.NoError(t, err)
	return tables
}

// A database may publish all its tables before qtop is installed, as for change data capture. PostgreSQL refuses
// changes of published tables without a replica identity.
func TestInstallWherePublished(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		publication string
		install     func(*testing.T, *pgtest.DB)
	}{
		"all tables": {"FOR ALL TABLES", func(*testing.T, *pgtest.DB) {}},
		"the schema, by hand": {"FOR TABLES IN SCHEMA public", func(t *testing.T, db *pgtest.DB) {
			_, err := db.Conn(t, "").PgConn().Exec(t.Context(), "BEGIN;"+schema.SQL()+"COMMIT").ReadAll()
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			conn := db.Conn(t, "")
			_, err := conn.Exec(t.Context(), "CREATE PUBLICATION feed "+of.publication)
			require.NoError(t, err)
			of.install(t, db)
			up(t, db, schema.Current())
			for _, sql := range []string{
				"UPDATE public.qtop_schema_version SET version = version", "UPDATE public.job_lane SET job_kind = job_kind", "UPDATE public.queue_counter_delta SET n = n",
				"UPDATE public.queue_counter_recent SET n = n", "DELETE FROM public.job_watermark_below",
			} {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
			require.Empty(t, unidentified(t, conn))
		})
	}
}

// Who publishes all tables of an installed release can upgrade it: the version table gets its replica identity then.
func TestUpgradeWherePublished(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	release, ok := releaseOf(t, lastRelease)
	if !ok {
		t.Skip("the history does not reach release 0.2.0")
	}
	up(t, db, release)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "CREATE PUBLICATION feed FOR ALL TABLES")
	require.NoError(t, err)
	for _, table := range []string{"job_lane", "queue_counter_delta"} { // docs/upgrading.md, Publications
		_, err = conn.Exec(t.Context(), "ALTER TABLE public."+table+" REPLICA IDENTITY FULL")
		require.NoError(t, err)
	}
	up(t, db, schema.Current())
	require.Empty(t, unidentified(t, conn))
}

// An event trigger that refuses a statement of a migration is named, with a way to go on.
func TestMigrateNamesTheEventTrigger(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	_, err := conn.PgConn().Exec(t.Context(), `CREATE SCHEMA guards;
		CREATE FUNCTION guards."No tables"() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'tables need a ticket'; END$$;
		CREATE FUNCTION guards.harmless() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$;
		CREATE EVENT TRIGGER "a guard" ON ddl_command_start EXECUTE FUNCTION guards.harmless();
		CREATE EVENT TRIGGER "The guard" ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION guards."No tables"()`).ReadAll()
	require.NoError(t, err)
	err = schema.Up(t.Context(), db.DSN(""), nil)
	require.ErrorContains(t, err, `event trigger "The guard"): nothing was changed; let its function accept this, or run ALTER EVENT TRIGGER "The guard" DISABLE`)
	require.NotContains(t, err.Error(), "\n")
	_, err = conn.Exec(t.Context(), `ALTER EVENT TRIGGER "The guard" DISABLE`)
	require.NoError(t, err)
	up(t, db, schema.Current())
}
