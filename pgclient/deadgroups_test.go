package pgclient_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// EveryDeadGroup reads, page by page, the groups of dead letters that the snapshot leaves out.
func TestEveryDeadGroup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Conn(t, ""), func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SET LOCAL session_replication_role = replica;
			INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, failure_code, executor, payload, attempts, first_failed_at, last_failed_at)
			SELECT gen_random_uuid(), 'k', 'iu', 'C' || g, 'external_worker', '{}', 3, now(), now() FROM generate_series(1, 250) g, generate_series(1, 1 + g % 2);
			SET LOCAL session_replication_role = origin; SELECT public.fn_queue_recount('ann', 'loaded', false)`)
		return err
	}))
	c := open(t, pgclient.Options{DSN: db.DSN(pgtest.Login(t, db, "queue_viewer")), Actor: "ann"})
	s, err := c.Snapshot(t.Context(), 0)
	require.NoError(t, err)
	require.Less(t, len(s.DeadGroups), 100)
	require.Equal(t, queue.DeadMore{Groups: int64(250 - len(s.DeadGroups)), Open: 375 - opened(s)}, s.DeadMore)
	require.NoError(t, c.EveryDeadGroup(t.Context(), &s))
	require.Len(t, s.DeadGroups, 250)
	require.EqualValues(t, 375, opened(s))
	require.Zero(t, s.DeadMore)
	seen := map[string]bool{}
	for q := (queue.Query{Kind: queue.ListDeadGroups, Limit: 60}); ; {
		p, err := c.List(context.Background(), q)
		require.NoError(t, err)
		for _, g := range queue.Of[[]queue.DeadGroup](p) {
			seen[fmt.Sprint(g.Code)] = true
		}
		if q.After = p.Next; q.After == "" {
			break
		}
	}
	require.Len(t, seen, 250)
	_, err = c.List(context.Background(), queue.Query{Kind: queue.ListDeadGroups, After: "x"})
	require.ErrorContains(t, err, "position of the next page")
}

func opened(s queue.Snapshot) (n int64) {
	for _, g := range s.DeadGroups {
		n += g.Open
	}
	return n
}
