package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The logins of the demo. None of them is a superuser, so that PostgreSQL checks all privileges.
const (
	Operator = "demo_operator" // dead_letter_operator, workflow_admin, queue_viewer
	Admin    = "demo_admin"    // workflow_admin, subscription_admin, queue_viewer
	Viewer   = "demo_viewer"   // queue_viewer
	HostUser = "demo_host"     // the worker roles
	Producer = "demo_producer" // event_ingest_writer
)

// SilentLoop is the loop that the demo does not start; when a person starts it, the incident
// ends.
const SilentLoop = "iu_outbound_default"

func logins(ctx context.Context, conn *pgx.Conn) error {
	for user, groups := range map[string]string{
		Operator: "dead_letter_operator, workflow_admin, queue_viewer",
		Admin:    "workflow_admin, subscription_admin, queue_viewer",
		Viewer:   "queue_viewer",
		HostUser: "dot_executor, router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, queue_viewer",
		Producer: "event_ingest_writer",
	} {
		var have bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)", user).Scan(&have); err != nil {
			return err
		}
		if !have {
			if _, err := conn.Exec(ctx, "CREATE ROLE "+user+" LOGIN"); err != nil {
				return err
			}
		}
		if _, err := conn.Exec(ctx, "GRANT "+groups+" TO "+user); err != nil {
			return err
		}
	}
	return nil
}

// flags sets short waits between attempts and switches wake signals on
// (queue.notify.bridge_enabled).
func flags(ctx context.Context, conn *pgx.Conn) error {
	for _, kv := range [][2]string{
		{"queue.notify.bridge_enabled", "true"},
		{"webhook.max_attempts", "3"},
		{"webhook.retry_schedule", "2s 4s"},
		{"webhook.timeout_seconds", "4"},
		{"webhook.lease_seconds", "20"},
		{"webhook.circuit_failures", "150"},
		{"webhook.circuit_open_seconds", "15"},
		{"webhook.slow_start.enabled", "false"},
		{"notification.debounce_seconds", "60"},
		{"queue.tick.iu_notification_worker.interval_seconds", "20"},
		{"queue.retry.max_attempts_default", "5"},
		{"queue.retry.schedule", "1s 2s 4s 8s"},
	} {
		if _, err := conn.Exec(ctx, "SELECT public.fn_dot_config_set($1::text, $2::text, 'demo', 'makes the demo quick', NULL::timestamptz, NULL::timestamptz)", kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}

// subscribe makes a webhook subscription for each receiver. In a database that an earlier demo filled
// it gives the subscriptions of that demo the present addresses, as each demo has other ports.
func subscribe(ctx context.Context, conn *pgx.Conn, receivers []*receiver) error {
	for _, r := range receivers {
		scheme, _, _ := strings.Cut(r.url(), "://")
		kept, err := conn.Exec(ctx, `UPDATE public.subscriptions SET callback_url = $2
			WHERE event_type = $1 AND starts_with(callback_url, $3)`, r.eventType, r.url(), scheme+"://"+r.name+":")
		if err != nil {
			return err
		}
		if kept.RowsAffected() > 0 {
			continue
		}
		if _, err := conn.Exec(ctx, `INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref, rate_limit_per_second)
			VALUES ($1, $2, true, true, $3, NULL)`, r.eventType, r.url(), r.secretRef); err != nil {
			return err
		}
	}
	for _, t := range [][2]string{
		{"document_saved", "update"}, {"comment_added", "comment"}, {"template.instance_auto_composed", "update"}, {"issue_opened", "alert"},
	} {
		if _, err := conn.Exec(ctx, `INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, worker_name, description)
			VALUES ('iu', $1, $2, 'delayed', 'iu_outbound_default', 'demo traffic') ON CONFLICT DO NOTHING`, t[0], t[1]); err != nil {
			return err
		}
	}
	return nil
}

func executors(ctx context.Context, conn *pgx.Conn) error {
	for _, e := range []struct {
		id, kind, domains  string
		cadence, threshold int
	}{
		{"hermes_batch_1", "Hermes", "iu", 120, 300},
		{"kg_indexer_a", "Agent", "kg", 20, 60},
		{"codex_nightly", "Codex", "staging", 30, 120},
	} {
		if _, err := conn.Exec(ctx, `SELECT public.fn_queue_executor_register(p_executor_id => $1::text, p_kind => $2::text, p_domain_scope => $3::text[],
				p_expected_cadence_seconds => $4::int, p_stale_threshold_seconds => $5::int, p_owner_role => $6::text, p_actor => 'demo'::text)`,
			e.id, e.kind, strings.Split(e.domains, ","), e.cadence, e.threshold, HostUser); err != nil {
			return err
		}
	}
	return nil
}

// incident makes the alerts of the first screen: the outbound router has been silent for 95
// hours, and a batch executor for 14 minutes.
func incident(ctx context.Context, conn *pgx.Conn) error {
	for _, s := range []struct{ id, ago string }{{SilentLoop, "95 hours"}, {"hermes_batch_1", "14 minutes"}} {
		if _, err := conn.Exec(ctx, fmt.Sprintf("UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '%s', last_beat_payload = '{\"state\": \"idle\"}' WHERE executor_id = $1", s.ago), s.id); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, "UPDATE public.queue_tick_worker SET last_run_at = now() - interval '95 hours' WHERE worker_name = $1", SilentLoop)
	return err
}
