-- Silence: the stale check, alerts and their acknowledgement. Source: DP4 §3.5.

COMMENT ON TABLE public.queue_alert_ack IS
  'Who has acknowledged an alert, and until when. An alert has at most one open acknowledgement, which never hides it. '
  'severity: that of the alert when it was acknowledged; a rise to critical ends the acknowledgement.';
COMMENT ON COLUMN public.queue_alert_ack.expires_at IS 'when the acknowledgement ends by itself';
COMMENT ON COLUMN public.queue_alert_ack.cleared_at IS 'when the acknowledgement ended; NULL = it is in force';
COMMENT ON COLUMN public.queue_alert_ack.cleared_reason IS
  'why it ended: the executor beat again, it expired, the alert rose to critical, or an operator withdrew it';
GRANT SELECT ON public.queue_alert_ack TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_alert_key(executor, last beat) → the key of the alert for one silence: the executor id and the
-- time of the heartbeat after which it fell silent. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_alert_key(p_executor_id text, p_last_beat_at timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT 'silence:' || p_executor_id || ':' || to_char(p_last_beat_at AT TIME ZONE 'UTC',
    'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$fn$;
COMMENT ON FUNCTION public.fn_queue_alert_key IS
  'The alert key of one silence: the executor and its last heartbeat. Internal.';

-- fn_queue_severity(age, cadence) → 'warning' while the age is below ten cadences, then 'critical'.
CREATE OR REPLACE FUNCTION public.fn_queue_severity(p_age_seconds double precision, p_cadence_seconds int) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT CASE WHEN p_age_seconds / p_cadence_seconds < 10 THEN 'warning' ELSE 'critical' END
$fn$;
COMMENT ON FUNCTION public.fn_queue_severity IS
  'Severity of a silence by age ÷ cadence: warning below 10, critical from 10.';

-- fn_queue_alert_own(rows of v_queue_watch) → the rows of v_queue_alert_own. The caller passes the watch rows, because
-- the snapshot reads them once for all of its sections. SECURITY DEFINER: roles that may read the view need no right to
-- read the tables.
CREATE OR REPLACE FUNCTION public.fn_queue_alert_own(p_watch public.v_queue_watch[])
  RETURNS TABLE (alert_key text, kind text, subject text, severity text, since timestamptz, age numeric, ratio numeric,
  event_ids uuid[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT 'silence:' || h.executor_id || ':' || to_char(h.last_beat_at AT TIME ZONE 'UTC',
           'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'silence'::text, h.executor_id,
         CASE WHEN l.age / h.cadence_seconds < 10 THEN 'warning' ELSE 'critical' END,
         -- a heartbeat that is ahead of the clock has the age 0
         h.last_beat_at, greatest(l.age, 0), round(greatest(l.age, 0) / h.cadence_seconds, 2),
         CASE WHEN h.silent_since = h.last_beat_at THEN h.silent_event_ids ELSE '{}' END
  FROM unnest(p_watch) h CROSS JOIN LATERAL (SELECT public.fn_age(h.last_beat_at) AS age OFFSET 0) l
  WHERE h.state = 'silent'
  UNION ALL
  SELECT concat_ws(':', 'broadcast', NULLIF(b.event_domain, ''),
    to_char(b.over_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
         'broadcast', concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')), 'warning', b.over_since,
         public.fn_age(b.over_since), round(b.percent / greatest(b.warn_percent, 1), 2), b.event_ids
  FROM public.queue_broadcast_share b WHERE b.over_since IS NOT NULL
  UNION ALL
  SELECT format('failing:%s:%s', x.subscription_id,
           to_char(x.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), 'failing',
         'failing:' || x.subscription_id, 'critical', x.since, public.fn_age(x.since),
         round((public.fn_age(COALESCE(t.failing_since, x.since))
           / (86400 * greatest(COALESCE((SELECT v.n FROM public.v_dot_config_number v
             WHERE v.key = 'webhook.disable_after_days'), 5), 1)))::numeric, 2), '{}'
  FROM public.webhook_endpoint_suspensions x JOIN public.subscriptions s ON s.id = x.subscription_id AND s.active
  JOIN public.webhook_endpoint_state t ON t.subscription_id = x.subscription_id WHERE x.reason = 'failing'
  UNION ALL
  SELECT format('quarantine:%s:%s:%s', q.step, q.target,
           to_char(q.set_aside_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')), 'quarantine',
         format('quarantine:%s:%s', q.step, q.target), 'warning', q.set_aside_at, public.fn_age(q.set_aside_at),
         q.attempts::numeric, '{}'
  FROM (SELECT DISTINCT y.step FROM public.queue_quarantine y WHERE y.set_aside_at IS NOT NULL) p
  CROSS JOIN LATERAL (SELECT z.* FROM public.queue_quarantine z WHERE z.step = p.step AND z.set_aside_at IS NOT NULL
    ORDER BY z.set_aside_at LIMIT 10) q;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_alert_own TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_alert_own IS
  'The rows of v_queue_alert_own, computed partly from rows that the caller has read. Read v_queue_alert instead.';

-- v_queue_alert_own: the alerts that each follow from one row of a table: a silence, a broadcast share above
-- its threshold, an endpoint that was suspended because it kept failing, a row in quarantine.
CREATE OR REPLACE VIEW public.v_queue_alert_own AS
SELECT * FROM public.fn_queue_alert_own(ARRAY(SELECT w FROM public.v_queue_watch w));
COMMENT ON VIEW public.v_queue_alert_own IS
  'Silences, broadcast shares above their threshold, endpoints suspended because they kept failing, and rows in '
  'quarantine; a part of v_queue_alert.';
GRANT SELECT ON public.v_queue_alert_own TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";

CREATE OR REPLACE VIEW public.v_queue_alert AS SELECT * FROM public.fn_queue_alerts();
COMMENT ON VIEW public.v_queue_alert IS
  'The alerts that are open now. One row per silence, computed from the heartbeat row and server time, whether or not '
  'the stale check ran; per sampled share of broadcast events above its threshold (always a warning, DP6 §3.2); per '
  'endpoint that was suspended because it kept failing; per row in quarantine (queue_quarantine; a warning; the first '
  'ten of each step); per queue whose work no live host can do; per backlog; per circuit that has been open for long; '
  'and one row for all loops that no host runs (fn_queue_alert_rows). A row with a cause follows from another alert. '
  'An acknowledgement ends when it expires, when its condition is over or when the alert rises to critical; it never '
  'hides the row.';
GRANT SELECT ON public.v_queue_alert TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator";
COMMENT ON COLUMN public.v_queue_alert.event_ids IS
  'ids of the events that fn_queue_stale_check or the sampler emitted for the alert; empty until then';
COMMENT ON COLUMN public.v_queue_alert.state IS 'open or acked';
COMMENT ON COLUMN public.v_queue_alert.last_cleared IS 'why the previous acknowledgement ended';
COMMENT ON COLUMN public.v_queue_alert.alert_key IS
  'key of one silence (silence:EXECUTOR:LAST_BEAT), one rise of a share (broadcast[:DOMAIN]:SINCE), one suspension '
  '(failing:SUBSCRIPTION:SINCE), one row in quarantine (quarantine:STEP:TARGET:SINCE) or one condition (no_host:SINCE, '
  'unclaimed:DOMAIN/KIND:SINCE, circuit:SUBSCRIPTION:SINCE, backlog:QUEUE); pass it to fn_queue_alert_ack';
COMMENT ON COLUMN public.v_queue_alert.ratio IS
  'of a silence: age ÷ expected cadence, critical from 10; of a broadcast share: share ÷ its threshold; of a failing '
  'endpoint: how long it has failed ÷ webhook.disable_after_days; of a row in quarantine: attempts; of no_host, '
  'unclaimed, circuit and backlog: age ÷ queue.backlog.critical_seconds';
COMMENT ON COLUMN public.v_queue_alert.kind IS
  'silence, broadcast, failing, quarantine, no_host, unclaimed, circuit or backlog';
COMMENT ON COLUMN public.v_queue_alert.cause IS
  'subject of the alert that this one follows from; empty = it follows from none and is shown itself';
COMMENT ON COLUMN public.v_queue_alert.detail IS 'the condition in one line; may be empty';

-- fn_queue_stale_check() → {checked, emitted, acks_cleared, monitoring}: DP4 §3.5. Emits at most one event
-- per executor in 2 × its threshold, even when two checks run at once: a check locks the row, a concurrent
-- check skips the locked row, and a later check reads silent_event_at. For a worker whose threshold is
-- shorter than the flag queue.heartbeat.stale_threshold_seconds, the time between two events is 2 × the flag
-- or 10 minutes, whichever is shorter.
CREATE OR REPLACE FUNCTION public.fn_queue_stale_check() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_out jsonb;
BEGIN
  v_out := '{"checked": 0, "emitted": 0, "acks_cleared": 0}'::jsonb
    || public.fn_queue_step('alert_acks'::text, 10000);
  IF public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300) >= 1000000 THEN
    RETURN v_out || '{"monitoring": false}';
  ELSIF NOT v_out ? 'timed_out' THEN
    v_out := v_out || public.fn_queue_step('stale_check'::text, 10000);
  END IF;
  RETURN v_out || '{"monitoring": true}';
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_stale_check TO :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_stale_check IS
  'Tick stale_heartbeat_check: emits system/queue_worker_silent once per executor per 2 × threshold (DP4 §3.5), and '
  'ends acknowledgements that expired or whose alert is over or has risen to critical.';

-- fn_step_alert_acks(limit, only, except): a step (quarantine.sql) that ends acknowledgements that have
-- expired, whose alert has risen to critical, or whose condition is over; its targets are ids of
-- acknowledgements. Internal.
CREATE OR REPLACE FUNCTION public.fn_step_alert_acks(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_cleared int;
BEGIN
  UPDATE public.queue_alert_ack a SET cleared_at = clock_timestamp(),
    cleared_reason = CASE WHEN a.expires_at <= clock_timestamp() THEN 'expired' ELSE 'rose_to_critical' END
  WHERE a.ack_id IN (
    SELECT b.ack_id FROM public.queue_alert_ack b
    WHERE b.cleared_at IS NULL AND (b.expires_at <= clock_timestamp() OR (b.severity = 'warning'
      AND b.alert_key = ANY (ARRAY(SELECT v.alert_key FROM public.v_queue_alert v WHERE v.severity = 'critical'))))
      AND (p_only IS NULL OR b.ack_id = ANY (p_only::bigint[])) AND b.ack_id <> ALL (p_except::bigint[])
    ORDER BY b.ack_id FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS v_cleared = ROW_COUNT;
  RETURN jsonb_build_object('acks_cleared', v_cleared + public.fn_queue_alert_acks_end(p_only, p_except));
END
$fn$;
COMMENT ON FUNCTION public.fn_step_alert_acks IS
  'Step alert_acks (see fn_queue_step): ends acknowledgements that are over. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_alert_acks_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT b.ack_id::text FROM public.queue_alert_ack b
    WHERE b.cleared_at IS NULL AND b.ack_id <> ALL (p_except::bigint[]) ORDER BY b.ack_id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_alert_acks_targets IS
  'Targets of the step alert_acks: acknowledgements that are in force. Internal.';

-- fn_queue_silence_due(last event, threshold in seconds) → whether a further event about a silence that lasts
-- must be emitted now, twice the threshold after the last one. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_silence_due(p_event_at timestamptz, p_threshold int) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN p_event_at IS NULL OR p_event_at <= clock_timestamp() - make_interval(secs => 2.0 * greatest(p_threshold,
    least(public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300), 300)));
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_silence_due IS
  'Whether a further event about a silence that lasts must be emitted now. Internal.';

-- fn_step_stale_check(limit, only, except): a step (quarantine.sql) that emits the events of silent
-- executors; its targets are ids of executors. Internal.
CREATE OR REPLACE FUNCTION public.fn_step_stale_check(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id text;
  v_row public.v_queue_watch;
  v_age double precision;
  v_event uuid;
  v_emitted int := 0;
  v_checked int := 0;
BEGIN
  FOR v_id IN
    SELECT v.executor_id FROM public.v_queue_watch v
    WHERE v.state = 'silent' AND (p_only IS NULL OR v.executor_id = ANY (p_only)) AND v.executor_id <> ALL (p_except)
      AND public.fn_queue_silence_due(v.silent_event_at, v.threshold_seconds)
    ORDER BY v.executor_id
  LOOP
    PERFORM 1 FROM public.queue_heartbeat WHERE executor_id = v_id FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    SELECT * INTO v_row FROM public.v_queue_watch v WHERE v.executor_id = v_id AND v.state = 'silent'
      AND public.fn_queue_silence_due(v.silent_event_at, v.threshold_seconds);
    CONTINUE WHEN NOT FOUND;
    v_checked := v_checked + 1;
    v_age := greatest(public.fn_age(v_row.last_beat_at), 0);
    v_event := (public.fn_event_emit(
      p_event_domain => 'system', p_event_type => 'queue_worker_silent', p_event_stream => 'alert',
      p_delivery_lane => 'immediate',
      p_event_severity => public.fn_queue_severity(v_age, v_row.cadence_seconds),
      p_event_subject_table => 'queue_heartbeat', p_event_subject_ref => v_row.executor_id,
      p_safe_payload => jsonb_build_object('executor_id', v_row.executor_id, 'age_seconds', floor(v_age)::bigint,
        'expected_cadence_seconds', v_row.cadence_seconds, 'gap_ratio',
        round((v_age / v_row.cadence_seconds)::numeric, 2)) || CASE WHEN v_row.tick_worker
          THEN jsonb_build_object('reason', public.fn_queue_tick_why(v_row.executor_id)) ELSE '{}'::jsonb END,
      p_actor_ref => 'agent:queue_stale_check',
      p_correlation_id => NULL::text, p_occurred_at => now()) ->> 'event_id')::uuid;
    UPDATE public.queue_heartbeat SET
      silent_event_at = clock_timestamp(), silent_since = v_row.last_beat_at,
      silent_event_ids = CASE WHEN v_row.silent_since = v_row.last_beat_at
        THEN (ARRAY[v_event] || v_row.silent_event_ids)[1:20] ELSE ARRAY[v_event] END
    WHERE executor_id = v_row.executor_id;
    v_emitted := v_emitted + 1;
  END LOOP;
  RETURN jsonb_build_object('checked', v_checked, 'emitted', v_emitted);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_stale_check IS
  'Step stale_check (see fn_queue_step): emits the events of silent executors. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_stale_check_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT v.executor_id FROM public.v_queue_watch v
    WHERE v.state = 'silent' AND v.executor_id <> ALL (p_except)
      AND public.fn_queue_silence_due(v.silent_event_at, v.threshold_seconds)
    ORDER BY v.executor_id LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_stale_check_targets IS
  'Targets of the step stale_check: executors that are silent. Internal.';

-- fn_queue_alert_current(text) → the open alert that has the text as its key or subject. A subject is the id of an
-- executor, or broadcast[:domain]. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_alert_current(p_alert_key text) RETURNS SETOF public.v_queue_alert
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT * FROM public.v_queue_alert v WHERE v.alert_key = p_alert_key OR v.subject = p_alert_key
$fn$;
COMMENT ON FUNCTION public.fn_queue_alert_current IS
  'The open alert with this key or about this subject. Internal.';

-- fn_queue_alert_ack(alert key or subject, actor, comment, ttl) → {alert_key, acked_by, expires_at, audit_id}; refused:
-- not_found (no such open alert), already_acked (the reason names the person, since when and until when).
CREATE OR REPLACE FUNCTION public.fn_queue_alert_ack(p_alert_key text, p_actor text, p_comment text, p_ttl interval)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_comment text := public.fn_trimmed(p_comment);
  v_alert public.v_queue_alert;
  v_expires timestamptz;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_alert_key IS NULL THEN
    RAISE EXCEPTION 'p_alert_key must not be null' USING ERRCODE = '22023';
  ELSIF v_comment IS NULL OR length(p_comment) > 2000 THEN
    RAISE EXCEPTION 'p_comment must have 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  IF p_ttl IS NULL OR p_ttl < interval '1 second' OR p_ttl > interval '7 days' THEN
    RAISE EXCEPTION 'p_ttl must be between 1 second and 7 days' USING ERRCODE = '22023';
  END IF;
  v_expires := clock_timestamp() + p_ttl;
  -- The lock on the heartbeat row makes two operators, and an operator and a beat, run one after the other; the lock on
  -- the row of a broadcast share does the same for shares. Other alerts have no row to lock, so every call locks the
  -- row of one flag first.
  PERFORM 1 FROM public.dot_config c WHERE c.key = 'queue.backlog.critical_seconds' FOR UPDATE;
  PERFORM 1 FROM public.queue_heartbeat h
  WHERE h.executor_id IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c) FOR UPDATE;
  PERFORM 1 FROM public.queue_broadcast_share b
  WHERE concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')) IN (SELECT c.subject
    FROM public.fn_queue_alert_current(p_alert_key) c)
  FOR UPDATE;
  SELECT * INTO v_alert FROM public.fn_queue_alert_current(p_alert_key);
  IF v_alert.alert_key IS NULL THEN
    v_rule := 'not_found';
    v_why := format('alert %s is not open: it has ended, or there never was one; qtop alerts lists the open ones',
      left(p_alert_key, 200));
  ELSIF v_alert.state = 'acked' THEN
    v_rule := 'already_acked';
    v_why := format('alert %s is acknowledged by %s since %s, until %s: %s', left(p_alert_key, 200), v_alert.acked_by,
      to_char(v_alert.acked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
      to_char(v_alert.ack_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), v_alert.comment);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(
      p_action => 'ack'::text, p_target => COALESCE(v_alert.alert_key, left(p_alert_key, 300)), p_actor => v_actor,
      p_reason => v_comment, p_rule => v_rule, p_why => v_why);
  END IF;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(),
    cleared_reason = CASE WHEN expires_at <= clock_timestamp() THEN 'expired' ELSE 'rose_to_critical' END
  WHERE alert_key = v_alert.alert_key AND cleared_at IS NULL;
  INSERT INTO public.queue_alert_ack (alert_key, subject, severity, acked_by, acked_at, comment, expires_at)
  VALUES (v_alert.alert_key, v_alert.subject, v_alert.severity, v_actor, clock_timestamp(), v_comment,
    v_expires);
  v_audit := public.fn_operator_audit(
    p_action => 'ack', p_target => v_alert.alert_key, p_actor => v_actor, p_reason => v_comment,
    p_before => jsonb_build_object('state', v_alert.state, 'severity', v_alert.severity),
    p_after => jsonb_build_object('state', 'acked', 'expires_at', v_expires),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'ack', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('alert_key', v_alert.alert_key, 'acked_by', v_actor, 'expires_at', v_expires, 'audit_id',
    v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_alert_ack TO :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_alert_ack IS
  'Acknowledges an alert: by whom, why and for how long. Refused while another acknowledgement is in force.';

-- fn_queue_alert_unack(alert key or subject, actor, comment) → {alert_key, was_acked_by, audit_id}: withdraws an
-- acknowledgement; refused: not_acked (nobody has acknowledged the alert).
CREATE OR REPLACE FUNCTION public.fn_queue_alert_unack(p_alert_key text, p_actor text, p_comment text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_comment text := public.fn_trimmed(p_comment);
  v_alert public.v_queue_alert;
  v_audit bigint;
BEGIN
  IF p_alert_key IS NULL THEN
    RAISE EXCEPTION 'p_alert_key must not be null' USING ERRCODE = '22023';
  ELSIF v_comment IS NULL OR length(p_comment) > 2000 THEN
    RAISE EXCEPTION 'p_comment must have 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.dot_config c WHERE c.key = 'queue.backlog.critical_seconds' FOR UPDATE; -- as in the ack
  PERFORM 1 FROM public.queue_heartbeat h
  WHERE h.executor_id IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c) FOR UPDATE;
  PERFORM 1 FROM public.queue_broadcast_share b
  WHERE concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')) IN (SELECT c.subject
    FROM public.fn_queue_alert_current(p_alert_key) c)
  FOR UPDATE;
  SELECT * INTO v_alert FROM public.fn_queue_alert_current(p_alert_key);
  IF v_alert.state IS DISTINCT FROM 'acked' THEN
    RETURN public.fn_operator_refused(
      p_action => 'unack'::text, p_target => COALESCE(v_alert.alert_key, left(p_alert_key, 300)), p_actor => v_actor,
      p_reason => v_comment, p_rule => 'not_acked'::text,
      p_why => format('alert %s is not acknowledged: there is nothing to withdraw', left(p_alert_key, 200)));
  END IF;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(), cleared_reason = 'unacked'
  WHERE alert_key = v_alert.alert_key AND cleared_at IS NULL;
  v_audit := public.fn_operator_audit(
    p_action => 'unack', p_target => v_alert.alert_key, p_actor => v_actor, p_reason => v_comment,
    p_before => jsonb_build_object('acked_by', v_alert.acked_by, 'expires_at', v_alert.ack_expires_at),
    p_after => jsonb_build_object('state', 'open'),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'ack', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('alert_key', v_alert.alert_key, 'was_acked_by', v_alert.acked_by, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_alert_unack TO :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_alert_unack IS 'Withdraws the acknowledgement of an alert, which is open again.';
