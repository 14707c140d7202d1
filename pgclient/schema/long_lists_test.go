// Functions that take a list of ids cost as much per entry for a long list as for a short one.

package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
)

// long returns how many entries the lists have.
func long() int {
	if full() {
		return 2000
	}
	return 1000
}

// few is the most rows that a function may read for an entry, whatever the number of entries.
const few = 250.0

// linear requires that sql reads few rows for each entry of its list, not every entry or row of a
// table for each. The plans are those of later calls in a session, which do not know how long the
// list is.
func linear(t *testing.T, db *pgtest.DB, what, sql string) {
	t.Helper()
	// what an earlier call rolled back counts as pages of a table until it is vacuumed
	_, err := db.Conn(t, "").Exec(t.Context(), "VACUUM ANALYZE public.job_dead_letter, public.dead_letters, public.dead_letter_requeues, public.dead_letter_resolutions, public.iu_route_dead_letter")
	require.NoError(t, err)
	each := touched(t, db, "SET plan_cache_mode = force_generic_plan; SET statement_timeout = 0; BEGIN; "+sql+"; ROLLBACK", float64(long())) / float64(long())
	t.Logf("%s: %.0f rows for each entry", what, each)
	require.Less(t, each, few, what)
}

// listed gives the columns of the table listed as lists.
func listed(columns ...string) string {
	for i, c := range columns {
		columns[i] = "(SELECT array_agg(" + c + " ORDER BY n) FROM public.listed)"
	}
	return strings.Join(columns, ", ")
}

// Each job has its own lease.
func TestLongListsOfJobs(t *testing.T) {
	j := newJobs(t)
	j.flag("queue.dlq.replay_enabled", "true")
	sub := j.jobSubscription("w", "", "", 0, 10000)
	j.exec(`SELECT public.fn_job_enqueue_many((SELECT jsonb_agg(jsonb_build_object('job_kind', 'k', 'event_domain', 'iu', 'executor', 'external_worker',
		'max_attempts', 1, 'idempotency_key', 'key ' || i)) FROM generate_series(1, $1) i))`, long())
	j.take("w", 10000)
	j.exec("CREATE TABLE public.listed AS SELECT row_number() OVER (ORDER BY md5(job_id::text)) AS n, job_id AS id, gen_random_uuid() AS token, updated_at AS seen FROM public.job_queue")
	j.unguarded(`DELETE FROM public.job_lease; UPDATE public.job_queue q SET lease_token = l.token FROM public.listed l WHERE l.id = q.job_id;
		INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live, claimed_by)
		SELECT l.token, 'w', '` + sub + `', now() + interval '1 hour', ARRAY[l.id], 1, NULL FROM public.listed l`)
	j.exec("VACUUM ANALYZE")
	both := listed("id", "token")
	const deadLetters = "ARRAY(SELECT dead_letter_id FROM public.job_dead_letter)"
	const mine = "UPDATE public.job_lease SET claimed_by = session_user::text || ' '::text || current_setting('application_name'); "
	const expired = "UPDATE public.job_lease SET lease_until = now() - interval '1 hour'; "
	fail := func(permanent string) string {
		return fmt.Sprintf("SELECT count(*) FROM public.fn_job_fail(%s, array_fill('X'::text, ARRAY[%d]), array_fill('failed'::text, ARRAY[%[2]d]), array_fill(%s, ARRAY[%[2]d]))", both, long(), permanent)
	}
	closed := func(ids string) string {
		return "SELECT public.fn_job_dead_letter_resolve(" + ids + ", 'abandoned', 'x', 'ann'); SELECT public.fn_job_dead_letter_reopen(" + ids + ", 'ann', 'x'); " +
			"SELECT public.fn_job_dead_letter_replay(" + ids + ", 'ann', 'x'); SELECT public.fn_job_dead_letter_replay_undo(" + ids + ", 'ann', 'x')"
	}
	for _, call := range []struct{ what, sql string }{
		{"start", "SELECT count(*) FROM public.fn_job_start(" + both + ")"},
		{"renew", "SELECT count(*) FROM public.fn_job_renew(" + both + ")"},
		{"locked", "SELECT count(*) FROM public.fn_job_locked(" + both + ")"},
		{"ack", "SELECT count(*) FROM public.fn_job_ack(" + both + ")"},
		{"release", "SELECT count(*) FROM public.fn_job_release(" + both + ")"},
		{"fail", fail("false")},
		{"fail for good", fail("true")},
		{"fail and retry", "SET LOCAL session_replication_role = replica; UPDATE public.job_queue SET max_attempts = 3; SET LOCAL session_replication_role = origin; " + fail("false")},
		{"lost claim", mine + "SELECT public.fn_job_claim_lost('w', '{}')"},
		{"known claims", mine + "SELECT public.fn_job_claim_lost('w', " + listed("token") + ")"},
		{"cancel", "SELECT public.fn_job_cancel(" + listed("id") + ", 'ann', 'x')"},
		{"cancel seen", "SELECT public.fn_job_cancel_seen(" + listed("id", "seen") + ", 'ann', 'x')"},
		{"release leases", expired + "SELECT public.fn_job_lease_release(ARRAY(SELECT left(encode(sha256(uuid_send(token)), 'hex'), 32)::uuid FROM public.listed), 'ann', 'x')"},
		{"release leases by token", expired + "SELECT public.fn_job_lease_release(" + listed("token") + ", 'ann', 'x')"},
		{"reap", expired + "SELECT public.fn_job_reap_expired(2000)"},
		{"reap in parts", expired + "SELECT public.fn_step_job_reap(2000, " + listed("id::text") + ", '{}')"},
		{"dead letters", "SELECT 1; " + fail("false") + "; " + closed(deadLetters)},
		{"dead letters that are younger than the plans", closed("ARRAY[gen_random_uuid()]") + "; " + fail("false") + "; " + closed(deadLetters)},
	} {
		if again, of, whole := strings.Cut(call.sql, "SELECT count(*)"); whole && again == "" {
			call.sql += "; SELECT count(*)" + of // a repeated result is looked up in other ways
		}
		linear(t, j.db, call.what, call.sql)
	}
}

