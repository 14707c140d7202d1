// The job calls against a real queue: a claim returns the fields of the row, a repeated
// result counts as done, a lost lease is reported, and wake signals are sent rarely.
package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient"
	"github.com/qtop/qtop/pgclient/enqueue"
	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
	"github.com/qtop/qtop/pgclient/work"
)

// jobClient opens a client with all rights of a worker host and of a producer.
func jobClient(t *testing.T, db *pgtest.DB) *pgclient.Client {
	t.Helper()
	c, err := pgclient.Open(t.Context(), pgclient.Options{
		DSN: db.DSN(pgtest.Login(t, db, "dot_executor", "event_ingest_writer")), WorkConns: 4, Actor: "test",
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	conn := db.Conn(t, "")
	for _, sql := range []string{
		"SELECT public.fn_queue_heartbeat_register('mine', 'DOT', '{}', 30, 600, 'test')::text",
		"SELECT public.fn_job_subscription_set('mine', NULL, NULL, 0, 100, true, NULL, 'test', 'test')::text",
	} {
		var answer string
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&answer))
		require.NotContains(t, answer, "refused")
	}
	return c
}

func leases(jobs []work.Job) []work.JobLease {
	var out []work.JobLease
	for _, j := range jobs {
		out = append(out, work.JobLease{ID: j.ID, Token: j.Token})
	}
	return out
}

func TestJobCalls(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := jobClient(t, db)
	p := enqueue.New(c)
	conn := db.Conn(t, "")
	text := func(sql string) string {
		t.Helper()
		var s string
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&s))
		return s
	}
	high, later := 200, time.Now().Add(time.Hour)
	made, err := p.EnqueueMany(t.Context(), []enqueue.Job{
		{Kind: "a", Domain: "work", Executor: "DOT", Payload: json.RawMessage(`{"n": 1.50}`)},
		{Kind: "a", Domain: "work", Executor: "DOT", Priority: &high, IdempotencyKey: "k", MaxAttempts: 9, Actor: "me"},
		{Kind: "b", Domain: "work", Executor: "DOT"},
		{Kind: "a", Domain: "work", Executor: "DOT", ProcessAfter: &later},
	})
	require.NoError(t, err)
	require.Equal(t, 4, made.New)
	require.Len(t, made.IDs, 4)
	id, created, err := p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT", IdempotencyKey: "k"})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, made.IDs[1], id)

	jobs, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Kinds: []string{"a"}, Most: 10})
	require.NoError(t, err)
	require.Len(t, jobs, 2, "kind b is not asked for, one is due later")
	first, second := jobs[0], jobs[1]
	require.Equal(t, made.IDs[1], first.ID.String())
	require.Equal(t, []any{"a", "work", "DOT", int32(200), int32(0), int32(9), "k", "work/a", "{}"},
		[]any{first.Kind, first.Domain, first.Executor, first.Priority, first.Attempts, first.MaxAttempts, first.IdempotencyKey, first.Lane(), string(first.Payload)})
	require.Equal(t, []any{int32(100), "", `{"n": 1.50}`}, []any{second.Priority, second.IdempotencyKey, string(second.Payload)})
	require.InDelta(t, 300, first.Lease.Seconds(), 5)

	// after the last key of this queue lane there is no job; in other queue lanes there are jobs
	after := work.JobKeys{second.Lane(): second.Key()}
	none, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Kinds: []string{"a"}, Most: 10, After: after})
	require.NoError(t, err)
	require.Empty(t, none)
	other, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Kinds: []string{"a", "b"}, Most: 10, After: after})
	require.NoError(t, err)
	require.Len(t, other, 1)

	// a claim passes over the jobs that it refuses
	low := 90
	_, err = p.EnqueueMany(t.Context(), []enqueue.Job{{Kind: "c", Domain: "work", Executor: "DOT"}, {Kind: "c", Domain: "work", Executor: "DOT", Priority: &low}})
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "UPDATE public.job_queue SET lost_leases = 2 WHERE job_kind = 'c' AND priority = 100")
	require.NoError(t, err)
	some, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Kinds: []string{"c"}, Most: 10, After: after, Refuse: work.RefuseLastLease})
	require.NoError(t, err)
	require.Len(t, some, 1)
	require.Equal(t, int32(90), some[0].Priority)
	require.Equal(t, "t queued 0", text("SELECT concat_ws(' ', ready, status, attempts) FROM public.job_queue WHERE job_kind = 'c' AND priority = 100"))
	gone, err := work.New(c).JobAck(t.Context(), leases(some))
	require.NoError(t, err)
	require.Empty(t, gone)

	held := leases(jobs)
	for _, call := range []func() ([]pgtype.UUID, error){
		func() ([]pgtype.UUID, error) { return work.New(c).JobStart(t.Context(), held) },
		func() ([]pgtype.UUID, error) { return work.New(c).JobRenew(t.Context(), held) },
		func() ([]pgtype.UUID, error) { return work.New(c).JobAck(t.Context(), held[:1]) },
		func() ([]pgtype.UUID, error) { return work.New(c).JobAck(t.Context(), held[:1]) }, // the same result again
		func() ([]pgtype.UUID, error) { return work.New(c).JobRelease(t.Context(), held[1:]) },
		func() ([]pgtype.UUID, error) { return work.New(c).JobRelease(t.Context(), held[1:]) },
		func() ([]pgtype.UUID, error) {
			return work.New(c).JobFail(t.Context(), []work.JobFailure{{JobLease: leases(other)[0], Code: "BAD_INPUT", Text: "no", Permanent: true}})
		},
	} {
		lost, err := call()
		require.NoError(t, err)
		require.Empty(t, lost)
	}
	lost, err := work.New(c).JobRenew(t.Context(), held)
	require.NoError(t, err)
	require.ElementsMatch(t, []pgtype.UUID{held[0].ID, held[1].ID}, lost)
	require.Equal(t, "a queued, a queued, a succeeded, b failed, c queued, c succeeded",
		text("SELECT string_agg(job_kind || ' ' || status, ', ' ORDER BY job_kind, status) FROM public.v_job"))

	s, err := work.New(c).JobStanding(t.Context(), "mine")
	require.NoError(t, err)
	require.Equal(t, work.JobStanding{Cadence: 30 * time.Second, Lease: 300 * time.Second}, s)
	why, err := work.New(c).JobRefusal(t.Context(), "nobody")
	require.NoError(t, err)
	require.Contains(t, why, "no executor nobody is registered")
	refused, err := work.New(c).ExecutorHeartbeat(t.Context(), "mine", "host", work.JobHeartbeat{State: "working", DoneTotal: 2})
	require.NoError(t, err)
	require.Empty(t, refused)
	require.Equal(t, "working 2 host", text("SELECT (last_beat_payload ->> 'state') || ' ' || (last_beat_payload ->> 'done_total') || ' ' || instance_id FROM public.queue_heartbeat WHERE executor_id = 'mine'"))
	refused, err = work.New(c).ExecutorHeartbeat(t.Context(), "nobody", "host", work.JobHeartbeat{State: "idle"})
	require.NoError(t, err)
	require.Contains(t, refused, "not registered")
}

