-- Bulk operations: a frozen selection of dead letters that are requeued, replayed or resolved at a given rate, with a
-- canary and a brake:
--   1. fn_queue_bulk_plan freezes the selection. The dead letters do not change until fn_queue_bulk_run.
--   2. Every tick of bulk_operation_runner is one transaction (fn_queue_bulk_step): it selects the next items that the
--      rate allows and commits the change of each dead letter together with the outcome of its item.
--   3. The first canary items run alone; all their first attempts must succeed before the others start.
--   4. The brake pauses the operation when too many of the latest first attempts failed, or when 50 items in a row were
--      skipped for one reason (fn_queue_bulk_halt).
--   5. The operation is completed when no item is left and the first attempt of each requeued item is settled.
-- Requeued webhooks are limited to the same rate again when they are sent (fn_webhook_job_claim), at every attempt.

COMMENT ON TABLE public.queue_bulk_operation IS
  'Bulk operations over frozen selections. brake_percent 0 = no brake; canary 0 = none; next_item: the number after '
  'the last item that was carried out; first_ok, first_failed: first attempts of requeued items, by result.';
COMMENT ON COLUMN public.queue_bulk_operation.requeued IS 'items that were requeued, replayed or resolved';
COMMENT ON COLUMN public.queue_bulk_operation.done IS
  'requeued items whose first attempt is settled; an item that was resolved or routed counts at once';
COMMENT ON COLUMN public.queue_bulk_operation.waits IS
  'what a running operation waits for, such as items of an endpoint that is suspended; NULL = only for its rate';
COMMENT ON COLUMN public.queue_bulk_operation.credit IS
  'items that the rate allows and that have not been carried out; fractions carry over from tick to tick';
COMMENT ON COLUMN public.queue_bulk_operation.watch_from IS 'not used any more: see watch_since';
COMMENT ON COLUMN public.queue_bulk_operation.watch_since IS
  'when the operation was last started: canary and brake count only items carried out since then';
COMMENT ON COLUMN public.queue_bulk_operation.filter IS 'the filter that the rows were selected with';
COMMENT ON COLUMN public.queue_bulk_operation.state IS 'planned, running, paused, completed, aborted';
COMMENT ON COLUMN public.queue_bulk_operation.state_why IS 'why the operation was paused by canary, brake or an error';
COMMENT ON COLUMN public.queue_bulk_operation.rate_per_second IS 'items per second, 0.01 to 1000; fractions carry over';
COMMENT ON COLUMN public.queue_bulk_operation.brake_percent IS
  'the operation is paused when this share of its last 10 to 50 first attempts failed; 0 = no brake';
COMMENT ON COLUMN public.queue_bulk_operation.canary IS
  'this many items run first; their first attempts must succeed before the others start';
COMMENT ON COLUMN public.queue_bulk_operation.frozen_count IS 'number of items';
GRANT SELECT ON public.queue_bulk_operation, public.queue_bulk_operation_item TO :"queue_viewer", :"dot_executor",
  :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.queue_bulk_operation_item IS
  'The frozen items of a bulk operation, in the order in which they are carried out. outcome NULL = not yet; '
  'first_result: how the first attempt after the requeue or replay ended.';
COMMENT ON COLUMN public.queue_bulk_operation_item.outcome IS
  'done, skipped, failed or undone; NULL = not carried out yet';
COMMENT ON COLUMN public.queue_bulk_operation_item.subscription_id IS
  'webhook subscription of the dead letter: while its endpoint is blocked, the item waits; 0 = none, or not known';
COMMENT ON COLUMN public.queue_bulk_operation_item.new_id IS 'the saga or job that the dead letter became';
COMMENT ON COLUMN public.queue_bulk_operation_item.first_result IS
  'how the first attempt of the new saga or job ended: ok or failed; NULL = not known yet';

