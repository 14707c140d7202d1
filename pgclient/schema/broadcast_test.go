// The broadcast share equals a count of the events. Reading the share costs the same however many
// events there are, and a share above the limit raises an alert.

package schema_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// traffic registers event types in four domains and event subscriptions: some muted, some with a
// scope, some for every domain.
func (c *core) traffic() {
	c.t.Helper()
	c.exec(`INSERT INTO public.event_type_registry SELECT d, 'type' || i, 's', 'immediate' FROM unnest('{crm,shop,mail,ops}'::text[]) d, generate_series(0, 4) i`)
	c.exec(`INSERT INTO public.event_subscription (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter, mute) VALUES
		('role:a', 'crm', 'type0', 's0', NULL, '{}', false), ('role:a', 'crm', 'type1', NULL, NULL, '{}', true), ('role:b', 'crm', NULL, 's1', 'units', '{}', false),
		('role:c', 'shop', NULL, NULL, NULL, '{"region": "eu"}', false), ('role:d', 'shop', 'type3', NULL, 'units', '{"region": "us", "n": {"k": 1}}', false),
		('role:e', NULL, 'type4', NULL, NULL, '{}', false), ('role:f', 'mail', NULL, NULL, NULL, '{}', true), ('role:g', NULL, NULL, 's2', 'orders', '{"n": {}}', false)`)
}

// events writes n events without triggers, evenly over a span that ends now. If mixed is true they
// have every combination of stream, subject table and payload; otherwise each type has one stream
// and one subject table.
func (c *core) events(n int, over time.Duration, mixed bool) {
	c.t.Helper()
	c.asReplica(`INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, event_subject_table, safe_payload, created_at)
		SELECT (ARRAY['crm', 'shop', 'mail', 'ops'])[1 + i % 4], 'type' || i / 4 % 5, 's' || k % 3, 'immediate', (ARRAY[NULL, 'units', 'orders'])[1 + k / 3 % 3],
			CASE i / 180 % 4 WHEN 0 THEN '{}' WHEN 1 THEN '{"region": "eu"}' WHEN 2 THEN '{"region": "us", "n": {"k": 1}}' ELSE '{"n": {}, "x": 1}' END::jsonb,
			now() - i * make_interval(secs => $2::float8 / $1::int)
		FROM generate_series(0, $1::int - 1) i CROSS JOIN LATERAL (SELECT CASE WHEN $3 THEN i / 20 ELSE i / 4 % 5 END) x (k)`, n, over.Seconds(), mixed)
}

// rolled counts all events that exist. The open transaction of another test may delay this for a
// moment.
func (c *core) rolled() {
	c.t.Helper()
	eventually(c.t, "all counted", func() bool {
		c.exec("SELECT public.fn_event_classes_roll()")
		return get[bool](c, "SELECT NOT EXISTS (SELECT 1 FROM public.event_outbox WHERE created_xid >= (SELECT rolled_xid FROM public.event_class_state))")
	})
}