// One job is sent with its wake signal, prepared or not: each field arrives; a refused job
// returns the reason and leaves no row.
func TestJobEnqueueOne(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			conn := db.Conn(t, "")
			c, err := pgclient.Open(t.Context(), pgclient.Options{
				DSN: db.DSN(pgtest.Login(t, db, "event_ingest_writer")) + "&default_query_exec_mode=" + mode, WorkConns: 1,
			})
			require.NoError(t, err)
			p := enqueue.New(c)
			t.Cleanup(c.Close)
			for _, sql := range []string{"SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'test', 'test')", "LISTEN queue_wake_work"} {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			low, due := 7, time.Date(2031, 2, 3, 4, 5, 6, 789000000, time.FixedZone("", 3600))
			id, created, err := p.Enqueue(t.Context(), enqueue.Job{
				Kind: "a", Domain: "work", Executor: "Agent", Payload: json.RawMessage(`{"n": 1.50, "t": "'\\ü"}`), Priority: &low,
				ProcessAfter: &due, IdempotencyKey: "k", MaxAttempts: 9, Actor: "me",
			})
			require.NoError(t, err)
			require.True(t, created)
			bell := func() {
				t.Helper()
				wait, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				n, err := conn.WaitForNotification(wait)
				require.NoError(t, err)
				require.Contains(t, n.Payload, `"layer": "job"`)
			}
			bell()
			row := func(id string) (s string) {
				t.Helper()
				require.NoError(t, conn.QueryRow(t.Context(), `SELECT concat_ws('|', job_kind, event_domain, executor, payload, priority,
					process_after AT TIME ZONE 'UTC', idempotency_key, max_attempts, actor, ready) FROM public.job_queue WHERE job_id = $1`, id).Scan(&s))
				return s
			}
			require.Equal(t, `a|work|Agent|{"n": 1.50, "t": "'\\ü"}|7|2031-02-03 03:05:06.789|k|9|me|f`, row(id))
			again, created, err := p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "Agent", Payload: json.RawMessage(`{"t": "'\\ü", "n": 1.50}`), IdempotencyKey: "k"})
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, id, again)

			_, _, err = p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "MOT"})
			require.ErrorContains(t, err, "p_executor must be")
			_, err = conn.Exec(t.Context(), "INSERT INTO public.executor_producer VALUES ('Codex', 'workflow_admin')")
			require.NoError(t, err)
			_, _, err = p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "Codex"})
			require.ErrorContains(t, err, "may not enqueue for executor kind Codex")
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			_, _, err = p.Enqueue(gone, enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT"})
			require.Error(t, err)

			id, _, err = p.Enqueue(t.Context(), enqueue.Job{Kind: "b", Domain: "work", Executor: "DOT"})
			require.NoError(t, err)
			require.Contains(t, row(id), "b|work|DOT|{}|100|")
			require.Equal(t, 2, countJobs(t, conn))

			_, err = conn.Exec(t.Context(), "UNLISTEN *; LISTEN queue_wake_other", pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			for range 2 { // mostly within 2 ms of each other: a wake signal is sent for both
				_, _, err = p.Enqueue(t.Context(), enqueue.Job{Kind: "b", Domain: "other", Executor: "DOT"})
				require.NoError(t, err)
			}
			bell()
			bell()
		})
	}
}

