package pgclient_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/schema"
)

// A filter of ASCII characters matches them in any case in every database: in Turkish, the small letter
// of I is not i.
func TestFilterInAnyLanguage(t *testing.T) {
	t.Parallel()
	db := pgtest.Localized(t, "tr")
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	var small string
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT lower('I')").Scan(&small))
	require.NotEqual(t, "i", small)
	jobClient(t, db)
	var answer string
	require.NoError(t, db.Conn(t, "").QueryRow(t.Context(), "SELECT public.fn_job_subscription_set('mine', NULL, NULL, 0, 50, true, NULL, 'INGRID', 'Incident 7')::text").Scan(&answer))
	c := open(t, pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "queue_viewer"))})
	for filter, want := range map[string]int{
		"actor:ingrid": 1, "actor:INGRID": 1, "actor:in*": 1, "reason:*INCIDENT*": 1, "incident": 1, "INCIDENT": 1, "actor:ingrit": 0, "actor:ingr?d|nobody": 1,
	} {
		p, err := c.List(t.Context(), queue.Query{Kind: queue.ListAudit, Filter: filter})
		require.NoError(t, err, filter)
		require.Len(t, queue.Of[[]queue.AuditEntry](p), want, filter)
	}
}
