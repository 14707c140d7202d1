// No login can store a text or list of unlimited length through the functions of qtop.

package schema_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/schema"
)

// argument is an argument of a function that a login may call.
type argument struct{ Function, Name, Type string }

// usual holds SQL for arguments by name, by function and name, or by type, so that each call
// succeeds; the most specific entry applies, and an empty string if there is none.
var usual = map[string]string{
	"p_actor": "'ann'", "p_reason": "'because'", "p_note": "'because'", "p_comment": "'because'", "p_notes": "'because'", "p_dry_run": "false",
	"p_executor_id": "'e1'", "p_kind": "'DOT'", "p_executor": "'DOT'", "p_job_kind": "'k'", "p_event_domain": "'iu'", "p_domain": "'iu'",
	"p_expected_cadence_seconds": "60", "p_stale_threshold_seconds": "300", "p_owner_role": "'dot_executor'", "p_domain_scope": "'{iu}'",
	"p_host_id": "'h1'", "p_instance": "'00000000-0000-4000-8000-000000000001'", "p_limit": "10", "p_label": "'deploy'",
	"p_recipient_ref": "'role:x'", "p_event_type": "'a'", "p_event_stream": "'alert'", "p_delivery_lane": "'immediate'", "p_event_severity": "'info'",
	"p_scope_filter": "'{}'", "p_priority_floor": "0", "p_max_parallel": "1", "p_enabled": "true", "p_reader": "session_user", "p_body": "'text'",
	"p_canonical_address": "'a/b'", "p_source_document_ref": "'doc'", "p_import_batch_ref": "'batch'", "p_event_subject_table": "'t'", "p_event_subject_ref": "'r'",
	"p_actor_ref": "'ann'", "p_correlation_id": "'c'", "p_rate": "1", "p_filter": "'all'", "p_ids": "'{1}'", "p_ttl": "'1 hour'", "p_for": "'1 hour'",
	"p_waiting": "'keep'", "p_database": "current_database()", "p_worker_name": "'metrics_sampler'", "p_source": "'cli'", "p_key": "'retention.jobs_days'", "p_value": "'30'",
	"p_payload": "'{}'", "p_safe_payload": "'{}'", "p_version": "'v1'", "p_loops": "'{job_executor}'", "p_progress": "'{}'", "p_in_flight": "1",
	"p_max_attempts": "3", "p_priority": "100", "p_process_after": "now()", "p_idempotency_key": "'key'", "p_occurred_at": "now()",
	"p_steps": "0", "p_max_age": "'0'", "p_at": "now()", "p_after": "NULL", "p_mute": "true", "p_unread": "false", "p_worker_id": "'w'", "p_per_subscription": "1",
	"p_resolution": "'duplicate'", "p_queue": "'job:iu:k'", "p_id": "'1'", "p_flip": "1", "p_subscription_id": "1", "p_operation_id": "1",
	"uuid[]": "'{00000000-0000-4000-8000-000000000001}'", "bigint[]": "'{1}'", "p_batch_limit": "10", "p_consumer_id": "'c1'", "p_alert_key": "'late:metrics_sampler'", "p_unit_id": "(SELECT id FROM public.information_unit LIMIT 1)",
	"p_draft_id": "(SELECT id FROM public.iu_draft LIMIT 1)", "p_codes": "'{X}'", "p_errors": "'{failed}'", "p_permanent": "'{true}'", "p_kinds": "'{k}'",
	"p_jobs": `'[{"job_kind":"k","event_domain":"iu","executor":"DOT"}]'`, "p_results": "'[]'", "p_outcomes": "'[]'",
	"p_event_types": "'{order.paid}'", "p_per_second": "1", "p_callback_url": "'https://example.org/hook'", "p_secret_ref": "'shop'",
	"p_active": "true", "p_delivered": "true", "p_answer": "'HTTP_204'", "p_signed": "true", "fn_webhook_subscription_verified.p_expect": "(SELECT updated_at FROM public.subscriptions WHERE id = 1)",
	"p_scope": "'event_ingest_writer'", "p_pid": "pg_backend_pid()", "p_started": "now()", "p_signal": "'cancel'",

	"fn_operator_changed.p_action": "'route_set'", "p_target": "'iu'",
	"fn_event_type_set.p_worker_name": "'iu_outbound_default'", "p_environment": "'staging'", "p_layer": "'job'", "p_seconds": "86400", "p_guard": "'open'",
	"p_executor_kind": "'Codex'", "p_producer_role": "'router_worker'", "p_allowed": "true",
	"fn_iu_notification_requeue.p_ids": "'{00000000-0000-4000-8000-000000000001}'",
	"fn_queue_tick_request.p_source":   "'external'", "fn_iu_route_worker_health.p_worker_name": "'iu_outbound_default'", "fn_event_inbox.p_recipient_ref": "'role:queue_viewer'",
	"fn_queue_executor_register.p_executor_id": "'e2'", "fn_queue_heartbeat_register.p_executor_id": "'e2'", "fn_queue_bulk_plan.p_kind": "'requeue_webhook'",
	"fn_payload_masked.p_kind": "'event'", "fn_payload_reveal.p_kind": "'event'", "fn_queue_health_rows.p_jobs": "'{}'", "fn_iu_route_worker_run.p_worker_name": "'iu_outbound_default'",
}

