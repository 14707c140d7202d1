-- Tick workers: the function and the interval of each; a tick worker never runs twice at once. Source: DP1 §4.1, §5,
-- §8, §10.

COMMENT ON TABLE public.queue_tick_worker IS
  'The known tick workers (DP1 §4.2). last_run_at: the last run that succeeded; last_attempt_at: the last run.';
COMMENT ON COLUMN public.queue_tick_worker.function IS 'called without arguments';
COMMENT ON COLUMN public.queue_tick_worker.flag_key IS 'NULL = only the interval switches it on and off';
COMMENT ON COLUMN public.queue_tick_worker.cron_job IS 'true = has a pg_cron job';
COMMENT ON COLUMN public.queue_tick_worker.last_run_at IS 'when the last full run that succeeded began';
COMMENT ON COLUMN public.queue_tick_worker.last_attempt_at IS
  'when the last full run began, or a later run that failed';
COMMENT ON COLUMN public.queue_tick_worker.last_work_at IS
  'last run that found something to do; a quick run counts from the next full run on, to the second';
COMMENT ON COLUMN public.queue_tick_worker.done_total IS
  'items up to the last full run; those of quick runs since are in the counter tick_done';
GRANT SELECT ON public.queue_tick_worker TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

COMMENT ON TABLE public.dot_iu_runtime_lease IS
  'One row per tick worker, and per other activity of which only one may run at a time. A lease is the lock of its '
  'row: no role without UPDATE can take it, and no failure leaves it held. The columns show who ran last; for '
  'job_watermark they also say until when a sweep that was announced may take, for clock the newest time that lay '
  'ahead (acquired_at) and until when more such times are looked for (expires_at).';
COMMENT ON COLUMN public.dot_iu_runtime_lease.lease_holder IS 'who ran last; the lease itself is the lock of this row';
GRANT SELECT (lease_name, lease_holder, acquired_at, expires_at) ON public.dot_iu_runtime_lease
  TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_lease_wait(lease) waits for a lease and holds it to the end of the transaction. A lease is a lock on a row
