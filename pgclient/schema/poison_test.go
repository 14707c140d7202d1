// A row that fails every time stops no other row: each step of the tick workers is run with one
// such row among good ones.

package schema_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// poisons are the ways in which a poisoned row fails a statement: bodies of a trigger function.
var poisons = map[string]string{
	"constraint":        `RAISE EXCEPTION 'poison: check' USING ERRCODE = '23514'`,
	"internal error":    `RAISE EXCEPTION 'poison: internal' USING ERRCODE = 'XX000'`,
	"data exception":    `PERFORM 1 / (TG_ARGV[0] <> TG_ARGV[0])::int`,
	"serialization":     `RAISE EXCEPTION 'poison: serialization' USING ERRCODE = '40001'`,
	"statement timeout": `PERFORM pg_catalog.pg_sleep(3600)`,
	"out of memory":     `RAISE EXCEPTION 'poison: memory' USING ERRCODE = '53200'`,
}

// poisoned describes a step that processes rows in batches: how its rows are made, which one fails,
// and how to count the good rows that are not processed.
type poisoned struct {
	step   string
	worker string // the tick worker of the step
	table  string // the table that gets the failing trigger
	when   string // INSERT, UPDATE OF …, DELETE
	row    string // NEW or OLD, in the trigger
	// setup makes n good rows in two domains and one that will fail. It returns the trigger's
	// condition for the failing row, and the name of the row in quarantine ("" = the row becomes a
	// dead letter instead).
	setup func(c *jobs, n int) (condition, target string)
	// left is SQL that counts the good rows that are not processed; 0 at the end.
	left string
	// again is SQL that allows the worker to process rows again at once; "" = not needed.
	again string
	// named is SQL that counts the dead letters which name the failing row; "" = it is named in
	// quarantine.
	named string
}

