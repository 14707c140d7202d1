-- Dead letters of events that could not be routed: replay, resolve, reopen.

-- fn_iu_route_dead_letter_why(ids) → per id, why its dead letter cannot be closed; NULL = it can be closed. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_why(p_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
BEGIN
  RETURN (SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL
      THEN 'no such dead letter: never written, or removed by retention'
      WHEN d.resolved_at IS NOT NULL THEN format('closed already as %s by %s at %s', d.resolution, d.resolved_by,
        to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END ORDER BY i.n)
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n)
    -- one look-up for each: a session keeps the plan, which may be older than the rows of the table
    LEFT JOIN LATERAL (SELECT x.* FROM public.iu_route_dead_letter x WHERE x.dead_letter_id = i.id OFFSET 0) d ON true);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_why IS
  'Per dead letter of an event, who closed it and when; NULL if it is open. Internal.';

-- fn_iu_route_dead_letter_resolve(ids, resolution, note, actor, dry_run) → outcome per id: closes open dead letters
-- without a replay.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_resolve(p_dead_letter_ids uuid[], p_resolution text,
  p_note text, p_actor text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_iu_route_dead_letter_resolve_as(p_dead_letter_ids => p_dead_letter_ids, p_resolution => p_resolution,
    p_note => p_note, p_actor => p_actor, p_dry_run => p_dry_run, p_operation_id => NULL::bigint);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_resolve TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_resolve IS
  'Closes dead letters of events without a replay: abandoned, done_otherwise or duplicate.';

-- fn_iu_route_dead_letter_resolve_as(…, operation): fn_iu_route_dead_letter_resolve on behalf of a bulk operation, NULL
-- = on behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_resolve_as(p_dead_letter_ids uuid[], p_resolution text,
  p_note text, p_actor text,
  p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_note text := CASE WHEN v_dry THEN p_note ELSE public.fn_operator_reason(p_note) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF p_resolution IS NULL OR p_resolution NOT IN ('abandoned', 'done_otherwise', 'duplicate') THEN
    RAISE EXCEPTION 'p_resolution must be abandoned, done_otherwise or duplicate' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids)
      ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  v_why := public.fn_iu_route_dead_letter_why(v_ids);
  IF NOT v_dry THEN
    UPDATE public.iu_route_dead_letter d SET resolution = p_resolution, resolved_at = now(), resolved_by = v_actor,
      note = v_note
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'resolve', p_target => 'iu_route_dead_letter', p_done => 'resolved', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_note, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_resolve_as IS
  'fn_iu_route_dead_letter_resolve on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_iu_route_dead_letter_reopen(ids, actor, reason, dry_run) → outcome per id: opens resolved dead letters again. A
-- replayed dead letter cannot be opened again.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_reopen(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_iu_route_dead_letter_reopen_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_reopen TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_reopen IS
  'Opens resolved dead letters of events again.';

-- fn_iu_route_dead_letter_reopen_as(…, operation): fn_iu_route_dead_letter_reopen on behalf of a bulk operation, NULL =
-- on behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_reopen_as(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids)
      ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL
      THEN 'no such dead letter: never written, or removed by retention'
      WHEN d.resolved_at IS NULL THEN 'open already: there is nothing to reopen'
      WHEN d.resolution = 'replayed'
      THEN format('replayed by %s, not resolved: only a resolved dead letter is reopened', d.resolved_by)
      END ORDER BY i.n)
  INTO v_why FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.iu_route_dead_letter x WHERE x.dead_letter_id = i.id OFFSET 0) d ON true;
  IF NOT v_dry THEN
    UPDATE public.iu_route_dead_letter d SET resolution = NULL, resolved_at = NULL, resolved_by = NULL, note = NULL
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'reopen', p_target => 'iu_route_dead_letter', p_done => 'reopened', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry,
    p_operation_id => p_operation_id);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_reopen_as IS
  'fn_iu_route_dead_letter_reopen on behalf of a bulk operation (NULL = of a person). Internal.';

