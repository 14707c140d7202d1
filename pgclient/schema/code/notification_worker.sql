-- The notification worker, which turns staged rows into notifications, and the cleanup of the staging table.
-- Source: P3D4C1 §4; DP1 §4.2.

COMMENT ON TABLE public.iu_notification_worker_log IS
  'One row per run of the notification worker that had work. pending_pre: rows that the run claimed = rows_marked '
  '+ rows that failed; pending_post: rows not processed after the run, of which failed_total have failed.';
COMMENT ON COLUMN public.iu_notification_worker_log.groups_emitted IS
  'notifications document_imported: one for several new units of a document';
COMMENT ON COLUMN public.iu_notification_worker_log.pieces_emitted IS
  'notifications new_piece_created: one for each other new unit';
COMMENT ON COLUMN public.iu_notification_worker_log.conflicts_skipped IS 'notifications that existed already';
COMMENT ON COLUMN public.iu_notification_worker_log.error_count IS
  'rows that failed in this run; 1 when the whole run failed and was rolled back';

-- fn_iu_notification_debounce() → how many seconds a new unit waits for other units of its document, clamped to 60-300
-- (the setting may be any number, even a negative one).
CREATE OR REPLACE FUNCTION public.fn_iu_notification_debounce() RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN LEAST(300, GREATEST(60, public.fn_cfg_int('notification.debounce_seconds',
    CASE WHEN (SELECT c.value ~ '^-[0-9]+$' FROM public.dot_config c WHERE c.key = 'notification.debounce_seconds')
      THEN 60 ELSE 90 END)));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_debounce TO :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_notification_debounce IS
  'How many seconds a new unit waits for others of its document before it is published: 60 to 300.';

-- fn_iu_notification_threshold() → how many new units of a document are needed for one notification of the whole
-- document, clamped to 2-50.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_threshold() RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN LEAST(50, GREATEST(2, public.fn_cfg_int('notification.batch_piece_threshold', 2)));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_threshold TO :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_notification_threshold IS
  'From how many new units on a document gets one notification for all of them: 2 to 50.';

-- fn_iu_notification_emit(cutoff, threshold, most, except) → {pending_pre, groups_emitted, pieces_emitted,
-- conflicts_skipped, rows_marked, broken, broken_text}: makes notifications of at most `most` rows staged before the
-- cutoff, oldest first, without the rows in except. One statement emits, marks and counts, so that all three cover the
-- same rows. A row that another session has locked waits for the next run. A row that cannot become a notification
-- fails; the other rows of its document are emitted without it. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_emit(p_cutoff timestamptz, p_threshold int, p_most int,
  p_except uuid[] DEFAULT '{}') RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_result jsonb;
