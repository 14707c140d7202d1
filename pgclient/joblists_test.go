// Lists of jobs: each page shows the rows of the tables, and the dead letter of a job shows its
// whole lineage.

package pgclient_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

// jobDeadLetter describes a job's dead letter to be made.
type jobDeadLetter struct {
	kind, domain, code string
	age                time.Duration
}

// agent registers an executor that may claim everything.
func (w *world) agent(id string, parallel int) {
	w.t.Helper()
	w.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds,
		stale_threshold_seconds, registered_by) VALUES ($1, 'Agent', '{}', now(), 60, 3600, 'test') ON CONFLICT DO NOTHING`, id)
	w.exec(`INSERT INTO public.job_subscription (executor_id, executor_kind, max_parallel, enabled, registered_by)
		VALUES ($1, 'Agent', $2, true, 'test') ON CONFLICT DO NOTHING`, id, parallel)
}

func (w *world) enqueue(kind, domain string, tries int) (id string) {
	w.t.Helper()
	return get[string](w, `SELECT public.fn_job_enqueue($1, $2, 'Agent', '{"ref": 12345678901234567890, "api_key": "hush"}', p_max_attempts => $3) ->> 'job_id'`, kind, domain, tries)
}

// claim claims one job of the kind and returns its id and lease token.
func (w *world) claim(executor, kind string) (id, token string) {
	w.t.Helper()
	require.NoError(w.t, w.root.QueryRow(context.Background(),
		"SELECT job_id::text, lease_token::text FROM public.fn_job_claim($1, ARRAY[$2::text], 1)", executor, kind).Scan(&id, &token))
	return id, token
}

// kill makes the only waiting job of the kind fail its last attempt, and returns the id of its
// dead letter.
func (w *world) kill(kind, code string) string {
	w.t.Helper()
	w.agent("undertaker", 1000)
	id, token := w.claim("undertaker", kind)
	w.exec("SELECT public.fn_job_fail(ARRAY[$1::uuid], ARRAY[$2::uuid], ARRAY[$3::text], ARRAY['it broke'], ARRAY[false])", id, token, code)
	return get[string](w, "SELECT 'job:' || dead_letter_id FROM public.job_dead_letter WHERE job_id = $1", id)
}

// dieJobs makes dead letters by claiming and failing jobs, then changes their times.
func (w *world) dieJobs(deadLetters ...jobDeadLetter) (ids []string) {
	w.t.Helper()
	for _, l := range deadLetters {
		w.enqueue(l.kind, l.domain, 1)
		id := w.kill(l.kind, l.code)
		ids = append(ids, id)
		require.NoError(w.t, pgx.BeginFunc(context.Background(), w.root, func(tx pgx.Tx) error {
			if _, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica"); err != nil {
				return err
			}
			_, err := tx.Exec(context.Background(), `UPDATE public.job_dead_letter SET last_failed_at = now() - make_interval(secs => $2)
				WHERE 'job:' || dead_letter_id = $1`, id, l.age.Seconds())
			return err
		}))
	}
	return ids
}

func allJobs(t *testing.T, c *console, id, filter string) (jobs []queue.Job) {
	t.Helper()
	q := queue.Query{Kind: queue.ListJobs, ID: id, Filter: filter, Limit: 3}
	for {
		p, err := c.List(context.Background(), q)
		require.NoError(t, err, filter)
		jobs = append(jobs, queue.Of[[]queue.Job](p)...)
		if q.After = p.Next; p.Next == "" {
			require.EqualValues(t, len(jobs), p.Total, filter)
			return jobs
		}
		require.Len(t, queue.Of[[]queue.Job](p), 3, "a page that is not the last is full")
		require.LessOrEqual(t, int64(len(jobs)), p.Total, "pages do not repeat")
	}
}

func jobField(j queue.Job, asOf time.Time) func(string) (any, bool) {
	return func(name string) (any, bool) {
		switch name {
		case "id":
			return j.ID, true
		case "kind":
			return j.Kind, true
		case "domain":
			return j.Domain, true
		case "status":
			return j.Status, true
		case "executor":
			return j.Executor, true
		case "priority":
			return j.Priority, true
		case "attempts":
			return j.Attempts, true
		case "age":
			since := j.EnqueuedAt
			if j.ProcessAfter.After(since) {
				since = j.ProcessAfter
			}
			if j.Status == "leased" || j.Status == "in_progress" {
				since = *j.PickedAt
			}
			return asOf.Sub(since), true
		case "code":
			return j.Code, true
		case "owner":
			return j.LeaseOwner, true
		}
		return nil, false
	}
}

func TestJobList(t *testing.T) {
	w := newWorld(t)
	w.agent("kg_1", 3)
	for i := range 9 {
		w.exec(`SELECT public.fn_job_enqueue($1, $2, 'Agent', p_priority => $3, p_process_after => now() + make_interval(secs => $4))`,
			[]string{"kg.reindex", "iu.route", "kg.embed"}[i%3], []string{"kg", "iu"}[i%2], 90+10*(i%3), float64(i%4)*3600-1800)
	}
	for _, at := range []string{"infinity", "-infinity", "20000-01-01"} {
		w.exec("INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, ready) VALUES ('odd', 'kg', 'DOT', $1::text::timestamptz, $1::text = '-infinity')", at)
	}
	w.claim("kg_1", "kg.reindex")
	id, token := w.claim("kg_1", "kg.embed")
	w.exec("SELECT public.fn_job_start(ARRAY[$1::uuid], ARRAY[$2::uuid])", id, token)
	id, token = w.claim("kg_1", "iu.route")
	w.exec("SELECT public.fn_job_fail(ARRAY[$1::uuid], ARRAY[$2::uuid], ARRAY['TIMEOUT'], ARRAY['slow'], ARRAY[false])", id, token)
	client := w.client("queue_viewer")

	everything := allJobs(t, client, "", "")
	require.Len(t, everything, 12)
	for i := range everything[1:] {
		a, b := everything[i], everything[i+1]
		require.False(t, a.ProcessAfter.After(b.ProcessAfter), "those due first come first")
		require.GreaterOrEqual(t, b.AgeSeconds, int64(0))
	}
	now := time.Now()
	filters := []string{
		"", "kind:kg.*", "kind=kg.reindex domain=kg", "!kind:kg.*", "domain:iu", "status:queued", "status:leased|in_progress", "!status:queued", "status=retry_waiting",
		"executor:Agent", "executor:DOT", "priority>100", "priority=100", "priority<=100", "!priority>100", "attempts>0", "attempts=0", "age>20m", "age<20m", "!age>20m",
		"code:TIMEOUT", "code:\"\"", "!code:TIMEOUT", "owner:kg_1", "!owner:*_1", "id:" + everything[0].ID, "id=" + everything[3].ID, "!id:" + everything[0].ID, "id>5",
		"!id>5", "kg", "!kg", "route domain:iu", "odd", "%", "_",
	}
	lanes := map[string]bool{}
	for _, text := range filters {
		f, err := queue.ParseFilter(text, queue.JobFields())
		require.NoError(t, err, text)
		want := map[string][]string{"": {}}
		for _, j := range everything {
			lane := j.Domain.String() + "/" + j.Kind.String()
			lanes[lane] = true
			if f.Match(jobField(j, now), now) {
				want[""], want[lane] = append(want[""], j.ID), append(want[lane], j.ID)
			}
		}
		for _, lane := range append(keys(lanes), "") {
			got := []string{}
			for _, j := range allJobs(t, client, lane, text) {
				got = append(got, j.ID)
			}
			require.ElementsMatch(t, want[lane], got, "lane %q filter %s", lane, text)
		}
	}
	require.Empty(t, allJobs(t, client, "kg/none", ""))
	for _, bad := range []queue.Query{{ID: "kg"}, {After: "x"}, {After: "2026-01-01|x"}, {Filter: "status:succeeded"}, {Filter: "knd:x"}} {
		bad.Kind = queue.ListJobs
		_, err := client.List(context.Background(), bad)
		kind(t, queue.KindUsage, err)
	}
	_, err := w.client("webhook_worker").List(context.Background(), queue.Query{Kind: queue.ListJobs})
	kind(t, queue.KindPermission, err)
}

func keys(set map[string]bool) (out []string) {
	for k := range set {
		out = append(out, k)
	}
	return out
}

func TestJobDetail(t *testing.T) {
	w := newWorld(t)
	w.agent("kg_1", 3)
	id := w.enqueue("kg.reindex", "kg", 5)
	client := w.client("queue_viewer")
	read := func(id string) *queue.JobDetail {
		t.Helper()
		p, err := client.List(context.Background(), queue.Query{Kind: queue.ListJob, ID: id})
		require.NoError(t, err)
		return queue.Of[*queue.JobDetail](p)
	}
	j := read(strings.ToUpper(id))
	require.Equal(t, "queued kg.reindex kg", j.Status+" "+j.Kind.String()+" "+j.Domain.String())
	require.Contains(t, j.Payload.String(), "12345678901234567890")
	require.NotContains(t, j.Payload.String(), "hush")
	_, token := w.claim("kg_1", "kg.reindex")
	j = read(id)
	require.Equal(t, "leased kg_1 "+get[string](w, "SELECT lease_id::text FROM public.v_job_lease"), j.Status+" "+j.LeaseOwner.String()+" "+j.LeaseID)
	require.NotEqual(t, token, j.LeaseID)
	for _, row := range allJobs(t, client, "kg/kg.reindex", "") {
		require.Equal(t, j.LeaseID, row.LeaseID, "the list names the same lease")
	}
	w.exec("SELECT public.fn_job_fail(ARRAY[$1::uuid], ARRAY[$2::uuid], '{TIMEOUT}', '{late}', '{false}')", id, token)
	w.exec("UPDATE public.job_queue SET process_after = now() + interval '90 seconds', ready = false")
	j = read(id)
	require.Equal(t, "retry_waiting", j.Status)
	require.True(t, j.Again())
	require.InDelta(t, 90, *j.DueIn, 60)
	w.exec("UPDATE public.job_queue SET process_after = now(), ready = true")
	_, token = w.claim("kg_1", "kg.reindex")
	w.exec("SELECT public.fn_job_ack(ARRAY[$1::uuid], ARRAY[$2::uuid])", id, token)
	j = read(id)
	require.Nil(t, j.DueIn)
	require.Equal(t, "succeeded leased", j.Status+" "+j.FromStatus)
	require.NotNil(t, j.FinishedAt)
	dot := w.client("dot_executor")
	p, err := dot.List(context.Background(), queue.Query{Kind: queue.ListJob, ID: id})
	require.NoError(t, err)
	require.Contains(t, queue.Of[*queue.JobDetail](p).PayloadWhyNot.String(), "queue_viewer")
	for id, want := range map[string]queue.Kind{
		"12": queue.KindUsage, "job:" + id: queue.KindUsage, "": queue.KindUsage, "00000000-0000-0000-0000-000000000000": queue.KindFailed,
	} {
		_, err := client.List(context.Background(), queue.Query{Kind: queue.ListJob, ID: id})
		kind(t, want, err)
	}

	// The dead letter of a job has another id than the job.
	dead := w.enqueue("kg.reindex", "kg", 1)
	deadLetter := w.kill("kg.reindex", "TIMEOUT")
	require.Equal(t, deadLetter, read(dead).DeadLetterID)
	p, err = dot.List(context.Background(), queue.Query{Kind: queue.ListJob, ID: dead})
	require.NoError(t, err)
	require.Empty(t, queue.Of[*queue.JobDetail](p).DeadLetterID, "this login may not read dead letters")
	for id, want := range map[string]string{
		"job:" + dead: dead + " is the id of a job; its dead letter is " + deadLetter + ": qtop dlq show " + deadLetter,
		"job:" + id:   id + " is the id of a job, which has no dead letter: qtop job show " + id,
		"job:00000000-0000-0000-0000-000000000000": "there is no dead letter job:00000000-0000-0000-0000-000000000000: qtop dlq lists those that are open; closed ones are removed by retention",
	} {
		_, err := client.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: id})
		require.EqualError(t, err, want)
	}
	for name, want := range map[string]string{dead: "qtop job show " + dead, deadLetter: "qtop dlq show " + deadLetter} {
		_, err := client.List(context.Background(), queue.Query{Kind: queue.ListWhy, ID: name})
		require.ErrorContains(t, err, want)
	}
}

// A job dies, is replayed, dies again, is replayed again and succeeds: the details of each
// dead letter show all of this.
func TestJobDeadLetterChain(t *testing.T) {
	w := newWorld(t)
	op := w.client("queue_viewer", "dead_letter_operator")
	first := w.enqueue("kg.reindex", "kg", 1)
	deadLetters := []string{w.kill("kg.reindex", "TIMEOUT")}
	replay := func(id string) {
		t.Helper()
		require.EqualValues(t, 1, apply(t, op, plan(t, op, queue.Request{Action: queue.ActRequeue, Targets: []string{id}, Reason: "again " + fmt.Sprint(len(deadLetters))})).Done)
	}
	replay(deadLetters[0])
	deadLetters = append(deadLetters, w.kill("kg.reindex", "HANDLER_ERROR"))
	replay(deadLetters[1])
	id, token := w.claim("undertaker", "kg.reindex")
	w.exec("SELECT public.fn_job_ack(ARRAY[$1::uuid], ARRAY[$2::uuid])", id, token)
	for i, l := range deadLetters {
		p, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: l})
		require.NoError(t, err)
		d := queue.Of[*queue.DeadLetterDetail](p)
		require.Equal(t, i, d.Generation)
		require.Equal(t, "job requeued ann kg.reindex kg Agent it broke", strings.Join([]string{d.Source, d.State, d.RequeuedBy.String(), d.Endpoint.String(),
			d.Domain.String(), d.Executor.String(), d.LastError.String()}, " "))
		require.Equal(t, 1, d.Tries)
		require.NotNil(t, d.FirstFailedAt)
		require.Contains(t, d.Payload.String(), "12345678901234567890")
		require.NotContains(t, d.Payload.String(), "hush")
		var steps []string
		for _, s := range d.Lineage {
			steps = append(steps, s.Kind+" "+s.Status)
			require.NotNil(t, s.At)
		}
		require.Equal(t, []string{
			"job dead_letter", "dead_letter TIMEOUT", "requeue again 1", "job dead_letter", "dead_letter HANDLER_ERROR", "requeue again 2", "job succeeded",
		}, steps)
		require.Equal(t, *d.Lineage[1].At, *d.Lineage[0].At, "the job died when its dead letter was made")
		require.Equal(t, "undertaker", d.Lineage[0].By.String(), "who ran it")
		require.Equal(t, first, d.Lineage[0].ID.String())
		require.Equal(t, deadLetters[0], d.Lineage[1].ID.String())
		require.Equal(t, deadLetters[1], d.Lineage[4].ID.String())
		require.Equal(t, d.Lineage[6].ID.String(), d.Lineage[5].ID.String())
		require.Equal(t, id, d.Lineage[6].ID.String())
		require.Equal(t, d.ReplayedJobID, d.Lineage[3*i+3].ID.String())
	}
	p, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetters, Filter: "source:job state:*"})
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, []int{queue.Of[[]queue.DeadLetter](p)[0].Generation, queue.Of[[]queue.DeadLetter](p)[1].Generation})
	for id, want := range map[string]queue.Kind{
		"job:12": queue.KindUsage, "job:": queue.KindUsage, "event:12": queue.KindUsage, "event:" + id: queue.KindFailed, "job:00000000-0000-0000-0000-000000000000": queue.KindFailed,
	} {
		_, err := op.List(context.Background(), queue.Query{Kind: queue.ListDeadLetter, ID: id})
		kind(t, want, err)
	}
}