// share returns the share as the views show it and as a plain count of the events gives it, both in
// one transaction. The plain count does not use event classes.
func (c *core) share() (views, counted string) {
	c.t.Helper()
	require.NoError(c.t, pgx.BeginFunc(context.Background(), c.root, func(tx pgx.Tx) error {
		if err := tx.QueryRow(context.Background(), `SELECT (SELECT COALESCE(string_agg(event_domain || '/' || event_type || ' ' || broadcast_events_24h, ' ' ORDER BY event_domain || '/' || event_type || ' ' || broadcast_events_24h), '')
				FROM public.v_subscription_broadcast_used) || ' | ' || (SELECT string_agg(COALESCE(event_domain, '*') || ' ' || broadcast_events_24h || ' of ' || events_24h, ' ' ORDER BY event_domain NULLS FIRST)
				FROM public.v_subscription_broadcast_share)`).Scan(&views); err != nil {
			return err
		}
		return tx.QueryRow(context.Background(), `WITH e AS (
				SELECT o.event_domain AS d, o.event_type AS t, NOT EXISTS (SELECT 1 FROM public.event_subscription s WHERE NOT s.mute
					AND COALESCE(s.event_domain, o.event_domain) = o.event_domain AND COALESCE(s.event_type, o.event_type) = o.event_type
					AND COALESCE(s.event_stream, o.event_stream) = o.event_stream
					AND (s.scope_subject_table IS NULL OR s.scope_subject_table = o.event_subject_table) AND o.safe_payload @> s.scope_filter)
					OR (SELECT value FROM public.dot_config WHERE key = 'queue.subscription_resolution.enabled') <> 'true' AS b
				FROM public.event_outbox o WHERE o.created_at > now() - interval '24 hours')
			SELECT (SELECT COALESCE(string_agg(d || '/' || t || ' ' || n, ' ' ORDER BY d || '/' || t || ' ' || n), '') FROM (SELECT d, t, count(*) AS n FROM e WHERE b GROUP BY 1, 2) x)
				|| ' | ' || (SELECT string_agg(COALESCE(d, '*') || ' ' || b || ' of ' || n, ' ' ORDER BY d NULLS FIRST)
				FROM (SELECT d, count(*) AS n, count(*) FILTER (WHERE b) AS b FROM e GROUP BY ROLLUP (d)) x)`).Scan(&counted)
	}))
	return views, counted
}

func (c *core) equal(why string) string {
	c.t.Helper()
	views, counted := c.share()
	require.Equal(c.t, counted, views, why)
	return views
}

// read returns how many rows of the outbox one query of the share reads, and how long the query
// takes.
func (c *core) read() (rows int64, took time.Duration) {
	c.t.Helper()
	var n int64
	// The session is separate, so that its statistics count only the two runs of this query. The first
	// run makes the plans; the second is timed; the rows are the mean of both.
	conn := c.db.Conn(c.t, "")
	_, err := conn.Exec(context.Background(), "SELECT count(*) FROM public.v_subscription_broadcast_share")
	require.NoError(c.t, err)
	require.NoError(c.t, pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		started := time.Now()
		if err := tx.QueryRow(context.Background(), "SELECT count(*) FROM public.v_subscription_broadcast_share").Scan(&n); err != nil {
			return err
		}
		took = time.Since(started)
		return tx.QueryRow(context.Background(), `SELECT COALESCE(sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_xact_user_tables
			WHERE relname ~ '^event_outbox'`).Scan(&rows)
	}))
	return rows / 2, took
}

// The plain count that the other tests compare with is itself compared with the resolver, event by
// event.
func TestBroadcastIsWhatResolvesToNobody(t *testing.T) {
	c := newCore(t)
	c.traffic()
	c.events(3000, 26*time.Hour, true)
	c.rolled()
	got := c.equal("classes and events")
	require.Equal(t, get[string](c, `SELECT string_agg(x, ' ' ORDER BY x) FROM (SELECT e.event_domain || '/' || e.event_type || ' ' || count(*) AS x FROM public.event_outbox e
		WHERE e.created_at > now() - interval '24 hours' AND EXISTS (SELECT 1 FROM public.fn_event_resolve_recipients(e.event_domain, e.event_type, e.event_stream,
			e.event_subject_table, e.safe_payload) r WHERE r.step = 5) GROUP BY e.event_domain, e.event_type) s`),
		get[string](c, "SELECT string_agg(event_domain || '/' || event_type || ' ' || broadcast_events_24h, ' ' ORDER BY event_domain || '/' || event_type || ' ' || broadcast_events_24h) FROM public.v_subscription_broadcast_used"))
	require.Contains(t, got, "shop/type3", "some of them by their payload")
	require.NotContains(t, got, "/type4", "a NULL domain is every domain")
	require.Equal(t, get[int](c, "SELECT count(DISTINCT (event_domain, event_type, event_stream, event_subject_table, safe_payload)) FROM public.event_outbox WHERE created_at > now() - interval '23 hours' AND safe_payload = '{}'"),
		get[int](c, "SELECT count(*) FROM public.event_class WHERE filters = '{}'"))
}

