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
