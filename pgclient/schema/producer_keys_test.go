// Idempotency keys: for how long a key belongs to its job, for which logins, and for which payload.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

const keyed = `public.fn_job_enqueue('k', 'iu', 'external_worker', $1, p_max_attempts => 2, p_idempotency_key => 'order-17')`

// later makes keys and dead letters older by an interval, and runs the retention sweep.
func (j *jobs) later(by string) {
	j.t.Helper()
	j.exec("UPDATE public.producer_key SET final_at = final_at - $1::text::interval", by)
	j.exec("ALTER TABLE public.job_dead_letter DISABLE TRIGGER trg_job_dead_letter_edge")
	j.exec("UPDATE public.job_dead_letter SET resolved_at = resolved_at - $1::text::interval", by)
	j.exec("ALTER TABLE public.job_dead_letter ENABLE TRIGGER trg_job_dead_letter_edge")
	j.exec("SELECT public.fn_queue_retention_sweep()")
}

func TestJobKeyLife(t *testing.T) {
	deadLetters := func(j *jobs) []string {
		return get[[]string](j.core, "SELECT array_agg(dead_letter_id::text) FROM public.job_dead_letter WHERE resolved_at IS NULL")
	}
	end := func(what string) func(*jobs) {
		return func(j *jobs) { require.Equal(j.t, "done", j.outcome(what, j.one("w"))) }
	}
	done := end("ack")
	again := end("TIMEOUT")
	due := func(j *jobs) {
		j.exec("UPDATE public.job_queue SET process_after = now() WHERE status = 'retry_waiting'; SELECT public.fn_job_tick()")
	}
	dead := func(j *jobs) {
		again(j)
		due(j)
		again(j)
	}
	cancelled := func(j *jobs) {
		j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue")
	}
	replayed := func(j *jobs) {
		require.EqualValues(j.t, 1, call(j.t, j.work, replay, deadLetters(j), "ann")["replayed"])
	}
	undone := func(j *jobs) {
		j.exec("SELECT public.fn_job_dead_letter_replay_undo(array_agg(dead_letter_id), 'ann', 'test') FROM public.job_dead_letter")
	}
	resolved := func(j *jobs) {
		j.exec("SELECT public.fn_job_dead_letter_resolve($1, 'abandoned', 'test', 'ann')", deadLetters(j))
	}
	later := func(by string) func(*jobs) { return func(j *jobs) { j.later(by) } }
	for _, c := range []struct {
		name   string
		steps  []func(*jobs)
		status string // "" = the key is free
		moved  bool   // the key belongs to the job of the replay
	}{
		{"queued", nil, "queued", false},
		{"leased", []func(*jobs){func(j *jobs) { j.one("w") }}, "leased", false},
		{"running", []func(*jobs){func(j *jobs) { j.outcome("start", j.one("w")) }}, "in_progress", false},
		{"handed back", []func(*jobs){end("release")}, "queued", false},
		{"to be tried again", []func(*jobs){again, later("6 days")}, "retry_waiting", false},
		{"tried again and done", []func(*jobs){again, due, done, later("6 days")}, "succeeded", false},
		{"done 1 s ago", []func(*jobs){done, later("1 second")}, "succeeded", false},
		{"done 1 h ago", []func(*jobs){done, later("1 hour")}, "succeeded", false},
		{"done 6 days ago", []func(*jobs){done, later("6 days")}, "succeeded", false},
		{"done 8 days ago", []func(*jobs){done, later("8 days")}, "", false},
		{"failed", []func(*jobs){end("BROKEN!")}, "failed", false},
		{"cancelled", []func(*jobs){cancelled, later("6 days")}, "cancelled", false},
		{"cancelled 8 days ago", []func(*jobs){cancelled, later("8 days")}, "", false},
		{"dead", []func(*jobs){dead, later("1 hour")}, "dead_letter", false},
		{"dead for a year", []func(*jobs){dead, later("365 days")}, "dead_letter", false},
		{"dead for a year, just resolved", []func(*jobs){dead, later("365 days"), resolved, later("6 days")}, "dead_letter", false},
		{"resolved 8 days ago", []func(*jobs){dead, resolved, later("8 days")}, "", false},
		{"replayed", []func(*jobs){dead, replayed, later("30 days")}, "queued", true},
		{"replayed and done", []func(*jobs){dead, replayed, done, later("6 days")}, "succeeded", true},
		{"replayed and done 8 days ago", []func(*jobs){dead, replayed, done, later("8 days")}, "", true},
		{"replay taken back", []func(*jobs){dead, replayed, undone, later("30 days")}, "dead_letter", false},
		{"dead and replayed twice", []func(*jobs){dead, replayed, dead, later("30 days"), replayed}, "queued", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJobs(t)
			j.flag("queue.retry.schedule", "1h")
			j.jobSubscription("w", "", "", 0, 100)
			racing := 4
			if full() {
				racing = 16
			}
			mine, other := j.wide(int32(racing), "event_ingest_writer"), j.as("event_ingest_writer") //nolint:gosec // few
			first := call(t, mine, keyed, `{"order": 17, "lines": [1.0, 2]}`)
			require.Equal(t, map[string]any{"job_id": first["job_id"], "created": true, "status": "queued"}, first)
			for _, step := range c.steps {
				step(j)
			}
			// all producers at once, every second one with fn_job_enqueue_many
			race := func(payload string) (made int, answers []map[string]any) {
				many := `[{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "payload": ` + payload + `, "idempotency_key": "order-17"}]`
				answers = together(t, racing, func(i int) (map[string]any, error) {
					if i%2 == 0 {
						return tryCall(mine, keyed, payload)
					}
					got, err := tryCall(mine, "public.fn_job_enqueue_many($1::pg_catalog.jsonb)", many)
					if err != nil {
						return nil, err
					}
					return map[string]any{"job_id": got["job_ids"].([]any)[0], "created": got["enqueued"] == 1.0, "status": got["statuses"].([]any)[0]}, nil
				})
				return count(answers, "created", true), answers
			}
			if c.status == "" {
				made, answers := race(`{"order": 18}`)
				require.Equal(t, 1, made)
				require.NotEqual(t, first["job_id"], answers[0]["job_id"])
				require.Equal(t, racing, count(answers, "job_id", answers[0]["job_id"]))
				j.balanced()
				return
			}
			want := first["job_id"]
			if c.moved {
				want = get[string](j.core, "SELECT target_id::text FROM public.producer_key")
				require.NotEqual(t, want, first["job_id"])
				if c.status == "queued" {
					require.Equal(t, first["job_id"], get[string](j.core, "SELECT root_job_id::text FROM public.job_root WHERE job_id = $1", want))
				}
			}
			_, answers := race(`{"lines": [1.0, 2], "order": 17}`)
			for _, answer := range answers {
				require.Equal(t, map[string]any{"job_id": want, "created": false, "status": c.status}, answer)
			}
			_, err := tryCall(mine, keyed, `{"order": "of somebody else"}`)
			refused(t, "23505", err, "other payload")
			require.ErrorContains(t, err, fmt.Sprint("belongs to job ", want))
			require.NotContains(t, err.Error(), "somebody")
			for _, content := range []string{"'kg', 'external_worker'", "'iu', 'Agent'"} {
				_, err := tryCall(mine, "public.fn_job_enqueue('k', "+content+`, '{"order": 17, "lines": [1.0, 2]}', p_idempotency_key => 'order-17')`)
				refused(t, "23505", err, content)
			}
			theirs := call(t, other, keyed, `{"order": "of somebody else"}`)
			require.Equal(t, true, theirs["created"], "another login has a job of its own")
			require.Equal(t, map[string]any{"job_id": want, "created": false, "status": c.status}, call(t, mine, keyed, `{"order": 17, "lines": [1.0, 2]}`))
			require.Equal(t, map[string]any{"job_id": theirs["job_id"], "created": false, "status": "queued"}, call(t, other, keyed, `{"order": "of somebody else"}`))
			j.balanced()
		})
	}
}