// The share is computed with the current event subscriptions, however they changed after the
// events were counted.
func TestBroadcastFollowsTheSubscriptions(t *testing.T) {
	c := newCore(t)
	c.traffic()
	require.Equal(t, " | * 0 of 0", c.equal("no event at all"))
	c.events(2000, 25*time.Hour, true)
	before := c.equal("nothing is counted yet")
	c.rolled()
	require.Equal(t, before, c.equal("all is counted"))
	c.exec("UPDATE public.event_subscription SET mute = NOT mute WHERE recipient_ref IN ('role:e', 'role:f')")
	require.NotEqual(t, before, c.equal("muted and unmuted"))
	c.exec("INSERT INTO public.event_subscription (recipient_ref, event_domain, scope_filter) VALUES ('role:h', 'ops', '{\"x\": 1}')")
	news := c.equal("a filter that nothing was counted for")
	c.rolled()
	require.Equal(t, news, c.equal("and is counted now"))
	rows, _ := c.read()
	require.Less(t, rows, int64(10), "from the counts, but for the minute in which the window begins")
	c.exec("UPDATE public.event_subscription SET scope_filter = '{\"x\": 2}' WHERE recipient_ref = 'role:h'")
	require.NotEqual(t, news, c.equal("a filter that was changed"))
	c.rolled()
	c.exec("SELECT public.fn_iu_emit_event('ops', 'type1', 's', 'immediate', 'info', NULL, NULL, '{\"x\": 2}'), public.fn_iu_emit_event('ops', 'type1', 's', 'immediate', 'info', NULL, NULL)")
	c.equal("the newest are not counted yet")
	c.rolled()
	c.equal("and are now")
	require.Equal(t, get[int](c, "SELECT count(*) FROM public.event_outbox WHERE created_at >= date_trunc('hour', now() - interval '24 hours', 'UTC')"),
		get[int](c, "SELECT sum(n)::int FROM public.event_class_count WHERE span = 'hour' AND bucket >= date_trunc('hour', now() - interval '24 hours', 'UTC')"), "each once")

	// An event whose transaction commits late counts once, in the minute in which the transaction
	// began.
	late := c.begin(c.as("event_ingest_writer"))
	_, err := late.Exec(context.Background(), "SELECT public.fn_iu_emit_event('ops', 'type2', 's', 'immediate', 'info', NULL, NULL)")
	require.NoError(t, err)
	c.exec("SELECT public.fn_iu_emit_event('ops', 'type3', 's', 'immediate', 'info', NULL, NULL)")
	c.exec("SELECT public.fn_event_classes_roll()")
	c.equal("not committed")
	require.NoError(t, late.Commit(context.Background()))
	c.equal("committed behind the line")
	c.rolled()
	c.equal("and counted")

	// After a restore into another cluster, transaction ids do not show which events are older.
	c.asReplica("UPDATE public.event_outbox SET created_xid = (created_xid::text::bigint + 4000000000)::text::xid8")
	c.exec("UPDATE public.event_class_state SET system_identifier = 1")
	c.equal("restored")
	c.exec("SELECT public.fn_event_classes_roll()")
	rows, _ = c.read()
	require.Less(t, rows, int64(10), "what came with the restore is counted, whatever its xid")
	c.exec("SELECT public.fn_iu_emit_event('ops', 'type2', 's', 'immediate', 'info', NULL, NULL)")
	c.equal("and what comes after it")
	c.exec("SELECT public.fn_event_classes_roll()")
	c.equal("once")

	setFlag(t, c.as("workflow_admin"), "queue.subscription_resolution.enabled", "false")
	require.Equal(t, 100, get[int](c, "SELECT broadcast_percent::int FROM public.v_subscription_broadcast_share WHERE event_domain IS NULL"))
	c.equal("off: everything is broadcast")
}