BEGIN
  WITH claimed AS MATERIALIZED (
    SELECT p.id, p.unit_id, p.canonical_address, p.actor_ref, p.ref_id, p.created_at,
      COALESCE(p.source_document_ref, p.import_batch_ref) AS stable_key,
      CASE WHEN p.event_kind IS DISTINCT FROM 'piece_birth' THEN 'event_kind is not piece_birth'
        WHEN p.unit_id IS NULL THEN 'unit_id is missing'
        WHEN p.ref_id IS NULL THEN 'ref_id is missing'
        WHEN COALESCE(p.canonical_address, '') = '' THEN 'canonical_address is missing'
        WHEN COALESCE(p.actor_ref, '') = '' THEN 'actor_ref is missing' END AS broken
    FROM public.iu_notification_pending p
    WHERE p.processed_at IS NULL AND p.failed_at IS NULL AND p.created_at <= p_cutoff AND p.id <> ALL (p_except)
    ORDER BY p.created_at, p.id LIMIT p_most FOR UPDATE SKIP LOCKED
  ), valid AS MATERIALIZED (
    -- first: the row of the oldest new unit of a document, whose version the notification of the document refers to
    SELECT t.*, count(*) OVER (PARTITION BY t.stable_key) AS pieces, row_number() OVER w = 1 AS first,
      t.stable_key IS NOT NULL AND count(*) OVER (PARTITION BY t.stable_key) >= p_threshold AS grouped
    FROM claimed t WHERE t.broken IS NULL WINDOW w AS (PARTITION BY t.stable_key ORDER BY t.created_at, t.id)
  ), groups AS (
    INSERT INTO public.iu_notification_event
      (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref, source, payload)
    SELECT 'document_imported', 'update', s.unit_id, s.canonical_address, s.ref_id, s.actor_ref, 'worker',
      jsonb_build_object('piece_count', s.pieces, 'stable_key', s.stable_key)
    FROM valid s WHERE s.grouped AND s.first ORDER BY s.ref_id
    ON CONFLICT DO NOTHING RETURNING 1
  ), pieces AS (
    INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id,
      actor_ref, source)
    SELECT 'new_piece_created', 'update', s.unit_id, s.canonical_address, s.ref_id, s.actor_ref, 'worker'
    FROM valid s WHERE NOT s.grouped ORDER BY s.ref_id
    ON CONFLICT DO NOTHING RETURNING 1
  ), marked AS (
    UPDATE public.iu_notification_pending p SET processed_at = now() FROM valid s WHERE p.id = s.id RETURNING 1
  ), failed AS (
    UPDATE public.iu_notification_pending p SET failed_at = now(), failure = t.broken
    FROM claimed t WHERE p.id = t.id AND t.broken IS NOT NULL RETURNING t.broken
  ), counted AS (
    SELECT (SELECT count(*) FROM claimed) AS claimed, (SELECT count(*) FROM groups) AS groups,
      (SELECT count(*) FROM pieces) AS pieces,
      (SELECT count(*) FROM valid s WHERE NOT s.grouped OR s.first) AS meant, (SELECT count(*) FROM marked) AS marked,
      (SELECT count(*) FROM failed) AS failed, (SELECT min(f.broken) FROM failed f) AS why
  )
  SELECT jsonb_build_object('pending_pre', c.claimed, 'groups_emitted', c.groups, 'pieces_emitted', c.pieces,
    'conflicts_skipped', c.meant - c.groups - c.pieces, 'rows_marked', c.marked, 'broken', c.failed, 'broken_text',
      c.why)
  INTO v_result FROM counted c;
  RETURN v_result;
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notification_emit IS
  'Emits notifications for rows staged before a time. Internal.';

