// Counters and derived tables agree with the tables that they count, after any mix of steps.

package schema_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

func full() bool { return os.Getenv("QTOP_TEST_FULL") != "" }

// manyOperators returns a pool with which n operators can act at the same time.
func (h *hooks) manyOperators(n int) *pgxpool.Pool {
	h.t.Helper()
	config, err := pgxpool.ParseConfig(h.db.DSN(pgtest.Login(h.t, h.db, "dead_letter_operator")))
	require.NoError(h.t, err)
	config.MaxConns = int32(n)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(h.t, err)
	h.t.Cleanup(pool.Close)
	return pool
}

// checkCounters requires that every webhook counter equals a count of its table.
func (h *hooks) checkCounters() {
	h.t.Helper()
	const counters = `SELECT COALESCE(string_agg(concat_ws('/', k1, k2, k3, n), ' ' ORDER BY k1, k2, k3), '')
		FROM public.v_queue_counter WHERE scope = $1 AND n <> 0`
	for scope, counted := range map[string]string{
		"saga":            "SELECT subscription_id::text k1, status::text k2, '' k3, count(*) n FROM public.webhook_delivery_sagas GROUP BY 1, 2",
		"webhook_job":     "SELECT status::text k1, '' k2, '' k3, count(*) n FROM public.webhook_delivery_jobs GROUP BY 1",
		"dead_webhook":    "SELECT final_error_code k1, subscription_id::text k2, '' k3, count(*) n FROM public.dead_letter_open GROUP BY 1, 2",
		"dead_webhook_5m": "SELECT final_error_code k1, subscription_id::text k2, (floor(extract(epoch FROM failed_at) / 300) * 300)::bigint::text k3, count(*) n FROM public.dead_letters GROUP BY 1, 2, 3",
		"delivered_1m":    "SELECT '' k1, '' k2, (floor(extract(epoch FROM updated_at) / 60) * 60)::bigint::text k3, count(*) n FROM public.webhook_delivery_sagas WHERE status = 'Completed' GROUP BY 3",
		"dead_1m":         "SELECT '' k1, '' k2, (floor(extract(epoch FROM failed_at) / 60) * 60)::bigint::text k3, count(*) n FROM public.dead_letters GROUP BY 3",
		"drained_1m":      "SELECT subscription_id::text k1, '' k2, (floor(extract(epoch FROM updated_at) / 60) * 60)::bigint::text k3, count(*) n FROM public.webhook_delivery_sagas WHERE status IN ('Completed', 'DeadLettered') GROUP BY 1, 3",
	} {
		want := one[string](h, `SELECT COALESCE(string_agg(concat_ws('/', k1, k2, k3, n), ' ' ORDER BY k1, k2, k3), '') FROM (`+counted+`) c`)
		require.Equal(h.t, want, one[string](h, counters, scope), scope)
	}
	require.Zero(h.t, one[int](h, `SELECT count(*) FROM public.dead_letter_open o FULL JOIN (
		SELECT id FROM public.dead_letters d WHERE NOT EXISTS (SELECT 1 FROM public.dead_letter_requeues q WHERE q.dead_letter_id = d.id)
			AND NOT EXISTS (SELECT 1 FROM public.dead_letter_resolutions x WHERE x.dead_letter_id = d.id)) d ON d.id = o.dead_letter_id
		WHERE o.dead_letter_id IS NULL OR d.id IS NULL`), "dead_letter_open")
}

