// Rows that the code relies on: rows.txt lists those that seeds.sql inserts, doctor names those that
// are missing, migrate up puts them back, and a loop that meets a missing row names it.

package schema_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/pgrow"
	"github.com/qtop/qtop/pgclient/schema"
)

const rowsHead = `# The rows that seeds.sql inserts: table, columns of the key and their values, divided by tabs. qtop doctor names those that
# a database lacks, and migrate up puts them back. Written by make docs.
`

// seeds returns the text of the seeds.
func seeds(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("seeds.sql")
	require.NoError(t, err)
	return string(text)
}

// unguarded returns a connection as superuser whose statements fire no trigger that audits or checks
// keys, like those of a restore of some tables.
func (c *core) unguarded() *pgx.Conn {
	c.t.Helper()
	conn := c.db.Conn(c.t, "")
	_, err := conn.Exec(c.t.Context(), "SET session_replication_role = replica")
	require.NoError(c.t, err)
	return conn
}

// rows.txt lists the rows that a database has in which only the seeds have inserted any.
func TestRowsOfTheRelease(t *testing.T) {
	c := newCore(t)
	tx, err := c.unguarded().Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	keys := map[string]string{} // by table; "" = it has none
	var table, columns string
	require.NoError(t, pgrow.Visit(t.Context(), tx, []any{&table, &columns}, func() { keys[table] = columns }, `
		SELECT c.relname::text, COALESCE((SELECT string_agg(a.attname, ',' ORDER BY k.n) FROM pg_constraint o CROSS JOIN unnest(o.conkey) WITH ORDINALITY k (attnum, n)
			JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum WHERE o.conrelid = c.oid AND o.contype = 'p'), '')
		FROM pg_class c WHERE `+publicRelations+` AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND c.relname !~ '^qtop_schema_' AND c.relname <> 'queue_identity'`)) // qtop adopt writes the identity, and why it is missing
	require.Greater(t, len(keys), 60)
	for table := range keys {
		_, err := tx.Exec(t.Context(), "DELETE FROM public."+table)
		require.NoError(t, err)
	}
	_, err = tx.Exec(t.Context(), "SET LOCAL session_replication_role = origin; SET LOCAL ROLE queue_owner; SET LOCAL search_path = pg_catalog, pg_temp;\n"+seeds(t))
	require.NoError(t, err)
	var lines []string
	for table, columns := range keys {
		if columns == "" {
			columns = "NULL::text"
		}
		all, err := pgrow.Column[string](t.Context(), tx, "SELECT concat_ws(E'\\t', "+columns+") FROM public."+table)
		require.NoError(t, err)
		for _, key := range all {
			lines = append(lines, table+"\t"+columns+"\t"+key)
		}
	}
	slices.Sort(lines)
	got := rowsHead + strings.Join(lines, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("rows.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("rows.txt")
	require.NoError(t, err)
	require.Equal(t, string(want), got, "rows.txt is not as the seeds are: make docs")
}

// missingRows returns what doctor names.
func missingRows(t *testing.T, conn *pgx.Conn) (out []string) {
	t.Helper()
	missing, same, err := schema.MissingRows(t.Context(), conn)
	require.NoError(t, err)
	require.True(t, same)
	for _, m := range missing {
		out = append(out, m.String())
	}
	return out
}

// Each row of the seeds, without the other rows of its table being missing, is named and put back. migrate up
// puts back all rows of a table, and names them; rows that exist and what operators have set stay as they are.
func TestMissingRowsArePutBack(t *testing.T) {
	c := newCore(t)
	conn := c.unguarded()
	look := c.db.Conn(t, "")
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	runSeeds := "SET session_replication_role = origin; SET ROLE queue_owner; SET search_path = pg_catalog, pg_temp;\n" + seeds(t) + "\n;RESET ROLE; RESET search_path; SET session_replication_role = replica"
	declared, err := os.ReadFile("rows.txt")
	require.NoError(t, err)
	type row struct{ name, where string }
	tables := map[string][]row{}
	for line := range strings.Lines(string(declared)) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) < 3 {
			continue
		}
		table, columns, key := parts[0], parts[1], parts[2:]
		name := table + " " + strings.Join(key, "/")
		if columns == "id" || columns == "one" {
			name = table
		}
		tables[table] = append(tables[table], row{name, "(" + columns + ") = ('" + strings.Join(key, "', '") + "')"})
	}
	names := slices.Sorted(maps.Keys(tables))
	for i := range len(tables["dot_config"]) { // no table has more
		var want []string
		for n, table := range names { // n: other tables lack rows of other names
			if i < len(tables[table]) {
				r := tables[table][(i+n)%len(tables[table])]
				exec("DELETE FROM public." + table + " WHERE " + r.where)
				want = append(want, r.name)
			}
		}
		require.NotEmpty(t, want)
		require.Equal(t, want, missingRows(t, look))
		exec(runSeeds)
		require.Empty(t, missingRows(t, look), want)
	}
	require.Subset(t, names, []string{"dot_config", "dot_config_rule", "dot_iu_runtime_lease", "event_class_state", "event_type_registry", "iu_outbound_route", "queue_cron_job", "queue_heartbeat", "queue_partitioned", "queue_tick_worker", "router_offsets"})
	require.Contains(t, string(declared), "\tjob_watermark\n", "a lease of a migration")

	require.Contains(t, up(t, c.db, schema.Current()), "already")
	c.exec("SELECT public.fn_dot_config_set('webhook.max_attempts', '7', 'ann', 'mine')")
	c.exec("DELETE FROM public.event_subscription")
	c.exec("UPDATE public.event_type_registry SET active = false WHERE event_type = 'queue_worker_silent'")
	c.exec("UPDATE public.dot_iu_runtime_lease SET lease_holder = 'ben' WHERE lease_name = 'recount'")
	const kept = `SELECT concat_ws(' ', (SELECT value FROM public.dot_config WHERE key = 'webhook.max_attempts'), (SELECT count(*) FROM public.event_subscription),
		(SELECT active FROM public.event_type_registry WHERE event_type = 'queue_worker_silent'),
		(SELECT lease_holder FROM public.dot_iu_runtime_lease WHERE lease_name = 'recount'))`
	require.Equal(t, "7 0 f ben", get[string](c, kept))
	declaredAs := func(table string) string {
		if !slices.Contains([]string{"dot_config_rule", "queue_cron_job", "queue_partitioned"}, table) {
			return ""
		}
		return get[string](c, "SELECT string_agg(to_jsonb(x)::text, ' ' ORDER BY to_jsonb(x)::text) FROM public."+table+" x")
	}
	for _, table := range names {
		had := declaredAs(table)
		keep := map[string]string{"dot_config": "key = 'webhook.max_attempts'", "event_type_registry": "event_type = 'queue_worker_silent'", "dot_iu_runtime_lease": "lease_name = 'recount'"}[table]
		if keep == "" {
			keep = "false"
		}
		exec("DELETE FROM public." + table + " WHERE NOT (" + keep + ")")
		lacks := missingRows(t, look)
		require.Len(t, lacks, 1, table)
		said := up(t, c.db, schema.Current())
		require.Contains(t, said, "row missing, put back: "+lacks[0], table)
		require.Empty(t, missingRows(t, look), table)
		require.Equal(t, had, declaredAs(table), table)
		require.Equal(t, "7 0 f ben", get[string](c, kept), table)
	}
	require.Contains(t, up(t, c.db, schema.Current()), "already")
	require.Empty(t, differences(t, look))
}

