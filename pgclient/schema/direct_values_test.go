// Hostile values for every column that a granted role may write directly. Each value is either
// refused with an SQLSTATE, or accepted if a condition holds for the written row. A column that is
// granted but not listed here fails the test.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// directWrite is a statement that a role may run directly: an INSERT of one row, or an UPDATE of
// the row that the condition where selects.
type directWrite struct {
	role, verb, table string
	row               string // columns = expressions of a row that is accepted, one per line
	where             string
	asRoot            string // run before the statement, as superuser
	before, after     string // run before and after the statement in its transaction, as the role
	values            string // one per line: column | expression | expected SQLSTATE, or a condition on the written row r
}

const unseenText = "E'a\\nb\\u200bc'"

var directWrites = []directWrite{{
	role: "event_ingest_writer", verb: "INSERT", table: "events",
	row: "event_type = 'order'\npayload = '{}'",
	values: `external_event_id | repeat('x', 256) | 22001
		external_event_id | 'taken' | 23505
		external_event_id | ` + unseenText + ` | length(r.external_event_id) = 5
		event_type | '' | 23514
		event_type | repeat('x', 101) | 22001
		event_type | ` + unseenText + ` | length(r.event_type) = 5
		event_type | NULL | 23502
		payload | NULL | 23502
		payload | '"\u0000"' | 22P05
		payload | 'null' | r.payload = 'null'
		created_at | 'infinity' | r.created_at = now()
		created_at | '-infinity' | r.created_at = now()
		created_at | NULL | r.created_at = now()
		created_xid | '18446744073709551615' | r.created_xid = pg_current_xact_id()
		created_xid | '0' | r.created_xid = pg_current_xact_id()`,
}, {
	role: "event_ingest_writer", verb: "INSERT", table: "event_outbox",
	row: "event_domain = 'iu'\nevent_type = 'made'\nevent_stream = 's'\ndelivery_lane = 'immediate'",
	values: `id | NULL | 23502
		id | '00000000-0000-4000-8000-000000000001' | 23505
		event_domain | 'Iu' | 23503
		event_domain | E'iu\n' | 23503
		event_type | 'unknown' | 23503
		event_type | ` + unseenText + ` | 23503
		event_stream | NULL | 23514
		event_stream | repeat('x', 201) | 23514
		event_stream | ` + unseenText + ` | 23514
		delivery_lane | 'soon' | 23514
		delivery_lane | ` + unseenText + ` | 23514
		event_severity | 'fatal' | 23514
		event_severity | ` + unseenText + ` | 23514
		event_subject_table | repeat('x', 201) | 22023
		event_subject_table | ` + unseenText + ` | length(r.event_subject_table) = 5
		event_subject_ref | repeat('x', 501) | 22023
		event_subject_ref | ` + unseenText + ` | length(r.event_subject_ref) = 5
		canonical_address | repeat('x', 501) | 22023
		canonical_address | ` + unseenText + ` | length(r.canonical_address) = 5
		actor_ref | repeat('x', 201) | 22023
		actor_ref | ` + unseenText + ` | length(r.actor_ref) = 5
		source_system | repeat('x', 201) | 22023
		source_system | ` + unseenText + ` | length(r.source_system) = 5
		correlation_id | repeat('x', 201) | 22023
		correlation_id | ` + unseenText + ` | length(r.correlation_id) = 5
		payload_classification | repeat('x', 201) | 22023
		payload_classification | ` + unseenText + ` | length(r.payload_classification) = 5
		safe_payload | '[]' | 23514
		safe_payload | '{"token": 1}' | 23514
		safe_payload | NULL | 23502
		occurred_at | 'infinity' | 22023
		occurred_at | '-infinity' | 22023
		occurred_at | '9999-12-31' | 22023
		occurred_at | '0001-01-01' | 22023
		occurred_at | now() + interval '2 days' | 22023
		occurred_at | now() - interval '1 year' | r.occurred_at = now() - interval '1 year'
		occurred_at | NULL | 23502`,
}, {
	role: "router_worker", verb: "INSERT", table: "webhook_delivery_sagas",
	row: "event_id = 3\nsubscription_id = 1",
	values: `id | 4711 | 42501
		id | -1 | 42501
		event_id | 4 | 42501
		event_id | 2 | 23505
		event_id | -1 | 23503
		event_id | 5 | 42501
		subscription_id | 2 | 42501
		subscription_id | 3 | 42501
		subscription_id | 4 | 42501
		subscription_id | -1 | 23503
		status | 'InProgress' | 42501
		status | 'DeadLettered' | 42501
		attempt_count | -1 | 42501
		attempt_count | 2147483647 | 42501
		next_attempt_at | 'infinity' | r.next_attempt_at = now()
		next_attempt_at | '-infinity' | r.next_attempt_at = now()
		next_attempt_at | NULL | r.next_attempt_at = now()
		final_error_code | 'TIMEOUT' | 23514
		final_error_code | ` + unseenText + ` | 23514
		requeued_from_dead_letter_id | 1 | 42501
		requeued_from_dead_letter_id | -1 | 42501
		requeue_generation | 1 | 42501
		requeue_generation | -1 | 42501
		created_at | 'infinity' | r.created_at = now()
		created_at | '-infinity' | r.created_at = now()
		updated_at | 'infinity' | r.updated_at = now()
		updated_at | '-infinity' | r.updated_at = now()
		webhook_id | '00000000-0000-4000-8000-000000000001' | r.webhook_id <> '00000000-0000-4000-8000-000000000001'
		webhook_id | NULL | r.webhook_id IS NOT NULL`,
}, {
	role: "router_worker", verb: "INSERT", table: "router_offsets", asRoot: "DELETE FROM public.router_offsets",
	row: "system_identifier = (SELECT system_identifier FROM pg_control_system())", values: `id | 2 | 23514
		id | -1 | 23514
		system_identifier | 1 | 42501
		system_identifier | -1 | 42501` + routerOffsets,
}, {
	role: "router_worker", verb: "UPDATE", table: "router_offsets", where: "true", values: `id | 2 | 23514
		id | -1 | 23514
		system_identifier | 1 | 42501
		system_identifier | -1 | 42501` + routerOffsets,
}, {
	role: "saga_orchestrator", verb: "UPDATE", table: "webhook_delivery_sagas", where: "id = 2",
	values: `id | 4711 | 428C9
		id | -1 | 428C9
		event_id | 3 | 42501
		event_id | -1 | 42501
		subscription_id | 2 | 42501
		subscription_id | -1 | 42501
		status | 'InProgress', next_attempt_at = NULL | 42501
		status | 'Completed', next_attempt_at = NULL | 42501
		status | 'PendingRetry' | 42501
		attempt_count | -1 | 42501
		attempt_count | 2147483647 | 42501
		next_attempt_at | 'infinity' | 22023
		next_attempt_at | '-infinity' | 22023
		next_attempt_at | now() | 42501
		final_error_code | 'TIMEOUT' | 42501
		final_error_code | ` + unseenText + ` | 42501
		requeued_from_dead_letter_id | 1 | 42501
		requeued_from_dead_letter_id | -1 | 42501
		requeue_generation | 7 | 42501
		requeue_generation | -1 | 42501
		created_at | 'infinity' | 42501
		created_at | '-infinity' | 42501
		updated_at | 'infinity' | 42501
		updated_at | '-infinity' | 42501
		updated_at | 'infinity', status = 'InProgress', next_attempt_at = NULL | 42501
		webhook_id | gen_random_uuid() | 42501
		webhook_id | NULL | 42501`,
}, {
	role: "saga_orchestrator", verb: "INSERT", table: "webhook_delivery_jobs", row: "saga_id = 2",
	before: "UPDATE public.webhook_delivery_sagas SET status = 'InProgress', next_attempt_at = NULL, updated_at = 'infinity' WHERE id = 2",
	values: `id | 4711 | 42501
		id | -1 | 42501
		saga_id | 1 | 42501
		saga_id | 3 | 42501
		saga_id | -1 | 23503
		status | 'Leased' | 42501
		status | 'Completed' | 42501
		lease_until | 'infinity' | 23514
		lease_until | '-infinity' | 23514
		attempt_at | 'infinity' | r.attempt_at = now()
		attempt_at | '-infinity' | r.attempt_at = now()
		response_status | 200 | 23514
		response_status | -1 | 23514
		error_code | 'TIMEOUT' | 23514
		error_code | ` + unseenText + ` | 23514
		attempt_no | 7 | r.attempt_no = 1
		attempt_no | -1 | r.attempt_no = 1
		subscription_id | 2 | r.subscription_id = 1
		subscription_id | -1 | r.subscription_id = 1
		controlled | true | NOT r.controlled
		worker_id | 'me' | 23514
		worker_id | ` + unseenText + ` | 23514
		lease_token | gen_random_uuid() | 23514
		lease_resets | 3 | 42501
		lease_resets | -1 | 42501
		retry_after_at | 'infinity' | 42501
		retry_after_at | '-infinity' | 42501
		started_at | 'infinity' | 23514
		started_at | '-infinity' | 23514
		finished_at | 'infinity' | 23514
		finished_at | '-infinity' | 23514
		took_ms | 'NaN' | r.took_ms IS NULL
		took_ms | 'infinity' | r.took_ms IS NULL
		took_ms | -1 | r.took_ms IS NULL
		response_excerpt | ` + unseenText + ` | r.response_excerpt IS NULL
		settled_at | 'infinity' | 23514
		settled_at | '-infinity' | 23514
		operation_id | 7 | r.operation_id IS NULL
		operation_id | -1 | r.operation_id IS NULL`,
}, {
	role: "saga_orchestrator", verb: "UPDATE", table: "webhook_delivery_jobs", where: "id = 1",
	after: "UPDATE public.webhook_delivery_sagas SET status = 'PendingRetry', attempt_count = 1, next_attempt_at = now() WHERE id = 1",
	values: `id | 4711 | 428C9
		id | -1 | 428C9
		saga_id | 2 | 42501
		saga_id | -1 | 42501
		status | 'Completed', settled_at = now() | 42501
		status | 'Pending', settled_at = now() | 42501
		lease_until | 'infinity', settled_at = now() | 42501
		lease_until | '-infinity', settled_at = now() | 42501
		attempt_at | 'infinity', settled_at = now() | 42501
		attempt_at | '-infinity', settled_at = now() | 42501
		response_status | 999, settled_at = now() | 42501
		response_status | -1, settled_at = now() | 42501
		error_code | 'TIMEOUT', settled_at = now() | 42501
		error_code | ` + unseenText + `, settled_at = now() | 42501
		attempt_no | 7, settled_at = now() | 42501
		attempt_no | -1, settled_at = now() | 42501
		subscription_id | 2, settled_at = now() | 42501
		subscription_id | -1, settled_at = now() | 42501
		controlled | true, settled_at = now() | 42501
		worker_id | ` + unseenText + `, settled_at = now() | 42501
		lease_token | gen_random_uuid(), settled_at = now() | 42501
		lease_resets | 2, settled_at = now() | 42501
		lease_resets | -1, settled_at = now() | 42501
		retry_after_at | 'infinity', settled_at = now() | 42501
		retry_after_at | '-infinity', settled_at = now() | 42501
		started_at | 'infinity', settled_at = now() | 42501
		started_at | '-infinity', settled_at = now() | 42501
		finished_at | 'infinity', settled_at = now() | 42501
		finished_at | '-infinity', settled_at = now() | 42501
		took_ms | 'NaN', settled_at = now() | 42501
		took_ms | 'infinity', settled_at = now() | 42501
		took_ms | -1, settled_at = now() | 42501
		response_excerpt | ` + unseenText + `, settled_at = now() | 42501
		settled_at | 'infinity' | r.settled_at = now()
		settled_at | '-infinity' | r.settled_at = now()
		settled_at | NULL | 42501
		operation_id | 7, settled_at = now() | 42501
		operation_id | -1, settled_at = now() | 42501`,
}, {
	role: "saga_orchestrator", verb: "INSERT", table: "dead_letters",
	row: "saga_id = 1\nevent_id = 1\nsubscription_id = 1\nfinal_error_code = 'HTTP_500'\npayload_snapshot = '{\"n\": 1}'",
	before: "UPDATE public.webhook_delivery_jobs SET settled_at = now() WHERE id = 1; " +
		"UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', attempt_count = 1, final_error_code = 'HTTP_500', next_attempt_at = NULL WHERE id = 1",
	values: `id | 4711 | 42501
		id | -1 | 42501
		saga_id | 2 | 42501
		saga_id | -1 | 23503
		event_id | 2 | 42501
		event_id | -1 | 23503
		subscription_id | 2 | 42501
		subscription_id | -1 | 23503
		final_error_code | 'TIMEOUT' | 42501
		final_error_code | ` + unseenText + ` | 42501
		failed_at | 'infinity' | r.failed_at = now()
		failed_at | '-infinity' | r.failed_at = now()
		payload_snapshot | '{"n": 2}' | 42501
		payload_snapshot | 'null' | 42501`,
}, {
	role: "subscription_admin", verb: "INSERT", table: "subscriptions", row: "event_type = 'order'\ncallback_url = 'https://a.example/'",
	values: `id | 4711 | 42501
		created_xid | '18446744073709551615' | r.created_xid = pg_current_xact_id()
		created_xid | '0' | r.created_xid = pg_current_xact_id()
		id | -1 | 42501
		event_type | '' | 23514` + webhookSubscriptions,
}, {
	role: "subscription_admin", verb: "UPDATE", table: "subscriptions", where: "id = 1",
	values: `id | 4711 | 428C9
		id | -1 | 428C9
		created_xid | '0' | r.created_xid > '0'
		created_xid | '18446744073709551615' | r.created_xid <= pg_current_xact_id()
		event_type | 'other' | 42501
		event_type | '' | 42501` + webhookSubscriptions,
}, {
	role: "workflow_admin", verb: "INSERT", table: "event_subscription", row: "recipient_ref = 'role:new'",
	values: `subscription_id | 4711 | 42501
		subscription_id | -1 | 42501` + eventSubscriptions,
}, {
	role: "workflow_admin", verb: "UPDATE", table: "event_subscription", where: "recipient_ref = 'role:old'",
	values: `subscription_id | 4711 | 428C9
		subscription_id | -1 | 428C9` + eventSubscriptions,
}, {
	role: "workflow_admin", verb: "INSERT", table: "job_subscription", row: "executor_id = 'new'\nexecutor_kind = 'Agent'\nregistered_by = 'ann'",
	values: `subscription_id | NULL | 23502
		subscription_id | '00000000-0000-4000-8000-000000000001' | 23505
		registered_at | 'infinity' | r.registered_at = now()
		registered_at | '-infinity' | r.registered_at = now()` + jobSubscriptions,
}, {
	role: "workflow_admin", verb: "UPDATE", table: "job_subscription", where: "executor_id = 'old'",
	values: `subscription_id | gen_random_uuid() | 42501
		registered_at | 'infinity' | r.registered_at <= now()
		registered_at | '-infinity' | r.registered_at > now() - interval '1 hour'` + jobSubscriptions,
}}