// Each delivery is the probe of another subscription.
func TestLongListsOfDeliveries(t *testing.T) {
	h := newHooks(t)
	h.flag("queue.dlq.replay_enabled", "true")
	h.flag("webhook.slow_start.enabled", "false")
	h.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) SELECT 'order', 'http://h' || i || '.test/hook', true FROM generate_series(1, $1) i", long())
	h.emit("order", 1)
	h.route()
	h.call("public.fn_saga_orchestrator_run(10000)")
	h.exec("CREATE TABLE public.listed AS SELECT row_number() OVER (ORDER BY md5(id::text)) AS n, id, gen_random_uuid() AS token, saga_id, subscription_id, 0::bigint AS dead_letter FROM public.webhook_delivery_jobs")
	j := &jobs{core: &core{t: t, db: h.db, root: h.root}}
	j.unguarded(`UPDATE public.webhook_delivery_jobs j SET status = 'Leased', lease_token = l.token, lease_until = now() + interval '1 hour', worker_id = 'test', started_at = now()
			FROM public.listed l WHERE l.id = j.id;
		INSERT INTO public.webhook_endpoint_suspensions (subscription_id, reason, until, by, note, probe_job_id, probe_until)
			SELECT subscription_id, 'circuit', now() + interval '1 hour', 'test', 'x', id, now() + interval '1 hour' FROM public.listed`)
	h.exec("VACUUM ANALYZE")
	both := listed("id", "token")
	report := `SELECT count(*) FROM public.fn_webhook_job_report((SELECT jsonb_agg(jsonb_build_object('job_id', id, 'lease_token', token, 'delivered', n % 2 = 0,
		'status', CASE WHEN n % 2 = 0 THEN 204 END, 'code', CASE WHEN n % 2 = 0 THEN '' ELSE 'HTTP_410' END)) FROM public.listed))`
	const known = "INSERT INTO public.queue_host (host_id, instance, last_seen_at, loops, db_role) SELECT 'h', '11111111-1111-4111-8111-111111111111', now(), '{webhook_worker}', session_user; " +
		"SET LOCAL session_replication_role = replica; UPDATE public.webhook_delivery_jobs SET worker_id = 'h/11111111'; SET LOCAL session_replication_role = origin; "
	const expired = "SET LOCAL session_replication_role = replica; UPDATE public.webhook_delivery_jobs SET lease_until = now() - interval '1 hour'; SET LOCAL session_replication_role = origin; "
	for _, call := range []struct{ what, sql string }{
		{"renew", "SELECT count(*) FROM public.fn_webhook_job_renew(" + both + ")"},
		{"release", "SELECT count(*) FROM public.fn_webhook_job_release(" + both + "); SELECT count(*) FROM public.fn_webhook_job_release(" + both + ")"},
		{"report", report + "; " + report},
		{"lost claim", known + "SELECT public.fn_webhook_claim_lost('h/11111111', '{}')"},
		{"known claims", known + "SELECT public.fn_webhook_claim_lost('h/11111111', " + listed("token") + ")"},
		{"release leases", expired + `SELECT public.fn_webhook_lease_release(` + listed("id") + `, 'ann', 'x')`},
	} {
		linear(t, h.db, call.what, call.sql)
	}

	j.unguarded(`DELETE FROM public.webhook_delivery_jobs; DELETE FROM public.webhook_endpoint_suspensions; UPDATE public.webhook_delivery_sagas SET status = 'DeadLettered', final_error_code = 'X';
		INSERT INTO public.dead_letters (saga_id, event_id, subscription_id, final_error_code, payload_snapshot) SELECT id, event_id, subscription_id, 'X', '{}' FROM public.webhook_delivery_sagas;
		UPDATE public.listed l SET dead_letter = d.id FROM public.dead_letters d WHERE d.saga_id = l.saga_id`)
	h.exec("VACUUM ANALYZE")
	deadLetters := listed("dead_letter")
	const requeue = "SELECT public.fn_dead_letter_requeue(%s, 'ann', 'x')"
	linear(t, h.db, "requeue", fmt.Sprintf(requeue, deadLetters))
	h.exec(fmt.Sprintf(requeue, deadLetters))
	h.exec("VACUUM ANALYZE")
	const undo = "SELECT public.fn_dead_letter_requeue_undo(%s, 'ann', 'x')"
	linear(t, h.db, "undo of a requeue", fmt.Sprintf(undo, deadLetters))
	h.exec(fmt.Sprintf(undo, deadLetters))
	closed := func(ids string) string {
		return "SELECT public.fn_dead_letter_resolve(" + ids + ", 'abandoned', 'x', 'ann'); SELECT public.fn_dead_letter_reopen(" + ids + ", 'ann', 'x')"
	}
	linear(t, h.db, "resolve", closed(deadLetters))

	j.unguarded("CREATE TABLE public.kept AS TABLE public.dead_letters; DELETE FROM public.dead_letter_requeues; DELETE FROM public.dead_letters")
	h.exec("VACUUM ANALYZE") // as autovacuum may do: then the plans are those for empty tables
	all := func(ids string) string {
		return closed(ids) + "; " + fmt.Sprintf(requeue, ids) + "; " + fmt.Sprintf(undo, ids)
	}
	linear(t, h.db, "dead letters that are younger than the plans", all("ARRAY[-1]")+"; SET LOCAL session_replication_role = replica; "+
		"INSERT INTO public.dead_letters OVERRIDING SYSTEM VALUE TABLE public.kept; SET LOCAL session_replication_role = origin; "+all(deadLetters))
}

