// The frequent statements use their indexes however long the history is, and a claim changes no
// indexed column.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// past inserts n finished jobs into the history without triggers, as no role may.
func (j *jobs) past(n int) {
	j.t.Helper()
	conn := j.db.Conn(j.t, "")
	for _, sql := range []string{"SET statement_timeout = 0", "SET session_replication_role = replica",
		fmt.Sprintf(`INSERT INTO public.job_history (job_id, job_kind, event_domain, executor, status, from_status, finished_at)
			SELECT gen_random_uuid(), 'k' || i %% 5, 'iu', 'external_worker', 'succeeded', 'leased', now() + (i %% 20) * interval '1 day' FROM generate_series(1, %d) i`, n)} {
		_, err := conn.Exec(context.Background(), sql)
		require.NoError(j.t, err)
	}
}

// reads runs sql in a separate transaction. Per table it returns the number of sequential scans,
// the rows they read, index scans, updates, and HOT updates.
func (j *jobs) reads(sql string, args ...any) map[string][5]int64 {
	j.t.Helper()
	ctx, out := context.Background(), map[string][5]int64{}
	conn := j.db.Conn(j.t, "")
	require.NoError(j.t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT relname::text, COALESCE(seq_scan, 0), COALESCE(seq_tup_read, 0), COALESCE(idx_scan, 0), n_tup_upd, n_tup_hot_upd
			FROM pg_stat_xact_user_tables WHERE relname ~ '^job_'`)
		if err != nil {
			return err
		}
		var table string
		var n [5]int64
		_, err = pgx.ForEachRow(rows, []any{&table, &n[0], &n[1], &n[2], &n[3], &n[4]}, func() error {
			out[table] = n
			return nil
		})
		return err
	}), sql)
	require.NoError(j.t, conn.Close(ctx))
	require.NotEmpty(j.t, out, "the server counts")
	return out
}

func TestJobHotPathScansNoHistory(t *testing.T) {
	j := newJobs(t)
	n, live := 50000, 2000
	if full() {
		n, live = 1000000, 20000
	}
	j.past(n)
	j.jobSubscription("w", "", "", 0, 1000000)
	for _, analysed := range []bool{false, true} {
		j.put("order", "iu", live)
		j.put("order", "kg", live)
		j.exec("SELECT public.fn_job_enqueue('order', 'iu', 'external_worker', p_process_after => now() + '1 hour') FROM generate_series(1, 100)")
		if analysed {
			j.exec("ANALYZE")
		}
		for _, step := range []struct{ what, sql string }{
			{"claim", "SELECT * FROM public.fn_job_claim('w', NULL, 100, NULL)"},
			{"claim of a few", "SELECT * FROM public.fn_job_claim('w', '{order}', 1, NULL)"},
			{"claim after a key", `SELECT * FROM public.fn_job_claim('w', NULL, 10, '{"iu/order": [100, "2020-01-01T00:00:00Z", "00000000-0000-0000-0000-000000000000"]}')`},
			{"tick", "UPDATE public.job_queue SET process_after = now() WHERE NOT ready AND job_id = (SELECT job_id FROM public.job_queue WHERE NOT ready ORDER BY process_after, job_id LIMIT 1)"},
			{"tick", "SELECT public.fn_job_tick()"},
			{"expire", "UPDATE public.job_lease SET lease_until = now() - interval '1 second'"},
			{"reap", "SELECT public.fn_job_reap_expired()"},
			{"snapshot", "SELECT public.fn_queue_snapshot('0')"},
			{"health", "SELECT * FROM public.v_queue_health"},
		} {
			for table, r := range j.reads(step.sql) {
				switch {
				case len(table) > 11 && table[:11] == "job_history":
					if table != "job_history_default" || r[1] > 0 {
						require.Zero(t, r[0], "%s scans %s", step.what, table)
						require.Zero(t, r[2], "%s looks into %s", step.what, table)
					}
				case table == "job_queue":
					require.Zero(t, r[1], "%s scans %s from end to end", step.what, table)
				}
			}
		}
	}
}

// Reporting a result that is not a repeat reads no leaf of the history.
func TestJobResultsReadNoHistory(t *testing.T) {
	j := newJobs(t)
	j.past(2000)
	j.jobSubscription("w", "", "", 0, 1000000)
	j.put("order", "iu", 40)
	for _, what := range []string{"start", "renew", "ack", "release", "fail"} {
		hs := j.take("w", 5)
		sql, args := "SELECT public.fn_job_"+what+"($1::uuid[], $2::uuid[])", []any{ids(hs), tokens(hs)}
		if what == "fail" {
			sql = "SELECT public.fn_job_fail($1::uuid[], $2::uuid[], '{A,A,A,A,A}', '{b,b,b,b,b}', '{f,f,f,f,f}')"
		}
		for table, r := range j.reads(sql, args...) {
			if len(table) > 11 && table[:11] == "job_history" {
				require.Zero(t, r[0]+r[2], "%s looks into %s", what, table)
			}
		}
	}
}

func TestJobClaimsStayHot(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000000)
	j.put("k", "iu", 5000)
	var updates, hot int64
	for range 50 {
		r := j.reads("SELECT * FROM public.fn_job_claim('w', NULL, 100, NULL)")["job_queue"]
		updates, hot = updates+r[3], hot+r[4]
	}
	require.EqualValues(t, 5000, updates)
	require.Greater(t, float64(hot)/float64(updates), 0.8, "of %d claims %d were HOT", updates, hot)
	t.Logf("of %d claims %d were HOT", updates, hot)
}

// No column that a claim writes is in an index of job_queue, so that the update can be HOT.
func TestJobIndexesHoldNoClaim(t *testing.T) {
	j := newJobs(t)
	j.none("an index that holds what a claim changes", `SELECT i.indexrelid::regclass FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
		WHERE i.indrelid = 'public.job_queue'::regclass AND a.attname IN ('status', 'lease_owner', 'lease_until', 'lease_token', 'picked_at', 'updated_at', 'attempts')
			AND (a.attnum = ANY (i.indkey) OR pg_get_expr(i.indpred, i.indrelid) ~ ('\y' || a.attname || '\y'))`)
}
