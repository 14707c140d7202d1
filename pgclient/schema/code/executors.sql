-- Executors: register, heartbeat, deregister. Source: DP4 §3.1, §3.4.

COMMENT ON TABLE public.queue_heartbeat IS
  'One row per executor (DP4 §3.1). The row of a deregistered executor stays as a tombstone. owner_role: only its '
  'members may beat; null = any dot_executor. silent_*: the events emitted for the current silence.';
COMMENT ON COLUMN public.queue_heartbeat.domain_scope IS 'event domains that the executor serves';
COMMENT ON COLUMN public.queue_heartbeat.last_beat_payload IS
  'state (working, idle, stopped), done_total, in_flight, last_work_at';
COMMENT ON COLUMN public.queue_heartbeat.expected_cadence_seconds IS
  'longest normal time between two beats; for a tick worker a copy of its interval';
COMMENT ON COLUMN public.queue_heartbeat.stale_threshold_seconds IS
  'the executor is silent after this long without a beat; from 1,000,000 on it is not watched. For a tick worker a '
  'copy of the flags, written when they change: v_queue_watch has the value in force';
COMMENT ON COLUMN public.queue_heartbeat.counted_from IS
  'silence counts from this time if it is later than the last beat, because the interval became shorter; NULL = never';
COMMENT ON COLUMN public.queue_heartbeat.owner_role IS
  'members of this role may beat, claim and report results as the executor; NULL = any dot_executor';
COMMENT ON COLUMN public.queue_heartbeat.instance_id IS
  'who sent the last beat, as the caller said: HOST/INSTANCE of a worker host; NULL for a tick worker';
COMMENT ON COLUMN public.queue_heartbeat.deregistered_at IS 'when it was deregistered; the row stays on the lists';
COMMENT ON COLUMN public.queue_heartbeat.tick_worker IS 'true = only its tick writes its beats';
GRANT SELECT ON public.queue_heartbeat TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_heartbeat_touch(executor, payload, instance) → time of the beat: writes a beat; if the beat ends a silence,
-- the acknowledgement of that silence ends too. Internal: the callers check that the login may beat as this executor.
CREATE OR REPLACE FUNCTION public.fn_queue_heartbeat_touch(p_executor_id text, p_payload jsonb, p_instance text)
  RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_at timestamptz := clock_timestamp();
BEGIN
  -- The beat must not wait for a session that has locked the row, for example in an open transaction that sets a flag
  -- or acknowledges an alert. The beat is then not recorded, and fn_queue_tick_why names that session.
  UPDATE public.queue_heartbeat SET last_beat_at = v_at, last_beat_payload = p_payload, instance_id = p_instance
  WHERE executor_id = (SELECT h.executor_id FROM public.queue_heartbeat h WHERE h.executor_id = p_executor_id
    FOR UPDATE SKIP LOCKED);
  UPDATE public.queue_alert_ack SET cleared_at = v_at, cleared_reason = 'beat_returned'
  WHERE ack_id IN (SELECT a.ack_id FROM public.queue_alert_ack a WHERE a.cleared_at IS NULL
    AND a.subject = p_executor_id FOR UPDATE SKIP LOCKED);
  RETURN v_at;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_heartbeat_touch IS
  'Writes a beat and ends the acknowledgement of the silence. Internal.';

