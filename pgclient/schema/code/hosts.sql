-- Worker hosts: registration, heartbeat, clean stop.

COMMENT ON TABLE public.queue_host IS
  'Worker hosts: the processes that run tick workers and send webhooks. They are not executors.';
COMMENT ON COLUMN public.queue_host.instance IS
  'one per process; a second live instance with the same host_id is refused';
COMMENT ON COLUMN public.queue_host.last_seen_at IS
  'the last heartbeat; the host is alive while it is younger than 15 s';
COMMENT ON COLUMN public.queue_host.session_tag IS
  'the suffix of the application_name of its sessions; NULL = its sessions cannot be identified, as behind a pooler';
COMMENT ON COLUMN public.queue_host.in_flight IS 'number of items that it is working on now';
COMMENT ON COLUMN public.queue_host.last_loops IS
  'the loops that it ran when one was last added; kept after the host stopped';
COMMENT ON COLUMN public.queue_host.stop_reason IS
  'why it stopped, such as SIGTERM or the operator who drained it; NULL = no reason given, or not stopped';
COMMENT ON COLUMN public.queue_host.progress IS
  'per loop: state, last tick, done, errors; the webhook worker also lists subscriptions it cannot sign for, and why';
GRANT SELECT ON public.queue_host TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- v_signing_fault: webhook subscriptions that a live host excludes from its claims, because the host does not have
-- their signing secret or has an invalid one.
CREATE OR REPLACE VIEW public.v_signing_fault AS
SELECT q.host_id, f.subscription_id, left(f.what, 400) AS what, left(f.remedy, 400) AS remedy
FROM public.queue_host q
CROSS JOIN LATERAL (
  SELECT substring(e.value ->> 'subscription' FROM '^[0-9]{1,18}$')::bigint AS subscription_id,
    COALESCE(e.value ->> 'what', '') AS what, COALESCE(e.value ->> 'do', '') AS remedy
  FROM jsonb_array_elements(CASE jsonb_typeof(q.progress #> '{webhook_worker,unsigned}')
    WHEN 'array' THEN q.progress #> '{webhook_worker,unsigned}' ELSE '[]' END) e (value)
  WHERE jsonb_typeof(e.value) = 'object') f
WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
  AND q.last_seen_at <= clock_timestamp() + interval '5 seconds'
  AND 'webhook_worker' = ANY (q.loops) AND f.subscription_id IS NOT NULL;
COMMENT ON VIEW public.v_signing_fault IS
  'Webhook subscriptions for which a live host sends nothing: their secret is missing or invalid there; what to do.';
GRANT SELECT ON public.v_signing_fault TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_host_gone(host) → true if a host cannot be alive although it was seen within the last 15 s: the server has
-- no session of the host, and its sessions cannot all have ended at once since it was last seen. A restart of the
-- server, the restart after a crash of one of its processes and the promotion of a standby end the sessions of a live
-- host too; each of them starts the WAL writer. False if the sessions of the host cannot be identified (session_tag
-- NULL). Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_host_gone(p_host public.queue_host) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT p_host.session_tag IS NOT NULL
    AND p_host.last_seen_at >= greatest(pg_postmaster_start_time(),
      (SELECT max(w.backend_start) FROM pg_stat_activity w WHERE w.backend_type = 'walwriter'))
    AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datname = current_database()
      AND a.usename::text = p_host.db_role::text AND right(a.application_name, length(p_host.session_tag))
        = p_host.session_tag)
$fn$;
COMMENT ON FUNCTION public.fn_queue_host_gone IS
  'Whether a worker host that was seen recently has no session left. Internal.';

-- fn_queue_host_register(id, instance, version, loops, session tag) → {host_id, instance}; with the key returned {jobs,
-- webhooks, log} if the previous instance crashed and its work was returned to the queue (fn_queue_host_return).
-- Refused: clone (the database is a copy that is not adopted); held (another instance holds the id: the refusal has
-- this instance as holder, and its last_seen_at, which changes with each heartbeat).
-- Another instance holds the id if it was seen within the last 15 s. Exception: it belongs to the same login and has no
-- session left (fn_queue_host_gone). Then it has crashed, and the new instance gets the id at once. Any login may read
-- the instance of a live host; only the login that registered the host may send its heartbeat and stop it. The session
-- tag is ignored unless the caller's application_name ends with it.
CREATE OR REPLACE FUNCTION public.fn_queue_host_register(p_host_id text, p_instance uuid, p_version text,
  p_loops text[], p_session_tag text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_row public.queue_host;
  v_clone text := public.fn_queue_clone_of();
  v_gone public.queue_host;
  v_returned jsonb;
  v_tag text := CASE WHEN p_session_tag ~ '^[0-9a-f]{8,32}$'
    AND right(current_setting('application_name'), length(p_session_tag)) = p_session_tag THEN p_session_tag END;
BEGIN
  IF public.fn_trimmed(p_host_id) IS NULL OR length(p_host_id) > 200 OR p_instance IS NULL THEN
    RAISE EXCEPTION 'p_host_id (1 to 200 characters) and p_instance are needed' USING ERRCODE = '22023';
  END IF;
  IF v_clone IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'clone', 'reason', v_clone);
  END IF;
  -- The clock may have been ahead while no host ran. Then other times lie in the future, although no heartbeat does.
  PERFORM public.fn_queue_clock_check(greatest((SELECT max(q.last_seen_at) FROM public.queue_host q),
    (SELECT max(r.set_at) FROM public.dot_config_revert r),
    (SELECT max(p.created_at) FROM public.iu_notification_pending p WHERE p.processed_at IS NULL)));
  SELECT q.* INTO v_gone FROM public.queue_host q
  WHERE q.host_id = p_host_id AND q.instance <> p_instance AND q.db_role = session_user
    AND public.fn_queue_host_gone(q);
  -- A caller that cannot get the id locks no row, because the lock would block the heartbeat of the live host.
  IF NOT EXISTS (SELECT FROM public.queue_host q WHERE q.host_id = p_host_id AND q.stopped_at IS NULL
    AND q.last_seen_at >= clock_timestamp() - interval '15 seconds'
    AND (q.instance <> p_instance OR q.db_role <> session_user) AND q.instance IS DISTINCT FROM v_gone.instance) THEN
    IF 'webhook_worker' = ANY (p_loops) THEN
      PERFORM public.fn_webhook_hosts_back();
    END IF;
    INSERT INTO public.queue_host AS q (host_id, instance, version, loops, last_loops, session_tag)
    VALUES (p_host_id, p_instance, COALESCE(p_version, ''), COALESCE(p_loops, '{}'), COALESCE(p_loops, '{}'), v_tag)
    ON CONFLICT (host_id) DO UPDATE SET
      instance = excluded.instance, started_at = now(), last_seen_at = now(), stopped_at = NULL, stop_reason = NULL,
      version = excluded.version, loops = excluded.loops, last_loops = excluded.loops, in_flight = 0, progress = '{}',
      db_role = session_user, client_addr = inet_client_addr(), session_tag = excluded.session_tag
    WHERE q.instance = excluded.instance AND q.db_role = session_user OR q.stopped_at IS NOT NULL
      OR q.instance = v_gone.instance
      OR q.last_seen_at < clock_timestamp() - interval '15 seconds';
  END IF;
  SELECT * INTO v_row FROM public.queue_host WHERE host_id = p_host_id;
  IF v_row.instance <> p_instance OR v_row.db_role <> session_user THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'held', 'holder', v_row.instance, 'last_seen_at',
      v_row.last_seen_at, 'reason', format(
      'host id %s is held by instance %s since %s (%s%s), last seen %s s ago: choose another host_id, or stop that one',
      p_host_id, v_row.instance, to_char(v_row.started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
        v_row.db_role,
      COALESCE(' from ' || host(v_row.client_addr), ' on a local socket'),
      floor(public.fn_age(v_row.last_seen_at))));
  END IF;
  PERFORM public.fn_queue_loops_begun(v_row.loops);
  IF v_gone.instance IS NOT NULL THEN
    v_returned := public.fn_queue_host_return(v_gone);
  END IF;
  RETURN jsonb_build_object('host_id', p_host_id, 'instance', p_instance)
    || CASE WHEN (v_returned ->> 'jobs')::bigint + (v_returned ->> 'webhooks')::bigint > 0
      THEN jsonb_build_object('returned', v_returned) ELSE '{}'::jsonb END;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_register TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_host_register IS
  'Registers a worker host; refuses a second live instance with the same id and names the one that holds it.';

-- fn_queue_host_beat(id, instance, loops, in_flight, progress) → {host_id, at}, at = the server's time; refused: clone
-- (the database has become a copy that is not adopted); lost (another instance registered the id while this one was
-- silent, or another login registered it). The lists of secrets and of kinds of jobs are left out where they are
-- too long for the column: such a host must not count as dead.
CREATE OR REPLACE FUNCTION public.fn_queue_host_beat(
  p_host_id text, p_instance uuid, p_loops text[], p_in_flight int, p_progress jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_clone text := public.fn_queue_clone_of();
  v_loops text[] := COALESCE(p_loops, '{}');
  v_before text[];
  v_ended text[];
  v_begun text[];
  v_seen timestamptz;
  v_executor text;
  v_progress jsonb := COALESCE(p_progress, '{}');
BEGIN
  IF v_clone IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'clone', 'reason', v_clone);
  END IF;
  SELECT q.loops, q.last_seen_at, q.progress #>> '{job_executor,executor}' INTO v_before, v_seen, v_executor
  FROM public.queue_host q
  WHERE q.host_id = p_host_id AND q.instance = p_instance AND q.db_role = session_user;
  PERFORM public.fn_queue_clock_check(v_seen);
  v_ended := ARRAY(SELECT unnest(v_before) EXCEPT SELECT unnest(v_loops));
  v_begun := ARRAY(SELECT unnest(v_loops) EXCEPT SELECT unnest(v_before));
  IF v_seen < clock_timestamp() - interval '60 seconds' AND 'webhook_worker' = ANY (v_loops) THEN
    PERFORM public.fn_webhook_hosts_back();
  END IF;
  IF v_ended <> '{}' THEN
    v_executor := CASE WHEN 'job_executor' = ANY (v_ended) THEN v_executor END;
    PERFORM public.fn_queue_loops_lock(v_ended || v_executor);
  END IF;
  IF length(v_progress::text) > 65536 AND jsonb_typeof(v_progress) = 'object' THEN
    v_progress := v_progress #- '{webhook_worker,secrets}';
    v_progress := CASE WHEN length(v_progress::text) > 65536 THEN v_progress #- '{job_executor,kinds}'
      ELSE v_progress END;
  END IF;
  UPDATE public.queue_host SET last_seen_at = clock_timestamp(), loops = v_loops,
    last_loops = CASE WHEN v_begun <> '{}' THEN v_loops ELSE last_loops END,
    in_flight = greatest(p_in_flight, 0), progress = v_progress, stopped_at = NULL, stop_reason = NULL
  WHERE host_id = p_host_id AND instance = p_instance AND db_role = session_user;
  IF NOT FOUND THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'lost',
      'reason', format('host id %s is held by another instance now, or its row is gone: this one must register again',
        left(p_host_id, 200)));
  END IF;
  IF v_begun <> '{}' THEN
    PERFORM public.fn_queue_loops_begun(v_begun);
  END IF;
  IF v_ended <> '{}' THEN
    PERFORM public.fn_queue_loops_ended(v_ended);
    PERFORM public.fn_queue_executor_ended(v_executor);
  END IF;
  RETURN jsonb_build_object('host_id', p_host_id, 'at', clock_timestamp());
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_beat TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_host_beat IS 'Heartbeat of a worker host, with its loops and their progress.';