-- fn_queue_bulk_plan(kind, ids, filter, rate, brake, canary, actor, reason) → {operation_id, frozen_count, state,
-- audit_id}: freezes a selection. Raises 22023 for a value out of range.
--   kind    requeue_webhook, replay_job, replay_event or resolve (closes as abandoned, with the reason as note)
--   ids     dead letters in the order in which they are to be carried out: NUMBER (webhook, without leading
--           zeros), job:UUID or event:UUID; duplicates count once
--   filter  the filter that the rows were selected with, for the record; must not be empty
--   rate    items per second, 0.01 to 1000
--   brake   percentage of failed first attempts that pauses the operation; NULL = 20, 0 = no brake
--   canary  how many items run first and must succeed; NULL = 5, 0 = no canary
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_plan(p_kind text, p_ids text[], p_filter text, p_rate numeric,
  p_brake_percent int,
  p_canary int, p_actor text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_canary int := CASE WHEN p_kind = 'resolve' THEN 0 ELSE COALESCE(p_canary, 5) END;
  v_brake int := CASE WHEN p_kind = 'resolve' THEN 0 ELSE COALESCE(p_brake_percent, 20) END;
  v_bad text;
  v_form text;
  v_id bigint;
  v_n bigint;
  v_audit bigint;
BEGIN
  v_bad := CASE
    WHEN p_kind IS NULL OR p_kind NOT IN ('requeue_webhook', 'replay_job', 'replay_event', 'resolve')
      THEN 'p_kind must be requeue_webhook, replay_job, replay_event or resolve'
    WHEN p_ids IS NULL OR cardinality(p_ids) NOT BETWEEN 1 AND 1000000 OR array_ndims(p_ids) <> 1
      THEN 'p_ids must hold 1 to 1000000 ids'
    WHEN public.fn_trimmed(p_filter) IS NULL OR length(p_filter) > 10000
      THEN 'p_filter must have 1 to 10000 characters: write down the filter that the ids were selected with'
    WHEN p_rate IS NULL OR p_rate NOT BETWEEN 0.01 AND 1000 THEN 'p_rate must be 0.01 to 1000 items per second'
    WHEN v_brake NOT BETWEEN 0 AND 100 THEN 'p_brake_percent must be 0 to 100'
    WHEN v_canary NOT BETWEEN 0 AND 1000 THEN 'p_canary must be 0 to 1000' END;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '%', v_bad USING ERRCODE = '22023';
  END IF;
  v_form := CASE p_kind WHEN 'requeue_webhook' THEN '^(0|[1-9][0-9]{0,17})$' WHEN 'replay_job'
    THEN '^job:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
    WHEN 'replay_event' THEN '^event:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
      ELSE '^(0|[1-9][0-9]{0,17}|(job|event):[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$' END;
  SELECT format('p_ids[%s]: %s', i.n, public.fn_json_said(to_jsonb(i.id))) INTO v_bad
  FROM unnest(p_ids) WITH ORDINALITY AS i (id, n) WHERE i.id IS NULL OR i.id !~ v_form ORDER BY i.n LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '% is not a dead letter that % accepts', v_bad, p_kind
      USING ERRCODE = '22023',
      HINT = 'NUMBER is a dead letter of a webhook, job:UUID of a job, event:UUID of an event';
  END IF;

  INSERT INTO public.queue_bulk_operation (kind, filter, created_by, reason, state_by, rate_per_second,
    brake_percent, canary,
    canary_passed, frozen_count)
  VALUES (p_kind, public.fn_trimmed(p_filter), v_actor, v_reason, v_actor, p_rate, v_brake, v_canary, v_canary = 0,
    cardinality(p_ids))
  RETURNING operation_id INTO v_id;
  INSERT INTO public.queue_bulk_operation_item (operation_id, item_no, target, subscription_id)
  SELECT v_id, row_number() OVER (ORDER BY x.first), x.id, COALESCE(d.subscription_id, 0)
  FROM (SELECT i.id, min(i.n) AS first FROM unnest(p_ids) WITH ORDINALITY AS i (id, n) GROUP BY i.id) x
  LEFT JOIN public.dead_letters d ON p_kind = 'requeue_webhook' AND d.id = CASE WHEN x.id !~ ':' THEN x.id::bigint END;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF p_kind = 'requeue_webhook' THEN
    INSERT INTO public.webhook_operation_bucket (operation_id, tokens) VALUES (v_id, 1);
  END IF;
  UPDATE public.queue_bulk_operation SET frozen_count = v_n WHERE operation_id = v_id;
  v_audit := public.fn_operator_audit(
    p_action => 'bulk_plan', p_target => 'operation ' || v_id, p_actor => v_actor, p_reason => v_reason,
    p_filter => public.fn_trimmed(p_filter), p_frozen_count => v_n::bigint,
    p_after => jsonb_build_object('kind', p_kind, 'rate_per_second', p_rate, 'brake_percent', v_brake, 'canary',
      v_canary), p_before => NULL::jsonb, p_outcome => 'done'::text, p_operation_id => v_id);
  RETURN jsonb_build_object('operation_id', v_id, 'frozen_count', v_n, 'state', 'planned', 'audit_id', v_audit);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_plan TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_plan IS
  'Freezes a selection of dead letters as a bulk operation; nothing happens to them until fn_queue_bulk_run.';

-- fn_queue_bulk_turn(id, action, from states, to, actor) → {operation_id, before, state, was, audit_id}: changes
-- the state of an operation from one of `from states` to `to`, for fn_queue_bulk_run, _pause, _resume and
-- _abort, which return its result. Refused: not_found; clone (the database is a copy that is not adopted);
-- state (the operation is in none of the from states). After run and resume, canary and brake count only the
-- items that are carried out from then on; after a brake or a failed canary the canary runs again. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_turn(p_operation_id bigint, p_action text, p_from text[], p_to text,
  p_actor text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_old public.queue_bulk_operation;
  v_reason text;
  v_rule text;
  v_audit bigint;
BEGIN
  SELECT * INTO v_old FROM public.queue_bulk_operation WHERE operation_id = p_operation_id FOR UPDATE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_reason := format('there is no operation %s; qtop ops lists them', COALESCE(p_operation_id::text, '(null)'));
  ELSIF p_to = 'running' AND public.fn_queue_clone_of() IS NOT NULL THEN
    v_rule := 'clone';
    v_reason := public.fn_queue_clone_of();
  ELSIF v_old.state <> ALL (p_from) THEN
    v_rule := 'state';
    v_reason := format('operation %s has been %s since %s, by %s: only one that is %s can become %s',
      v_old.operation_id, v_old.state, to_char(v_old.state_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
      v_old.state_by, public.fn_words(p_from, 'or'), p_to);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(
      p_action => 'bulk_' || p_action, p_target => 'operation ' || COALESCE(p_operation_id, 0), p_actor => v_actor,
      p_reason => COALESCE(v_old.reason, 'refused'), p_rule => v_rule, p_why => v_reason)
      || jsonb_build_object('operation_id', p_operation_id);
  END IF;
  UPDATE public.queue_bulk_operation SET state = p_to, state_why = NULL, waits = NULL, state_by = v_actor,
    state_at = now()
  WHERE operation_id = p_operation_id;
  IF p_to = 'running' THEN
    UPDATE public.queue_bulk_operation SET started_at = COALESCE(started_at, now()), credit = 0,
      credited_at = clock_timestamp(),
      watch_since = clock_timestamp(), canary_passed = canary = 0 OR canary_passed AND v_old.state_why IS NULL
    WHERE operation_id = p_operation_id;
  END IF;
  v_audit := public.fn_operator_audit(
    p_action => 'bulk_' || p_action, p_target => 'operation ' || p_operation_id, p_actor => v_actor,
    p_reason => v_old.reason, p_filter => v_old.filter, p_frozen_count => v_old.frozen_count,
    p_before => jsonb_build_object('state', v_old.state, 'state_why', v_old.state_why),
    p_after => jsonb_build_object('state', p_to, 'requeued', v_old.requeued, 'done', v_old.done,
      'skipped', v_old.skipped, 'failed', v_old.failed),
    p_outcome => 'done'::text, p_operation_id => p_operation_id);
  RETURN jsonb_build_object('operation_id', p_operation_id, 'before', v_old.state, 'state', p_to, 'audit_id', v_audit,
    'was', jsonb_build_object('rate_per_second', v_old.rate_per_second, 'state', v_old.state, 'state_at',
      v_old.state_at));
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_turn IS
  'Moves a bulk operation from one state to another. Internal.';

-- fn_queue_bulk_run|pause|resume|abort(id, actor) → {operation_id, before, state, was, audit_id}; was holds
-- rate_per_second, state and state_at before the change; refused as in
-- fn_queue_bulk_turn. Abort is final; the dead letters of items that were not carried out stay open.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_run(p_operation_id bigint, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_queue_bulk_turn(p_operation_id, 'run', '{planned}'::text[], 'running', p_actor);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_run TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_run IS
  'Starts a planned bulk operation; any live worker host carries it out.';

CREATE OR REPLACE FUNCTION public.fn_queue_bulk_pause(p_operation_id bigint, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_queue_bulk_turn(p_operation_id, 'pause', '{running}'::text[], 'paused', p_actor);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_pause TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_pause IS
  'Pauses a running bulk operation; nothing that it has carried out is undone.';

CREATE OR REPLACE FUNCTION public.fn_queue_bulk_resume(p_operation_id bigint, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_queue_bulk_turn(p_operation_id, 'resume', '{paused}'::text[], 'running', p_actor);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_resume TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_resume IS
  'Continues a paused bulk operation; after a brake the canary runs again.';

CREATE OR REPLACE FUNCTION public.fn_queue_bulk_abort(p_operation_id bigint, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN public.fn_queue_bulk_turn(p_operation_id, 'abort', '{planned,running,paused}'::text[], 'aborted', p_actor);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_abort TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_abort IS
  'Ends a bulk operation for good; dead letters that it has not reached stay open.';

-- fn_queue_bulk_set_rate(id, rate, actor) → {operation_id, before, rate_per_second, was, audit_id}; was as in
-- fn_queue_bulk_run; refused: not_found; state (the operation has ended).
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_set_rate(p_operation_id bigint, p_rate numeric, p_actor text)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_old public.queue_bulk_operation;
  v_audit bigint;
BEGIN
  IF p_rate IS NULL OR p_rate NOT BETWEEN 0.01 AND 1000 THEN
    RAISE EXCEPTION 'p_rate must be 0.01 to 1000 items per second' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_old FROM public.queue_bulk_operation WHERE operation_id = p_operation_id FOR UPDATE;
  IF NOT FOUND OR v_old.state IN ('completed', 'aborted') THEN
    RETURN jsonb_build_object('operation_id', p_operation_id) || public.fn_operator_refused(
      p_action => 'bulk_rate'::text, p_target => 'operation ' || COALESCE(p_operation_id, 0), p_actor => v_actor,
      p_reason => COALESCE(v_old.reason, 'refused'),
      p_rule => CASE WHEN v_old.state IS NULL THEN 'not_found' ELSE 'state' END,
      p_why => CASE WHEN v_old.state IS NULL
        THEN format('there is no operation %s; qtop ops lists them', COALESCE(p_operation_id::text, '(null)'))
        ELSE format('operation %s is %s: it has no rate any more', p_operation_id, v_old.state) END);
  END IF;
  UPDATE public.queue_bulk_operation SET rate_per_second = p_rate WHERE operation_id = p_operation_id;
  v_audit := public.fn_operator_audit(
    p_action => 'bulk_rate', p_target => 'operation ' || p_operation_id, p_actor => v_actor,
    p_reason => v_old.reason, p_frozen_count => v_old.frozen_count,
    p_before => jsonb_build_object('rate_per_second', v_old.rate_per_second),
    p_after => jsonb_build_object('rate_per_second', p_rate), p_filter => NULL::text, p_outcome => 'done'::text,
    p_operation_id => p_operation_id);
  RETURN jsonb_build_object('operation_id', p_operation_id, 'before', v_old.rate_per_second, 'rate_per_second',
    p_rate, 'audit_id', v_audit, 'was', jsonb_build_object('rate_per_second', v_old.rate_per_second, 'state',
      v_old.state, 'state_at', v_old.state_at));
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_set_rate TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_set_rate IS
  'Changes the rate of a bulk operation, also while it runs.';

-- fn_queue_bulk_apply(operation, kind, targets, actor, reason, undo) → (target, why, new_id, failed): calls, for each
-- kind of dead letter, the function that requeues, replays or resolves it, or the undo of that function. why: the
-- reason why a target was skipped; NULL = it was done. failed: the error code of an attempt that was made and failed;
-- only the replay of an event returns it, because only routing has its result at once. No rows if the function refuses
-- all targets, because a flag is off: they are to be tried again. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_apply(p_operation_id bigint, p_kind text, p_targets text[],
  p_actor text, p_reason text, p_undo boolean)
RETURNS TABLE (target text, why text, new_id text, failed text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_webhooks bigint[];
  v_jobs uuid[];
  v_events uuid[];
  v_webhook_answer jsonb;
  v_job_answer jsonb;
  v_event_answer jsonb;
BEGIN
  SELECT array_agg(t::bigint) FILTER (WHERE t !~ ':'), array_agg(substr(t, 5)::uuid) FILTER (WHERE t ~ '^job:'),
    array_agg(substr(t, 7)::uuid) FILTER (WHERE t ~ '^event:')
  INTO v_webhooks, v_jobs, v_events FROM unnest(p_targets) t;
  IF v_webhooks IS NOT NULL THEN
    v_webhook_answer := CASE
      WHEN p_kind = 'resolve' AND p_undo THEN public.fn_dead_letter_reopen_as(v_webhooks, p_actor, p_reason, false,
        p_operation_id)
      WHEN p_kind = 'resolve' THEN public.fn_dead_letter_resolve_as(p_dead_letter_ids => v_webhooks,
        p_resolution => 'abandoned', p_note => p_reason, p_actor => p_actor, p_dry_run => false,
        p_operation_id => p_operation_id)
      WHEN p_undo THEN public.fn_dead_letter_requeue_undo_as(v_webhooks, p_actor, p_reason, false,
        p_operation_id)
      ELSE public.fn_dead_letter_requeue_as(v_webhooks, p_actor, p_reason, false, p_operation_id) END;

  END IF;
  IF v_jobs IS NOT NULL THEN
    v_job_answer := CASE
      WHEN p_kind = 'resolve' AND p_undo THEN public.fn_job_dead_letter_reopen_as(v_jobs, p_actor, p_reason, false,
        p_operation_id)
      WHEN p_kind = 'resolve' THEN public.fn_job_dead_letter_resolve_as(p_dead_letter_ids => v_jobs,
        p_resolution => 'abandoned', p_note => p_reason, p_actor => p_actor, p_dry_run => false,
        p_operation_id => p_operation_id)
      WHEN p_undo THEN public.fn_job_dead_letter_replay_undo_as(v_jobs, p_actor, p_reason, false,
        p_operation_id)
      ELSE public.fn_job_dead_letter_replay_as(v_jobs, p_actor, p_reason, false,
        p_operation_id) END;

  END IF;
  IF v_events IS NOT NULL THEN
    v_event_answer := CASE
      WHEN p_kind = 'resolve' AND p_undo
        THEN public.fn_iu_route_dead_letter_reopen_as(v_events, p_actor, p_reason, false,
        p_operation_id)
      WHEN p_kind = 'resolve' THEN public.fn_iu_route_dead_letter_resolve_as(p_dead_letter_ids => v_events,
        p_resolution => 'abandoned', p_note => p_reason, p_actor => p_actor, p_dry_run => false,
        p_operation_id => p_operation_id)
      ELSE public.fn_iu_route_dead_letter_replay_as(v_events, p_actor, p_reason, false,
        p_operation_id) END;
  END IF;
  RETURN QUERY
  SELECT a.prefix || (x ->> 'id'), x ->> 'why', x ->> 'new_id', x ->> 'code'
  FROM (VALUES ('', v_webhook_answer), ('job:', v_job_answer), ('event:', v_event_answer)) a (prefix, answer),
    jsonb_array_elements(a.answer -> 'results') x;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_apply IS
  'Requeues, replays or resolves the dead letters of some items of a bulk operation. Internal.';

-- fn_queue_bulk_watch(operation): records how the first attempts of requeued items ended, and which items somebody has
-- recalled, for the oldest and the newest 2,000 whose result is not known yet. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_watch(p_operation public.queue_bulk_operation) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
  SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ok bigint;
  v_failed bigint;
  v_recalled bigint;
BEGIN
  WITH open AS MATERIALIZED (
    (SELECT i.item_no, i.target, i.new_id, i.at FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation.operation_id
      AND i.outcome = 'done' AND i.first_result IS NULL ORDER BY i.item_no LIMIT 2000)
    UNION
    (SELECT i.item_no, i.target, i.new_id, i.at FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation.operation_id
      AND i.outcome = 'done' AND i.first_result IS NULL ORDER BY i.item_no DESC LIMIT 2000)
  ), known AS (
    SELECT o.item_no, j.status = 'Completed' AS ok, j.error_code AS code, j.settled_at AS at
    FROM open o JOIN public.webhook_delivery_jobs j ON j.saga_id = o.new_id::bigint AND j.attempt_no = 1
      AND j.settled_at IS NOT NULL
    WHERE p_operation.kind = 'requeue_webhook'
    UNION ALL
    SELECT o.item_no, false, q.failure_code, q.updated_at
    FROM open o CROSS JOIN LATERAL (SELECT x.* FROM public.job_queue x
      WHERE x.job_id = o.new_id::uuid AND x.attempts > 0 OFFSET 0) q
    WHERE p_operation.kind = 'replay_job'
    UNION ALL
    SELECT o.item_no, h.status = 'succeeded' AND h.attempts = 0 OR h.status = 'cancelled', h.failure_code, h.finished_at
    FROM open o CROSS JOIN LATERAL (SELECT x.status, x.attempts, x.failure_code, x.finished_at FROM public.job_history x
      -- a day before: the clock of the server may have gone back since o.at
      WHERE x.job_id = o.new_id::uuid AND x.finished_at >= least(o.at, now()) - interval '1 day'
        AND x.finished_at < now() + interval '1 hour' LIMIT 1) h
    WHERE p_operation.kind = 'replay_job'
  ), kept AS (
    UPDATE public.queue_bulk_operation_item i SET first_result = CASE WHEN k.ok THEN 'ok' ELSE 'failed' END,
      first_code = CASE WHEN NOT k.ok THEN k.code END, first_at = k.at
    FROM known k WHERE i.operation_id = p_operation.operation_id AND i.item_no = k.item_no RETURNING k.ok
  ), gone AS ( -- the dead letter exists: retention deletes it together with its saga
    SELECT o.item_no FROM open o JOIN public.dead_letters d ON d.id = o.target::bigint
    WHERE p_operation.kind = 'requeue_webhook'
      AND NOT EXISTS (SELECT FROM public.webhook_delivery_sagas s WHERE s.id = o.new_id::bigint)
    UNION ALL
    SELECT o.item_no FROM open o JOIN public.job_dead_letter d ON d.dead_letter_id = substr(o.target, 5)::uuid
    WHERE p_operation.kind = 'replay_job' AND d.replayed_job_id IS DISTINCT FROM o.new_id::uuid
  ), recalled AS (
    UPDATE public.queue_bulk_operation_item i SET outcome = 'undone', why = 'recalled outside this operation',
      at = now()
    FROM gone g WHERE i.operation_id = p_operation.operation_id AND i.item_no = g.item_no RETURNING i.item_no
  )
  SELECT (SELECT count(*) FILTER (WHERE ok) FROM kept), (SELECT count(*) FILTER (WHERE NOT ok) FROM kept),
    (SELECT count(*) FROM recalled) INTO v_ok, v_failed, v_recalled;
  IF v_ok + v_failed + v_recalled > 0 THEN
    UPDATE public.queue_bulk_operation SET first_ok = first_ok + v_ok, first_failed = first_failed + v_failed,
      done = first_ok + v_ok + first_failed + v_failed, requeued = requeued - v_recalled, undone = undone + v_recalled
    WHERE operation_id = p_operation.operation_id;
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_watch IS 'Records how first attempts of a bulk operation ended. Internal.';

-- fn_queue_bulk_halt(operation) → why the operation must pause; NULL = it may continue. Internal. Reasons:
--   off      requeueing is switched off, which would skip all remaining items
--   canary   a first attempt of the canary failed
--   brake    the results of at least 10 first attempts since the start are known, and too many of the last 50 failed
--   skipped  the latest 50 items since the start were all skipped for one reason, so that the remaining ones probably
--            would be skipped too
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_halt(p_operation public.queue_bulk_operation) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_off text;
  v_seen int;
  v_failed int;
  v_code text;
  v_skipped text;
  v_now timestamptz := clock_timestamp(); -- later times are from before the clock of the server went back
BEGIN
  v_off := public.fn_queue_requeue_off(p_operation.kind);
  IF v_off IS NOT NULL THEN
    RETURN v_off;
  END IF;
  SELECT count(*), count(*) FILTER (WHERE x.first_result = 'failed'), mode() WITHIN GROUP (ORDER BY x.first_code)
  INTO v_seen, v_failed, v_code FROM (
    SELECT i.first_result, i.first_code FROM public.queue_bulk_operation_item i
    WHERE i.operation_id = p_operation.operation_id AND i.first_result IS NOT NULL
      AND i.at BETWEEN p_operation.watch_since AND v_now AND i.first_at BETWEEN p_operation.watch_since AND v_now
    ORDER BY i.first_at DESC, i.item_no LIMIT 50) x;
  IF NOT p_operation.canary_passed AND v_failed > 0 THEN
    RETURN format('the canary failed: %s of %s first attempts (%s)', v_failed, v_seen, COALESCE(v_code, 'no code'));
  ELSIF p_operation.brake_percent > 0 AND v_seen >= 10 AND v_failed * 100 >= p_operation.brake_percent * v_seen THEN
    RETURN format('the brake: %s of the last %s first attempts failed (mostly %s)', v_failed, v_seen,
      COALESCE(v_code, 'no code'));
  END IF;
  -- A cheap check first: were the 50 items that were carried out last all skipped for one reason? A reason
  -- may contain a number, an id or a time that differs from item to item, so reasons are compared without
  -- these.
  SELECT (array_agg(x.why))[1] INTO v_skipped FROM (
    SELECT i.outcome, i.why FROM public.queue_bulk_operation_item i
    WHERE i.operation_id = p_operation.operation_id AND i.item_no < p_operation.next_item
      AND i.item_no >= p_operation.next_item - 2000 AND i.outcome IS NOT NULL
      AND i.at BETWEEN p_operation.watch_since AND v_now
    ORDER BY i.at DESC, i.item_no DESC LIMIT 50) x
  HAVING count(*) = 50 AND bool_and(x.outcome = 'skipped')
    AND count(DISTINCT regexp_replace(x.why,
      '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+', '', 'g')) = 1;
  IF v_skipped IS NOT NULL AND EXISTS (SELECT FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation.operation_id AND i.outcome IS NULL) THEN
    -- Items of several endpoints are carried out alternately: count the items skipped since the last one that was not.
    SELECT count(*) INTO v_seen FROM public.queue_bulk_operation_item i
    WHERE i.operation_id = p_operation.operation_id AND i.outcome = 'skipped'
      AND i.at BETWEEN p_operation.watch_since AND v_now
      AND i.at > COALESCE((SELECT max(d.at) FROM public.queue_bulk_operation_item d
        WHERE d.operation_id = p_operation.operation_id AND d.outcome IN ('done', 'failed')
          AND d.at BETWEEN p_operation.watch_since AND v_now), '-infinity');
    IF v_seen >= 50 THEN
      RETURN left(format('%s items in a row were skipped, the latest: %s', v_seen, v_skipped), 500);
    END IF;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_halt IS
  'Why a bulk operation must pause: canary, brake, items skipped in a row, or requeueing off. Internal.';

-- fn_queue_bulk_next(operation, n, except) → up to n items to carry out now, without those in except: alternately from
-- the endpoints to which requests may be sent, the lowest item number of each endpoint first. An endpoint with a rate
-- limit or in slow start first gets only the part of the operation's rate at which it can be sent to, its share: the
-- other endpoints get the rest. If they have too few items, it gets more. Items of an endpoint that is suspended or
-- whose circuit is open wait. A half-open circuit gets one item as its probe, if no other delivery to the endpoint is
-- due; those of paused operations do not count. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_next(p_operation_id bigint, p_n bigint, p_except bigint[])
RETURNS TABLE (item_no bigint, target text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_op record;
BEGIN
  SELECT o.rate_per_second, o.requeued + o.skipped + o.failed AS handled INTO v_op
  FROM public.queue_bulk_operation o WHERE o.operation_id = p_operation_id;
  RETURN QUERY
  WITH RECURSIVE lane (sub) AS (
    (SELECT i.subscription_id FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL ORDER BY i.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT i.subscription_id FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL AND i.subscription_id > l.sub
      ORDER BY i.subscription_id LIMIT 1)
    FROM lane l WHERE l.sub IS NOT NULL
  ), open AS MATERIALIZED (
    SELECT l.sub, g.gate = 'half_open' AS probes, least(g.rate_limit_per_second,
      g.slow_start_rate / count(*) OVER (PARTITION BY g.endpoint))::numeric / v_op.rate_per_second AS pace
    FROM lane l LEFT JOIN public.v_webhook_gate g ON g.subscription_id = l.sub
    WHERE l.sub IS NOT NULL AND COALESCE(g.gate <> 'suspended', true)
      AND (g.gate = 'half_open' IS NOT TRUE OR NOT EXISTS (
          -- one look-up for each value of controlled: with IN, all waiting jobs might be read
          SELECT FROM unnest('{true,false}'::boolean[]) c CROSS JOIN LATERAL (
            SELECT FROM public.webhook_delivery_jobs j
            WHERE j.status = 'Pending' AND j.controlled = c AND j.subscription_id = l.sub
              AND NOT EXISTS (SELECT FROM public.queue_bulk_operation o
                WHERE o.operation_id = j.operation_id AND o.state = 'paused') LIMIT 1) j)
        AND NOT EXISTS (SELECT FROM public.webhook_endpoint_suspensions x
          WHERE x.subscription_id = l.sub AND x.probe_until > now())
        AND NOT EXISTS (SELECT FROM public.webhook_delivery_sagas s WHERE s.status IN ('Pending', 'PendingRetry')
          AND s.subscription_id = l.sub AND s.next_attempt_at <= now()
          AND NOT EXISTS (SELECT FROM public.dead_letter_requeues q
            JOIN public.webhook_operation_bucket b USING (operation_id) -- no row = no rate
            JOIN public.queue_bulk_operation o USING (operation_id)
            WHERE q.dead_letter_id = s.requeued_from_dead_letter_id AND o.state = 'paused')))
  ), share AS MATERIALIZED (
    -- Over many ticks the shares add up to the pace, also if it is less than one item per tick. The phases differ,
    -- because one tick may have fewer items than there are endpoints.
    SELECT o.sub, CASE WHEN o.probes THEN 1 WHEN o.pace < 1
      THEN floor((v_op.handled + p_n) * o.pace + o.phase) - floor(v_op.handled * o.pace + o.phase) END AS items,
      o.lanes, o.probes
    FROM (SELECT o.*, count(*) OVER () AS lanes,
      row_number() OVER (ORDER BY o.sub) / (count(*) OVER ())::numeric AS phase FROM open o) o
  ), part AS (
    -- not more rows than are needed, even if there are many endpoints
    SELECT p.item_no, p.target, row_number() OVER (PARTITION BY h.sub ORDER BY p.item_no) AS nth_of_endpoint, h.items
    FROM share h CROSS JOIN LATERAL (
      SELECT i.item_no, i.target FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL AND i.subscription_id = h.sub
        AND i.item_no <> ALL (p_except)
      ORDER BY i.item_no
      LIMIT CASE WHEN h.probes THEN 1 ELSE least(p_n, 1 + 4 * p_n / CASE WHEN h.items * h.lanes < p_n THEN h.lanes
        ELSE (SELECT count(*) FROM share x WHERE (x.items * x.lanes < p_n) IS NOT TRUE) END) END) p
  )
  SELECT p.item_no, p.target FROM part p
  ORDER BY COALESCE(p.nth_of_endpoint > p.items, false), p.nth_of_endpoint, p.item_no LIMIT p_n;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_next IS
  'The next items of a bulk operation, without those of blocked endpoints. Internal.';

-- fn_queue_bulk_waits(operation) → why a running operation waits, NULL = it does not wait. Reasons: items of blocked
-- endpoints; requeued items whose first attempt is not settled, or not made because delivery is off or no host runs it.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_waits(p_operation_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_op public.queue_bulk_operation;
  v_blocked text;
  v_unsent bigint;
  v_why text;
BEGIN
  SELECT * INTO v_op FROM public.queue_bulk_operation WHERE operation_id = p_operation_id;
  WITH RECURSIVE lane (sub) AS (
    (SELECT i.subscription_id FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL AND i.subscription_id > 0
      ORDER BY i.subscription_id LIMIT 1)
    UNION ALL
    SELECT (SELECT i.subscription_id FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL AND i.subscription_id > l.sub
      ORDER BY i.subscription_id LIMIT 1)
    FROM lane l WHERE l.sub IS NOT NULL
  ), blocked AS (
    SELECT g.subscription_id, g.endpoint, g.gate, g.suspended_reason, g.suspended_until,
      row_number() OVER (ORDER BY g.subscription_id) AS n, count(*) OVER () AS all_of_them
    FROM lane l JOIN public.v_webhook_gate g ON g.subscription_id = l.sub WHERE g.gate IN ('suspended', 'half_open')
  )
  SELECT string_agg(format('items of subscription %s (%s) wait: %s', b.subscription_id, b.endpoint,
      CASE WHEN b.gate = 'half_open' THEN 'circuit half open' WHEN b.suspended_reason = 'circuit' THEN 'circuit open'
      ELSE 'suspended (' || b.suspended_reason || ')' END || CASE WHEN b.gate = 'suspended' THEN
      COALESCE(to_char(b.suspended_until AT TIME ZONE 'UTC', '" until "HH24:MI:SS"Z"'), '') ELSE '' END), '; '
      ORDER BY b.subscription_id) || CASE WHEN max(b.all_of_them) > 3
      THEN format('; and those of %s more subscriptions', max(b.all_of_them) - 3) ELSE '' END
  INTO v_blocked FROM blocked b WHERE b.n <= 3;
  v_unsent := v_op.requeued - v_op.first_ok - v_op.first_failed;
  IF v_unsent > 0 AND v_op.kind = 'requeue_webhook' THEN
    v_why := CASE
      WHEN NOT public.fn_cfg_bool('webhook.worker.enabled') THEN 'webhook.worker.enabled is off'
      WHEN public.fn_cfg_int('queue.tick.saga_orchestrator.interval_seconds', 5) = 0
        THEN 'queue.tick.saga_orchestrator.interval_seconds is 0'
      WHEN public.fn_cfg_int('queue.tick.webhook_worker.interval_seconds', 1) = 0
        THEN 'queue.tick.webhook_worker.interval_seconds is 0'
      ELSE (SELECT 'no live host runs ' || l.name FROM unnest('{webhook_worker,saga_orchestrator}'::text[]) l (name)
        WHERE NOT EXISTS (SELECT FROM public.queue_host q WHERE q.stopped_at IS NULL
          AND q.last_seen_at > now() - interval '15 seconds'
            AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND l.name = ANY (q.loops))
        ORDER BY l.name DESC LIMIT 1) END;
  END IF;
  IF v_why IS NULL AND v_unsent > 0 AND NOT EXISTS (SELECT FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome IS NULL) THEN
    v_why := 'their first attempt is not settled';
  END IF;
  IF v_why IS NOT NULL THEN
    v_why := format('%s requeued %s: %s', v_unsent,
      CASE WHEN v_unsent = 1 THEN 'item waits' ELSE 'items wait' END, v_why);
  END IF;
  RETURN left(NULLIF(concat_ws('; ', v_blocked, v_why), ''), 1000);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_waits IS
  'What a running bulk operation waits for, other than its rate. Internal.';

-- fn_queue_bulk_sent(operation, done) → how many first attempts have begun: done (those that are settled) plus webhook
-- jobs that a host has leased. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_sent(p_operation_id bigint, p_done bigint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
  SET jit = off AS $$
BEGIN
  RETURN p_done + (SELECT count(*) FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Leased' AND j.operation_id = p_operation_id AND j.attempt_no = 1);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_sent IS
  'How many first attempts of a bulk operation have begun. Internal.';
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_sent TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_queue_bulk_carry(operation, items, time): carries out these items of an operation and stores the outcome of each.
-- If a flag has been switched off, they keep no outcome and are carried out after it is on again. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_carry(p_operation public.queue_bulk_operation, p_items bigint[],
  p_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- a plan for this operation would expect one item, if it is younger than the statistics, and read all for the list
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_targets text[];
BEGIN
  SELECT array_agg(i.target ORDER BY i.item_no) INTO v_targets FROM public.queue_bulk_operation_item i
  WHERE i.operation_id = p_operation.operation_id AND i.item_no = ANY (p_items);
  UPDATE public.queue_bulk_operation_item i SET
    outcome = CASE WHEN a.why IS NULL THEN 'done' WHEN a.failed IS NOT NULL THEN 'failed' ELSE 'skipped' END,
    why = left(a.why, 500), new_id = CASE WHEN a.why IS NULL THEN a.new_id END, at = p_at,
    first_result = CASE WHEN a.failed IS NOT NULL THEN 'failed' WHEN p_operation.kind = 'replay_event'
      AND a.why IS NULL THEN 'ok' END,
    first_code = a.failed, first_at = CASE WHEN p_operation.kind = 'replay_event'
      AND (a.why IS NULL OR a.failed IS NOT NULL) THEN p_at END
  FROM public.fn_queue_bulk_apply(p_operation_id => p_operation.operation_id, p_kind => p_operation.kind,
    p_targets => v_targets, p_actor => p_operation.created_by, p_reason => p_operation.reason, p_undo => false) a
  WHERE i.operation_id = p_operation.operation_id AND i.item_no = ANY (p_items) AND i.target = a.target;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_carry IS 'Carries out items of a bulk operation. Internal.';

-- fn_queue_bulk_count(operation, items) → {done, skipped, failed}: adds the outcomes of these items to the counts of
-- their operation. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_count(p_operation_id bigint, p_items bigint[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  n record;
BEGIN
  SELECT count(*) FILTER (WHERE i.outcome = 'done') AS done, count(*) FILTER (WHERE i.outcome = 'skipped') AS skipped,
    count(*) FILTER (WHERE i.outcome = 'failed') AS failed, count(*) FILTER (WHERE i.first_result = 'ok') AS ok,
    count(*) FILTER (WHERE i.first_result = 'failed') AS bad,
    max(i.item_no) FILTER (WHERE i.outcome IS NOT NULL) AS last
  INTO n FROM public.queue_bulk_operation_item i WHERE i.operation_id = p_operation_id AND i.item_no = ANY (p_items);
  UPDATE public.queue_bulk_operation o SET requeued = o.requeued + n.done,
    done = o.done + CASE WHEN o.kind IN ('resolve', 'replay_event') THEN n.done ELSE 0 END,
    skipped = o.skipped + n.skipped, failed = o.failed + n.failed, first_ok = o.first_ok + n.ok,
    first_failed = o.first_failed + n.bad,
    next_item = greatest(o.next_item, n.last + 1) -- items that are carried out alone may lie ahead of the batches
  WHERE o.operation_id = p_operation_id;
  RETURN jsonb_build_object('done', n.done, 'skipped', n.skipped, 'failed', n.failed);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_count IS
  'Adds the outcomes of items to the counts of a bulk operation. Internal.';

-- fn_step_bulk_item(limit, only, except): a step (quarantine.sql) that carries out the items in only, as
-- OPERATION/ITEM, that failed in a batch, if their operation is still running. Internal.
CREATE OR REPLACE FUNCTION public.fn_step_bulk_item(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_part record;
  v_op public.queue_bulk_operation;
  v_out jsonb := '{}'::jsonb;
BEGIN
  FOR v_part IN
    SELECT i.operation_id, array_agg(i.item_no ORDER BY i.item_no) AS items
    FROM unnest(p_only) t JOIN public.queue_bulk_operation_item i
      ON i.operation_id = split_part(t, '/', 1)::bigint AND i.item_no = split_part(t, '/', 2)::bigint
    WHERE num_nonnulls(i.outcome) = 0 -- not IS NULL: ix_queue_bulk_waiting, with all that wait, does not fit
    GROUP BY i.operation_id ORDER BY i.operation_id
  LOOP
    SELECT * INTO v_op FROM public.queue_bulk_operation o WHERE o.operation_id = v_part.operation_id FOR UPDATE;
    CONTINUE WHEN v_op.state <> 'running'; -- the step selects the item again once the operation runs
    PERFORM public.fn_queue_bulk_carry(v_op, v_part.items, clock_timestamp());
    v_out := public.fn_queue_step_sum(v_out, public.fn_queue_bulk_count(v_op.operation_id, v_part.items));
  END LOOP;
  RETURN v_out;
END $$;
COMMENT ON FUNCTION public.fn_step_bulk_item IS
  'Step bulk_item (see fn_queue_step): carries out items that failed in a batch. Internal.';

-- fn_queue_bulk_braked(operation): the audit row of an operation that the runner has paused. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_braked(p_operation public.queue_bulk_operation) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM public.fn_operator_audit(
    p_action => 'bulk_brake', p_target => 'operation ' || p_operation.operation_id,
    p_actor => 'bulk_operation_runner', p_reason => left(p_operation.state_why, 200), p_filter => p_operation.filter,
    p_frozen_count => p_operation.frozen_count, p_before => jsonb_build_object('state', 'running'),
    p_after => jsonb_build_object('state', 'paused', 'why', p_operation.state_why, 'requeued', p_operation.requeued,
      'done', p_operation.done, 'skipped', p_operation.skipped, 'failed', p_operation.failed),
    p_outcome => 'done'::text, p_operation_id => p_operation.operation_id);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_braked IS
  'Audits that a bulk operation was paused by its runner. Internal.';

-- fn_queue_bulk_bury(quarantine row) → {done, skipped, failed}: gives up a target of a step that keeps failing. An item
-- gets the outcome failed; if the step of the whole operation failed, the operation is paused. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_bury(p_row public.queue_quarantine) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_operation bigint := split_part(p_row.target, '/', 1)::bigint;
  v_item bigint := NULLIF(split_part(p_row.target, '/', 2), '')::bigint;
  v_op public.queue_bulk_operation;
BEGIN
  IF p_row.step = 'bulk' THEN
    UPDATE public.queue_bulk_operation o SET state = 'paused', waits = NULL, state_by = 'bulk_operation_runner',
      state_at = now(), state_why = left('a step failed: ' || p_row.code || ' ' || p_row.error, 500)
    WHERE o.operation_id = v_operation AND o.state = 'running' RETURNING o.* INTO v_op;
    IF FOUND THEN
      PERFORM public.fn_queue_bulk_braked(v_op);
    END IF;
    RETURN '{}'::jsonb;
  END IF;
  UPDATE public.queue_bulk_operation_item i SET outcome = 'failed', why = left(p_row.error, 500), at = clock_timestamp()
  WHERE i.operation_id = v_operation AND i.item_no = v_item
    AND num_nonnulls(i.outcome) = 0; -- not IS NULL: ix_queue_bulk_waiting, with all that wait, does not fit
  RETURN public.fn_queue_bulk_count(v_operation, ARRAY[v_item]);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_bury IS
  'Fails an item of a bulk operation, or pauses the operation. Internal.';

-- fn_queue_bulk_step(id) → (done, skipped, failed): one tick of a running operation whose row the caller has locked; at
-- most 1,000 items. done = requeued, replayed or resolved. If the batch raises an error, its items are carried out one
-- by one (fn_step_bulk_item), so that one bad item fails alone. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_step(p_operation_id bigint, OUT done bigint, OUT skipped bigint,
  OUT failed bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_op public.queue_bulk_operation;
  v_now timestamptz := clock_timestamp();
  v_why text;
  v_credit numeric := 0;
  v_canary_done int;
  v_canary_ok int;
  v_n bigint;
  v_items bigint[];
  v_targets text[];
  v_waits text;
  v_ended boolean;
  v_late boolean;
  v_rest jsonb;
  v_counted boolean := false;
  v_ok bigint; -- first attempts whose result is known at once
  v_bad bigint;
BEGIN
  done := 0;
  skipped := 0;
  failed := 0;
  v_ok := 0;
  v_bad := 0;
  SELECT * INTO v_op FROM public.queue_bulk_operation WHERE operation_id = p_operation_id;
  PERFORM public.fn_queue_bulk_watch(v_op);
  v_why := public.fn_queue_bulk_halt(v_op);
  IF v_why IS NOT NULL THEN
    UPDATE public.queue_bulk_operation SET state = 'paused', state_why = v_why, waits = NULL,
      state_by = 'bulk_operation_runner', state_at = now()
    WHERE operation_id = p_operation_id RETURNING * INTO v_op;
    PERFORM public.fn_queue_bulk_braked(v_op);
    RETURN;
  END IF;

  IF NOT v_op.canary_passed THEN
    SELECT count(*), count(*) FILTER (WHERE x.first_result = 'ok') INTO v_canary_done, v_canary_ok FROM (
      SELECT i.first_result FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome = 'done' AND i.first_result IS NULL
        AND i.at BETWEEN v_op.watch_since AND clock_timestamp()
      UNION ALL
      SELECT i.first_result FROM public.queue_bulk_operation_item i
      WHERE i.operation_id = p_operation_id AND i.outcome = 'done' AND i.first_result IS NOT NULL
        AND i.first_at BETWEEN v_op.watch_since AND clock_timestamp()
        AND i.at BETWEEN v_op.watch_since AND clock_timestamp()) x;
    IF v_canary_ok >= v_op.canary OR NOT EXISTS (SELECT FROM public.queue_bulk_operation_item i
        WHERE i.operation_id = p_operation_id AND i.outcome IS NULL) THEN
      UPDATE public.queue_bulk_operation SET canary_passed = v_canary_ok >= v_op.canary, credit = 0, credited_at = v_now
      WHERE operation_id = p_operation_id;
    END IF;
    v_n := v_op.canary - v_canary_done; -- a skipped item proves nothing: carry out the next one instead
  ELSE
    -- after a time without any host the operation must not catch up in one burst
    v_credit := v_op.credit + v_op.rate_per_second * least(
      CASE WHEN isfinite(v_op.credited_at) THEN extract(epoch FROM v_now - v_op.credited_at) END,
      2 * greatest(1, public.fn_cfg_int('queue.tick.bulk_operation_runner.interval_seconds', 1)));
    v_n := least(floor(v_credit), 1000);
  END IF;

  IF v_n > 0 THEN
    SELECT array_agg(i.item_no ORDER BY i.item_no), array_agg(i.target ORDER BY i.item_no) INTO v_items, v_targets
    FROM public.fn_queue_bulk_next(p_operation_id, v_n, ARRAY(SELECT split_part(x, '/', 2)::bigint
      FROM unnest(public.fn_queue_step_except('bulk_item'::text)) x
      WHERE split_part(x, '/', 1) = p_operation_id::text)) i;
    v_n := COALESCE(cardinality(v_targets), 0);
  END IF;
  IF v_n > 0 THEN
    BEGIN
      PERFORM public.fn_queue_bulk_carry(v_op, v_items, v_now);
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN -- then item by item, as in fn_queue_step
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      PERFORM public.fn_queue_step_part('bulk_item'::text, ARRAY(SELECT p_operation_id || '/' || i
        FROM unnest(v_items) i));
    END;
    IF NOT v_late THEN -- fn_step_bulk_item counts its items itself
      v_rest := public.fn_queue_step_rest('bulk_item'::text);
      v_counted := true;
    END IF;
    SELECT count(*) FILTER (WHERE i.outcome = 'done'), count(*) FILTER (WHERE i.outcome = 'skipped'), count(*)
      FILTER (WHERE i.outcome = 'failed'),
      count(*) FILTER (WHERE i.first_result = 'ok'), count(*) FILTER (WHERE i.first_result = 'failed')
    INTO done, skipped, failed, v_ok, v_bad FROM public.queue_bulk_operation_item i
    WHERE i.operation_id = p_operation_id AND i.item_no = ANY (v_items) AND NOT v_counted;
    IF NOT v_counted THEN
      v_n := done + skipped + failed; -- 0 if a flag has just been switched off
    END IF;
  END IF;
  UPDATE public.queue_bulk_operation o SET requeued = o.requeued + fn_queue_bulk_step.done,
    -- a resolved or routed item is done at once, any other when its first attempt is settled
    done = CASE WHEN o.kind IN ('resolve', 'replay_event') THEN o.done + fn_queue_bulk_step.done
      ELSE o.first_ok + o.first_failed END,
    skipped = o.skipped + fn_queue_bulk_step.skipped,
    failed = o.failed + fn_queue_bulk_step.failed, first_ok = o.first_ok + v_ok,
    first_failed = o.first_failed + v_bad, next_item = greatest(o.next_item, v_items[v_n] + 1),
    credit = CASE WHEN v_op.canary_passed THEN least(v_credit - v_n, 1) ELSE 0 END, credited_at = v_now
  WHERE o.operation_id = p_operation_id
  RETURNING o.done >= o.requeued AND NOT EXISTS (SELECT FROM public.queue_bulk_operation_item i
    WHERE i.operation_id = p_operation_id AND i.outcome IS NULL) INTO v_ended;
  v_waits := CASE WHEN NOT v_ended THEN public.fn_queue_bulk_waits(p_operation_id) END;
  UPDATE public.queue_bulk_operation o SET waits = v_waits,
    state = CASE WHEN v_ended THEN 'completed' ELSE o.state END,
    state_by = CASE WHEN v_ended THEN 'bulk_operation_runner' ELSE o.state_by END,
    state_at = CASE WHEN v_ended THEN now() ELSE o.state_at END
  WHERE o.operation_id = p_operation_id AND (v_ended OR o.waits IS DISTINCT FROM v_waits);
  IF v_counted THEN
    done := COALESCE((v_rest ->> 'done')::bigint, 0);
    skipped := COALESCE((v_rest ->> 'skipped')::bigint, 0);
    failed := COALESCE((v_rest ->> 'failed')::bigint, 0);
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_step IS 'One tick of one bulk operation. Internal.';

-- fn_queue_bulk_tick() → {done, skipped, failed, in_flight} or {skipped: why, rule: clone}: one step of every running
-- operation; in_flight = number of running operations. Operations that were paused or ended are still watched for
-- results of first attempts. Tick worker bulk_operation_runner.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_tick() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_out jsonb := '{"done": 0, "skipped": 0, "failed": 0, "in_flight": 0}'::jsonb;
  v_step text;
BEGIN
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('skipped', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;
  v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step_rest('bulk_item'::text));
  FOREACH v_step IN ARRAY '{bulk,bulk_watch}'::text[] LOOP
    EXIT WHEN v_out ? 'timed_out';
    v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step(v_step, 1000));
  END LOOP;
  RETURN v_out;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_tick TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_bulk_tick IS
  'Tick bulk_operation_runner: one step of every running bulk operation.';

-- fn_step_bulk(limit, only, except): a step (quarantine.sql) that runs fn_queue_bulk_step for the running
-- operations; its targets are their ids. An operation whose batch keeps failing is paused, with the reason
-- (fn_queue_bulk_bury). Ends once statement_timeout has fired, because it no longer limits the statement. Internal.
CREATE OR REPLACE FUNCTION public.fn_step_bulk(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_op public.queue_bulk_operation;
  v_out jsonb := '{"done": 0, "skipped": 0, "failed": 0, "in_flight": 0}'::jsonb;
BEGIN
  FOR v_op IN
    SELECT * FROM public.queue_bulk_operation o WHERE o.state = 'running'
      AND (p_only IS NULL OR o.operation_id = ANY (p_only::bigint[])) AND o.operation_id <> ALL (p_except::bigint[])
    ORDER BY o.operation_id FOR UPDATE SKIP LOCKED
  LOOP
    v_out := public.fn_queue_step_sum(v_out, '{"in_flight": 1}'::jsonb
      || (SELECT to_jsonb(s) FROM public.fn_queue_bulk_step(v_op.operation_id) s));
    IF public.fn_queue_step_late('57014'::text) THEN
      v_out := v_out || '{"timed_out": true}'::jsonb;
      EXIT;
    END IF;
  END LOOP;
  RETURN v_out;
END $$;
COMMENT ON FUNCTION public.fn_step_bulk IS
  'Step bulk (see fn_queue_step): carries out the next items of each running bulk operation. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_bulk_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN ARRAY(SELECT o.operation_id::text FROM public.queue_bulk_operation o WHERE o.state = 'running'
    AND o.operation_id <> ALL (p_except::bigint[]) ORDER BY o.operation_id LIMIT p_limit);
END $$;
COMMENT ON FUNCTION public.fn_step_bulk_targets IS 'Targets of the step bulk: running bulk operations. Internal.';

-- fn_step_bulk_watch(limit, only, except): a step (quarantine.sql) that records results of first attempts of
-- operations that were paused or ended; its targets are their ids. A webhook may wait for hours before its first
-- attempt, as behind an open circuit: operations are watched at every tick for an hour, then once a minute for a week.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_step_bulk_watch(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_op public.queue_bulk_operation;
  -- whether this is not the first tick of this minute; NULL = it has never run
  v_again boolean := (SELECT w.last_run_at >= date_trunc('minute', now()) FROM public.queue_tick_worker w
    WHERE w.worker_name = 'bulk_operation_runner');
BEGIN
  FOR v_op IN
    SELECT * FROM public.queue_bulk_operation o
    WHERE o.state IN ('paused', 'completed', 'aborted')
      AND o.state_at > now() - CASE WHEN v_again AND p_only IS NULL THEN interval '1 hour' ELSE interval '7 days' END
      AND o.kind <> 'resolve' AND o.done < o.requeued
      AND (p_only IS NULL OR o.operation_id = ANY (p_only::bigint[])) AND o.operation_id <> ALL (p_except::bigint[])
    ORDER BY o.operation_id FOR UPDATE SKIP LOCKED
  LOOP
    PERFORM public.fn_queue_bulk_watch(v_op);
  END LOOP;
  RETURN '{}'::jsonb;
END $$;
COMMENT ON FUNCTION public.fn_step_bulk_watch IS
  'Step bulk_watch (see fn_queue_step): records how first attempts ended, for operations that do not run any '
  'more. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_bulk_watch_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN ARRAY(SELECT o.operation_id::text FROM public.queue_bulk_operation o
    WHERE o.state IN ('paused', 'completed', 'aborted') AND o.state_at > now() - interval '7 days'
      AND o.kind <> 'resolve' AND o.done < o.requeued AND o.operation_id <> ALL (p_except::bigint[])
    ORDER BY o.operation_id LIMIT p_limit);
END $$;
COMMENT ON FUNCTION public.fn_step_bulk_watch_targets IS
  'Targets of the step bulk_watch: bulk operations that do not run and have first attempts without a result. Internal.';

-- fn_queue_bulk_others(operation, from, to) → the items from one number to another whose dead letter somebody else has
-- closed again after this operation did: requeued or replayed as another saga or job, or resolved by another person, in
-- another way or later. It locks the dead letters in the order of fn_queue_bulk_apply, so that this stays true until
-- the end of the transaction. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_others(p_operation public.queue_bulk_operation, p_from bigint,
  p_to bigint) RETURNS bigint[]
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off
-- of an operation that is younger than the statistics one item is expected: a nested loop would read all for each
SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_webhooks bigint[];
  v_jobs uuid[];
  v_events uuid[];
BEGIN
  SELECT array_agg(i.target::bigint) FILTER (WHERE i.target !~ ':'),
    array_agg(substr(i.target, 5)::uuid) FILTER (WHERE i.target ~ '^job:'),
    array_agg(substr(i.target, 7)::uuid) FILTER (WHERE i.target ~ '^event:')
  INTO v_webhooks, v_jobs, v_events FROM public.queue_bulk_operation_item i
  WHERE i.operation_id = p_operation.operation_id AND i.item_no BETWEEN p_from AND p_to AND i.outcome = 'done'
    AND i.first_result IS NULL;
  PERFORM 1 FROM public.dead_letters d WHERE d.id = ANY (v_webhooks) ORDER BY d.id FOR NO KEY UPDATE;
  PERFORM 1 FROM public.job_dead_letter d WHERE d.dead_letter_id = ANY (v_jobs)
    ORDER BY d.dead_letter_id FOR NO KEY UPDATE;
  PERFORM 1 FROM public.iu_route_dead_letter d WHERE d.dead_letter_id = ANY (v_events)
    ORDER BY d.dead_letter_id FOR NO KEY UPDATE;
  RETURN ARRAY(
    SELECT i.item_no
    FROM (
      SELECT q.dead_letter_id::text AS target, q.new_saga_id::text AS new_id, NULL AS how, NULL AS by,
        NULL::timestamptz AS at
      FROM public.dead_letter_requeues q WHERE q.dead_letter_id = ANY (v_webhooks)
      UNION ALL
      SELECT r.dead_letter_id::text, NULL, r.resolution, r.by, r.at
      FROM public.dead_letter_resolutions r WHERE r.dead_letter_id = ANY (v_webhooks)
      UNION ALL
      SELECT 'job:' || d.dead_letter_id, d.replayed_job_id::text, d.resolution, d.resolved_by, d.resolved_at
      FROM public.job_dead_letter d WHERE d.dead_letter_id = ANY (v_jobs) AND d.resolved_at IS NOT NULL
      UNION ALL
      SELECT 'event:' || d.dead_letter_id, NULL, d.resolution, d.resolved_by, d.resolved_at
      FROM public.iu_route_dead_letter d WHERE d.dead_letter_id = ANY (v_events) AND d.resolved_at IS NOT NULL) c
    JOIN public.queue_bulk_operation_item i ON i.target = c.target
    WHERE i.operation_id = p_operation.operation_id AND i.item_no BETWEEN p_from AND p_to
      AND CASE WHEN p_operation.kind = 'resolve'
        THEN (c.how = 'abandoned' AND c.by = p_operation.created_by AND c.at <= i.at) IS NOT TRUE
        ELSE c.new_id IS DISTINCT FROM i.new_id END);
END $$;
COMMENT ON FUNCTION public.fn_queue_bulk_others IS
  'Items of a bulk operation whose dead letter somebody else has closed again since. Internal.';

-- fn_queue_bulk_undo(id, actor) → {operation_id, undone, skipped, others, kind, audit_id}: undoes the operation and
-- opens its dead letters again. skipped: sagas and jobs that have been attempted, and others: dead letters that
-- somebody else has closed again since. Refused: not_found; state (the operation is planned or running); final (it
-- routed events, and their recipients already have them); nothing (none could be undone; the numbers are returned too).
CREATE OR REPLACE FUNCTION public.fn_queue_bulk_undo(p_operation_id bigint, p_actor text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_op public.queue_bulk_operation;
  v_rule text;
  v_from bigint := 0;
  v_to bigint;
  v_targets text[];
  v_n bigint;
  v_items bigint[];
  v_theirs bigint[];
  v_undone bigint := 0;
  v_skipped bigint := 0;
  v_others bigint := 0;
  v_answer jsonb;
  v_audit bigint;
BEGIN
  SELECT * INTO v_op FROM public.queue_bulk_operation WHERE operation_id = p_operation_id FOR UPDATE;
  v_rule := CASE WHEN NOT FOUND THEN 'not_found' WHEN v_op.state IN ('planned', 'running') THEN 'state'
    WHEN v_op.kind = 'replay_event' THEN 'final' END;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('operation_id', p_operation_id) || public.fn_operator_refused(
      p_action => 'bulk_undo'::text, p_target => 'operation ' || COALESCE(p_operation_id, 0), p_actor => v_actor,
      p_reason => COALESCE(v_op.reason, 'refused'), p_rule => v_rule, p_why => CASE v_rule
        WHEN 'not_found' THEN format('there is no operation %s; qtop ops lists them',
          COALESCE(p_operation_id::text, '(null)'))
        WHEN 'final' THEN 'routed events cannot be recalled: their recipients have them'
        ELSE format('operation %s is %s: %s', p_operation_id, v_op.state, CASE v_op.state WHEN 'running'
          THEN 'pause or abort it first'
          ELSE 'there is nothing to undo' END) END);
  END IF;
  LOOP
    SELECT array_agg(i.item_no), max(i.item_no) INTO v_items, v_to FROM (
      SELECT x.item_no FROM public.queue_bulk_operation_item x
      WHERE x.operation_id = p_operation_id AND x.item_no > v_from AND x.outcome = 'done' AND x.first_result IS NULL
      ORDER BY x.item_no LIMIT 10000) i;
    EXIT WHEN v_items IS NULL;
    v_theirs := public.fn_queue_bulk_others(v_op, v_from + 1, v_to);
    v_targets := ARRAY(SELECT i.target FROM public.queue_bulk_operation_item i WHERE i.operation_id = p_operation_id
      AND i.item_no IN (SELECT unnest(v_items) EXCEPT SELECT unnest(v_theirs)) ORDER BY i.item_no);
    UPDATE public.queue_bulk_operation_item i SET outcome = 'undone', why = 'recalled by ' || v_actor, at = now()
    FROM public.fn_queue_bulk_apply(p_operation_id => p_operation_id, p_kind => v_op.kind, p_targets => v_targets,
      p_actor => v_actor, p_reason => v_op.reason, p_undo => true) a
    WHERE i.operation_id = p_operation_id AND i.item_no > v_from AND i.item_no <= v_to AND i.target = a.target
      AND a.why IS NULL;
    GET DIAGNOSTICS v_n = ROW_COUNT;
    v_undone := v_undone + v_n;
    v_skipped := v_skipped + cardinality(v_items) - v_n;
    v_others := v_others + cardinality(v_theirs);
    v_from := v_to;
  END LOOP;
  v_answer := jsonb_build_object('operation_id', p_operation_id, 'undone', v_undone, 'skipped', v_skipped,
    'others', v_others, 'kind', v_op.kind);
  IF v_undone = 0 THEN
    RETURN v_answer || public.fn_operator_refused(
      p_action => 'bulk_undo'::text, p_target => 'operation ' || p_operation_id, p_actor => v_actor,
      p_reason => v_op.reason, p_rule => 'nothing'::text, p_why => CASE WHEN v_skipped = 0
        THEN 'nothing of this operation can be undone any more'
        ELSE format('nothing was undone: %s %s, %s requeued or resolved again by others since', v_skipped - v_others,
          CASE v_op.kind WHEN 'resolve' THEN 'not opened' ELSE 'attempted already' END, v_others) END);
  END IF;
  UPDATE public.queue_bulk_operation SET undone = undone + v_undone, requeued = requeued - v_undone,
    done = done - CASE WHEN kind = 'resolve' THEN v_undone ELSE 0 END
  WHERE operation_id = p_operation_id;
  v_audit := public.fn_operator_audit(
    p_action => 'bulk_undo', p_target => 'operation ' || p_operation_id, p_actor => v_actor,
    p_reason => v_op.reason, p_filter => v_op.filter, p_frozen_count => v_op.frozen_count,
    p_before => jsonb_build_object('state', v_op.state, 'requeued', v_op.requeued),
    p_after => jsonb_build_object('undone', v_undone,
        CASE v_op.kind WHEN 'resolve' THEN 'not_opened' ELSE 'started_already' END, v_skipped - v_others)
      || CASE WHEN v_others > 0 THEN jsonb_build_object('closed_by_others', v_others) ELSE '{}' END,
    p_outcome => 'done'::text, p_operation_id => p_operation_id);
  RETURN v_answer || jsonb_build_object('audit_id', v_audit);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_bulk_undo TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_bulk_undo IS
  'Undoes what a bulk operation did, except what has been attempted and what others have done since.';
