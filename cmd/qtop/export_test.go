package main

// Exports by the built program from a real database: more rows than a page has, masked payloads
// stay masked, and the console writes the same file as the verb.

import (
	"bytes"
	"encoding/csv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgtest"
	"github.com/qtop/qtop/pgclient/queue"
)

// About 25,000 dead letters of three sources fill three pages. The export has
// each of them exactly once, although many have the same time to the
// microsecond.
func TestExportOfManyDeadLetters(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	ctx := t.Context()
	require.NoError(t, deadLetters(ctx, conn, 400, "HTTP_503"))
	for _, sql := range []string{
		`INSERT INTO public.job_dead_letter (job_id, job_kind, event_domain, executor, attempts, failure_code, last_error, payload, first_failed_at, last_failed_at)
			SELECT gen_random_uuid(), 'k', 'kg', 'Agent', 1, 'HANDLER_ERROR', 'x', '{}', now(), now() - make_interval(secs => i / 1000) FROM generate_series(1, 12300) i`,
		`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
			SELECT gen_random_uuid(), '{"event_type": "made"}', i::text, 'ROUTE_22P02', 'x', 'iu', 'iu_outbound_default' FROM generate_series(1, 12300) i`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	var want []string
	require.NoError(t, conn.QueryRow(ctx, `SELECT array_agg(id ORDER BY id COLLATE "C") FROM (SELECT id::text FROM public.dead_letters
		UNION ALL SELECT 'job:' || dead_letter_id FROM public.job_dead_letter UNION ALL SELECT 'event:' || dead_letter_id FROM public.iu_route_dead_letter) x (id)`).Scan(&want))
	require.Len(t, want, 25_000)

	for _, filter := range [][]string{nil, {"--filter", "age<1d"}} {
		var out, errs bytes.Buffer
		cmd := qtop(t, db.DSN(operator(t, db)), append([]string{"export", "dlq"}, filter...)...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		require.NoError(t, cmd.Run(), errs.String())
		rows, err := csv.NewReader(&out).ReadAll()
		require.NoError(t, err)
		have := map[string]bool{}
		for _, r := range rows[1:] {
			require.False(t, have[r[0]], "%s twice", r[0])
			have[r[0]] = true
		}
		require.Len(t, have, len(want))
		for _, id := range want {
			require.True(t, have[id], id)
		}
		require.Regexp(t, `^qtop: dlq, 25000 rows as of \S+Z( to \S+Z)?\n$`, errs.String())
	}
}

// The tests know a set of secrets, each in several encodings. No export of any
// list in any format contains one, neither from a payload nor from the message
// of a handler or a receiver.
func TestExportMasks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t, "")
	ctx := t.Context()
	secret := regexp.MustCompile(`(?i)S3cr3tV4lue|4111111111111111|UzNjcjN0VjRsdWU`)
	raw, err := os.ReadFile("../../pgclient/schema/testdata/mask_hidden.jsonl")
	require.NoError(t, err)
	corpus := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(raw), "¦", "")), "\n")
	require.Greater(t, len(corpus), 100)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	require.NoError(t, deadLetters(ctx, conn, 1, "HTTP_500"))
	require.NoError(t, deadJobs(ctx, conn, 1, "kg.reindex", "kg"))
	exec(`UPDATE public.subscriptions SET callback_url = 'https://u:S3cr3tV4lue@h.example/hook?token=S3cr3tV4lue'`)
	exec(`INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')`)
	for _, payload := range corpus {
		exec(`INSERT INTO public.events (event_type, payload) VALUES ('t.HTTP_500', $1::jsonb)`, payload)
		exec(`SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL, jsonb_build_object('note', $1::text))`, payload)
	}
	exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
		SELECT id, to_jsonb(e), id::text, 'ROUTE_22P02', 'no route', 'iu', 'iu_outbound_default' FROM public.event_outbox e`)
	exec(`SELECT public.fn_webhook_router_run(10000), public.fn_saga_orchestrator_run(10000)`)
	exec(`SELECT public.fn_webhook_job_report(jsonb_agg(jsonb_build_object('job_id', job_id, 'lease_token', lease_token, 'delivered', false, 'code', 'HTTP_500',
		'excerpt', ($1::text[])[1 + job_id % array_length($1::text[], 1)]))) FROM public.fn_webhook_job_claim('test', 5000)`, corpus)
	exec(`SELECT public.fn_saga_orchestrator_run(10000)`)
	// Jobs with two outcomes: jobs of one kind become dead letters, jobs of the
	// other kind wait for their next attempt.
	exec(`SELECT public.fn_job_enqueue(k, 'kg', 'Agent', jsonb_build_object('said', p), p_max_attempts => CASE k WHEN 'dies' THEN 1 ELSE 5 END)
		FROM unnest($1::text[]) p, unnest(ARRAY['dies', 'waits']) k`, corpus)
	exec(`WITH c AS (SELECT array_agg(job_id) AS ids, array_agg(lease_token) AS tokens, array_agg(payload ->> 'said') AS said FROM public.fn_job_claim('undertaker', ARRAY['dies', 'waits'], 10000))
		SELECT f.* FROM c, public.fn_job_fail(c.ids, c.tokens, array_fill('HANDLER_ERROR'::text, ARRAY[cardinality(c.ids)]), c.said,
			array_fill(false, ARRAY[cardinality(c.ids)])) f`)
	var waits, dead int
	require.NoError(t, conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM public.job_queue WHERE status = 'retry_waiting' AND last_error <> ''),
		(SELECT count(*) FROM public.dead_letter_open) + (SELECT count(*) FROM public.job_dead_letter) + (SELECT count(*) FROM public.iu_route_dead_letter)`).Scan(&waits, &dead))
	require.Equal(t, len(corpus), waits)
	require.Greater(t, dead, 3*len(corpus))

	dsn := db.DSN(operator(t, db))
	formats := []string{"csv", "json", "jsonl"}
	for i, l := range queue.ExportLists() {
		of := formats
		if os.Getenv("QTOP_TEST_FULL") == "" { // each format has some of the lists
			of = formats[i%len(formats) : i%len(formats)+1]
		}
		for _, format := range of {
			args := []string{"export", l.Name, "-o", format}
			switch {
			case l.Name == "operation-items":
				continue // this database has no bulk operation to export
			case l.Of != "" && !l.Optional:
				args = append(args, "--id", "webhook.max_attempts")
			}
			out, err := qtop(t, dsn, args...).CombinedOutput()
			require.NoError(t, err, "%s: %s", args, out)
			require.NotRegexp(t, secret, string(out), "%s", args)
			if l.Name == "jobs" || l.Name == "dlq" {
				require.Contains(t, string(out), "HANDLER_ERROR")
			}
		}
	}
}

