-- The share of events that no event subscription matches ("broadcast"), computed from counts per class of
-- events, so that the cost does not grow with the number of events. Source: DP6 §3.2, §8. Its threshold is
-- the flag queue.subscription_resolution.broadcast_warn_percent.

COMMENT ON TABLE public.queue_broadcast_share IS
  'The latest sample of v_subscription_broadcast_share, which alerts and the console read. over_since: time of the '
  'first sample above the threshold, null = not above it; event_at and event_ids: the events emitted for it.';
GRANT SELECT ON public.queue_broadcast_share TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

COMMENT ON TABLE public.event_class IS
  'Classes of events that match the same event subscriptions: domain, type, stream, subject table and the scope '
  'filters of event_subscription that their payload contains.';
GRANT SELECT ON public.event_class, public.event_class_count, public.event_class_state TO :"queue_viewer",
  :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.event_class_count IS
  'Events of the last 25 hours per class, by minute and by hour (UTC) of created_at.';

COMMENT ON TABLE public.event_class_state IS
  'How far events have been counted per class, and which scope filters the classes distinguish.';

-- fn_event_classes_roll() → how many events it counted. After an event subscription with a new scope filter
-- was added, or after a restore (fn_routing_moved), it counts all events of the last 25 hours again; until it has done
-- so, fn_event_broadcast reads the events themselves. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_classes_roll() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $fn$
DECLARE
  v_state public.event_class_state;
  v_filters jsonb[];
  v_moved boolean;
  v_cursor public.queue_cursor;
  v_until pg_snapshot;
  v_since timestamptz := date_trunc('hour', now() - interval '24 hours', 'UTC');
  v_n bigint;
BEGIN
  PERFORM public.fn_routing_loaded();
  SELECT * INTO v_state FROM public.event_class_state FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = public.fn_queue_row_missing('event_class_state'::text);
  END IF;
  v_until := public.fn_routing_snapshot();
  v_cursor := public.fn_routing_cursor('metrics_sampler'::text, ''::text, v_state.rolled_xid, '0'::text);
  SELECT COALESCE(array_agg(DISTINCT s.scope_filter), '{}') INTO v_filters FROM public.event_subscription s
    WHERE s.scope_filter <> '{}';
  v_moved := public.fn_routing_moved(v_cursor, v_state.system_identifier);
  IF v_moved THEN
    v_cursor.origin := public.fn_routing_origin();
    v_state.system_identifier := split_part(v_cursor.origin, '/', 1)::bigint;
    v_state.restored_at := clock_timestamp();
  END IF;
  IF NOT v_state.known_filters @> v_filters OR v_moved THEN
    DELETE FROM public.event_class_count;
    DELETE FROM public.event_class;
    v_state.rolled_xid := '0';
    v_state.known_filters := v_filters;
  END IF;

  WITH fresh AS MATERIALIZED (
    SELECT date_trunc('minute', e.created_at, 'UTC') AS minute, e.event_domain, e.event_type, e.event_stream,
      e.event_subject_table,
      CASE WHEN v_state.known_filters = '{}' THEN '{}'
        -- always in the order of known_filters, so that equal sets of filters are equal
        -- arrays and count as one class
        ELSE ARRAY(SELECT f.x FROM unnest(v_state.known_filters) f (x) WHERE e.safe_payload @> f.x) END AS filters,
      count(*) AS n
    FROM (
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at
        FROM public.event_outbox o
      WHERE v_state.rolled_xid = '0' AND o.created_at >= v_since
        AND (pg_visible_in_snapshot(o.created_xid, v_until) OR o.created_at <= v_state.restored_at)
      UNION ALL
      SELECT n.* FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r) d
      CROSS JOIN public.fn_routing_ranges(v_cursor.routed, v_until) b
      CROSS JOIN LATERAL ( -- one index scan per domain; OFFSET 0 stops the planner from choosing another plan
        SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at
          FROM public.event_outbox o
        WHERE o.event_domain = d.event_domain AND o.created_xid > b.after AND o.created_xid < b.before OFFSET 0) n
      WHERE v_state.rolled_xid <> '0' AND n.created_at >= v_since AND n.created_at > v_state.restored_at) e
    GROUP BY 1, 2, 3, 4, 5, 6
  ), classed AS MATERIALIZED (
    SELECT f.*, md5(jsonb_build_array(f.event_domain, f.event_type, f.event_stream, f.event_subject_table,
      to_jsonb(f.filters))::text) AS class_key
    FROM fresh f
  ), known AS (
    UPDATE public.event_class c SET seen_at = now() WHERE c.class_key IN (SELECT f.class_key FROM classed f)
    RETURNING c.class_id, c.class_key
  ), class AS (
    -- ON CONFLICT would draw a class_id for each known class at each run, and an int has 2,147,483,647 of them
    INSERT INTO public.event_class AS c (class_key, event_domain, event_type, event_stream, event_subject_table,
      filters, seen_at)
    SELECT DISTINCT f.class_key, f.event_domain, f.event_type, f.event_stream, f.event_subject_table, f.filters,
      now() FROM classed f
    WHERE NOT EXISTS (SELECT FROM public.event_class c WHERE c.class_key = f.class_key)
    RETURNING c.class_id, c.class_key
  ), counted AS (
    INSERT INTO public.event_class_count AS k (span, bucket, class_id, n)
    SELECT s.span, date_trunc(s.span, f.minute, 'UTC'), c.class_id, sum(f.n)
    FROM classed f JOIN (TABLE known UNION ALL TABLE class) c USING (class_key)
    CROSS JOIN (VALUES ('minute'), ('hour')) s (span)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (span, bucket, class_id) DO UPDATE SET n = k.n + excluded.n
  )
  SELECT COALESCE(sum(f.n), 0) INTO v_n FROM fresh f;
  v_cursor.routed := v_until;
  v_cursor.batch := NULL;
  v_cursor.batch_xid := NULL;
  v_cursor.batch_id := NULL;
  PERFORM public.fn_routing_cursor_keep(v_cursor);
  UPDATE public.event_class_state SET rolled_xid = pg_snapshot_xmax(v_until), known_filters = v_state.known_filters,
    system_identifier = v_state.system_identifier, restored_at = v_state.restored_at, rolled_at = now();
  DELETE FROM public.event_class_count k WHERE k.bucket < now() - interval '25 hours';
  DELETE FROM public.event_class c WHERE c.seen_at < now() - interval '26 hours';
  RETURN v_n;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_classes_roll IS
  'Counts, per class, events that are certain to be committed. Internal.';

