// The limit of a payload, in bytes of its text.
package schema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// payload returns SQL for a JSON object whose text has n bytes.
func payload(n int) string {
	return fmt.Sprintf("jsonb_build_object('t', pg_catalog.repeat('ü', %d) || pg_catalog.repeat('x', %d))", (n-9)/2, (n-9)%2)
}

// handing returns the statements with which a producer can write a payload; PAYLOAD is replaced by
// its SQL.
func handing() map[string]string {
	return map[string]string{
		"p_payload":           "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', PAYLOAD)",
		"with a key":          "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', PAYLOAD, p_idempotency_key => 'key ' || pg_catalog.gen_random_uuid())",
		"with a replay key":   "SELECT public.fn_job_enqueue('k', 'iu', 'Agent', PAYLOAD, p_idempotency_key => 'replay:' || pg_catalog.gen_random_uuid())",
		"many by replay keys": `SELECT public.fn_job_enqueue_many(pg_catalog.jsonb_build_array('{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb, '{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb || pg_catalog.jsonb_build_object('payload', PAYLOAD, 'idempotency_key', 'replay:' || pg_catalog.gen_random_uuid())))`,
		"many":                `SELECT public.fn_job_enqueue_many(pg_catalog.jsonb_build_array('{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb, '{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb || pg_catalog.jsonb_build_object('payload', PAYLOAD)))`,
		"many by keys":        `SELECT public.fn_job_enqueue_many(pg_catalog.jsonb_build_array('{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb, '{"job_kind": "k", "event_domain": "iu", "executor": "Agent"}'::jsonb || pg_catalog.jsonb_build_object('payload', PAYLOAD, 'idempotency_key', pg_catalog.gen_random_uuid())))`,
		"emit":                "SELECT public.fn_iu_emit_event('iu', 'made', 'update', 'immediate', 'info', 'unit', 'u', PAYLOAD)",
		"event_outbox":        "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload) VALUES ('iu', 'made', 'update', 'immediate', PAYLOAD)",
		"events":              "INSERT INTO public.events (event_type, payload) VALUES ('order', '{}'), ('order', PAYLOAD)",
	}
}

// A payload with as many bytes as the flag allows is accepted; one with a byte more is refused with
// its size. While the flag cannot be read, the default applies and no producer waits.
func TestPayloadsThatAreTooLongAreRefused(t *testing.T) {
	p := newProducing(t)
	with := func(sql string, n int) error {
		return p.with("BEGIN; SET LOCAL statement_timeout = '20s'", strings.ReplaceAll(sql, "PAYLOAD", payload(n)))
	}
	both := func(why string, most int) {
		t.Helper()
		for name, sql := range handing() {
			require.NoError(t, with(sql, most), "%s: %s", why, name)
			start := time.Now()
			err := with(sql, most+1)
			refused(t, "22023", err, why+": "+name)
			require.ErrorContains(t, err, fmt.Sprintf("has %d bytes as text, more than %d (queue.payload.max_bytes)", most+1, most))
			require.Less(t, time.Since(start), 10*time.Second, "%s: %s", why, name)
			if strings.HasPrefix(name, "many") {
				require.ErrorContains(t, err, "p_jobs[1].payload has")
			}
		}
	}
	require.Equal(t, 262144, get[int](p.core, "SELECT public.fn_cfg_int('queue.payload.max_bytes', 1)"))
	require.Equal(t, 1000, get[int](p.core, "SELECT octet_length(("+payload(1000)+")::text)"))
	both("by default", 262144)
	p.exec("UPDATE public.dot_config SET value = '20000' WHERE key = 'queue.payload.max_bytes'")
	both("as set", 20000)
	p.exec("UPDATE public.dot_config SET value = '1' WHERE key = 'queue.payload.max_bytes'")
	both("at the lower bound", 16384)
	p.exec("UPDATE public.dot_config SET value = 'garbage' WHERE key = 'queue.payload.max_bytes'")
	both("unreadable", 262144)

	p.exec("UPDATE public.dot_config SET value = '20000' WHERE key = 'queue.payload.max_bytes'")
	holder := p.db.Conn(t, "")
	for _, table := range []string{"dot_config", "dot_config_rule"} {
		require.NoError(t, pgx.BeginFunc(t.Context(), holder, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "LOCK TABLE public."+table+" IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)
			both(table+" is held", 262144)
			return nil
		}))
		p.exec("ALTER TABLE public." + table + " RENAME TO away")
		both(table+" is renamed", 20000) // the view then reads the renamed table
		p.exec("ALTER TABLE public.away RENAME TO " + table)
	}
}

// Payloads that were stored before there was a limit can still be claimed, and their dead letters can
// be replayed, also several at once.
func TestPayloadsThatWereStoredBeforeTheLimit(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("e", "", "", 0, 10)
	j.flag("queue.payload.max_bytes", "999999999")
	for range 2 {
		j.exec("SELECT public.fn_job_enqueue('k', 'd', 'external_worker', " + payload(300000) + ", p_max_attempts => 1)")
	}
	j.flag("queue.payload.max_bytes", "262144")
	_, err := j.work.Exec(t.Context(), "SELECT public.fn_job_enqueue('k', 'd', 'external_worker', "+payload(300000)+")")
	refused(t, "22023", err, "300000 bytes")
	require.Equal(t, "done", j.outcome("BROKE", j.take("e", 10)...))
	answer := call(t, j.work, "public.fn_job_dead_letter_replay(ARRAY(SELECT dead_letter_id FROM public.job_dead_letter), 'ann', 'again')")
	for _, r := range results(t, answer) {
		require.Equal(t, "replayed", r["outcome"], "%v", answer)
	}
	taken := j.take("e", 10)
	require.Len(t, taken, 2)
	require.Equal(t, "done", j.outcome("ack", taken...))
}

// A worker reads the payload of a leased job with a separate call, by the token of the lease and up
// to a number of bytes.
func TestPayloadOfALeasedJob(t *testing.T) {
	j := newJobs(t)
	j.jobSubscription("e", "", "", 0, 10)
	j.exec("SELECT public.fn_job_enqueue('k', 'd', 'external_worker', " + payload(20000) + ")")
	h := j.one("e")
	read := func(job, token string, most int) string {
		t.Helper()
		rows, err := j.work.Query(t.Context(), "SELECT pg_catalog.concat_ws(' ', bytes, pg_catalog.octet_length(payload)) FROM public.fn_job_payload($1::uuid, $2::uuid, $3::bigint)", job, token, most)
		require.NoError(t, err)
		return strings.Join(texts(t, rows), ",")
	}
	require.Equal(t, "20000 20000", read(h.Job, h.Token, 20000))
	require.Equal(t, "20000", read(h.Job, h.Token, 19999), "too long")
	require.Empty(t, read(h.Job, h.Job, 20000), "another token")
	require.Equal(t, "done", j.outcome("release", h))
	require.Empty(t, read(h.Job, h.Token, 20000), "its lease is gone")
}
