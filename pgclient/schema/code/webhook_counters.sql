-- Webhooks: triggers that count sagas, jobs and open dead letters, and check conditions across rows.

-- These triggers run once per statement, after the statement. They check conditions across rows, write the counter
-- deltas, and maintain the derived table dead_letter_open. The key of a time bucket (k3) is the epoch of its start, in
-- seconds.
CREATE OR REPLACE FUNCTION public.fn_webhook_saga_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_minute text := (floor(extract(epoch FROM now()) / 60) * 60)::bigint::text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- If an event is dead for a subscription, only requeueing its dead letter delivers it again, never a second
    -- routing. OFFSET 0 makes the planner look up one row at a time, however many dead letters there are.
    IF EXISTS (SELECT 1 FROM new_rows n WHERE n.requeued_from_dead_letter_id IS NULL AND EXISTS (
        SELECT 1 FROM public.dead_letters d WHERE d.event_id = n.event_id
          AND d.subscription_id = n.subscription_id OFFSET 0))
      OR EXISTS (SELECT 1 FROM new_rows n WHERE n.requeued_from_dead_letter_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM public.dead_letters d WHERE d.id = n.requeued_from_dead_letter_id
          AND (d.event_id, d.subscription_id) <> (n.event_id, n.subscription_id) OFFSET 0)) THEN
      RAISE EXCEPTION 'cannot insert a saga: its event already has a dead letter for its webhook subscription'
        USING ERRCODE = '42501', HINT = 'requeue that dead letter instead: qtop requeue ID';
    END IF;
    IF EXISTS (SELECT 1 FROM new_rows n WHERE EXISTS (
        SELECT 1 FROM public.webhook_erasure x WHERE x.event_id = n.event_id OFFSET 0)) THEN
      RAISE EXCEPTION 'cannot insert a saga: its event was erased, so there is no payload to deliver'
        USING ERRCODE = '42501';
    END IF;
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    WITH a AS (SELECT subscription_id::text AS sub, count(*) AS n FROM new_rows GROUP BY subscription_id)
    SELECT 'saga', sub, 'Pending', '', n FROM a
    UNION ALL SELECT 'arrived_1m', sub, '', v_minute, n FROM a;
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
    WITH moved AS MATERIALIZED (
      SELECT subscription_id, status, sum(n) AS n FROM (
        SELECT subscription_id, status, -count(*) AS n FROM old_rows GROUP BY 1, 2
        UNION ALL SELECT subscription_id, status, count(*) FROM new_rows GROUP BY 1, 2) b
      GROUP BY 1, 2 HAVING sum(n) <> 0)
    SELECT 'saga', subscription_id::text, status::text, '', n FROM moved
    UNION ALL SELECT 'drained_1m', subscription_id::text, '', v_minute, sum(n) FROM moved
      WHERE status IN ('Completed', 'DeadLettered') GROUP BY subscription_id
    UNION ALL SELECT CASE status WHEN 'Completed' THEN 'delivered_1m' ELSE 'dead_1m' END, '', '', v_minute,
      sum(n) FROM moved WHERE status IN ('Completed', 'DeadLettered') GROUP BY status;
  ELSE
    INSERT INTO public.queue_counter_recent (scope, k1, k2, n)
    SELECT 'saga', subscription_id::text, status::text, -count(*)
    FROM old_rows GROUP BY subscription_id, status;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_saga_counted IS
  'Trigger: counts saga, arrived_1m, drained_1m, delivered_1m and dead_1m; refuses a saga for an event and '
  'subscription that have a dead letter (except its requeue), and one of an erased event.';

CREATE OR REPLACE TRIGGER trg_saga_inserted AFTER INSERT ON public.webhook_delivery_sagas
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();
CREATE OR REPLACE TRIGGER trg_saga_updated AFTER UPDATE ON public.webhook_delivery_sagas
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();
CREATE OR REPLACE TRIGGER trg_saga_deleted AFTER DELETE ON public.webhook_delivery_sagas
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_saga_counted();

CREATE OR REPLACE FUNCTION public.fn_webhook_job_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_n bigint;
  v_sagas bigint[];
