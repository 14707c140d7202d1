// Helpers of the job tests: a login with all roles, executors with their job subscriptions, and
// each step of the state machine as one call.

package schema_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// jobs is a database whose retries are due at once: a test calls the next step instead of waiting.
type jobs struct {
	*core
	work *pgxpool.Pool // has all roles of workers, and the operator's
}

func newJobs(t *testing.T) *jobs {
	t.Helper()
	c := newCore(t)
	j := &jobs{core: c, work: c.as("event_ingest_writer", "dot_executor", "dead_letter_operator", "workflow_admin")}
	j.flag("queue.retry.schedule", "0s")
	return j
}

func (j *jobs) flag(key, value string) {
	j.t.Helper()
	j.exec(`INSERT INTO public.dot_config (key, value, updated_by) VALUES ($1, $2, 'test')
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_by = excluded.updated_by`, key, value)
}

// jobSubscription gives an executor a job subscription and registers the executor at the first use; "" = every
// kind or domain.
func (j *jobs) jobSubscription(executor, kind, domain string, floor, parallel int) string {
	j.t.Helper()
	j.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
		stale_threshold_seconds, registered_by) VALUES ($1, 'external_worker', '{}', now(), 60, 300, 'test') ON CONFLICT DO NOTHING`, executor)
	got := call(j.t, j.work, "public.fn_job_subscription_set($1, NULLIF($2, ''), NULLIF($3, ''), $4, $5, true, NULL, 'ann', 'test')",
		executor, kind, domain, floor, parallel)
	require.Contains(j.t, got, "subscription_id", got)
	return got["subscription_id"].(string)
}

// put enqueues n equal jobs and returns their ids, in the order in which they are claimed.
func (j *jobs) put(kind, domain string, n int) []string {
	j.t.Helper()
	return get[[]string](j.core, `SELECT array_agg(x ORDER BY n) FROM jsonb_array_elements_text(public.fn_job_enqueue_many((
		SELECT jsonb_agg(jsonb_build_object('job_kind', $1::text, 'event_domain', $2::text, 'executor', 'external_worker', 'payload', jsonb_build_object('n', i)))
		FROM generate_series(1, $3::int) i)) -> 'job_ids') WITH ORDINALITY a (x, n)`, kind, domain, n)
}

// held is a job that a test has claimed, with its lease token.
type held struct {
	Job, Token, Kind, Domain string
	Priority                 int
	After                    string // process_after
	Owner                    string
}

const heldColumns = "job_id::pg_catalog.text, lease_token::pg_catalog.text, job_kind, event_domain, priority, process_after::pg_catalog.text, lease_owner"

func tryTake(pool *pgxpool.Pool, executor string, kinds []string, limit int, after any) ([]held, error) {
	return takeWithin(context.Background(), pool, executor, kinds, limit, after)
}

// querier is a pool, a session or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func takeWithin(ctx context.Context, pool querier, executor string, kinds []string, limit int, after any) ([]held, error) {
	rows, err := pool.Query(ctx, "SELECT "+heldColumns+" FROM public.fn_job_claim($1, $2, $3, $4)", executor, kinds, limit, after)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[held])
}

func (j *jobs) take(executor string, limit int) []held {
	j.t.Helper()
	got, err := tryTake(j.work, executor, nil, limit, nil)
	require.NoError(j.t, err)
	return got
}

// one claims a single job; there must be one.
func (j *jobs) one(executor string) held {
	j.t.Helper()
	got := j.take(executor, 1)
	require.Len(j.t, got, 1)
	return got[0]
}

// ids returns the ids of the claimed jobs.
func ids(hs []held) (out []string) {
	for _, h := range hs {
		out = append(out, h.Job)
	}
	return out
}

func tokens(hs []held) (out []string) {
	for _, h := range hs {
		out = append(out, h.Token)
	}
	return out
}

// tell reports for jobs. It calls fn_job_start, fn_job_renew, fn_job_ack or fn_job_release if what
// is "start", "renew", "ack" or "release". An upper-case what is a failure code for fn_job_fail;
// with "!" at its end the failure is permanent. tell returns the outcome per job id.
func tell(ctx context.Context, pool querier, what string, hs ...held) (map[string]string, error) {
	sql, args := "SELECT job_id::pg_catalog.text, outcome FROM public.fn_job_"+what+"($1, $2)", []any{ids(hs), tokens(hs)}
	if code := strings.TrimSuffix(what, "!"); code == strings.ToUpper(code) {
		codes, errs, permanent := []string{}, []string{}, []bool{}
		for range hs {
			codes, errs, permanent = append(codes, code), append(errs, "it broke"), append(permanent, code != what)
		}
		sql = "SELECT job_id::pg_catalog.text, outcome FROM public.fn_job_fail($1, $2, $3, $4, $5)"
		args = append(args, codes, errs, permanent)
	}
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var id, outcome string
	_, err = pgx.ForEachRow(rows, []any{&id, &outcome}, func() error {
		if old, twice := out[id]; twice && old != outcome {
			return fmt.Errorf("job %s is both %s and %s", id, old, outcome)
		}
		out[id] = outcome
		return nil
	})
	return out, err
}

// outcome calls tell for these jobs and returns their distinct outcomes, sorted and separated by
// commas.
func (j *jobs) outcome(what string, hs ...held) string {
	j.t.Helper()
	got, err := tell(context.Background(), j.work, what, hs...)
	require.NoError(j.t, err, what)
	var outcomes []string
	for _, h := range hs {
		require.Contains(j.t, got, h.Job, what)
		outcomes = append(outcomes, got[h.Job])
	}
	slices.Sort(outcomes)
	return strings.Join(slices.Compact(outcomes), ",")
}

// state returns status, attempts and lost leases of a job.
func (j *jobs) state(job string) string {
	j.t.Helper()
	return get[string](j.core, "SELECT concat_ws(' ', status, attempts, lost_leases) FROM public.v_job WHERE job_id = $1", job)
}

// all returns all rows about jobs as text, to compare that nothing changed.
func (j *jobs) all() string {
	j.t.Helper()
	return get[string](j.core, `SELECT concat_ws(E'\n', (SELECT string_agg(q::text, E'\n' ORDER BY job_id) FROM public.job_queue q),
		(SELECT string_agg(h::text, E'\n' ORDER BY job_id) FROM public.job_history h), (SELECT string_agg(l::text, E'\n' ORDER BY lease_token) FROM public.job_lease l),
		(SELECT string_agg(d::text, E'\n' ORDER BY dead_letter_id) FROM public.job_dead_letter d),
		(SELECT string_agg(concat_ws('/', scope, k1, k2, k3, n), ' ' ORDER BY scope, k1, k2, k3) FROM public.v_queue_counter WHERE n <> 0))`)
}

// expire makes the leases of these jobs expire; without jobs, all leases.
func (j *jobs) expire(hs ...held) {
	j.t.Helper()
	j.exec("UPDATE public.job_lease SET lease_until = now() - interval '1 second' WHERE $1::uuid[] IS NULL OR lease_token = ANY ($1)", tokens(hs))
}

func (j *jobs) reap() map[string]any {
	j.t.Helper()
	return call(j.t, j.work, "public.fn_job_reap_expired()")
}

// deadLetter makes a job that fails for good and returns the id of its dead letter.
func (j *jobs) deadLetter(kind, domain, code string) string {
	j.t.Helper()
	j.exec(`SELECT public.fn_job_enqueue($1, $2, 'external_worker', '{"n": 1, "api_key": "hidden-key"}', p_max_attempts => 1)`, kind, domain)
	j.jobSubscription("undertaker", kind, domain, 0, 100)
	h := j.one("undertaker")
	require.Equal(j.t, "done", j.outcome(code, h))
	return get[string](j.core, "SELECT dead_letter_id::text FROM public.job_dead_letter WHERE job_id = $1", h.Job)
}

// balanced requires that counters, leases and dead letters agree with a count of the tables.
func (j *jobs) balanced() {
	j.t.Helper()
	differ := func(what, counted, told string) {
		j.t.Helper()
		j.none(what, `SELECT concat_ws(' ', k1, k2, k3, 'counted', c.n, 'told', v.n) FROM (`+counted+`) c FULL JOIN (`+told+`) v USING (k1, k2, k3)
			WHERE c.n IS DISTINCT FROM v.n`)
	}
	const told = "SELECT k1, k2, k3, n FROM public.v_queue_counter WHERE n <> 0 AND scope = "
	differ("counter job", `SELECT job_kind k1, event_domain k2, CASE WHEN status = 'queued' AND NOT ready THEN 'scheduled' ELSE status END k3, count(*) n
		FROM public.v_job GROUP BY 1, 2, 3`, told+"'job'")
	differ("counter dead_job", `SELECT failure_code k1, job_kind k2, event_domain k3, count(*) n FROM public.job_dead_letter WHERE resolved_at IS NULL GROUP BY 1, 2, 3`,
		told+"'dead_job'")
	differ("job_lease.live", "SELECT lease_token k1, '' k2, '' k3, count(*) n FROM public.job_queue WHERE lease_token IS NOT NULL GROUP BY 1",
		"SELECT lease_token k1, '' k2, '' k3, live n FROM public.job_lease")
	j.none("a dead job has one dead letter, another none", `SELECT job_id FROM (SELECT job_id FROM public.job_history WHERE status = 'dead_letter' OR from_status = 'dead_letter') h
		FULL JOIN public.job_dead_letter d USING (job_id) WHERE d.job_id IS NULL OR (SELECT count(*) FROM public.job_history x WHERE x.job_id = d.job_id) <> 1`)
	j.none("once in v_job", "SELECT job_id FROM public.v_job GROUP BY 1 HAVING count(*) > 1")
}

func join(list []string) string { return strings.Join(list, ",") }

func texts(t *testing.T, rows pgx.Rows) []string {
	t.Helper()
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return out
}
