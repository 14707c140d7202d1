// A producer's own rows and the jobs and events that it writes with them are committed together or
// not at all. A refusal raises an error, and no flag causes one.

package schema_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// way is a statement with which a producer hands work over, and the table that it writes to. In
// sql, :unit is replaced by an information unit and :n by a number that no other transaction has.
type way struct{ table, sql string }

func ways() []way {
	return []way{
		{"job_queue", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent')"},
		{"job_queue", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_idempotency_key => 'key :n')"},
		{"job_queue", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_idempotency_key => 'key :n', p_scope => 'event_ingest_writer')"},
		{"job_queue", `SELECT public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}]')`},
		{"job_queue", `SELECT public.fn_job_enqueue_many('[{"job_kind": "many", "event_domain": "iu", "executor": "Agent", "idempotency_key": "key :n"}]')`},
		{"event_outbox", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', 'unit', 'u')"},
		{"event_outbox", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', 'unit', 'u', p_idempotency_key => 'key :n')"},
		{"event_outbox", "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'made', 'update', 'immediate')"},
		{"events", "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')"},
		{"information_unit", "SELECT public.fn_iu_save('address/:n', 'text', 'ann')"},
		{"iu_comment", "SELECT public.fn_iu_comment(':unit', 'text', 'ann')"},
		{"iu_draft", "SELECT public.fn_iu_draft_create(':unit', 'text', 'ann')"},
		{"unit_version", "SELECT public.fn_iu_draft_apply((public.fn_iu_draft_create(':unit', 'text', 'ann') ->> 'draft_id')::uuid, 'ann')"},
	}
}

// producing is a producer that has a business table besides the tables of qtop.
type producing struct {
	*core
	conn *pgx.Conn
	unit string // the information unit for :unit
	n    int    // transactions so far, for :n
}

func newProducing(t *testing.T) *producing {
	c := newCore(t)
	c.exec("CREATE TABLE public.business (id bigint GENERATED ALWAYS AS IDENTITY, what text)")
	c.exec("GRANT INSERT ON public.business TO event_ingest_writer")
	c.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, active) VALUES ('iu', 'made', 'update', 'immediate', true) ON CONFLICT DO NOTHING")
	conn, err := c.as("event_ingest_writer").Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	return &producing{c, conn.Conn(), get[string](c, "SELECT public.fn_iu_save('business', 'text', 'ann') ->> 'unit_id'"), 0}
}

// fill replaces :unit and :n in sql.
func (p *producing) fill(sql string) string {
	return strings.NewReplacer(":n", strconv.Itoa(p.n), ":unit", p.unit).Replace(sql)
}

// with commits one row of the business table per statement, and the statements, in one transaction
// that starts with begin.
func (p *producing) with(begin string, statements ...string) error {
	ctx := context.Background()
	p.n++
	b := &pgx.Batch{}
	for sql := range strings.SplitSeq(begin, "; ") {
		b.Queue(sql)
	}
	for _, sql := range statements {
		b.Queue("INSERT INTO public.business (what) VALUES ($1)", sql)
		b.Queue(p.fill(sql))
	}
	b.Queue("COMMIT")
	err := p.conn.SendBatch(ctx, b).Close()
	if err != nil {
		_, _ = p.conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// handedOver returns how many rows all tables of ways have together, and how many rows the business
// table has.
func (p *producing) handedOver() (work, business int) {
	p.t.Helper()
	seen := map[string]bool{}
	for _, w := range ways() {
		if !seen[w.table] {
			seen[w.table] = true
			work += get[int](p.core, "SELECT count(*)::int FROM public."+w.table)
		}
	}
	return work, get[int](p.core, "SELECT count(*)::int FROM public.business")
}

// rowsOfAll is the number of rows that the statements of all ways write: more than one per way,
// since a new unit gets its first version, and an applied draft is a row too.
const rowsOfAll = 15

// all returns the statements of all ways.
func (p *producing) all() (statements []string) {
	for _, w := range ways() {
		statements = append(statements, w.sql)
	}
	return statements
}

// both commits a transaction with all ways for each of begins, and requires that all rows of work
// and of business are there.
func (p *producing) both(why string, begins ...string) {
	p.t.Helper()
	work, business := p.handedOver()
	for _, begin := range begins {
		require.NoError(p.t, p.with(begin, p.all()...), "%s: %s", why, begin)
	}
	w, b := p.handedOver()
	require.Equal(p.t, []int{work + rowsOfAll*len(begins), business + len(ways())*len(begins)}, []int{w, b}, why)
}

// flagValues are values of flags, some readable and some not.
func flagValues() []string {
	return []string{"true", "false", "off ", " true", "TRUE", "", "{}", "null", "0", "-1", "999999999999", "1e3", "external", "garbage'\n"}
}

// Every function that a producer may call and every table that it may write is used by one of ways.
func TestWaysOfProducersAreKnown(t *testing.T) {
	c := newCore(t)
	var known []string
	for _, w := range ways() {
		for _, name := range regexp.MustCompile(`public\.(\w+)`).FindAllStringSubmatch(w.sql, -1) {
			known = append(known, name[1])
		}
	}
	slices.Sort(known)
	// these hand over no work: they read, mark as read, or send a wake signal
	others := []string{"fn_iu_notification_board", "fn_iu_notification_mark_read", "fn_queue_doorbell", "fn_queue_notify_enabled", "fn_queue_wake_signal"}
	require.Equal(t, slices.Compact(known), get[[]string](c, `SELECT array_agg(name::text COLLATE "C" ORDER BY name::text COLLATE "C") FROM (
		SELECT p.proname FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'public'::regnamespace AND a.grantee = 'event_ingest_writer'::regrole
		UNION SELECT r.relname FROM pg_class r WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p', 'v') AND has_any_column_privilege('event_ingest_writer', r.oid, 'INSERT')
		) x (name) WHERE name <> ALL ($1)`, others), "a function that hands over work: add its call to ways, the rows that it writes to rowsOfAll; any other that producers may call: add it to others")
}

func TestNoFlagStopsProducers(t *testing.T) {
	p := newProducing(t)
	keys := get[[]string](p.core, "SELECT array_agg(key ORDER BY key) FROM public.dot_config")
	require.Greater(t, len(keys), 40)
	flags := append(keys, "queue.retry.schedule.k", "webhook.retry_schedule.1") // flags of one kind and of one subscription
	begins := []string{}
	full := os.Getenv("QTOP_TEST_FULL") != ""
	for i, key := range flags {
		old := get[*string](p.core, "SELECT max(value) FROM public.dot_config WHERE key = $1", key)
		work, business := p.handedOver()
		values := flagValues()
		if !full { // three of the values for each flag, so that each value is tried with many flags
			values = []string{values[i%len(values)], values[(i+5)%len(values)], values[(i+10)%len(values)]}
		}
		for _, value := range values {
			p.exec("INSERT INTO public.dot_config (key, value, updated_by) VALUES ($1, $2, 'test') ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
			require.NoError(t, p.with("BEGIN", p.all()...), "%s = %q", key, value)
		}
		p.exec("DELETE FROM public.dot_config WHERE key = $1", key)
		require.NoError(t, p.with("BEGIN", p.all()...), "%s is not there", key)
		n := len(values) + 1
		w, b := p.handedOver()
		require.Equal(t, []int{work + rowsOfAll*n, business + len(ways())*n}, []int{w, b}, key)
		if old != nil {
			p.exec("INSERT INTO public.dot_config (key, value, updated_by) VALUES ($1, $2, 'test')", key, *old)
		}
	}
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		begins = append(begins, "BEGIN ISOLATION LEVEL "+level)
	}
	for _, value := range flagValues() { // every flag has this value
		p.exec("UPDATE public.dot_config SET value = $1", value)
		p.both(fmt.Sprintf("all = %q", value), begins...)
	}
	p.exec("DELETE FROM public.dot_config")
	p.both("there is no flag", begins...)
}

// Other switches, such as disabled subscriptions, stop claims and sending too, but never the
// acceptance of work; nor does a setting of the producer's session stop it.
func TestNoSwitchStopsProducers(t *testing.T) {
	p := newProducing(t)
	p.exec("INSERT INTO public.subscriptions (event_type, callback_url, active, verified) VALUES ('order', 'http://127.0.0.1:1/', true, true)")
	p.exec(`INSERT INTO public.consumer_registry (consumer_id, event_domain, event_type, job_kind, executor, enabled, registered_by, updated_by)
		VALUES ('c', 'iu', 'made', 'k', 'Agent', true, 'ann', 'ann')`)
	p.exec("SELECT public.fn_queue_heartbeat_register('w', 'Agent', '{iu}', 60, 300, 'ann')")
	p.exec(`SELECT public.fn_job_subscription_set(p_executor_id => 'w', p_job_kind => NULL, p_event_domain => NULL, p_priority_floor => 1000, p_max_parallel => 1,
		p_enabled => true, p_notes => '', p_actor => 'ann', p_reason => 'test')`)
	for _, off := range []string{
		"UPDATE public.subscriptions SET active = false",
		"UPDATE public.subscriptions SET active = true, verified = false",
		"SELECT public.fn_endpoint_suspend(1, 'ann', 'test', '1 day')",
		"UPDATE public.consumer_registry SET enabled = false",
		"UPDATE public.job_subscription SET enabled = false",
		"UPDATE public.queue_heartbeat SET last_beat_at = now() - interval '4 days'",
		"SELECT public.fn_queue_heartbeat_deregister('w', 'ann', 'test')",
		"UPDATE public.queue_tick_worker SET last_run_at = NULL",
		"UPDATE public.queue_identity SET database_oid = 1", // now a clone
		"UPDATE public.queue_identity SET system_identifier = 1",
		"DELETE FROM public.queue_cursor",
	} {
		p.exec(off)
		p.both(off, "BEGIN")
	}
	for _, setting := range []string{"qtop.doorbell = on", "qtop.doorbell = off", "qtop.doorbell = ''", "qtop.doorbell = garbage", "DateStyle = 'SQL, DMY'", "IntervalStyle = sql_standard",
		"TimeZone = 'Pacific/Kiritimati'", "quote_all_identifiers = on", "transform_null_equals = on", "array_nulls = off", "bytea_output = escape", "enable_indexscan = off",
		"plan_cache_mode = force_custom_plan", "search_path = ''", "row_security = off", "lock_timeout = '10s'", "xmloption = document", "jit = on"} {
		p.both(setting, "BEGIN; SET LOCAL "+setting)
	}
}

func TestRefusedProducersCommitNothing(t *testing.T) {
	p := newProducing(t)
	p.exec("INSERT INTO public.executor_producer VALUES ('Codex', 'router_worker')")
	p.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, active) VALUES ('iu', 'retired', 'update', 'immediate', false)")
	p.exec("INSERT INTO public.events (event_type, payload, external_event_id) VALUES ('order', '{}', 'taken')")
	draft := get[string](p.core, "SELECT public.fn_iu_draft_create($1::uuid, 'text', 'ann') ->> 'draft_id'", p.unit)
	p.exec("SELECT public.fn_iu_draft_apply($1::uuid, 'ann')", draft)
	emit := func(domain, kind, payload string) string {
		return fmt.Sprintf("SELECT public.fn_iu_emit_event('%s', '%s', 'update', 'immediate', 'info', NULL, NULL, '%s')", domain, kind, payload)
	}
	insert := func(domain, kind, payload string) string {
		return fmt.Sprintf("INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload) VALUES ('%s', '%s', 'update', 'immediate', '%s')", domain, kind, payload)
	}
	many := func(rest string) string {
		return `SELECT public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}, {"job_kind": "k", "event_domain": "iu"` + rest + `}]')`
	}
	require.NoError(t, p.with("BEGIN", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', '{\"n\": 1}', p_idempotency_key => 'taken')",
		"SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', NULL, NULL, '{\"n\": 1}', p_idempotency_key => 'taken')"))
	refusals := []struct{ state, says, sql string }{
		{"42501", "may not enqueue for executor kind Codex", "SELECT public.fn_job_enqueue('k', 'iu', 'Codex')"},
		{"42501", "may not enqueue for executor kind Codex", many(`, "executor": "Codex"`)},
		{"22023", "p_job_kind must", "SELECT public.fn_job_enqueue('', 'iu', 'Agent')"},
		{"22023", "p_event_domain must", "SELECT public.fn_job_enqueue('k', 'A', 'Agent')"},
		{"22023", "p_executor must", "SELECT public.fn_job_enqueue('k', 'iu', 'MOT')"},
		{"22023", "p_payload must be a JSON object", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', '[]')"},
		{"22023", "p_payload may not hold the key token", `SELECT public.fn_job_enqueue('k', 'iu', 'Agent', '{"id": 1, "token": "s3cret"}')`},
		{"22023", "payload may not hold the key token", many(`, "executor": "Agent", "payload": {"token": "s3cret"}`)},
		{"22023", "p_priority must be 0 to 1000", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_priority => 1001)"},
		{"22023", "p_priority must be 0 to 1000", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_priority => -1)"},
		{"22023", "priority must be 0 to 1000", many(`, "executor": "Agent", "priority": 2147483647`)},
		{"22023", "p_process_after must", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_process_after => 'infinity')"},
		{"22023", "p_max_attempts must", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_max_attempts => 0)"},
		{"22023", "p_idempotency_key must", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_idempotency_key => '')"},
		{"22023", "p_actor must", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_actor => repeat('a', 201))"},
		{"22023", "is none of", many(`, "executor": "Agent", "proces_after": "2200-01-01"`)},
		{"22023", "must be an array", "SELECT public.fn_job_enqueue_many('{}')"},
		{"23503", "is not registered", emit("iu", "unknown", "{}")},
		{"23503", "is not registered", insert("iu", "unknown", "{}")},
		{"23514", "safe_payload may not hold the key token", emit("iu", "made", `{"token": "s3cret"}`)},
		{"23514", "safe_payload may not hold the key token", insert("iu", "made", `{"token": "s3cret"}`)},
		{"42501", "emitted by qtop alone", emit("system", "queue_worker_silent", "{}")},
		{"42501", "emitted by qtop alone", emit("system", "subscription_broadcast_high", "{}")},
		{"42501", "emitted by qtop alone", insert("system", "queue_worker_silent", "{}")},
		{"42501", "emitted by qtop alone", insert("system", "subscription_broadcast_high", "{}")},
		{"23505", "an information unit already exists at address business", "SELECT public.fn_iu_save('business', 'text', 'ann')"},
		{"23503", "there is no information unit", "SELECT public.fn_iu_comment(gen_random_uuid(), 'text', 'ann')"},
		{"23503", "there is no information unit", "SELECT public.fn_iu_draft_create(gen_random_uuid(), 'text', 'ann')"},
		{"23503", "there is no draft", "SELECT public.fn_iu_draft_apply(gen_random_uuid(), 'ann')"},
		{"55000", "has already been applied", "SELECT public.fn_iu_draft_apply('" + draft + "', 'ann')"},
		{"42501", "may not use idempotency keys of scope queue_owner", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_idempotency_key => 'a', p_scope => 'queue_owner')"},
		{"42501", "may not use idempotency keys of scope nobody", many(`, "executor": "Agent", "idempotency_key": "a", "scope": "nobody"`)},
		{"23505", "idempotency key taken", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', '{\"n\": 2}', p_idempotency_key => 'taken')"},
		{"23505", "idempotency key taken", many(`, "executor": "Agent", "idempotency_key": "taken", "payload": {"n": 2}`)},
		{"23505", "idempotency key taken", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', NULL, NULL, '{\"n\": 2}', p_idempotency_key => 'taken')"},
		{"22023", "p_idempotency_key must", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', NULL, NULL, p_idempotency_key => '')"},
		{"22023", "p_job_kind must", "SELECT public.fn_job_enqueue(NULL, 'iu', 'Agent')"},
		{"22023", "p_jobs[1].executor must be ", many("")},
		{"22023", "process_after must", many(`, "executor": "Agent", "process_after": "infinity"`)},
		{"22023", "actor must", many(`, "executor": "Agent", "actor": "` + strings.Repeat("a", 201) + `"`)},
		{"22023", "p_jobs[1].max_attempts must be 1 to 1000, not 0", many(`, "executor": "Agent", "max_attempts": 0`)},
		{"23503", "is not registered", emit("iu", "retired", "{}")},
		{"22023", "event_subject_ref must have at most 500", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', 'unit', repeat('a', 501))"},
		{"23514", "delivery_lane", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'soon', 'info', NULL, NULL)"},
		{"23514", "event_severity", "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'loud', NULL, NULL)"},
		{"23505", "external_event_id", "INSERT INTO public.events (event_type, payload, external_event_id) VALUES ('order', '{}', 'taken')"},
		{"22001", "too long", "INSERT INTO public.events (event_type, payload) VALUES (repeat('a', 101), '{}')"},
		{"23502", "payload", "INSERT INTO public.events (event_type, payload) VALUES ('order', NULL)"},
		{"42501", "events", "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}') RETURNING payload"},
		{"22023", "p_body must", "SELECT public.fn_iu_comment(':unit', '', 'ann')"},
	}
	values := []string{"true", "false", "off "}
	if full() {
		values = flagValues()
	}
	work, business := p.handedOver()
	for _, value := range append(values, "") {
		if value == "" {
			p.exec("DELETE FROM public.dot_config")
		} else {
			p.exec("UPDATE public.dot_config SET value = $1", value)
		}
		for _, c := range refusals {
			what := fmt.Sprintf("all flags = %q: %s", value, c.sql)
			err := p.with("BEGIN", c.sql)
			refused(t, c.state, err, what)
			require.ErrorContains(t, err, c.says, what)
			require.NotContains(t, fmt.Sprintf("%+v", err), "s3cret", what)
			w, b := p.handedOver()
			require.Equal(t, []int{work, business}, []int{w, b}, what)
		}
	}
	require.NoError(t, p.with("BEGIN", many(`, "executor": "Agent", "priority": 1000`)))
}

// Events that only qtop emits must come from a function of the owner. A writer's own function is
// refused, whatever its name and whatever its statements contain. For other events, a role of the
// application that has only INSERT may insert.
func TestEventsOfOursAreNotForged(t *testing.T) {
	c := newProducing(t).core
	const body = `(text, text, text, text, text, text, text, jsonb, text, text, timestamptz) RETURNS jsonb LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload)
		VALUES ($1, $2, $3, $4, $8); RETURN '{}'; END $$`
	names := []string{`forger.fn_event_emit`, `"a public".fn_event_emit`, `"x ""public""".fn_event_emit`, `forger." public.fn_event_emit("`, `forger." ""public"".""fn_event_emit""("`}
	c.exec(`CREATE SCHEMA forger; CREATE SCHEMA "a public"; CREATE SCHEMA "x ""public"""`)
	writer := c.as("event_ingest_writer")
	c.exec(`GRANT USAGE ON SCHEMA forger, "a public", "x ""public""" TO PUBLIC; GRANT INSERT ON public.event_outbox TO PUBLIC`)
	for _, name := range names {
		c.exec("CREATE FUNCTION " + name + body)
		for _, quoted := range []string{"off", "on"} {
			for _, who := range []*pgxpool.Pool{writer, c.as("queue_viewer")} {
				err := pgx.BeginFunc(t.Context(), who, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "SET LOCAL quote_all_identifiers = "+quoted); err != nil {
						return err
					}
					_, err := tx.Exec(t.Context(), "SELECT "+name+"('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())")
					return err
				})
				refused(t, "42501", err, name)
				require.ErrorContains(t, err, "emitted by qtop alone", name)
			}
		}
	}
	for _, name := range []string{"public.fn_event_emit", `"public"."fn_event_emit"`} { // in a comment of the statement, which the call stack contains too
		_, err := writer.Exec(t.Context(), `DO $$ BEGIN
			INSERT INTO public.event_outbox /* `+name+`(text,text,text,text,text,text,text,jsonb,text,text,timestamp with time zone) */
			(event_domain, event_type, event_stream, delivery_lane, safe_payload) VALUES ('system', 'queue_worker_silent', 'alert', 'immediate', '{}');
			END $$`)
		refused(t, "42501", err, name)
		require.ErrorContains(t, err, "emitted by qtop alone", name)
	}
	c.exec("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())")
	c.exec("SET quote_all_identifiers = on; SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())")
	_, err := c.as("queue_viewer").Exec(t.Context(), "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload) VALUES ('iu', 'made', 'update', 'immediate', '{}')")
	require.NoError(t, err)
}
