// The guards read the call stack; here the server's messages are not in English.

package schema_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestJobsEndInAnotherLanguage(t *testing.T) {
	j := newJobs(t)
	var database string
	require.NoError(t, j.root.QueryRow(context.Background(), "SELECT current_database()").Scan(&database))
	tx := j.begin(j.root)
	_, err := tx.Exec(context.Background(), "SET LOCAL lc_messages = 'C.UTF-8'")
	if err == nil {
		_, err = tx.Exec(context.Background(), "DO $$ BEGIN PERFORM 1 / 0; END $$")
	}
	require.NoError(t, tx.Rollback(context.Background()))
	if err == nil || !strings.Contains(err.Error(), "Division durch Null") {
		t.Skipf("this server has no German messages under C.UTF-8 (%v): its catalogs or that locale are missing, or it does not run with LANGUAGE=de", err)
	}
	j.exec("ALTER DATABASE " + pgx.Identifier{database}.Sanitize() + " SET lc_messages = 'C.UTF-8'")
	j.root.Reset()
	j.work.Reset()
	require.Equal(t, "C.UTF-8", get[string](j.core, "SHOW lc_messages"))

	for _, status := range []string{"succeeded", "failed", "cancelled", "dead_letter"} {
		h := j.standing(status)
		require.Equal(t, status, get[string](j.core, "SELECT status FROM public.job_history WHERE job_id = $1", h.Job))
	}
	deadLetter := get[string](j.core, "SELECT dead_letter_id::text FROM public.job_dead_letter")
	call(t, j.work, "public.fn_job_dead_letter_replay(ARRAY[$1]::uuid[], 'ann', 'test')", deadLetter)
	call(t, j.work, "public.fn_job_dead_letter_replay_undo(ARRAY[$1]::uuid[], 'ann', 'test')", deadLetter)
	require.Equal(t, "open", get[string](j.core, "SELECT triage_status FROM public.job_dead_letter"))
	h := j.standing("leased")
	j.exec("UPDATE public.job_queue SET lease_until = now() - interval '1 hour', lost_leases = 99 WHERE job_id = $1", h.Job)
	j.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 hour'")
	call(t, j.work, "public.fn_job_reap_expired()")
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.job_queue WHERE status = 'leased'"))
	j.balanced()
	require.Equal(t, "42501", j.byHand("queue_owner", "DELETE FROM public.job_queue"))
	j.exec("SELECT public.fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'test')")
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE target = 'webhook.max_attempts' AND reason LIKE '%by hand'"))
}
