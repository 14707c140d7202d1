// Many claimers at once, some cancelled or terminated, some with expired leases: every job is
// finished once, within the limits of the job subscriptions, and the counters equal the tables.

package schema_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// admitted is an SQL condition for the jobs that the job subscriptions of the storm admit.
const admitted = `(executor = 'external_worker' AND (job_kind <> 'a' OR priority >= 50)
	OR executor = 'Agent' AND (job_kind = 'b' AND priority >= 10 OR job_kind <> 'b' AND event_domain = 'kg'))`

// stormFloor returns the priority floor of the job subscription that applies to the kind for the
// executor.
func stormFloor(executor, kind string) int {
	switch {
	case executor == "x1" && kind == "a":
		return 50
	case executor == "x2" && kind == "b":
		return 10
	}
	return 0
}

// storm is the state that the claimers of one run share.
type storm struct {
	*jobs
	done   atomic.Bool
	kills  atomic.Int64
	mu     sync.Mutex
	acked  map[string]string // job id → token of the report that was answered "done"
	broken []string          // violations; empty in the end
}

func (s *storm) bad(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, what)
}

func TestJobStorm(t *testing.T) {
	s := &storm{jobs: newJobs(t), acked: map[string]string{}}
	n, maxKills := 4000, int64(40)
	if full() {
		n, maxKills = 100000, 400
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s.flag("queue.lease.duration_seconds", "3")
	for _, r := range []struct {
		executor, kind, domain string
		floor, parallel        int
	}{{"x1", "", "", 0, 40}, {"x1", "a", "", 50, 10}, {"x2", "", "kg", 0, 20}, {"x2", "b", "", 10, 15}} {
		s.jobSubscription(r.executor, r.kind, r.domain, r.floor, r.parallel)
	}
	s.exec("UPDATE public.queue_heartbeat SET executor_kind = 'Agent' WHERE executor_id = 'x2'; UPDATE public.job_subscription SET executor_kind = 'Agent' WHERE executor_id = 'x2'")
	s.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', (ARRAY['a', 'b', 'c'])[1 + i % 3], 'event_domain', (ARRAY['iu', 'kg'])[1 + i / 3 % 2],
		'executor', (ARRAY['external_worker', 'Agent'])[1 + i / 6 % 2], 'priority', i * 7 % 200, 'max_attempts', 6,
		'process_after', now() - interval '1 hour' + i * interval '10 milliseconds')) FROM generate_series(1, $1::int) i))`, n)
	s.watermarksWanted()
	s.watermarked() // so that claims begin at watermarks; later an open transaction of another test may keep them from being valid
	want := get[int](s.core, "SELECT count(*) FROM public.job_queue WHERE "+admitted)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var claimers, others sync.WaitGroup
	names := make([]string, 16)
	for i := range names {
		names[i] = pgtest.Login(t, s.db, "dot_executor")
		cfg, err := pgxpool.ParseConfig(s.db.DSN(names[i]))
		require.NoError(t, err)
		cfg.MaxConns = 1
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		executor := []string{"x1", "x2"}[i%2]
		claimers.Go(func() { s.claimer(pool, executor, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	loop := func(every time.Duration, f func()) {
		others.Go(func() {
			for tick := time.NewTicker(every); ; {
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
					f()
				}
			}
		})
	}
	reaper := s.as("dot_executor")
	for range 2 {
		loop(100*time.Millisecond, func() {
			if _, err := tryCall(reaper, "public.fn_job_reap_expired(50)"); err != nil {
				s.bad("reap: " + err.Error())
			}
		})
	}
	loop(300*time.Millisecond, func() { // a random lease expires while its owner works
		_, _ = s.root.Exec(ctx, "UPDATE public.job_lease SET lease_until = now() WHERE lease_token = (SELECT lease_token FROM public.job_lease ORDER BY random() LIMIT 1)")
	})
	loop(25*time.Millisecond, func() {
		if s.kills.Load() < maxKills {
			var hit int64
			_ = s.root.QueryRow(ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE usename = ANY ($1)
				ORDER BY random() LIMIT 1) a`, names).Scan(&hit)
			s.kills.Add(hit)
		}
	})
	loop(7*time.Millisecond, s.sample)
	var valid atomic.Int64
	loop(50*time.Millisecond, func() {
		var is bool
		if _, err := s.root.Exec(ctx, "UPDATE public.job_watermark_state SET at = at - interval '1 second'"); err == nil {
			_ = s.root.QueryRow(ctx, "SELECT public.fn_job_watermark_advance()").Scan(&is)
		}
		if is {
			valid.Add(1)
		}
	})
	loop(500*time.Millisecond, func() {
		var passed int
		if err := s.root.QueryRow(ctx, belowWatermarks).Scan(&passed); err == nil && passed > 0 {
			s.bad("jobs below the watermarks")
		}
	})

	deadline := time.Now().Add(2 * patience)
	if full() {
		deadline = time.Now().Add(20 * time.Minute)
	}
	for left := 1; left > 0; time.Sleep(50 * time.Millisecond) { // time between two polls
		left = get[int](s.core, "SELECT count(*) FROM public.job_queue WHERE "+admitted)
		require.True(t, time.Now().Before(deadline), "%d jobs are not finished", left)
	}
	s.done.Store(true)
	claimers.Wait()
	stop()
	others.Wait()

	require.Empty(t, s.broken)
	t.Logf("the watermarks were valid %d times", valid.Load())
	require.Equal(t, want, get[int](s.core, "SELECT count(*) FROM public.job_history"), "each admitted job finished once, no other")
	require.Equal(t, n-want, get[int](s.core, "SELECT count(*) FROM public.job_queue WHERE status = 'queued' AND attempts = 0 AND picked_at IS NULL AND NOT "+admitted),
		"what no job subscription admits was never touched")
	s.balanced()
	require.Zero(t, get[int](s.core, "SELECT count(*) FROM public.job_lease"))
	acked := make([]string, 0, len(s.acked))
	under := make([]string, 0, len(s.acked))
	for job, token := range s.acked {
		acked, under = append(acked, job), append(under, token)
	}
	s.none("told done, but not succeeded under that lease", `SELECT g.id FROM unnest('{`+join(acked)+`}'::uuid[], '{`+join(under)+`}'::uuid[]) g (id, token)
		LEFT JOIN public.job_history h ON h.job_id = g.id AND h.lease_token = g.token AND h.status = 'succeeded' WHERE h.job_id IS NULL`)
	t.Logf("%d kills; %s", s.kills.Load(), get[string](s.core, `SELECT string_agg(status || ' ' || n || ', lost ' || lost, '; ') FROM (
		SELECT status, count(*) n, sum(lost_leases) lost FROM public.job_history GROUP BY 1) x`))
}

