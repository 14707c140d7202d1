package pgsession_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgsession"
	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A session has qtop's search_path, even if the database, the login, the login in this database,
// the environment or the connection string sets another.
func TestPath(t *testing.T) {
	db := pgtest.Empty(t)
	login := pgtest.Login(t, db)
	admin := db.Conn(t, "")
	name, user := pgx.Identifier{db.Name}.Sanitize(), pgx.Identifier{login}.Sanitize()
	for _, sql := range []string{
		"CREATE SCHEMA IF NOT EXISTS evil",
		"ALTER DATABASE " + name + " SET search_path = evil, pg_catalog, public",
		"ALTER ROLE " + user + " SET search_path = evil, pg_catalog, public",
		"ALTER ROLE " + user + " IN DATABASE " + name + " SET search_path = evil, pg_catalog, public",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	path := func(conn *pgx.Conn) (path string) {
		defer func() { require.NoError(t, conn.Close(t.Context())) }()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.current_setting('search_path')").Scan(&path))
		return path
	}
	bare, err := pgx.Connect(t.Context(), db.DSN(login))
	require.NoError(t, err)
	require.Equal(t, "evil, pg_catalog, public", path(bare), "the settings of the test do bite")

	sep := "?"
	if strings.Contains(db.DSN(login), "?") {
		sep = "&"
	}
	for _, more := range []string{
		"", "search_path=evil", "Search_Path=evil", "SEARCH_PATH=evil&search_Path=public",
		"options=-c%20search_path%3Devil", "options=-csearch_path%3Devil", "options=--search-path%3Devil", "options=--SEARCH_PATH%3Devil",
	} {
		dsn := strings.TrimSuffix(db.DSN(login)+sep+more, sep)
		conn, err := pgsession.Connect(t.Context(), dsn)
		require.NoError(t, err, more)
		require.Equal(t, pgsession.Path, path(conn), more)
	}
	t.Setenv("PGOPTIONS", "-c search_path=evil")
	conn, err := pgsession.Connect(t.Context(), db.DSN(login))
	require.NoError(t, err)
	require.Equal(t, pgsession.Path, path(conn))

	cfg, err := pgsession.PoolConfig(db.DSN(login))
	require.NoError(t, err)
	conn, err = pgx.ConnectConfig(t.Context(), cfg.ConnConfig)
	require.NoError(t, err)
	require.Equal(t, pgsession.Path, path(conn))
}
