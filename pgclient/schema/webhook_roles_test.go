// Rights on webhooks: exactly the listed rights on tables, the statements that each role must never
// run, and the changes that are refused even to the owner.

package schema_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

var webhookTables = []string{"events", "subscriptions", "webhook_endpoint_suspensions", "webhook_endpoint_state",
	"webhook_rate_bucket", "router_offsets", "webhook_delivery_sagas", "webhook_delivery_jobs", "dead_letters",
	"dead_letter_requeues", "dead_letter_resolutions", "dead_letter_open"}

func TestWebhookTableRights(t *testing.T) {
	h := newHooks(t)
	rights := map[string]map[string]string{
		"event_ingest_writer": {}, // may only INSERT some columns, see below
		"router_worker":       {"events": "S", "subscriptions": "S", "webhook_delivery_sagas": "SI", "router_offsets": "SIU"},
		"saga_orchestrator": {"events": "S", "subscriptions": "S", "webhook_delivery_sagas": "SU",
			"webhook_delivery_jobs": "IU", "dead_letters": "SI"}, // may SELECT all columns but one, see below, as may webhook_worker and dead_letter_operator
		"webhook_worker": {"events": "S", "subscriptions": "S", "webhook_delivery_sagas": "S"},
		"dead_letter_operator": {"events": "S", "subscriptions": "S", "webhook_endpoint_suspensions": "S", "webhook_endpoint_state": "S",
			"webhook_rate_bucket": "S", "router_offsets": "S", "webhook_delivery_sagas": "S",
			"dead_letters": "S", "dead_letter_requeues": "S", "dead_letter_resolutions": "S", "dead_letter_open": "S"},
		"subscription_admin":  {"subscriptions": "SIU"},
		"lease_reset_cleaner": {},
		"dot_executor":        {},
		"workflow_admin":      {},
		"queue_viewer": {"webhook_endpoint_suspensions": "S", "webhook_endpoint_state": "S",
			"webhook_rate_bucket": "S", "router_offsets": "S", "webhook_delivery_sagas": "S",
			"dead_letter_requeues": "S", "dead_letter_resolutions": "S", "dead_letter_open": "S"},
		"public": {},
	}
	verbs := map[string]string{"S": "SELECT", "I": "INSERT", "U": "UPDATE", "D": "DELETE", "T": "TRUNCATE", "R": "REFERENCES", "G": "TRIGGER"}
	for role, tables := range rights {
		for _, table := range webhookTables {
			for initial, verb := range verbs {
				want := strings.Contains(tables[table], initial)
				require.Equal(t, want, one[bool](h, "SELECT has_table_privilege($1, $2, $3)", role, "public."+table, verb), "%s %s %s", role, verb, table)
			}
		}
	}
	for column, want := range map[string]bool{"events.id": true, "events.event_type": true, "events.payload": false,
		"subscriptions.endpoint": true, "subscriptions.callback_url": false, "dead_letters.final_error_code": true, "dead_letters.payload_snapshot": false,
		"webhook_delivery_jobs.worker_id": true, "webhook_delivery_jobs.response_excerpt": false} {
		table, name, _ := strings.Cut(column, ".")
		require.Equal(t, want, one[bool](h, "SELECT has_column_privilege('queue_viewer', $1, $2, 'SELECT')", "public."+table, name), column)
	}
	for _, role := range []string{"saga_orchestrator", "webhook_worker", "dead_letter_operator"} {
		require.Equal(t, "lease_token", one[string](h, `SELECT string_agg(attname, ' ') FROM pg_attribute WHERE attrelid = 'public.webhook_delivery_jobs'::regclass
			AND attnum > 0 AND NOT attisdropped AND NOT has_column_privilege($1, attrelid, attnum, 'SELECT')`, role), role)
	}
	for column, want := range map[string]bool{"id": false, "external_event_id": true, "event_type": true, "payload": true} {
		require.Equal(t, want, one[bool](h, "SELECT has_column_privilege('event_ingest_writer', 'public.events', $1, 'INSERT')", column), column)
	}
}