// A loop whose row is missing says which, and what to do; it does not say that another session is busy.
func TestMissingRowsAreSaid(t *testing.T) {
	j := newJobs(t)
	c := j.core
	says := func(row string) string {
		return "the row " + row + " is missing, as after a restore of some tables or a DELETE: run qtop migrate up, which puts it back"
	}
	fails := func(line, sql string) {
		t.Helper()
		_, err := c.root.Exec(t.Context(), sql)
		require.ErrorContains(t, err, line, sql)
		require.NotContains(t, err.Error(), "busy")
	}
	held := c.begin(c.root)
	_, err := held.Exec(t.Context(), "SELECT FROM public.router_offsets FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, "busy", call(t, c.root, "public.fn_webhook_router_run()")["skipped"], "while another session holds the row")
	require.NoError(t, held.Rollback(t.Context()))

	c.exec("DELETE FROM public.router_offsets")
	fails(says("router_offsets"), "SELECT public.fn_webhook_router_run()")
	for _, source := range []string{"operator", "wake"} {
		got := tick(t, c, "webhook_router", source)
		require.Contains(t, got["error"], says("router_offsets"), "%s: %v", source, got)
		require.Equal(t, true, got["failed"])
	}
	require.Contains(t, get[string](c, "SELECT why FROM public.v_queue_scheduler_status WHERE worker_name = 'webhook_router'"), says("router_offsets"))

	c.exec("DELETE FROM public.event_class_state")
	fails(says("event_class_state"), "SELECT public.fn_event_classes_roll()")
	fails(says("event_class_state"), "SELECT public.fn_event_broadcast()")

	j.watermarksWanted()
	c.exec("INSERT INTO public.job_watermark_below VALUES ('', '', now())")
	j.put("k", "iu", 1)
	c.exec("DELETE FROM public.dot_iu_runtime_lease")
	for worker, call := range map[string]string{
		"job_watermark": "fn_job_watermark_advance()", "retention_sweep": "fn_queue_retention_sweep()", "metrics_sampler": "fn_metrics_sampler_run()",
		"iu_notification_worker": "fn_iu_notification_worker_tick()", "partitions": "fn_queue_partitions_ensure()", "queue_mark": "fn_queue_mark('deploy', 'ann')",
		"webhook_router": "fn_queue_tick_request('webhook_router', 'operator')", "recount": "fn_queue_recount('ann', 'why', false)",
	} {
		fails(says("dot_iu_runtime_lease "+worker), "SELECT public."+call)
	}
	require.Equal(t, says("dot_iu_runtime_lease job_watermark"), call(t, c.root, "public.fn_job_tick()")["error"])
	require.Equal(t, says("dot_iu_runtime_lease lease_reaper"), get[string](c, "SELECT public.fn_queue_tick_why('lease_reaper')"))
	require.Equal(t, false, get[bool](c, "SELECT (public.fn_queue_snapshot(interval '5 seconds') ->> 'shared')::boolean"))
	fails("there is no tick worker 'x'", "SELECT public.fn_queue_tick_request('x')")

	up(t, c.db, schema.Current())
	require.Equal(t, 0, num(call(t, c.root, "public.fn_webhook_router_run()"), "events"))
	require.Equal(t, true, tick(t, c, "webhook_router", "operator")["ran"])
	require.NotContains(t, call(t, c.root, "public.fn_job_tick()"), "error")
}

// A router whose row was put back makes the webhooks of the events that it has not read, and none twice
// or of events that it had passed.
func TestRouterRowPutBack(t *testing.T) {
	h := newHooks(t)
	h.subscribe("order")
	late := h.subscribe("order")
	h.exec("UPDATE public.subscriptions SET active = false WHERE id = $1", late)
	h.emit("order", 3)
	require.Equal(t, 3, h.route())
	h.exec("UPDATE public.subscriptions SET active = true WHERE id = $1", late)
	require.NoError(t, h.asOwner("SELECT public.fn_event_emit('system', 'queue_worker_silent', 'alert', 'immediate', 'info', NULL, NULL, '{}', NULL, NULL, now())"))
	counted := "SELECT COALESCE(sum(n), 0)::int FROM public.event_class_count WHERE span = 'hour'"
	h.exec("SELECT public.fn_event_classes_roll()")
	had := one[int](h, counted)
	require.Positive(t, had)
	conn := (&core{t: t, db: h.db}).unguarded()
	_, err := conn.Exec(t.Context(), "DELETE FROM public.router_offsets; DELETE FROM public.event_class_state")
	require.NoError(t, err)
	h.emit("order", 2)
	said := up(t, h.db, schema.Current())
	require.Contains(t, said, "row missing, put back: router_offsets")
	require.Contains(t, said, "row missing, put back: event_class_state")
	for done := false; !done; {
		got := h.call("public.fn_webhook_router_run()")
		done = got["skipped"] == nil && num(got, "events") == 0
	}
	require.Equal(t, 3+2*2, one[int](h, "SELECT count(*) FROM public.webhook_delivery_sagas"))
	h.emit("order", 1)
	require.Equal(t, 2, h.route())
	h.exec("SELECT public.fn_event_classes_roll()")
	require.Equal(t, had, one[int](h, counted), "none is counted twice")
}