// claimer claims and reports jobs until all are done; now and then a call is cancelled, or the
// claimer forgets its jobs, or its session is terminated.
func (s *storm) claimer(pool *pgxpool.Pool, executor string, r *rand.Rand) {
	within := func() (context.Context, context.CancelFunc) {
		if r.IntN(30) == 0 {
			return context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
		}
		return context.WithTimeout(context.Background(), patience)
	}
	for !s.done.Load() {
		ctx, cancel := within()
		hs, err := takeWithin(ctx, pool, executor, nil, 1+r.IntN(20), nil)
		cancel()
		if err != nil || len(hs) == 0 {
			time.Sleep(time.Duration(1+r.IntN(4)) * time.Millisecond) // after a claim without jobs, a worker polls again
			continue
		}
		for _, h := range hs {
			if h.Priority < stormFloor(executor, h.Kind) || h.Owner != executor {
				s.bad("claimed against the job subscriptions: " + h.Job)
			}
		}
		if r.IntN(40) == 0 {
			continue // the claimer forgets these jobs, so their lease expires
		}
		step := []string{"ack", "ack", "ack", "ack", "start", "renew", "release", "TIMEOUT", "BROKEN!"}[r.IntN(9)]
		if step == "start" || step == "renew" {
			ctx, cancel = within()
			_, _ = tell(ctx, pool, step, hs...)
			cancel()
			step = "ack"
		}
		cut := r.IntN(len(hs) + 1)
		for i, part := range [][]held{hs[:cut], hs[cut:]} {
			if len(part) == 0 {
				continue
			}
			what := []string{step, "ack"}[i]
			for range 4 { // after an unknown outcome the report is repeated: a repeat is answered "done"
				ctx, cancel = within()
				got, err := tell(ctx, pool, what, part...)
				cancel()
				if err == nil {
					s.remember(what, part, got)
					break
				}
			}
		}
	}
}

func (s *storm) remember(what string, hs []held, got map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range hs {
		if what != "ack" || got[h.Job] != "done" {
			continue
		}
		if old := s.acked[h.Job]; old != "" && old != h.Token {
			s.broken = append(s.broken, "finished twice: "+h.Job)
		}
		s.acked[h.Job] = h.Token
	}
}

// sample checks at one moment, per job subscription, that leases and leased jobs are equal in
// number and within the limit.
func (s *storm) sample() {
	var found []string
	err := s.root.QueryRow(context.Background(), `SELECT COALESCE(array_agg(concat_ws(' ', s.executor_id, s.job_kind, 'max', s.max_parallel, 'leases', l.n, 'jobs', q.n)), '{}')
		FROM public.job_subscription s
		CROSS JOIN LATERAL (SELECT COALESCE(sum(live), 0) AS n FROM public.job_lease WHERE subscription_id = s.subscription_id) l
		CROSS JOIN LATERAL (SELECT count(*) AS n FROM public.job_queue q JOIN public.job_lease x USING (lease_token)
			WHERE x.subscription_id = s.subscription_id AND q.status IN ('leased', 'in_progress')) q
		WHERE l.n > s.max_parallel OR q.n <> l.n`).Scan(&found)
	if err != nil && !errors.Is(err, context.Canceled) {
		found = []string{err.Error()}
	}
	for _, what := range found {
		s.bad(what)
	}
}
