-- Repair of times in the future. When the server's clock is set back, or was ahead for a while, the times that the
-- server wrote before lie in the future, and work would wait until then.
--
-- 1. A tick whose last run, or a host whose last heartbeat, lies more than 5 s in the future calls fn_queue_clock_check
--    with that time. A host that registers calls it with the newest of all heartbeats, of the staged notifications and
--    of the flags that revert.
-- 2. The distance of the newest time (of that one, all last runs and all heartbeats) from now is used as the distance
--    by which the clock went back; it is too short by the seconds since the time was written. Each time that would
--    delay work is moved back by this distance, once, and a mark in the history records it.
-- 3. Some times are not moved: times that a producer or an operator chose (when a job is due), and times in the audit,
--    the history, samples and events, because they record the clock of that moment.
-- 4. A claim or a result that began before the clock went back may be committed after the times were moved. For two
--    minutes after that, the workers that return expired leases move such times too. Step 1 notices ticks and
--    heartbeats that began before.
-- 5. A host compares the server's time with its own clock from heartbeat to heartbeat, and reports a difference of half
--    a second or more, forward or back (fn_queue_clock_stepped): only a mark follows.
--
-- A time less than 5 s ahead cannot be distinguished from the delay between two statements on a busy server. Such a
-- time delays work by at most 5 s.