// Reading the share reads only the events at the edge of its 24 hours, however long the history is.
func TestBroadcastOf131000EventsOver18Days(t *testing.T) {
	c := newCore(t)
	c.traffic()
	c.events(131_000, 18*24*time.Hour, false)
	c.exec("ANALYZE")
	c.rolled()
	c.equal("131,000 over 18 days")
	rows, took := c.read()
	t.Logf("131,000 events over 18 days: %d rows of the outbox read in %s", rows, took)
	require.Less(t, rows, int64(2*131_000/18/24/60+20), "two minutes of events")
	require.Less(t, get[int](c, "SELECT count(*) FROM public.event_class_count WHERE bucket < now() - interval '26 hours'"), 1)
}

func TestBroadcastOfTwoMillionEventsOverOneDay(t *testing.T) {
	if os.Getenv("QTOP_TEST_FULL") == "" {
		t.Skip("full: 2,000,000 events take half a minute to write; TestBroadcastOf131000EventsOver18Days is the small form")
	}
	c := newCore(t)
	c.traffic()
	c.exec("ALTER DATABASE " + pgx.Identifier{c.db.Name}.Sanitize() + " SET statement_timeout = '15min'")
	c.root.Reset()
	c.events(2_000_000, 24*time.Hour, false)
	c.exec("VACUUM ANALYZE")
	started := time.Now()
	c.exec("SELECT public.fn_event_classes_roll()") // takes longer than rolled would wait
	c.rolled()
	t.Logf("2,000,000 events counted for the first time in %s", time.Since(started))
	c.equal("2,000,000 over one day")
	c.read()
	rows, took := c.read()
	t.Logf("%d rows of the outbox read in %s", rows, took)
	require.Less(t, rows, int64(2*2_000_000/24/60))
	plan, err := c.root.Query(context.Background(), "EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM public.v_subscription_broadcast_share")
	require.NoError(t, err)
	lines, err := pgx.CollectRows(plan, pgx.RowTo[string])
	require.NoError(t, err)
	for _, l := range lines {
		t.Log(l)
	}
}

// over writes as many events as reached says that have a recipient, and as many as broadcast says
// that have none.
func (c *core) over(reached, broadcast int) {
	c.t.Helper()
	c.asReplica(`INSERT INTO public.event_outbox (event_domain, event_type, event_stream, delivery_lane, created_at)
		SELECT CASE WHEN i <= $1 THEN 'kg' ELSE 'lost' END, 'made', 's', 'immediate', now() - interval '1 hour' FROM generate_series(1, $1::int + $2::int) i`, reached, broadcast)
}

func (c *core) sample(t *testing.T) map[string]any {
	t.Helper()
	c.exec("SELECT public.fn_event_broadcast_sample()")
	return call(t, c.root, "public.fn_event_broadcast_sample()") // the second run at the same moment must change nothing
}

