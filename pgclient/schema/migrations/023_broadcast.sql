-- Who reads what: rules of subscription and what recipients have read; and the share of events that reach nobody in
-- particular, at a cost that does not grow with them.
-- Source: DP6 §1.4, §3.2, §6, §7, §8.

SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------
-- The broadcast share. What resolution depends on, and nothing else of an event, makes its class: domain, type, stream,
-- subject table, and which of the scope filters its payload contains. Events are counted per class, minute and hour, once
-- they are older than every open transaction of this database; who reads a class is looked up in the rules of today. Exact are then: whole
-- hours, the minutes of the hour at which the window begins, the events of the minute at which it begins, and those that
-- are not counted yet.
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_class (
  class_id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  class_key           text NOT NULL UNIQUE, -- of the columns below; they may be too long for an index
  event_domain        text NOT NULL,
  event_type          text NOT NULL,
  event_stream        text NOT NULL,
  event_subject_table text,
  filters             jsonb[] NOT NULL,
  seen_at             timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE public.event_class IS
  'Events that resolve alike: domain, type, stream, subject table and the scope filters of event_subscription that their '
  'payload contains.';

CREATE TABLE public.event_class_count (
  span     text NOT NULL CHECK (span IN ('minute', 'hour')),
  bucket   timestamptz NOT NULL,
  class_id int NOT NULL,
  n        bigint NOT NULL,
  PRIMARY KEY (span, bucket, class_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE public.event_class_count IS 'Events of the last 25 hours per class, by minute and by hour (UTC) of created_at.';

CREATE TABLE public.event_class_state (
  one               boolean PRIMARY KEY DEFAULT true CHECK (one),
  rolled_xid        xid8 NOT NULL DEFAULT '0', -- what is older is counted
  known_filters     jsonb[] NOT NULL DEFAULT '{}', -- those that filters of event_class tell of
  system_identifier bigint NOT NULL,
  restored_at       timestamptz NOT NULL DEFAULT '-infinity', -- what was created until then came with a restore: counted, whatever its xid
  rolled_at         timestamptz
);
INSERT INTO public.event_class_state (system_identifier) SELECT system_identifier FROM pg_catalog.pg_control_system();
COMMENT ON TABLE public.event_class_state IS 'How far events are counted per class, and for which scope filters.';
GRANT SELECT ON public.event_class, public.event_class_count, public.event_class_state TO queue_viewer, workflow_admin, dead_letter_operator;

-- fn_event_classes_roll() → how many events it counted. A scope filter that is new, or a restore into another cluster,
-- makes it count the whole window anew: once, and the view reads the events themselves until then. Internal.
CREATE FUNCTION public.fn_event_classes_roll() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off SET enable_seqscan = off AS $fn$
DECLARE
  v_state public.event_class_state;
  v_filters jsonb[];
  v_system bigint := (SELECT c.system_identifier FROM pg_control_system() c);
  v_until xid8;
  v_since timestamptz := date_trunc('hour', now() - interval '24 hours', 'UTC');
  v_n bigint;
BEGIN
  SELECT * INTO STRICT v_state FROM public.event_class_state FOR UPDATE;
  v_until := public.fn_queue_settled_xid();
  SELECT COALESCE(array_agg(DISTINCT s.scope_filter), '{}') INTO v_filters FROM public.event_subscription s WHERE s.scope_filter <> '{}';
  IF v_state.system_identifier <> v_system THEN
    v_state.restored_at := clock_timestamp();
  END IF;
  IF NOT v_state.known_filters @> v_filters OR v_state.system_identifier <> v_system THEN
    DELETE FROM public.event_class_count;
    DELETE FROM public.event_class;
    v_state.rolled_xid := '0';
    v_state.known_filters := v_filters;
  END IF;
  -- one of another database that ends between two looks counts as ours; what is counted stays counted
  v_until := greatest(v_until, v_state.rolled_xid);

  WITH fresh AS MATERIALIZED (
    SELECT date_trunc('minute', e.created_at, 'UTC') AS minute, e.event_domain, e.event_type, e.event_stream, e.event_subject_table,
      CASE WHEN v_state.known_filters = '{}' THEN '{}'
        ELSE ARRAY(SELECT f.x FROM unnest(v_state.known_filters) f (x) WHERE e.safe_payload @> f.x) END AS filters, -- in their order
      count(*) AS n
    FROM (
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at FROM public.event_outbox o
      WHERE v_state.rolled_xid = '0' AND o.created_at >= v_since AND (o.created_xid < v_until OR o.created_at <= v_state.restored_at)
      UNION ALL
      SELECT n.* FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r) d
      CROSS JOIN LATERAL ( -- domain by domain, for that is how the index goes; OFFSET 0 keeps it to that index
        SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at FROM public.event_outbox o
        WHERE o.event_domain = d.event_domain AND o.created_xid >= v_state.rolled_xid AND o.created_xid < v_until OFFSET 0) n
      WHERE v_state.rolled_xid <> '0' AND n.created_at >= v_since AND n.created_at > v_state.restored_at) e
    GROUP BY 1, 2, 3, 4, 5, 6
  ), classed AS MATERIALIZED (
    SELECT f.*, md5(jsonb_build_array(f.event_domain, f.event_type, f.event_stream, f.event_subject_table, to_jsonb(f.filters))::text) AS class_key
    FROM fresh f
  ), class AS (
    INSERT INTO public.event_class AS c (class_key, event_domain, event_type, event_stream, event_subject_table, filters, seen_at)
    SELECT DISTINCT f.class_key, f.event_domain, f.event_type, f.event_stream, f.event_subject_table, f.filters, now() FROM classed f
    ON CONFLICT (class_key) DO UPDATE SET seen_at = excluded.seen_at
    RETURNING c.class_id, c.class_key
  ), counted AS (
    INSERT INTO public.event_class_count AS k (span, bucket, class_id, n)
    SELECT s.span, date_trunc(s.span, f.minute, 'UTC'), c.class_id, sum(f.n)
    FROM classed f JOIN class c USING (class_key) CROSS JOIN (VALUES ('minute'), ('hour')) s (span)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (span, bucket, class_id) DO UPDATE SET n = k.n + excluded.n
  )
  SELECT COALESCE(sum(f.n), 0) INTO v_n FROM fresh f;
  UPDATE public.event_class_state SET rolled_xid = v_until, known_filters = v_state.known_filters,
    system_identifier = v_system, restored_at = v_state.restored_at, rolled_at = now();
  DELETE FROM public.event_class_count k WHERE k.bucket < now() - interval '25 hours';
  DELETE FROM public.event_class c WHERE c.seen_at < now() - interval '26 hours';
  RETURN v_n;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_classes_roll() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_classes_roll() IS 'Counts the events that have surely been committed, per class. Internal.';

-- fn_event_broadcast(flip) → per domain and type the events of the last 24 hours and those of them that reach nobody in
-- particular, by the rules of today; with flip as if that subscription were muted, or unmuted. Definer: who may look at
-- the share need not read payloads.
CREATE FUNCTION public.fn_event_broadcast(p_flip bigint DEFAULT NULL)
RETURNS TABLE (event_domain text, event_type text, events bigint, broadcast bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $fn$
DECLARE
  v_state public.event_class_state;
  v_on boolean := public.fn_cfg_bool('queue.subscription_resolution.enabled');
  v_filters jsonb[];
  v_from timestamptz := now() - interval '24 hours';
  -- nothing that is visible is newer, but for what came with a restore
  v_last xid8 := greatest(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
  v_minute timestamptz := date_trunc('minute', v_from, 'UTC') + interval '1 minute';
  v_hour timestamptz := date_trunc('hour', v_minute + interval '59 minutes', 'UTC');
BEGIN
  SELECT * INTO STRICT v_state FROM public.event_class_state;
  SELECT COALESCE(array_agg(DISTINCT s.scope_filter), '{}') INTO v_filters FROM public.event_subscription s WHERE s.scope_filter <> '{}';
  IF NOT v_state.known_filters @> v_filters
    OR v_state.system_identifier <> (SELECT c.system_identifier FROM pg_control_system() c) THEN
    v_state.rolled_xid := '0'; -- what is counted does not answer this: the events themselves do
    v_minute := 'infinity';
    v_hour := 'infinity';
  END IF;
  RETURN QUERY
  WITH rolled AS (
    SELECT x.class_id, sum(x.n) AS n FROM (
      SELECT k.class_id, k.n FROM public.event_class_count k WHERE k.span = 'hour' AND k.bucket >= v_hour
      UNION ALL
      SELECT k.class_id, k.n FROM public.event_class_count k WHERE k.span = 'minute' AND k.bucket >= v_minute AND k.bucket < v_hour) x
    GROUP BY x.class_id
  ), edge AS (
    SELECT e.event_domain, e.event_type, e.event_stream, e.event_subject_table,
      CASE WHEN v_filters = '{}' THEN '{}' ELSE ARRAY(SELECT f.x FROM unnest(v_filters) f (x) WHERE e.safe_payload @> f.x) END AS filters, count(*) AS n
    FROM (
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload FROM public.event_outbox o
      WHERE o.created_at > v_from AND o.created_at < v_minute AND v_state.rolled_xid <> '0'
        AND (o.created_xid < v_state.rolled_xid OR o.created_at <= v_state.restored_at)
      UNION ALL
      SELECT n.event_domain, n.event_type, n.event_stream, n.event_subject_table, n.safe_payload
      FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r) d
      CROSS JOIN LATERAL (
        SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload, o.created_at FROM public.event_outbox o
        WHERE o.event_domain = d.event_domain AND o.created_xid >= v_state.rolled_xid AND o.created_xid <= v_last OFFSET 0) n
      WHERE v_state.rolled_xid <> '0' AND n.created_at > v_from AND n.created_at > v_state.restored_at
      UNION ALL
      SELECT o.event_domain, o.event_type, o.event_stream, o.event_subject_table, o.safe_payload FROM public.event_outbox o
      WHERE v_state.rolled_xid = '0' AND o.created_at > v_from) e
    GROUP BY 1, 2, 3, 4, 5
  ), class AS (
    SELECT c.event_domain, c.event_type, c.event_stream, c.event_subject_table, c.filters, r.n
    FROM rolled r JOIN public.event_class c USING (class_id)
    UNION ALL
    SELECT e.* FROM edge e
  ), told AS (
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
  FROM told t GROUP BY 1, 2;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_broadcast(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_broadcast(bigint) TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_event_broadcast(bigint) IS
  'Events of the last 24 hours per domain and type, and how many of them reach nobody in particular.';

CREATE VIEW public.v_subscription_broadcast_used AS
SELECT b.event_domain, b.event_type, b.broadcast AS broadcast_events_24h FROM public.fn_event_broadcast() b WHERE b.broadcast > 0;
COMMENT ON VIEW public.v_subscription_broadcast_used IS
  'Types whose events of the last 24 hours reached nobody in particular (DP6 §8), by the rules of today. A NULL event_domain '
  'of a subscription means every domain.';

CREATE VIEW public.v_subscription_broadcast_share AS
SELECT b.event_domain, COALESCE(sum(b.events), 0)::bigint AS events_24h, COALESCE(sum(b.broadcast), 0)::bigint AS broadcast_events_24h,
  round(COALESCE(100.0 * sum(b.broadcast) / NULLIF(sum(b.events), 0), 0), 2) AS broadcast_percent, w.percent AS warn_percent,
  COALESCE(100.0 * sum(b.broadcast) > w.percent * sum(b.events), false) AS over_line
FROM (SELECT COALESCE((SELECT c.value::int FROM public.dot_config c
    WHERE c.key = 'queue.subscription_resolution.broadcast_warn_percent' AND c.value ~ '^[0-9]{1,9}$'), 5) AS percent) w
LEFT JOIN public.fn_event_broadcast() b ON true
GROUP BY GROUPING SETS ((w.percent), (w.percent, b.event_domain))
HAVING GROUPING(b.event_domain) = 1 OR b.event_domain IS NOT NULL;
COMMENT ON VIEW public.v_subscription_broadcast_share IS
  'The percentage of the last 24 hours'' events that reached nobody in particular, per domain and, with a null domain, of all '
  'together; over_line: it is above queue.subscription_resolution.broadcast_warn_percent.';
COMMENT ON COLUMN public.v_subscription_broadcast_share.event_domain IS 'null = all domains together';
COMMENT ON COLUMN public.v_subscription_broadcast_share.warn_percent IS 'the line: queue.subscription_resolution.broadcast_warn_percent';
COMMENT ON COLUMN public.v_queue_alert.alert_key IS
  'names one silence, silence:EXECUTOR:LAST_BEAT, or one rise of a share, broadcast[:DOMAIN]:SINCE; what fn_queue_alert_ack takes';
COMMENT ON COLUMN public.v_queue_alert.ratio IS 'age over the expected cadence, critical from 10; of a broadcast share: the share over its line';
COMMENT ON COLUMN public.v_queue_health.status_hint IS 'stale, fresh, open, held, over, stopped, deregistered, enabled or disabled';
GRANT SELECT ON public.v_subscription_broadcast_used, public.v_subscription_broadcast_share TO
  queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

-- fn_event_broadcast_sample() → {counted, percent, over, emitted}: counts what is new, keeps the share for alerts and live
-- panes, ends acknowledgements of shares that fell, and emits system/subscription_broadcast_high while the share of all is
-- over the line, once in 24 hours, also when two run at once. Internal: metrics_sampler calls it.
CREATE FUNCTION public.fn_event_broadcast_sample() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_counted bigint := public.fn_event_classes_roll(); -- which lets one in at a time
  v_all public.queue_broadcast_share;
  v_over int;
  v_event uuid;
BEGIN
  INSERT INTO public.queue_broadcast_share AS b (event_domain, events_24h, broadcast_24h, percent, warn_percent, sampled_at, over_since)
  SELECT COALESCE(s.event_domain, ''), s.events_24h, s.broadcast_events_24h, s.broadcast_percent, s.warn_percent, clock_timestamp(),
    CASE WHEN s.over_line THEN clock_timestamp() END
  FROM public.v_subscription_broadcast_share s ORDER BY 1
  ON CONFLICT (event_domain) DO UPDATE SET events_24h = excluded.events_24h, broadcast_24h = excluded.broadcast_24h,
    percent = excluded.percent, warn_percent = excluded.warn_percent, sampled_at = excluded.sampled_at,
    over_since = CASE WHEN excluded.over_since IS NOT NULL THEN COALESCE(b.over_since, excluded.over_since) END,
    event_ids = CASE WHEN b.over_since IS NULL THEN '{}' ELSE b.event_ids END;
  DELETE FROM public.queue_broadcast_share b WHERE b.sampled_at < now();
  UPDATE public.queue_alert_ack a SET cleared_at = clock_timestamp(), cleared_reason = 'share_fell'
  WHERE a.cleared_at IS NULL AND a.alert_key ~ '^broadcast:' AND NOT EXISTS (
    SELECT 1 FROM public.v_queue_alert v WHERE v.alert_key = a.alert_key);
  SELECT count(*) INTO v_over FROM public.queue_broadcast_share b WHERE b.over_since IS NOT NULL;
  SELECT * INTO v_all FROM public.queue_broadcast_share b WHERE b.event_domain = '';
  IF v_all.over_since IS NOT NULL AND (v_all.event_at IS NULL OR clock_timestamp() - v_all.event_at >= interval '24 hours') THEN
    v_event := (public.fn_iu_emit_event(
      'system', 'subscription_broadcast_high', 'alert', 'immediate', 'warning', 'event_subscription', NULL,
      jsonb_build_object('broadcast_percent', v_all.percent, 'warn_percent', v_all.warn_percent, 'events_24h', v_all.events_24h,
        'broadcast_events_24h', v_all.broadcast_24h, 'domains', (SELECT jsonb_agg(b.event_domain ORDER BY b.broadcast_24h DESC, b.event_domain)
          FROM (SELECT x.event_domain, x.broadcast_24h FROM public.queue_broadcast_share x
            WHERE x.event_domain <> '' AND x.broadcast_24h > 0 ORDER BY x.broadcast_24h DESC, x.event_domain LIMIT 10) b)),
      'agent:metrics_sampler') ->> 'event_id')::uuid;
    UPDATE public.queue_broadcast_share b SET event_at = clock_timestamp(), event_ids = (ARRAY[v_event] || b.event_ids)[1:20]
    WHERE b.event_domain = '';
  END IF;
  RETURN jsonb_build_object('counted', v_counted, 'percent', v_all.percent, 'over', v_over, 'emitted', v_event IS NOT NULL);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_broadcast_sample() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_broadcast_sample() IS 'Samples the broadcast share for alerts and live panes. Internal.';

-- ---------------------------------------------------------------------------
-- Rules. Mute is their lifecycle (DP6 §4): none is ever removed.
-- ---------------------------------------------------------------------------
CREATE FUNCTION public.fn_event_subscription_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_operator_audit('event_subscription_write', 'subscription ' || COALESCE(NEW.subscription_id, OLD.subscription_id),
    session_user, 'written to the table by hand', NULL, NULL,
    CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END);
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_subscription_audit() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_subscription_audit() IS 'Trigger function: audits subscriptions written by hand.';
-- The functions below write as queue_owner and audit themselves. Not told by the call stack: it holds the text of
-- statements, which whoever may write the rows chooses.
CREATE TRIGGER trg_event_subscription_audit AFTER INSERT OR UPDATE OR DELETE ON public.event_subscription
  FOR EACH ROW WHEN (current_user <> 'queue_owner') EXECUTE FUNCTION public.fn_event_subscription_audit();

-- fn_event_subscription_add(recipient, domain, type, stream, subject table, filter, actor, reason, dry_run) →
-- {subscription_id, after, audit_id}: makes a rule; NULL = every domain, type, stream or subject table, {} = every payload.
-- refused: exists, also as a muted row.
CREATE FUNCTION public.fn_event_subscription_add(p_recipient_ref text, p_event_domain text, p_event_type text, p_event_stream text,
  p_scope_subject_table text, p_scope_filter jsonb, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_filter jsonb := COALESCE(p_scope_filter, '{}');
  v_row public.event_subscription;
  v_audit bigint;
BEGIN
  IF COALESCE(p_recipient_ref !~ '^(role|agency|user|agent):[^\s].*$' OR length(p_recipient_ref) > 200, true) THEN
    RAISE EXCEPTION 'p_recipient_ref must be role:, agency:, user: or agent: and a name, 200 characters at most' USING ERRCODE = '22023';
  ELSIF p_event_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$ or be null' USING ERRCODE = '22023';
  ELSIF length(p_event_type) NOT BETWEEN 1 AND 200 OR length(p_event_stream) NOT BETWEEN 1 AND 200
    OR length(p_scope_subject_table) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'type, stream and subject table have 1 to 200 characters or are null' USING ERRCODE = '22023';
  ELSIF jsonb_typeof(v_filter) <> 'object' OR length(v_filter::text) > 1000 THEN
    RAISE EXCEPTION 'p_scope_filter must be a JSON object of at most 1000 characters' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_row FROM public.event_subscription s WHERE s.recipient_ref = p_recipient_ref
    AND s.event_domain IS NOT DISTINCT FROM p_event_domain AND s.event_type IS NOT DISTINCT FROM p_event_type
    AND s.event_stream IS NOT DISTINCT FROM p_event_stream AND s.scope_subject_table IS NOT DISTINCT FROM p_scope_subject_table
    AND s.scope_filter = v_filter;
  IF NOT FOUND AND NOT v_dry THEN
    INSERT INTO public.event_subscription AS s (recipient_ref, event_domain, event_type, event_stream, scope_subject_table, scope_filter)
    VALUES (p_recipient_ref, p_event_domain, p_event_type, p_event_stream, p_scope_subject_table, v_filter)
    ON CONFLICT DO NOTHING RETURNING * INTO v_row;
    IF v_row.subscription_id IS NOT NULL THEN
      v_audit := public.fn_operator_audit('event_subscription_add', 'subscription ' || v_row.subscription_id, v_actor, v_reason,
        NULL, NULL, NULL, to_jsonb(v_row));
      PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'subscription', 'event_domain', 'system',
        'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
      RETURN jsonb_build_object('subscription_id', v_row.subscription_id, 'after', to_jsonb(v_row), 'dry_run', false, 'audit_id', v_audit);
    END IF;
  ELSIF NOT FOUND THEN
    RETURN jsonb_build_object('subscription_id', NULL, 'dry_run', true, 'audit_id', NULL);
  END IF;
  IF NOT v_dry THEN
    v_audit := public.fn_operator_audit('event_subscription_add', concat_ws(' ', 'subscription', v_row.subscription_id), v_actor, v_reason,
      NULL, NULL, NULL, NULL, 'refused: exists');
  END IF;
  RETURN jsonb_build_object('refused', true, 'rule', 'exists', 'dry_run', v_dry, 'audit_id', v_audit, 'subscription_id', v_row.subscription_id,
    'reason', CASE WHEN v_row.subscription_id IS NULL THEN 'this rule has just been made by somebody else'
      ELSE format('this rule is there as subscription %s%s', v_row.subscription_id,
        CASE WHEN v_row.mute THEN ', muted: unmute it' ELSE '' END) END);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_subscription_add(text, text, text, text, text, jsonb, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_subscription_add(text, text, text, text, text, jsonb, text, text, boolean) TO workflow_admin;
COMMENT ON FUNCTION public.fn_event_subscription_add(text, text, text, text, text, jsonb, text, text, boolean) IS
  'Makes a rule of who reads which events (DP6 §3.1).';

-- fn_event_subscription_mute(subscription, mute, actor, reason, dry_run) → {subscription_id, mute, before, audit_id}.
-- refused: not_found; unchanged, when it stands so already: by whom.
CREATE FUNCTION public.fn_event_subscription_mute(p_subscription_id bigint, p_mute boolean, p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.event_subscription;
  v_rule text;
  v_why text;
  v_by record;
  v_audit bigint;
BEGIN
  IF p_mute IS NULL THEN
    RAISE EXCEPTION 'p_mute must be true or false' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_old FROM public.event_subscription s WHERE s.subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('there is no subscription %s', COALESCE(p_subscription_id::text, '(null)'));
  ELSIF v_old.mute = p_mute THEN
    SELECT a.actor, a.at INTO v_by FROM public.queue_operator_action a
    WHERE a.target = 'subscription ' || p_subscription_id AND a.outcome = 'done' ORDER BY a.id DESC LIMIT 1;
    v_rule := 'unchanged';
    v_why := format('subscription %s is %s%s', p_subscription_id, CASE WHEN p_mute THEN 'muted already' ELSE 'not muted' END,
      COALESCE(format(', last changed by %s at %s', v_by.actor, to_char(v_by.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')), ''));
  END IF;
  IF v_rule IS NOT NULL THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('event_subscription_mute', concat_ws(' ', 'subscription', p_subscription_id), v_actor, v_reason,
        NULL, NULL, NULL, NULL, 'refused: ' || v_rule);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', v_dry, 'audit_id', v_audit);
  END IF;
  IF NOT v_dry THEN
    UPDATE public.event_subscription s SET mute = p_mute WHERE s.subscription_id = p_subscription_id;
    v_audit := public.fn_operator_audit('event_subscription_mute', 'subscription ' || p_subscription_id, v_actor, v_reason, NULL, NULL,
      to_jsonb(v_old), to_jsonb(v_old) || jsonb_build_object('mute', p_mute));
    PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'subscription', 'event_domain', 'system',
      'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  END IF;
  RETURN jsonb_build_object('subscription_id', p_subscription_id, 'mute', p_mute, 'before', to_jsonb(v_old), 'dry_run', v_dry, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_subscription_mute(bigint, boolean, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_subscription_mute(bigint, boolean, text, text, boolean) TO workflow_admin;
COMMENT ON FUNCTION public.fn_event_subscription_mute(bigint, boolean, text, text, boolean) IS
  'Mutes a subscription, or lets it speak again: a muted one counts as absent (DP6 §4).';

-- fn_event_resolve_explain(domain, type, stream, subject table, payload) → every subscription of that domain, type and
-- stream, by step, and what became of it: taken; better, when its recipient is reached at an earlier step; muted;
-- subject_table or filter, when its scope is another; off, when the flag is.
CREATE FUNCTION public.fn_event_resolve_explain(
  p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text DEFAULT NULL, p_safe_payload jsonb DEFAULT '{}')
RETURNS TABLE (step int, subscription_id bigint, recipient_ref text, event_domain text, event_type text, event_stream text,
  scope_subject_table text, scope_filter jsonb, outcome text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_on boolean := public.fn_cfg_bool('queue.subscription_resolution.enabled');
BEGIN
  RETURN QUERY
  SELECT x.step, x.subscription_id, x.recipient_ref, x.event_domain, x.event_type, x.event_stream, x.scope_subject_table, x.scope_filter,
    CASE WHEN x.said <> 'taken' THEN x.said
      WHEN x.step > min(x.step) FILTER (WHERE x.said = 'taken') OVER (PARTITION BY x.recipient_ref) THEN 'better' ELSE 'taken' END
  FROM (
    SELECT s.*, CASE WHEN s.event_type IS NOT NULL AND s.event_stream IS NOT NULL THEN 1 WHEN s.event_stream IS NOT NULL THEN 2
        WHEN s.event_type IS NOT NULL THEN 3 ELSE 4 END AS step,
      CASE WHEN NOT v_on THEN 'off' WHEN s.mute THEN 'muted'
        WHEN s.scope_subject_table <> p_subject_table OR s.scope_subject_table IS NOT NULL AND p_subject_table IS NULL THEN 'subject_table'
        WHEN NOT COALESCE(p_safe_payload, '{}') @> s.scope_filter THEN 'filter' ELSE 'taken' END AS said
    FROM public.event_subscription s
    WHERE (s.event_domain IS NULL OR s.event_domain = p_event_domain)
      AND (s.event_type IS NULL OR s.event_type = p_event_type)
      AND (s.event_stream IS NULL OR s.event_stream = p_event_stream)) x
  ORDER BY x.step, x.recipient_ref, x.subscription_id;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_resolve_explain(text, text, text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_resolve_explain(text, text, text, text, jsonb) TO
  queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_event_resolve_explain(text, text, text, text, jsonb) IS
  'Why an event reaches whom it reaches: every rule that speaks of it, step by step (DP6 §3.2).';

-- ---------------------------------------------------------------------------
-- What recipients have read
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_read (
  event_id      uuid NOT NULL,
  recipient_ref text NOT NULL CONSTRAINT chk_event_read_recipient CHECK (recipient_ref ~ '^(role|agency|user|agent):.+'),
  read_at       timestamptz NOT NULL DEFAULT now(),
  read_by       text NOT NULL DEFAULT session_user,
  PRIMARY KEY (event_id, recipient_ref)
);
CREATE INDEX ix_event_read_at ON public.event_read (read_at);
COMMENT ON TABLE public.event_read IS 'Which recipient has read which event, when and by whose login.';
GRANT SELECT ON public.event_read TO queue_viewer, workflow_admin, dead_letter_operator;

-- fn_event_acts_as(recipient) → whether this login may read and mark as the recipient: it is a member of the role that
-- bears the name behind the colon, as every login is of itself. No such role: nobody may. Internal.
CREATE FUNCTION public.fn_event_acts_as(p_recipient_ref text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF COALESCE(p_recipient_ref !~ '^(role|agency|user|agent):.+', true) THEN
    RAISE EXCEPTION 'p_recipient_ref must be role:, agency:, user: or agent: and a name' USING ERRCODE = '22023';
  END IF;
  RETURN COALESCE((SELECT pg_has_role(session_user, r.oid, 'MEMBER') FROM pg_roles r
    WHERE r.rolname = substr(p_recipient_ref, strpos(p_recipient_ref, ':') + 1)), false);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_acts_as(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_acts_as(text) IS 'Whether this login may act as a recipient of events. Internal.';

-- fn_event_inbox(recipient, unread, limit) → the events that were routed to the recipient or to everybody, the newest
-- first, secrets masked. 42501 when this login may not act as the recipient.
CREATE FUNCTION public.fn_event_inbox(p_recipient_ref text, p_unread boolean DEFAULT true, p_limit int DEFAULT 100)
RETURNS TABLE (event_id uuid, event_domain text, event_type text, event_stream text, event_severity text, event_subject_table text,
  event_subject_ref text, safe_payload jsonb, occurred_at timestamptz, step int, routed_at timestamptz, read_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 1000' USING ERRCODE = '22023';
  ELSIF NOT public.fn_event_acts_as(p_recipient_ref) THEN
    RAISE EXCEPTION 'login % may not read as %', session_user, left(p_recipient_ref, 200)
      USING ERRCODE = '42501', HINT = 'it must be a member of the role that the recipient names';
  END IF;
  RETURN QUERY
  SELECT e.id, e.event_domain, e.event_type, e.event_stream, e.event_severity, e.event_subject_table, e.event_subject_ref,
    public.fn_mask_json(e.safe_payload), e.occurred_at, a.step, a.attempted_at, a.read_at
  FROM (
    SELECT u.* FROM unnest(ARRAY[p_recipient_ref, 'broadcast']) w (ref) CROSS JOIN LATERAL (
      SELECT t.event_id, t.step, t.attempted_at, r.read_at FROM public.iu_route_attempt t
      LEFT JOIN public.event_read r ON r.event_id = t.event_id AND r.recipient_ref = p_recipient_ref
      WHERE t.recipient_ref = w.ref AND (r.event_id IS NULL OR NOT COALESCE(p_unread, true))
      ORDER BY t.attempted_at DESC LIMIT p_limit) u
    ORDER BY u.attempted_at DESC LIMIT p_limit) a
  JOIN public.event_outbox e ON e.id = a.event_id
  ORDER BY a.attempted_at DESC, e.occurred_at DESC, e.id;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_inbox(text, boolean, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_inbox(text, boolean, int) TO queue_viewer, dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_event_inbox(text, boolean, int) IS 'The events of a recipient, for whoever may act as it (DP6 §1.4).';

-- fn_event_mark_read(events, recipient) → {results: [{id, outcome: read|already|refused, why}]}; refused as a whole:
-- not_recipient; per event: not_resolved, when it was routed neither to the recipient nor to everybody.
CREATE FUNCTION public.fn_event_mark_read(p_event_ids uuid[], p_recipient_ref text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_results jsonb;
BEGIN
  IF COALESCE(cardinality(p_event_ids), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'p_event_ids must have 1 to 1000 ids' USING ERRCODE = '22023';
  ELSIF NOT public.fn_event_acts_as(p_recipient_ref) THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'not_recipient', 'reason',
      format('login %s may not act as %s: it must be a member of the role that the recipient names', session_user, left(p_recipient_ref, 200)));
  END IF;
  WITH asked AS (
    SELECT DISTINCT i.id FROM unnest(p_event_ids) i (id) WHERE i.id IS NOT NULL
  ), resolved AS (
    SELECT DISTINCT a.id FROM asked a JOIN public.iu_route_attempt t ON t.event_id = a.id AND t.recipient_ref IN (p_recipient_ref, 'broadcast')
  ), marked AS (
    INSERT INTO public.event_read (event_id, recipient_ref) SELECT r.id, p_recipient_ref FROM resolved r ORDER BY 1
    ON CONFLICT DO NOTHING RETURNING event_id
  )
  SELECT jsonb_agg(jsonb_build_object('id', a.id, 'outcome', CASE WHEN m.event_id IS NOT NULL THEN 'read' WHEN r.id IS NOT NULL THEN 'already' ELSE 'refused' END,
    'why', CASE WHEN r.id IS NULL THEN 'not_resolved: it was not routed to ' || p_recipient_ref ELSE '' END) ORDER BY a.id) INTO v_results
  FROM asked a LEFT JOIN resolved r ON r.id = a.id LEFT JOIN marked m ON m.event_id = a.id;
  RETURN jsonb_build_object('results', COALESCE(v_results, '[]'));
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_mark_read(uuid[], text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_event_mark_read(uuid[], text) TO queue_viewer, dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_event_mark_read(uuid[], text) IS 'Marks events as read by a recipient that they were routed to (DP6 §1.4).';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_event_mark_read(uuid[], text);
DROP FUNCTION public.fn_event_inbox(text, boolean, int);
DROP FUNCTION public.fn_event_acts_as(text);
DROP TABLE public.event_read;
DROP FUNCTION public.fn_event_resolve_explain(text, text, text, text, jsonb);
DROP FUNCTION public.fn_event_subscription_mute(bigint, boolean, text, text, boolean);
DROP FUNCTION public.fn_event_subscription_add(text, text, text, text, text, jsonb, text, text, boolean);
DROP TRIGGER trg_event_subscription_audit ON public.event_subscription;
DROP FUNCTION public.fn_event_subscription_audit();
DROP FUNCTION public.fn_event_broadcast_sample();
DROP VIEW public.v_subscription_broadcast_share;
DROP VIEW public.v_subscription_broadcast_used;
DROP FUNCTION public.fn_event_broadcast(bigint);
DROP FUNCTION public.fn_event_classes_roll();
DROP TABLE public.event_class_state;
DROP TABLE public.event_class_count;
DROP TABLE public.event_class;
RESET ROLE;
