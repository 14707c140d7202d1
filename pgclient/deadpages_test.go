package pgclient_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// Reading one page of a group of dead letters, or counting the group, reads the group from an index
// and the rows of that page. It reads no other group, and does not scan the tables that only supply
// columns of the list.
func TestDeadLetterPagesReadLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tables := []string{"job_dead_letter", "iu_route_dead_letter", "dead_letters", "dead_letter_open", "webhook_delivery_sagas"}
	root := db.Pool(t, "")
	pgtest.FillDead(t, root, 5, 3_000) // a group of events, one of webhooks
	pgtest.FillDead(t, root, 3000, 12)
	exec := func(sql string) {
		t.Helper()
		_, err := root.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec("SELECT public.fn_queue_counter_compact()")
	for _, table := range tables {
		exec("ALTER TABLE public." + table + " SET (autovacuum_enabled = false)") // its reads would count
	}
	exec("VACUUM ANALYZE")
	login := db.DSN(pgtest.Login(t, db, "queue_viewer"))
	root.Reset()
	// read adds up the blocks read by all sessions that ended: a session is sure to have reported
	// its reads only when it is gone.
	read := func() (blocks int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			var others int
			require.NoError(t, root.QueryRow(t.Context(), `SELECT count(*) FROM pg_catalog.pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&others))
			return others == 0
		}, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, root.QueryRow(t.Context(), `SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
			FROM pg_catalog.pg_statio_user_tables WHERE relname = ANY ($1)`, tables).Scan(&blocks))
		return blocks
	}
	for _, x := range []struct {
		filter string
		total  int64
		blocks int64 // at most
	}{
		{"source=job code=CODE_2 endpoint=kind_2 domain=dom_2", 3_002 + 14, 1300},
		{"source:job code=CODE_2 kind=kind_2 domain=dom_2", 3_002 + 14, 1300},
		{"source=event code=E_1 endpoint=type_1 domain=dom_1", 3_001 + 13, 600},
		{"source=event code=E_1 type=type_1 domain=dom_1 state:open", 3_001 + 13, 600},
		{"source=webhook code=W_0 subscription=1001 domain=webhook", 3_001 + 13, 3000},
		{"source=webhook code=W_3 subscription=1001", 12 + 61%7, 1000},
		// without wildcards a code is looked up, in capitals as it is stored: there are 1,800 codes of jobs
		{"source=job code:code_2 kind=kind_2 domain=dom_2", 3_002 + 14, 1300},
		{"source=event code:e_1 type=type_1", 3_001 + 13, 1800},
		{"code:E_1", 3_001 + 13, 1800},
		{"code:no_such_code", 0, 900},
		{"source=webhook id:77", 1, 50},
		{"source=job id=job:00000000-0000-4000-8000-000000000000", 0, 50},
	} {
		before := read()
		c, err := pgclient.Open(t.Context(), pgclient.Options{DSN: login, Actor: "ann"})
		require.NoError(t, err)
		const times = 8 // PostgreSQL may switch to a generic plan after five executions
		for range times {
			p, err := c.List(t.Context(), queue.Query{Kind: queue.ListDeadLetters, Filter: x.filter, Limit: 200})
			require.NoError(t, err, x.filter)
			require.Equal(t, x.total, p.Total, x.filter)
			require.Len(t, queue.Of[[]queue.DeadLetter](p), min(200, int(x.total)), x.filter)
		}
		c.Close()
		each := (read() - before) / times
		require.Less(t, each, x.blocks, x.filter)
		t.Logf("%s: %d", x.filter, each)
	}
}