func TestBroadcastIsSampledAndRaisesOneEvent(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('kg', 'made', 's', 'immediate'), ('lost', 'made', 's', 'immediate')")
	require.Equal(t, true, call(t, c.root, "public.fn_queue_tick_request('metrics_sampler')")["ran"])
	c.over(95, 5)
	c.rolled()
	require.EqualValues(t, 5, c.sample(t)["percent"], "five of a hundred are on the line, not over it")
	require.Equal(t, "broadcast:lost", get[string](c, "SELECT string_agg(subject, ' ') FROM public.v_queue_alert WHERE kind = 'broadcast'"), "a domain has a share of its own")
	const emitted = "SELECT count(*) FROM public.event_outbox WHERE event_type = 'subscription_broadcast_high'"
	require.Zero(t, get[int](c, emitted), "that event is about all of them")
	require.Equal(t, "5.00 5 100 fresh", get[string](c, `SELECT concat_ws(' ', b.percent, b.broadcast_24h, b.events_24h, h.status_hint) FROM public.queue_broadcast_share b
		JOIN public.v_queue_health h ON h.source = 'subscription_broadcast' AND h.subject = 'broadcast' WHERE b.event_domain = ''`))

	c.over(0, 15)
	c.rolled()
	pool := c.wide(6, "dot_executor")
	for range 3 { // three rounds, a minute apart
		c.asReplica("UPDATE public.queue_metric_sample SET at = at - interval '1 minute'")
		together(t, 6, func(int) (map[string]any, error) { return tryCall(pool, "public.fn_metrics_sampler_run()") })
	}
	require.Equal(t, 1, get[int](c, emitted), "one, also when six run at once and again a minute later")
	require.Equal(t, `alert warning {"domains": ["lost"], "events_24h": 115, "warn_percent": 5, "broadcast_percent": 17.39, "broadcast_events_24h": 20}`,
		get[string](c, "SELECT concat_ws(' ', event_stream, event_severity, safe_payload) FROM public.event_outbox WHERE event_type = 'subscription_broadcast_high'"))
	require.InDelta(t, 17.39, c.samples("broadcast_percent")["{}"], 0.2)
	require.InDelta(t, 100, c.samples("broadcast_percent")[`{"domain": "lost"}`], 0)
	require.Equal(t, "over", get[string](c, "SELECT status_hint FROM public.v_queue_health WHERE source = 'subscription_broadcast' AND subject = 'broadcast'"))
	s := snapshotOf(t, get[[]byte](c, "SELECT public.fn_queue_snapshot('0')"))
	var all []string
	for _, a := range s.Alerts {
		if a.Kind == "broadcast" {
			all = append(all, fmt.Sprintf("%s %s %s %.1f %d", a.Kind, a.Subject, a.Severity, a.Ratio, len(a.EventIDs)))
		}
	}
	require.ElementsMatch(t, []string{"broadcast broadcast:lost warning 20.0 0", "broadcast broadcast warning 3.5 1"}, all)

	c.exec("UPDATE public.queue_broadcast_share SET event_at = now() - interval '23 hours 59 minutes'")
	c.sample(t)
	require.Equal(t, 1, get[int](c, emitted))
	c.exec("UPDATE public.queue_broadcast_share SET event_at = now() - interval '24 hours'")
	c.sample(t)
	require.Equal(t, 2, get[int](c, emitted), "once in 24 hours while it is over the line")
	require.Equal(t, 2, get[int](c, "SELECT cardinality(event_ids) FROM public.v_queue_alert WHERE subject = 'broadcast'"))

	setFlag(t, c.as("workflow_admin"), "queue.subscription_resolution.broadcast_warn_percent", "100")
	c.exec("UPDATE public.queue_broadcast_share SET event_at = NULL")
	c.sample(t)
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE kind = 'broadcast'"), "at 100 nothing is over the line")
	require.Equal(t, 2, get[int](c, emitted))
}

// Events of a transaction that stays open are counted when it has ended, and meanwhile do not delay
// the count of other events.
func TestBroadcastCountsOnceBesideAnOpenTransaction(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('kg', 'made', 's', 'immediate'), ('lost', 'made', 's', 'immediate')")
	c.rolled()
	late := c.begin(c.root)
	_, err := late.Exec(t.Context(), "SELECT public.fn_iu_emit_event('lost', 'made', 's', 'immediate', 'info', NULL, NULL)")
	require.NoError(t, err)
	c.over(95, 0)
	const share = "SELECT events_24h || ' ' || broadcast_24h FROM public.queue_broadcast_share WHERE event_domain = ''"
	for range 2 {
		c.sample(t)
		require.Equal(t, "95 0", get[string](c, share))
	}
	require.NoError(t, late.Commit(t.Context()))
	require.Equal(t, "96 1", get[string](c, "SELECT sum(events) || ' ' || sum(broadcast) FROM public.fn_event_broadcast(NULL)"))
	c.sample(t)
	c.over(10, 0)
	c.sample(t)
	require.Equal(t, "106 1", get[string](c, share))
	require.Equal(t, 106, get[int](c, "SELECT sum(n) FROM public.event_class_count WHERE span = 'minute'"))
}