func poisonedSteps() []poisoned {
	hooks := func(c *jobs, n int) (poison string) {
		// two event types represent two domains
		c.exec(`INSERT INTO public.subscriptions (event_type, callback_url, verified) SELECT 'poison.' || t, 'http://127.0.0.1:' || t || '/', true
			FROM generate_series(1, 2) t WHERE NOT EXISTS (SELECT FROM public.subscriptions)`)
		c.exec(`INSERT INTO public.events (event_type, payload) SELECT 'poison.' || 1 + i % 2, '{}' FROM generate_series(0, $1) i`, n)
		return get[string](c.core, `SELECT e.id || '/' || s.id FROM public.events e JOIN public.subscriptions s USING (event_type) ORDER BY e.id DESC OFFSET $1 / 3 LIMIT 1`, n)
	}
	routed := func(c *jobs, n int) string {
		pair := strings.Split(hooks(c, n), "/")
		c.tick("webhook_router")
		c.tick("webhook_router") // one run routes at most 1,000 events
		return get[string](c.core, "SELECT id::text FROM public.webhook_delivery_sagas WHERE event_id = $1::text::bigint AND subscription_id = $2::text::bigint", pair[0], pair[1])
	}
	made := func(c *jobs, n int) string {
		saga := routed(c, n)
		for get[bool](c.core, "SELECT EXISTS (SELECT FROM public.webhook_delivery_sagas WHERE status = 'Pending')") {
			c.tick("saga_orchestrator")
		}
		return get[string](c.core, "SELECT id::text FROM public.webhook_delivery_jobs WHERE saga_id = $1::text::bigint ORDER BY id DESC LIMIT 1", saga)
	}
	queued := func(c *jobs, n int) string {
		c.put("letters.send", "poison_a", (n+1)/2)
		return c.put("letters.send", "poison_b", n/2+1)[n/3]
	}
	return append(poisonedSweeps(), []poisoned{
		{
			step: "webhook_route", worker: "webhook_router", table: "webhook_delivery_sagas", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				pair := hooks(c, n)
				return "NEW.event_id = " + strings.Split(pair, "/")[0], pair
			},
			left: `SELECT count(*) - 1 FROM public.events e WHERE NOT EXISTS (SELECT FROM public.webhook_delivery_sagas s WHERE s.event_id = e.id)`,
		}, {
			step: "webhook_make", worker: "saga_orchestrator", table: "webhook_delivery_sagas", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) { id := routed(c, n); return "NEW.id = " + id, id },
			left:  `SELECT count(*) - 1 FROM public.webhook_delivery_sagas WHERE status = 'Pending'`,
		}, {
			step: "webhook_settle", worker: "saga_orchestrator", table: "webhook_delivery_jobs", when: "UPDATE OF settled_at", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				id := made(c, n)
				h := c.hooks()
				for leases := h.claim(400); len(leases) > 0; leases = h.claim(400) {
					h.finish("", leases...)
				}
				return "NEW.id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.webhook_delivery_jobs WHERE settled_at IS NULL`,
		}, {
			step: "webhook_reap", worker: "lease_reset_cleaner", table: "webhook_delivery_jobs", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				id := made(c, n)
				h := c.hooks()
				for len(h.claim(400)) > 0 {
				}
				h.expireLeases()
				return "NEW.id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.webhook_delivery_jobs WHERE status = 'Leased'`,
		}, {
			step: "job_promote", worker: "job_queue_default", table: "job_queue", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				id := queued(c, n)
				c.exec("UPDATE public.job_queue SET ready = false, process_after = now() - interval '1 s'")
				return "NEW.job_id = '" + id + "'", id
			},
			left: `SELECT count(*) - 1 FROM public.job_queue WHERE NOT ready`,
		}, {
			step: "job_reap", worker: "lease_reaper", table: "job_queue", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.jobSubscription("poison_x", "", "", 0, 100000)
				id := queued(c, n)
				for len(c.take("poison_x", 400)) > 0 {
				}
				c.expire()
				return "NEW.job_id = '" + id + "'", id
			},
			left: `SELECT count(*) - 1 FROM public.job_queue WHERE status = 'leased'`,
		}, {
			step: "webhook_resume", worker: "saga_orchestrator", table: "webhook_endpoint_suspensions", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.subscriptions (event_type, callback_url) SELECT 'aside.' || i, 'http://127.0.0.1:1/' || i FROM generate_series(0, $1) i
					WHERE NOT EXISTS (SELECT FROM public.subscriptions)`, n)
				c.exec(`INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by) SELECT id, 'operator', now() - interval '1 s', 'ann' FROM public.subscriptions`)
				id := get[string](c.core, "SELECT max(subscription_id)::text FROM public.webhook_endpoint_suspensions")
				return "OLD.subscription_id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.webhook_endpoint_suspensions`,
		}, {
			step: "webhook_ramp", worker: "saga_orchestrator", table: "webhook_slow_start", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.webhook_slow_start (endpoint, began_at, why, rate, step_at, refilled_at)
					SELECT '10.0.0.' || i, now(), 'x', 1, now() - interval '1 min', now() FROM generate_series(0, $1) i`, n)
				return "OLD.endpoint = '10.0.0.3'", "10.0.0.3"
			},
			left: `SELECT count(*) - 1 FROM public.webhook_slow_start`,
		}, {
			step: "webhook_lanes", worker: "saga_orchestrator", table: "webhook_delivery_jobs", when: "UPDATE OF controlled", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec("UPDATE public.subscriptions SET rate_limit_per_second = NULL")
				id := made(c, n)
				c.exec("UPDATE public.subscriptions SET rate_limit_per_second = 5")
				return "NEW.id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.webhook_delivery_jobs WHERE NOT controlled`,
		}, {
			step: "event_route", worker: "iu_outbound_default", table: "iu_route_attempt", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec("INSERT INTO public.event_type_registry VALUES ('poison_a', 'made', 's', 'immediate'), ('poison_b', 'made', 's', 'immediate') ON CONFLICT DO NOTHING")
				c.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('iu_core.routes_master_enabled', 'iu_core.route_worker_enabled')")
				c.exec(`SELECT public.fn_iu_emit_event('poison_' || CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'made', 's', 'immediate', 'info', NULL, i::text) FROM generate_series(0, $1) i`, n)
				return "NEW.event_id = '" + get[string](c.core, "SELECT id::text FROM public.event_outbox WHERE event_domain = 'poison_b' ORDER BY created_xid DESC, id OFFSET $1 / 3 LIMIT 1", n) + "'", ""
			},
			left:  `SELECT count(*) - 1 FROM public.event_outbox e WHERE NOT EXISTS (SELECT FROM public.iu_route_attempt a WHERE a.event_id = e.id)`,
			named: `SELECT count(*) FROM public.iu_route_dead_letter WHERE resolved_at IS NULL AND event_domain = 'poison_b'`,
		}, {
			step: "counter_fold", worker: "counter_compactor", table: "queue_counter", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.queue_counter_recent (scope, k1, k2, n) SELECT 'poison', 'k' || i, 'domain_' || i % 2, 1 FROM generate_series(0, $1) i`, n)
				return "NEW.scope = 'poison' AND NEW.k1 = 'k7'", `["poison", "k7", "domain_1", ""]`
			},
			left: `SELECT count(*) - 1 FROM public.queue_counter_recent WHERE scope = 'poison'`,
		}, {
			step: "counter_prune", worker: "counter_compactor", table: "queue_counter", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.queue_counter (scope, k1, k2, k3, n) SELECT 'poison_1m', 'k' || i, '', '60', 1 FROM generate_series(0, $1) i`, n)
				return "OLD.k1 = 'k7'", `["poison_1m", "k7", "", "60"]`
			},
			left: `SELECT count(*) - 1 FROM public.queue_counter WHERE scope = 'poison_1m'`,
		}, {
			step: "config_expire", worker: "config_expiry", table: "dot_config", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.dot_config (key, value, updated_by) SELECT 'poison.' || i, 'new', 'ann' FROM generate_series(0, $1) i ON CONFLICT (key) DO UPDATE SET value = 'new'`, n)
				c.exec(`INSERT INTO public.dot_config_revert (key, set_value, set_at, revert_to, revert_at, set_by, reason)
					SELECT key, value, updated_at, 'old', now() - interval '1 s', 'ann', 'test' FROM public.dot_config WHERE key LIKE 'poison.%'`)
				return "NEW.key = 'poison.7'", "poison.7"
			},
			left: `SELECT count(*) - 1 FROM public.dot_config_revert`,
		}, {
			step: "stale_check", worker: "stale_heartbeat_check", table: "event_outbox", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds, registered_by)
					SELECT 'poison' || i, 'external_worker', '{}', now() - interval '1 h', 60, 300, 'test' FROM generate_series(0, $1) i
					ON CONFLICT (executor_id) DO UPDATE SET silent_event_at = NULL`, n)
				return "NEW.event_subject_ref = 'poison7'", "poison7"
			},
			left: `SELECT count(*) - 1 FROM public.queue_heartbeat WHERE executor_id LIKE 'poison%' AND silent_event_at IS NULL`,
		}, {
			step: "alert_acks", worker: "stale_heartbeat_check", table: "queue_alert_ack", when: "UPDATE", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.queue_alert_ack (alert_key, subject, severity, acked_by, comment, expires_at)
					SELECT 'poison' || i, 'poison', 'warning', 'ann', 'x', now() - interval '1 s' FROM generate_series(0, $1) i`, n)
				id := get[string](c.core, "SELECT ack_id::text FROM public.queue_alert_ack WHERE cleared_at IS NULL ORDER BY ack_id LIMIT 1 OFFSET 3")
				return "NEW.ack_id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.queue_alert_ack WHERE cleared_at IS NULL`,
		}, {
			step: "sample", worker: "metrics_sampler", table: "queue_metric_sample", when: "INSERT", row: "NEW",
			setup: func(c *jobs, _ int) (string, string) {
				c.unguarded("DELETE FROM public.queue_metric_sample")
				return "NEW.metric = 'dead_open' AND NEW.labels ->> 'source' = 'job'", ""
			},
			left:  `SELECT 4 - count(DISTINCT (metric, labels)) FROM public.queue_metric_sample WHERE metric IN ('dead_open', 'hosts_alive', 'picture_ms')`, // in the next minute there are as many again
			named: `SELECT count(*) FROM public.queue_quarantine WHERE step = 'sample' AND set_aside_at IS NOT NULL AND target ~ 'job.*dead_open'`,
		}, {
			step: "notify", worker: "iu_notification_worker", table: "iu_notification_event", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				c.staged(n, "NULL")
				return "NEW.canonical_address = 'poison/7'", ""
			},
			left:  `SELECT count(*) - 1 FROM public.iu_notification_pending WHERE processed_at IS NULL`,
			named: `SELECT count(*) FROM public.iu_notification_pending WHERE failed_at IS NOT NULL AND canonical_address = 'poison/7'`,
		}, {
			step: "sweep_staging", worker: "staging_cleanup_sweep", table: "iu_notification_pending", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.staged(n, "now() - interval '100 days'")
				id := get[string](c.core, "SELECT id::text FROM public.iu_notification_pending ORDER BY id LIMIT 1 OFFSET 3")
				return "OLD.id = '" + id + "'", id
			},
			left: `SELECT count(*) - 1 FROM public.iu_notification_pending`,
		}, {
			step: "sweep_attempts", worker: "retention_sweep", table: "iu_route_attempt", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name, attempted_at)
					SELECT gen_random_uuid(), 'user:ann', 1, 'poison_' || i % 2, 'x', 'iu_outbound_default', now() - interval '9 years' FROM generate_series(0, $1) i`, n)
				id := get[string](c.core, "SELECT event_id::text FROM public.iu_route_attempt ORDER BY event_id LIMIT 1 OFFSET 3")
				return "OLD.event_id = '" + id + "'", id + "/user:ann"
			},
			left: `SELECT count(*) - 1 FROM public.iu_route_attempt`,
		}, {
			step: "sweep_keys", worker: "retention_sweep", table: "producer_key", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.exec(`INSERT INTO public.producer_key (scope, kind, key, target_id, content_hash, status, final_at)
					SELECT 'ann', 'k', 'key ' || i, gen_random_uuid(), '', 'ended', now() - interval '1 year' FROM generate_series(0, $1) i`, n)
				return "OLD.key = 'key 7'", `["ann", "k", "key 7"]`
			},
			left: `SELECT count(*) - 1 FROM public.producer_key`,
		}, {
			step: "sweep_webhooks", worker: "retention_sweep", table: "webhook_delivery_sagas", when: "DELETE", row: "OLD",
			setup: func(c *jobs, n int) (string, string) {
				c.flag("retention.webhooks_days", "1")
				made(c, n)
				h := c.hooks()
				for leases := h.claim(400); len(leases) > 0; leases = h.claim(400) {
					h.finish("", leases...)
				}
				for num(c.tick("saga_orchestrator")["result"].(map[string]any), "settled") > 0 {
				}
				h.backdate("9 days")
				id := get[string](c.core, "SELECT id::text FROM public.events ORDER BY id LIMIT 1 OFFSET 3")
				return "OLD.event_id = " + id, id
			},
			left: `SELECT count(*) - 1 FROM public.events`,
		}, {
			step: "bulk_item", worker: "bulk_operation_runner", table: "dead_letter_resolutions", when: "INSERT", row: "NEW",
			setup: func(c *jobs, n int) (string, string) {
				h := c.hooks()
				h.flag("webhook.retry_schedule", "0s")
				h.flag("webhook.circuit_failures", "0")
				_, deadLetters := h.die(fmt.Sprintf("poison.t%d", get[int](c.core, "SELECT count(*) FROM public.subscriptions")), n+1)
				ids := make([]string, len(deadLetters))
				for i, l := range deadLetters {
					ids[i] = fmt.Sprint(l)
				}
				got := h.call("public.fn_queue_bulk_plan('resolve', $1::text[], 'code:HTTP_500', 1000, 0, 0, 'ann', 'gone')", ids)
				h.call(bulkRun, num(got, "operation_id"))
				c.exec("UPDATE public.queue_bulk_operation SET credited_at = now() - interval '1 min'")
				return fmt.Sprintf("NEW.dead_letter_id = %d", deadLetters[3]), ""
			},
			left:  `SELECT count(*) - 1 FROM public.queue_bulk_operation_item WHERE outcome IS DISTINCT FROM 'done'`,
			named: `SELECT count(*) FROM public.queue_bulk_operation_item WHERE outcome = 'failed'`,
		},
	}...)
}

// staged makes n + 1 rows of the staging table.
func (j *jobs) staged(n int, processed string) {
	j.t.Helper()
	j.exec(`INSERT INTO public.iu_notification_pending (unit_id, canonical_address, actor_ref, ref_id, created_at, processed_at)
		SELECT gen_random_uuid(), 'poison/' || i, 'user:ann', gen_random_uuid(), now() - interval '1 year', `+processed+` FROM generate_series(0, $1) i`, n)
}

// unguarded runs sql without triggers.
func (j *jobs) unguarded(sql string) {
	j.t.Helper()
	require.NoError(j.t, pgx.BeginFunc(context.Background(), j.root, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "SET LOCAL session_replication_role = replica; "+sql)
		return err
	}))
}

// hooks returns the same database with the helpers of the webhook tests.
func (j *jobs) hooks() *hooks { return &hooks{t: j.t, db: j.db, root: j.root, work: j.root} }

// tick makes a full run of a tick worker, which must not fail.
func (j *jobs) tick(worker string) map[string]any {
	j.t.Helper()
	j.hooks().justRan(worker, "2 seconds")
	got, err := tryCall(j.root, "public.fn_queue_tick_request($1, 'wake')", worker)
	require.NoError(j.t, err, worker)
	require.Equal(j.t, true, got["ran"], got)
	return got
}

// TestPoisonStaysAlone runs steps with one poisoned row among good ones in two domains. The good
// rows are processed; the poisoned row is tried a bounded number of times and then named by an
// alert or a dead letter. Once the cause is fixed and the row is retried, it is processed too.
func TestPoisonStaysAlone(t *testing.T) {
	small := map[string]string{
		"webhook_route": "serialization", "webhook_settle": "data exception", "job_reap": "statement timeout", "event_route": "out of memory",
		"sample": "constraint", "sweep_staging": "internal error", "bulk_item": "serialization",
	}
	for _, p := range poisonedSteps() {
		if kind := small[p.step]; kind != "" {
			t.Run(p.step, func(t *testing.T) { stayAlone(t, p, kind, 20) })
		}
	}
}

func TestPoisonOfEveryKind(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: every step with every kind of failure among 1,000 rows")
	}
	for _, p := range poisonedSteps() {
		for kind := range poisons {
			t.Run(p.step+"/"+kind, func(t *testing.T) { stayAlone(t, p, kind, 1000) })
		}
	}
}

func stayAlone(t *testing.T, p poisoned, kind string, n int) {
	c := newJobs(t)
	c.flag("webhook.worker.enabled", "true")
	c.flag("webhook.slow_start.enabled", "false")
	c.flag("retention.staging_days", "1")
	_, target := p.setup(c, n) // first without a poisoned row, to measure the time
	_ = target
	tick := func() float64 {
		if p.again != "" {
			c.unguarded(p.again)
		}
		return c.tick(p.worker)["took_ms"].(float64)
	}
	took := tick()
	for deadline := time.Now().Add(patience); get[int](c.core, p.left) > -1; {
		tick()
		require.True(t, time.Now().Before(deadline), "without poison: %d left", get[int](c.core, p.left))
	}

	condition, target := p.setup(c, n)
	c.exec(fmt.Sprintf(`CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s; RETURN %s; END $$`, poisons[kind], p.row))
	c.exec(fmt.Sprintf(`CREATE TRIGGER a_poison BEFORE %s ON public.%s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION public.poison('x')`, p.when, p.table, condition))
	limit := "40s"
	if kind == "statement timeout" {
		limit = fmt.Sprintf("%.0fms", max(300, 3*took)) // enough for the good rows
	}
	cfg := c.root.Config().Copy()
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = limit
	cfg.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	run := func() float64 {
		if p.again != "" {
			c.unguarded(p.again)
		}
		c.hooks().justRan(p.worker, "2 seconds")
		for cut := 0; ; cut++ {
			got, err := tryCall(pool, "public.fn_queue_tick_request($1, 'wake')", p.worker)
			// On a slow machine statement_timeout may end the run after its work, while it writes
			// its counters: the next run repeats it.
			if kind == "statement timeout" && err != nil && strings.Contains(err.Error(), "57014") && cut < 20 {
				continue
			}
			require.NoError(t, err)
			require.Equal(t, true, got["ran"], "the run as a whole goes on: %v", got)
			return got["took_ms"].(float64)
		}
	}
	var with []float64
	for get[int](c.core, p.left) > 0 || get[bool](c.core, "SELECT EXISTS (SELECT FROM public.queue_step_pending)") {
		require.Less(t, len(with), 60, "%d good rows are not done", get[int](c.core, p.left))
		with = append(with, run())
	}
	run() // the poisoned row may come after the last row of a run
	require.Zero(t, get[int](c.core, p.left), "all but the poisoned one are done")

	// after a bounded number of attempts the row is set aside
	for tries := 0; get[int](c.core, "SELECT count(*) FROM public.queue_quarantine WHERE set_aside_at IS NULL") > 0; tries++ {
		require.Less(t, tries, 12, "it is tried for ever")
		c.exec("UPDATE public.queue_quarantine SET next_try_at = now() - interval '1 s'")
		run()
	}
	if p.named != "" {
		require.Equal(t, 1, get[int](c.core, p.named), "a dead letter names it")
	} else {
		require.Equal(t, []string{"quarantine:" + p.step + ":" + target}, get[[]string](c.core, "SELECT array_agg(subject) FROM public.v_queue_alert WHERE kind = 'quarantine'"), "an alert names it")
	}
	aside := run()
	t.Logf("%s, %s: %.0f ms without poison; with it %.0f ms; set aside %.1f ms", p.step, kind, took, with, aside)

	c.exec("DROP TRIGGER a_poison ON public." + p.table)
	if p.named != "" {
		return
	}
	ofStep := "FROM public.queue_quarantine WHERE step = '" + p.step + "'" // on a slow machine statement_timeout may have set another step aside
	got := call(t, c.work, "public.fn_queue_quarantine_retry((SELECT array_agg(quarantine_id) "+ofStep+"), 'ann', 'mended')")
	require.Equal(t, 1, num(got, "retried"), got)
	run()
	require.Equal(t, -1, get[int](c.core, p.left), "it is done once it is sound")
	require.Zero(t, get[int](c.core, "SELECT count(*) "+ofStep))
	call(t, c.work, "public.fn_queue_quarantine_retry('{7,8}', 'ann', 'once more')")
	require.Equal(t, "refused quarantine 7,8", get[string](c.core, "SELECT outcome || ' ' || target FROM public.queue_operator_action ORDER BY id DESC LIMIT 1"))
}
