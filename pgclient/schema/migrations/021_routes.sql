-- The route workers: events to their recipients and to the jobs of their consumers, what cannot be routed put aside
-- and routed again, and the switches of routes and consumers. Sources: DP1 §2, DP4 §2 and §3.3, DP6 §3.4.
SET LOCAL ROLE queue_owner;

CREATE TABLE public.consumer_registry (
  consumer_id   text PRIMARY KEY CHECK (consumer_id ~ '^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$'),
  event_domain  text NOT NULL,
  event_type    text NOT NULL,
  job_kind      text NOT NULL CHECK (job_kind ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$'),
  executor      text NOT NULL CONSTRAINT chk_consumer_registry_executor CHECK (executor IN (
    'DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter')),
  enabled       boolean NOT NULL DEFAULT false,
  registered_by text NOT NULL CHECK (registered_by <> ''),
  registered_at timestamptz NOT NULL DEFAULT now(),
  updated_by    text NOT NULL CHECK (updated_by <> ''),
  updated_at    timestamptz NOT NULL DEFAULT now(),
  FOREIGN KEY (event_domain, event_type) REFERENCES public.event_type_registry ON DELETE RESTRICT
);
CREATE INDEX ix_consumer_registry_lookup ON public.consumer_registry (event_domain, event_type) WHERE enabled;
COMMENT ON TABLE public.consumer_registry IS
  'Who works on which events: each event makes one job of this kind for this executor per enabled row (DP6 §3.4).';
GRANT SELECT ON public.consumer_registry TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;

-- ---------------------------------------------------------------------------------------------------
-- fn_iu_route_events(events, worker) → (attempts, jobs): all of them, or an error. An event is routed once: its jobs
-- are born with its first attempts, and where those stand already nothing is done. A job refers to its event and
-- carries nothing of its payload. Internal.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_iu_route_events(p_events public.event_outbox[], p_worker_name text, OUT attempts bigint, OUT jobs bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET jit = off AS $fn$
DECLARE
  v_max int := public.fn_cfg_int('queue.retry.max_attempts_default', 5);
  -- where no subscription looks into payloads, events of a type are resolved as one
  v_scoped boolean := EXISTS (SELECT 1 FROM public.event_subscription s WHERE NOT s.mute AND s.scope_filter <> '{}');
BEGIN
  WITH e AS MATERIALIZED (
    SELECT u.id, u.event_domain, u.event_type, u.event_stream, u.event_subject_table, u.event_subject_ref, u.correlation_id,
      CASE WHEN v_scoped THEN u.safe_payload ELSE '{}' END AS payload, dense_rank() OVER (ORDER BY u.event_domain, u.event_type,
        u.event_stream, u.event_subject_table, CASE WHEN v_scoped THEN u.safe_payload END) AS likeness
    FROM unnest(p_events) u
  ), reach AS MATERIALIZED (
    SELECT k.likeness, r.recipient_ref, r.step FROM (SELECT DISTINCT ON (e.likeness) e.* FROM e ORDER BY e.likeness) k
    CROSS JOIN LATERAL public.fn_event_resolve_recipients(k.event_domain, k.event_type, k.event_stream, k.event_subject_table, k.payload) r
  ), put AS (
    INSERT INTO public.iu_route_attempt (event_id, recipient_ref, step, event_domain, event_type, worker_name)
    SELECT e.id, r.recipient_ref, r.step, e.event_domain, e.event_type, p_worker_name FROM e JOIN reach r USING (likeness)
    ORDER BY e.id, r.recipient_ref
    ON CONFLICT DO NOTHING RETURNING event_id
  ), born AS (
    INSERT INTO public.job_queue (job_kind, event_domain, executor, payload, max_attempts, idempotency_key, source_ref, target_ref,
      payload_ref, actor, correlation_id, causation_event_id)
    SELECT c.job_kind, e.event_domain, c.executor, jsonb_build_object('event_id', e.id, 'event_type', e.event_type), v_max,
      'route:' || e.id || ':' || c.consumer_id, 'event_outbox/' || e.id, e.event_subject_table || '/' || e.event_subject_ref,
      'event_outbox/' || e.id, c.consumer_id, e.correlation_id, e.id
    FROM e JOIN public.consumer_registry c ON c.enabled AND c.event_domain = e.event_domain AND c.event_type = e.event_type
    WHERE EXISTS (SELECT 1 FROM put p WHERE p.event_id = e.id)
    ORDER BY c.job_kind, e.id, c.consumer_id
    ON CONFLICT (job_kind, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING job_id
  )
  SELECT (SELECT count(*) FROM put), (SELECT count(*) FROM born) INTO attempts, jobs;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_events(public.event_outbox[], text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_route_events(public.event_outbox[], text) IS
  'Attempts and jobs of a batch of events, all or none. Internal.';

-- fn_iu_route_apply(events, worker) → (attempts, jobs, failed): as many as can be routed. failed: an array of
-- {event_id, code, error}. The batch goes at once; only one that fails is halved, until what cannot be routed is
-- alone. What is a matter of the moment (a deadlock, a timeout, no room) is raised, for the whole to be tried again.
-- Internal.
CREATE FUNCTION public.fn_iu_route_apply(p_events public.event_outbox[], p_worker_name text,
  OUT attempts bigint, OUT jobs bigint, OUT failed jsonb)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_n int := COALESCE(cardinality(p_events), 0);
  v_part record;
BEGIN
  attempts := 0;
  jobs := 0;
  failed := '[]';
  IF v_n = 0 THEN
    RETURN;
  END IF;
  BEGIN
    SELECT r.attempts, r.jobs INTO attempts, jobs FROM public.fn_iu_route_events(p_events, p_worker_name) r;
    RETURN;
  EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE ~ '^(40|53|55P03|57|58|XX)' THEN
      RAISE;
    ELSIF v_n = 1 THEN
      failed := jsonb_build_array(jsonb_build_object('event_id', p_events[1].id, 'code', 'ROUTE_' || SQLSTATE,
        'error', left(public.fn_mask_said(SQLERRM), 1000)));
      RETURN;
    END IF;
  END;
  attempts := 0;
  jobs := 0;
  FOR v_part IN
    SELECT r.* FROM (VALUES (1, p_events[1:v_n / 2]), (2, p_events[v_n / 2 + 1:v_n])) h (half, events)
    CROSS JOIN LATERAL public.fn_iu_route_apply(h.events, p_worker_name) r ORDER BY h.half
  LOOP
    attempts := attempts + v_part.attempts;
    jobs := jobs + v_part.jobs;
    failed := failed || v_part.failed;
  END LOOP;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_apply(public.event_outbox[], text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_route_apply(public.event_outbox[], text) IS
  'Routes what can be routed of a batch and names the rest. Internal.';

-- ---------------------------------------------------------------------------------------------------
-- fn_iu_route_worker_run(worker, limit) → {events, attempts, jobs, dead_lettered, held} or {skipped: why}: up to limit
-- new events of each of the worker's routes, in the order of (created_xid, id), only what is older than every open
-- transaction; held = how many are not. Two runs at once take different domains. An event that cannot be routed
-- becomes a dead letter alone.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_iu_route_worker_run(p_worker_name text DEFAULT 'iu_outbound_default', p_batch_limit int DEFAULT 1000) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $fn$
DECLARE
  v_system bigint := (SELECT s.system_identifier FROM pg_control_system() s);
  v_flag text;
  v_domain text;
  c public.iu_route_worker_cursor;
  v_settled xid8;
  v_batch public.event_outbox[];
  v_fresh public.event_outbox[];
  v_n int;
  v_did record;
  v_dead bigint;
  v_held bigint;
  v_all bigint[] := '{0,0,0,0,0}'::bigint[];
BEGIN
  IF p_batch_limit IS NULL OR p_batch_limit NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_batch_limit must be 1 to 10000' USING ERRCODE = '22023';
  ELSIF p_worker_name IS NULL OR p_worker_name NOT IN ('iu_outbound_default', 'staging_outbound') THEN
    RAISE EXCEPTION 'p_worker_name must be iu_outbound_default or staging_outbound' USING ERRCODE = '22023';
  END IF;
  FOREACH v_flag IN ARRAY '{iu_core.routes_master_enabled,iu_core.route_worker_enabled}'::text[] LOOP
    IF NOT public.fn_cfg_bool(v_flag) THEN
      RETURN jsonb_build_object('skipped', v_flag || ' is off');
    END IF;
  END LOOP;
  FOR v_domain IN
    SELECT r.event_domain FROM public.iu_outbound_route r WHERE r.worker_name = p_worker_name AND r.enabled ORDER BY 1
  LOOP
    INSERT INTO public.iu_route_worker_cursor (worker_name, event_domain) VALUES (p_worker_name, v_domain) ON CONFLICT DO NOTHING;
    SELECT * INTO c FROM public.iu_route_worker_cursor x
    WHERE x.worker_name = p_worker_name AND x.event_domain = v_domain FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;

    -- before the batch is read: what the batch cannot see is not below it
    v_settled := public.fn_queue_settled_xid();
    IF c.system_identifier <> v_system THEN
      c.system_identifier := v_system;
      c.restored_at := clock_timestamp();
      c.restored_xid := v_settled;
      c.restored_after := '00000000-0000-0000-0000-000000000000';
    END IF;
    IF c.restored_after IS NOT NULL THEN
      SELECT array_agg(b.e ORDER BY (b.e).id) INTO v_batch FROM (
        SELECT e FROM public.event_outbox e
        WHERE e.event_domain = v_domain AND e.id > c.restored_after ORDER BY e.id LIMIT p_batch_limit) b;
    ELSE
      SELECT array_agg(b.e ORDER BY (b.e).created_xid, (b.e).id) INTO v_batch FROM (
        SELECT e FROM public.event_outbox e
        WHERE e.event_domain = v_domain AND (e.created_xid, e.id) > (c.cursor_xid, c.cursor_id) AND e.created_xid < v_settled
        ORDER BY e.created_xid, e.id LIMIT p_batch_limit) b;
    END IF;
    v_n := COALESCE(cardinality(v_batch), 0);
    IF c.restored_after IS NULL AND v_n > 0 THEN
      c.cursor_xid := v_batch[v_n].created_xid;
      c.cursor_id := v_batch[v_n].id;
    ELSIF v_n = p_batch_limit THEN
      c.restored_after := v_batch[v_n].id;
    ELSIF c.restored_after IS NOT NULL THEN
      c.restored_after := NULL;
      c.cursor_xid := c.restored_xid;
      c.cursor_id := '00000000-0000-0000-0000-000000000000';
    END IF;

    SELECT array_agg(u::public.event_outbox ORDER BY u.id) INTO v_fresh FROM unnest(v_batch) u
    WHERE NOT EXISTS (SELECT 1 FROM public.iu_route_attempt a WHERE a.event_id = u.id)
      AND NOT EXISTS (SELECT 1 FROM public.iu_route_dead_letter d WHERE d.event_id = u.id);
    SELECT * INTO v_did FROM public.fn_iu_route_apply(v_fresh, p_worker_name);
    INSERT INTO public.iu_route_dead_letter (event_id, event_snapshot, idempotency_key, failure_code, last_error, event_domain, worker_name)
    SELECT u.id, to_jsonb(u), p_worker_name || ':' || u.id, f.code, f.error, v_domain, p_worker_name
    FROM jsonb_to_recordset(v_did.failed) AS f (event_id uuid, code text, error text)
    JOIN unnest(v_fresh) u ON u.id = f.event_id ORDER BY u.id
    ON CONFLICT (idempotency_key) DO NOTHING;
    GET DIAGNOSTICS v_dead = ROW_COUNT;

    SELECT count(*) INTO v_held FROM (
      SELECT FROM public.event_outbox e WHERE e.event_domain = v_domain AND e.created_at >= c.restored_at
        AND e.created_xid >= v_settled AND e.created_xid < pg_snapshot_xmax(pg_current_snapshot()) LIMIT 10000) h;
    v_n := COALESCE(cardinality(v_fresh), 0);
    UPDATE public.iu_route_worker_cursor x SET
      last_run_at = clock_timestamp(), events_seen = x.events_seen + v_n, attempts_written = x.attempts_written + v_did.attempts,
      dead_lettered = x.dead_lettered + v_dead, cursor_xid = c.cursor_xid, cursor_id = c.cursor_id,
      system_identifier = c.system_identifier, restored_at = c.restored_at, restored_xid = c.restored_xid, restored_after = c.restored_after,
      last_run_summary = jsonb_build_object('events', v_n, 'attempts', v_did.attempts, 'jobs', v_did.jobs, 'dead_lettered', v_dead, 'held', v_held)
    WHERE x.worker_name = p_worker_name AND x.event_domain = v_domain;
    v_all := ARRAY[v_all[1] + v_n, v_all[2] + v_did.attempts, v_all[3] + v_did.jobs, v_all[4] + v_dead, v_all[5] + v_held];
  END LOOP;
  RETURN jsonb_build_object('events', v_all[1], 'attempts', v_all[2], 'jobs', v_all[3], 'dead_lettered', v_all[4], 'held', v_all[5]);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_worker_run(text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_worker_run(text, int) TO dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_iu_route_worker_run(text, int) IS
  'Ticks iu_outbound_default and staging_outbound: routes new events to their recipients and makes the jobs of their consumers.';

CREATE FUNCTION public.fn_iu_staging_route_worker_run() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN public.fn_iu_route_worker_run('staging_outbound');
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_staging_route_worker_run() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_staging_route_worker_run() TO dot_executor, workflow_admin;
COMMENT ON FUNCTION public.fn_iu_staging_route_worker_run() IS 'Tick staging_outbound: fn_iu_route_worker_run for the domain staging.';

SELECT public.fn_queue_tick_worker_add('iu_outbound_default', 'fn_iu_route_worker_run', 'iu_core.route_worker_enabled', true, '{iu}');
SELECT public.fn_queue_tick_worker_add('staging_outbound', 'fn_iu_staging_route_worker_run', 'iu_core.route_worker_enabled', false, '{staging}');

-- fn_iu_route_worker_health(worker) → {worker_name, healthy, why, last_run_at, age_seconds, stale_after_seconds, events_seen,
-- attempts_written, dead_lettered, open_dead_letters, waiting, oldest_at, held, held_since, routes: [{event_domain, enabled,
-- last_run_at, waiting, held}]}. last_run_at is that of the enabled route that was looked at longest ago: healthy only
-- where that is fresh, whatever the reason it is not; a worker that never ran is not. why: '' where it is.
CREATE FUNCTION public.fn_iu_route_worker_health(p_worker_name text DEFAULT 'iu_outbound_default') RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_interval int;
  v_after bigint;
  v_why text;
  v record;
BEGIN
  IF p_worker_name IS NULL OR p_worker_name NOT IN ('iu_outbound_default', 'staging_outbound') THEN
    RAISE EXCEPTION 'p_worker_name must be iu_outbound_default or staging_outbound' USING ERRCODE = '22023';
  END IF;
  v_interval := public.fn_cfg_int('queue.tick.' || p_worker_name || '.interval_seconds', 60);
  v_after := greatest(3::bigint * v_interval, public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300));
  SELECT CASE WHEN count(c.last_run_at) FILTER (WHERE b.enabled) = count(*) FILTER (WHERE b.enabled)
      THEN min(c.last_run_at) FILTER (WHERE b.enabled) END AS last_run_at,
    count(*) FILTER (WHERE b.enabled) AS enabled,
    COALESCE(sum(c.events_seen), 0) AS seen, COALESCE(sum(c.attempts_written), 0) AS written, COALESCE(sum(c.dead_lettered), 0) AS dead,
    COALESCE(sum(b.waiting), 0) AS waiting, min(b.oldest_at) AS oldest_at, COALESCE(sum(b.held_rows), 0) AS held, min(b.held_since) AS held_since,
    COALESCE(jsonb_agg(jsonb_build_object('event_domain', b.event_domain, 'enabled', b.enabled, 'last_run_at', c.last_run_at,
      'waiting', b.waiting, 'held', b.held_rows) ORDER BY b.event_domain), '[]') AS routes
  INTO v
  FROM public.fn_iu_route_backlog() b
  LEFT JOIN public.iu_route_worker_cursor c ON c.worker_name = b.worker_name AND c.event_domain = b.event_domain
  WHERE b.worker_name = p_worker_name;
  v_why := CASE
    WHEN now() - v.last_run_at <= make_interval(secs => v_after) THEN ''
    WHEN NOT public.fn_cfg_bool('iu_core.route_worker_enabled') THEN 'iu_core.route_worker_enabled is off'
    WHEN NOT public.fn_cfg_bool('iu_core.routes_master_enabled') THEN 'iu_core.routes_master_enabled is off'
    WHEN v_interval = 0 THEN 'queue.tick.' || p_worker_name || '.interval_seconds is 0'
    WHEN v.enabled = 0 THEN 'it has no enabled route'
    WHEN v.last_run_at IS NULL THEN 'it has not gone through all its routes yet'
    ELSE 'silent since ' || to_char(v.last_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') END;
  RETURN jsonb_build_object('worker_name', p_worker_name, 'healthy', v_why = '', 'why', v_why, 'last_run_at', v.last_run_at,
    'age_seconds', floor(extract(epoch FROM now() - v.last_run_at))::bigint, 'stale_after_seconds', v_after,
    'events_seen', v.seen, 'attempts_written', v.written, 'dead_lettered', v.dead,
    'open_dead_letters', (SELECT count(*) FROM public.iu_route_dead_letter d WHERE d.resolved_at IS NULL AND d.worker_name = p_worker_name),
    'waiting', v.waiting, 'oldest_at', v.oldest_at, 'held', v.held, 'held_since', v.held_since, 'routes', v.routes);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_worker_health(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_worker_health(text) TO queue_viewer, dot_executor, workflow_admin, dead_letter_operator;
COMMENT ON FUNCTION public.fn_iu_route_worker_health(text) IS
  'Health of a route worker (DP4 §2): healthy only when it ran lately, so that silence is not health.';

-- ---------------------------------------------------------------------------------------------------
-- fn_iu_route_dead_letter_replay(ids, actor, reason, dry_run): routes the events of open letters once more. A letter
-- whose event goes through is resolved as replayed; one whose event fails again stays open with the new failure
-- (outcome failed). Recipients and consumers are those of now. refused: disabled.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_iu_route_dead_letter_replay(p_dead_letter_ids uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
  v_off text;
  v_worker text;
  v_did record;
  v_failed jsonb := '{}'::jsonb;
  v_answer jsonb;
  v_audit bigint;
BEGIN
  SELECT f INTO v_off FROM unnest('{queue.dlq.replay_enabled,iu_core.routes_master_enabled}'::text[]) f WHERE NOT public.fn_cfg_bool(f) LIMIT 1;
  IF FOUND THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('iu_route_dead_letter_replay', format('%s dead letters', cardinality(v_ids)), v_actor, v_reason,
        NULL, cardinality(v_ids), NULL, NULL, 'refused: disabled');
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', 'disabled', 'dry_run', v_dry, 'audit_id', v_audit,
      'reason', 'replaying is switched off: ' || v_off || ' is not true');
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(COALESCE(w.why, CASE WHEN NOT r.enabled THEN format('the route of %s is disabled by %s', r.event_domain, r.updated_by) END) ORDER BY w.n)
  INTO v_why
  FROM unnest(v_ids, public.fn_iu_route_letter_why(v_ids)) WITH ORDINALITY AS w (id, why, n)
  LEFT JOIN public.iu_route_dead_letter d ON d.dead_letter_id = w.id
  LEFT JOIN public.iu_outbound_route r ON r.event_domain = d.event_domain;
  IF NOT v_dry THEN
    FOR v_worker IN
      SELECT DISTINCT d.worker_name FROM public.iu_route_dead_letter d JOIN unnest(v_ids, v_why) AS w (id, why)
      ON d.dead_letter_id = w.id AND w.why IS NULL ORDER BY 1
    LOOP
      SELECT * INTO v_did FROM public.fn_iu_route_apply((
        SELECT array_agg(jsonb_populate_record(NULL::public.event_outbox, d.event_snapshot) ORDER BY d.event_id)
        FROM public.iu_route_dead_letter d JOIN unnest(v_ids, v_why) AS w (id, why) ON d.dead_letter_id = w.id AND w.why IS NULL
        WHERE d.worker_name = v_worker), v_worker);
      v_failed := v_failed || COALESCE((SELECT jsonb_object_agg(f ->> 'event_id', f) FROM jsonb_array_elements(v_did.failed) f), '{}');
    END LOOP;
    UPDATE public.iu_route_dead_letter d SET
      failure_code = COALESCE(f.failure ->> 'code', d.failure_code), last_error = COALESCE(f.failure ->> 'error', d.last_error),
      last_failed_at = CASE WHEN f.failure IS NULL THEN d.last_failed_at ELSE now() END,
      resolution = CASE WHEN f.failure IS NULL THEN 'replayed' END, resolved_at = CASE WHEN f.failure IS NULL THEN now() END,
      resolved_by = CASE WHEN f.failure IS NULL THEN v_actor END, note = CASE WHEN f.failure IS NULL THEN v_reason END
    FROM unnest(v_ids, v_why) AS w (id, why), LATERAL (SELECT v_failed -> (
      SELECT x.event_id::text FROM public.iu_route_dead_letter x WHERE x.dead_letter_id = w.id) AS failure) f
    WHERE d.dead_letter_id = w.id AND w.why IS NULL;
    SELECT array_agg(COALESCE(w.why, (f.failure ->> 'code') || ' ' || (f.failure ->> 'error')) ORDER BY w.n) INTO v_why
    FROM unnest(v_ids, v_why) WITH ORDINALITY AS w (id, why, n)
    LEFT JOIN public.iu_route_dead_letter d ON d.dead_letter_id = w.id
    LEFT JOIN LATERAL (SELECT v_failed -> d.event_id::text AS failure) f ON w.why IS NULL;
  END IF;
  v_answer := public.fn_job_answer('replay', 'iu_route_dead_letter', 'replayed', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
  IF v_failed <> '{}' THEN
    SELECT v_answer || jsonb_build_object('results', jsonb_agg(CASE WHEN r.value ->> 'outcome' = 'skipped' AND v_failed ? d.event_id::text
        THEN r.value || jsonb_build_object('outcome', 'failed', 'code', v_failed -> d.event_id::text -> 'code') ELSE r.value END ORDER BY r.n))
    INTO v_answer FROM jsonb_array_elements(v_answer -> 'results') WITH ORDINALITY AS r (value, n)
    LEFT JOIN public.iu_route_dead_letter d ON d.dead_letter_id = (r.value ->> 'id')::uuid AND d.resolved_at IS NULL;
  END IF;
  RETURN v_answer;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_dead_letter_replay(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_replay(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_replay(uuid[], text, text, boolean) IS
  'Routes the events of open dead letters once more, and says per id what happened.';

-- ---------------------------------------------------------------------------------------------------
-- fn_consumer_set(consumer, domain, type, kind, executor, enabled, actor, reason, dry_run) → {consumer_id, created,
-- before, after, audit_id}: makes or changes a consumer; NULL leaves what stands. It takes the events that are routed
-- from then on. refused: not_found, where a consumer that does not exist yet is not given whole; event_type.
-- ---------------------------------------------------------------------------------------------------
CREATE FUNCTION public.fn_consumer_set(p_consumer_id text, p_event_domain text, p_event_type text, p_job_kind text, p_executor text,
  p_enabled boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.consumer_registry;
  v_new public.consumer_registry;
  v_there boolean;
  v_rule text;
  v_audit bigint;
BEGIN
  IF COALESCE(p_consumer_id, '') !~ '^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$' THEN
    RAISE EXCEPTION 'p_consumer_id must match ^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_job_kind !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_executor NOT IN ('DOT', 'Agent', 'Hermes', 'Codex', 'PG_worker', 'external_worker', 'future_Kestra_adapter') THEN
    RAISE EXCEPTION 'p_executor must be DOT, Agent, Hermes, Codex, PG_worker, external_worker or future_Kestra_adapter' USING ERRCODE = '22023';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext('qtop.consumer_registry'));
  SELECT * INTO v_old FROM public.consumer_registry WHERE consumer_id = p_consumer_id FOR UPDATE;
  v_there := FOUND;
  v_new := v_old;
  v_new.consumer_id := p_consumer_id;
  v_new.event_domain := COALESCE(p_event_domain, v_old.event_domain);
  v_new.event_type := COALESCE(p_event_type, v_old.event_type);
  v_new.job_kind := COALESCE(p_job_kind, v_old.job_kind);
  v_new.executor := COALESCE(p_executor, v_old.executor);
  v_new.enabled := COALESCE(p_enabled, v_old.enabled, true);
  v_new.updated_by := v_actor;
  v_new.updated_at := now();
  IF NOT v_there THEN
    v_new.registered_by := v_actor;
    v_new.registered_at := now();
  END IF;
  v_rule := CASE
    WHEN num_nulls(v_new.event_domain, v_new.event_type, v_new.job_kind, v_new.executor) > 0 THEN 'not_found'
    WHEN NOT EXISTS (SELECT 1 FROM public.event_type_registry r WHERE r.event_domain = v_new.event_domain AND r.event_type = v_new.event_type)
      THEN 'event_type' END;
  IF v_rule IS NOT NULL THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('consumer_set', p_consumer_id, v_actor, v_reason, NULL, NULL, NULL, NULL, 'refused: ' || v_rule);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'dry_run', v_dry, 'audit_id', v_audit, 'reason', CASE v_rule
      WHEN 'not_found' THEN format('there is no consumer %s: a new one needs domain, type, kind and executor', p_consumer_id)
      ELSE left(format('event type %s/%s is not registered', v_new.event_domain, v_new.event_type), 300) END);
  END IF;
  IF NOT v_dry THEN
    INSERT INTO public.consumer_registry VALUES (v_new.*)
    ON CONFLICT (consumer_id) DO UPDATE SET event_domain = excluded.event_domain, event_type = excluded.event_type,
      job_kind = excluded.job_kind, executor = excluded.executor, enabled = excluded.enabled,
      updated_by = excluded.updated_by, updated_at = excluded.updated_at;
    v_audit := public.fn_operator_audit('consumer_set', p_consumer_id, v_actor, v_reason, NULL, NULL,
      CASE WHEN v_there THEN to_jsonb(v_old) END, to_jsonb(v_new));
  END IF;
  RETURN jsonb_build_object('consumer_id', p_consumer_id, 'created', NOT v_there, 'dry_run', v_dry,
    'before', CASE WHEN v_there THEN to_jsonb(v_old) END, 'after', to_jsonb(v_new), 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_consumer_set(text, text, text, text, text, boolean, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_consumer_set(text, text, text, text, text, boolean, text, text, boolean) TO workflow_admin;
COMMENT ON FUNCTION public.fn_consumer_set(text, text, text, text, text, boolean, text, text, boolean) IS
  'Makes, changes, enables or disables a consumer of events (DP6 §3.4).';

-- fn_iu_outbound_route_set(domain, enabled, actor, reason, dry_run) → {event_domain, before, after, audit_id}: while a
-- route is disabled the events of its domain wait where they are. refused: not_found.
CREATE FUNCTION public.fn_iu_outbound_route_set(p_event_domain text, p_enabled boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.iu_outbound_route;
  v_new public.iu_outbound_route;
  v_audit bigint;
BEGIN
  IF p_enabled IS NULL THEN
    RAISE EXCEPTION 'p_enabled must be true or false' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_old FROM public.iu_outbound_route WHERE event_domain = p_event_domain FOR UPDATE;
  IF NOT FOUND THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit('route_set', left(COALESCE(p_event_domain, ''), 100), v_actor, v_reason, NULL, NULL, NULL, NULL,
        'refused: not_found');
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', 'not_found', 'dry_run', v_dry, 'audit_id', v_audit,
      'reason', format('no event type of a domain %s is registered', left(COALESCE(p_event_domain, ''), 100)));
  END IF;
  v_new := v_old;
  v_new.enabled := p_enabled;
  v_new.updated_by := v_actor;
  v_new.updated_at := now();
  IF NOT v_dry THEN
    UPDATE public.iu_outbound_route SET enabled = p_enabled, updated_by = v_actor, updated_at = now() WHERE event_domain = p_event_domain;
    v_audit := public.fn_operator_audit('route_set', p_event_domain, v_actor, v_reason, NULL, NULL, to_jsonb(v_old), to_jsonb(v_new));
  END IF;
  RETURN jsonb_build_object('event_domain', p_event_domain, 'dry_run', v_dry, 'before', to_jsonb(v_old), 'after', to_jsonb(v_new), 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_outbound_route_set(text, boolean, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_outbound_route_set(text, boolean, text, text, boolean) TO workflow_admin;
COMMENT ON FUNCTION public.fn_iu_outbound_route_set(text, boolean, text, text, boolean) IS
  'Enables or disables the routing of one domain; its events wait meanwhile.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_iu_outbound_route_set(text, boolean, text, text, boolean);
DROP FUNCTION public.fn_consumer_set(text, text, text, text, text, boolean, text, text, boolean);
DROP FUNCTION public.fn_iu_route_dead_letter_replay(uuid[], text, text, boolean);
DROP FUNCTION public.fn_iu_route_worker_health(text);
SELECT public.fn_queue_tick_worker_drop('staging_outbound');
SELECT public.fn_queue_tick_worker_drop('iu_outbound_default');
DROP FUNCTION public.fn_iu_staging_route_worker_run();
DROP FUNCTION public.fn_iu_route_worker_run(text, int);
DROP FUNCTION public.fn_iu_route_apply(public.event_outbox[], text);
DROP FUNCTION public.fn_iu_route_events(public.event_outbox[], text);
DROP TABLE public.consumer_registry;
RESET ROLE;
