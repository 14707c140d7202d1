// Idempotency: one job per scope, kind and key, however many producers ask at once.
// fn_job_enqueue_many answers in the order given.

package schema_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestJobKeyOnce(t *testing.T) {
	j := newJobs(t)
	const enqueue = "public.fn_job_enqueue($1, 'iu', 'external_worker', p_idempotency_key => $2)"
	pool := j.wide(16, "event_ingest_writer")
	answers := together(t, 16, func(int) (map[string]any, error) { return tryCall(pool, enqueue, "k", "one") })
	require.Equal(t, 1, count(answers, "created", true), answers)
	job := get[string](j.core, "SELECT job_id::text FROM public.job_queue")
	require.Equal(t, 16, count(answers, "job_id", job))
	require.Equal(t, true, call(t, pool, enqueue, "other", "one")["created"], "a key belongs to a kind")
	require.Equal(t, true, call(t, pool, enqueue, "k", nil)["created"])
	require.Equal(t, true, call(t, pool, enqueue, "k", nil)["created"], "no key, no bound")
	fails(t, pool, "22023", "SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => '')")
}

// Producers ask for keys while the jobs of the keys end and are swept: there are never two live
// jobs per key, and never a deadlock.
func TestJobKeyRace(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	pool := j.wide(12, "event_ingest_writer", "dot_executor")
	together(t, 12, func(i int) (map[string]any, error) {
		for round := range 20 {
			var err error
			switch {
			case i < 5: // in a different order each time
				var list []map[string]any
				for _, n := range rand.Perm(60) {
					list = append(list, map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": fmt.Sprint("key", n%40)})
				}
				_, err = tryCall(pool, "public.fn_job_enqueue_many($1)", list)
			case i < 8:
				_, err = tryCall(pool, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => $1)", fmt.Sprint("key", round%40))
			case i == 8:
				_, err = j.root.Exec(context.Background(), "DELETE FROM public.producer_key WHERE final_at IS NOT NULL")
			default:
				var hs []held
				if hs, err = tryTake(pool, "w", nil, 25, nil); err == nil && len(hs) > 0 {
					_, err = tell(context.Background(), pool, []string{"ack", "release"}[i%2], hs...)
				}
			}
			if err != nil {
				var pg *pgconn.PgError
				errors.As(err, &pg)
				return nil, fmt.Errorf("%w %s %s", err, pg.Detail, pg.Where)
			}
		}
		return nil, nil
	})
	j.balanced()
	j.none("two active with one key", "SELECT idempotency_key FROM public.job_queue GROUP BY 1 HAVING count(*) > 1")
	require.LessOrEqual(t, get[int](j.core, "SELECT count(*) FROM public.job_queue"), 40)
}

func TestJobKeysMany(t *testing.T) {
	j := newJobs(t)
	active := call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => 'b')")["job_id"]
	job := func(key any, extra ...any) map[string]any {
		m := map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": key}
		for i := 0; i < len(extra); i += 2 {
			m[extra[i].(string)] = extra[i+1]
		}
		return m
	}
	got := call(t, j.work, "public.fn_job_enqueue_many($1)", []any{job("z", "priority", 7), job("b"), job(nil, "payload", map[string]any{"x": 1}), job("z", "priority", 9),
		job("a", "max_attempts", 2, "actor", "ann"), job("b"), job("b", "job_kind", "other"), job(nil, "process_after", "2200-01-01T00:00:00Z")})
	require.Equal(t, []any{5.0, 3.0}, []any{got["enqueued"], got["existing"]})
	list := got["job_ids"].([]any)
	require.Len(t, list, 8)
	require.Equal(t, []any{active, list[0], active}, []any{list[1], list[3], list[5]})
	require.Equal(t, "k z 7 20 {} true;k  100 20 {\"x\": 1} true;k a 100 2 {} true;other b 100 20 {} true;k  100 20 {} false", get[string](j.core, `
		SELECT string_agg(format('%s %s %s %s %s %s', job_kind, idempotency_key, priority, max_attempts, payload, CASE WHEN ready THEN 'true' ELSE 'false' END), ';' ORDER BY o)
		FROM unnest(ARRAY[$1, $2, $3, $4, $5]::uuid[]) WITH ORDINALITY u (id, o) JOIN public.job_queue ON job_id = id`, list[0], list[2], list[4], list[6], list[7]))
	got = call(t, j.work, "public.fn_job_enqueue_many($1)", []any{job(nil), job(nil, "priority", 1)})
	require.Equal(t, []any{2.0, 0.0}, []any{got["enqueued"], got["existing"]})
	require.Equal(t, 1, get[int](j.core, "SELECT priority FROM public.job_queue WHERE job_id = $1", got["job_ids"].([]any)[1]))

	before := j.all()
	for _, bad := range []any{[]any{}, map[string]any{}, `"x"`, nil} {
		_, err := tryCall(j.work, "public.fn_job_enqueue_many($1)", bad)
		refused(t, "22023", err, fmt.Sprint(bad))
	}
	for _, spoilt := range []map[string]any{job(nil, "executor", "MOT"), job("q", "payload", map[string]any{"token": 1}), job(nil, "job_kind", "no kind"),
		job("q", "event_domain", "No"), job(nil, "executor", nil), job(nil, "priority", "high"), job(nil, "priority", 1<<40), job("q", "priority", 1.5), job(nil, "process_after", "soon"),
		job("q", "process_after", "2026-02-31"), job(nil, "max_attempts", 0), job(nil, "proces_after", "2200-01-01T00:00:00Z"), job("q", "status", "succeeded")} {
		_, err := tryCall(j.work, "public.fn_job_enqueue_many($1)", []any{job(nil), job("fine"), spoilt})
		refused(t, "22023", err, fmt.Sprint(spoilt))
	}
	for _, stray := range []any{5, nil, []any{job(nil)}} {
		_, err := tryCall(j.work, "public.fn_job_enqueue_many($1)", []any{job(nil), job("fine"), stray})
		refused(t, "22023", err, fmt.Sprint(stray))
	}
	require.Equal(t, before, j.all(), "all or nothing")
	j.balanced()
}

