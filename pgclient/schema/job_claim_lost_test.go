package schema_test

// A worker returns claims whose answer it never received: those that sessions of its login and
// application_name made for its executor, and no others.

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func TestJobClaimLost(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	j.jobSubscription("v", "", "", 0, 100)
	login, other := pgtest.Login(t, j.db, "dot_executor"), pgtest.Login(t, j.db, "dot_executor")
	claim := func(conn *pgx.Conn, executor string, n int) (token string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_catalog.min(c.lease_token::text) FROM public.fn_job_claim($1::text, NULL, $2::int) c", executor, n).Scan(&token))
		return token
	}
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker') FROM generate_series(1, 10)")
	mine := j.session(login, "qtop work 1")
	known := claim(mine, "w", 2)
	lost := claim(j.session(login, "qtop work 1"), "w", 3) // another connection of the same pool
	claim(mine, "v", 1)
	claim(j.session(login, "qtop work 2"), "w", 1)
	claim(j.session(other, "qtop work 1"), "w", 1)
	held := "SELECT COALESCE(sum(live), 0)::int FROM public.job_lease"
	require.Equal(t, 8, get[int](j.core, held))
	settle := func() (n int) {
		require.NoError(t, mine.QueryRow(t.Context(), "SELECT public.fn_job_claim_lost('w', ARRAY[$1::uuid])::int", known).Scan(&n))
		return n
	}
	require.Equal(t, 3, settle())
	require.Zero(t, settle(), "once")
	require.Equal(t, 5, get[int](j.core, held))
	require.Equal(t, 5, get[int](j.core, "SELECT count(*)::int FROM public.job_queue WHERE status = 'queued' AND attempts = 0 AND lost_leases = 0"))
	require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_lease WHERE lease_token = $1::uuid", lost))
	require.Equal(t, 2, get[int](j.core, "SELECT live FROM public.job_lease WHERE lease_token = $1::uuid", known))
	j.balanced()
}