-- fn_queue_clock_mark(label, gap) adds a mark to the history, unless a function of clock.sql added a mark within the
-- gap: several hosts and ticks notice the same step. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_clock_mark(p_label text, p_gap interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_by CONSTANT text := 'system:clock';
  v_now timestamptz := clock_timestamp();
BEGIN
  IF EXISTS (SELECT FROM public.queue_mark m WHERE m.created_by = c_by AND m.at <= v_now + interval '5 seconds'
    AND m.at > v_now - p_gap) THEN
    RETURN;
  END IF;
  INSERT INTO public.queue_mark (at, label, created_by) VALUES (v_now, p_label, c_by);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'mark', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', v_now));
  RAISE LOG 'qtop: %', p_label;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_clock_mark IS
  'Adds a mark about the clock of the server, unless there was one within the given time. Internal.';

-- fn_queue_clock_stepped(host id, instance, seconds) adds a mark with the seconds by which the server's clock went
-- forward, or back (seconds < 0), between two heartbeats of this host. In the database a step forward looks like a
-- silence of that length; only a host can distinguish them, with its own clock. The function changes no times. It does
-- nothing unless the caller registered this host.
CREATE OR REPLACE FUNCTION public.fn_queue_clock_stepped(p_host_id text, p_instance uuid, p_seconds double precision)
  RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF NOT COALESCE(abs(p_seconds) BETWEEN 0.1 AND 1e10, false) THEN
    RAISE EXCEPTION 'p_seconds must be 0.1 to 1e10 (forward) or -1e10 to -0.1 (back), not %', p_seconds
      USING ERRCODE = '22023';
  END IF;
  IF EXISTS (SELECT FROM public.queue_host q WHERE q.host_id = p_host_id AND q.instance = p_instance
    AND q.db_role = session_user) THEN
    PERFORM public.fn_queue_clock_mark(format(
      'the clock of the server went %s by %s (noticed by host %s), or another server answers now',
      CASE WHEN p_seconds > 0 THEN 'forward' ELSE 'back' END,
      justify_interval(make_interval(secs => round(abs(p_seconds)::numeric,
        CASE WHEN abs(p_seconds) < 10 THEN 1 ELSE 0 END)::float8)),
      left(p_host_id, 100)), interval '15 seconds');
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_clock_stepped TO :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_clock_stepped IS
  'Adds a mark about a step of the server''s clock that a worker host noticed between two heartbeats.';

-- fn_queue_clock_check(a time that the server's clock wrote) moves back the times for which work would wait, if the
-- given time lies more than 5 s ahead. It does nothing while another session runs the same repair. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_clock_check(p_seen timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_seen timestamptz;
BEGIN
  IF NOT COALESCE(isfinite(p_seen) AND p_seen > v_now + interval '5 seconds', false) THEN
    RETURN;
  END IF;
  PERFORM 1 FROM public.dot_iu_runtime_lease WHERE lease_name = 'clock' FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    INSERT INTO public.dot_iu_runtime_lease (lease_name) VALUES ('clock') ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN;
    END IF;
  END IF;
  v_seen := greatest(p_seen,
    (SELECT max(q.last_seen_at) FROM public.queue_host q WHERE isfinite(q.last_seen_at)),
    (SELECT max(w.last_run_at) FROM public.queue_tick_worker w WHERE isfinite(w.last_run_at)));
  IF public.fn_queue_clock_move(v_seen - v_now, p_seen) THEN
    UPDATE public.dot_iu_runtime_lease SET lease_holder = session_user || ' pid ' || pg_backend_pid(),
      acquired_at = v_seen, expires_at = v_now + interval '2 minutes' WHERE lease_name = 'clock';
    PERFORM public.fn_queue_clock_mark(format(
      'a time lies %s ahead of the clock of the server: the clock was set back, or was wrong before',
      date_trunc('second', v_seen - v_now)), interval '1 minute');
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_clock_check IS
  'Moves back times in the future, written while the clock was ahead, that would delay work; adds a mark. Internal.';

-- fn_queue_clock_recheck() moves the times again that were committed after fn_queue_clock_check had moved the others,
-- for two minutes after it. What its caller did before stays, also if it reaches statement_timeout. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_clock_recheck() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_back interval;
BEGIN
  SELECT l.acquired_at - (l.expires_at - interval '2 minutes') INTO v_back FROM public.dot_iu_runtime_lease l
  WHERE l.lease_name = 'clock' AND l.expires_at > clock_timestamp()
    AND l.expires_at <= clock_timestamp() + interval '2 minutes' -- else the clock went back again
  FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    PERFORM public.fn_queue_clock_move(v_back, NULL::timestamptz);
  END IF;
EXCEPTION WHEN query_canceled THEN
  IF public.fn_queue_step_late(SQLSTATE::text) IS NULL THEN
    RAISE;
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_clock_recheck IS
  'Moves back the times in the future that were committed soon after a repair of the others. Internal.';

-- fn_queue_clock_move(distance, last run of the calling worker) moves back, by this distance, each time ahead of the
-- clock for which work would wait → whether it could. The caller holds the lease clock. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_clock_move(p_back interval, p_seen timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_late timestamptz := v_now + interval '5 seconds';
  v_lease timestamptz;
  v_flags text[];
BEGIN
  BEGIN
    UPDATE public.queue_host q SET last_seen_at = least(q.last_seen_at - p_back, v_now),
      started_at = least(q.started_at, v_now),
      stopped_at = CASE WHEN q.stopped_at > v_now THEN v_now ELSE q.stopped_at END -- least would return v_now for null
    WHERE q.host_id IN (SELECT x.host_id FROM public.queue_host x WHERE x.last_seen_at > v_late
      ORDER BY x.host_id FOR UPDATE SKIP LOCKED);

    -- A worker that does not run would keep its time, and the next step of the clock would be taken for one of that
    -- length. Left out: workers that run now, the one whose tick noticed the step, and those that a live host runs
    -- again within a minute. They write their times themselves; and until this transaction ends, no other session can
    -- run a worker that is repaired here. Locks the leases first, as a tick does, so that no run waits for a row at its
    -- end.
    UPDATE public.queue_tick_worker w SET
      last_run_at = CASE WHEN w.last_run_at > v_now THEN least(w.last_run_at - p_back, v_now) ELSE w.last_run_at END,
      last_attempt_at = CASE WHEN w.last_attempt_at > v_now THEN least(w.last_attempt_at - p_back, v_now)
        ELSE w.last_attempt_at END
    WHERE w.worker_name IN (SELECT x.worker_name FROM public.dot_iu_runtime_lease l
      JOIN public.queue_tick_worker x ON x.worker_name = l.lease_name
      WHERE greatest(x.last_run_at, x.last_attempt_at) > v_late
        AND greatest(x.last_run_at, x.last_attempt_at) IS DISTINCT FROM p_seen
        AND NOT (public.fn_cfg_int('queue.tick.' || x.worker_name || '.interval_seconds', 0) BETWEEN 1 AND 60
          AND (x.flag_key IS NULL OR public.fn_cfg_bool(x.flag_key)) AND NOT COALESCE(x.last_result ? 'error', false)
          AND EXISTS (SELECT FROM public.v_live_loop v WHERE v.loop = x.worker_name))
      ORDER BY x.worker_name FOR UPDATE SKIP LOCKED);

    -- A lease that was claimed before the clock went back keeps the time that it had left. No lease that is claimed now
    -- can end later than v_lease, so a lease that ends later is moved, to v_lease at the latest, and thus only once.
    v_lease := v_now + make_interval(secs => 5 + greatest(public.fn_cfg_int('queue.lease.duration_seconds', 300), 300));
    UPDATE public.job_lease l SET lease_until = least(greatest(l.lease_until - p_back, v_now), v_lease)
    WHERE l.lease_token = ANY (ARRAY(SELECT x.lease_token FROM public.job_lease x WHERE x.lease_until > v_lease
      ORDER BY x.lease_token FOR UPDATE SKIP LOCKED));
    v_lease := v_now + make_interval(secs => 5 + public.fn_cfg_int('webhook.lease_seconds', 60));
    UPDATE public.webhook_delivery_jobs j SET lease_until = least(greatest(j.lease_until - p_back, v_now), v_lease)
    WHERE j.id IN (SELECT x.id FROM public.webhook_delivery_jobs x WHERE x.status = 'Leased' AND x.lease_until > v_lease
      ORDER BY x.id FOR UPDATE SKIP LOCKED);

    -- Waits that began while the clock was wrong keep the time that they had left.
    UPDATE public.webhook_endpoint_suspensions s SET since = least(s.since, v_now),
      until = CASE WHEN s.until > v_now AND isfinite(s.until) THEN greatest(s.until - p_back, v_now) ELSE s.until END,
      probe_until = CASE WHEN s.probe_until > v_lease THEN least(greatest(s.probe_until - p_back, v_now), v_lease)
        ELSE s.probe_until END
    WHERE s.subscription_id IN (SELECT x.subscription_id FROM public.webhook_endpoint_suspensions x
      WHERE x.since > v_late OR x.probe_until > v_lease ORDER BY x.subscription_id FOR UPDATE SKIP LOCKED);
    UPDATE public.job_queue j SET process_after = greatest(j.process_after - p_back, v_now), updated_at = v_now
    WHERE j.job_id = ANY (ARRAY(SELECT x.job_id FROM public.job_queue x WHERE NOT x.ready AND x.process_after > v_now
      AND x.status = 'retry_waiting' AND x.updated_at > v_late ORDER BY x.job_id LIMIT 100000 FOR UPDATE SKIP LOCKED));
    UPDATE public.webhook_delivery_sagas s SET next_attempt_at = greatest(s.next_attempt_at - p_back, v_now),
      updated_at = v_now
    WHERE s.id IN (SELECT x.id FROM public.webhook_delivery_sagas x WHERE x.status IN ('Pending', 'PendingRetry')
      AND x.next_attempt_at > v_now AND x.updated_at > v_late ORDER BY x.id LIMIT 100000 FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_quarantine q SET last_failed_at = least(q.last_failed_at, v_now),
      first_failed_at = least(q.first_failed_at, v_now), next_try_at = greatest(q.next_try_at - p_back, v_now)
    WHERE q.quarantine_id IN (SELECT x.quarantine_id FROM public.queue_quarantine x
      WHERE x.set_aside_at IS NULL AND x.last_failed_at > v_late ORDER BY x.quarantine_id FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_alert_ack a SET acked_at = least(a.acked_at, v_now),
      expires_at = greatest(a.expires_at - p_back, v_now)
    WHERE a.ack_id IN (SELECT x.ack_id FROM public.queue_alert_ack x WHERE x.cleared_at IS NULL AND x.acked_at > v_late
      ORDER BY x.ack_id FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_heartbeat h SET
      silent_event_at = CASE WHEN h.silent_event_at > v_now THEN v_now ELSE h.silent_event_at END,
      counted_from = CASE WHEN h.counted_from > v_now THEN v_now ELSE h.counted_from END
    WHERE h.executor_id IN (SELECT x.executor_id FROM public.queue_heartbeat x
      WHERE x.silent_event_at > v_late OR x.counted_from > v_late ORDER BY x.executor_id FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_broadcast_share b SET
      event_at = CASE WHEN b.event_at > v_now THEN v_now ELSE b.event_at END,
      over_since = CASE WHEN b.over_since > v_now THEN v_now ELSE b.over_since END
    WHERE b.event_domain IN (SELECT x.event_domain FROM public.queue_broadcast_share x
      WHERE greatest(x.event_at, x.over_since) > v_late ORDER BY x.event_domain FOR UPDATE SKIP LOCKED);
    UPDATE public.iu_route_worker_cursor w SET restored_at = least(w.restored_at - p_back, v_now)
    WHERE (w.worker_name, w.event_domain) IN (SELECT x.worker_name, x.event_domain FROM public.iu_route_worker_cursor x
      WHERE isfinite(x.restored_at) AND x.restored_at > v_late
      ORDER BY x.worker_name, x.event_domain FOR UPDATE SKIP LOCKED);
    PERFORM 1 FROM public.event_class_state s WHERE isfinite(s.restored_at) AND s.restored_at > v_late
      FOR UPDATE SKIP LOCKED;
    UPDATE public.event_class_state s SET restored_at = least(s.restored_at - p_back, v_now) WHERE FOUND;
    UPDATE public.webhook_endpoint_state t SET
      failing_since = CASE WHEN t.failing_since > v_now THEN v_now ELSE t.failing_since END,
      last_failure_at = CASE WHEN t.last_failure_at > v_now THEN v_now ELSE t.last_failure_at END,
      last_success_at = CASE WHEN t.last_success_at > v_now THEN v_now ELSE t.last_success_at END
    WHERE t.subscription_id IN (SELECT x.subscription_id FROM public.webhook_endpoint_state x
      WHERE greatest(x.failing_since, x.last_failure_at, x.last_success_at) > v_late
      ORDER BY x.subscription_id FOR UPDATE SKIP LOCKED);
    -- A flag reverts only while its updated_at is the set_at of the revert.
    v_flags := ARRAY(SELECT c.key FROM public.dot_config c JOIN public.dot_config_revert r USING (key)
      WHERE r.set_at > v_late ORDER BY c.key FOR UPDATE OF c SKIP LOCKED);
    UPDATE public.dot_config c SET updated_at = v_now FROM public.dot_config_revert r
    WHERE c.key = ANY (v_flags) AND r.key = c.key AND r.set_at > v_late AND r.set_at = c.updated_at;
    UPDATE public.dot_config_revert r SET revert_at = greatest(r.revert_at - p_back, v_now), set_at = v_now
    WHERE r.key = ANY (v_flags) AND r.set_at > v_late;
    UPDATE public.iu_notification_pending p SET created_at = least(p.created_at - p_back, v_now)
    WHERE p.id IN (SELECT x.id FROM public.iu_notification_pending x WHERE x.processed_at IS NULL
      AND x.created_at > v_late ORDER BY x.id LIMIT 100000 FOR UPDATE SKIP LOCKED);

    -- Send rates: each bucket keeps the tokens that it had when the clock went back, and refills from now on.
    UPDATE public.webhook_rate_bucket b SET refilled_at = v_now
    WHERE b.subscription_id IN (SELECT x.subscription_id FROM public.webhook_rate_bucket x
      WHERE isfinite(x.refilled_at) AND x.refilled_at > v_late ORDER BY x.subscription_id FOR UPDATE SKIP LOCKED);
    UPDATE public.webhook_operation_bucket b SET refilled_at = v_now
    WHERE b.operation_id IN (SELECT x.operation_id FROM public.webhook_operation_bucket x
      WHERE isfinite(x.refilled_at) AND x.refilled_at > v_late ORDER BY x.operation_id FOR UPDATE SKIP LOCKED);
    UPDATE public.webhook_slow_start s SET began_at = least(s.began_at, v_now), step_at = least(s.step_at, v_now),
      refilled_at = CASE WHEN isfinite(s.refilled_at) THEN least(s.refilled_at, v_now) ELSE s.refilled_at END
    WHERE s.endpoint IN (SELECT x.endpoint FROM public.webhook_slow_start x WHERE greatest(x.began_at, x.step_at,
      NULLIF(x.refilled_at, 'infinity')) > v_late ORDER BY x.endpoint FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_bulk_operation o SET
      watch_since = CASE WHEN o.watch_since > v_now THEN v_now ELSE o.watch_since END,
      credited_at = CASE WHEN isfinite(o.credited_at) THEN least(o.credited_at, v_now) ELSE o.credited_at END
    WHERE o.operation_id IN (SELECT x.operation_id FROM public.queue_bulk_operation x
      WHERE x.state IN ('running', 'paused') AND greatest(x.watch_since, NULLIF(x.credited_at, 'infinity')) > v_late
      ORDER BY x.operation_id FOR UPDATE SKIP LOCKED);
    UPDATE public.queue_bulk_operation_item i SET first_at = least(i.first_at - p_back, v_now)
    WHERE (i.operation_id, i.item_no) IN (SELECT x.operation_id, x.item_no
      FROM public.queue_bulk_operation o JOIN public.queue_bulk_operation_item x USING (operation_id)
      WHERE o.state IN ('running', 'paused') AND x.first_result IS NOT NULL AND x.first_at > v_late
      ORDER BY x.operation_id, x.item_no LIMIT 100000 FOR UPDATE OF x SKIP LOCKED);
  EXCEPTION WHEN OTHERS THEN -- the calling tick or heartbeat must succeed; the next one tries again
    RAISE WARNING 'qtop: times that lie ahead of the clock could not be moved back: % %', SQLSTATE, SQLERRM;
    RETURN false;
  END;
  RETURN true;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_clock_move IS
  'Moves back by a distance the times ahead of the clock that would delay work. Internal.';