func TestWebhookFunctionRights(t *testing.T) {
	h := newHooks(t)
	grants := map[string]string{
		"fn_webhook_router_run":       "dot_executor router_worker",
		"fn_saga_orchestrator_run":    "dot_executor saga_orchestrator",
		"fn_lease_reset_cleaner_run":  "dot_executor lease_reset_cleaner",
		"fn_webhook_job_claim":        "webhook_worker",
		"fn_webhook_job_report":       "webhook_worker",
		"fn_webhook_job_renew":        "webhook_worker",
		"fn_webhook_job_release":      "webhook_worker",
		"fn_dead_letter_requeue":      "dead_letter_operator",
		"fn_dead_letter_requeue_undo": "dead_letter_operator",
		"fn_dead_letter_resolve":      "dead_letter_operator",
		"fn_dead_letter_reopen":       "dead_letter_operator",
		"fn_endpoint_suspend":         "dead_letter_operator",
		"fn_endpoint_resume":          "dead_letter_operator",
		"fn_webhook_rate_limit_set":   "subscription_admin",
	}
	for _, internal := range []string{"fn_webhook_immutable", "fn_webhook_event_stamp", "fn_webhook_subscription_stamp",
		"fn_webhook_subscription_made", "fn_webhook_saga_refuse", "fn_webhook_undo_only", "fn_webhook_saga_needs_letter",
		"fn_webhook_job_refuse", "fn_webhook_job_fill", "fn_webhook_saga_counted", "fn_webhook_job_counted",
		"fn_webhook_letter_born", "fn_webhook_letter_closed", "fn_webhook_open_counted", "fn_webhook_wake",
		"fn_webhook_endpoint_gone", "fn_webhook_dead_letter_ids", "fn_webhook_dead_letter_answer", "fn_webhook_dead_letter_closed_by", "fn_webhook_backlog"} {
		grants[internal] = ""
	}
	rows, err := h.root.Query(context.Background(), `
		SELECT p.proname, COALESCE(string_agg(DISTINCT COALESCE(r.rolname, 'PUBLIC'), ' ' ORDER BY COALESCE(r.rolname, 'PUBLIC'))
			FILTER (WHERE a.grantee <> p.proowner), ''), p.prosecdef AND o.rolname = 'queue_owner' AND NOT o.rolcanlogin,
			COALESCE(array_to_string(p.proconfig, ' '), ''), obj_description(p.oid) IS NOT NULL
		FROM pg_proc p JOIN pg_roles o ON o.oid = p.proowner
		CROSS JOIN LATERAL aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) a
		LEFT JOIN pg_roles r ON r.oid = a.grantee
		WHERE p.pronamespace = 'public'::regnamespace AND p.proname = ANY ($1)
		GROUP BY p.oid, p.proname, p.prosecdef, o.rolname, o.rolcanlogin, p.proconfig`, slices.Collect(maps.Keys(grants)))
	require.NoError(t, err)
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var name, grantees, settings string
		var definer, described bool
		require.NoError(t, rows.Scan(&name, &grantees, &definer, &settings, &described))
		require.Equal(t, grants[name], grantees, name)
		require.Contains(t, settings, "search_path=pg_catalog, pg_temp", name)
		require.True(t, described, "%s has no comment", name)
		seen++
		if grants[name] != "" {
			require.True(t, definer, name)
		}
	}
	require.NoError(t, rows.Err())
	require.Equal(t, len(grants), seen)
	require.Zero(t, one[int](h, `SELECT count(*) FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')
		AND relname ~ '^(events|subscriptions|webhook|v_webhook|router|dead_letter)' AND (obj_description(oid) IS NULL
		OR pg_get_userbyid(relowner) <> 'queue_owner')`), "every table and view has a comment and belongs to queue_owner")
}

