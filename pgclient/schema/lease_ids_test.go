// Only the caller of a claim sees the token of its lease; all others see a public id.

package schema_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// leaseID returns the public id of the lease of a job.
func (j *jobs) leaseID(h held) string {
	j.t.Helper()
	return get[string](j.core, "SELECT left(encode(sha256(uuid_send($1::uuid)), 'hex'), 32)::uuid::text", h.Token)
}

func TestNoLeaseTokenCanBeRead(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 3)
	done, leased := j.one("w"), j.one("w")
	require.Equal(t, "done", j.outcome("ack", done))
	j.expire(leased)
	j.exec("SELECT public.fn_metrics_sampler_run()")
	h := &hooks{t: t, db: j.db, root: j.root, work: j.as("event_ingest_writer", "subscription_admin", "router_worker", "saga_orchestrator", "webhook_worker")}
	h.subscribe("order")
	h.emit("order", 1)
	h.step()
	hook := h.claim(1)
	require.Len(t, hook, 1)
	secrets := []string{done.Token, leased.Token, hook[0].Token}

	conn := j.db.Conn(t, "")
	for _, role := range roles[:len(roles)-1] {
		rows, err := conn.Query(t.Context(), `SELECT format('SELECT COALESCE(string_agg(r::text, %L), %L) FROM (SELECT %s FROM public.%I) r', E'\n', '',
				string_agg(quote_ident(a.attname), ', '), c.relname)
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			WHERE c.`+publicRelations+` AND c.relkind IN ('r', 'p', 'v') AND has_column_privilege($1, c.oid, a.attnum, 'SELECT') GROUP BY c.relname`, role)
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		if role == "queue_viewer" {
			require.Greater(t, len(all), 60)
			all = append(all, "SELECT public.fn_queue_snapshot('0s')::text")
		}
		_, err = conn.Exec(t.Context(), "SET ROLE "+role)
		require.NoError(t, err)
		for _, sql := range all {
			var text string
			require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&text), sql)
			for _, secret := range secrets {
				require.False(t, strings.Contains(text, secret), "%s reads the token of a lease: %s", role, sql)
			}
		}
		_, err = conn.Exec(t.Context(), "RESET ROLE")
		require.NoError(t, err)
	}
	public := held{Job: leased.Job, Token: j.leaseID(leased)}
	require.Equal(t, public.Token+" "+public.Token, get[string](j.core, `SELECT concat_ws(' ', lease_id, lease_token) FROM public.v_job WHERE job_id = $1`, leased.Job),
		"programs of the release before find the id where the token was")
	require.Equal(t, "lease_lost", j.outcome("ack", public), "an id is no token")
	require.Equal(t, "leased 0 0", j.state(leased.Job))
}

func TestLeasesAreReleasedByIDAndByToken(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 2)
	for i, named := range []func(held) string{j.leaseID, func(h held) string { return h.Token }} {
		h := j.one("w")
		j.expire(h)
		got := results(t, call(t, j.work, "public.fn_job_lease_release(ARRAY[$1::uuid], 'ann', 'gone')", named(h)))
		require.Equal(t, []any{"released", named(h)}, []any{got[0]["outcome"], got[0]["id"]})
		require.Contains(t, j.state(h.Job), "queued")
		require.Equal(t, i+1, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'job_lease_release'"))
		require.Equal(t, "job_lease "+j.leaseID(h), get[string](j.core, "SELECT target FROM public.queue_operator_action WHERE action = 'job_lease_release' ORDER BY id DESC LIMIT 1"),
			"the audit has the id")
	}
	j.balanced()
}
