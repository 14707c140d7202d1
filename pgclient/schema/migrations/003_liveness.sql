-- Heartbeats, worker hosts, the stale check, and alerts with acknowledgement.
-- Source: DP4 §3.1, §3.4, §3.5.

SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------
-- Executors
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_heartbeat (
  executor_id              text PRIMARY KEY CHECK (executor_id <> '' AND length(executor_id) <= 200),
  executor_kind            text NOT NULL CONSTRAINT chk_queue_heartbeat_kind CHECK (executor_kind IN (
    'DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
  domain_scope             text[] NOT NULL,
  last_beat_at             timestamptz NOT NULL,
  last_beat_payload        jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT chk_queue_heartbeat_payload CHECK (NOT last_beat_payload ?| ARRAY[
      'body', 'content', 'raw', 'vector', 'embedding', 'secret', 'token', 'password', 'ssn', 'personal_data']),
  expected_cadence_seconds integer NOT NULL CHECK (expected_cadence_seconds > 0),
  stale_threshold_seconds  integer NOT NULL CHECK (stale_threshold_seconds > 0),
  registered_at            timestamptz NOT NULL DEFAULT now(),
  registered_by            text NOT NULL,
  owner_role               text,
  instance_id              text,
  deregistered_at          timestamptz,
  deregistered_by          text,
  tick_worker              boolean NOT NULL DEFAULT false,
  silent_since             timestamptz,
  silent_event_at          timestamptz,
  silent_event_ids         uuid[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE public.queue_heartbeat IS
  'One row per executor (DP4 §3.1). A deregistered one stays as a tombstone. owner_role: who besides its members '
  'may beat; null = any dot_executor. silent_*: the events emitted for the present silence.';
GRANT SELECT ON public.queue_heartbeat TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

CREATE TABLE public.queue_alert_ack (
  ack_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  alert_key      text NOT NULL,
  subject        text NOT NULL,
  severity       text NOT NULL CHECK (severity IN ('warning', 'critical')),
  acked_by       text NOT NULL,
  acked_at       timestamptz NOT NULL DEFAULT now(),
  comment        text NOT NULL,
  expires_at     timestamptz NOT NULL,
  cleared_at     timestamptz,
  cleared_reason text CHECK (cleared_reason IN ('expired', 'beat_returned', 'rose_to_critical', 'unacked', 'deregistered', 'share_fell')),
  CHECK ((cleared_at IS NULL) = (cleared_reason IS NULL))
);
CREATE UNIQUE INDEX ux_queue_alert_ack_open ON public.queue_alert_ack (alert_key) WHERE cleared_at IS NULL;
CREATE INDEX ix_queue_alert_ack_subject ON public.queue_alert_ack (subject, ack_id DESC);
COMMENT ON TABLE public.queue_alert_ack IS
  'Who has an alert, until when. One open acknowledgement per alert; it never hides the alert. severity: as it was '
  'acknowledged; a rise to critical ends it.';
GRANT SELECT ON public.queue_alert_ack TO queue_viewer, workflow_admin, dead_letter_operator;

CREATE TABLE public.queue_broadcast_share (
  event_domain  text PRIMARY KEY, -- '' = all domains together
  events_24h    bigint NOT NULL,
  broadcast_24h bigint NOT NULL,
  percent       numeric NOT NULL,
  warn_percent  int NOT NULL,
  sampled_at    timestamptz NOT NULL,
  over_since    timestamptz,
  event_at      timestamptz,
  event_ids     uuid[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
COMMENT ON TABLE public.queue_broadcast_share IS
  'The last sample of v_subscription_broadcast_share: what alerts and live panes read. over_since: the first sample above '
  'the line, null = not above it; event_at and event_ids: the events emitted for it.';
GRANT SELECT ON public.queue_broadcast_share TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

-- fn_queue_alert_key(executor, last beat) → the key of one silence. Internal.
CREATE FUNCTION public.fn_queue_alert_key(p_executor_id text, p_last_beat_at timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
  SELECT 'silence:' || p_executor_id || ':' || to_char(p_last_beat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_alert_key(text, timestamptz) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_alert_key(text, timestamptz) IS 'The key of one silence: executor and last beat. Internal.';

-- fn_queue_heartbeat_touch(executor, payload): the beat itself; also ends the
-- acknowledgement of the silence it breaks. Internal: the callers check who.
CREATE FUNCTION public.fn_queue_heartbeat_touch(p_executor_id text, p_payload jsonb) RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_at timestamptz := clock_timestamp();
BEGIN
  UPDATE public.queue_heartbeat SET last_beat_at = v_at, last_beat_payload = p_payload
  WHERE executor_id = p_executor_id;
  UPDATE public.queue_alert_ack SET cleared_at = v_at, cleared_reason = 'beat_returned'
  WHERE cleared_at IS NULL AND subject = p_executor_id;
  RETURN v_at;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_heartbeat_touch(text, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_heartbeat_touch(text, jsonb) IS 'Writes a beat and ends the acknowledgement of the silence. Internal.';

-- fn_queue_heartbeat_register(id, kind, domains, cadence, threshold, actor)
-- → {executor_id, registered, audit_id}; refused: exists. A tombstone comes back
-- to life. A null threshold takes the flag's. The first beat is owed from now on.
CREATE FUNCTION public.fn_queue_heartbeat_register(
  p_executor_id text, p_kind text, p_domain_scope text[],
  p_expected_cadence_seconds int, p_stale_threshold_seconds int, p_actor text)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_threshold int := COALESCE(p_stale_threshold_seconds, public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300));
  v_row public.queue_heartbeat;
  v_domain text;
  v_audit bigint;
BEGIN
  IF COALESCE(btrim(p_executor_id), '') = '' OR length(p_executor_id) > 200 OR p_executor_id <> btrim(p_executor_id) THEN
    RAISE EXCEPTION 'p_executor_id must have 1 to 200 characters and no space around it' USING ERRCODE = '22023';
  END IF;
  IF p_kind IS NULL OR p_kind NOT IN (
    'DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter') THEN
    RAISE EXCEPTION 'executor kind % is not admitted: use DOT, Agent, Hermes, Codex, PG_worker, external_worker or future_Kestra_adapter',
      COALESCE(quote_literal(left(p_kind, 60)), 'NULL') USING ERRCODE = '22023';
  END IF;
  IF p_expected_cadence_seconds IS NULL OR p_expected_cadence_seconds < 1 THEN
    RAISE EXCEPTION 'p_expected_cadence_seconds must be at least 1' USING ERRCODE = '22023';
  END IF;
  IF v_threshold < 1 OR v_threshold < p_expected_cadence_seconds THEN
    RAISE EXCEPTION 'the stale threshold (% s) must not be below the cadence (% s)', v_threshold, p_expected_cadence_seconds
      USING ERRCODE = '22023';
  END IF;
  FOREACH v_domain IN ARRAY COALESCE(p_domain_scope, '{}') LOOP
    IF v_domain IS NULL OR v_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
      RAISE EXCEPTION 'domain % must match ^[a-z][a-z0-9_]{0,50}$', COALESCE(quote_literal(left(v_domain, 60)), 'NULL')
        USING ERRCODE = '22023';
    END IF;
  END LOOP;

  INSERT INTO public.queue_heartbeat AS h
    (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds, registered_by)
  VALUES
    (p_executor_id, p_kind, COALESCE(p_domain_scope, '{}'), clock_timestamp(), p_expected_cadence_seconds, v_threshold, v_actor)
  ON CONFLICT (executor_id) DO UPDATE SET
    executor_kind = excluded.executor_kind, domain_scope = excluded.domain_scope, last_beat_at = excluded.last_beat_at,
    last_beat_payload = '{}', expected_cadence_seconds = excluded.expected_cadence_seconds,
    stale_threshold_seconds = excluded.stale_threshold_seconds, registered_at = clock_timestamp(),
    registered_by = excluded.registered_by, deregistered_at = NULL, deregistered_by = NULL,
    silent_since = NULL, silent_event_at = NULL, silent_event_ids = '{}'
  WHERE h.deregistered_at IS NOT NULL AND NOT h.tick_worker;
  IF NOT FOUND THEN
    SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
    v_audit := public.fn_operator_audit('executor_register', p_executor_id, v_actor, NULL, NULL, NULL, NULL, NULL, 'refused: exists');
    RETURN jsonb_build_object('refused', true, 'rule', 'exists', 'audit_id', v_audit,
      'reason', format('%s is registered already, by %s at %s', p_executor_id, v_row.registered_by,
        to_char(v_row.registered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  v_audit := public.fn_operator_audit('executor_register', p_executor_id, v_actor, NULL, NULL, NULL, NULL,
    jsonb_build_object('kind', p_kind, 'domains', COALESCE(p_domain_scope, '{}'),
      'cadence', p_expected_cadence_seconds, 'threshold', v_threshold));
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'executor', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('executor_id', p_executor_id, 'registered', true, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_heartbeat_register(text, text, text[], int, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_register(text, text, text[], int, int, text) TO workflow_admin;
COMMENT ON FUNCTION public.fn_queue_heartbeat_register(text, text, text[], int, int, text) IS
  'Registers an executor, so that its silence is seen (DP4 §6). MOT is not an executor.';

-- fn_queue_heartbeat_write(id, payload, actor) → {executor_id, last_beat_at};
-- refused: unregistered, deregistered, tick_worker, not_owner.
CREATE FUNCTION public.fn_queue_heartbeat_write(p_executor_id text, p_payload jsonb, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_row public.queue_heartbeat;
  v_rule text;
  v_reason text;
BEGIN
  IF jsonb_typeof(COALESCE(p_payload, '{}')) <> 'object' OR octet_length(p_payload::text) > 8000 THEN
    RAISE EXCEPTION 'p_payload must be an object of at most 8000 bytes' USING ERRCODE = '22023';
  END IF;
  IF p_payload ?| ARRAY[
    'body', 'content', 'raw', 'vector', 'embedding', 'secret', 'token', 'password', 'ssn', 'personal_data'] THEN
    RAISE EXCEPTION 'p_payload tells how the executor is, not what it works on: body, content, raw, vector, embedding, '
      'secret, token, password, ssn and personal_data are refused' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id FOR UPDATE;
  IF NOT FOUND THEN
    v_rule := 'unregistered';
    v_reason := format('%s is not registered: have a workflow_admin register it first', left(p_executor_id, 200));
  ELSIF v_row.deregistered_at IS NOT NULL THEN
    v_rule := 'deregistered';
    v_reason := format('%s was deregistered by %s', p_executor_id, v_row.deregistered_by);
  ELSIF v_row.tick_worker THEN
    v_rule := 'tick_worker';
    v_reason := format('%s is beaten by its tick alone: call fn_queue_tick_request', p_executor_id);
  ELSIF v_row.owner_role IS NOT NULL AND NOT (
    EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_row.owner_role)
    AND pg_has_role(session_user, v_row.owner_role, 'MEMBER')) THEN
    v_rule := 'not_owner';
    v_reason := format('%s belongs to role %s: nobody else heals its silence', p_executor_id, v_row.owner_role);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_reason);
  END IF;
  RETURN jsonb_build_object('executor_id', p_executor_id, 'actor', v_actor,
    'last_beat_at', public.fn_queue_heartbeat_touch(p_executor_id, COALESCE(p_payload, '{}')));
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_heartbeat_write(text, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_write(text, jsonb, text) TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_heartbeat_write(text, jsonb, text) IS
  'A beat of a registered executor. Payload keys: state (working, idle, stopped), done_total, in_flight, last_work_at.';

-- fn_queue_executor_waits(id) → why the executor cannot go: work waits for it. NULL
-- as long as there is nothing that could wait. Internal.
CREATE FUNCTION public.fn_queue_executor_waits(p_executor_id text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$ SELECT NULL::text $fn$;
REVOKE ALL ON FUNCTION public.fn_queue_executor_waits(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_executor_waits(text) IS 'Which work waits for an executor, null = none. Internal.';

-- fn_queue_heartbeat_deregister(id, actor, reason) → {executor_id, deregistered,
-- audit_id}; refused: not_found, gone, tick_worker, work_waits.
CREATE FUNCTION public.fn_queue_heartbeat_deregister(p_executor_id text, p_actor text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_row public.queue_heartbeat;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id FOR UPDATE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('no executor %s is registered', left(p_executor_id, 200));
  ELSIF v_row.deregistered_at IS NOT NULL THEN
    v_rule := 'gone';
    v_why := format('%s was deregistered by %s at %s', p_executor_id, v_row.deregistered_by,
      to_char(v_row.deregistered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'));
  ELSIF v_row.tick_worker THEN
    v_rule := 'tick_worker';
    v_why := format('%s is a worker of the queue itself: switch it off with queue.tick.%s.interval_seconds = 0',
      p_executor_id, p_executor_id);
  ELSE
    v_why := public.fn_queue_executor_waits(p_executor_id);
    v_rule := CASE WHEN v_why IS NOT NULL THEN 'work_waits' END;
  END IF;
  IF v_rule IS NOT NULL THEN
    v_audit := public.fn_operator_audit('executor_deregister', left(p_executor_id, 200), v_actor, v_reason,
      NULL, NULL, NULL, NULL, 'refused: ' || v_rule);
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'audit_id', v_audit);
  END IF;
  UPDATE public.queue_heartbeat SET deregistered_at = clock_timestamp(), deregistered_by = v_actor
  WHERE executor_id = p_executor_id;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(), cleared_reason = 'deregistered'
  WHERE cleared_at IS NULL AND subject = p_executor_id;
  v_audit := public.fn_operator_audit('executor_deregister', p_executor_id, v_actor, v_reason, NULL, NULL,
    jsonb_build_object('last_beat_at', v_row.last_beat_at, 'kind', v_row.executor_kind), NULL);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'executor', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('executor_id', p_executor_id, 'deregistered', true, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_heartbeat_deregister(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_deregister(text, text, text) TO workflow_admin;
COMMENT ON FUNCTION public.fn_queue_heartbeat_deregister(text, text, text) IS
  'Takes an executor off the watch. It stays listed as a tombstone.';

-- ---------------------------------------------------------------------------
-- Silence
-- ---------------------------------------------------------------------------
-- fn_queue_severity(age, cadence) → warning below ten cadences, critical from ten.
CREATE FUNCTION public.fn_queue_severity(p_age_seconds double precision, p_cadence_seconds int) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
  SELECT CASE WHEN p_age_seconds / p_cadence_seconds < 10 THEN 'warning' ELSE 'critical' END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_severity(double precision, int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_severity(double precision, int) IS
  'Severity of a silence by age ÷ cadence: warning below 10, critical from 10.';

CREATE VIEW public.v_queue_alert AS
SELECT s.alert_key, s.kind, s.subject, s.severity, s.since, floor(s.age)::bigint AS age_seconds, s.ratio, s.event_ids,
       CASE WHEN a.ack_id IS NOT NULL THEN 'acked' ELSE 'open' END AS state,
       a.acked_by, a.acked_at, a.comment, a.expires_at AS ack_expires_at,
       CASE WHEN a.ack_id IS NULL THEN COALESCE(
         (SELECT COALESCE(p.cleared_reason,
                          CASE WHEN p.expires_at <= now() THEN 'expired' ELSE 'rose_to_critical' END)
          FROM public.queue_alert_ack p WHERE p.subject = s.subject AND p.alert_key = s.alert_key
          ORDER BY p.ack_id DESC LIMIT 1), '') ELSE '' END AS last_cleared
FROM (
  SELECT 'silence:' || h.executor_id || ':' || to_char(h.last_beat_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS alert_key,
         'silence'::text AS kind, h.executor_id AS subject,
         CASE WHEN extract(epoch FROM now() - h.last_beat_at) / h.expected_cadence_seconds < 10
           THEN 'warning' ELSE 'critical' END AS severity,
         h.last_beat_at AS since, extract(epoch FROM now() - h.last_beat_at) AS age,
         round((extract(epoch FROM now() - h.last_beat_at) / h.expected_cadence_seconds)::numeric, 2) AS ratio,
         CASE WHEN h.silent_since = h.last_beat_at THEN h.silent_event_ids ELSE '{}' END AS event_ids
  FROM public.queue_heartbeat h
  WHERE h.deregistered_at IS NULL
    AND COALESCE(h.last_beat_payload ->> 'state', '') <> 'stopped'
    AND now() - h.last_beat_at > make_interval(secs => h.stale_threshold_seconds)
  UNION ALL
  SELECT concat_ws(':', 'broadcast', NULLIF(b.event_domain, ''), to_char(b.over_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
         'broadcast', concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')), 'warning', b.over_since,
         extract(epoch FROM now() - b.over_since), round(b.percent / greatest(b.warn_percent, 1), 2), b.event_ids
  FROM public.queue_broadcast_share b WHERE b.over_since IS NOT NULL
) s
LEFT JOIN public.queue_alert_ack a
  ON a.alert_key = s.alert_key AND a.cleared_at IS NULL AND a.expires_at > now()
  AND NOT (a.severity = 'warning' AND s.severity = 'critical');
COMMENT ON VIEW public.v_queue_alert IS
  'One row per silence, from the heartbeat row and server time, whether or not a checker ran; and one per sampled share of '
  'broadcast events that is over the line (ratio = share over line; always a warning, DP6 §3.2). An acknowledgement ends when '
  'it expires, when the beat returns or the share falls, or when the alert rises to critical; it never hides the row.';
GRANT SELECT ON public.v_queue_alert TO queue_viewer, workflow_admin, dead_letter_operator;

-- fn_queue_stale_check() → {checked, emitted, acks_cleared, monitoring}: DP4 §3.5.
-- One event per executor per 2 × threshold, also when two run at once: the row
-- is locked, a second checker skips it, a later one sees silent_event_at.
CREATE FUNCTION public.fn_queue_stale_check() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_row public.queue_heartbeat;
  v_age double precision;
  v_event uuid;
  v_emitted int := 0;
  v_checked int := 0;
  v_cleared int;
BEGIN
  UPDATE public.queue_alert_ack a SET cleared_at = clock_timestamp(),
    cleared_reason = CASE WHEN a.expires_at <= clock_timestamp() THEN 'expired' ELSE 'rose_to_critical' END
  WHERE a.ack_id IN (
    SELECT b.ack_id FROM public.queue_alert_ack b
    WHERE b.cleared_at IS NULL AND (b.expires_at <= clock_timestamp() OR (b.severity = 'warning' AND EXISTS (
      SELECT 1 FROM public.v_queue_alert v WHERE v.alert_key = b.alert_key AND v.severity = 'critical')))
    ORDER BY b.ack_id FOR UPDATE SKIP LOCKED);
  GET DIAGNOSTICS v_cleared = ROW_COUNT;

  IF public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300) >= 1000000 THEN
    RETURN jsonb_build_object('checked', 0, 'emitted', 0, 'acks_cleared', v_cleared, 'monitoring', false);
  END IF;
  FOR v_row IN
    SELECT * FROM public.queue_heartbeat h
    WHERE h.deregistered_at IS NULL
      AND COALESCE(h.last_beat_payload ->> 'state', '') <> 'stopped'
      AND clock_timestamp() - h.last_beat_at > make_interval(secs => h.stale_threshold_seconds)
      AND (h.silent_event_at IS NULL
        OR clock_timestamp() - h.silent_event_at >= make_interval(secs => h.stale_threshold_seconds * 2.0))
    ORDER BY h.executor_id
    FOR UPDATE SKIP LOCKED
  LOOP
    v_checked := v_checked + 1;
    v_age := extract(epoch FROM clock_timestamp() - v_row.last_beat_at);
    v_event := (public.fn_iu_emit_event(
      'system', 'queue_worker_silent', 'alert', 'immediate',
      public.fn_queue_severity(v_age, v_row.expected_cadence_seconds),
      'queue_heartbeat', v_row.executor_id,
      jsonb_build_object('executor_id', v_row.executor_id, 'age_seconds', floor(v_age)::bigint,
        'expected_cadence_seconds', v_row.expected_cadence_seconds,
        'gap_ratio', round((v_age / v_row.expected_cadence_seconds)::numeric, 2)),
      'agent:queue_stale_check') ->> 'event_id')::uuid;
    UPDATE public.queue_heartbeat SET
      silent_event_at = clock_timestamp(), silent_since = v_row.last_beat_at,
      silent_event_ids = CASE WHEN v_row.silent_since = v_row.last_beat_at
        THEN (ARRAY[v_event] || v_row.silent_event_ids)[1:20] ELSE ARRAY[v_event] END
    WHERE executor_id = v_row.executor_id;
    v_emitted := v_emitted + 1;
  END LOOP;
  RETURN jsonb_build_object('checked', v_checked, 'emitted', v_emitted, 'acks_cleared', v_cleared, 'monitoring', true);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_stale_check() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_stale_check() TO dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_queue_stale_check() IS
  'Tick stale_heartbeat_check: emits system/queue_worker_silent once per executor per 2 × threshold (DP4 §3.5), '
  'and closes acknowledgements that expired or were overtaken.';

-- fn_queue_alert_current(text) → the alert an operator means: its key, the executor
-- it is about, or broadcast[:domain]. Internal.
CREATE FUNCTION public.fn_queue_alert_current(p_alert_key text) RETURNS SETOF public.v_queue_alert
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
  SELECT * FROM public.v_queue_alert v WHERE v.alert_key = p_alert_key OR v.subject = p_alert_key
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_alert_current(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_alert_current(text) IS 'The alert with this key or about this executor. Internal.';

-- fn_queue_alert_ack(alert key or executor, actor, comment, ttl) → {alert_key,
-- expires_at, audit_id}; refused: not_found, already_acked (whose, until when).
CREATE FUNCTION public.fn_queue_alert_ack(p_alert_key text, p_actor text, p_comment text, p_ttl interval) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_alert public.v_queue_alert;
  v_expires timestamptz := clock_timestamp() + p_ttl;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF COALESCE(btrim(p_comment), '') = '' OR length(p_comment) > 2000 THEN
    RAISE EXCEPTION 'a comment is needed, with 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  IF p_ttl IS NULL OR p_ttl < interval '1 second' OR p_ttl > interval '7 days' THEN
    RAISE EXCEPTION 'p_ttl must lie between 1 second and 7 days' USING ERRCODE = '22023';
  END IF;
  -- The heartbeat row serializes two operators, and an operator with a beat; so does the row of a share.
  PERFORM 1 FROM public.queue_heartbeat h
  WHERE h.executor_id IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c) FOR UPDATE;
  PERFORM 1 FROM public.queue_broadcast_share b
  WHERE concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')) IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c)
  FOR UPDATE;
  SELECT * INTO v_alert FROM public.fn_queue_alert_current(p_alert_key);
  IF v_alert.alert_key IS NULL THEN
    v_rule := 'not_found';
    v_why := format('there is no alert %s now: the beat returned, the share fell, or it never was', left(p_alert_key, 200));
  ELSIF v_alert.state = 'acked' THEN
    v_rule := 'already_acked';
    v_why := format('%s has it since %s, until %s: %s', v_alert.acked_by,
      to_char(v_alert.acked_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
      to_char(v_alert.ack_expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), v_alert.comment);
  END IF;
  IF v_rule IS NOT NULL THEN
    v_audit := public.fn_operator_audit('ack', COALESCE(v_alert.alert_key, left(p_alert_key, 300)), v_actor, btrim(p_comment),
      NULL, NULL, NULL, NULL, 'refused: ' || v_rule);
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'audit_id', v_audit);
  END IF;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(),
    cleared_reason = CASE WHEN expires_at <= clock_timestamp() THEN 'expired' ELSE 'rose_to_critical' END
  WHERE alert_key = v_alert.alert_key AND cleared_at IS NULL;
  INSERT INTO public.queue_alert_ack (alert_key, subject, severity, acked_by, acked_at, comment, expires_at)
  VALUES (v_alert.alert_key, v_alert.subject, v_alert.severity, v_actor, clock_timestamp(), btrim(p_comment), v_expires);
  v_audit := public.fn_operator_audit('ack', v_alert.alert_key, v_actor, btrim(p_comment), NULL, NULL,
    jsonb_build_object('state', v_alert.state, 'severity', v_alert.severity),
    jsonb_build_object('state', 'acked', 'expires_at', v_expires));
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'ack', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('alert_key', v_alert.alert_key, 'acked_by', v_actor, 'expires_at', v_expires, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_alert_ack(text, text, text, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_alert_ack(text, text, text, interval) TO workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_queue_alert_ack(text, text, text, interval) IS
  'Says who has an alert, why and for how long. A second operator is told whose it is.';

-- fn_queue_alert_unack(alert key or executor, actor, comment) → {alert_key,
-- audit_id}; refused: not_acked.
CREATE FUNCTION public.fn_queue_alert_unack(p_alert_key text, p_actor text, p_comment text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_alert public.v_queue_alert;
  v_audit bigint;
BEGIN
  IF COALESCE(btrim(p_comment), '') = '' OR length(p_comment) > 2000 THEN
    RAISE EXCEPTION 'a comment is needed, with 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.queue_heartbeat h
  WHERE h.executor_id IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c) FOR UPDATE;
  PERFORM 1 FROM public.queue_broadcast_share b
  WHERE concat_ws(':', 'broadcast', NULLIF(b.event_domain, '')) IN (SELECT c.subject FROM public.fn_queue_alert_current(p_alert_key) c)
  FOR UPDATE;
  SELECT * INTO v_alert FROM public.fn_queue_alert_current(p_alert_key);
  IF v_alert.state IS DISTINCT FROM 'acked' THEN
    v_audit := public.fn_operator_audit('unack', COALESCE(v_alert.alert_key, left(p_alert_key, 300)), v_actor, btrim(p_comment),
      NULL, NULL, NULL, NULL, 'refused: not_acked');
    RETURN jsonb_build_object('refused', true, 'rule', 'not_acked', 'audit_id', v_audit,
      'reason', format('nobody has %s now', left(p_alert_key, 200)));
  END IF;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(), cleared_reason = 'unacked'
  WHERE alert_key = v_alert.alert_key AND cleared_at IS NULL;
  v_audit := public.fn_operator_audit('unack', v_alert.alert_key, v_actor, btrim(p_comment), NULL, NULL,
    jsonb_build_object('acked_by', v_alert.acked_by, 'expires_at', v_alert.ack_expires_at), jsonb_build_object('state', 'open'));
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'ack', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('alert_key', v_alert.alert_key, 'was_acked_by', v_alert.acked_by, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_alert_unack(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_alert_unack(text, text, text) TO workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_queue_alert_unack(text, text, text) IS 'Opens an acknowledged alert again.';

-- ---------------------------------------------------------------------------
-- Worker hosts
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_host (
  host_id      text PRIMARY KEY CHECK (host_id <> '' AND length(host_id) <= 200),
  instance     uuid NOT NULL,
  started_at   timestamptz NOT NULL DEFAULT now(),
  last_seen_at timestamptz NOT NULL DEFAULT now(),
  stopped_at   timestamptz,
  version      text NOT NULL DEFAULT '',
  loops        text[] NOT NULL DEFAULT '{}',
  in_flight    int NOT NULL DEFAULT 0,
  progress     jsonb NOT NULL DEFAULT '{}',
  db_role      text NOT NULL DEFAULT session_user,
  client_addr  inet DEFAULT inet_client_addr()
) WITH (fillfactor = 50);
COMMENT ON TABLE public.queue_host IS 'Worker hosts: the processes that tick and send. They are not executors.';
GRANT SELECT ON public.queue_host TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

-- fn_queue_host_register(id, instance, version, loops) → {host_id, instance};
-- refused: held (by which instance, since when). Alive = seen within 15 s.
CREATE FUNCTION public.fn_queue_host_register(p_host_id text, p_instance uuid, p_version text, p_loops text[]) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_row public.queue_host;
BEGIN
  IF COALESCE(btrim(p_host_id), '') = '' OR length(p_host_id) > 200 OR p_instance IS NULL THEN
    RAISE EXCEPTION 'p_host_id (1 to 200 characters) and p_instance are needed' USING ERRCODE = '22023';
  END IF;
  INSERT INTO public.queue_host AS q (host_id, instance, version, loops)
  VALUES (p_host_id, p_instance, COALESCE(p_version, ''), COALESCE(p_loops, '{}'))
  ON CONFLICT (host_id) DO UPDATE SET
    instance = excluded.instance, started_at = now(), last_seen_at = now(), stopped_at = NULL,
    version = excluded.version, loops = excluded.loops, in_flight = 0, progress = '{}',
    db_role = session_user, client_addr = inet_client_addr()
  WHERE q.instance = excluded.instance OR q.stopped_at IS NOT NULL OR q.last_seen_at < clock_timestamp() - interval '15 seconds';
  SELECT * INTO v_row FROM public.queue_host WHERE host_id = p_host_id;
  IF v_row.instance <> p_instance THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'held', 'reason', format(
      'host id %s is held by instance %s since %s (%s%s), last seen %s s ago: choose another host_id, or stop that one',
      p_host_id, v_row.instance, to_char(v_row.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), v_row.db_role,
      COALESCE(' from ' || host(v_row.client_addr), ' on a local socket'),
      floor(extract(epoch FROM clock_timestamp() - v_row.last_seen_at))));
  END IF;
  RETURN jsonb_build_object('host_id', p_host_id, 'instance', p_instance);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_host_register(text, uuid, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_register(text, uuid, text, text[]) TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_host_register(text, uuid, text, text[]) IS
  'Announces a worker host; a second live instance with the same id is refused and told who holds it.';

-- fn_queue_host_beat(id, instance, loops, in_flight, progress) → {host_id};
-- refused: lost (another instance took the id while this one was silent).
CREATE FUNCTION public.fn_queue_host_beat(
  p_host_id text, p_instance uuid, p_loops text[], p_in_flight int, p_progress jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_host SET last_seen_at = clock_timestamp(), loops = COALESCE(p_loops, '{}'),
    in_flight = COALESCE(p_in_flight, 0), progress = COALESCE(p_progress, '{}'), stopped_at = NULL
  WHERE host_id = p_host_id AND instance = p_instance;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'lost',
      'reason', format('host id %s is no longer held by this instance', left(p_host_id, 200)));
  END IF;
  RETURN jsonb_build_object('host_id', p_host_id);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb) TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb) IS 'A sign of life of a worker host, with its loops.';

-- fn_queue_host_stop(id, instance) → {host_id, stopped}: a clean stop.
CREATE FUNCTION public.fn_queue_host_stop(p_host_id text, p_instance uuid) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  UPDATE public.queue_host SET stopped_at = clock_timestamp(), last_seen_at = clock_timestamp(), loops = '{}', in_flight = 0
  WHERE host_id = p_host_id AND instance = p_instance;
  RETURN jsonb_build_object('host_id', p_host_id, 'stopped', FOUND);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_host_stop(text, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_stop(text, uuid) TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_host_stop(text, uuid) IS 'Says that a worker host ended cleanly.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_queue_host_stop(text, uuid);
DROP FUNCTION public.fn_queue_host_beat(text, uuid, text[], int, jsonb);
DROP FUNCTION public.fn_queue_host_register(text, uuid, text, text[]);
DROP TABLE public.queue_host;
DROP FUNCTION public.fn_queue_alert_unack(text, text, text);
DROP FUNCTION public.fn_queue_alert_ack(text, text, text, interval);
DROP FUNCTION public.fn_queue_alert_current(text);
DROP FUNCTION public.fn_queue_stale_check();
DROP VIEW public.v_queue_alert;
DROP FUNCTION public.fn_queue_severity(double precision, int);
DROP FUNCTION public.fn_queue_heartbeat_deregister(text, text, text);
DROP FUNCTION public.fn_queue_executor_waits(text);
DROP FUNCTION public.fn_queue_heartbeat_write(text, jsonb, text);
DROP FUNCTION public.fn_queue_heartbeat_register(text, text, text[], int, int, text);
DROP FUNCTION public.fn_queue_heartbeat_touch(text, jsonb);
DROP FUNCTION public.fn_queue_alert_key(text, timestamptz);
DROP TABLE public.queue_alert_ack;
DROP TABLE public.queue_broadcast_share;
DROP TABLE public.queue_heartbeat;
RESET ROLE;