const routerOffsets = `
	last_xid | '18446744073709551615' | 42501
	last_event_id | 9223372036854775807 | 42501
	last_event_id | -1 | 42501
	max_event_id | 9223372036854775807 | 42501
	max_event_id | -1 | 42501
	restored_through_id | 9223372036854775807 | 42501
	restored_through_id | -1 | 42501
	restored_after_id | 0 | 42501
	restored_after_id | -1 | 42501
	restored_xid | '18446744073709551615' | 42501
	restored_subscription_id | 9223372036854775807 | 42501
	restored_subscription_id | -1 | 42501
	events_seen | 9223372036854775807 | 42501
	events_seen | -1 | 42501
	held_rows | 9223372036854775807 | 42501
	held_rows | -1 | 42501
	held_since | 'infinity' | 42501
	held_since | '-infinity' | 42501
	held_xid | '18446744073709551615' | 42501
	updated_at | 'infinity' | r.updated_at = now()
	updated_at | '-infinity' | r.updated_at = now()`

const webhookSubscriptions = `
	event_type | repeat('x', 101) | 22001
	event_type | ` + unseenText + ` | 22023
	callback_url | NULL | 23502
	callback_url | repeat('x', 2049) | 22001
	callback_url | ` + unseenText + ` | 22023
	callback_url | E'https://a.example/\r\nX-Evil: 1' | 22023
	callback_url | ' https://a.example/services/T0/token' | 22023
	callback_url | 'https:/a.example/x?token=abc' | 22023
	callback_url | 'a.example/x?token=abc' | 22023
	callback_url | 'ftp://a.example/x' | 22023
	callback_url | 'https://bob:s3cret@a.example/in' | 22023
	callback_url | 'https://bob:s3cr/et@a.example/in' | 22023
	callback_url | 'https://bob:s3cr?et@a.example/in' | 22023
	callback_url | 'https://bob:8443x@a.example' | 22023
	callback_url | 'https://a.example\x/' | 22023
	callback_url | 'https://a.tést/' | 22023
	callback_url | 'https://127.1/' | 22023
	callback_url | 'https://a.example:65536/' | 22023
	callback_url | 'https://a.example/%zz' | 22023
	callback_url | 'HTTPS://A.example:8443?x=a@b:c' | r.endpoint = 'a.example:8443'
	callback_url | 'http://[2001:db8::1]:8080/to/ann@example.org' | r.endpoint = '[2001:db8::1]:8080'
	active | NULL | 23502
	verified | NULL | 23502
	secret_ref | 'whsec_abc' | 23514
	secret_ref | ` + unseenText + ` | 23514
	max_attempts | 0 | 23514
	max_attempts | -1 | 23514
	max_attempts | 1001 | 23514
	rate_limit_per_second | 'NaN' | 22023
	rate_limit_per_second | 'infinity' | 22023
	rate_limit_per_second | 1e-300 | 22023
	rate_limit_per_second | 0 | 22023
	rate_limit_per_second | -1 | 22023
	created_at | 'infinity' | r.created_at <= now()
	created_at | '-infinity' | r.created_at > now() - interval '1 hour'
	updated_at | 'infinity' | r.updated_at = now()
	updated_at | '-infinity' | r.updated_at = now()`

