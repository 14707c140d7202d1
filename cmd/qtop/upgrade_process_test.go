package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// `migrate up` is killed at random moments. Afterwards the schema is the old
// one or the new one, never a mixture, and the next `migrate up` completes the
// upgrade.
func TestMigrateUpKilled(t *testing.T) {
	t.Parallel()
	for i := range 5 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Released(t)
			conn := db.Conn(t, "")
			columns := pgtest.Columns(t, conn)
			rows, before := pgtest.RowSums(t, conn, columns), objects(t, conn)
			cmd := qtop(t, db.DSN(""), "migrate", "up")
			require.NoError(t, cmd.Start())
			// The i-th run is killed at a random moment of the i-th half
			// second: migrate up takes about five of these here.
			after := time.Duration(i)*500*time.Millisecond + rand.N(500*time.Millisecond) //nolint:gosec // no secret
			t.Logf("killed after %s", after)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = cmd.Wait()
			}()
			select {
			case <-done:
			case <-time.After(after):
				require.NoError(t, cmd.Process.Kill())
				<-done
			}
			require.Eventually(t, func() bool { // the server has ended its sessions
				var others int
				err := conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&others)
				return err == nil && others == 0
			}, patience, 20*time.Millisecond)
			st, err := schema.GetStatus(t.Context(), conn)
			require.NoError(t, err)
			if st.Current == 23 {
				require.Equal(t, before, objects(t, conn), "nothing was changed")
				require.Zero(t, st.InstalledCode)
			} else {
				settled(t, conn)
			}
			require.Equal(t, rows, pgtest.RowSums(t, conn, columns))
			require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
			settled(t, conn)
			require.Equal(t, rows, pgtest.RowSums(t, conn, columns))
		})
	}
}

// settled fails unless the schema of this program is installed completely.
func settled(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	st, err := schema.GetStatus(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, []any{st.Latest, st.Code, schema.Current().Hash}, []any{st.Current, st.InstalledCode, st.InstalledHash})
	differs, err := schema.Differences(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, differs)
}

// objects returns a checksum of the objects in schema public, by kind.
func objects(t *testing.T, conn *pgx.Conn) (sum string) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT concat_ws(' ',
		(SELECT md5(string_agg(concat(oid, xmin), ',' ORDER BY oid)) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind <> 't'),
		(SELECT md5(string_agg(concat(oid, xmin), ',' ORDER BY oid)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),
		(SELECT md5(string_agg(concat(oid, xmin), ',' ORDER BY oid)) FROM pg_type WHERE typnamespace = 'public'::regnamespace),
		(SELECT md5(string_agg(concat(oid, xmin), ',' ORDER BY oid)) FROM pg_trigger))`).Scan(&sum))
	return sum
}

// migrate works on the database that the strongest source names, also if the configuration file has
// the listen_dsn of another one.
func TestMigrateTheDatabaseThatIsNamed(t *testing.T) {
	t.Parallel()
	production, restored := pgtest.Empty(t), pgtest.Empty(t)
	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, "qtop"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "qtop", "config.yaml"), fmt.Appendf(nil, "dsn: %q\nlisten_dsn: %q\n", production.DSN("")+"&application_name=pooler", production.DSN("")), 0o600))
	for _, verb := range [][]string{{"migrate", "up"}, {"migrate", "status"}, {"migrate", "down", "--dry-run"}} {
		cmd := qtop(t, restored.DSN(""), verb...)
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+home)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "listen_dsn is not used: dsn comes from env QTOP_DSN")
	}
	settled(t, restored.Conn(t, ""))
	st, err := schema.GetStatus(t.Context(), production.Conn(t, ""))
	require.NoError(t, err)
	require.Zero(t, st.Current)
}

// A server that accepts connections and does not answer, as a frozen machine does, ends migrate in time.
func TestMigrateBesideAServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := pgtest.OwnInstalled(t, "postgres", nil)
	pgtest.Freeze(t, server)
	for _, verb := range []string{"status", "up"} {
		cmd := qtop(t, server.DSN("postgres", "postgres"), "migrate", verb)
		endless := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		endless.Stop()
		require.Error(t, err)
		require.Equal(t, 69, cmd.ProcessState.ExitCode(), "migrate %s: %s", verb, out)
	}
}