func TestJobRootsAreSwept(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	call(t, j.work, replay, []string{j.deadLetter("k", "iu", "TIMEOUT")}, "ann")
	j.later("1 hour")
	require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.job_root"), "its job is in the queue")
	require.Equal(t, "done", j.outcome("TIMEOUT", j.take("undertaker", 1)...))
	j.later("1 hour")
	require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.job_root"), "its job may be replayed")
	call(t, j.work, replay, get[[]string](j.core, "SELECT array_agg(dead_letter_id::text) FROM public.job_dead_letter WHERE resolved_at IS NULL"), "ann")
	require.Equal(t, "done", j.outcome("ack", j.take("undertaker", 1)...))
	j.later("1 hour")
	require.Equal(t, 1, get[int](j.core, "SELECT count(*)::int FROM public.job_root"))
}

func TestJobKeyScopes(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 100)
	team := pgtest.Login(t, j.db)
	login := func(groups ...string) *pgxpool.Pool {
		return j.db.Pool(t, pgtest.Login(t, j.db, append(groups, "event_ingest_writer")...))
	}
	ann, bob, stranger := login(team), login(team), login()
	const put = `public.fn_job_enqueue('k', 'iu', 'external_worker', $1, p_idempotency_key => 'one', p_scope => $2)`
	first := call(t, ann, put, `{"n": 1}`, nil)["job_id"]
	other := call(t, bob, put, `{"n": 2}`, nil)
	require.Equal(t, true, other["created"], "a login's keys are its own")
	require.NotEqual(t, first, other["job_id"])
	require.Equal(t, first, call(t, ann, put, `{"n": 1}`, nil)["job_id"])
	require.Equal(t, other["job_id"], call(t, bob, put, `{"n": 2}`, nil)["job_id"])

	shared := call(t, ann, put, `{"n": 3}`, team)
	require.Equal(t, true, shared["created"])
	require.Equal(t, map[string]any{"job_id": shared["job_id"], "created": false, "status": "queued"}, call(t, bob, put, `{"n": 3}`, team))
	for _, scope := range []string{team, "queue_owner", "nobody of this name", ""} {
		_, err := tryCall(stranger, put, `{"n": 3}`, scope)
		refused(t, "42501", err, scope)
		require.ErrorContains(t, err, "may not use idempotency keys of scope "+scope)
		_, err = tryCall(stranger, "public.fn_job_enqueue_many($1)", []any{map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "Agent", "idempotency_key": "x", "scope": scope}})
		refused(t, "42501", err, scope)
	}
	got := call(t, bob, "public.fn_job_enqueue_many($1)", []any{
		map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": "one", "scope": team, "payload": map[string]any{"n": 3}},
		map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": "one", "payload": map[string]any{"n": 2}},
		map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": "one", "scope": "event_ingest_writer"},
	})
	require.Equal(t, []any{1.0, 2.0}, []any{got["enqueued"], got["existing"]})
	require.Equal(t, []any{shared["job_id"], other["job_id"]}, got["job_ids"].([]any)[:2])
	require.Equal(t, []any{"queued", "queued", "queued"}, got["statuses"])
	require.Equal(t, 4, get[int](j.core, "SELECT count(DISTINCT idempotency_key)::int FROM public.job_queue WHERE idempotency_key ~ '^one( of .*)?$'"))
	require.Equal(t, "done", j.outcome("ack", j.take("w", 10)...))
	require.Equal(t, "succeeded", call(t, bob, put, `{"n": 3}`, team)["status"])
	j.balanced()
}

