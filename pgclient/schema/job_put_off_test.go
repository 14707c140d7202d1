package schema_test

// A worker puts off jobs that it must not begin now: in the transaction of the claim, so that they
// are never leased.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJobPutOff(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 3)
	all := j.put("k", "iu", 4)
	tx := j.begin(j.work)
	rows, err := tx.Query(t.Context(), "SELECT job_id::text, lease_token::text FROM public.fn_job_claim('w', NULL, 3)")
	require.NoError(t, err)
	var claimed, tokens []string
	for rows.Next() {
		var id, token string
		require.NoError(t, rows.Scan(&id, &token))
		claimed, tokens = append(claimed, id), append(tokens, token)
	}
	require.NoError(t, rows.Err())
	require.ElementsMatch(t, all[:3], claimed)
	off := func(ids, tokens []string) (n int) {
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_job_put_off($1::uuid[], $2::uuid[], 60)::int", ids, tokens).Scan(&n))
		return n
	}
	require.Equal(t, 2, off(claimed[:2], tokens[:2]))
	require.Equal(t, 2, off(claimed[:2], tokens[:2]), "again")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 1, get[int](j.core, "SELECT sum(live)::int FROM public.job_lease"))
	for _, id := range claimed[:2] {
		require.Equal(t, "queued 0 0", j.state(id))
	}
	require.Equal(t, 2, get[int](j.core, `SELECT count(*)::int FROM public.job_queue WHERE job_id = ANY ($1::uuid[]) AND NOT ready
		AND process_after BETWEEN now() + interval '50 seconds' AND now() + interval '60 seconds' AND lease_token IS NULL`, claimed[:2]))
	j.balanced()
	require.Equal(t, all[3:], ids(j.take("w", 3)), "the others can be claimed")

	j.exec("UPDATE public.job_queue SET process_after = now() WHERE NOT ready")
	call(t, j.work, "public.fn_job_tick()")
	again := j.one("w")
	require.Contains(t, claimed[:2], again.Job)
	var n int
	require.NoError(t, j.work.QueryRow(context.Background(), "SELECT public.fn_job_put_off($1::uuid[], $2::uuid[], 60)::int", claimed[:2], tokens[:2]).Scan(&n))
	require.Equal(t, 1, n, "the later claim keeps it")
	require.Equal(t, "leased 0 0", j.state(again.Job))
	for _, seconds := range []string{"-1", "3601", "NULL", "'NaN'"} {
		fails(t, j.work, "22023", "SELECT public.fn_job_put_off($1::uuid[], $2::uuid[], "+seconds+")", claimed[:1], tokens[:1])
	}
}
