// Undo and cancel lock no job or saga that a host or the orchestrator is changing: these take their
// locks in another order, so that both would wait for each other.

package schema_test

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// elsewhere is the answer of a function that another session calls.
type elsewhere struct {
	done   chan struct{}
	answer map[string]any
	err    error
}

// meanwhile calls the function in another session, and returns when it has its answer or waits for
// a lock of the transaction.
func meanwhile(t *testing.T, pool, root *pgxpool.Pool, tx pgx.Tx, expr string, args ...any) *elsewhere {
	t.Helper()
	l := &elsewhere{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.answer, l.err = tryCall(pool, expr, args...)
	}()
	l.settled(t, root, tx)
	return l
}

// settled returns when the other session has its answer or waits for a lock of the transaction.
func (l *elsewhere) settled(t *testing.T, root *pgxpool.Pool, tx pgx.Tx) {
	t.Helper()
	pid := tx.Conn().PgConn().PID()
	eventually(t, "the other session has its answer or waits", func() bool {
		select {
		case <-l.done:
			return true
		default:
		}
		var waits bool
		require.NoError(t, root.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", int32(pid)).Scan(&waits))
		return waits
	})
}

func (l *elsewhere) got(t *testing.T) map[string]any {
	t.Helper()
	<-l.done
	require.NoError(t, l.err)
	return l.answer
}

// acked records success for the job, in the transaction.
func acked(t *testing.T, tx pgx.Tx, h held) {
	t.Helper()
	var outcome string
	require.NoError(t, tx.QueryRow(context.Background(), "SELECT outcome FROM public.fn_job_ack(ARRAY[$1]::uuid[], ARRAY[$2]::uuid[])", h.Job, h.Token).Scan(&outcome))
	require.Equal(t, "done", outcome)
}

func whys(t *testing.T, answer map[string]any) (out []any) {
	t.Helper()
	for _, r := range results(t, answer) {
		out = append(out, r["why"])
	}
	return out
}

func TestUndoLeavesLeasedJobs(t *testing.T) {
	j := newJobs(t)
	deadLetters := []string{j.deadLetter("k", "iu", "TIMEOUT"), j.deadLetter("k", "iu", "TIMEOUT")}
	call(t, j.work, replay, deadLetters, "ann")
	hs := j.take("undertaker", 2)
	require.Len(t, hs, 2)
	slices.SortFunc(hs, func(a, b held) int { return cmp.Compare(b.Job, a.Job) })
	tx := j.begin(j.work)
	acked(t, tx, hs[0])
	undo := meanwhile(t, j.work, j.root, tx, "public.fn_job_dead_letter_replay_undo($1::uuid[], 'ben', 'wrong group')", deadLetters)
	acked(t, tx, hs[1])
	require.NoError(t, tx.Commit(t.Context()))
	for _, why := range whys(t, undo.got(t)) {
		require.Regexp(t, `^job \S+ has started \(leased\): it cannot be recalled$`, why)
	}
	j.balanced()
}

// Undo does not wait for a claim that is not committed.
func TestUndoBesideAClaim(t *testing.T) {
	j := newJobs(t)
	deadLetters := []string{j.deadLetter("k", "iu", "TIMEOUT"), j.deadLetter("k", "iu", "TIMEOUT")}
	call(t, j.work, replay, deadLetters, "ann")
	tx := j.begin(j.work)
	var claimed string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT job_id::text FROM public.fn_job_claim('undertaker')").Scan(&claimed))
	got := meanwhile(t, j.work, j.root, tx, "public.fn_job_dead_letter_replay_undo($1::uuid[], 'ben', 'wrong group')", deadLetters)
	require.NoError(t, tx.Commit(t.Context()))
	require.ElementsMatch(t, []any{nil, "another transaction, perhaps a claim, changes job " + claimed + " at this moment: try again"}, whys(t, got.got(t)))
	require.Equal(t, "leased 0 0", j.state(claimed))
	require.Equal(t, 1, get[int](j.core, "SELECT count(*) FROM public.job_queue"))
	j.balanced()
}

// Cancel leaves jobs that were claimed while it waited for a lease.
func TestCancelLeavesJobsJustClaimed(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 1)
	held1 := j.one("w")
	j.put("k", "iu", 2)
	renewing := j.begin(j.work)
	_, err := renewing.Exec(t.Context(), "SELECT FROM public.fn_job_renew(ARRAY[$1]::uuid[], ARRAY[$2]::uuid[])", held1.Job, held1.Token)
	require.NoError(t, err)
	all := get[[]string](j.core, "SELECT array_agg(job_id::text) FROM public.job_queue")
	cancel := meanwhile(t, j.work, j.root, renewing, "public.fn_job_cancel($1::uuid[], 'ben', 'never')", all)
	hs := j.take("w", 2)
	require.Len(t, hs, 2)
	slices.SortFunc(hs, func(a, b held) int { return cmp.Compare(b.Job, a.Job) })
	tx := j.begin(j.work)
	acked(t, tx, hs[0])
	require.NoError(t, renewing.Commit(t.Context()))
	cancel.settled(t, j.root, tx)
	acked(t, tx, hs[1])
	require.NoError(t, tx.Commit(t.Context()))
	got := cancel.got(t)
	require.EqualValues(t, 1, got["cancelled"], got)
	const claimed = "a host has just claimed the job: try again"
	require.ElementsMatch(t, []any{nil, claimed, claimed}, whys(t, got))
	j.balanced()
}