// 16 producers, half of them with fn_job_enqueue_many and keys in different orders, make one job
// per key.
func TestJobKeyRacingProducers(t *testing.T) {
	j := newJobs(t)
	pool := j.wide(16, "event_ingest_writer")
	answers := together(t, 16, func(i int) (map[string]any, error) {
		if i%2 == 0 {
			return tryCall(pool, keyed, "{}")
		}
		var jobs []map[string]string
		for n := range 40 {
			n := []int{1 + n, 40 - n}[i/2%2]
			jobs = append(jobs, map[string]string{"job_kind": "k", "event_domain": "iu", "executor": "external_worker", "idempotency_key": fmt.Sprintf("order-%d", n)})
		}
		text, err := json.Marshal(jobs)
		if err != nil {
			return nil, err
		}
		return tryCall(pool, "public.fn_job_enqueue_many($1::pg_catalog.jsonb)", string(text))
	})
	require.Len(t, answers, 16)
	require.Equal(t, "40 40", get[string](j.core, "SELECT concat_ws(' ', count(*), count(DISTINCT idempotency_key)) FROM public.job_queue"))
	one := get[string](j.core, "SELECT job_id::text FROM public.job_queue WHERE idempotency_key = 'order-17'")
	require.Equal(t, 8, count(answers, "job_id", one))
	for i, a := range answers {
		if many, ok := a["job_ids"].([]any); ok {
			require.Equal(t, one, many[[]int{16, 23}[i/2%2]])
		}
	}
	j.balanced()
}

