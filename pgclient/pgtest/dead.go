package pgtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// FillDead stores open dead letters in so many groups: three fifths of the groups are of jobs, a
// fifth each of events and of webhooks. Group i of a source has per + i % 7 dead letters; those of
// webhooks have sagas too. The rows are inserted without triggers, as by a restored dump, and then
// a recount sets the counters.
func FillDead(t testing.TB, pool *pgxpool.Pool, groups, per int) {
	t.Helper()
	ctx := context.Background()
	sized := strings.NewReplacer("GROUPS", strconv.Itoa(groups), "EACH", fmt.Sprintf("generate_series(1, %d + g %% 7) i", per),
		"FAILED", "now() - make_interval(secs => (g::bigint * 7919 + i::bigint * 104729) % 600000)")
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{
			"SET LOCAL session_replication_role = replica",
			"SET LOCAL statement_timeout = 0",
			`INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, failure_code, executor, payload, attempts, first_failed_at, last_failed_at)
			SELECT gen_random_uuid(), 'kind_' || g % 50, 'dom_' || g % 3, 'CODE_' || g, 'external_worker', '{}', 3, now() - interval '9 days', FAILED
			FROM generate_series(1, GROUPS * 3 / 5) g, EACH`,
			`INSERT INTO public.iu_route_dead_letter (worker_name, event_domain, event_id, event_snapshot, failure_code, last_error, idempotency_key, last_failed_at)
			SELECT 'iu_outbound_default', 'dom_' || g % 3, gen_random_uuid(), jsonb_build_object('event_type', 'type_' || g % 40), 'E_' || g, 'x', gen_random_uuid()::text, FAILED
			FROM generate_series(1, GROUPS / 5) g, EACH`,
			`INSERT INTO public.subscriptions (id, event_type, callback_url, verified) OVERRIDING SYSTEM VALUE
			SELECT 1000 + s, 'order', 'http://127.0.0.1:1/' || s, true FROM generate_series(0, 19) s ON CONFLICT DO NOTHING`,
			`INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot, failed_at)
			SELECT before.n + g * 1000 + i, g, 1000 + g % 20, 'W_' || g / 20, '{}', FAILED
			FROM (SELECT COALESCE(max(saga_id), 0) AS n FROM public.dead_letters) before, generate_series(1, GROUPS / 5) g, EACH ORDER BY 6`,
			`INSERT INTO public.webhook_delivery_sagas (id, event_id, subscription_id, status, attempt_count, next_attempt_at, final_error_code)
			OVERRIDING SYSTEM VALUE SELECT d.saga_id, d.event_id, d.subscription_id, 'DeadLettered', 5, NULL, d.final_error_code
			FROM public.dead_letters d WHERE NOT EXISTS (SELECT FROM public.webhook_delivery_sagas s WHERE s.id = d.saga_id)`,
		} {
			if _, err := tx.Exec(ctx, sized.Replace(sql)); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err == nil {
		_, err = pool.Exec(ctx, "SET statement_timeout = 0; SELECT public.fn_queue_recount('test', 'filled', false); RESET statement_timeout")
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}