-- fn_queue_host_stop(id, instance, reason) → {host_id, stopped}: records a clean stop and its reason, such as a signal
-- or the name of the operator. Tick workers that no other live host runs are marked stopped.
CREATE OR REPLACE FUNCTION public.fn_queue_host_stop(p_host_id text, p_instance uuid, p_reason text DEFAULT NULL)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_loops text[];
  v_executor text;
  v_stopped boolean;
BEGIN
  SELECT q.loops, CASE WHEN 'job_executor' = ANY (q.loops) THEN q.progress #>> '{job_executor,executor}' END
  INTO v_loops, v_executor FROM public.queue_host q
  WHERE q.host_id = p_host_id AND q.instance = p_instance AND q.db_role = session_user;
  PERFORM public.fn_queue_loops_lock(v_loops || v_executor);
  UPDATE public.queue_host SET stopped_at = clock_timestamp(), last_seen_at = clock_timestamp(),
    last_loops = CASE WHEN last_loops <> '{}' THEN last_loops ELSE loops END, loops = '{}', in_flight = 0,
    stop_reason = public.fn_trimmed(left(p_reason, 200))
  WHERE host_id = p_host_id AND instance = p_instance AND db_role = session_user;
  v_stopped := FOUND;
  PERFORM public.fn_queue_loops_ended(v_loops);
  PERFORM public.fn_queue_executor_ended(v_executor);
  RETURN jsonb_build_object('host_id', p_host_id, 'stopped', v_stopped);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_host_stop TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_host_stop IS 'Records that a worker host stopped cleanly, and why.';