// A second producer of a key waits for the first to commit. If the first rolls back, the second
// makes the job.
func TestJobKeyRollback(t *testing.T) {
	j := newJobs(t)
	pool := j.wide(2, "event_ingest_writer")
	for _, commit := range []bool{false, true} {
		tx := j.begin(pool)
		var first map[string]any
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT "+keyed, "{}").Scan(&first))
		second := make(chan map[string]any, 1)
		go func() {
			got, err := tryCall(pool, keyed, "{}")
			if err != nil {
				got = map[string]any{"error": err.Error()}
			}
			second <- got
		}()
		eventually(t, "the second waits", func() bool {
			return get[bool](j.core, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)")
		})
		if commit {
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, map[string]any{"job_id": first["job_id"], "created": false, "status": "queued"}, <-second)
			continue
		}
		require.NoError(t, tx.Rollback(context.Background()))
		got := <-second
		require.Equal(t, true, got["created"], got)
		require.NotEqual(t, first["job_id"], got["job_id"])
		j.exec("SELECT public.fn_job_cancel(array_agg(job_id), 'ann', 'test') FROM public.job_queue; DELETE FROM public.producer_key")
	}
}

// A producer that lost its connection after the commit asks again on another connection, and gets
// the same job.
func TestJobKeyAfterALostAnswer(t *testing.T) {
	j := newJobs(t)
	login := pgtest.Login(t, j.db, "event_ingest_writer")
	lost := j.db.Conn(t, login)
	pid := lost.PgConn().PID()
	_, err := lost.Exec(t.Context(), "SELECT "+keyed, "{}")
	require.NoError(t, err)
	j.exec("SELECT pg_terminate_backend($1)", int(pid))
	_, err = lost.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
	got := call(t, j.db.Pool(t, login), keyed, "{}")
	require.Equal(t, false, got["created"])
	require.Equal(t, get[string](j.core, "SELECT job_id::text FROM public.job_queue"), got["job_id"])
}

func TestJobKeyUnderRepeatableRead(t *testing.T) {
	j := newJobs(t)
	pool := j.wide(2, "event_ingest_writer")
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	first := call(t, pool, keyed, "{}")["job_id"]
	_, err = tx.Exec(t.Context(), "SELECT "+keyed, "{}")
	refused(t, "40001", err, "the key was not there when the transaction began")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, first, call(t, pool, keyed, "{}")["job_id"], "in a new transaction")
}

// A key belongs to the login that uses it. One session emits with a key and rolls back, while 16
// others of two logins emit with the same key: each login gets one event.
func TestEventKeyRacingProducers(t *testing.T) {
	p := newProducing(t)
	one, other := p.wide(9, "event_ingest_writer"), p.wide(8, "event_ingest_writer")
	const emit = `public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', NULL, NULL, '{"n": 1}', p_idempotency_key => 'a')`
	first := p.begin(one)
	_, err := first.Exec(context.Background(), "SELECT "+emit)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		for get[int](p.core, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted") == 0 {
			runtime.Gosched() // until another session waits for this transaction
		}
		ended <- first.Rollback(context.Background())
	}()
	answers := together(t, 16, func(i int) (map[string]any, error) {
		return tryCall([]*pgxpool.Pool{one, other}[i%2], emit)
	})
	require.NoError(t, <-ended)
	require.Equal(t, 2, count(answers, "created", true), answers)
	for i := range 2 {
		require.Equal(t, 8, count(answers, "event_id", answers[i]["event_id"]), answers)
	}
	require.Equal(t, 2, get[int](p.core, "SELECT count(*)::int FROM public.event_outbox"))
}

func TestEventKeyUnderRepeatableRead(t *testing.T) {
	p := newProducing(t)
	pool := p.wide(2, "event_ingest_writer")
	const emit = "public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', NULL, NULL, p_idempotency_key => 'a')"
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO public.business (what) VALUES ('x')")
	require.NoError(t, err)
	first := call(t, pool, emit)["event_id"]
	_, err = tx.Exec(t.Context(), "SELECT "+emit)
	refused(t, "40001", err, "the key was not there when the transaction began")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, map[string]any{"event_id": first, "event_domain": "iu", "event_type": "made", "created": false}, call(t, pool, emit), "in a new transaction")
	require.Equal(t, 1, get[int](p.core, "SELECT count(*)::int FROM public.event_outbox"))
}