-- that only functions of qtop can lock. An advisory lock would not do, because any login could hold it. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_lease_wait(p_lease_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM 1 FROM public.dot_iu_runtime_lease WHERE lease_name = p_lease_name FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check(p_lease_name);
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_lease_wait IS
  'Waits for a lease and holds it to the end of the transaction. Internal.';

-- fn_queue_row_missing(row) → one line: a row that seeds.sql inserts is missing, and what to do. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_row_missing(p_row text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN format('the row %s is missing, as after a restore of some tables or a DELETE: run qtop migrate up, which puts '
    'it back', p_row);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_row_missing IS
  'What is said of a row that qtop needs and that is missing. Internal.';

-- fn_queue_lease_check(lease) raises an exception if the lease has no row. A caller that could not lock the row calls
-- it: SKIP LOCKED finds nothing both while another session holds the lease and when there is no row, which no waiting
-- would end. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_lease_check(p_lease_name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF NOT EXISTS (SELECT FROM public.dot_iu_runtime_lease WHERE lease_name = p_lease_name) THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = public.fn_queue_row_missing('dot_iu_runtime_lease ' || p_lease_name);
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_lease_check IS
  'Raises an exception if a lease has no row, so that nobody takes it for a lease that is held. Internal.';

-- fn_queue_tick_worker_add(name, function, flag, cron job, domains): creates the registry row of a tick worker, its
-- lease and its heartbeat row; existing rows keep their state. Only seeds.sql calls it.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_worker_add(
  p_worker_name text, p_function text, p_flag_key text, p_cron_job boolean, p_domain_scope text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_interval int := greatest(public.fn_cfg_int('queue.tick.' || p_worker_name || '.interval_seconds', 60), 1);
BEGIN
  -- ON CONFLICT would wait for the lock of an existing row, which a running tick may hold.
  INSERT INTO public.queue_tick_worker (worker_name, function, flag_key, cron_job)
  SELECT p_worker_name, p_function, p_flag_key, p_cron_job
  WHERE NOT EXISTS (SELECT FROM public.queue_tick_worker WHERE worker_name = p_worker_name);
  UPDATE public.queue_tick_worker SET function = p_function, flag_key = p_flag_key, cron_job = p_cron_job
  WHERE worker_name = p_worker_name
    AND (function, flag_key, cron_job) IS DISTINCT FROM (p_function, p_flag_key, p_cron_job);
  INSERT INTO public.dot_iu_runtime_lease (lease_name)
  SELECT p_worker_name WHERE NOT EXISTS (SELECT FROM public.dot_iu_runtime_lease WHERE lease_name = p_worker_name);
  INSERT INTO public.queue_heartbeat (executor_id, executor_kind, domain_scope, last_beat_at,
    expected_cadence_seconds, stale_threshold_seconds, registered_by, tick_worker, last_beat_payload)
  SELECT p_worker_name, 'PG_worker', p_domain_scope, now(), v_interval,
    public.fn_queue_tick_threshold(v_interval, public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300)),
    -- before any host has been registered, a worker that never ran is not silent
    'migration', true, CASE WHEN EXISTS (SELECT FROM public.queue_host)
      OR EXISTS (SELECT FROM public.queue_tick_worker w WHERE w.last_run_at IS NOT NULL) THEN '{}'
      ELSE '{"state": "stopped"}' END::jsonb
  WHERE NOT EXISTS (SELECT FROM public.queue_heartbeat WHERE executor_id = p_worker_name);
  UPDATE public.queue_heartbeat SET tick_worker = true WHERE executor_id = p_worker_name AND NOT tick_worker;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_worker_add IS
  'Adds a tick worker with its lease and heartbeat rows. For seeds.';

-- fn_queue_tick_clone(worker) → NULL = the worker may run; in a copy of a database, one line that names the original
-- and the command to run. Workers that only do housekeeping run in a copy too; all others hand out work, reclaim it or
-- send. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_clone(p_worker_name text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN CASE WHEN p_worker_name NOT IN ('config_expiry', 'counter_compactor', 'metrics_sampler', 'retention_sweep',
    'staging_cleanup_sweep') THEN public.fn_queue_clone_of() END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_clone IS
  'Why a tick worker does not run in a copy of a database; null where it runs. Internal.';

-- fn_queue_tick_due(worker, source) → '' if the worker may run now, else why it is skipped: clone (the database is a
-- copy that is not adopted); off (a flag is off or the interval is 0); mode (queue.scheduler.mode excludes the source);
-- not_due (the interval is not over). The interval counts from start to start, so that after a long run the next tick
-- of a fixed schedule is not too early. A last run in the future (the clock was set back) delays nothing. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_due(p_worker_name text, p_source text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_worker public.queue_tick_worker;
  v_interval int;
  v_mode text;
  v_last timestamptz;
BEGIN
  SELECT * INTO v_worker FROM public.queue_tick_worker WHERE worker_name = p_worker_name;
  v_interval := public.fn_cfg_int('queue.tick.' || p_worker_name || '.interval_seconds', 0);
  IF public.fn_queue_tick_clone(p_worker_name) IS NOT NULL THEN
    RETURN 'clone';
  END IF;
  IF v_interval = 0 OR (v_worker.flag_key IS NOT NULL AND NOT public.fn_cfg_bool(v_worker.flag_key)) THEN
    RETURN 'off';
  END IF;
  SELECT value INTO v_mode FROM public.dot_config WHERE key = 'queue.scheduler.mode';
  IF (p_source = 'pg_cron' AND COALESCE(v_mode, '') NOT IN ('pg_cron', 'hybrid'))
    OR (p_source = 'external' AND v_mode = 'pg_cron' AND v_worker.cron_job) THEN
    RETURN 'mode';
  END IF;
  v_last := greatest(v_worker.last_run_at, v_worker.last_attempt_at);
  PERFORM public.fn_queue_clock_check(v_last);
  IF p_source IN ('external', 'pg_cron') AND clock_timestamp() >= v_last
    AND v_last > clock_timestamp() - make_interval(secs => 0.9 * v_interval) THEN
    RETURN 'not_due';
  END IF;
  RETURN '';
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_due IS
  'Whether a tick worker may run now, else why not. Internal.';

-- fn_queue_tick_off(row of the worker) → the result of fn_queue_tick_run if the worker is switched off. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_off(p_worker public.queue_tick_worker) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_key text := 'queue.tick.' || p_worker.worker_name || '.interval_seconds';
BEGIN
  RETURN jsonb_build_object('worker', p_worker.worker_name, 'ran', false, 'skipped', 'off', 'reason',
    CASE WHEN public.fn_cfg_int(v_key, 0) = 0 THEN v_key || ' is 0' ELSE p_worker.flag_key || ' is off' END);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_off IS
  'The result of a run of a tick worker that is switched off. Internal.';

-- fn_queue_tick_run(worker, source) → the result of fn_queue_tick_request. A wake signal within a second of the last
-- full run makes a quick run; but a full run if the last full run failed or found more work than it may do at once. A
-- quick run does not update the worker's row, its lease and its heartbeat, so that a busy worker writes each of them
-- once a second: while an old snapshot keeps their versions, every reader passes all of them. If the worker's function
-- has an argument p_quick, it may read only rows that are newer than the last full run. A quick run counts its items in
-- the counter tick_done, and the next full run moves them to the worker's row. After a quick run the caller calls again
-- a second later, for a full run; after a failed quick run it calls at once. A quick run begins with a look
-- (tick_looks.sql): if there is nothing to do, it locks and writes nothing. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_run(p_worker_name text, p_source text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_worker public.queue_tick_worker;
  v_skip text;
  v_result jsonb;
  v_function oid;
  v_work numeric;
  v_quick_work bigint; -- items of the quick runs since the last full run
  v_most numeric; -- the greatest of the numbers in the result that count items
  v_quick boolean;
  v_started timestamptz := clock_timestamp();
  v_interval int;
  v_error text;
BEGIN
  IF p_source IS NULL OR p_source NOT IN ('external', 'pg_cron', 'wake', 'operator') THEN
    RAISE EXCEPTION 'p_source must be external, pg_cron, wake or operator' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_worker FROM public.queue_tick_worker WHERE worker_name = p_worker_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no tick worker %', quote_literal(COALESCE(left(p_worker_name, 100), ''))
      USING ERRCODE = '22023',
      HINT = COALESCE('known: ' || (SELECT string_agg(worker_name, ', ' ORDER BY worker_name)
        FROM public.queue_tick_worker), 'none is known') || '; qtop migrate up puts back one of qtop that is missing';
  END IF;

  v_skip := public.fn_queue_tick_due(p_worker_name, p_source);
  IF v_skip IN ('clone', 'mode', 'not_due') THEN
    RETURN jsonb_build_object('worker', p_worker_name, 'ran', false, 'skipped', v_skip, 'reason',
      CASE v_skip WHEN 'clone' THEN public.fn_queue_clone_of()
        WHEN 'mode' THEN 'the flag queue.scheduler.mode does not let ' || p_source || ' run it'
        ELSE 'the interval since its last run has not passed' END);
  END IF;
  IF v_skip = 'off' AND EXISTS (SELECT FROM public.queue_heartbeat WHERE executor_id = p_worker_name
      AND last_beat_payload ->> 'state' = 'stopped'
      AND last_beat_at > clock_timestamp() - interval '20 seconds') THEN
    RETURN public.fn_queue_tick_off(v_worker);
  ELSIF v_skip = '' AND public.fn_queue_tick_quick(v_worker, p_source, v_started) THEN
    BEGIN
      v_result := public.fn_queue_tick_look(p_worker_name);
    EXCEPTION WHEN OTHERS THEN
      NULL; -- the run below meets the same error and records it
    END;
    IF v_result IS NOT NULL THEN
      RETURN jsonb_build_object('worker', p_worker_name, 'ran', true, 'quick', true, 'result', v_result,
        'took_ms', round(extract(epoch FROM clock_timestamp() - v_started)::numeric * 1000, 1));
    END IF;
  END IF;
  PERFORM 1 FROM public.dot_iu_runtime_lease WHERE lease_name = p_worker_name FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check(p_worker_name);
    RETURN jsonb_build_object('worker', p_worker_name, 'ran', false, 'skipped', 'lease_held', 'reason',
      'another run is under way' || COALESCE((SELECT ': ' || NULLIF(public.fn_queue_lock_holder(l.xmax), '')
        FROM public.dot_iu_runtime_lease l WHERE l.lease_name = p_worker_name), ''));
  END IF;
  v_skip := public.fn_queue_tick_due(p_worker_name, p_source);
  IF v_skip IN ('clone', 'mode', 'not_due') THEN
    RETURN jsonb_build_object('worker', p_worker_name, 'ran', false, 'skipped', v_skip, 'reason',
      CASE v_skip WHEN 'clone' THEN public.fn_queue_clone_of() WHEN 'mode' THEN 'queue.scheduler.mode has just changed'
        ELSE 'another session ran it a moment ago' END);
  END IF;

  SELECT * INTO v_worker FROM public.queue_tick_worker WHERE worker_name = p_worker_name;
  v_quick := public.fn_queue_tick_quick(v_worker, p_source, v_started);
  v_interval := public.fn_cfg_int('queue.tick.' || p_worker_name || '.interval_seconds', 0);
  IF v_skip = 'off' THEN
    -- a worker that is switched off has ended cleanly: it is shown as stopped, not as silent
    PERFORM public.fn_queue_heartbeat_touch(p_worker_name,
      jsonb_build_object('state', 'stopped', 'done_total', v_worker.done_total), NULL::text);
    RETURN public.fn_queue_tick_off(v_worker);
  END IF;

  BEGIN
    -- The call casts each argument to the type that the function declares, so that no overload that another login
    -- created under the same name is a better match.
    SELECT p.oid INTO v_function FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
    WHERE p.pronamespace = 'public'::regnamespace AND p.proname = v_worker.function
      AND (r.rolname = current_user OR r.rolsuper) AND p.pronargs = p.pronargdefaults
    ORDER BY r.rolname = current_user DESC, p.pronargs LIMIT 1;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'function public.%() does not exist', v_worker.function
        USING ERRCODE = '42883', HINT = 'qtop migrate up restores it';
    END IF;
    EXECUTE (SELECT format('SELECT public.%I(%s)', p.proname, (SELECT string_agg(format('%s::%s',
        CASE WHEN v_quick AND p.proargnames[n] = 'p_quick' THEN 'true' ELSE pg_get_function_arg_default(p.oid, n) END,
        format_type(p.proargtypes[n - 1], NULL)), ', ' ORDER BY n)
      FROM generate_series(1, p.pronargs::int) n)) FROM pg_proc p WHERE p.oid = v_function) INTO v_result;
    v_result := COALESCE(v_result, '{}');
    IF jsonb_typeof(v_result) <> 'object' THEN
      RAISE EXCEPTION 'function public.%() returned a JSON %, not an object', v_worker.function, jsonb_typeof(v_result)
        USING HINT = 'qtop migrate up restores it';
    END IF;
    -- the function could not do its work and returned the error as its result
    v_error := CASE WHEN v_result ->> 'status' = 'error' THEN left(v_result ->> 'error', 500) END;
  EXCEPTION WHEN OTHERS THEN
    v_error := SQLSTATE || ' ' || public.fn_mask_said(left(SQLERRM, 500));
  END;
  IF v_error IS NOT NULL THEN
    UPDATE public.queue_tick_worker SET last_attempt_at = v_started,
      last_result = jsonb_build_object('error', v_error, 'at', clock_timestamp(), 'source', p_source)
    WHERE worker_name = p_worker_name;
    RETURN jsonb_build_object('worker', p_worker_name, 'ran', false, 'failed', true, 'error', v_error)
      || CASE WHEN v_quick THEN '{"quick": true}'::jsonb ELSE '{}'::jsonb END;
  END IF;

  SELECT COALESCE((v_result ->> 'rows_marked')::numeric, sum(value::numeric), 0), max(value::numeric)
  INTO v_work, v_most FROM jsonb_each_text(
    (SELECT COALESCE(jsonb_object_agg(e.key, e.value), '{}') FROM jsonb_each(v_result) e
     WHERE jsonb_typeof(e.value) = 'number' AND e.key NOT IN ('held', 'waiting', 'in_flight', 'checked', 'total')));
  IF v_quick THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    SELECT 'tick_done', p_worker_name, '', '', v_work WHERE v_work <> 0;
    RETURN jsonb_build_object('worker', p_worker_name, 'ran', true, 'quick', true, 'result', v_result,
      'took_ms', round(extract(epoch FROM clock_timestamp() - v_started)::numeric * 1000, 1));
  END IF;
  v_quick_work := COALESCE((SELECT sum(q.n) FROM public.v_queue_counter_part q
    WHERE q.scope = 'tick_done' AND q.k1 = p_worker_name), 0);
  INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
  SELECT 'tick_done', p_worker_name, '', '', -v_quick_work WHERE v_quick_work <> 0;
  UPDATE public.queue_tick_worker SET last_run_at = v_started, last_attempt_at = v_started,
    last_work_at = CASE WHEN v_work > 0 THEN clock_timestamp()
      -- quick runs come within a second of a full run
      WHEN v_quick_work > 0 THEN greatest(last_work_at, last_run_at) ELSE last_work_at END,
    done_total = done_total + v_work::bigint + v_quick_work,
    -- the key error means that the run failed; this run reports the error of rows that it has set aside
    last_result = v_result - '{log,error}'::text[] || jsonb_build_object('source', p_source)
      || CASE WHEN v_result ? 'error' THEN jsonb_build_object('row_error', v_result -> 'error') ELSE '{}' END
      || CASE WHEN v_most >= 1000 THEN '{"more": true}'::jsonb ELSE '{}' END
  WHERE worker_name = p_worker_name RETURNING * INTO v_worker;
  UPDATE public.dot_iu_runtime_lease SET lease_holder = session_user || ' pid ' || pg_backend_pid(),
    token = gen_random_uuid(), acquired_at = v_started, expires_at = clock_timestamp() WHERE lease_name = p_worker_name;
  PERFORM public.fn_queue_heartbeat_touch(p_worker_name, jsonb_build_object(
    'state', CASE WHEN v_work > 0 OR v_quick_work > 0 THEN 'working' ELSE 'idle' END,
    'done_total', v_worker.done_total, 'last_work_at', v_worker.last_work_at,
    'in_flight', COALESCE((v_result ->> 'in_flight')::bigint, 0)), NULL::text);
  PERFORM public.fn_queue_watch_write(p_worker_name, v_interval);
  RETURN jsonb_build_object('worker', p_worker_name, 'ran', true, 'result', v_result,
    'took_ms', round(extract(epoch FROM clock_timestamp() - v_started)::numeric * 1000, 1));
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_run IS
  'One run of a tick worker, if it may run now. Internal.';

-- fn_queue_tick_request(worker, source) → one of three results, with quick: true after a quick run:
--   {worker, ran: true, result, took_ms}
--   {worker, ran: false, skipped: clone|off|mode|not_due|lease_held, reason}: see fn_queue_tick_due; lease_held =
--     another session runs the worker
--   {worker, ran: false, failed: true, error}
-- source: external, pg_cron, wake or operator; a request of an operator is audited. A failure of the worker is recorded
-- and updates no heartbeat, so that the failing worker becomes silent; a cancelled run leaves no trace.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_request(p_worker_name text, p_source text DEFAULT 'external')
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF p_source = 'operator' THEN
    RETURN public.fn_queue_tick_now(p_worker_name, session_user::text, NULL::text);
  END IF;
  RETURN public.fn_queue_tick_run(p_worker_name, p_source);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_tick_request TO :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_tick_request IS
  'The only way to run a tick worker (DP1 §8). Checks flag, mode and interval, then takes the lease: ten hosts and '
  'pg_cron make one run per interval.';

-- fn_queue_tick_now(worker, actor, reason) → the result of fn_queue_tick_request, and audit_id: a run at the request of
-- an operator, whatever the interval and the mode are.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_now(p_worker_name text, p_actor text, p_reason text DEFAULT NULL)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_last timestamptz;
  v_answer jsonb;
BEGIN
  SELECT last_run_at INTO v_last FROM public.queue_tick_worker WHERE worker_name = p_worker_name;
  v_answer := public.fn_queue_tick_run(p_worker_name, 'operator') #- '{result,log}';
  RETURN v_answer || jsonb_build_object('audit_id', public.fn_operator_audit(
    p_action => 'tick', p_target => p_worker_name, p_actor => v_actor,
    p_reason => public.fn_trimmed(left(p_reason, 2000)), p_before => jsonb_build_object('last_run_at', v_last),
    p_after => v_answer - 'worker',
    p_outcome => CASE WHEN (v_answer ->> 'ran')::boolean THEN 'done' WHEN v_answer ? 'skipped' THEN 'skipped: '
      || (v_answer ->> 'skipped') ELSE 'failed' END, p_filter => NULL::text, p_frozen_count => NULL::bigint));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_tick_now TO :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_tick_now IS
  'Runs a tick worker for an operator, audited; skipped, with the reason, while it is off or running.';

-- fn_queue_watch_write(worker, interval): writes the current cadence and threshold into the heartbeat row, for programs
-- that read only this row (DP4 §3.3). A locked row is skipped: qtop decides nothing by these values, and the next run
-- writes them. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_watch_write(p_worker_name text, p_interval int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_threshold int := public.fn_queue_tick_threshold(p_interval,
    public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300));
BEGIN
  UPDATE public.queue_heartbeat SET expected_cadence_seconds = p_interval, stale_threshold_seconds = v_threshold
  WHERE executor_id = (SELECT h.executor_id FROM public.queue_heartbeat h WHERE h.executor_id = p_worker_name
    AND (h.expected_cadence_seconds, h.stale_threshold_seconds) IS DISTINCT FROM (p_interval, v_threshold)
    FOR UPDATE SKIP LOCKED);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_watch_write IS
  'Writes the cadence and the threshold in force into the heartbeat row of a tick worker. Internal.';

-- fn_queue_tick_switched_on(): when a flag changes, updates the heartbeat rows of its workers in its transaction. A
-- worker that is switched off becomes stopped. A worker that is switched on is watched from then on, even if no host is
-- left to run it. A shorter interval makes no worker silent at once: the shorter threshold counts from the change.
-- Locked rows are skipped: their worker is writing its heartbeat now, and writes these values itself.
CREATE OR REPLACE FUNCTION public.fn_queue_tick_switched_on() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_key text := COALESCE(NEW.key, OLD.key);
  v_flag int := least(public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300), 999999);
  v_now timestamptz := clock_timestamp();
  v_row record;
BEGIN
  IF OLD.key = NEW.key AND OLD.value = NEW.value THEN
    RETURN NULL;
  END IF;
  FOR v_row IN
    SELECT t.worker_name, t.interval_was, t.interval_is, t.interval_was > 0 AND t.flag_was AS was_on,
      t.interval_is > 0 AND t.flag_is AS is_on
    FROM (
      SELECT w.worker_name, n.interval_is,
        CASE WHEN v_key <> n.key THEN n.interval_is WHEN OLD.value ~ '^[0-9]{1,9}$'
          THEN least(greatest(OLD.value::int, r.lowest), r.highest) ELSE 0 END AS interval_was,
        w.flag_key IS NULL OR public.fn_cfg_bool(w.flag_key) AS flag_is,
        w.flag_key IS NULL OR CASE WHEN v_key = w.flag_key THEN COALESCE(OLD.value = 'true', false)
          ELSE public.fn_cfg_bool(w.flag_key) END AS flag_was
      FROM public.queue_tick_worker w
      CROSS JOIN LATERAL (SELECT x.key, public.fn_cfg_int(x.key, 0) AS interval_is
        FROM (VALUES ('queue.tick.' || w.worker_name || '.interval_seconds')) x (key)) n
      LEFT JOIN public.dot_config_rule r ON r.key = n.key
      WHERE v_key IN (n.key, w.flag_key, 'queue.heartbeat.stale_threshold_seconds')) t
    ORDER BY t.worker_name
  LOOP
    UPDATE public.queue_heartbeat h SET
      last_beat_at = CASE WHEN v_row.is_on AND NOT v_row.was_on THEN v_now ELSE h.last_beat_at END,
      last_beat_payload = h.last_beat_payload || CASE WHEN v_row.is_on = v_row.was_on THEN '{}'
        WHEN v_row.is_on THEN '{"state": "idle"}' ELSE '{"state": "stopped"}' END::jsonb,
      counted_from = CASE WHEN v_row.is_on AND v_row.was_on AND v_row.interval_is <> v_row.interval_was
        -- the worker is silent at the time by the old threshold, or one new threshold after the change, whichever is
        -- earlier
        THEN least(v_now, greatest(h.last_beat_at, h.counted_from) + make_interval(secs =>
          public.fn_queue_tick_threshold(v_row.interval_was, v_flag)
          - public.fn_queue_tick_threshold(v_row.interval_is, v_flag))) ELSE h.counted_from END
    WHERE h.executor_id = (SELECT b.executor_id FROM public.queue_heartbeat b WHERE b.executor_id = v_row.worker_name
      AND b.tick_worker AND (v_row.is_on, v_row.interval_is) IS DISTINCT FROM (v_row.was_on, v_row.interval_was)
      FOR UPDATE SKIP LOCKED);
    IF v_row.interval_is > 0 THEN
      PERFORM public.fn_queue_watch_write(v_row.worker_name, v_row.interval_is);
    END IF;
  END LOOP;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_tick_switched_on IS
  'Trigger function: updates the heartbeat rows of tick workers when a flag changes.';

CREATE OR REPLACE TRIGGER trg_dot_config_switched_on AFTER INSERT OR UPDATE OR DELETE ON public.dot_config
  FOR EACH ROW EXECUTE FUNCTION public.fn_queue_tick_switched_on();

-- fn_queue_scheduler_rows(rows of v_queue_watch) → the rows of v_queue_scheduler_status. The caller passes the watch
-- rows, because the snapshot reads them once for all of its sections. SECURITY DEFINER: roles that may read the view
-- need no right to read the tables.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_rows(p_watch public.v_queue_watch[])
  RETURNS TABLE (worker_name text, configured_interval_seconds int, last_run_at timestamptz, age_seconds bigint,
  stale boolean, mode text, state text, next_due_at timestamptz, last_source text, last_result jsonb,
  last_attempt_at timestamptz, last_work_at timestamptz, done_total bigint, flag_key text, cron_job text,
  cron_schedule text, cron_run_as text, stale_threshold_seconds int, why text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off SET plan_cache_mode = force_generic_plan AS $fn$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH s AS MATERIALIZED (
    SELECT w.worker_name, c.n AS configured_interval_seconds, w.last_run_at,
           floor(public.fn_age(w.last_run_at))::bigint AS age_seconds, c.stale, m.mode, c.state,
           CASE WHEN c.state <> 'off' THEN least(greatest(w.last_run_at, w.last_attempt_at), '9999-12-31Z')
             + make_interval(secs => c.n) END AS next_due_at,
           w.last_result ->> 'source' AS last_source, w.last_result, w.last_attempt_at,
           CASE WHEN q.n > 0 THEN greatest(w.last_work_at, w.last_run_at) ELSE w.last_work_at END AS last_work_at,
           (w.done_total + COALESCE(q.n, 0))::bigint AS done_total, w.flag_key,
           j.job_name AS cron_job, j.schedule AS cron_schedule, j.run_as AS cron_run_as,
           v.threshold_seconds AS stale_threshold_seconds,
           NOT (c.state = 'off' OR c.state = 'ok' AND c.ticked) AS idle
    FROM public.queue_tick_worker w
    LEFT JOIN public.queue_cron_job j ON j.worker_name = w.worker_name
    LEFT JOIN public.v_dot_config_number i ON i.key = 'queue.tick.' || w.worker_name || '.interval_seconds'
    LEFT JOIN unnest(p_watch) v ON v.executor_id = w.worker_name
    LEFT JOIN (SELECT d.k1, sum(d.n) AS n FROM public.v_queue_counter_part d
      WHERE d.scope = 'tick_done' GROUP BY d.k1) q
      ON q.k1 = w.worker_name
    -- computed once, not per row
    CROSS JOIN (SELECT (SELECT d.value FROM public.dot_config d WHERE d.key = 'queue.scheduler.mode') AS mode,
      EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron') AS cron,
      ARRAY(SELECT unnest(q.loops) FROM public.queue_host q WHERE q.stopped_at IS NULL
        AND q.last_seen_at > now() - interval '15 seconds'
          AND q.last_seen_at <= clock_timestamp() + interval '5 seconds') AS loops OFFSET 0) m
    CROSS JOIN LATERAL (SELECT COALESCE(i.n, 0) AS n, v.state = 'silent' AS stale,
      CASE WHEN v.off IS NOT FALSE THEN 'off' WHEN w.last_result ? 'error' THEN 'failed'
        WHEN v.state = 'silent' THEN 'stale'
        WHEN v.state IN ('stopped', 'unwatched') THEN v.state ELSE 'ok' END AS state,
      (w.worker_name = ANY (m.loops) AND NOT (w.cron_job AND m.mode = 'pg_cron'))
        OR (w.cron_job AND m.mode IN ('pg_cron', 'hybrid')
          AND (m.cron AND j.run_as IS NOT NULL OR w.last_result ->> 'source' = 'pg_cron')) AS ticked) c)
  SELECT s.worker_name, s.configured_interval_seconds, s.last_run_at, s.age_seconds, s.stale, s.mode, s.state,
    s.next_due_at, s.last_source, s.last_result, s.last_attempt_at, s.last_work_at, s.done_total, s.flag_key,
    s.cron_job, s.cron_schedule, s.cron_run_as, s.stale_threshold_seconds, COALESCE(y.why, '') AS why
  FROM s LEFT JOIN public.fn_queue_tick_whys(ARRAY(SELECT i.worker_name FROM s i WHERE i.idle)) y USING (worker_name);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_rows TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_queue_scheduler_rows IS
  'The rows of v_queue_scheduler_status, computed from rows that the caller has read. Read v_queue_scheduler_status.';

CREATE OR REPLACE VIEW public.v_queue_scheduler_status AS
SELECT * FROM public.fn_queue_scheduler_rows(ARRAY(SELECT w FROM public.v_queue_watch w));
COMMENT ON VIEW public.v_queue_scheduler_status IS
  'Cadence and last run per tick worker (DP1 §10). stale: silent by v_queue_watch. state: off (interval 0 or its '
  'flag), failed, stale, stopped (its last host ended cleanly), unwatched (late while monitoring is off), ok.';
GRANT SELECT ON public.v_queue_scheduler_status TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON COLUMN public.v_queue_scheduler_status.configured_interval_seconds IS '0 = switched off';
COMMENT ON COLUMN public.v_queue_scheduler_status.age_seconds IS 'seconds since last_run_at; NULL = never ran';
COMMENT ON COLUMN public.v_queue_scheduler_status.stale IS
  'silent: its last success is longer ago than stale_threshold_seconds, by the flags in force';
COMMENT ON COLUMN public.v_queue_scheduler_status.mode IS 'queue.scheduler.mode: external, pg_cron or hybrid';
COMMENT ON COLUMN public.v_queue_scheduler_status.last_attempt_at IS 'when the last attempt began, failed or not';
COMMENT ON COLUMN public.v_queue_scheduler_status.state IS
  'off (the interval is 0 or flag_key is off), failed (the last attempt), stale, stopped, unwatched or ok';
COMMENT ON COLUMN public.v_queue_scheduler_status.next_due_at IS
  'the start of the last attempt plus the interval; NULL = off or never ran';
COMMENT ON COLUMN public.v_queue_scheduler_status.last_source IS
  'source of the last attempt: external, pg_cron, wake or operator';
COMMENT ON COLUMN public.v_queue_scheduler_status.cron_run_as IS
  'the login that owns its pg_cron job; NULL = not installed';
COMMENT ON COLUMN public.v_queue_scheduler_status.stale_threshold_seconds IS
  'silent beyond this, by the flags in force; from 1,000,000 on it is not watched';
COMMENT ON COLUMN public.v_queue_scheduler_status.why IS
  'why it does not run, or that nobody ticks it; empty where it runs or is off';