func countJobs(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.job_queue").Scan(&n))
	return n
}

// Of the jobs that a producer enqueues, at most one per 2 ms causes a wake signal: the first by the
// trigger, with its commit, and those of the pause after it together.
func TestJobWakeSignals(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := jobClient(t, db)
	p := enqueue.New(c)
	conn := db.Conn(t, "")
	_, err := conn.Exec(t.Context(), "SELECT public.fn_dot_config_set('queue.notify.bridge_enabled', 'true', 'test', 'test')")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "LISTEN queue_wake_work")
	require.NoError(t, err)
	began := time.Now()
	enqueued := func(key string) error {
		_, _, err := p.Enqueue(t.Context(), enqueue.Job{Kind: "a", Domain: "work", Executor: "DOT", IdempotencyKey: key})
		return err
	}
	require.NoError(t, enqueued("first"))
	failed := make(chan error, 8)
	for n := range cap(failed) {
		go func() { // with keys, so that each job has a separate statement
			var err error
			for i := range 25 {
				err = errors.Join(err, enqueued(fmt.Sprint(n, "-", i)))
			}
			failed <- err
		}()
	}
	for range cap(failed) {
		require.NoError(t, <-failed)
	}
	took := time.Since(began)
	_, err = conn.Exec(t.Context(), "LISTEN last_word")
	require.NoError(t, err)
	time.AfterFunc(100*time.Millisecond, func() { // a signal that is sent within 2 ms has arrived by then, or arrives later and is counted there
		_, _ = c.Work().Exec(t.Context(), "SELECT pg_notify('last_word', '')")
	})
	rung := 0
	for {
		n, err := conn.WaitForNotification(t.Context())
		require.NoError(t, err)
		if n.Channel == "last_word" {
			break
		}
		require.Contains(t, n.Payload, `"layer": "job"`)
		if rung == 0 {
			require.Contains(t, n.Payload, `"job_kind": "a"`, "the signal of the trigger")
		}
		rung++
	}
	t.Logf("201 jobs in %v: rung %d times", took, rung)
	require.Positive(t, rung)
	require.LessOrEqual(t, rung, int(took/(2*time.Millisecond))+2)
}

// A due time that no Go calendar can hold does not lose a claim, and the next claim continues after
// that job.
func TestJobTimesBeyondTheCalendar(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := jobClient(t, db)
	conn := db.Conn(t, "")
	times := []string{"-infinity", "4713-01-01 00:00:00 BC", "0044-03-15 12:00:00.123456 BC", "0001-06-01 BC", "0001-01-01", "2020-01-01"}
	for _, at := range times {
		_, err := conn.Exec(t.Context(), `INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, enqueued_at)
			VALUES ('a', 'work', 'DOT', $1::text::timestamptz, $1::text::timestamptz)`, at)
		require.NoError(t, err)
	}
	for _, at := range []string{"infinity", "20000-01-01"} {
		_, err := conn.Exec(t.Context(), `INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, enqueued_at)
			VALUES ('a', 'work', 'DOT', '2020-01-02', $1::text::timestamptz)`, at)
		require.NoError(t, err)
	}
	listed, err := c.List(t.Context(), queue.Query{Kind: queue.ListJobs})
	require.NoError(t, err)
	_, err = json.Marshal(listed)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT public.fn_queue_snapshot('0'), count(*) FROM public.v_queue_health")
	require.NoError(t, err)
	var after work.JobKeys
	for n := range len(times) + 2 {
		jobs, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Most: 1, After: after})
		require.NoError(t, err)
		require.Len(t, jobs, 1, "job %d", n)
		_, err = json.Marshal(jobs[0].EnqueuedAt)
		require.NoError(t, err)
		after = work.JobKeys{jobs[0].Lane(): jobs[0].Key()}
	}
	jobs, err := work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Most: 1, After: after})
	require.NoError(t, err)
	require.Empty(t, jobs)
	far := pgtype.Timestamptz{Time: time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC), Valid: true}
	_, err = work.New(c).JobClaim(t.Context(), work.Claim{Executor: "mine", Most: 1, After: work.JobKeys{"work/a": {Priority: 100, ProcessAfter: far, ID: pgtype.UUID{Valid: true}}}})
	require.NoError(t, err)
}
