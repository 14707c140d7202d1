// The sections of the snapshot about jobs: queue lanes with the reason why they wait, leases that
// will soon expire, job subscriptions, dead letters, and how many jobs were finished.

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/queue"
)

func (j *jobs) snapshot() queue.Snapshot {
	j.t.Helper()
	return snapshotOf(j.t, get[[]byte](j.core, "SELECT public.fn_queue_snapshot('0')"))
}

// lane returns one queue lane of the snapshot.
func (j *jobs) lane(kind, domain string) (got queue.Lane) {
	j.t.Helper()
	for _, l := range j.snapshot().Queues {
		if l.Kind.String() == kind && l.Domain.String() == domain {
			return l
		}
	}
	require.Fail(j.t, "no lane", "%s %s", kind, domain)
	return got
}

func TestJobSnapshotLanes(t *testing.T) {
	j := newJobs(t)
	s := j.snapshot()
	require.NotNil(t, s.Queues)
	require.Empty(t, s.Queues)
	require.NotNil(t, s.JobLeases)
	require.NotNil(t, s.JobSubscriptions)
	require.Len(t, s.Flow.Jobs, 60)

	j.jobSubscription("w", "k", "", 0, 1000)
	j.put("k", "iu", 12)
	hs := j.take("w", 9)
	require.Equal(t, "done", j.outcome("start", hs[0]))
	require.Equal(t, "done", j.outcome("ack", hs[1:4]...))
	require.Equal(t, "done", j.outcome("BROKEN!", hs[4]))
	j.flag("queue.retry.schedule", "1000s")
	require.Equal(t, "done", j.outcome("TIMEOUT", hs[5]))
	j.exec("SELECT public.fn_job_enqueue('k', 'iu', 'external_worker', p_process_after => now() + '1 hour') FROM generate_series(1, 2)")
	call(t, j.work, "public.fn_job_cancel(ARRAY[$1]::uuid[], 'ann', 'test')", hs[6].Job)
	j.deadLetter("k", "kg", "TIMEOUT")
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '1 hour' WHERE job_id = (SELECT job_id FROM public.job_queue WHERE status = 'queued' AND ready ORDER BY process_after, job_id LIMIT 1)")
	j.put("old", "iu", 1)
	s = j.snapshot()
	require.Len(t, s.Queues, 3)
	l := j.lane("k", "iu")
	require.Equal(t, []int64{5, 2, 2, 1, 1}, []int64{l.Queued, l.Scheduled, l.Leased, l.InProgress, l.RetryWaiting})
	require.Equal(t, []int64{3, 1, 0, 1}, []int64{l.Succeeded, l.Failed, l.Dead, l.Cancelled})
	require.NotNil(t, l.OldestAt)
	require.NotNil(t, l.NewestAt)
	require.NotNil(t, l.AgeSeconds)
	require.Less(t, *l.AgeSeconds, int64(3000), "a job waits from when it was enqueued, not from a process_after before that")
	require.Positive(t, l.InPerSecond)
	require.Positive(t, l.OutPerSecond)
	require.Less(t, l.OutPerSecond, l.InPerSecond)
	require.Nil(t, l.ClearsInSeconds, "more comes than goes")
	require.EqualValues(t, 1, j.lane("k", "kg").Dead)
	require.Zero(t, j.lane("k", "kg").Queued)
	require.EqualValues(t, 6, s.Flow.Jobs[59]+s.Flow.Jobs[58], "finished: three well, one failed, one cancelled, one dead")

	waiting := map[string]queue.Waiting{}
	for _, w := range s.Waiting {
		if w.Source == "job" {
			waiting[w.Queue.String()] = w
		}
	}
	require.Len(t, waiting, 2)
	require.EqualValues(t, 6, waiting["job k"].Waiting)
	require.Equal(t, []string{"k", "iu"}, []string{waiting["job k"].Subject.String(), waiting["job k"].Domain.String()})

	require.Equal(t, "k iu 5,old iu 1", get[string](j.core, `SELECT string_agg(concat_ws(' ', subject, domain, events_seen), ',' ORDER BY subject) FROM public.v_queue_health
		WHERE source = 'backlog_job_queue' AND events_seen > 0`))
	// Queue lanes are sorted by their oldest job.
	j.exec("UPDATE public.job_queue SET process_after = now() - interval '9 s'; ")
	require.Equal(t, "k", j.snapshot().Queues[0].Kind.String())
}