const eventSubscriptions = `
	recipient_ref | 'nobody' | 23514
	recipient_ref | 'role:' || ` + unseenText + ` | 22023
	recipient_ref | 'role: x' | 22023
	recipient_ref | 'role:' || repeat('x', 196) | 22023
	event_domain | 'No Domain' | 22023
	event_domain | E'iu\n' | 22023
	event_type | '' | 22023
	event_type | ` + unseenText + ` | 22023
	event_stream | '' | 22023
	event_stream | ` + unseenText + ` | 22023
	scope_subject_table | '' | 22023
	scope_subject_table | ` + unseenText + ` | 22023
	scope_filter | '[]' | 22023
	scope_filter | NULL | 23502
	scope_filter | jsonb_build_object('x', repeat('x', 1000)) | 22023
	mute | NULL | 23502`

const jobSubscriptions = `
	executor_id | '' | 22023
	executor_id | E'a\n' | 22023
	executor_id | ` + unseenText + ` | 22023
	executor_id | repeat('x', 201) | 22023
	executor_kind | 'MOT' | 23514
	executor_kind | ` + unseenText + ` | 23514
	job_kind | 'a kind' | 23514
	job_kind | ` + unseenText + ` | 23514
	event_domain | 'No' | 23514
	event_domain | E'iu\n' | 23514
	priority_floor | 40000 | 22003
	priority_floor | -40000 | 22003
	max_parallel | 0 | 23514
	max_parallel | -1 | 23514
	max_parallel | 2147483647 | 22023
	enabled | NULL | 23502
	notes | repeat('x', 2001) | 22023
	notes | ` + unseenText + ` | length(r.notes) = 5
	registered_by | NULL | 23502
	registered_by | repeat('x', 201) | 22023
	registered_by | ` + unseenText + ` | 22023
	updated_by | repeat('x', 201) | 22023
	updated_by | ` + unseenText + ` | 22023
	updated_at | 'infinity' | r.updated_at = now()
	updated_at | '-infinity' | r.updated_at = now()`