-- fn_executor_member(role) → whether the login is a member of the role that owns an executor; true if role is NULL (the
-- executor has no owner). A role that no longer exists has no members. Internal.
CREATE OR REPLACE FUNCTION public.fn_executor_member(p_owner_role text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT p_owner_role IS NULL
    OR COALESCE(pg_has_role(session_user, to_regrole(quote_ident(p_owner_role))::oid, 'MEMBER'), false)
$fn$;
COMMENT ON FUNCTION public.fn_executor_member IS
  'Whether this login belongs to the role that owns an executor. Internal.';

-- fn_queue_executor_register(id, kind, domains, cadence, threshold, owner role, actor) → {executor_id, registered,
-- audit_id}: registers an executor, or registers a deregistered one again. Refused: exists. threshold: NULL =
-- fn_queue_threshold_default. Until the first beat, silence counts from the registration. owner role: the login or the
-- group of the executor's hosts; only its members may claim, beat and report results as this executor.
CREATE OR REPLACE FUNCTION public.fn_queue_executor_register(
  p_executor_id text, p_kind text, p_domain_scope text[],
  p_expected_cadence_seconds int, p_stale_threshold_seconds int, p_owner_role text, p_actor text)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_owner text := public.fn_queue_role_name(p_owner_role);
  v_threshold int := COALESCE(p_stale_threshold_seconds, public.fn_queue_threshold_default());
  v_row public.queue_heartbeat;
  v_domain text;
  v_audit bigint;
BEGIN
  IF (p_executor_id = public.fn_trimmed(p_executor_id) AND length(p_executor_id) <= 200) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_executor_id must have 1 to 200 characters and no leading or trailing spaces'
      USING ERRCODE = '22023';
  END IF;
  IF p_kind IS NULL OR p_kind NOT IN (:executor_kinds) THEN
    RAISE EXCEPTION 'p_kind % is not allowed: use %', COALESCE(quote_literal(left(p_kind, 60)), 'NULL'),
      public.fn_words(ARRAY[:executor_kinds], 'or') USING ERRCODE = '22023';
  END IF;
  IF (p_expected_cadence_seconds BETWEEN 1 AND 604800) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_expected_cadence_seconds must be 1 to 604800 (one week)' USING ERRCODE = '22023';
  END IF;
  IF v_threshold > 999999999 THEN
    RAISE EXCEPTION 'p_stale_threshold_seconds must be at most 999999999; from 1000000 on the executor is not watched'
      USING ERRCODE = '22023';
  END IF;
  IF v_threshold < 1 OR v_threshold < p_expected_cadence_seconds THEN
    RAISE EXCEPTION 'p_stale_threshold_seconds (% s) must not be below p_expected_cadence_seconds (% s)', v_threshold,
      p_expected_cadence_seconds
      USING ERRCODE = '22023';
  END IF;
  FOREACH v_domain IN ARRAY COALESCE(p_domain_scope, '{}') LOOP
    IF v_domain IS NULL OR v_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
      RAISE EXCEPTION 'p_domain_scope % must match ^[a-z][a-z0-9_]{0,50}$',
        COALESCE(quote_literal(left(v_domain, 60)), 'NULL') USING ERRCODE = '22023';
    END IF;
  END LOOP;
  -- An empty list means any domain: the job subscriptions determine what it may claim (DP4 §3.1, DP6).
  SELECT d INTO v_domain FROM unnest(p_domain_scope) d GROUP BY d HAVING count(*) > 1 ORDER BY d LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'p_domain_scope % is named twice', quote_literal(v_domain) USING ERRCODE = '22023';
  END IF;

  IF COALESCE(p_owner_role, '') = '' THEN
    RAISE EXCEPTION 'p_owner_role is empty: it must name the login or the group of the executor''s hosts'
      USING ERRCODE = '22023';
  ELSIF to_regrole(quote_ident(v_owner)) IS NULL THEN
    RAISE EXCEPTION 'role % does not exist: p_owner_role must name the login or the group of the executor''s hosts',
      quote_literal(left(p_owner_role, 63)) USING ERRCODE = '22023';
  END IF;

  INSERT INTO public.queue_heartbeat AS h
    (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
      owner_role, registered_by)
  VALUES
    (p_executor_id, p_kind, COALESCE(p_domain_scope, '{}'), clock_timestamp(), p_expected_cadence_seconds,
      v_threshold, v_owner, v_actor)
  ON CONFLICT (executor_id) DO UPDATE SET
    executor_kind = excluded.executor_kind, domain_scope = excluded.domain_scope, last_beat_at = excluded.last_beat_at,
    last_beat_payload = '{}', expected_cadence_seconds = excluded.expected_cadence_seconds,
    stale_threshold_seconds = excluded.stale_threshold_seconds, registered_at = clock_timestamp(),
    owner_role = excluded.owner_role, registered_by = excluded.registered_by, deregistered_at = NULL,
    deregistered_by = NULL, instance_id = NULL,
    silent_since = NULL, silent_event_at = NULL, silent_event_ids = '{}'
  WHERE h.deregistered_at IS NOT NULL AND NOT h.tick_worker;
  IF NOT FOUND THEN
    SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
    RETURN public.fn_operator_refused(
      p_action => 'executor_register'::text, p_target => p_executor_id, p_actor => v_actor, p_reason => NULL::text,
      p_rule => 'exists'::text,
      p_why => format('executor %s is already registered, by %s at %s', p_executor_id, v_row.registered_by,
        to_char(v_row.registered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  v_audit := public.fn_operator_audit(
    p_action => 'executor_register', p_target => p_executor_id, p_actor => v_actor, p_reason => NULL,
    p_after => jsonb_build_object('kind', p_kind, 'domains', COALESCE(p_domain_scope, '{}'), 'cadence',
      p_expected_cadence_seconds, 'threshold', v_threshold, 'owner_role', v_owner),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'executor', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('executor_id', p_executor_id, 'registered', true, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_executor_register TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_executor_register IS
  'Registers an executor and the role whose members may act as it. The kind MOT is refused: it is no executor.';

-- fn_queue_heartbeat_register(id, kind, domains, cadence, threshold, actor): like fn_queue_executor_register, but every
-- member of dot_executor may act as the new executor (DP4 §6).
CREATE OR REPLACE FUNCTION public.fn_queue_heartbeat_register(
  p_executor_id text, p_kind text, p_domain_scope text[],
  p_expected_cadence_seconds int, p_stale_threshold_seconds int, p_actor text)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_queue_executor_register(p_executor_id => p_executor_id, p_kind => p_kind,
    p_domain_scope => p_domain_scope, p_expected_cadence_seconds => p_expected_cadence_seconds,
    p_stale_threshold_seconds => p_stale_threshold_seconds, p_owner_role => :'dot_executor'::text,
    p_actor => p_actor);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_register TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_heartbeat_register IS
  'Registers an executor so that its silence is noticed (DP4 §6); any dot_executor may act as it.';

-- fn_queue_executor_owner_set(id, owner role, actor, reason) → {executor_id, before, after, audit_id}: makes another
-- login or group the owner of an executor. The hosts of the new owner go on with the jobs that are leased to the
-- executor. Refused: not_found; gone (the executor was deregistered); tick_worker (the id is that of a tick worker).
CREATE OR REPLACE FUNCTION public.fn_queue_executor_owner_set(p_executor_id text, p_owner_role text, p_actor text,
  p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_owner text := public.fn_queue_role_name(p_owner_role);
  v_row public.queue_heartbeat;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_executor_id IS NULL THEN
    RAISE EXCEPTION 'p_executor_id must not be null' USING ERRCODE = '22023';
  ELSIF COALESCE(v_owner, '') = '' OR to_regrole(quote_ident(v_owner)) IS NULL THEN
    RAISE EXCEPTION 'role % does not exist: p_owner_role must name the login or the group of the executor''s hosts',
      quote_literal(left(COALESCE(p_owner_role, ''), 63)) USING ERRCODE = '22023';
  END IF;
  -- a tick worker is refused, so its row needs no lock
  PERFORM 1 FROM public.queue_heartbeat WHERE executor_id = p_executor_id AND NOT tick_worker FOR UPDATE;
  SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('no executor %s is registered; qtop executors lists them', left(p_executor_id, 200));
  ELSIF v_row.deregistered_at IS NOT NULL THEN
    v_rule := 'gone';
    v_why := format('executor %s was deregistered by %s: first register it again with qtop executor register',
      p_executor_id, v_row.deregistered_by);
  ELSIF v_row.tick_worker THEN
    v_rule := 'tick_worker';
    v_why := format('%s is a tick worker, which has no owner role: name an executor', p_executor_id);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(
      p_action => 'executor_owner'::text, p_target => left(p_executor_id, 200), p_actor => v_actor,
      p_reason => v_reason, p_rule => v_rule, p_why => v_why);
  END IF;
  UPDATE public.queue_heartbeat SET owner_role = v_owner WHERE executor_id = p_executor_id;
  v_audit := public.fn_operator_audit(
    p_action => 'executor_owner'::text, p_target => p_executor_id, p_actor => v_actor, p_reason => v_reason,
    p_filter => NULL::text, p_frozen_count => 1::bigint,
    p_before => jsonb_build_object('owner_role', v_row.owner_role),
    p_after => jsonb_build_object('owner_role', v_owner), p_outcome => 'done'::text);
  RETURN jsonb_build_object('executor_id', p_executor_id, 'before', v_row.owner_role, 'after', v_owner,
    'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_executor_owner_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_executor_owner_set IS
  'Gives an executor to another login or group: from then on only members of that role may act as it.';

-- fn_queue_heartbeat_write(id, payload, actor) → {executor_id, actor, last_beat_at}; refused: unregistered;
-- deregistered; tick_worker (only a tick of the worker writes its beats); not_owner (this login is not a member of the
-- owner role). last_work_at is stored by the clock of the server: as long before now as it is before the payload's key
-- now, and never in the future.
CREATE OR REPLACE FUNCTION public.fn_queue_heartbeat_write(p_executor_id text, p_payload jsonb, p_actor text)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_row public.queue_heartbeat;
  v_rule text;
  v_reason text;
  v_worked timestamptz;
BEGIN
  IF jsonb_typeof(COALESCE(p_payload, '{}')) <> 'object' OR octet_length(p_payload::text) > 8000 THEN
    RAISE EXCEPTION 'p_payload must be a JSON object of at most 8000 bytes' USING ERRCODE = '22023';
  END IF;
  IF p_payload ?| ARRAY[:denied_keys] THEN
    RAISE EXCEPTION 'p_payload %', public.fn_denied_key(p_payload) USING ERRCODE = '22023';
  END IF;
  -- A login that may not beat takes no lock, because its lock would block the beats of the executor.
  SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
  IF FOUND AND NOT v_row.tick_worker AND public.fn_executor_member(v_row.owner_role) THEN
    SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id FOR UPDATE;
  END IF;
  IF v_row.executor_id IS NULL THEN
    v_rule := 'unregistered';
    v_reason := format('executor %s is not registered: have a workflow_admin register it with qtop executor register',
      left(p_executor_id, 200));
  ELSIF v_row.deregistered_at IS NOT NULL THEN
    v_rule := 'deregistered';
    v_reason := format('executor %s was deregistered by %s: have a workflow_admin register it again with qtop executor '
      'register', p_executor_id, v_row.deregistered_by);
  ELSIF v_row.tick_worker THEN
    v_rule := 'tick_worker';
    v_reason := format('%s is a tick worker, and only its run writes its heartbeat: qtop tick %s runs it',
      p_executor_id, p_executor_id);
  ELSIF NOT public.fn_executor_member(v_row.owner_role) THEN
    v_rule := 'not_owner';
    v_reason := format('executor %s belongs to role %s, and login %s is not a member: GRANT %s TO %s', p_executor_id,
      v_row.owner_role, session_user, quote_ident(v_row.owner_role), quote_ident(session_user));
  END IF;
  IF v_rule = 'not_owner' THEN -- audited: this refusal may be an intrusion, the others are mistakes of a host
    PERFORM public.fn_operator_audit(
      p_action => 'executor_beat'::text, p_target => p_executor_id, p_actor => v_actor, p_reason => NULL::text,
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb,
      p_outcome => 'refused: not_owner'::text);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_reason);
  END IF;
  v_worked := public.fn_queue_time_or_null(p_payload ->> 'last_work_at');
  IF v_worked IS NOT NULL THEN -- the clock of the host may differ from that of the server
    p_payload := p_payload || jsonb_build_object('last_work_at', to_char(least(clock_timestamp(), v_worked
        + (clock_timestamp() - COALESCE(public.fn_queue_time_or_null(p_payload ->> 'now'), clock_timestamp())))
      AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
  END IF;
  p_payload := p_payload - 'now';
  IF p_payload ->> 'state' = 'stopped' AND public.fn_queue_executor_live(p_executor_id, v_actor) THEN
    p_payload := p_payload || '{"state": "idle"}'; -- this host stopped; another one works as the executor
  END IF;
  RETURN jsonb_build_object('executor_id', p_executor_id, 'actor', v_actor,
    'last_beat_at', public.fn_queue_heartbeat_touch(p_executor_id, COALESCE(p_payload, '{}'), v_actor));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_write TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_heartbeat_write IS
  'Writes a beat of a registered executor. Payload keys: state (working, idle, stopped), done_total, in_flight, '
  'last_work_at; now is the time by the clock of the sender, to which last_work_at belongs.';

-- fn_queue_executor_waits(executor) → why the executor may not be deregistered: it holds leased jobs, or waiting jobs
-- match its job subscriptions. NULL = it may be deregistered. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_executor_waits(p_executor_id text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n bigint;
BEGIN
  SELECT sum(l.live) INTO v_n FROM public.job_lease l WHERE l.lease_owner = p_executor_id;
  IF v_n > 0 THEN
    RETURN format('executor %s holds ', p_executor_id) || CASE WHEN v_n = 1
      THEN '1 job: let the job finish, or cancel it' ELSE v_n || ' jobs: let the jobs finish, or cancel them' END;
  END IF;
  SELECT sum(c.n) INTO v_n FROM public.v_queue_counter c
  WHERE c.scope = 'job' AND c.k3 IN ('queued', 'scheduled', 'retry_waiting') AND c.n > 0
    AND EXISTS (SELECT 1 FROM public.fn_job_lane_rule(p_executor_id, c.k2, c.k1));
  IF v_n > 0 THEN
    RETURN format('%s that job subscriptions of executor %s admit: disable those subscriptions first',
      CASE WHEN v_n = 1 THEN '1 job waits' ELSE v_n || ' jobs wait' END, p_executor_id);
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_queue_executor_waits IS
  'Why an executor may not be deregistered: work that it holds or that waits for it; null = it may. Internal.';

-- fn_queue_heartbeat_deregister(id, actor, reason) → {executor_id, deregistered, audit_id}; refused: not_found; gone
-- (it was deregistered before); tick_worker (the id is that of a tick worker); work_waits (fn_queue_executor_waits).
CREATE OR REPLACE FUNCTION public.fn_queue_heartbeat_deregister(p_executor_id text, p_actor text, p_reason text)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_row public.queue_heartbeat;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_executor_id IS NULL THEN
    RAISE EXCEPTION 'p_executor_id must not be null' USING ERRCODE = '22023';
  END IF;
  -- a tick worker is refused, so its row needs no lock
  PERFORM 1 FROM public.queue_heartbeat WHERE executor_id = p_executor_id AND NOT tick_worker FOR UPDATE;
  SELECT * INTO v_row FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('no executor %s is registered; qtop executors lists them', left(p_executor_id, 200));
  ELSIF v_row.deregistered_at IS NOT NULL THEN
    v_rule := 'gone';
    v_why := format('executor %s was deregistered already by %s at %s', p_executor_id, v_row.deregistered_by,
      to_char(v_row.deregistered_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'));
  ELSIF v_row.tick_worker THEN
    v_rule := 'tick_worker';
    v_why := format('%s is a tick worker: to switch it off, set queue.tick.%s.interval_seconds to 0',
      p_executor_id, p_executor_id);
  ELSE
    v_why := public.fn_queue_executor_waits(p_executor_id);
    v_rule := CASE WHEN v_why IS NOT NULL THEN 'work_waits' END;
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(
      p_action => 'executor_deregister'::text, p_target => left(p_executor_id, 200), p_actor => v_actor,
      p_reason => v_reason, p_rule => v_rule, p_why => v_why);
  END IF;
  UPDATE public.queue_heartbeat SET deregistered_at = clock_timestamp(), deregistered_by = v_actor
  WHERE executor_id = p_executor_id;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(), cleared_reason = 'deregistered'
  WHERE cleared_at IS NULL AND subject = p_executor_id;
  v_audit := public.fn_operator_audit(
    p_action => 'executor_deregister', p_target => p_executor_id, p_actor => v_actor, p_reason => v_reason,
    p_before => jsonb_build_object('last_beat_at', v_row.last_beat_at, 'kind', v_row.executor_kind),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_after => NULL::jsonb, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'executor', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  RETURN jsonb_build_object('executor_id', p_executor_id, 'deregistered', true, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_heartbeat_deregister TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_heartbeat_deregister IS
  'Deregisters an executor: its silence is no longer noticed. Its row stays as a tombstone.';

-- fn_queue_hc_executor_adopt() → a line that describes the change, '' = no change. Installations older than
-- queue_heartbeat kept the time of their executor's last run in the flag hc_executor_last_run of DP4 §2. If that flag
-- exists, this function makes a row of queue_heartbeat from it and deletes the flag. If the time is unreadable or in
-- the future, it uses the time at which the flag was written. Every run of migrate up calls it.
CREATE OR REPLACE FUNCTION public.fn_queue_hc_executor_adopt() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
SET standard_conforming_strings = on AS $fn$
DECLARE
  v_row public.dot_config;
  v_text text;
  v_at timestamptz;
  v_done text;
BEGIN
  SELECT * INTO v_row FROM public.dot_config WHERE key = 'hc_executor_last_run' FOR UPDATE;
  IF NOT FOUND THEN
    RETURN '';
  END IF;
  v_text := btrim(v_row.value, E' \t\n"');
  BEGIN
    v_at := CASE WHEN v_text ~ '^[0-9]{9,11}(\.[0-9]+)?$' THEN to_timestamp(v_text::float8) ELSE v_text::timestamptz
      END;
  EXCEPTION WHEN data_exception THEN
    NULL; -- unreadable time
  END;
  v_done := format('hc_executor last ran at %s', v_at);
  IF v_at IS NULL OR NOT isfinite(v_at) OR v_at > clock_timestamp() THEN
    v_at := least(v_row.updated_at, clock_timestamp());
    v_done := format('hc_executor_last_run is not a time in the past; used the time when it was written, %s', v_at);
  END IF;
  INSERT INTO public.queue_heartbeat AS h
    (executor_id, executor_kind, domain_scope, last_beat_at, expected_cadence_seconds, stale_threshold_seconds,
      registered_by)
  VALUES ('hc_executor', 'external_worker', '{}', v_at, 60,
    greatest(public.fn_queue_threshold_default(), 60), 'migration')
  ON CONFLICT (executor_id) DO UPDATE SET last_beat_at = greatest(h.last_beat_at, excluded.last_beat_at)
    WHERE h.deregistered_at IS NULL;
  DELETE FROM public.dot_config WHERE key = v_row.key;
  RETURN v_done;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_hc_executor_adopt IS
  'Turns the executor of an old installation into a row of queue_heartbeat (DP4 §3.4). For migrate up.';