func TestWebhookRolesRefusedForReal(t *testing.T) {
	h := newHooks(t)
	h.die("order", 1)
	h.subscribe("other")
	h.emit("other", 2)
	h.step()
	h.claim(1)
	for role, statements := range map[string][]string{
		"event_ingest_writer": {"UPDATE public.events SET event_type = 'x'", "DELETE FROM public.events", "SELECT public.fn_webhook_router_run()",
			"SELECT * FROM public.subscriptions"},
		"router_worker": {"UPDATE public.webhook_delivery_sagas SET status = 'InProgress'", "INSERT INTO public.webhook_delivery_jobs (saga_id) VALUES (1)",
			"DELETE FROM public.webhook_delivery_sagas",
			"INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id, requeued_from_dead_letter_id, requeue_generation) VALUES (1, 1, 1, 1)",
			"INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) VALUES (1, 1)"},
		"saga_orchestrator": {"DELETE FROM public.webhook_delivery_sagas", "UPDATE public.events SET payload = '{}'", "UPDATE public.subscriptions SET active = false",
			"UPDATE public.webhook_delivery_jobs SET lease_until = now() WHERE status = 'Leased'",
			"UPDATE public.webhook_delivery_jobs SET status = 'Pending', lease_until = NULL, lease_token = NULL, worker_id = NULL, started_at = NULL WHERE status = 'Leased'",
			"UPDATE public.webhook_delivery_jobs SET controlled = true WHERE status = 'Pending'",
			"UPDATE public.webhook_delivery_sagas SET status = 'Pending' WHERE status = 'DeadLettered'",
			"INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) SELECT id, event_id, subscription_id, 'TIMEOUT', '{}' FROM public.webhook_delivery_sagas WHERE status = 'InProgress' LIMIT 1",
			"SELECT public.fn_webhook_job_claim('x')", "UPDATE public.dead_letters SET final_error_code = 'x'"},
		"webhook_worker": {"UPDATE public.webhook_delivery_sagas SET attempt_count = 0", "INSERT INTO public.webhook_delivery_jobs (saga_id) VALUES (1)",
			"UPDATE public.webhook_delivery_jobs SET status = 'Completed'", "INSERT INTO public.dead_letters DEFAULT VALUES", "SELECT * FROM public.dead_letters",
			"SELECT public.fn_saga_orchestrator_run()", "SELECT public.fn_webhook_router_run()", "SELECT public.fn_lease_reset_cleaner_run()"},
		"lease_reset_cleaner": {"SELECT * FROM public.webhook_delivery_jobs", "SELECT public.fn_webhook_job_claim('x')", "SELECT public.fn_saga_orchestrator_run()"},
		"dead_letter_operator": {"UPDATE public.webhook_delivery_sagas SET status = 'Pending'", "DELETE FROM public.webhook_delivery_sagas",
			"INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) VALUES (1, 1)", "UPDATE public.events SET payload = '{}'",
			"UPDATE public.subscriptions SET active = false", "DELETE FROM public.dead_letters", "INSERT INTO public.dead_letter_requeues VALUES (1, 1, now(), 'x', 'x')",
			"INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, by) VALUES (1, 'operator', 'x')",
			"DELETE FROM public.dead_letter_resolutions", "SELECT public.fn_webhook_dead_letter_ids('{1}')"},
		"subscription_admin": {"DELETE FROM public.subscriptions", "SELECT * FROM public.events", "SELECT public.fn_endpoint_suspend(1, 'a', 'b')"},
		"queue_viewer": {"SELECT payload FROM public.events", "SELECT payload_snapshot FROM public.dead_letters", "SELECT response_excerpt FROM public.webhook_delivery_jobs",
			"SELECT public.fn_webhook_backlog()", "SELECT public.fn_dead_letter_requeue('{1}', 'a', 'b')"},
		"dot_executor": {"SELECT public.fn_webhook_job_claim('x')", "SELECT * FROM public.events"},
	} {
		conn := h.db.Conn(t, pgtest.Login(t, h.db, role))
		for _, statement := range statements {
			_, err := conn.Exec(context.Background(), statement)
			refused(t, "42501", err, role+": "+statement)
		}
	}
	viewer := h.db.Conn(t, pgtest.Login(t, h.db, "queue_viewer"))
	for _, view := range []string{"v_webhook_endpoint", "v_webhook_backlog", "v_webhook_gate"} {
		_, err := viewer.Exec(context.Background(), "SELECT * FROM public."+view)
		require.NoError(t, err, view)
	}
}