func TestWebhookStorm(t *testing.T) {
	h := newHooks(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	h.flag("webhook.max_attempts", "2")
	h.flag("webhook.circuit_failures", "4")
	h.flag("webhook.circuit_open_seconds", "0")
	for range 4 {
		h.subscribe("order")
	}
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = 200 WHERE id = 2")
	rounds := 25
	if full() {
		rounds = 400
	}
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	for w := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range rounds {
				if err := h.anything(rng); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	h.checkCounters()
	h.exec("SELECT public.fn_queue_counter_compact()")
	h.checkCounters()
	require.Equal(t, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status IN ('Pending', 'PendingRetry', 'InProgress')"),
		one[int](h, "SELECT COALESCE(sum(waiting), 0)::int FROM public.fn_webhook_backlog()"))
	require.Zero(t, one[int](h, `SELECT count(*) FROM public.webhook_delivery_sagas s
		WHERE attempt_count <> (SELECT count(*) FROM public.webhook_delivery_jobs j
			WHERE j.saga_id = s.id AND j.status = 'Failed' AND j.error_code <> 'HTTP_429' AND j.settled_at IS NOT NULL)`), "each failure counted once")
	require.Zero(t, one[int](h, `SELECT count(*) FROM public.webhook_delivery_sagas s
		WHERE (status = 'DeadLettered') <> EXISTS (SELECT 1 FROM public.dead_letters d WHERE d.saga_id = s.id)`))

	// no work is lost: once the receivers answer, all sagas end
	h.flag("webhook.slow_start.enabled", "false")
	h.exec("DELETE FROM public.webhook_endpoint_suspensions")
	h.exec("UPDATE public.subscriptions SET rate_limit_per_second = NULL")
	for deadline := time.Now().Add(60 * time.Second); ; {
		h.step()
		h.expireLeases()
		h.call("public.fn_lease_reset_cleaner_run(10000)")
		if leases := h.claim(10000); len(leases) > 0 {
			h.finish("", leases...)
		}
		if one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas WHERE status NOT IN ('Completed', 'DeadLettered')") == 0 {
			break
		}
		require.True(t, time.Now().Before(deadline), "work is left over")
	}
	h.checkCounters()
}

// anything takes one random step of a worker or of an operator.
func (h *hooks) anything(rng *rand.Rand) error {
	ctx := context.Background()
	call := func(expr string, args ...any) error {
		_, err := tryCall(h.work, expr, args...)
		return err
	}
	some := func(sql string) (ids []int64, err error) {
		err = h.root.QueryRow(ctx, "SELECT COALESCE(array_agg(id), '{0}') FROM ("+sql+" ORDER BY random() LIMIT 20) x").Scan(&ids)
		return ids, err
	}
	onDeadLetters := func(from, expr string) error {
		ids, err := some(from)
		if err != nil {
			return err
		}
		return call(expr, ids)
	}
	switch rng.IntN(12) {
	case 0, 1:
		_, err := h.work.Exec(ctx, "INSERT INTO public.events (event_type, payload) SELECT 'order', '{}' FROM generate_series(1, $1)", 1+rng.IntN(20))
		return err
	case 2, 3:
		if err := call("public.fn_webhook_router_run()"); err != nil {
			return err
		}
		return call("public.fn_saga_orchestrator_run($1)", 1+rng.IntN(60))
	case 4, 5, 6:
		leases, err := tryClaim(h.work, 1+rng.IntN(30))
		if err != nil || len(leases) == 0 {
			return err
		}
		var reports []map[string]any
		for _, l := range leases {
			if rng.IntN(10) > 0 {
				reports = append(reports, result(l, []string{"", "HTTP_500", "TIMEOUT", "HTTP_429"}[rng.IntN(4)]))
			}
		}
		if len(reports) == 0 {
			return nil
		}
		_, err = tryReport(h.work, reports...)
		return err
	case 7:
		err := h.asOwner(`UPDATE public.webhook_delivery_jobs j SET lease_until = now() - interval '1 second' FROM (
			SELECT id FROM public.webhook_delivery_jobs WHERE status = 'Leased' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) x WHERE x.id = j.id`)
		if err != nil {
			return err
		}
		return call("public.fn_lease_reset_cleaner_run(3)")
	case 8:
		return onDeadLetters("SELECT dead_letter_id AS id FROM public.dead_letter_open", "public.fn_dead_letter_requeue($1, 'ann', 'storm')")
	case 9:
		return onDeadLetters("SELECT dead_letter_id AS id FROM public.dead_letter_requeues", "public.fn_dead_letter_requeue_undo($1, 'ann', 'storm')")
	case 10:
		if err := onDeadLetters("SELECT dead_letter_id AS id FROM public.dead_letter_open", "public.fn_dead_letter_resolve($1, 'duplicate', '', 'ann')"); err != nil {
			return err
		}
		return onDeadLetters("SELECT dead_letter_id AS id FROM public.dead_letter_resolutions", "public.fn_dead_letter_reopen($1, 'ann', 'storm')")
	default:
		sub := 1 + rng.IntN(4)
		if rng.IntN(2) == 0 {
			return call(fmt.Sprintf("public.fn_endpoint_suspend(%d, 'ann', 'storm', '1 minute')", sub))
		}
		return call(fmt.Sprintf("public.fn_endpoint_resume(%d, 'ann', 'storm')", sub))
	}
}