-- fn_event_broadcast(flip) → per domain and type, the number of events of the last 24 hours, and how many of them no
-- current event subscription matches. flip: id of an event subscription whose mute counts as reversed, for a preview;
-- NULL = no such subscription. SECURITY DEFINER: the caller needs no right to read payloads.
CREATE OR REPLACE FUNCTION public.fn_event_broadcast(p_flip bigint DEFAULT NULL)
RETURNS TABLE (event_domain text, event_type text, events bigint, broadcast bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_state public.event_class_state;
  v_cursor public.queue_cursor;
  v_on boolean := public.fn_cfg_bool('queue.subscription_resolution.enabled');
  v_filters jsonb[];
  v_from timestamptz := now() - interval '24 hours';
  v_now pg_snapshot := pg_current_snapshot();
  v_minute timestamptz := date_trunc('minute', v_from, 'UTC') + interval '1 minute';
  v_hour timestamptz := date_trunc('hour', v_minute + interval '59 minutes', 'UTC');
BEGIN
  SELECT * INTO v_state FROM public.event_class_state;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = public.fn_queue_row_missing('event_class_state'::text);
  END IF;
  v_cursor := public.fn_routing_cursor('metrics_sampler'::text, ''::text, v_state.rolled_xid, '0'::text);
  SELECT COALESCE(array_agg(DISTINCT s.scope_filter), '{}') INTO v_filters FROM public.event_subscription s
    WHERE s.scope_filter <> '{}';
  IF NOT v_state.known_filters @> v_filters
    OR public.fn_routing_moved(v_cursor, v_state.system_identifier) THEN
    v_state.rolled_xid := '0'; -- the counts do not cover these filters: read the events
    v_minute := 'infinity';
    v_hour := 'infinity';
  END IF;
  RETURN QUERY
  WITH rolled AS (
    SELECT x.class_id, sum(x.n) AS n FROM (
      SELECT k.class_id, k.n FROM public.event_class_count k WHERE k.span = 'hour' AND k.bucket >= v_hour
      UNION ALL
      SELECT k.class_id, k.n FROM public.event_class_count k WHERE k.span = 'minute' AND k.bucket >= v_minute
        AND k.bucket < v_hour) x
    GROUP BY x.class_id
  ), edge AS (
    SELECT e.event_domain, e.event_type, e.event_stream, e.event_subject_table,
      CASE WHEN v_filters = '{}' THEN '{}' ELSE ARRAY(SELECT f.x FROM unnest(v_filters) f (x)
        WHERE e.safe_payload @> f.x) END AS filters, count(*) AS n
    FROM (
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload
        FROM public.event_outbox o
      WHERE o.created_at > v_from AND o.created_at < v_minute AND v_state.rolled_xid <> '0'
        AND (pg_visible_in_snapshot(o.created_xid, v_cursor.routed) OR o.created_at <= v_state.restored_at)
      UNION ALL
      SELECT n.event_domain, n.event_type, n.event_stream, n.event_subject_table, n.safe_payload
      FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r) d
      CROSS JOIN public.fn_routing_ranges(v_cursor.routed, v_now) b
      CROSS JOIN LATERAL (
        SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at
          FROM public.event_outbox o
        WHERE o.event_domain = d.event_domain AND o.created_xid > b.after AND o.created_xid < b.before OFFSET 0) n
      WHERE v_state.rolled_xid <> '0' AND n.created_at > v_from AND n.created_at > v_state.restored_at
      UNION ALL
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload
        FROM public.event_outbox o
      WHERE v_state.rolled_xid = '0' AND o.created_at > v_from) e
    GROUP BY 1, 2, 3, 4, 5
  ), class AS (
    SELECT c.event_domain, c.event_type, c.event_stream, c.event_subject_table, c.filters, r.n
    FROM rolled r JOIN public.event_class c USING (class_id)
    UNION ALL
    SELECT e.* FROM edge e
  ), resolved AS (
    SELECT t.event_domain, t.event_type, t.n, v_on AND EXISTS (
      SELECT 1 FROM public.event_subscription s
      WHERE s.mute = (s.subscription_id = COALESCE(p_flip, 0))
        AND (s.event_domain IS NULL OR s.event_domain = t.event_domain)
        AND (s.event_type IS NULL OR s.event_type = t.event_type)
        AND (s.event_stream IS NULL OR s.event_stream = t.event_stream)
        AND (s.scope_subject_table IS NULL OR s.scope_subject_table = t.event_subject_table)
        AND (s.scope_filter = '{}' OR s.scope_filter = ANY (t.filters))) AS reached
    FROM class t
  )
  SELECT t.event_domain, t.event_type, sum(t.n)::bigint, COALESCE(sum(t.n) FILTER (WHERE NOT t.reached), 0)::bigint
  FROM resolved t GROUP BY 1, 2;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_broadcast TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_event_broadcast IS
  'Events of the last 24 hours per domain and type, and how many of them no event subscription matches.';

