package schema_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// A list of lists where a function takes a list is read as one list, or refused in one line: never by
// an error from inside of PostgreSQL. Every function that is not internal and takes an array is called
// with each of its arrays, so that a new one is in the test at once.
func TestListsOfLists(t *testing.T) {
	c := newCore(t)
	rows, err := c.root.Query(t.Context(), `
		WITH arg AS (
			SELECT p.oid, p.proname, a.n, format_type(a.type, NULL) AS type, t.typelem <> 0 AND t.typlen = -1 AS list,
				format_type(t.typelem, NULL) AS element, p.pronargs - p.pronargdefaults AS needed
			FROM pg_proc p CROSS JOIN unnest(p.proargtypes::oid[]) WITH ORDINALITY a (type, n) JOIN pg_type t ON t.oid = a.type
			WHERE `+publicFunctions+` AND p.prokind = 'f' AND COALESCE(obj_description(p.oid), '') NOT LIKE '%Internal.%'
		)
		SELECT format('SELECT public.%I(%s)', l.proname, string_agg(CASE
			WHEN a.n = l.n THEN format('ARRAY[ARRAY[%1$s, %1$s]]::%2$s', CASE WHEN l.element = 'uuid' THEN quote_literal(gen_random_uuid())
				WHEN l.element LIKE '%int%' OR l.element = 'numeric' THEN '7' WHEN l.element = 'boolean' THEN 'true'
				WHEN l.element = 'jsonb' THEN quote_literal('{}') WHEN l.element LIKE 'timestamp%' THEN 'now()' ELSE quote_literal('x') END, l.type)
			WHEN a.list THEN format('ARRAY[%s]::%s', CASE WHEN a.element = 'uuid' THEN quote_literal(gen_random_uuid()) WHEN a.element LIKE '%int%' THEN '7'
				WHEN a.element = 'jsonb' THEN quote_literal('{}') ELSE 'NULL' END, a.type)
			WHEN a.type = 'boolean' THEN 'false' WHEN a.type IN ('text', 'character varying') THEN quote_literal('x')
			WHEN a.type = 'uuid' THEN quote_literal(gen_random_uuid()) WHEN a.type IN ('integer', 'bigint', 'numeric') THEN '7'
			WHEN a.type = 'jsonb' THEN quote_literal('{}') ELSE 'NULL::' || a.type END, ', ' ORDER BY a.n))
		FROM arg l JOIN arg a USING (oid)
		WHERE l.list AND (a.n <= l.needed OR a.n <= l.n) GROUP BY l.oid, l.proname, l.n, l.element, l.type ORDER BY 1`)
	require.NoError(t, err)
	calls, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(calls), 40)
	for _, call := range calls {
		tx, err := c.root.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), call)
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			require.NotContains(t, []string{"0A000", "XX000", "2202E", "22004"}, pg.Code, "%s: %v", call, err)
			require.NotContains(t, pg.Message, "multidimensional", call)
		}
		require.NoError(t, tx.Rollback(context.Background()))
	}
}
