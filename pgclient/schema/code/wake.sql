-- Wake signals by NOTIFY. Sources: DP4 §3.2 (also for the names), DP1 §4.1 layer 2.

-- A NOTIFY only wakes a reader, which then finds the work in the tables.
-- fn_queue_notify_enabled() → the flag queue.notify.bridge_enabled; false if the flag cannot be read at once.
-- Transactions of producers call it, so a lock on the table of flags must neither fail nor delay them. The block that
-- catches errors is a subtransaction that writes nothing, so it uses no transaction id.
CREATE OR REPLACE FUNCTION public.fn_queue_notify_enabled() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $fn$
BEGIN
  RETURN COALESCE((SELECT c.value = 'true' FROM public.dot_config c WHERE c.key = 'queue.notify.bridge_enabled'),
    false);
EXCEPTION WHEN OTHERS THEN
  RETURN false;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_notify_enabled TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"event_ingest_writer", :"router_worker", :"saga_orchestrator", :"webhook_worker";
COMMENT ON FUNCTION public.fn_queue_notify_enabled IS
  'Whether wake signals are on (DP4 §3.2); false where the flag cannot be read at once. Never raises nor waits.';

-- fn_queue_wake(channel, payload): sends one wake signal. It sends none if signals are switched off, if the writer has
-- turned off the signals of triggers (a setting of its session) to send its own, if the notification queue is more than
-- half full, or if the payload is too long. Never raises: a signal must not make a business transaction fail. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_wake(p_channel text, p_payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on'
    OR NOT public.fn_queue_notify_enabled()
    OR pg_notification_queue_usage() > 0.5
    OR octet_length(p_channel) > 63
    OR octet_length(p_payload::text) > 7900 THEN
    RETURN;
  END IF;
  PERFORM pg_notify(p_channel, p_payload::text);
EXCEPTION WHEN OTHERS THEN
  RETURN;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_wake IS
  'Sends one wake signal when signals are on; never raises. Internal.';

-- fn_queue_wake_signal(domain, layer) → {signalled}: sends the wake signal of a writer that turned off the signals of
-- triggers. The writer calls it after its commit, at most once per domain, layer, 2 ms and process. layer = the
-- programs to wake: event (routers), saga (the orchestrator), job (hosts that claim) or doorbell (all of them).
CREATE OR REPLACE FUNCTION public.fn_queue_wake_signal(p_domain text, p_layer text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF p_layer IS NULL OR p_layer NOT IN ('event', 'saga', 'job', 'doorbell') THEN
    RAISE EXCEPTION 'p_layer must be event, saga, job or doorbell' USING ERRCODE = '22023';
  END IF;
  IF (p_domain ~ '^[a-z][a-z0-9_]*$' AND length(p_domain) <= 51) IS NOT TRUE THEN -- {0,50} is ten times slower than *
    RAISE EXCEPTION 'p_domain must match ^[a-z][a-z0-9_]{0,50}$' USING ERRCODE = '22023';
  END IF;
  IF NOT public.fn_queue_notify_enabled() OR pg_notification_queue_usage() > 0.5 THEN
    RETURN jsonb_build_object('signalled', false);
  END IF;
  PERFORM pg_notify('queue_wake_' || p_domain, jsonb_build_object(
    'layer', p_layer, 'event_domain', p_domain, 'worker_hint', '', 'count', 0, 'occurred_at', clock_timestamp())::text);
  RETURN jsonb_build_object('signalled', true);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_wake_signal TO :"event_ingest_writer", :"dot_executor", :"router_worker",
  :"saga_orchestrator", :"webhook_worker";
COMMENT ON FUNCTION public.fn_queue_wake_signal IS
  'Wakes the workers of one layer of a domain after the caller''s commit, when wake signals are on.';

-- fn_queue_doorbell(domain) → {rung}: fn_queue_wake_signal for a writer that does not name a layer; wakes all of them.
CREATE OR REPLACE FUNCTION public.fn_queue_doorbell(p_domain text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN jsonb_build_object('rung', public.fn_queue_wake_signal(p_domain, 'doorbell'::text) -> 'signalled');
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_doorbell TO :"event_ingest_writer", :"dot_executor", :"router_worker",
  :"saga_orchestrator", :"webhook_worker";
COMMENT ON FUNCTION public.fn_queue_doorbell IS
  'Wakes all listeners of a domain after the caller''s commit, when signals are on; see fn_queue_wake_signal.';

-- fn_queue_wake_notify_event_outbox(): trigger of event_outbox that sends one wake signal per domain and statement: as
-- a row trigger it would cost two thirds of the producers' throughput. It reads the flag with the rights of its owner;
-- a WHEN clause would read it with the writer's rights.
CREATE OR REPLACE FUNCTION public.fn_queue_wake_notify_event_outbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_row record;
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  FOR v_row IN
    SELECT DISTINCT ON (n.event_domain) n.*, count(*) OVER (PARTITION BY n.event_domain) AS n_rows, r.worker_name
    FROM new_rows n
    LEFT JOIN public.event_type_registry r ON r.event_domain = n.event_domain AND r.event_type = n.event_type
    ORDER BY n.event_domain, n.occurred_at DESC
  LOOP
    PERFORM public.fn_queue_wake('queue_wake_' || v_row.event_domain, jsonb_build_object(
      'layer', 'event', 'event_id', v_row.id, 'event_domain', v_row.event_domain,
      'event_type', left(v_row.event_type, 200), 'lane', v_row.delivery_lane, 'occurred_at', v_row.occurred_at,
      'worker_hint', v_row.worker_name, 'count', v_row.n_rows));
  END LOOP;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_wake_notify_event_outbox IS
  'Trigger function: wakes the listeners of each domain a statement wrote to, when signals are on (DP4 §3.2).';

CREATE OR REPLACE TRIGGER trg_event_outbox_wake_notify AFTER INSERT ON public.event_outbox
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_wake_notify_event_outbox();

-- fn_webhook_wake(layer, tick worker): trigger that sends one wake signal per inserting statement, if wake signals are
-- on (off by default); layer: see fn_queue_wake_signal. On table events it also refuses payloads that are too long,
-- whether signals are on or off: adding a separate trigger would make the upgrade wait for open transactions of
-- producers.
CREATE OR REPLACE FUNCTION public.fn_webhook_wake() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n bigint;
  v_bytes int;
BEGIN
  IF TG_TABLE_NAME = 'events' THEN
    SELECT max(octet_length(n.payload::text)) INTO v_bytes FROM new_rows n;
    IF v_bytes > 16384 THEN
      PERFORM public.fn_payload_admit('payload'::text, v_bytes);
    END IF;
  END IF;
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  SELECT count(*) INTO v_n FROM new_rows;
  IF v_n > 0 THEN
    PERFORM public.fn_queue_wake('queue_wake_webhook', jsonb_build_object('layer', TG_ARGV[0],
      'event_domain', 'webhook', 'count', v_n, 'worker_hint', TG_ARGV[1], 'occurred_at', now()));
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_wake IS
  'Trigger: sends one wake signal on queue_wake_webhook per statement (DP4).';

CREATE OR REPLACE TRIGGER trg_events_wake AFTER INSERT ON public.events REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('event', 'webhook_router');
CREATE OR REPLACE TRIGGER trg_sagas_wake AFTER INSERT ON public.webhook_delivery_sagas REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('saga', 'saga_orchestrator');
CREATE OR REPLACE TRIGGER trg_jobs_wake AFTER INSERT ON public.webhook_delivery_jobs REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_wake('job', 'webhook_worker');

-- fn_queue_wake_notify_job_queue(): trigger of job_queue that sends one wake signal per domain and statement. It reads
-- the flag with the rights of its owner; a WHEN clause would read it with the writer's rights (DP4 §3.2).
CREATE OR REPLACE FUNCTION public.fn_queue_wake_notify_job_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on' THEN
    RETURN NULL;
  END IF;
  BEGIN -- the block that catches errors is a subtransaction
    -- does the work of fn_queue_notify_enabled, without the cost of a call
    LOCK TABLE public.dot_config IN ACCESS SHARE MODE NOWAIT;
    IF NOT EXISTS (SELECT FROM public.dot_config c WHERE c.key = 'queue.notify.bridge_enabled' AND c.value = 'true')
      OR pg_notification_queue_usage() > 0.5 THEN
      RETURN NULL;
    END IF;
    -- the CHECKs of job_lane bound channel and payload; usually the statement wrote one row
    PERFORM pg_notify('queue_wake_' || n.event_domain, jsonb_build_object(
      'layer', 'job', 'event_domain', n.event_domain, 'job_id', n.job_id, 'job_kind', n.job_kind,
      'process_after', n.process_after, 'delayed', (NOT n.ready)::int, 'worker_hint', 'job_executor', 'count', 1,
      'occurred_at', now())::text)
    FROM new_rows n WHERE NOT EXISTS (SELECT FROM new_rows OFFSET 1);
    IF FOUND THEN
      RETURN NULL;
    END IF;
    PERFORM pg_notify('queue_wake_' || x.event_domain, jsonb_build_object(
      'layer', 'job', 'event_domain', x.event_domain, 'job_id', x.job_id, 'job_kind', x.job_kind,
      'process_after', x.process_after, 'delayed', x.delayed, 'worker_hint', 'job_executor', 'count', x.n_rows,
      'occurred_at', now())::text)
    FROM (SELECT d.event_domain, d.n_rows, d.process_after, d.delayed, f.job_id, f.job_kind
      FROM (SELECT n.event_domain, count(*) AS n_rows, min(n.process_after) AS process_after,
          count(*) FILTER (WHERE NOT n.ready) AS delayed FROM new_rows n GROUP BY 1) d
      CROSS JOIN LATERAL (SELECT n.job_id, n.job_kind FROM new_rows n
        WHERE n.event_domain = d.event_domain AND n.process_after = d.process_after LIMIT 1) f) x;
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_queue_wake_notify_job_queue IS
  'Trigger: wakes the listeners of each domain a statement put jobs into, when signals are on (DP4 §3.2).';

CREATE OR REPLACE TRIGGER trg_job_queue_wake_notify AFTER INSERT ON public.job_queue
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_wake_notify_job_queue();