// The reason why a queue lane waits is the first link of the chain that blocks it.
func TestJobSnapshotWhy(t *testing.T) {
	j := newJobs(t)
	job := j.put("k", "iu", 3)
	why := func() string { t.Helper(); return j.lane("k", "iu").Why.String() }
	require.Equal(t, "no external_worker executor subscribes to it", why())
	j.jobSubscription("w", "other", "", 0, 5)
	require.Equal(t, "no external_worker executor subscribes to it", why())
	j.jobSubscription("w", "", "", 0, 2)
	require.Empty(t, why())
	j.exec("UPDATE public.job_subscription SET enabled = false WHERE job_kind IS NULL")
	require.Equal(t, "no external_worker executor subscribes to it", why())
	j.exec("UPDATE public.job_subscription SET enabled = true")
	j.exec("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '1 hour' WHERE executor_id = 'w'")
	require.Equal(t, "every subscribed executor is silent: w", why())
	j.jobSubscription("w2", "k", "", 0, 2)
	require.Empty(t, why(), "one of them lives")
	j.exec("UPDATE public.queue_heartbeat SET last_beat_at = now(); UPDATE public.job_subscription SET enabled = executor_id = 'w'")
	require.Len(t, j.take("w", 2), 2)
	require.Equal(t, "parallel limit reached: w", why())
	j.exec("UPDATE public.job_queue SET ready = false, process_after = now() + interval '1 hour' WHERE status = 'queued'")
	require.Equal(t, "all due later", why())
	require.Nil(t, j.lane("k", "iu").OldestAt)
	const late = `INSERT INTO public.job_queue (job_kind, event_domain, executor, process_after, ready) VALUES ($1, 'iu', 'external_worker', $2::text::timestamptz, false)`
	j.exec(late, "k", "infinity")
	require.Equal(t, "due later, 1 never", why(), "a row of an older release")
	j.exec(late, "never", "infinity")
	j.exec(late, "never", "20000-01-01")
	require.Equal(t, "never due", j.lane("never", "iu").Why.String())
	call(t, j.work, "public.fn_job_cancel($1::uuid[], 'ann', 'test')", get[[]string](j.core, "SELECT array_agg(job_id::text) FROM public.job_queue WHERE process_after > '9999-12-31Z'"))
	require.Equal(t, "all due later", why())
	setFlag(t, j.work, "queue.job_substrate.enabled", "false")
	require.Equal(t, "queue.job_substrate.enabled is off", why())
	setFlag(t, j.work, "queue.job_substrate.enabled", "true")
	for _, w := range j.snapshot().Waiting {
		require.Equal(t, "all due later", w.Why.String(), "the waiting rows say the same")
	}
	call(t, j.work, "public.fn_job_cancel($1::uuid[], 'ann', 'test')", job)
	require.Empty(t, why(), "nothing waits")
	j.put("k", "iu", 1)
	j.exec("DELETE FROM public.queue_counter WHERE scope = 'job_out_5m'; DELETE FROM public.queue_counter_recent WHERE scope = 'job_out_5m'; UPDATE public.job_subscription SET priority_floor = 200")
	require.Equal(t, "priority floor 200 of w", why())
}

