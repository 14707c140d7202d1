package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/qtop/qtop/workerhost/handler"
)

// Executor is the executor id of the demo's worker host.
const Executor = "demo_worker"

// Handlers returns the demo's job handlers by kind. Some jobs of the kinds
// that render something fail and are retried. Jobs that export fail for good,
// as if another system were down. No executor has a job subscription for the
// monthly reports, so they wait.
func Handlers() map[string]handler.Handler {
	work := func(atLeast, atMost time.Duration, fail func() error) handler.Func {
		return func(ctx context.Context, _ handler.Job) error {
			select {
			case <-time.After(atLeast + rand.N(atMost-atLeast)):
			case <-ctx.Done():
				return ctx.Err()
			}
			return fail()
		}
	}
	return map[string]handler.Handler{
		"kg.reindex": work(20*time.Millisecond, 200*time.Millisecond, func() error { return nil }),
		"mail.render": work(5*time.Millisecond, 50*time.Millisecond, func() error {
			if rand.IntN(20) == 0 {
				return handler.Coded("TEMPLATE_BUSY", errors.New("the template is being edited"))
			}
			return nil
		}),
		"image.scan": work(50*time.Millisecond, 400*time.Millisecond, func() error {
			if rand.IntN(10) == 0 {
				return handler.Permanent(handler.Coded("NOT_AN_IMAGE", errors.New("no known image format")))
			}
			return nil
		}),
		"billing.export": work(10*time.Millisecond, 100*time.Millisecond, func() error {
			return handler.Coded("UPSTREAM_DOWN", errors.New("ledger.internal:8443 does not answer"))
		}),
	}
}

// jobExecutors registers the executors and their job subscriptions.
func jobExecutors(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `SELECT public.fn_queue_executor_register(p_executor_id => $1::text, p_kind => 'external_worker'::text, p_domain_scope => '{kg,mail,billing}'::text[],
			p_expected_cadence_seconds => 30::int, p_stale_threshold_seconds => 120::int, p_owner_role => $2::text, p_actor => 'demo'::text)`, Executor, HostUser); err != nil {
		return err
	}
	for _, s := range []struct {
		kind, domain *string
		parallel     int
	}{{parallel: 16}, {kind: ptr("kg.reindex"), parallel: 4}} {
		if _, err := conn.Exec(ctx, "SELECT public.fn_job_subscription_set($1::text, $2::text, $3::text, 0, $4::int, true, NULL::text, 'demo', 'the demo''s jobs', false)",
			Executor, s.kind, s.domain, s.parallel); err != nil {
			return err
		}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

// jobKind is one kind of job that the demo's producers enqueue.
type jobKind struct {
	kind, domain, executor string
	every                  time.Duration // mean time between two jobs
	first                  int           // number of jobs in the backlog at the start
}

func jobKinds() []jobKind {
	return []jobKind{
		{"kg.reindex", "kg", "external_worker", 120 * time.Millisecond, 200},
		{"mail.render", "mail", "external_worker", 80 * time.Millisecond, 40},
		{"image.scan", "kg", "external_worker", time.Second, 10},
		{"billing.export", "billing", "external_worker", 900 * time.Millisecond, 25},
		{"report.monthly", "billing", "Codex", 20 * time.Second, 7},
	}
}

// enqueue enqueues a backlog, then jobs until ctx ends.
func enqueue(ctx context.Context, pool *pgxpool.Pool) error {
	next := map[string]time.Time{}
	for _, k := range jobKinds() {
		jobs := make([]string, k.first)
		for i := range jobs {
			jobs[i] = k.json()
		}
		if _, err := pool.Exec(ctx, "SELECT public.fn_job_enqueue_many($1::jsonb)", "["+strings.Join(jobs, ",")+"]"); err != nil {
			return err
		}
	}
	return every(ctx, 40*time.Millisecond, func() error {
		now := time.Now()
		for _, k := range jobKinds() {
			if now.Before(next[k.kind]) {
				continue
			}
			next[k.kind] = now.Add(k.every/2 + rand.N(k.every))
			if _, err := pool.Exec(ctx, "SELECT public.fn_job_enqueue_many($1::jsonb)", "["+k.json()+"]"); err != nil {
				return err
			}
		}
		return nil
	})
}

func (k jobKind) json() string {
	return fmt.Sprintf(`{"job_kind": %q, "event_domain": %q, "executor": %q, "payload": {"ref": "%s-%05d", "pages": %d}, "priority": %d, "max_attempts": 3}`,
		k.kind, k.domain, k.executor, k.kind, rand.IntN(90_000), 1+rand.IntN(40), 100+10*rand.IntN(2))
}
