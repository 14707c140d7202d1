// Revealing a payload: each reveal makes an audit row, and a line in the server's log that remains
// if the caller rolls back. A login that may only view can reveal nothing.

package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// secretive is a database in which every column that can hold a payload contains the word hidden.
func secretive(t *testing.T) (*jobs, map[string]string) {
	t.Helper()
	j := newJobs(t)
	j.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	j.exec(`SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL, '{"n": 1, "api_key": "hidden-1"}')`)
	j.exec(`INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
		SELECT e.id, to_jsonb(e), 'k', 'ROUTE_XX000', public.fn_mask_said('token=hidden-2 is wrong'), 'iu', 'iu_outbound_default' FROM public.event_outbox e`)
	j.exec("INSERT INTO public.subscriptions (event_type, callback_url, verified) VALUES ('order', 'https://h.example/x', true)")
	j.exec(`INSERT INTO public.events (event_type, payload) VALUES ('order', '{"n": 1, "api_key": "hidden-3"}')`)
	j.jobSubscription("w", "", "", 0, 10)
	call(t, j.work, `public.fn_job_enqueue('k', 'iu', 'external_worker', '{"n": 1, "api_key": "hidden-4"}', p_max_attempts => 1)`)
	h := j.one("w")
	_, err := j.work.Exec(context.Background(), "SELECT public.fn_job_fail($1, $2, '{X}', $3, '{false}')", []string{h.Job}, []string{h.Token},
		[]string{`refused {"n": 1, "api_key": "hidden-5"}`})
	require.NoError(t, err)
	j.exec("ANALYZE")
	ids := map[string]string{}
	for kind, sql := range map[string]string{"event": "SELECT id::text FROM public.events", "event_outbox": "SELECT id::text FROM public.event_outbox",
		"event_dead_letter": "SELECT dead_letter_id::text FROM public.iu_route_dead_letter", "job": "SELECT job_id::text FROM public.job_history",
		"job_dead_letter": "SELECT dead_letter_id::text FROM public.job_dead_letter"} {
		ids[kind] = get[string](j.core, sql)
	}
	return j, ids
}

type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func reveal(t *testing.T, q asker, kind, id, actor, reason string) map[string]any {
	t.Helper()
	var raw []byte
	require.NoError(t, q.QueryRow(context.Background(), "SELECT public.fn_payload_reveal($1, $2, $3, $4)", kind, id, actor, reason).Scan(&raw))
	var out map[string]any
	require.NoError(t, json.Unmarshal(raw, &out))
	return out
}

func TestRevealAuditsFirst(t *testing.T) {
	j, ids := secretive(t)
	for role, kinds := range map[string][]string{"dead_letter_operator": {"event", "job_dead_letter", "event_dead_letter"}, "workflow_admin": {"event_outbox", "job"}} {
		pool := j.as(role)
		for _, kind := range kinds {
			got := reveal(t, pool, kind, ids[kind], "ann", "why not")
			require.Contains(t, fmt.Sprint(got["payload"]), "hidden", kind)
			require.Equal(t, "ann payload_reveal why not done", get[string](j.core,
				"SELECT actor || ' ' || action || ' ' || reason || ' ' || outcome FROM public.queue_operator_action WHERE id = $1", got["audit_id"]))
		}
	}
	require.Equal(t, 5, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE action = 'payload_reveal'"), "one row each")

	operator, uuid := j.as("dead_letter_operator"), ids["job_dead_letter"]
	for _, form := range [][3]string{{"event", "00" + ids["event"], ids["event"]}, {"event", " +" + ids["event"] + " ", ids["event"]},
		{"event", strings.Repeat("0", 100_000) + ids["event"], ids["event"]}, {"dead_letter", "007", "7"}, {"job_dead_letter", strings.ToUpper(uuid), uuid},
		{"job_dead_letter", "{" + uuid + "}", uuid}, {"job_dead_letter", strings.ReplaceAll(uuid, "-", ""), uuid}} {
		got := reveal(t, operator, form[0], form[1], "ann", "why not")
		require.Equal(t, form[0]+" "+form[2], get[string](j.core, "SELECT target FROM public.queue_operator_action WHERE id = $1", got["audit_id"]), "the audit names the row")
	}
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action a WHERE a::text LIKE '%hidden%'"), "the audit holds none of it")
}

// If a transaction is rolled back, its audit row is lost too, but the server's log still has who
// saw which payload and why. A client can ask for a copy of the log line.
func TestRevealThatIsRolledBackIsLogged(t *testing.T) {
	j, ids := secretive(t)
	pool := j.as("dead_letter_operator")
	ctx := context.Background()
	id := ids["job_dead_letter"]
	config := pool.Config().ConnConfig.Copy()
	var told []string
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { told = append(told, n.Severity+" "+n.Message) }
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, sql := range []string{"SET client_min_messages = log", "BEGIN", "SELECT public.fn_payload_reveal('job_dead_letter', '" + id + "', 'eve', 'quiet''ly')", "ROLLBACK"} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err, sql)
	}
	require.Zero(t, get[int](j.core, "SELECT count(*) FROM public.queue_operator_action WHERE actor = 'eve'"))
	require.Contains(t, strings.Join(told, "\n"), "LOG qtop: payload reveal: 'eve' as ")
	require.Contains(t, strings.Join(told, "\n"), "of 'job_dead_letter "+id+"', because 'quiet''ly'")
	require.NotContains(t, strings.Join(told, "\n"), "hidden")

	got := reveal(t, pool, "job_dead_letter", "0190a1b2-1111-4222-8333-0123456789ab", "ann", "x")
	require.Equal(t, "not_found", got["rule"])
	for _, bad := range []string{"'job', '1', 'a', 'b'", "'nothing', '1', 'a', 'b'", "'job', '" + ids["job"] + "', '', 'b'", "'job', '" + ids["job"] + "', 'a', ' '"} {
		fails(t, pool, "22023", "SELECT public.fn_payload_reveal("+bad+")")
	}
	ro, err := pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	_, err = ro.Exec(ctx, "SELECT public.fn_payload_reveal('job_dead_letter', $1, 'ann', 'read only')", id)
	refused(t, "25006", err, "a read-only transaction cannot write the row")
	require.NoError(t, ro.Rollback(ctx))
}