CREATE OR REPLACE VIEW public.v_subscription_broadcast_used AS
SELECT b.event_domain, b.event_type, b.broadcast AS broadcast_events_24h FROM public.fn_event_broadcast(NULL::bigint) b
  WHERE b.broadcast > 0;
COMMENT ON VIEW public.v_subscription_broadcast_used IS
  'Event types with events of the last 24 hours that no event subscription matches (DP6 §8), judged by the current '
  'subscriptions. A NULL event_domain of a subscription means every domain.';
GRANT SELECT ON public.v_subscription_broadcast_used, public.v_subscription_broadcast_share TO
  :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

CREATE OR REPLACE VIEW public.v_subscription_broadcast_share AS
SELECT b.event_domain, COALESCE(sum(b.events), 0)::bigint AS events_24h,
  COALESCE(sum(b.broadcast), 0)::bigint AS broadcast_events_24h,
  round(COALESCE(100.0 * sum(b.broadcast) / NULLIF(sum(b.events), 0), 0), 2) AS broadcast_percent,
    w.percent AS warn_percent,
  COALESCE(100.0 * sum(b.broadcast) > w.percent * sum(b.events), false) AS over_line
FROM (SELECT COALESCE((SELECT c.n FROM public.v_dot_config_number c
    WHERE c.key = 'queue.subscription_resolution.broadcast_warn_percent'), 5) AS percent) w
LEFT JOIN public.fn_event_broadcast(NULL::bigint) b ON true
GROUP BY GROUPING SETS ((w.percent), (w.percent, b.event_domain))
HAVING GROUPING(b.event_domain) = 1 OR b.event_domain IS NOT NULL;
COMMENT ON VIEW public.v_subscription_broadcast_share IS
  'The percentage of the last 24 hours'' events that no event subscription matches, per domain and, in the row with a '
  'null domain, of all domains; over_line: the percentage is above warn_percent.';
