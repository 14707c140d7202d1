// event_outbox: what may be written, and that no row is ever changed.

package schema_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/qtop/qtop/pgclient/schema"
)

func TestOutboxAdmits(t *testing.T) {
	c := newCore(t)
	writer := c.as("event_ingest_writer")
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate', NULL, true), ('iu', 'old', 's', 'immediate', NULL, false)")
	insert := func(domain, kind, payload string) error {
		_, err := writer.Exec(context.Background(), `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, safe_payload)
			VALUES ($1, $2, 's', 'immediate', $3)`, domain, kind, payload)
		return err
	}
	require.NoError(t, insert("iu", "made", `{"ref": 1}`))
	for _, unknown := range [][2]string{{"iu", "other"}, {"kg", "made"}, {"iu", "old"}, {"iu", "MADE"}} {
		refused(t, "23503", insert(unknown[0], unknown[1], "{}"), fmt.Sprint(unknown))
	}
	for _, key := range []string{"body", "content", "raw", "vector", "embedding", "secret", "token", "password", "ssn", "personal_data"} {
		refused(t, "23514", insert("iu", "made", `{"ok": 1, "`+key+`": null}`), key)
		_, err := writer.Exec(context.Background(), "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL, jsonb_build_object($1::text, 1))", key)
		refused(t, "23514", err, key)
	}
	refused(t, "23514", insert("iu", "made", `["body"]`), "no object")

	// A writer cannot choose the time and the transaction id of a row.
	for _, column := range []string{"created_at", "created_xid"} {
		fails(t, writer, "42501", "INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, "+column+") VALUES ('iu', 'made', 's', 'immediate', NULL)")
	}
	require.True(t, get[bool](c, `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, created_at, created_xid)
		VALUES ('iu', 'made', 's', 'immediate', now() + interval '1 millisecond', '3') RETURNING created_at = now() AND created_xid = pg_current_xact_id()`))
	fails(t, c.root, "0A000", `INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, created_at)
		VALUES ('iu', 'made', 's', 'immediate', '2020-01-01')`)

	got := call(t, writer, `public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'warning', 'units', '7', '{"n": 1}', 'user:ann', 'c1', '2024-05-01Z')`)
	require.Equal(t, "iu made warning units 7 user:ann c1 2024", get[string](c, `SELECT concat_ws(' ', event_domain, event_type, event_severity,
		event_subject_table, event_subject_ref, actor_ref, correlation_id, extract(year FROM occurred_at)) FROM public.event_outbox WHERE id = $1`, got["event_id"]))
	fails(t, writer, "23503", "SELECT public.fn_iu_emit_event('iu', 'nope', 's', 'immediate', 'info', NULL, NULL)")
	fails(t, c.as("queue_viewer", "dot_executor"), "42501", "SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	fails(t, writer, "42501", "INSERT INTO public.event_type_registry VALUES ('iu', 'mine', 's', 'immediate')")
	fails(t, writer, "42501", "SELECT safe_payload FROM public.event_outbox")
}

func TestOutboxImmutable(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	leaves := get[[]string](c, "SELECT array_agg(relid::regclass::text) FROM pg_partition_tree('public.event_outbox')")
	require.Len(t, leaves, 9, "the parent, seven months and the default")
	filled := get[string](c, "SELECT tableoid::regclass::text FROM public.event_outbox")
	for _, role := range []string{"", "SET LOCAL ROLE queue_owner; "} {
		for _, leaf := range leaves {
			fails(t, c.root, "42501", role+"TRUNCATE "+leaf)
		}
		for _, table := range []string{"public.event_outbox", filled} {
			fails(t, c.root, "42501", role+"UPDATE "+table+" SET event_severity = 'critical'")
			fails(t, c.root, "42501", role+"DELETE FROM "+table)
		}
	}
	require.Equal(t, 1, get[int](c, "SELECT count(*) FROM public.event_outbox"))
}

// Coming months have a partition. Rows that are in the default partition move when the partition of
// their month is made.
func TestOutboxPartitions(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('iu', 'made', 's', 'immediate')")
	month := get[string](c, "SELECT 'public.event_outbox_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')")
	for ahead := range 7 {
		require.NotNil(t, get[*string](c, "SELECT to_regclass('public.event_outbox_' || to_char((now() AT TIME ZONE 'UTC') + make_interval(months => $1), 'YYYY_MM'))::text", ahead))
	}
	require.EqualValues(t, 0, call(t, c.as("dot_executor"), "public.fn_queue_partitions_ensure()")["created"])
	c.exec("DROP TABLE " + month)
	for range 3 {
		c.exec("SELECT public.fn_iu_emit_event('iu', 'made', 's', 'immediate', 'info', NULL, NULL)")
	}
	require.Equal(t, "public.event_outbox_default", get[string](c, "SELECT DISTINCT tableoid::regclass::text FROM public.event_outbox"))
	require.Equal(t, "stale", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE source = 'default_partition'"))
	before := get[string](c, "SELECT string_agg(e::text, ';' ORDER BY id) FROM public.event_outbox e")
	pool := c.wide(4, "dot_executor")
	got := together(t, 4, func(int) (map[string]any, error) { return tryCall(pool, "public.fn_queue_partitions_ensure()") })
	require.Equal(t, 1, count(got, "created", float64(1)))
	require.Equal(t, 1, count(got, "moved", float64(3)))
	require.Equal(t, month, get[string](c, "SELECT DISTINCT tableoid::regclass::text FROM public.event_outbox"))
	require.Equal(t, before, get[string](c, "SELECT string_agg(e::text, ';' ORDER BY id) FROM public.event_outbox e"))
	for _, table := range []string{month, "public.event_outbox_default"} {
		fails(t, c.root, "42501", "TRUNCATE "+table)
	}
	fails(t, c.root, "42501", "DELETE FROM public.event_outbox")
	fails(t, c.as("event_ingest_writer"), "42501", "INSERT INTO "+month+" (event_domain, event_type, event_stream, delivery_lane) VALUES ('iu', 'made', 's', 'immediate')")
}

// A partition made by hand, or a detached one, keeps that partition alone from
// being made; rows of its time are stored in the default partition. The result says what is in the way
// and what to do, and the quarantine names it until it is gone.
func TestPartitionInTheWay(t *testing.T) {
	c := newCore(t)
	day := func(n int, form string) string {
		return get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC' + make_interval(days => $1), $2)", n, form)
	}
	var leaves, dates []string
	for n := range 4 {
		leaves, dates = append(leaves, "queue_metric_sample_"+day(n+1, "YYYY_MM_DD")), append(dates, day(n+1, "YYYY-MM-DD"))
		c.exec("DROP TABLE public." + leaves[n])
	}
	month := "event_outbox_" + get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 month', 'YYYY_MM')")
	c.exec("ALTER TABLE public.event_outbox DETACH PARTITION public." + month)
	c.exec(fmt.Sprintf("CREATE TABLE public.by_hand PARTITION OF public.queue_metric_sample FOR VALUES FROM ('%s 00:00Z') TO ('%[1]s 06:00Z')", dates[1]))
	c.exec("CREATE TYPE public." + leaves[3] + " AS ENUM ()")
	c.exec(fmt.Sprintf("CREATE TABLE public.whole PARTITION OF public.queue_metric_sample FOR VALUES FROM ('%s 00:00Z') TO ('%s 00:00Z')", dates[3], day(5, "YYYY-MM-DD")))
	for n := range 3 {
		c.exec("INSERT INTO public.queue_metric_sample (at, metric, value) VALUES ($1::timestamptz, 'x', 1)", dates[n]+" 12:00Z")
	}
	const stored = "SELECT string_agg(tableoid::regclass::text, ',' ORDER BY at) FROM public.queue_metric_sample WHERE metric = 'x'"
	require.Equal(t, strings.Repeat(",public.queue_metric_sample_default", 3)[1:], get[string](c, stored))

	sweep := call(t, c.as("dot_executor"), "public.fn_queue_retention_sweep()")
	require.EqualValues(t, 2, sweep["created"], sweep)
	require.EqualValues(t, 2, sweep["moved"], sweep)
	require.Equal(t, "public."+leaves[0]+",public.queue_metric_sample_default,public."+leaves[2], get[string](c, stored))
	bounds := func(from, to string) string {
		return fmt.Sprintf("FOR VALUES FROM ('%s 00:00:00+00') TO ('%s:00:00+00')", from, to)
	}
	want := map[string]string{
		leaves[1]: "failed: partition " + leaves[1] + " of queue_metric_sample cannot be made: partition public.by_hand overlaps it (" + bounds(dates[1], dates[1]+" 06") +
			"); ALTER TABLE public.queue_metric_sample DETACH PARTITION public.by_hand; its rows are not seen then",
		leaves[3]: "failed: partition " + leaves[3] + " of queue_metric_sample cannot be made: partition public.whole overlaps it (" + bounds(dates[3], day(5, "YYYY-MM-DD")+" 00") +
			"); rename the object that has its name; ALTER TABLE public.whole RENAME TO " + leaves[3],
		month: "failed: partition " + month + " of event_outbox cannot be made: another object has its name; rename it; if it is the partition, detached by hand: " +
			"ALTER TABLE public.event_outbox ATTACH PARTITION public." + month + " " + bounds(get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 month', 'YYYY-MM-01')"),
			get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '2 months', 'YYYY-MM-01')")+" 00"),
	}
	for leaf, why := range want {
		require.Equal(t, why, sweep["kept"].(map[string]any)[leaf])
		require.Equal(t, strings.TrimPrefix(why, "failed: "), get[string](c, "SELECT error FROM public.queue_quarantine WHERE step = 'partitions' AND target = $1", leaf))
	}
	var said []string
	require.NoError(t, schema.Up(t.Context(), c.db.DSN(""), func(line string) { said = append(said, line) }))
	for _, why := range want {
		require.Contains(t, said, "partitions: "+strings.TrimPrefix(why, "failed: "))
	}

	c.exec("ALTER TABLE public.queue_metric_sample DETACH PARTITION public.by_hand")
	c.exec("ALTER TYPE public." + leaves[3] + " RENAME TO other")
	c.exec("ALTER TABLE public.whole RENAME TO " + leaves[3])
	c.exec(want[month][strings.Index(want[month], "ALTER"):])
	sweep = call(t, c.as("dot_executor"), "public.fn_queue_retention_sweep()")
	require.EqualValues(t, 1, sweep["created"], sweep)
	require.Equal(t, "public."+strings.Join(leaves[:3], ",public."), get[string](c, stored))
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.queue_quarantine"))
}

// The partitions have the same bounds whatever time zone and form of dates the session has, and a
// row that another session has set aside is recognised by its time.
func TestOutboxPartitionsOfAnySession(t *testing.T) {
	c := newCore(t)
	const bounds = `SELECT string_agg(c.relname || ' ' || pg_get_expr(c.relpartbound, c.oid), ',' ORDER BY c.relname)
		FROM pg_class c WHERE c.relispartition AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`
	before := get[string](c, bounds)
	c.exec("INSERT INTO public.queue_past_picture (taken_at, took_ms, body) VALUES ('2020-01-01Z', 1, '{}')")
	conn := c.db.Conn(t, "")
	for _, style := range []string{"SQL, DMY", "German"} {
		for _, zone := range []string{"Asia/Shanghai", "America/New_York"} {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("SET DateStyle = '%s'; SET TimeZone = '%s'; ", style, zone)+
				get[string](c, "SELECT string_agg('DROP TABLE public.' || relname, '; ') FROM pg_class WHERE relname ~ '^event_outbox_20[0-9_]+$'"), pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
			var made int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT (public.fn_queue_partitions_ensure() ->> 'created')::int").Scan(&made))
			require.Equal(t, 7, made)
			require.Equal(t, before, get[string](c, bounds), "%s %s", style, zone)
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM public.fn_queue_sweep_rows('sweep_pictures', 9, NULL, ARRAY['2020-01-01 00:00:00+00'], now())").Scan(&made))
			require.Zero(t, made)
		}
	}
}

// A session or database with another tablespace, into which queue_owner may not write, or another
// kind of storage, changes nothing about the partitions.
func TestPartitionsHaveTheStorageOfTheirTable(t *testing.T) {
	c := newCore(t)
	c.exec("CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler")
	const stored = `SELECT string_agg(DISTINCT a.amname || ' ' || c.reltablespace, ',') FROM pg_class c JOIN pg_am a ON a.oid = c.relam
		WHERE c.relname ~ '^(event_outbox|job_history|queue_metric_sample)_' AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace`
	require.Equal(t, "heap 0", get[string](c, stored))
	c.exec("DROP TABLE public.event_outbox_" + get[string](c, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')"))
	c.exec("ALTER DATABASE " + pgx.Identifier{c.db.Name}.Sanitize() + " SET default_tablespace = pg_global")
	c.exec("ALTER DATABASE " + pgx.Identifier{c.db.Name}.Sanitize() + " SET default_table_access_method = other")
	made := call(t, c.as("dot_executor"), "public.fn_queue_retention_sweep()")
	require.EqualValues(t, 1, made["created"], made)
	require.Equal(t, "heap 0", get[string](c, stored))
}