func TestJobSnapshotLeases(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("w", "k", "", 7, 1000)
	j.put("k", "iu", 60)
	fresh, late, gone := j.take("w", 3), j.take("w", 2), j.take("w", 1)
	require.Empty(t, j.snapshot().JobLeases, "all are fresh")
	j.exec("UPDATE public.job_lease SET lease_until = now() + interval '99 s' WHERE lease_token = $1", late[0].Token)
	j.expire(gone...)
	s := j.snapshot()
	require.Len(t, s.JobLeases, 2)
	require.Equal(t, []string{j.leaseID(gone[0]), j.leaseID(late[0])}, []string{s.JobLeases[0].ID, s.JobLeases[1].ID})
	require.Equal(t, []bool{true, false}, []bool{s.JobLeases[0].Expired, s.JobLeases[1].Expired})
	l := s.JobLeases[1]
	require.Equal(t, "w k iu 2", fmt.Sprint(l.Owner, " ", l.Kind, " ", l.Domain, " ", l.Live))
	require.EqualValues(t, 3, s.JobTable.Leases)
	require.EqualValues(t, 1, s.JobTable.LeasesExpired)
	require.Equal(t, "done", j.outcome("renew", late...))
	require.Equal(t, "done", j.outcome("ack", fresh...))
	require.Len(t, j.snapshot().JobLeases, 1)
	require.Len(t, s.JobSubscriptions, 1)
	r := s.JobSubscriptions[0]
	require.Equal(t, "w external_worker k  7 1000 true 6 ann", fmt.Sprint(r.ExecutorID, " ", r.ExecutorKind, " ", r.JobKind, " ", r.Domain, " ", r.PriorityFloor, " ",
		r.MaxParallel, " ", r.Enabled, " ", r.InFlight, " ", r.RegisteredBy))
	for range 54 {
		j.take("w", 1)
	}
	j.expire()
	require.Len(t, j.snapshot().JobLeases, 50, "no more than fifty")
}

// An open transaction with an old snapshot keeps dead rows of job_queue: the snapshot names the
// program of that session.
func TestJobSnapshotTable(t *testing.T) {
	j := newJobs(t)
	j.put("k", "iu", 100)
	j.exec("VACUUM ANALYZE public.job_queue")
	holder := j.begin(j.root)
	_, err := holder.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL application_name = 'slow report'; SELECT count(*) FROM public.job_queue")
	require.NoError(t, err)
	eventually(t, "the statistics arrive", func() bool {
		table := j.snapshot().JobTable
		return table.LiveRows == 100 && table.LastVacuum != nil && table.OldestSnapshotProgram.String() == "slow report" && table.OldestSnapshotPid != nil
	})
}

func TestJobSnapshotDead(t *testing.T) {
	j := newJobs(t)
	for range 3 {
		j.deadLetter("k", "iu", "TIMEOUT")
	}
	deadLetter := j.deadLetter("k", "kg", "TIMEOUT")
	j.deadLetter("l", "kg", "HTTP_500")
	groups := func() (out []string) {
		for _, g := range j.snapshot().DeadGroups {
			require.Equal(t, "job", g.Source)
			require.Len(t, g.Trend, 12)
			require.Zero(t, g.SubscriptionID)
			require.False(t, g.LastAt.Before(g.FirstAt))
			require.Equal(t, int64(0), g.Trend[0])
			out = append(out, fmt.Sprint(g.Code, " ", g.Endpoint, " ", g.Domain, " ", g.Open, " ", g.Trend[10]+g.Trend[11]))
		}
		return out
	}
	require.Equal(t, []string{"TIMEOUT k iu 3 3", "HTTP_500 l kg 1 1", "TIMEOUT k kg 1 1"}, groups())
	require.EqualValues(t, 5, j.snapshot().Flow.DeadOpen)
	require.Equal(t, "k iu 3 open,k kg 1 open,l kg 1 open", get[string](j.core, `SELECT string_agg(concat_ws(' ', subject, domain, dead_lettered, status_hint), ','
		ORDER BY subject, domain) FROM public.v_queue_health WHERE source = 'dead_letter_job' AND last_seen_at > now() - interval '1 minute'`))
	var told []string
	for _, h := range j.snapshot().Health {
		if h.Source.String() == "dead_letter_job" {
			told = append(told, h.Subject.String()+" "+h.Domain.String())
		}
	}
	require.ElementsMatch(t, []string{"k iu", "k kg", "l kg"}, told, "the snapshot says the same")
	call(t, j.work, replay, []string{deadLetter}, "ann")
	require.Equal(t, []string{"TIMEOUT k iu 3 3", "HTTP_500 l kg 1 1"}, groups())
	require.EqualValues(t, 4, j.snapshot().Flow.DeadOpen)
}
