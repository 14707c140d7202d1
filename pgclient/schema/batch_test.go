package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// New objects are sent together; if one of them fails, the error names that one with its line.
func TestUpgradeNamesTheObjectThatFails(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := newLater(t).add("code/trio.sql", `CREATE OR REPLACE FUNCTION public.fn_trio_one() RETURNS int LANGUAGE sql AS $fn$ SELECT 1 $fn$;
CREATE OR REPLACE FUNCTION public.fn_trio_two() RETURNS public.no_such_type LANGUAGE sql AS $fn$ SELECT 2 $fn$;
CREATE OR REPLACE FUNCTION public.fn_trio_three() RETURNS int LANGUAGE sql AS $fn$ SELECT 3 $fn$;
`).release()
	err := r.Up(t.Context(), db.DSN(""), schema.UpOptions{})
	require.ErrorContains(t, err, "trio.sql:2, function fn_trio_two")
	var there bool
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT to_regproc('public.fn_trio_one') IS NOT NULL").Scan(&there))
	require.False(t, there, "nothing was changed")
}