// Every way in which a login with only queue_viewer could reach a payload is tried.
func TestViewerHasNoWayToAPayload(t *testing.T) {
	j, ids := secretive(t)
	viewer := j.as("queue_viewer")
	ctx := context.Background()
	for kind, id := range ids {
		fails(t, viewer, "42501", "SELECT public.fn_payload_reveal($1, $2, 'eve', 'let me')", kind, id)
		fails(t, viewer, "42501", "SELECT public.fn_payload_raw($1, $2)", kind, id)
		for _, form := range []string{"EXPLAIN ANALYZE SELECT public.fn_payload_reveal('%s', '%s', 'e', 'e')", "CREATE TEMP TABLE x AS SELECT public.fn_payload_raw('%s', '%s')"} {
			fails(t, viewer, "42501", fmt.Sprintf(form, kind, id))
		}
	}
	for table, columns := range map[string][]string{
		"events": {"payload"}, "dead_letters": {"payload_snapshot"}, "event_outbox": {"safe_payload"}, "job_queue": {"payload"}, "job_history": {"payload"},
		"v_job": {"payload"}, "job_dead_letter": {"payload"}, "iu_route_dead_letter": {"event_snapshot"}, "webhook_delivery_jobs": {"response_excerpt"},
		"queue_snapshot": {"body"},
	} {
		for _, c := range columns {
			for _, sql := range []string{"SELECT %[2]s FROM %[1]s", "SELECT * FROM %[1]s", "SELECT x FROM %[1]s x", "SELECT to_jsonb(x) FROM %[1]s x",
				"SELECT count(*) FROM %[1]s WHERE %[2]s::text LIKE '%%hidden%%'", "SELECT 1 FROM %[1]s ORDER BY %[2]s", "SELECT max(length(%[2]s::text)) FROM %[1]s",
				"SELECT (x).%[2]s FROM %[1]s x", "SELECT query_to_xml('SELECT %[2]s FROM %[1]s', true, false, '')", "SELECT table_to_xml('%[1]s', true, false, '')",
				"CREATE TEMP VIEW mine AS SELECT %[2]s FROM %[1]s; SELECT * FROM mine"} {
				_, err := viewer.Exec(ctx, fmt.Sprintf(sql, "public."+table, c))
				refused(t, "42501", err, fmt.Sprintf(sql, "public."+table, c))
			}
		}
	}
	// All that the login may read, read as whole rows.
	var all strings.Builder
	for _, name := range readable(t, viewer) {
		var text string
		require.NoError(t, viewer.QueryRow(ctx, "SELECT COALESCE(string_agg(v::text, ' '), '') FROM (SELECT "+name[1]+" FROM public."+name[0]+") v").Scan(&text), name[0])
		all.WriteString(text)
	}
	for _, sql := range []string{"SELECT COALESCE(string_agg(s::text, ' '), '') FROM pg_stats s", "SELECT public.fn_queue_snapshot('0')::text",
		"SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE usename = current_user"} {
		var text string
		require.NoError(t, viewer.QueryRow(ctx, sql).Scan(&text), sql)
		all.WriteString(text)
	}
	for kind, id := range ids {
		var text string
		require.NoError(t, viewer.QueryRow(ctx, "SELECT public.fn_payload_masked($1, $2)::text", kind, id).Scan(&text))
		require.Contains(t, text, `"n": 1`)
		all.WriteString(text)
	}
	require.NotContains(t, all.String(), "hidden")
	require.Contains(t, all.String(), "refused {", "the last error is there")
	// The error messages of functions contain no payload.
	for _, sql := range []string{"SELECT public.fn_payload_masked('job', 'hidden')", "SELECT public.fn_payload_masked('event', '1 OR 1')"} {
		_, err := viewer.Exec(ctx, sql)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hidden-")
	}
}

// readable lists every relation with the columns that this login may read.
func readable(t *testing.T, pool *pgxpool.Pool) (out [][2]string) {
	t.Helper()
	rows, err := pool.Query(context.Background(), `SELECT c.relname, string_agg(quote_ident(a.attname), ', ')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE `+publicRelations+` AND c.relkind IN ('r', 'p', 'v') AND has_column_privilege(c.oid, a.attnum, 'SELECT') GROUP BY 1`)
	require.NoError(t, err)
	for rows.Next() {
		var r [2]string
		require.NoError(t, rows.Scan(&r[0], &r[1]))
		out = append(out, r)
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(out), 30)
	return out
}