// The job of a key is active when the call begins, and finished before the call ends.
func TestJobKeysManyFinishedMeanwhile(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_idempotency_key => 'b')")
	h := j.one("w")
	j.exec(`CREATE FUNCTION public.test_wait() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN NULL; END $$;
		CREATE TRIGGER zz_test_wait AFTER INSERT ON public.job_queue FOR EACH STATEMENT EXECUTE FUNCTION public.test_wait()`)
	tx := j.begin(j.root)
	_, err := tx.Exec(context.Background(), "SELECT pg_advisory_xact_lock(77)")
	require.NoError(t, err)
	done := make(chan map[string]any, 1)
	go func() {
		got, err := tryCall(j.work, `public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'external_worker',
			'idempotency_key', k)) FROM unnest('{a,b,c}'::text[]) k))`)
		if err != nil {
			got = map[string]any{"error": err.Error()}
		}
		done <- got
	}()
	eventually(t, "the call waits", func() bool {
		return get[bool](j.core, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted)")
	})
	require.Equal(t, "done", j.outcome("ack", h))
	require.NoError(t, tx.Rollback(context.Background()))
	got := <-done
	require.Contains(t, got, "job_ids", got)
	require.Equal(t, []any{2.0, 1.0, h.Job}, []any{got["enqueued"], got["existing"], got["job_ids"].([]any)[1]})
}

func TestJobEnqueueManyPays(t *testing.T) {
	j := newJobs(t)
	n, single := 10000, 500
	if full() {
		n, single = 100000, 5000
		j.exec("ALTER DATABASE " + pgx.Identifier{j.db.Name}.Sanitize() + " SET statement_timeout = '15min'")
	}
	pool := j.as("event_ingest_writer")
	start := time.Now()
	for range single {
		call(t, pool, "public.fn_job_enqueue('k', 'iu', 'external_worker', '{\"n\": 1}')")
	}
	each := time.Since(start) / time.Duration(single)
	for _, key := range []string{"NULL", "'key' || i"} {
		start = time.Now()
		got := call(t, pool, `public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'm', 'event_domain', 'iu', 'executor', 'external_worker',
			'payload', '{"n": 1}'::jsonb, 'idempotency_key', `+key+`)) FROM generate_series(1, $1::int) i))`, n)
		many := time.Since(start) / time.Duration(n)
		require.Len(t, got["job_ids"], n)
		t.Logf("one by one %v each; %d in one call (key %s) %v each: %.1f times", each, n, key, many, float64(each)/float64(many))
	}
	require.Equal(t, 2*n, get[int](j.core, "SELECT count(*) FROM public.job_queue WHERE job_kind = 'm'"))
	j.balanced()
}