// logins calls the functions that logins may call, each as a login that has all roles.
type logins struct {
	*core
	conn      *pgx.Conn
	login     string
	functions map[string][]argument // an argument without a name: the function has none
}

func newLogins(t *testing.T) *logins {
	t.Helper()
	c := newCore(t)
	c.exec("SELECT public.fn_queue_executor_register('e1', 'DOT', '{iu}', 60, 300, 'dot_executor', 'ann')")
	c.exec("SELECT public.fn_queue_host_register('h1', '00000000-0000-4000-8000-000000000001', 'v', '{}')")
	c.exec("SELECT public.fn_iu_draft_create((public.fn_iu_save('u', 'b', 'ann') ->> 'unit_id')::uuid, 'b', 'ann')")
	c.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'a', 'alert', 'immediate')")
	c.exec("UPDATE public.dot_config SET value = 'true' WHERE key IN ('queue.job_substrate.enabled', 'queue.dlq.replay_enabled')")
	c.exec("INSERT INTO public.subscriptions (event_type, callback_url) VALUES ('order', 'https://example.com/hook')")
	c.exec("INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')")
	l := &logins{core: c, conn: c.db.Conn(t, ""), login: pgtest.Login(t, c.db, schema.Roles()...), functions: map[string][]argument{}}
	c.exec("UPDATE public.queue_host SET db_role = $1", l.login)

	rows, err := c.root.Query(t.Context(), `SELECT p.proname::text, COALESCE(a.name, ''), COALESCE(format_type(a.type, NULL), '')
		FROM pg_proc p LEFT JOIN LATERAL unnest(p.proargnames[1:p.pronargs], p.proargtypes::oid[]) AS a (name, type) ON true
		WHERE `+publicFunctions+` AND p.prokind = 'f' AND has_function_privilege($1, p.oid, 'EXECUTE') ORDER BY p.proname`, l.login)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[argument])
	require.NoError(t, err)
	for _, a := range all {
		l.functions[a.Function] = append(l.functions[a.Function], a)
	}
	require.Greater(t, len(l.functions), 80)
	_, err = l.conn.Exec(t.Context(), bounded)
	require.NoError(t, err)
	return l
}

// call calls a function with usual arguments, but argument number set has this value; it returns
// the columns in which the call stored a value that is too long, and undoes the call.
func (l *logins) call(function string, set int, value string) (stored string, err error) {
	l.t.Helper()
	var list []string
	for i, a := range l.functions[function] {
		if a.Name == "" {
			continue
		}
		v := first(usual[function+"."+a.Name], usual[a.Name], usual[a.Type], "NULL")
		if i == set {
			v = value
		}
		list = append(list, fmt.Sprintf("%s => (%s)::%s", a.Name, v, a.Type))
	}
	return tooLong(l.t.Context(), l.t, l.conn, l.login, fmt.Sprintf("SELECT public.%s(%s)", function, strings.Join(list, ", ")))
}

func TestTextsOfLoginsAreBounded(t *testing.T) {
	l := newLogins(t)
	for _, name := range slices.Sorted(maps.Keys(l.functions)) {
		args := l.functions[name]
		_, err := l.call(name, -1, "")
		if name == "fn_queue_scheduler_claim" {
			require.ErrorContains(t, err, "42501", "nothing of a login's own call is stored")
			continue
		}
		require.NoError(t, err, "%s must do its work, or its long arguments show nothing: add an example of each argument that must not be NULL to usual", name)
		for i, a := range args {
			v := first(usual[name+"."+a.Name], usual[a.Name], usual[a.Type], "''")
			var values []string
			switch a.Type {
			case "text":
				values = []string{fmt.Sprintf("(%s)::text || repeat('x', 100000)", v)}
			case "text[]":
				values = []string{"ARRAY[repeat('x', 100000)]", "array_fill('x'::text, ARRAY[20000])", "ARRAY(SELECT 'x' || n FROM generate_series(1, 20000) n)"}
			case "jsonb":
				if a.Name == "p_payload" || a.Name == "p_safe_payload" {
					continue // payloads have a separate bound
				}
				values = []string{"jsonb_build_object('event_type', repeat('x', 100000))", `'[{"job_kind":"k","event_domain":"iu","executor":"DOT","actor":"' || repeat('x', 100000) || '"}]'`, "(SELECT jsonb_object_agg('x' || n, n) FROM generate_series(1, 20000) n)"}
			case "uuid[]", "bigint[]":
				values = []string{fmt.Sprintf("array_fill(((%s)::%s)[1], ARRAY[20000])", v, a.Type)}
			}
			for _, value := range values {
				stored, err := l.call(name, i, value)
				if err != nil {
					require.NotContains(t, err.Error(), "\n")
					if len(err.Error()) > 500 {
						t.Errorf("%s.%s: the refusal has %d characters", name, a.Name, len(err.Error()))
					}
					continue
				}
				if stored != "" {
					t.Errorf("%s with a long %s stored %s", name, a.Name, stored)
				}
			}
		}
	}
}