// A key belongs to its job for retention.job_keys_days, even if jobs and dead letters are deleted
// sooner. 0 or an unreadable number of days = for ever.
func TestJobKeyDays(t *testing.T) {
	for days, kept := range map[string]string{"7": "6 days", "0": "1000 days", "soon": "1000 days", "1": "23 hours"} {
		t.Run(days, func(t *testing.T) {
			j := newJobs(t)
			j.jobSubscription("w", "", "", 0, 100)
			j.flag("retention.job_keys_days", days)
			j.flag("retention.jobs_days", "1")
			j.flag("retention.dead_letters_days", "1")
			put := func(key string) map[string]any {
				return call(t, j.work, "public.fn_job_enqueue('k', 'iu', 'external_worker', p_max_attempts => 1, p_idempotency_key => $1)", key)
			}
			jobs, ends := map[string]any{}, map[string]string{"succeeded": "ack", "failed": "BROKEN!", "dead_letter": "TIMEOUT"}
			for status, end := range ends {
				jobs[status] = put(status)["job_id"]
				require.Equal(t, "done", j.outcome(end, j.one("w")))
			}
			j.exec("BEGIN; SET LOCAL session_replication_role = replica; UPDATE public.job_history SET finished_at = finished_at - interval '3 days'; COMMIT")
			j.later(kept)
			j.later("0")
			require.Zero(t, get[int](j.core, "SELECT count(*)::int FROM public.job_history"), "the jobs are gone")
			for status := range ends {
				require.Equal(t, map[string]any{"job_id": jobs[status], "created": false, "status": status}, put(status))
			}
			require.EqualValues(t, 1, call(t, j.work, replay, get[[]string](j.core, "SELECT array_agg(dead_letter_id::text) FROM public.job_dead_letter"), "ann")["replayed"])
			require.Equal(t, "queued", put("dead_letter")["status"], "of the replay")
			if kept == "1000 days" {
				return
			}
			j.later("49 hours")
			require.Equal(t, []any{true, true, false}, []any{put("succeeded")["created"], put("failed")["created"], put("dead_letter")["created"]})
		})
	}
}

func TestJobKeyManyTwiceInOneCall(t *testing.T) {
	j := newJobs(t)
	job := func(n int) map[string]any {
		return map[string]any{"job_kind": "k", "event_domain": "iu", "executor": "Agent", "idempotency_key": "one", "payload": map[string]any{"n": n}}
	}
	got := call(t, j.work, "public.fn_job_enqueue_many($1)", []any{job(1), job(1)})
	require.Equal(t, []any{1.0, 1.0}, []any{got["enqueued"], got["existing"]})
	require.Equal(t, got["job_ids"].([]any)[0], got["job_ids"].([]any)[1])
	before := j.all()
	_, err := tryCall(j.work, "public.fn_job_enqueue_many($1)", []any{job(1), job(2)})
	refused(t, "23505", err, "one")
	_, err = tryCall(j.work, "public.fn_job_enqueue_many($1)", []any{map[string]any{"job_kind": "fresh", "event_domain": "iu", "executor": "Agent", "idempotency_key": "f"}, job(2)})
	refused(t, "23505", err, "one")
	require.Equal(t, before, j.all(), "all or nothing")
}

func TestEventKey(t *testing.T) {
	p := newProducing(t)
	login := pgtest.Login(t, p.db, "event_ingest_writer")
	pool := p.db.Pool(t, login)
	p.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'sent', 'update', 'immediate')")
	const emit = `public.fn_iu_emit_event('iu', $1, 'update', 'immediate', 'info', 'unit', '7', $2, p_idempotency_key => $3)`
	first := call(t, pool, emit, "made", `{"n": 1}`, "a")
	require.Equal(t, true, first["created"])
	require.Equal(t, map[string]any{"event_id": first["event_id"], "event_domain": "iu", "event_type": "made", "created": false}, call(t, pool, emit, "made", `{"n": 1}`, "a"))
	require.NotContains(t, call(t, pool, emit, "made", `{"n": 1}`, nil), "created")
	require.Equal(t, true, call(t, pool, emit, "sent", `{"n": 1}`, "a")["created"], "a key belongs to a type")
	require.Equal(t, true, call(t, p.as("event_ingest_writer"), emit, "made", `{"n": 2}`, "a")["created"], "and to a login")
	_, err := tryCall(pool, emit, "made", `{"n": 2}`, "a")
	refused(t, "23505", err, "other payload")
	require.ErrorContains(t, err, "idempotency key a was already used for event")
	for _, bad := range []string{"", fmt.Sprintf("%0501d", 0)} {
		_, err = tryCall(pool, emit, "made", `{}`, bad)
		refused(t, "22023", err, bad)
	}
	require.Equal(t, 4, get[int](p.core, "SELECT count(*)::int FROM public.event_outbox"))
	p.exec("UPDATE public.producer_key SET final_at = now() - interval '8 days'")
	require.Equal(t, 3, get[int](p.core, "SELECT (public.fn_queue_retention_sweep() ->> 'keys')::int"), "counted: the host runs the sweep again while many end")
	require.Equal(t, true, call(t, pool, emit, "made", `{"n": 2}`, "a")["created"], "free again")

	p.exec("INSERT INTO public.events (event_type, payload, external_event_id) VALUES ('order', '{}', 'e1')")
	fails(t, pool, "23505", "INSERT INTO public.events (event_type, payload, external_event_id) VALUES ('order', '{}', 'e1')")
}

