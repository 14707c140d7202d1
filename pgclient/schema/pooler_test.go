package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// migrate up and migrate down work through a PgBouncer with default settings.
func TestMigrateThroughPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		db := pgtest.Empty(t)
		b := pgtest.NewBouncer(t, db, mode, []string{"postgres"})
		require.NoError(t, schema.Up(t.Context(), b.DSN("postgres"), nil), mode)
		_, trips := b.Count(t)
		require.Less(t, trips, int64(600), "round trips of an installation of over two thousand statements")
		conn := db.Conn(t, "")
		differs, err := schema.Differences(t.Context(), conn)
		require.NoError(t, err)
		require.Empty(t, differs, mode)
		require.NoError(t, schema.Up(t.Context(), b.DSN("postgres"), nil), mode)
		require.NoError(t, schema.Down(t.Context(), b.DSN("postgres"), schema.DownOptions{Discard: true}, nil), mode)
		st, err := schema.GetStatus(t.Context(), conn)
		require.NoError(t, err)
		require.Zero(t, st.Current, mode)
	}
}
