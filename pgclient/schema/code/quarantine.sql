-- Quarantine: a row that makes a batch fail must not stop other rows. A step is the part of a tick worker that
-- processes rows in batches. A step has two functions. Both identify the rows to process by targets: ids as text.
--   fn_step_NAME(limit, only, except) → numbers, a JSON object of counts: processes up to limit targets; only those
--     in `only` (NULL = all), and never those in `except`. timed_out: true if statement_timeout ended it.
--   fn_step_NAME_targets(limit, except) → the targets that such a batch would contain.
-- fn_queue_step runs it:
--
-- 1. The whole batch runs in one subtransaction, without the targets that are set aside or pending. A run without a
--    failure does nothing else.
-- 2. When the batch fails, its targets become pending. Pending targets run in parts, each in a subtransaction: a part
--    that fails is halved until the failing target is alone; after a part that succeeds, the next parts are larger
--    again. One run isolates at most 1,000 targets and stops after 20 seconds; the next run continues. Its result has
--    the key unfinished, so that a host starts the next run soon.
-- 3. When statement_timeout ends a part, the run ends and keeps what it did, because a statement has only one timeout.
--    The next run begins with other targets, then takes a part of half the size.
-- 4. A target that fails alone is written to queue_quarantine and runs again alone, with growing waits: 10 attempts for
--    errors that may pass without help (fn_queue_step_transient), 3 for others. Then it is set aside: its row becomes a
--    dead letter, or, if rows of its kind have no dead letters, stays in queue_quarantine, and v_queue_alert names it.
-- 5. fn_queue_quarantine_retry makes a step run such a target again.
--
-- A cancel by a person or by the client ends the whole run and rolls all of it back.

COMMENT ON TABLE public.queue_quarantine IS
  'Rows that make a step of a tick worker fail, each alone; all other rows are processed without them. '
  'set_aside_at NULL: tried again at next_try_at. fn_queue_quarantine_retry retries a row that is set aside.';
COMMENT ON COLUMN public.queue_quarantine.step IS 'the step that fails on it, as fn_step_STEP';
COMMENT ON COLUMN public.queue_quarantine.target IS
  'what the step fails on: an id, EVENT/SUBSCRIPTION of webhook_route, ID/created_at of event_route, the key of a '
  'counter, a partition, or the name of the step';
COMMENT ON COLUMN public.queue_quarantine.attempts IS 'how often it failed alone since it was added or retried';
COMMENT ON COLUMN public.queue_quarantine.code IS 'SQLSTATE of the last failure';
COMMENT ON COLUMN public.queue_quarantine.error IS 'error message of PostgreSQL, masked';
COMMENT ON COLUMN public.queue_quarantine.set_aside_at IS 'when its attempts were used up; NULL = it is tried again';
GRANT SELECT ON public.queue_quarantine TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

COMMENT ON TABLE public.queue_step_pending IS
  'Targets of batches that failed, until each has been tried alone or in a part that succeeded.';