-- fn_iu_route_dead_letter_replay(ids, actor, reason, dry_run) → outcome per id: routes the events of open dead letters
-- again, to the current recipients and consumers. If routing succeeds, the dead letter is resolved as replayed; if it
-- fails again, the dead letter stays open with the new failure (outcome failed). Refused: clone (the database is a copy
-- that is not adopted); disabled (requeueing is switched off).
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_replay(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_iu_route_dead_letter_replay_as(p_dead_letter_ids, p_actor, p_reason, p_dry_run, NULL::bigint);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_replay TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_replay IS
  'Routes the events of open dead letters again and returns the outcome per id.';

-- fn_iu_route_dead_letter_replay_as(…, operation): fn_iu_route_dead_letter_replay on behalf of a bulk operation, NULL =
-- on behalf of a person; see fn_dead_letter_requeue_as. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_route_dead_letter_replay_as(p_dead_letter_ids uuid[], p_actor text,
  p_reason text, p_dry_run boolean, p_operation_id bigint)
RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
  v_worker text;
  v_part record;
  v_routed record;
  v_failed jsonb := '{}'::jsonb; -- per dead letter
  v_refused jsonb := public.fn_queue_requeue_refusal(
    p_kind => 'replay_event'::text, p_action => 'iu_route_dead_letter_replay'::text,
    p_target => format('%s dead letters', cardinality(v_ids)), p_actor => v_actor, p_reason => v_reason,
    p_dry_run => v_dry);
BEGIN
  IF v_refused IS NOT NULL THEN
    RETURN v_refused;
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids)
      ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(COALESCE(w.why, CASE WHEN d.failure_code = 'ROUTE_DUPLICATE_ID'
    THEN 'another event has the id of this one: emit it again with a new id, then resolve this dead letter'
    WHEN NOT r.enabled
    THEN format('the route of domain %s is disabled by %s: qtop route set %1$s --enabled=true --reason R',
      r.event_domain, r.updated_by) END) ORDER BY w.n)
  INTO v_why
  FROM unnest(v_ids, public.fn_iu_route_dead_letter_why(v_ids)) WITH ORDINALITY AS w (id, why, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.iu_route_dead_letter x WHERE x.dead_letter_id = w.id OFFSET 0) d ON true
  LEFT JOIN public.iu_outbound_route r ON r.event_domain = d.event_domain;
  IF NOT v_dry THEN
    FOR v_worker IN
      SELECT DISTINCT d.worker_name FROM public.iu_route_dead_letter d
      WHERE d.dead_letter_id = ANY (ARRAY(SELECT w.id FROM unnest(v_ids, v_why) AS w (id, why) WHERE w.why IS NULL))
      ORDER BY 1
    LOOP
      SELECT array_agg(jsonb_populate_record(NULL::public.event_outbox, p.event_snapshot) ORDER BY p.event_id)
          FILTER (WHERE p.twin IS NULL) AS events,
        jsonb_object_agg(p.event_id, p.dead_letter_id) AS dead_letters,
        jsonb_object_agg(p.dead_letter_id, p.twin) FILTER (WHERE p.twin IS NOT NULL) AS twins
      INTO v_part FROM (
        SELECT d.dead_letter_id, d.event_id, d.event_snapshot, CASE WHEN EXISTS (SELECT FROM public.iu_route_attempt a
          WHERE a.event_id = d.event_id AND (a.event_domain, a.event_type) <> (d.event_domain, d.event_type))
          THEN '{"code": "ROUTE_DUPLICATE_ID", "error": "another event with the same id is routed"}'::jsonb END AS twin
        FROM public.iu_route_dead_letter d
        WHERE d.worker_name = v_worker AND d.dead_letter_id = ANY (ARRAY(
          SELECT w.id FROM unnest(v_ids, v_why) AS w (id, why) WHERE w.why IS NULL))) p;
      SELECT * INTO v_routed FROM public.fn_iu_route_apply(v_part.events, v_worker);
      v_failed := v_failed || COALESCE(v_part.twins, '{}')
        || COALESCE((SELECT jsonb_object_agg(v_part.dead_letters ->> (f ->> 'event_id'), f)
          FROM jsonb_array_elements(v_routed.failed) f), '{}');
    END LOOP;
    UPDATE public.iu_route_dead_letter d SET
      (failure_code, last_error, last_failed_at, resolution, resolved_at, resolved_by, note) = (
        SELECT COALESCE(f.failure ->> 'code', d.failure_code), COALESCE(f.failure ->> 'error', d.last_error),
          CASE WHEN f.failure IS NULL THEN d.last_failed_at ELSE now() END,
          CASE WHEN f.failure IS NULL THEN 'replayed' END, CASE WHEN f.failure IS NULL THEN now() END,
          CASE WHEN f.failure IS NULL THEN v_actor END, CASE WHEN f.failure IS NULL THEN v_reason END
        FROM (SELECT v_failed -> d.dead_letter_id::text AS failure) f)
    WHERE d.dead_letter_id = ANY (ARRAY(SELECT w.id FROM unnest(v_ids, v_why) AS w (id, why) WHERE w.why IS NULL));
    SELECT array_agg(COALESCE(w.why, (f.failure ->> 'code') || ' ' || (f.failure ->> 'error')) ORDER BY w.n) INTO v_why
    FROM unnest(v_ids, v_why) WITH ORDINALITY AS w (id, why, n)
    LEFT JOIN LATERAL (SELECT v_failed -> w.id::text AS failure) f ON w.why IS NULL;
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'replay', p_target => 'iu_route_dead_letter', p_done => 'replayed', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry, p_operation_id => p_operation_id,
    p_codes => (SELECT COALESCE(jsonb_object_agg(f.key, f.value -> 'code'), '{}') FROM jsonb_each(v_failed) f));
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_replay_as IS
  'fn_iu_route_dead_letter_replay on behalf of a bulk operation (NULL = of a person). Internal.';
