package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// migrate up refuses a database that is not UTF-8 and changes nothing.
func TestUpRefusesOtherEncodings(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		db := pgtest.Encoded(t, encoding)
		err := schema.Up(t.Context(), db.DSN(""), nil)
		require.ErrorContains(t, err, "the encoding of the database is "+encoding+", and qtop needs UTF8")
		require.ErrorContains(t, err, "createdb -E UTF8")
		var n int
		require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&n))
		require.Zero(t, n, "%s: something was made", encoding)
	}
}

// migrate up in a database without the schema public says what is to be done, and then works.
func TestUpWithoutSchemaPublic(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "DROP SCHEMA public CASCADE") // the hostile pass has planted its own in it
	require.NoError(t, err)
	err = schema.Up(t.Context(), db.DSN(""), nil)
	require.ErrorContains(t, err, "CREATE SCHEMA public")
	require.NotContains(t, err.Error(), "\n")
	_, err = conn.Exec(t.Context(), "CREATE SCHEMA public")
	require.NoError(t, err)
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
}

// migrate up refuses a server without what PostgreSQL 15 brought, and changes nothing.
func TestUpRefusesOldServers(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "SET allow_system_table_mods = on")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "UPDATE pg_attribute SET attname = 'unknown' WHERE attrelid = 'pg_index'::regclass AND attname = 'indnullsnotdistinct'")
	require.NoError(t, err)
	err = schema.Up(t.Context(), db.DSN(""), nil)
	require.ErrorContains(t, err, "the server is too old: PostgreSQL ")
	require.ErrorContains(t, err, "15 or later")
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname ~ '^qtop_'").Scan(&n))
	require.Zero(t, n, "something was made")
}