// A login that passes NULL for an argument gets a sentence that says what is wrong, or the function
// works without the argument.
func TestNullsOfLoginsAreRefusedClearly(t *testing.T) {
	l := newLogins(t)
	for _, name := range slices.Sorted(maps.Keys(l.functions)) {
		for i, a := range l.functions[name] {
			if a.Name == "" || name == "fn_queue_scheduler_claim" { // nobody else may call that one, whatever the arguments
				continue
			}
			if _, err := l.call(name, i, "NULL"); err != nil && !refusedClearly.MatchString(err.Error()) {
				t.Errorf("%s with %s NULL: %v", name, a.Name, err)
			}
		}
	}
}

// refusedClearly matches SQLSTATE and message of an invalid argument.
var refusedClearly = regexp.MustCompile(`^22023 \S+ .*\S$`)

// A name, a reason, an id or another text of only spaces, tabs and line breaks is refused or, where
// it may be absent, counts as absent.
func TestBlankTextsOfLoginsAreRefused(t *testing.T) {
	l := newLogins(t)
	everywhere := []string{"p_actor", "p_reason", "p_comment", "p_note", "p_label", "p_filter", "p_queue", "p_recipient_ref", "p_canonical_address", "p_body", "p_reader"}
	here := []string{"fn_queue_executor_register.p_executor_id", "fn_queue_heartbeat_register.p_executor_id", "fn_queue_host_register.p_host_id", "fn_webhook_job_claim.p_worker_id",
		"fn_consumer_set.p_consumer_id", "fn_event_type_set.p_event_type", "fn_event_subscription_add.p_event_type", "fn_event_subscription_add.p_event_stream",
		"fn_event_subscription_add.p_scope_subject_table"}
	absent := []string{"fn_dead_letter_resolve.p_note", "fn_queue_host_stop.p_reason", "fn_queue_tick_now.p_reason",
		"fn_job_enqueue.p_actor"} // this one costs each job time
	for _, name := range slices.Sorted(maps.Keys(l.functions)) {
		for i, a := range l.functions[name] {
			id := name + "." + a.Name
			if !slices.Contains(everywhere, a.Name) && !slices.Contains(here, id) || slices.Contains(absent, id) || name == "fn_queue_scheduler_claim" {
				continue
			}
			if _, err := l.call(name, i, `E' \t\r\n\x0b\f'`); err == nil || !refusedClearly.MatchString(err.Error()) {
				t.Errorf("%s with a blank text: %v", id, err)
			}
		}
	}
	require.Equal(t, "vera\tv|", get[string](l.core, `SELECT public.fn_trimmed(E'\x0b\f vera\tv \r\n') || '|' || COALESCE(public.fn_trimmed(E'\t\n'), '')`), "letters stay")
	c := l.core
	c.exec(`SELECT public.fn_queue_mark(E'\tdeploy\n', E'\nann\t')`)
	require.Equal(t, "deploy ann", get[string](c, "SELECT label || ' ' || created_by FROM public.queue_mark"))
}

func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// bounded holds, for each column with text, a query that returns a row if a value is longer than
// the declared bound of the column, or than 20,000 characters if none is declared.
const bounded = `CREATE TEMP TABLE bounded AS
	SELECT c.oid AS relid, format('SELECT %L || '' of '' || max(length(x)) FROM (SELECT %I::text AS x FROM public.%I) v HAVING max(length(x)) > %s',
		c.relname || '.' || a.attname, a.attname, c.relname, COALESCE(b.most, 20000)) AS ask
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	LEFT JOIN LATERAL (SELECT substring(split_part(encode(g.tgargs, 'escape'), '\000', n) FROM '[0-9]+$')::int AS most
		FROM pg_trigger g CROSS JOIN generate_series(1, 20) n WHERE g.tgrelid = c.oid AND g.tgfoid = to_regproc('public.fn_text_bound')
		AND split_part(encode(g.tgargs, 'escape'), '\000', n) LIKE a.attname || ' %') b ON true
	WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
	AND format_type(a.atttypid, NULL) ~ '^(text|jsonb|character varying)' AND a.attname !~ '^(payload|payload_snapshot|safe_payload|body)$'`