func TestLongListsOfEvents(t *testing.T) {
	c := newRoutes(t)
	j := &jobs{core: c}
	j.flag("queue.dlq.replay_enabled", "true")
	c.exec("INSERT INTO public.consumer_registry VALUES ('c', 'iu', 'made', 'work', 'DOT', true, 't', now(), 't', now())")
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, i::text) FROM generate_series(1, $1) i", long())
	c.exec("CREATE TABLE public.listed AS SELECT row_number() OVER (ORDER BY md5(id::text)) AS n, id, gen_random_uuid() AS dead_letter FROM public.event_outbox")
	j.unguarded(`INSERT INTO public.iu_route_dead_letter (dead_letter_id, event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
			SELECT l.dead_letter, e.id, to_jsonb(e), l.dead_letter, 'X', 'x', e.event_domain, 'iu_outbound_default' FROM public.listed l JOIN public.event_outbox e ON e.id = l.id;
		INSERT INTO public.iu_notification_pending (id, unit_id, canonical_address, actor_ref, ref_id, created_at, failed_at, failure)
			SELECT id, id, 'a', 'user:ann', id, now(), now(), 'x' FROM public.listed;
		INSERT INTO public.queue_quarantine (step, target, code, error, next_try_at) SELECT 'event_route', id, 'XX000', 'x', now() FROM public.listed`)
	c.exec("VACUUM ANALYZE")
	deadLetters := listed("dead_letter")
	replay := func(ids string) string {
		return "SELECT public.fn_iu_route_dead_letter_replay(" + ids + ", 'ann', 'x')"
	}
	closed := func(ids string) string {
		return "SELECT public.fn_iu_route_dead_letter_resolve(" + ids + ", 'abandoned', 'x', 'ann'); SELECT public.fn_iu_route_dead_letter_reopen(" + ids + ", 'ann', 'x')"
	}
	requeue := func(ids string) string { return "SELECT public.fn_iu_notification_requeue(" + ids + ", 'ann', 'x')" }
	linear(t, c.db, "replay", replay(deadLetters))
	linear(t, c.db, "resolve", closed(deadLetters))
	linear(t, c.db, "notifications", requeue(listed("id")))
	j.unguarded(`CREATE TABLE public.letters AS TABLE public.iu_route_dead_letter; DELETE FROM public.iu_route_dead_letter;
		CREATE TABLE public.notifications AS TABLE public.iu_notification_pending; DELETE FROM public.iu_notification_pending`)
	c.exec("VACUUM public.iu_notification_pending")
	const none = "ARRAY[gen_random_uuid()]"
	const columns = "dead_letter_id, event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name"
	linear(t, c.db, "rows that are younger than the plans", closed(none)+"; "+replay(none)+"; "+requeue(none)+"; SET LOCAL session_replication_role = replica; "+
		"INSERT INTO public.iu_route_dead_letter ("+columns+") SELECT "+columns+" FROM public.letters; INSERT INTO public.iu_notification_pending TABLE public.notifications; SET LOCAL session_replication_role = origin; "+
		closed(deadLetters)+"; "+replay(deadLetters)+"; "+requeue(listed("id")))
	linear(t, c.db, "quarantine", "SELECT public.fn_queue_quarantine_retry(ARRAY(SELECT quarantine_id FROM public.queue_quarantine ORDER BY 1), 'ann', 'x')")
}