// Key x writes the same file as qtop export, and refuses a second file of the
// same name.
func TestExportFromTheScreen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	require.NoError(t, deadLetters(t.Context(), db.Conn(t, ""), 250, "HTTP_503")) // more than one page of the console
	dsn := db.DSN(operator(t, db))
	dir := t.TempDir()
	s := open(t, dsn)
	s.until("NO HOST")
	s.keys("5")
	s.until("http_503.example")
	s.keys(enter)
	s.until("of 250 rows")
	s.keys("x")
	s.until("export 250 of dlq to qtop-dlq-")
	s.keys("\x1b")
	s.gone("export 250 of dlq")
	file := filepath.Join(dir, "a.csv")
	s.keys(":", "export "+file, enter)
	s.until("250 of dlq → ")
	mine, err := os.ReadFile(file)
	require.NoError(t, err)
	st, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), st.Mode())

	twin := filepath.Join(dir, "twin.csv")
	out, err := qtop(t, dsn, "export", "dlq", twin, "--filter", "code:HTTP_503").CombinedOutput()
	require.NoError(t, err, string(out))
	theirs, err := os.ReadFile(twin)
	require.NoError(t, err)
	require.Equal(t, ageless(t, theirs), ageless(t, mine))
	require.Equal(t, 251, bytes.Count(mine, []byte("\n")))

	s.keys(":", "export "+file, enter)
	s.until("export: the file exists")
	again, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, mine, again)
	s.keys("q")
	s.ends()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}

// ageless returns the rows of a CSV file without the column age_seconds, which
// differs between two exports.
func ageless(t *testing.T, file []byte) [][]string {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(file)).ReadAll()
	require.NoError(t, err)
	age := slices.Index(rows[0], "age_seconds")
	require.GreaterOrEqual(t, age, 0, "%s", rows[0])
	for i := range rows {
		rows[i] = slices.Delete(rows[i], age, age+1)
	}
	return rows
}