// tooLong runs the statement as the login and rolls it back. It returns the columns in which the
// statement stored a value that is too long; "" = none.
func tooLong(ctx context.Context, t *testing.T, conn *pgx.Conn, login, sql string) (stored string, err error) {
	t.Helper()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.WithoutCancel(ctx))) }()
	_, err = tx.Exec(ctx, "SET LOCAL SESSION AUTHORIZATION "+pgx.Identifier{login}.Sanitize())
	require.NoError(t, err)
	if _, err := tx.Exec(ctx, sql); err != nil {
		var e *pgconn.PgError
		require.ErrorAs(t, err, &e)
		return "", fmt.Errorf("%s %s", e.Code, e.Message)
	}
	_, err = tx.Exec(ctx, "RESET SESSION AUTHORIZATION")
	require.NoError(t, err)
	rows, err := tx.Query(ctx, `SELECT ask FROM pg_temp.bounded WHERE pg_stat_get_xact_tuples_inserted(relid) + pg_stat_get_xact_tuples_updated(relid) > 0`)
	require.NoError(t, err)
	queries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, q := range queries {
		var said string
		err := tx.QueryRow(ctx, q).Scan(&said)
		if err == nil {
			stored += said + " "
			continue
		}
		require.ErrorIs(t, err, pgx.ErrNoRows, q)
	}
	return stored, nil
}

// Text that a login may write directly into a table is bounded too.
func TestTextsOfTablesAreBounded(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'a', 'alert', 'immediate')")
	producer, admin := c.as("event_ingest_writer"), c.as("workflow_admin")
	const event = `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, %[1]s) VALUES ('iu', 'a', 'alert', 'immediate', repeat('x', $1))`
	for column, most := range map[string]int{
		"event_subject_table": 200, "event_subject_ref": 500, "canonical_address": 500, "actor_ref": 200, "source_system": 200, "correlation_id": 200, "payload_classification": 200,
	} {
		sql := fmt.Sprintf(event, column)
		fails(t, producer, "22023", sql, most+1)
		_, err := producer.Exec(t.Context(), sql, most)
		require.NoError(t, err, column)
	}
	_, err := producer.Exec(t.Context(), fmt.Sprintf(event, "actor_ref"), 1000000)
	require.ErrorContains(t, err, "actor_ref must have at most 200 characters, not 1000000: shorten it")
	fails(t, admin, "22023", "INSERT INTO public.event_subscription (recipient_ref, scope_subject_table) VALUES ('role:x', repeat('x', 201))")
	fails(t, admin, "22023", "INSERT INTO public.event_subscription (recipient_ref, scope_filter) VALUES ('role:x', jsonb_build_object('x', repeat('x', 1000)))")
	fails(t, c.root, "22023", "INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', repeat('x', 201), 'alert', 'immediate')")
}

// Rows of an older release that exceed the current bounds can still be used and changed.
func TestTextsOfAnOlderReleaseGoOn(t *testing.T) {
	c := newCore(t)
	c.exec("SELECT public.fn_queue_executor_register('e1', 'DOT', '{iu}', 60, 300, 'dot_executor', 'ann')")
	admin, host := c.as("workflow_admin"), c.as("dot_executor")
	const instance = "'00000000-0000-4000-8000-000000000001'"
	call(t, host, "public.fn_queue_host_register('h1', "+instance+", 'v', '{}')")
	call(t, admin, "public.fn_job_subscription_set('e1', 'k', NULL, 0, 1, true, 'note', 'ann', 'why')")
	c.exec(`SET session_replication_role = replica; UPDATE public.queue_host SET version = repeat('x', 5000), loops = array_fill('job_executor'::text, ARRAY[10000]);
		UPDATE public.queue_heartbeat SET domain_scope = array_fill('iu'::text, ARRAY[100000]); UPDATE public.job_subscription SET notes = repeat('x', 5000); SET session_replication_role = origin`)
	require.NotContains(t, call(t, host, "public.fn_queue_host_beat('h1', "+instance+", array_fill('job_executor'::text, ARRAY[10000]), 0, '{}')"), "refused")
	require.NotContains(t, call(t, host, "public.fn_queue_heartbeat_write('e1', '{}', 'ann')"), "refused")
	_, err := admin.Exec(t.Context(), "UPDATE public.job_subscription SET max_parallel = 2")
	require.NoError(t, err)
	require.NotContains(t, call(t, admin, "public.fn_job_subscription_set('e1', 'k', NULL, 0, 3, true, 'short now', 'ann', 'why')"), "refused")
	fails(t, admin, "22023", "UPDATE public.job_subscription SET notes = repeat('x', 2001)")
	require.NotContains(t, call(t, host, "public.fn_queue_host_register('h1', "+instance+", 'v2', '{}')"), "refused")
}