func TestWebhookRolesMayDoTheirWork(t *testing.T) {
	h := newHooks(t)
	as := func(role, sql string) {
		t.Helper()
		_, err := h.db.Conn(t, pgtest.Login(t, h.db, role)).Exec(context.Background(), sql)
		require.NoError(t, err, "%s: %s", role, sql)
	}
	as("subscription_admin", "INSERT INTO public.subscriptions (event_type, callback_url, verified, secret_ref) VALUES ('a', 'http://x', true, 'env:S')")
	as("subscription_admin", "UPDATE public.subscriptions SET rate_limit_per_second = 10")
	as("event_ingest_writer", "INSERT INTO public.events (event_type, payload, created_at, created_xid) VALUES ('a', '{}', '2000-01-01', '3')")
	require.True(t, one[bool](h, "SELECT created_at > now() - interval '1 hour' AND created_xid > '3' FROM public.events"), "stamped, not chosen")
	as("router_worker", "INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id) VALUES (1, 1)")
	as("router_worker", "UPDATE public.router_offsets SET updated_at = now()")
	as("saga_orchestrator", "UPDATE public.webhook_delivery_sagas SET status = 'InProgress', next_attempt_at = NULL; INSERT INTO public.webhook_delivery_jobs (saga_id) VALUES (1)")
	as("saga_orchestrator", "SELECT public.fn_saga_orchestrator_run()")
	leases := h.claim(1)
	require.Len(t, leases, 1)
	h.finish("HTTP_410", leases...)
	as("saga_orchestrator", `BEGIN; UPDATE public.webhook_delivery_jobs SET settled_at = now(); UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', attempt_count = 1, final_error_code = 'HTTP_410';
		INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) VALUES (1, 1, 1, 'HTTP_410', '{}'); COMMIT`)
	as("dot_executor", "SELECT public.fn_webhook_router_run(), public.fn_saga_orchestrator_run(), public.fn_lease_reset_cleaner_run()")
	for _, worker := range []string{"webhook_router", "saga_orchestrator", "lease_reset_cleaner"} {
		as("dot_executor", "SELECT public.fn_queue_tick_request('"+worker+"')")
	}
}

func TestWebhookRefusedEvenToTheOwner(t *testing.T) {
	h := newHooks(t)
	_, deadLetters := h.die("order", 2)
	h.requeue(deadLetters[0])
	h.call("public.fn_dead_letter_resolve($1, 'abandoned', '', 'ann')", deadLetters[1:])
	for _, statement := range []string{
		"UPDATE public.events SET payload = '{}'", "DELETE FROM public.events",
		"UPDATE public.dead_letters SET final_error_code = 'TIMEOUT'", "DELETE FROM public.dead_letters",
		"UPDATE public.webhook_delivery_sagas SET final_error_code = 'TIMEOUT' WHERE status = 'DeadLettered'",
		"UPDATE public.webhook_delivery_sagas SET status = 'Pending', next_attempt_at = now(), final_error_code = NULL WHERE status = 'DeadLettered'",
		"DELETE FROM public.webhook_delivery_sagas WHERE status = 'DeadLettered'",
		"DELETE FROM public.dead_letter_requeues", "DELETE FROM public.webhook_delivery_sagas WHERE status = 'Pending'",
		"UPDATE public.dead_letter_requeues SET requeued_by = 'somebody'", "UPDATE public.dead_letter_resolutions SET note = 'x'",
		"DELETE FROM public.webhook_delivery_jobs", "UPDATE public.webhook_delivery_jobs SET response_status = 200",
		"INSERT INTO public.dead_letter_open VALUES (9, 'TIMEOUT', 1, now())", "DELETE FROM public.dead_letter_open",
		"INSERT INTO public.webhook_delivery_jobs (saga_id, attempt_no) SELECT id, 7 FROM public.webhook_delivery_sagas WHERE status = 'DeadLettered'",
	} {
		refused(t, "42501", h.asOwner(statement), "owner: "+statement)
		_, err := h.root.Exec(context.Background(), statement)
		refused(t, "42501", err, "superuser: "+statement)
	}
	for _, table := range webhookTables {
		if strings.HasPrefix(table, "webhook_endpoint") || table == "webhook_rate_bucket" || table == "router_offsets" {
			continue
		}
		refused(t, "42501", h.asOwner(fmt.Sprintf("TRUNCATE public.%s CASCADE", table)), table)
	}
}