// hostileFor lists values that directWrites must have for each column of a type.
var hostileFor = map[string][]string{
	"timestamp with time zone": {"'infinity'", "'-infinity'"}, "double precision": {"'NaN'", "'infinity'", "-1"},
	"integer": {"-1"}, "bigint": {"-1"}, "text": {"\\n"}, "character varying": {"\\n"}, "xid8": {"'18446744073709551615'"},
}

func (d directWrite) key(column string) string {
	return fmt.Sprintf("%s may %s %s.%s", d.role, d.verb, d.table, column)
}

// sql returns the statement with one column set to an expression.
func (d directWrite) sql(column, expression string) string {
	if d.verb == "UPDATE" {
		return fmt.Sprintf("UPDATE public.%s SET %s = %s WHERE %s", d.table, column, expression, d.where)
	}
	columns, expressions := []string{column}, []string{expression}
	for line := range strings.Lines(d.row) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
		if name != column && name != "" {
			columns, expressions = append(columns, name), append(expressions, value)
		}
	}
	return fmt.Sprintf("INSERT INTO public.%s (%s) OVERRIDING SYSTEM VALUE VALUES (%s)", d.table, strings.Join(columns, ", "), strings.Join(expressions, ", "))
}

// directState makes the rows into whose columns the hostile values are written. Saga 1 is in
// progress with a job that failed and is not settled, saga 2 is due, saga 3 is not due. Events 1 to
// 3 have the type of subscription 1, event 3 is not routed, event 4 has the type of subscription 2,
// event 5 is a dead letter for subscription 1. Subscription 3 is not verified, subscription 4 is
// younger than the events.
func directState(t *testing.T) *hooks {
	t.Helper()
	h := newHooks(t)
	require.EqualValues(t, 1, h.subscribe("order"))
	require.EqualValues(t, 2, h.subscribe("other"))
	h.exec("INSERT INTO public.subscriptions (event_type, callback_url) VALUES ('order', 'http://127.0.0.1:1/')")
	h.emit("order", 1)
	h.step()
	h.finish("HTTP_500", h.claim(1)...)
	h.emit("order", 1)
	h.route()
	h.emit("order", 1)
	h.emit("other", 1)
	h.emit("order", 1)
	h.exec(`INSERT INTO public.webhook_delivery_sagas (event_id, subscription_id, next_attempt_at) VALUES (4, 2, now() + interval '1 hour'), (5, 1, now());
		SET session_replication_role = replica;
		UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', next_attempt_at = NULL, final_error_code = 'TIMEOUT' WHERE event_id = 5;
		INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) SELECT id, 5, 1, 'TIMEOUT', '{}' FROM public.webhook_delivery_sagas WHERE event_id = 5;
		RESET session_replication_role;
		INSERT INTO public.events (event_type, external_event_id, payload) VALUES ('x', 'taken', '{}');
		INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate');
		INSERT INTO public.event_outbox (id, event_domain, event_type, event_stream, delivery_lane) VALUES ('00000000-0000-4000-8000-000000000001', 'iu', 'made', 's', 'immediate');
		SELECT public.fn_iu_route_worker_run();
		INSERT INTO public.event_subscription (recipient_ref) VALUES ('role:old');
		INSERT INTO public.job_subscription (subscription_id, executor_id, executor_kind, registered_by) VALUES ('00000000-0000-4000-8000-000000000001', 'old', 'Agent', 'ann')`)
	require.EqualValues(t, 4, h.subscribe("order"))
	return h
}

// try runs the statement as the role in a transaction that is rolled back. It returns the SQLSTATE
// of an error, or whether the condition holds for the written row.
func (d directWrite) try(t *testing.T, conn *pgx.Conn, sql, condition string) string {
	t.Helper()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	for i, step := range []string{d.asRoot, "SET LOCAL ROLE " + d.role, d.before, sql, d.after, "SET CONSTRAINTS ALL IMMEDIATE", "SET LOCAL ROLE none"} {
		if _, err = tx.Exec(ctx, step); err != nil {
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Greater(t, i, 2, "%s: %s", step, pg.Message)
			require.False(t, d.table != "events" && strings.Contains(pg.Detail, "row contains"), "%s: the error quotes the row, also in the server's log", sql) // events: fn_direct_row
			return pg.Code
		}
	}
	var holds string
	require.NoError(t, tx.QueryRow(ctx, fmt.Sprintf("SELECT COALESCE(bool_and(%s)::text, 'no row') FROM public.%s r WHERE r.xmin = pg_current_xact_id()::xid",
		condition, d.table)).Scan(&holds), condition)
	return holds
}