BEGIN
  IF TG_OP = 'INSERT' THEN
    -- An array and scalar lookups, not a join: the planner may cache a plan that starts from all sagas.
    SELECT array_agg(saga_id) INTO v_sagas FROM new_rows;
    -- FOR SHARE: if a saga is ending in another transaction, this insert waits for that end, or that end waits for this
    -- insert. So no job is added to an ended saga.
    PERFORM 1 FROM (SELECT s.status FROM public.webhook_delivery_sagas s WHERE s.id = ANY (v_sagas)
      ORDER BY s.id OFFSET 0 FOR SHARE) x -- OFFSET 0: else only sagas that have ended would be locked
      WHERE x.status IN ('Completed', 'DeadLettered');
    IF FOUND OR EXISTS (SELECT 1 FROM new_rows n WHERE n.subscription_id IS DISTINCT FROM
        (SELECT s.subscription_id FROM public.webhook_delivery_sagas s WHERE s.id = n.saga_id)) THEN
      RAISE EXCEPTION 'cannot insert a job: its saga is Completed or DeadLettered, or has another subscription_id'
        USING ERRCODE = '42501', HINT = 'fn_saga_orchestrator_run makes the jobs of sagas that are due (R02)';
    END IF;
    INSERT INTO public.queue_counter_recent (scope, k1, n)
    SELECT 'webhook_job', 'Pending', count(*) FROM new_rows HAVING count(*) > 0;
    RETURN NULL;
  END IF;
  INSERT INTO public.queue_counter_recent (scope, k1, n)
  SELECT 'webhook_job', status::text, sum(n) FROM (
    SELECT status, -count(*) AS n FROM old_rows GROUP BY status
    UNION ALL SELECT status, count(*) FROM new_rows GROUP BY status) x
  GROUP BY status HAVING sum(n) <> 0;
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  SELECT count(*) INTO v_n FROM new_rows WHERE status IN ('Completed', 'Failed') AND settled_at IS NULL;
  IF v_n > 0 THEN
    PERFORM public.fn_queue_wake('queue_wake_webhook', jsonb_build_object('layer', 'job',
      'event_domain', 'webhook', 'count', v_n, 'worker_hint', 'saga_orchestrator', 'occurred_at', now()));
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_job_counted IS
  'Trigger: counts webhook_job; refuses a job for an ended saga; a finished job wakes the orchestrator.';

CREATE OR REPLACE TRIGGER trg_job_inserted AFTER INSERT ON public.webhook_delivery_jobs
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_job_counted();
CREATE OR REPLACE TRIGGER trg_job_updated AFTER UPDATE ON public.webhook_delivery_jobs
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_job_counted();

CREATE OR REPLACE FUNCTION public.fn_webhook_letter_born() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM new_rows n
      JOIN public.webhook_delivery_sagas s ON s.id = n.saga_id JOIN public.events e ON e.id = n.event_id
      WHERE s.status <> 'DeadLettered' OR (s.event_id, s.subscription_id, s.final_error_code)
        <> (n.event_id, n.subscription_id, n.final_error_code) OR e.payload <> n.payload_snapshot) THEN
    RAISE EXCEPTION 'cannot insert a dead letter that differs from its saga, or whose payload differs from its event'
      USING ERRCODE = '42501', HINT = 'fn_saga_orchestrator_run writes dead letters: leave them to it (R02)';
  END IF;
  INSERT INTO public.dead_letter_open (dead_letter_id, final_error_code, subscription_id, failed_at)
  SELECT id, final_error_code, subscription_id, failed_at FROM new_rows;
  INSERT INTO public.queue_counter_recent (scope, k1, k2, k3, n)
  SELECT 'dead_webhook_5m', final_error_code, subscription_id::text,
    (floor(extract(epoch FROM failed_at) / 300) * 300)::bigint::text, count(*)
  FROM new_rows GROUP BY 2, 3, 4;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_letter_born IS
  'Trigger: checks that a dead letter repeats its saga and payload, opens it, counts dead_webhook_5m (R02 §3.1).';

CREATE OR REPLACE TRIGGER trg_dead_letter_born AFTER INSERT ON public.dead_letters
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_born();

CREATE OR REPLACE FUNCTION public.fn_webhook_letter_closed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    DELETE FROM public.dead_letter_open o USING new_rows n WHERE o.dead_letter_id = n.dead_letter_id;
  ELSE
    INSERT INTO public.dead_letter_open (dead_letter_id, final_error_code, subscription_id, failed_at)
    SELECT d.id, d.final_error_code, d.subscription_id, d.failed_at
    FROM old_rows r JOIN public.dead_letters d ON d.id = r.dead_letter_id
    WHERE NOT EXISTS (SELECT 1 FROM public.dead_letter_requeues q WHERE q.dead_letter_id = d.id)
      AND NOT EXISTS (SELECT 1 FROM public.dead_letter_resolutions x WHERE x.dead_letter_id = d.id)
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_letter_closed IS
  'Trigger: removes a requeued or resolved dead letter from dead_letter_open; an undo adds it again.';

CREATE OR REPLACE TRIGGER trg_requeue_closes AFTER INSERT ON public.dead_letter_requeues
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE OR REPLACE TRIGGER trg_requeue_undone AFTER DELETE ON public.dead_letter_requeues
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE OR REPLACE TRIGGER trg_resolution_closes AFTER INSERT ON public.dead_letter_resolutions
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();
CREATE OR REPLACE TRIGGER trg_resolution_undone AFTER DELETE ON public.dead_letter_resolutions
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_letter_closed();

CREATE OR REPLACE FUNCTION public.fn_webhook_open_counted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_sign int := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
BEGIN
  INSERT INTO public.queue_counter_recent (scope, k1, k2, n)
  SELECT 'dead_webhook', final_error_code, subscription_id::text, v_sign * count(*)
  FROM changed_rows GROUP BY final_error_code, subscription_id;
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_webhook_open_counted IS
  'Trigger: counts dead_webhook, the open dead letters by code and webhook subscription.';

CREATE OR REPLACE TRIGGER trg_dead_open_inserted AFTER INSERT ON public.dead_letter_open
  REFERENCING NEW TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_open_counted();
CREATE OR REPLACE TRIGGER trg_dead_open_deleted AFTER DELETE ON public.dead_letter_open
  REFERENCING OLD TABLE AS changed_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_webhook_open_counted();