// Live jobs keep their keys when the schema is upgraded: for any producer, and however the jobs
// end.
func TestUpgradeKeepsKeys(t *testing.T) {
	db := pgtest.Released(t)
	conn := db.Conn(t, "")
	ask := func(payload string) (got map[string]any) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT public.fn_job_enqueue('held', 'kg', 'Agent', $1, p_idempotency_key => 'old')", payload).Scan(&got))
		return got
	}
	first := ask(`{"n": 1}`)["job_id"]
	old := "SELECT string_agg(concat_ws(' ', job_id, job_kind, idempotency_key, xmin), ',' ORDER BY job_id) FROM public.job_queue"
	var before, after string
	require.NoError(t, conn.QueryRow(t.Context(), old).Scan(&before))
	producer := db.Conn(t, "") // its transaction is open during the upgrade
	tx, err := producer.Begin(t.Context())
	require.NoError(t, err)
	const across = "SELECT public.fn_job_enqueue('across', 'kg', 'Agent', $2, p_idempotency_key => $1) ->> 'job_id'"
	var open [2]string
	for i := range open {
		require.NoError(t, tx.QueryRow(t.Context(), across, fmt.Sprint("open ", i), `{"n": 1}`).Scan(&open[i]))
	}
	require.NoError(t, schema.Up(t.Context(), db.DSN(""), nil))
	require.NoError(t, conn.QueryRow(t.Context(), old).Scan(&after))
	require.Equal(t, before, after, "no row was rewritten")
	require.NoError(t, tx.Commit(t.Context()))
	var again string
	require.NoError(t, producer.QueryRow(t.Context(), across, "open 0", `{"n": 1}`).Scan(&again))
	require.Equal(t, open[0], again, "the producer lost the answer and repeats the call")
	_, err = producer.Exec(t.Context(), across, "open 0", `{"n": 2}`)
	refused(t, "23505", err, "open 0")
	var many map[string]any
	require.NoError(t, producer.QueryRow(t.Context(), `SELECT public.fn_job_enqueue_many(jsonb_agg('{"job_kind": "across", "event_domain": "kg", "executor": "Agent", "payload": {"n": 1}}'
		|| CASE WHEN k = '' THEN '{}' ELSE jsonb_build_object('idempotency_key', k) END)) FROM unnest('{"",open 1,open 2,open 1}'::text[]) k`).Scan(&many))
	require.EqualValues(t, 2, many["enqueued"], "the one without a key and the new one")
	ids := many["job_ids"].([]any)
	require.Equal(t, []any{open[1], open[1]}, []any{ids[1], ids[3]})
	var live int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.job_queue WHERE job_kind = 'across'").Scan(&live))
	require.Equal(t, 4, live)
	require.Equal(t, map[string]any{"job_id": first, "created": false, "status": "queued"}, ask(`{"n": 1}`))
	_, err = conn.Exec(t.Context(), "SELECT public.fn_job_cancel(ARRAY[$1::uuid], 'ann', 'test')", first)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"job_id": first, "created": false, "status": "cancelled"}, ask(`{"n": 1}`))

	// A job that ended during the upgrade, so that its key has no final status.
	_, err = conn.Exec(t.Context(), "UPDATE public.producer_key SET status = NULL, final_at = NULL; SELECT public.fn_queue_retention_sweep()")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"job_id": first, "created": false, "status": "ended"}, ask(`{"n": 1}`))
	_, err = conn.Exec(t.Context(), "UPDATE public.producer_key SET final_at = now() - interval '8 days' WHERE final_at IS NOT NULL; SELECT public.fn_queue_retention_sweep()")
	require.NoError(t, err)
	require.Equal(t, true, ask(`{"n": 2}`)["created"])
}