// fn_job_locked names the jobs for which a result would wait, and does not wait itself.
func TestJobsThatAreLocked(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "", "", 0, 1000)
	j.put("k", "iu", 9)
	first, second, third := j.take("w", 3), j.take("w", 3), j.take("w", 3)
	all := slices.Concat(first, second, third)
	locked := func() []string {
		return get[[]string](j.core, "SELECT COALESCE(array_agg(l::text), '{}') FROM public.fn_job_locked($1::uuid[], $2::uuid[]) l", ids(all), tokens(all))
	}
	require.Empty(t, locked())
	other := j.begin(j.root)
	for sql, arg := range map[string]string{
		"SELECT FROM public.job_queue WHERE job_id = $1::text::uuid FOR UPDATE":      first[1].Job,
		"SELECT FROM public.job_lease WHERE lease_token = $1::text::uuid FOR UPDATE": third[0].Token,
	} {
		_, err := other.Exec(t.Context(), sql, arg)
		require.NoError(t, err)
	}
	require.ElementsMatch(t, append(ids(third), first[1].Job), locked())
	require.Equal(t, "done", j.outcome("ack", append(second, first[0])...))
	require.ElementsMatch(t, append(ids(third), first[1].Job), locked(), "those that ended are not locked")
	require.NoError(t, other.Rollback(t.Context()))
	require.Empty(t, locked())
	require.Equal(t, "done", j.outcome("ack", first[1], third[0]))
	j.balanced()
}

func TestUndoLeavesStartedSagas(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 2)
	h.requeue(deadLetters...)
	h.step()
	ls := h.claim(10)
	require.Len(t, ls, 2)
	h.finish("HTTP_500", ls...)
	slices.SortFunc(ls, func(a, b lease) int { return cmp.Compare(b.Saga, a.Saga) })
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	settle := func(l lease) {
		t.Helper()
		var settled int
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT public.fn_saga_orchestrator_part('settle', 1, ARRAY[$1::bigint], '{}', 0) -> 'settled'", l.Job).Scan(&settled))
		require.Equal(t, 1, settled)
	}
	settle(ls[0])
	undo := meanwhile(t, h.work, h.root, tx, "public.fn_dead_letter_requeue_undo($1, 'ben', 'too late')", deadLetters)
	settle(ls[1])
	require.NoError(t, tx.Commit(t.Context()))
	for _, why := range whys(t, undo.got(t)) {
		require.Regexp(t, `^saga \d+ has started \(InProgress\): it cannot be recalled$`, why)
	}
}

// Undo does not wait for a run of the orchestrator that is not committed.
func TestUndoBesideTheOrchestrator(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 2)
	h.requeue(deadLetters...)
	tx, err := h.root.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "SELECT public.fn_saga_orchestrator_run(1)")
	require.NoError(t, err)
	undo := meanwhile(t, h.work, h.root, tx, "public.fn_dead_letter_requeue_undo($1, 'ben', 'wrong group')", deadLetters)
	require.NoError(t, tx.Commit(t.Context()))
	got := whys(t, undo.got(t))
	require.Regexp(t, `^another transaction, such as a run of the orchestrator, changes saga \d+ at this moment: try again$`, got[0])
	require.Nil(t, got[1])
	require.Equal(t, "InProgress", one[string](h, "SELECT min(status::text) FROM public.webhook_delivery_sagas WHERE requeue_generation = 1"))
}