COMMENT ON COLUMN public.v_subscription_broadcast_share.event_domain IS 'null = all domains together';
COMMENT ON COLUMN public.v_subscription_broadcast_share.warn_percent IS
  'the threshold: flag queue.subscription_resolution.broadcast_warn_percent';

-- fn_event_broadcast_sample() → {counted, percent, over, emitted}: counts new events, stores the share for
-- alerts and the console, and ends acknowledgements of shares that are not above the threshold any more.
-- While the share of all domains is above it, the function emits system/subscription_broadcast_high once in
-- 24 hours, even when two calls run at once. metrics_sampler calls it. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_broadcast_sample() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_counted bigint := public.fn_event_classes_roll(); -- locks event_class_state: one call at a time
  v_all public.queue_broadcast_share;
  v_over int;
  v_event uuid;
BEGIN
  INSERT INTO public.queue_broadcast_share AS b (event_domain, events_24h, broadcast_24h, percent, warn_percent,
    sampled_at, over_since)
  SELECT COALESCE(s.event_domain, ''), s.events_24h, s.broadcast_events_24h, s.broadcast_percent, s.warn_percent,
    clock_timestamp(),
    CASE WHEN s.over_line THEN clock_timestamp() END
  FROM public.v_subscription_broadcast_share s ORDER BY 1
  ON CONFLICT (event_domain) DO UPDATE SET events_24h = excluded.events_24h, broadcast_24h = excluded.broadcast_24h,
    percent = excluded.percent, warn_percent = excluded.warn_percent, sampled_at = excluded.sampled_at,
    over_since = CASE WHEN excluded.over_since IS NOT NULL THEN COALESCE(b.over_since, excluded.over_since) END,
    event_ids = CASE WHEN b.over_since IS NULL THEN '{}' ELSE b.event_ids END;
  DELETE FROM public.queue_broadcast_share b WHERE b.sampled_at < now();
  UPDATE public.queue_alert_ack a SET cleared_at = clock_timestamp(), cleared_reason = 'share_fell'
  WHERE a.cleared_at IS NULL AND a.alert_key ~ '^broadcast:' AND NOT EXISTS (
    SELECT 1 FROM public.v_queue_alert_own v WHERE v.alert_key = a.alert_key);
  SELECT count(*) INTO v_over FROM public.queue_broadcast_share b WHERE b.over_since IS NOT NULL;
  SELECT * INTO v_all FROM public.queue_broadcast_share b WHERE b.event_domain = '';
  IF v_all.over_since IS NOT NULL AND (v_all.event_at IS NULL
    OR v_all.event_at <= clock_timestamp() - interval '24 hours') THEN
    v_event := (public.fn_event_emit(
      p_event_domain => 'system', p_event_type => 'subscription_broadcast_high', p_event_stream => 'alert',
      p_delivery_lane => 'immediate', p_event_severity => 'warning', p_event_subject_table => 'event_subscription',
      p_event_subject_ref => NULL,
      p_safe_payload => jsonb_build_object('broadcast_percent', v_all.percent, 'warn_percent', v_all.warn_percent,
        'events_24h', v_all.events_24h, 'broadcast_events_24h', v_all.broadcast_24h, 'domains',
        (SELECT jsonb_agg(b.event_domain ORDER BY b.broadcast_24h DESC, b.event_domain)
        FROM (SELECT x.event_domain, x.broadcast_24h FROM public.queue_broadcast_share x WHERE x.event_domain <> ''
        AND x.broadcast_24h > 0 ORDER BY x.broadcast_24h DESC, x.event_domain LIMIT 10) b)),
      p_actor_ref => 'agent:metrics_sampler',
      p_correlation_id => NULL::text, p_occurred_at => now()) ->> 'event_id')::uuid;
    UPDATE public.queue_broadcast_share b SET event_at = clock_timestamp(),
      event_ids = (ARRAY[v_event] || b.event_ids)[1:20]
    WHERE b.event_domain = '';
  END IF;
  RETURN jsonb_build_object('counted', v_counted, 'percent', v_all.percent, 'over', v_over, 'emitted',
    v_event IS NOT NULL);
END
$fn$;
COMMENT ON FUNCTION public.fn_event_broadcast_sample IS
  'Samples the broadcast share for alerts and the console. Internal.';