COMMENT ON COLUMN public.queue_step_pending.chunk IS 'how many targets the next part has';
GRANT SELECT ON public.queue_step_pending TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_queue_step_transient(SQLSTATE) → whether the error may pass without help: serialization, deadlock, resources,
-- locks, rights and missing objects, interventions of the operator or the system, internal errors. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_transient(p_state text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN p_state ~ '^(40|42|53|55P03|57|58|XX)';
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_transient IS 'Whether an error may pass without help. Internal.';

-- fn_queue_step_late(SQLSTATE of a failure) → the cause of the failure: true = statement_timeout, so that no timeout
-- limits the statement any more; NULL = a person or the client cancelled the statement; false = any other cause.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_late(p_state text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_limit interval;
BEGIN
  IF p_state <> '57014' THEN
    RETURN false;
  END IF;
  v_limit := current_setting('statement_timeout')::interval;
  -- Only the message would say what cancelled the statement, but in the language of the server: so decide by how long
  -- the statement has run.
  RETURN NULLIF(v_limit > interval '0' AND clock_timestamp() - statement_timestamp() >= 0.95 * v_limit, false);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_late IS
  'Whether a failure was caused by statement_timeout; NULL for a cancel. Internal.';

-- fn_queue_step_sum(a, b) → the sums of the numbers of a and b by name, and the log entries of both. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_sum(p_a jsonb, p_b jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE(p_a, '{}') || COALESCE((SELECT jsonb_object_agg(e.key, CASE WHEN jsonb_typeof(e.value) = 'number'
      AND jsonb_typeof(p_a -> e.key) = 'number' THEN to_jsonb((e.value #>> '{}')::numeric + (p_a ->> e.key)::numeric)
    WHEN e.key = 'log' THEN COALESCE(p_a -> 'log', '[]') || e.value
    ELSE e.value END) FROM jsonb_each(p_b) e), '{}');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_sum IS 'Adds the numbers of two results. Internal.';

-- fn_queue_step_except(step) → the targets that a batch of the step excludes. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_except(p_step text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT q.target FROM public.queue_quarantine q WHERE q.step = p_step
    UNION SELECT t FROM public.queue_step_pending p, unnest(p.targets) t WHERE p.step = p_step);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_except IS 'The targets that a batch of a step excludes. Internal.';

-- fn_queue_step_unfinished(step) → {unfinished: true} if the step has pending targets, else {}. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_unfinished(p_step text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN CASE WHEN EXISTS (SELECT FROM public.queue_step_pending p WHERE p.step = p_step) THEN '{"unfinished": true}'
    ELSE '{}' END::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_unfinished IS 'Whether a step has pending targets, for a result. Internal.';

-- fn_queue_step_call(step, limit, only, except) → the numbers that fn_step_STEP returns. only: NULL = all due targets.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_call(p_step text, p_limit int, p_only text[], p_except text[])
  RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_out jsonb;
BEGIN
  IF p_step ~ '^sweep_' THEN
    v_out := public.fn_queue_sweep(p_step, p_limit, p_only, p_except);
  ELSE
    EXECUTE format('SELECT public.%I($1::int, $2::text[], $3::text[])', 'fn_step_' || p_step)
      INTO v_out USING p_limit, p_only, p_except;
  END IF;
  RETURN COALESCE(v_out, '{}');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_call IS 'Calls the function of a step. Internal.';

-- fn_queue_step_failed(step, target, SQLSTATE, error) → the numbers of fn_queue_step_bury, usually empty: records that
-- the target failed alone and the time of its next attempt, and sets the target aside after its last attempt. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_failed(p_step text, p_target text, p_state text, p_error text)
  RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  -- each attempt of a target that reaches statement_timeout uses the whole time of a run
  c_most CONSTANT int := CASE WHEN p_state <> '57014' AND public.fn_queue_step_transient(p_state) THEN 10 ELSE 3 END;
  v_now timestamptz := clock_timestamp();
  v_error text := left(public.fn_mask_said(left(p_error, 1000)), 1000);
  v_row public.queue_quarantine;
  v_out jsonb;
BEGIN
  v_row.step := p_step;
  v_row.target := p_target;
  v_row.code := p_state;
  v_row.error := v_error;
  v_out := public.fn_queue_step_bury(v_row);
  IF v_out IS NOT NULL THEN
    DELETE FROM public.queue_quarantine q WHERE q.step = p_step AND q.target = p_target;
    RETURN v_out;
  END IF;
  INSERT INTO public.queue_quarantine AS q (step, target, attempts, code, error, first_failed_at, last_failed_at,
    next_try_at)
  VALUES (p_step, left(p_target, 2000), 1, p_state, v_error, v_now, v_now, v_now + interval '2 seconds')
  ON CONFLICT (step, target) DO UPDATE SET attempts = q.attempts + 1, code = excluded.code, error = excluded.error,
    last_failed_at = v_now, next_try_at = v_now + least(interval '2 seconds' * power(2, least(q.attempts, 10)),
      interval '2 minutes'),
    set_aside_at = CASE WHEN q.set_aside_at IS NOT NULL THEN q.set_aside_at WHEN q.attempts + 1 >= c_most THEN v_now END
  RETURNING * INTO v_row;
  IF v_row.set_aside_at = v_now THEN
    PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'quarantine', 'event_domain',
      'system', 'worker_hint', 'console', 'count', 1, 'occurred_at', v_now));
  END IF;
  v_out := public.fn_queue_step_bury(v_row);
  IF v_out IS NOT NULL THEN
    DELETE FROM public.queue_quarantine q WHERE q.quarantine_id = v_row.quarantine_id;
  END IF;
  RETURN COALESCE(v_out, '{}');
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_failed IS 'Records that a target of a step failed alone. Internal.';

-- fn_queue_step_rest(step) → numbers: runs pending targets of the step in parts, then the quarantined targets that are
-- due. timed_out: true if statement_timeout ended it; unfinished: true if targets are left. It raises an error if at
-- least five targets failed with errors that may pass without help and no target succeeded: then the step itself fails,
-- not its rows. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_rest(p_step text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_until timestamptz := clock_timestamp() + interval '20 seconds';
  v_row record;
  v_left text[];
  v_chunk int;
  v_streak int;
  v_bad int := 0;
  v_good int := 0;
  v_late boolean := false;
  v_state text;
  v_error text;
  v_out jsonb := '{}'::jsonb;
BEGIN
  FOR v_row IN
    SELECT p.* FROM public.queue_step_pending p WHERE p.step = p_step ORDER BY p.pending_id LIMIT 10
    FOR UPDATE SKIP LOCKED
  LOOP
    v_left := v_row.targets;
    v_chunk := v_row.chunk;
    v_streak := 0;
    WHILE cardinality(v_left) > 0 AND v_bad < 1000 AND NOT v_late AND clock_timestamp() < v_until LOOP
      v_chunk := greatest(least(v_chunk, cardinality(v_left)), 1);
      BEGIN
        v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step_call(p_step, v_chunk, v_left[1:v_chunk],
          '{}'::text[]));
        v_late := v_out ? 'timed_out';
        v_left := v_left[v_chunk + 1:];
        v_good := v_good + v_chunk;
        v_streak := v_streak + 1;
        IF v_streak > 1 THEN -- several parts in a row succeeded: the failing targets come later
          v_chunk := least(2 * v_chunk, greatest(cardinality(v_left), 1));
        END IF;
        CONTINUE;
      EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
        v_late := public.fn_queue_step_late(SQLSTATE::text);
        IF v_late IS NULL THEN
          RAISE;
        END IF;
        v_state := SQLSTATE;
        v_error := SQLERRM;
      END;
      v_streak := 0;
      IF v_chunk > 1 THEN
        v_chunk := (v_chunk + 1) / 2;
        CONTINUE;
      END IF;
      v_bad := v_bad + 1;
      IF v_good = 0 AND v_bad >= 5 AND NOT v_late AND public.fn_queue_step_transient(v_state) THEN
        RAISE EXCEPTION USING ERRCODE = v_state, MESSAGE = v_error;
      END IF;
      v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step_failed(p_step, v_left[1], v_state, v_error));
      v_left := v_left[2:];
    END LOOP;
    IF cardinality(v_left) = 0 THEN
      DELETE FROM public.queue_step_pending p WHERE p.pending_id = v_row.pending_id;
    ELSE
      UPDATE public.queue_step_pending p SET targets = v_left, chunk = greatest(v_chunk, 1)
      WHERE p.pending_id = v_row.pending_id;
    END IF;
    EXIT WHEN v_late OR v_bad >= 1000 OR clock_timestamp() >= v_until;
  END LOOP;

  FOR v_row IN
    SELECT q.* FROM public.queue_quarantine q
    WHERE q.step = p_step AND q.set_aside_at IS NULL AND q.next_try_at <= clock_timestamp() AND NOT v_late
    ORDER BY q.next_try_at LIMIT 100 FOR UPDATE SKIP LOCKED
  LOOP
    EXIT WHEN clock_timestamp() >= v_until;
    v_state := NULL;
    BEGIN
      v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step_call(p_step, 1, ARRAY[v_row.target],
        '{}'::text[]));
      v_late := v_out ? 'timed_out';
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      v_state := SQLSTATE;
      v_error := SQLERRM;
    END;
    IF v_state IS NULL THEN
      DELETE FROM public.queue_quarantine q WHERE q.quarantine_id = v_row.quarantine_id;
    ELSE
      v_out := public.fn_queue_step_sum(v_out, public.fn_queue_step_failed(p_step, v_row.target, v_state, v_error));
    END IF;
    EXIT WHEN v_late;
  END LOOP;
  RETURN v_out || public.fn_queue_step_unfinished(p_step)
    || CASE WHEN v_late THEN '{"timed_out": true}' ELSE '{}' END::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_rest IS
  'Tries the failed targets of a step in parts, then alone. Internal.';

-- fn_queue_step_part(step, targets): marks targets as pending after their batch failed. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_part(p_step text, p_targets text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  INSERT INTO public.queue_step_pending (step, targets, chunk)
  SELECT p_step, p_targets, (cardinality(p_targets) + 1) / 2 WHERE cardinality(p_targets) > 0;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_part IS
  'Marks the targets of a failed batch as pending, to be tried in parts. Internal.';

-- fn_queue_step(step, limit) → the numbers of fn_step_STEP over up to limit targets, plus those of the pending and
-- quarantined targets that it ran. timed_out: true if statement_timeout ended it: the caller must end its run. The
-- targets of a failed batch are those that fn_step_STEP_targets(limit, except) returns. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step(p_step text, p_limit int) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_except text[] := public.fn_queue_step_except(p_step);
  v_late boolean;
  v_state text;
  v_error text;
  v_targets text[];
  v_out jsonb := '{}'::jsonb;
BEGIN
  BEGIN
    v_out := public.fn_queue_step_call(p_step, p_limit, NULL::text[], v_except);
  EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
    v_late := public.fn_queue_step_late(SQLSTATE::text);
    IF v_late IS NULL THEN
      RAISE;
    END IF;
    v_state := SQLSTATE;
    v_error := SQLERRM;
  END;
  IF v_state IS NULL THEN
    RETURN CASE WHEN v_except = '{}' OR v_out ? 'timed_out' THEN v_out
      ELSE public.fn_queue_step_sum(v_out, public.fn_queue_step_rest(p_step)) END;
  END IF;
  IF p_step ~ '^sweep_' THEN
    v_targets := public.fn_queue_sweep_targets(p_step, p_limit, v_except);
  ELSE
    EXECUTE format('SELECT public.%I($1::int, $2::text[])', 'fn_step_' || p_step || '_targets')
      INTO v_targets USING p_limit, v_except;
  END IF;
  IF COALESCE(v_targets, '{}') = '{}' THEN -- the error cannot come from a row
    RAISE EXCEPTION USING ERRCODE = v_state, MESSAGE = v_error;
  END IF;
  PERFORM public.fn_queue_step_part(p_step, v_targets);
  RETURN CASE WHEN v_late THEN '{"timed_out": true}' ELSE public.fn_queue_step_rest(p_step) END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step IS
  'Runs a step, a part of a tick worker that processes rows in batches; a row that fails stops no other row. Internal.';

-- fn_queue_step_bury(row of quarantine) → {dead_lettered} or {failed}: makes the dead letter of a row that is set
-- aside, if its kind has dead letters. For these kinds an error that cannot pass without help is not retried. NULL if
-- such a dead letter exists already, if the kind has no dead letters, or if making it fails: the row stays in
-- quarantine. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_step_bury(p_row public.queue_quarantine) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF p_row.step NOT IN ('event_route', 'notify', 'bulk_item', 'bulk')
    OR p_row.set_aside_at IS NULL AND (p_row.code = '57014' OR public.fn_queue_step_transient(p_row.code)) THEN
    RETURN NULL;
  END IF;
  RETURN CASE p_row.step WHEN 'event_route' THEN public.fn_iu_route_bury(p_row)
    WHEN 'notify' THEN public.fn_iu_notification_bury(p_row) ELSE public.fn_queue_bulk_bury(p_row) END;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_step_bury IS
  'Makes a dead letter of a row that is set aside, where its kind has one. Internal.';

-- fn_queue_quarantine_retry(ids, actor, reason, dry_run) → {action, dry_run, retried, skipped, results: [{id, outcome,
-- why, step, target}], audit_id}: the next run of the tick worker processes these quarantined rows again, and counts
-- their attempts from 0. A row that still fails is set aside again.
CREATE OR REPLACE FUNCTION public.fn_queue_quarantine_retry(p_ids bigint[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids bigint[] := ARRAY(SELECT DISTINCT i FROM unnest(p_ids) i WHERE i IS NOT NULL ORDER BY i);
  v_results jsonb;
  v_count bigint;
  v_audit bigint;
BEGIN
  IF cardinality(v_ids) NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'p_ids must hold 1 to 10000 ids' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.queue_quarantine q WHERE q.quarantine_id = ANY (v_ids) ORDER BY q.quarantine_id FOR UPDATE;
  END IF;
  SELECT jsonb_agg(jsonb_build_object('id', i::text, 'outcome', CASE WHEN q.quarantine_id IS NULL THEN 'skipped'
      WHEN v_dry THEN 'would_retry' ELSE 'retried' END, 'why', CASE WHEN q.quarantine_id IS NULL
      THEN 'no row in quarantine has this id: its retry succeeded, or there never was one' END,
      'step', q.step, 'target', q.target) ORDER BY i),
    count(q.quarantine_id)
  INTO v_results, v_count FROM unnest(v_ids) i LEFT JOIN public.queue_quarantine q ON q.quarantine_id = i;
  IF NOT v_dry THEN
    v_audit := public.fn_operator_audit(
      p_action => 'quarantine_retry'::text, p_target => 'quarantine ' || array_to_string(v_ids[1:20], ',')
        || CASE WHEN cardinality(v_ids) > 20 THEN format(' and %s more', cardinality(v_ids) - 20) ELSE '' END,
      p_actor => v_actor, p_reason => v_reason, p_filter => NULL::text, p_frozen_count => v_count,
      p_before => (SELECT jsonb_agg(to_jsonb(q)) FROM (SELECT q.* FROM public.queue_quarantine q
        WHERE q.quarantine_id = ANY (v_ids) ORDER BY q.quarantine_id LIMIT 100) q),
      p_after => NULL::jsonb, p_outcome => CASE WHEN v_count = 0 THEN 'refused' ELSE 'done' END);
    UPDATE public.queue_quarantine q SET attempts = 0, set_aside_at = NULL, next_try_at = clock_timestamp()
    WHERE q.quarantine_id = ANY (v_ids);
  END IF;
  RETURN jsonb_build_object('action', 'quarantine_retry', 'dry_run', v_dry, 'retried', v_count, 'skipped',
    cardinality(v_ids) - v_count, 'results', v_results, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_quarantine_retry TO :"dead_letter_operator", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_quarantine_retry IS
  'Retries quarantined rows that were set aside.';
