// A producer's own rows and what it enqueues or emits with them are committed together or not at all: what is refused
// raises, and no flag refuses.

package schema_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// accepted are the ways in which producers hand work over.
func accepted() []string {
	return []string{
		"SELECT public.fn_job_enqueue('k', 'iu', 'Agent')",
		"SELECT public.fn_job_enqueue('k', 'iu', 'Agent', p_idempotency_key => 'key' || n) FROM (SELECT count(*) AS n FROM public.business) b",
		`SELECT public.fn_job_enqueue_many('[{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}]')`,
		"SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', 'unit', 'u')",
		"INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'made', 'update', 'immediate')",
		"INSERT INTO public.events (event_type, payload) VALUES ('order', '{}')",
		"SELECT public.fn_iu_save('address/' || n, 'text', 'ann') FROM (SELECT count(*) AS n FROM public.business) b",
	}
}

type producing struct {
	*core
	conn *pgx.Conn
}

func newProducing(t *testing.T) producing {
	c := newCore(t)
	c.exec("CREATE TABLE public.business (id bigint GENERATED ALWAYS AS IDENTITY, what text)")
	c.exec("GRANT INSERT, SELECT ON public.business TO event_ingest_writer; GRANT SELECT ON public.information_unit TO event_ingest_writer")
	c.exec("INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, active) VALUES ('iu', 'made', 'update', 'immediate', true) ON CONFLICT DO NOTHING")
	conn, err := c.as("event_ingest_writer").Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	return producing{c, conn.Conn()}
}

// with commits a row of business for each statement, and the statements.
func (p producing) with(statements ...string) error {
	return pgx.BeginFunc(context.Background(), p.conn, func(tx pgx.Tx) error {
		for _, sql := range statements {
			if _, err := tx.Exec(context.Background(), "INSERT INTO public.business (what) VALUES ($1)", sql); err != nil {
				return err
			}
			if _, err := tx.Exec(context.Background(), sql); err != nil {
				return err
			}
		}
		return nil
	})
}

const handedOver = `SELECT ((SELECT count(*) FROM public.job_queue) + (SELECT count(*) FROM public.event_outbox)
	+ (SELECT count(*) FROM public.events) + (SELECT count(*) FROM public.information_unit))::int`

func TestNoFlagStopsProducers(t *testing.T) {
	p := newProducing(t)
	values := []string{"true", "false", "off ", " true", "TRUE", "", "{}", "null", "0", "-1", "999999999999", "1e3", "external", "garbage'\n"}
	try := func(why string) {
		t.Helper()
		before := get[int](p.core, handedOver)
		require.NoError(t, p.with(accepted()...), why)
		require.Equal(t, before+len(accepted()), get[int](p.core, handedOver), why)
	}
	keys := get[[]string](p.core, "SELECT array_agg(key ORDER BY key) FROM public.dot_config")
	require.Greater(t, len(keys), 40)
	for _, key := range keys {
		old := get[string](p.core, "SELECT value FROM public.dot_config WHERE key = $1", key)
		for _, value := range values {
			p.exec("UPDATE public.dot_config SET value = $2 WHERE key = $1", key, value)
			try(fmt.Sprintf("%s = %q", key, value))
		}
		p.exec("DELETE FROM public.dot_config WHERE key = $1", key)
		try(key + " is not there")
		p.exec("INSERT INTO public.dot_config (key, value, updated_by) VALUES ($1, $2, 'test')", key, old)
	}
	for _, value := range values { // all of them at once
		p.exec("UPDATE public.dot_config SET value = $1", value)
		try(fmt.Sprintf("all = %q", value))
	}
	p.exec("DELETE FROM public.dot_config")
	try("there is no flag")
	require.Equal(t, get[int](p.core, "SELECT count(*)::int FROM public.business"), get[int](p.core, handedOver), "a row of business for each piece of work")
}

func TestRefusedProducersCommitNothing(t *testing.T) {
	p := newProducing(t)
	p.exec("INSERT INTO public.executor_producer VALUES ('Codex', 'router_worker')")
	unit := get[string](p.core, "SELECT public.fn_iu_save('taken', 'text', 'ann') ->> 'unit_id'")
	draft := get[string](p.core, "SELECT public.fn_iu_draft_create($1::uuid, 'text', 'ann') ->> 'draft_id'", unit)
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
	for _, c := range []struct{ state, says, sql string }{
		{"42501", "may not enqueue for executor kind Codex", "SELECT public.fn_job_enqueue('k', 'iu', 'Codex')"},
		{"42501", "may not enqueue for executor kind Codex", many(`, "executor": "Codex"`)},
		{"22023", "p_job_kind must", "SELECT public.fn_job_enqueue('', 'iu', 'Agent')"},
		{"22023", "p_event_domain must", "SELECT public.fn_job_enqueue('k', 'A', 'Agent')"},
		{"22023", "p_executor must", "SELECT public.fn_job_enqueue('k', 'iu', 'MOT')"},
		{"22023", "p_payload must be an object", "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', '[]')"},
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
		{"23505", "there is a unit at taken already", "SELECT public.fn_iu_save('taken', 'text', 'ann')"},
		{"23503", "there is no unit", "SELECT public.fn_iu_comment(gen_random_uuid(), 'text', 'ann')"},
		{"23503", "there is no unit", "SELECT public.fn_iu_draft_create(gen_random_uuid(), 'text', 'ann')"},
		{"23503", "there is no draft", "SELECT public.fn_iu_draft_apply(gen_random_uuid(), 'ann')"},
		{"55000", "was applied already", "SELECT public.fn_iu_draft_apply('" + draft + "', 'ann')"},
	} {
		before := get[string](p.core, "SELECT concat_ws(' ', (SELECT count(*) FROM public.job_queue), (SELECT count(*) FROM public.event_outbox), (SELECT count(*) FROM public.unit_version))")
		err := p.with(c.sql)
		refused(t, c.state, err, c.sql)
		require.ErrorContains(t, err, c.says, c.sql)
		require.NotContains(t, fmt.Sprintf("%+v", err), "s3cret", c.sql)
		require.Equal(t, before, get[string](p.core, "SELECT concat_ws(' ', (SELECT count(*) FROM public.job_queue), (SELECT count(*) FROM public.event_outbox), (SELECT count(*) FROM public.unit_version))"), c.sql)
	}
	require.Zero(t, get[int](p.core, "SELECT count(*)::int FROM public.business"), "nothing of a refused transaction is there")
	require.NoError(t, p.with(many(`, "executor": "Agent", "priority": 1000`)))
}

// The way by which an event of ours comes is read from the call stack: whatever
// functions a writer has, and whatever they are named, they are another way. A role
// of the application that was granted no more than INSERT may insert.
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
	c.exec("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())")
	c.exec("SET quote_all_identifiers = on; SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())")
	_, err := c.as("queue_viewer").Exec(t.Context(), "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload) VALUES ('iu', 'made', 'birth', 'immediate', '{}')")
	require.NoError(t, err)
}