func TestBroadcastAlertIsAcknowledgedAndClears(t *testing.T) {
	c := newCore(t)
	c.exec("INSERT INTO public.event_type_registry VALUES ('kg', 'made', 's', 'immediate'), ('lost', 'made', 's', 'immediate')")
	c.over(50, 50)
	c.rolled()
	c.sample(t)
	pool := c.wide(6, "workflow_admin")
	got := together(t, 6, func(i int) (map[string]any, error) {
		return tryCall(pool, "public.fn_queue_alert_ack('broadcast', 'ann' || $1::int, 'the importer is new', '1 hour')", i)
	})
	require.Equal(t, 5, count(got, "rule", "already_acked"), got)
	c.sample(t)
	require.Equal(t, "acked", get[string](c, "SELECT state FROM public.v_queue_alert WHERE subject = 'broadcast'"), "a later sample is the same alert")
	require.Equal(t, "open", get[string](c, "SELECT state FROM public.v_queue_alert WHERE subject = 'broadcast:lost'"), "which is another one")
	call(t, pool, "public.fn_queue_alert_unack('broadcast', 'ann', 'mine no longer')")
	call(t, pool, "public.fn_queue_alert_ack('broadcast', 'ben', 'I make the subscription', '1 hour')")

	key := get[string](c, "SELECT alert_key FROM public.v_queue_alert WHERE subject = 'broadcast'")
	call(t, pool, "public.fn_event_subscription_add('role:finder', 'lost', NULL, NULL, NULL, NULL, 'ben', 'they are read now')")
	require.Equal(t, 2, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE kind = 'broadcast'"), "until the next sample")
	require.EqualValues(t, 0, c.sample(t)["percent"])
	require.Zero(t, get[int](c, "SELECT count(*) FROM public.v_queue_alert WHERE kind = 'broadcast'"))
	require.Equal(t, "share_fell", get[string](c, "SELECT cleared_reason FROM public.queue_alert_ack WHERE acked_by = 'ben'"))
	c.exec("UPDATE public.event_subscription SET mute = true WHERE recipient_ref = 'role:finder'")
	c.sample(t)
	require.Equal(t, "open", get[string](c, "SELECT state FROM public.v_queue_alert WHERE subject = 'broadcast'"))
	require.NotEqual(t, key, get[string](c, "SELECT alert_key FROM public.v_queue_alert WHERE subject = 'broadcast'"), "a new rise is a new alert")
}

// A viewer may read the share without a right on payloads, and no role of a person or of a producer
// can write the counts behind it.
func TestBroadcastRights(t *testing.T) {
	c := newCore(t)
	for _, role := range []string{"queue_viewer", "workflow_admin", "dead_letter_operator"} {
		for _, from := range []string{"v_subscription_broadcast_used", "v_subscription_broadcast_share", "queue_broadcast_share", "event_class", "fn_event_broadcast(1)"} {
			_, err := c.as(role).Exec(context.Background(), "SELECT * FROM public."+from)
			require.NoError(t, err, role+" "+from)
		}
		for _, sql := range []string{
			"SELECT public.fn_event_classes_roll()", "SELECT public.fn_event_broadcast_sample()", "UPDATE public.event_class_state SET rolled_xid = '0'",
			"INSERT INTO public.event_class_count VALUES ('hour', now(), 1, 1)", "UPDATE public.queue_broadcast_share SET over_since = NULL",
		} {
			fails(t, c.as(role), "42501", sql)
		}
	}
	fails(t, c.as("event_ingest_writer"), "42501", "SELECT * FROM public.v_subscription_broadcast_used")
}

// A class keeps its number, and a run draws numbers for new classes alone: they are of type int.
func TestBroadcastDrawsANumberPerClass(t *testing.T) {
	c := newCore(t)
	c.traffic()
	for range 4 {
		c.events(300, time.Hour, true)
		c.rolled()
	}
	c.equal("counted in four runs")
	classes := get[int](c, "SELECT count(*) FROM public.event_class")
	require.Equal(t, classes, get[int](c, "SELECT last_value FROM public.event_class_class_id_seq"))
	c.exec("UPDATE public.event_class SET seen_at = now() - interval '2 days'")
	c.events(300, time.Hour, true)
	c.rolled()
	require.Equal(t, classes, get[int](c, "SELECT count(*) FROM public.event_class"), "each was seen again")
}