-- fn_step_notify(limit, only, except): a step (quarantine.sql) that tests whether staged rows can become notifications,
-- for errors that fn_iu_notification_emit does not catch: it raises the error of a row, and rolls back all that the
-- test wrote. Internal.
CREATE OR REPLACE FUNCTION public.fn_step_notify(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_ids uuid[] := p_only::uuid[];
BEGIN
  INSERT INTO public.iu_notification_event (event_type, event_stream, unit_id, canonical_address, ref_id, actor_ref,
    source)
  SELECT 'new_piece_created', 'update', p.unit_id, p.canonical_address, p.ref_id, p.actor_ref, 'worker'
  FROM public.iu_notification_pending p
  WHERE p.id = ANY (v_ids) AND num_nonnulls(p.processed_at) = 0 -- not IS NULL: the indexes of all staged do not fit
  ON CONFLICT DO NOTHING;
  UPDATE public.iu_notification_pending p SET processed_at = now()
  WHERE p.id = ANY (v_ids) AND num_nonnulls(p.processed_at, p.failed_at) = 0;
  RAISE EXCEPTION 'rolled back' USING ERRCODE = 'QN001';
EXCEPTION WHEN SQLSTATE 'QN001' THEN
  RETURN '{}'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_step_notify IS
  'Step notify (see fn_queue_step): tests whether staged rows can become notifications. Internal.';

-- fn_iu_notification_bury(row of quarantine) → {failed}: marks the staged row as failed. Internal.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_bury(p_row public.queue_quarantine) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_n bigint;
BEGIN
  UPDATE public.iu_notification_pending p SET failed_at = now(), failure = p_row.code || ' ' || left(p_row.error, 500)
  WHERE p.id = p_row.target::uuid AND num_nonnulls(p.processed_at, p.failed_at) = 0; -- as in fn_step_notify
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN jsonb_build_object('failed', v_n);
END
$fn$;
COMMENT ON FUNCTION public.fn_iu_notification_bury IS
  'Marks a staged row as failed, with the error that PostgreSQL raised for it. Internal.';

-- fn_iu_notification_worker_tick() → {status: processed|idle|skipped|error, pending_pre, pending_post, groups_emitted,
-- pieces_emitted, conflicts_skipped, rows_marked, error_count, failed_total, duration_ms}. One run at a time: the run
-- holds the row lock of its lease in dot_iu_runtime_lease, which its tick holds anyway, which ends with the
-- transaction, and which only a role that may run the worker can take. Rows that fail are counted in error_count and
-- skipped from then on (failed_total). An error that no single row causes rolls the run back; the log then has the
-- numbers from before the run. Tick worker iu_notification_worker.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_worker_tick() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_most CONSTANT int := 100000; -- limits a run, so that it is not cancelled for its duration; the next run continues
  v_start timestamptz := clock_timestamp();
  v_cutoff timestamptz := now() - make_interval(secs => public.fn_iu_notification_debounce());
  v_threshold int := public.fn_iu_notification_threshold();
  v_done jsonb := '{}'::jsonb;
  v_rest jsonb;
  v_except uuid[];
  v_ids uuid[];
  v_late boolean := false;
  v_state text;
  v_rest_failed int := 0;
  v_errors int;
  v_error text;
  v_post int;
  v_failed int;
  v_log public.iu_notification_worker_log;
BEGIN
  IF public.fn_queue_clone_of() IS NOT NULL THEN
    RETURN jsonb_build_object('status', 'skipped', 'reason', public.fn_queue_clone_of(), 'rule', 'clone');
  END IF;
  PERFORM 1 FROM public.dot_iu_runtime_lease l WHERE l.lease_name = 'iu_notification_worker' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM public.fn_queue_lease_check('iu_notification_worker'::text);
    RETURN '{"status": "skipped", "reason": "lock_held"}'::jsonb;
  END IF;
  PERFORM 1 FROM public.iu_notification_pending p
  WHERE p.processed_at IS NULL AND p.failed_at IS NULL AND p.created_at <= v_cutoff LIMIT 1;
  IF NOT FOUND THEN
    RETURN '{"status": "idle", "pending_pre": 0}'::jsonb;
  END IF;

  v_rest := public.fn_queue_step_rest('notify'::text);
  FOR v_round IN 1..2 LOOP
    v_late := v_rest ? 'timed_out';
    v_except := public.fn_queue_step_except('notify'::text)::uuid[];
    EXIT WHEN v_late;
    BEGIN
      v_done := public.fn_iu_notification_emit(v_cutoff, v_threshold, c_most, v_except);
      EXIT;
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      v_state := SQLSTATE;
      v_error := SQLSTATE || ' ' || public.fn_mask_said(left(SQLERRM, 500));
      v_done := '{}'::jsonb;
    END;
    EXIT WHEN v_round = 2 OR v_state ~ '^42'; -- missing rights or objects: not caused by a row
    v_ids := ARRAY(SELECT p.id FROM public.iu_notification_pending p
      WHERE p.processed_at IS NULL AND p.failed_at IS NULL AND p.created_at <= v_cutoff AND p.id <> ALL (v_except)
      ORDER BY p.created_at, p.id LIMIT c_most);
    PERFORM public.fn_queue_step_part('notify'::text, v_ids::text[]);
    v_rest := CASE WHEN v_late THEN v_rest || '{"timed_out": true}'
      ELSE public.fn_queue_step_sum(v_rest, public.fn_queue_step_rest('notify'::text)) END;
  END LOOP;
  v_rest_failed := COALESCE((v_rest ->> 'failed')::int, 0);
  IF v_late THEN -- the next runs try the remaining rows in parts
    v_done := '{"broken": 0}'::jsonb;
  END IF;
  v_errors := v_rest_failed + COALESCE((v_done ->> 'broken')::int, 1);
  IF v_errors = 0 AND COALESCE((v_done ->> 'pending_pre')::int, 0) = 0 THEN
    RETURN '{"status": "idle", "pending_pre": 0}'::jsonb; -- another session has locked all staged rows
  END IF;

  SELECT count(*), count(p.failed_at) INTO v_post, v_failed FROM public.iu_notification_pending p
    WHERE p.processed_at IS NULL;
  INSERT INTO public.iu_notification_worker_log
    (pending_pre, pending_post, groups_emitted, pieces_emitted, conflicts_skipped, rows_marked, duration_ms,
      error_count, error_text, failed_total)
  VALUES (v_rest_failed + COALESCE((v_done ->> 'pending_pre')::int, 0), v_post,
    COALESCE((v_done ->> 'groups_emitted')::int, 0),
    COALESCE((v_done ->> 'pieces_emitted')::int, 0), COALESCE((v_done ->> 'conflicts_skipped')::int, 0),
    COALESCE((v_done ->> 'rows_marked')::int, 0),
      round(extract(epoch FROM clock_timestamp() - v_start)::numeric * 1000, 1),
    v_errors, COALESCE(v_error, v_done ->> 'broken_text'), v_failed)
  RETURNING * INTO v_log;
  RETURN jsonb_strip_nulls(jsonb_build_object('status', CASE WHEN v_done = '{}' THEN 'error' ELSE 'processed' END,
    'error', v_log.error_text)) || (to_jsonb(v_log) - ARRAY['id', 'run_at', 'error_text'])
    || public.fn_queue_step_unfinished('notify'::text);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_worker_tick TO :"dot_executor";
COMMENT ON FUNCTION public.fn_iu_notification_worker_tick IS
  'Tick iu_notification_worker: publishes notifications of new units, or one for a document with many of them.';

-- fn_staging_cleanup_sweep() → {deleted}: deletes processed rows older than retention.staging_days (0 = keep all), at
-- most ten thousand per statement and a hundred thousand per run, so that no run is long; the next run continues. Rows
-- that are not processed, including failed ones, are kept. Tick worker staging_cleanup_sweep.
CREATE OR REPLACE FUNCTION public.fn_staging_cleanup_sweep() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_step jsonb;
  v_out jsonb := '{"deleted": 0}'::jsonb;
BEGIN
  FOR v_batch IN 1..10 LOOP
    v_step := public.fn_queue_step('sweep_staging'::text, 10000);
    v_out := public.fn_queue_step_sum(v_out, v_step);
    EXIT WHEN COALESCE((v_step ->> 'deleted')::int, 0) < 10000 OR v_out ? 'timed_out';
  END LOOP;
  RETURN v_out;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_staging_cleanup_sweep TO :"dot_executor";
COMMENT ON FUNCTION public.fn_staging_cleanup_sweep IS
  'Tick staging_cleanup_sweep: deletes processed staged rows past retention.staging_days.';

-- fn_iu_notification_requeue(ids, actor, reason, dry_run): the next run reads these failed rows again, without another
-- debounce; a row that is still wrong fails again.
CREATE OR REPLACE FUNCTION public.fn_iu_notification_requeue(p_ids uuid[], p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_ids);
  v_why text[];
  v_refused jsonb := public.fn_queue_requeue_refusal(
    p_kind => 'requeue_notification'::text, p_action => 'notification_requeue'::text,
    p_target => format('%s staged notifications', cardinality(v_ids)), p_actor => v_actor, p_reason => v_reason,
    p_dry_run => v_dry);
BEGIN
  IF v_refused IS NOT NULL THEN
    RETURN v_refused;
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_notification_pending p WHERE p.id = ANY (v_ids) ORDER BY p.id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN p.id IS NULL THEN 'no such staged notification' WHEN p.processed_at IS NOT NULL
    THEN 'the notification was emitted already'
      WHEN p.failed_at IS NULL THEN 'the notification has not failed: it waits for iu_notification_worker'
      END ORDER BY i.n)
  INTO v_why FROM unnest(v_ids) WITH ORDINALITY AS i (id, n)
  LEFT JOIN LATERAL (SELECT x.* FROM public.iu_notification_pending x WHERE x.id = i.id OFFSET 0) p ON true;
  IF NOT v_dry THEN
    UPDATE public.iu_notification_pending p SET failed_at = NULL, failure = NULL
    WHERE p.id = ANY (ARRAY(SELECT r.id FROM unnest(v_ids, v_why) AS r (id, why) WHERE r.why IS NULL));
  END IF;
  RETURN public.fn_job_answer(
    p_action => 'requeue', p_target => 'notification', p_done => 'requeued', p_ids => v_ids, p_why => v_why,
    p_new => NULL, p_actor => v_actor, p_reason => v_reason, p_dry_run => v_dry);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_notification_requeue TO :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_iu_notification_requeue IS
  'Requeues staged notifications that failed, once the cause is fixed.';
