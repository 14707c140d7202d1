-- Webhooks: deletion of events past their retention, and erasure of the content of an event. Both are exceptions to
-- R02 §3.1, by which these rows never change: the triggers of webhook_tables.sql find these functions, by their
-- signatures, in the call stack.

COMMENT ON TABLE public.webhook_erasure IS
  'Webhook events that were erased: payload and payload_snapshot are {}, response_excerpt is NULL. They are not '
  'delivered again.';
COMMENT ON COLUMN public.webhook_erasure.erased_by IS 'the person as named by the caller; the audit row has the reason';
GRANT SELECT ON public.webhook_erasure TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin";

-- fn_called_from(signature) → whether the function with this full signature is in the call stack. The text around
-- signatures is in the language of the server. Internal.
CREATE OR REPLACE FUNCTION public.fn_called_from(p_signature text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  RETURN strpos(replace(v_stack, '"', ''), p_signature) > 0; -- the quotes come from quote_all_identifiers
END $$;
COMMENT ON FUNCTION public.fn_called_from IS
  'Whether the function with this signature is in the call stack. Internal.';

-- fn_webhook_settled(events, before, dead letters) → the ids of those events that may be deleted. Such an event was
-- created before `before` and is routed, to every recipient: none is set aside or pending after a failure; each of its
-- sagas ended before `before`; each of its dead letters was requeued, or resolved before `before`, and none of them is
-- in the list of dead letters. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_settled(p_events bigint[], p_before timestamptz, p_dead_letters bigint[])
  RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_failed bigint[] := ARRAY(SELECT split_part(t, '/', 1)::bigint
    FROM unnest(public.fn_queue_step_except('webhook_route'::text)) t);
BEGIN
  RETURN ARRAY(SELECT e.id
    FROM public.events e, public.router_offsets o, public.queue_cursor c
    WHERE e.id = ANY (p_events) AND e.created_at < p_before AND o.restored_after_id IS NULL
      AND NOT public.fn_routing_moved(c, o.system_identifier)
      AND c.worker_name = 'webhook_router' AND c.event_domain = 'webhook'
      AND (e.id <= o.restored_through_id OR pg_visible_in_snapshot(e.created_xid, c.routed))
      AND e.id <> ALL (v_failed)
      AND NOT EXISTS (SELECT FROM public.webhook_delivery_sagas s WHERE s.event_id = e.id
        AND (s.status NOT IN ('Completed', 'DeadLettered') OR s.updated_at >= p_before))
      AND NOT EXISTS (SELECT FROM public.dead_letters d WHERE d.event_id = e.id AND (d.id = ANY (p_dead_letters)
        OR NOT EXISTS (SELECT FROM public.dead_letter_requeues q WHERE q.dead_letter_id = d.id)
        AND NOT EXISTS (SELECT FROM public.dead_letter_resolutions x
          WHERE x.dead_letter_id = d.id AND x.at < p_before)))
    ORDER BY e.id);
END $$;
COMMENT ON FUNCTION public.fn_webhook_settled IS 'The webhook events that may be deleted. Internal.';

-- fn_webhook_purge(after, before, dead letters, only) → (last_id, over, deleted): reads the next 1,000 events by id, or
-- the events in only, and deletes those that fn_webhook_settled returns, each completely: with all generations of its
-- sagas and their jobs, dead letters, requeues and resolutions. over: true = no later event is old enough. Rows that
-- another session has locked stay until the next run. One statement deletes everything: foreign keys are checked at its
-- end, so that generations may refer to each other, and no dead letter becomes open because its requeue was deleted.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_purge(p_after bigint, p_before timestamptz, p_dead_letters bigint[],
  p_only bigint[] DEFAULT NULL, OUT last_id bigint, OUT over boolean, OUT deleted bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_ids bigint[];
  v_dead_letters bigint[];
BEGIN
  SELECT array_agg(n.id), max(n.id), count(*) < 1000 OR bool_and(n.created_at >= p_before)
  INTO v_ids, last_id, over
  FROM (SELECT e.id, e.created_at FROM public.events e WHERE e.id > p_after AND p_only IS NULL ORDER BY e.id
    LIMIT 1000) n;
  v_ids := public.fn_webhook_settled(COALESCE(p_only, v_ids), p_before, p_dead_letters);
  -- A new saga locks its event; a requeue, resolution or reopening locks its dead letter. So a second call of
  -- fn_webhook_settled, after these rows are locked here, sees all such changes.
  v_ids := ARRAY(SELECT e.id FROM public.events e WHERE e.id = ANY (v_ids) ORDER BY e.id FOR UPDATE SKIP LOCKED);
  v_dead_letters := ARRAY(SELECT d.id FROM public.dead_letters d WHERE d.event_id = ANY (v_ids) ORDER BY d.id
    FOR UPDATE SKIP LOCKED);
  v_ids := ARRAY(SELECT unnest(v_ids) EXCEPT SELECT d.event_id FROM public.dead_letters d
    WHERE d.event_id = ANY (v_ids) AND d.id <> ALL (v_dead_letters));
  v_ids := public.fn_webhook_settled(v_ids, p_before, p_dead_letters);
  WITH sagas AS MATERIALIZED (
    SELECT s.id FROM public.webhook_delivery_sagas s WHERE s.event_id = ANY (v_ids)
  ), dead_ids AS MATERIALIZED (
    SELECT d.id FROM public.dead_letters d WHERE d.event_id = ANY (v_ids)
  ), jobs AS (
    DELETE FROM public.webhook_delivery_jobs j USING sagas s WHERE j.saga_id = s.id RETURNING j.status
  ), counted AS (
    INSERT INTO public.queue_counter_recent (scope, k1, n)
    SELECT 'webhook_job', j.status::text, -count(*) FROM jobs j GROUP BY j.status
  ), requeues AS (
    DELETE FROM public.dead_letter_requeues q USING dead_ids i WHERE q.dead_letter_id = i.id
  ), resolutions AS (
    DELETE FROM public.dead_letter_resolutions x USING dead_ids i WHERE x.dead_letter_id = i.id
  ), dead AS (
    DELETE FROM public.dead_letters d USING dead_ids i WHERE d.id = i.id
  ), ended AS (
    DELETE FROM public.webhook_delivery_sagas s USING sagas x WHERE s.id = x.id
  ), erased AS (
    DELETE FROM public.webhook_erasure x WHERE x.event_id = ANY (v_ids)
  )
  DELETE FROM public.events e WHERE e.id = ANY (v_ids);
  GET DIAGNOSTICS deleted = ROW_COUNT;
END $$;
COMMENT ON FUNCTION public.fn_webhook_purge IS
  'Deletes the settled events among the next 1,000 webhook events, with all that belongs to them. Internal.';

-- fn_webhook_pending_dead_letters() → the dead letters that a bulk operation has not processed yet. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_pending_dead_letters() RETURNS bigint[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN ARRAY(SELECT i.target::bigint FROM public.queue_bulk_operation o
    JOIN public.queue_bulk_operation_item i ON i.operation_id = o.operation_id
    WHERE o.state = ANY ('{planned,running,paused}'::text[]) AND i.outcome IS NULL AND i.target !~ ':');
END $$;
COMMENT ON FUNCTION public.fn_webhook_pending_dead_letters IS
  'Dead letters that a bulk operation has not processed yet. Internal.';

-- fn_webhook_retention_sweep(after) → {webhooks, webhooks_after}: deletes events older than retention.webhooks_days,
-- except events with a dead letter that a bulk operation has not processed yet. It continues after the event id
-- `after`, through at most 100,000 events or for 10 s. webhooks_after: the id after which the next run continues; '0' =
-- from the start. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_retention_sweep(p_after bigint) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_before timestamptz := public.fn_queue_retention_before('retention.webhooks_days');
  v_until timestamptz := clock_timestamp() + interval '10 seconds';
  v_pending bigint[] := public.fn_webhook_pending_dead_letters();
  v_excepted bigint[] := public.fn_queue_step_except('sweep_webhooks'::text)::bigint[];
  v_step record;
  v_late boolean;
  v_ids bigint[];
  v_after bigint := p_after;
  v_deleted bigint := 0;
BEGIN
  FOR v_round IN 1..100 LOOP
    v_late := false;
    v_ids := ARRAY(SELECT e.id FROM public.events e WHERE e.id > v_after AND v_excepted <> '{}'
      ORDER BY e.id LIMIT 1000);
    BEGIN
      IF v_ids && v_excepted THEN
        SELECT p.deleted, cardinality(v_ids) < 1000 AS over, v_ids[cardinality(v_ids)] AS last_id INTO v_step
        FROM public.fn_webhook_purge(0::bigint, v_before, v_pending,
          ARRAY(SELECT unnest(v_ids) EXCEPT SELECT unnest(v_excepted))) p;
      ELSE
        SELECT * INTO v_step FROM public.fn_webhook_purge(v_after, v_before, v_pending, NULL::bigint[]);
      END IF;
    EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
      v_late := public.fn_queue_step_late(SQLSTATE::text);
      IF v_late IS NULL THEN
        RAISE;
      END IF;
      v_ids := ARRAY(SELECT e.id FROM public.events e WHERE e.id > v_after ORDER BY e.id LIMIT 1000);
      SELECT 0::bigint AS deleted, cardinality(v_ids) < 1000 AS over, v_ids[cardinality(v_ids)] AS last_id INTO v_step;
      PERFORM public.fn_queue_step_part('sweep_webhooks'::text, public.fn_webhook_settled(v_ids, v_before,
        v_pending)::text[]);
    END;
    v_deleted := v_deleted + v_step.deleted;
    v_after := CASE WHEN v_step.over THEN 0 ELSE v_step.last_id END;
    EXIT WHEN v_late OR v_step.over OR clock_timestamp() > v_until;
  END LOOP;
  IF v_late THEN
    RETURN jsonb_build_object('webhooks', v_deleted, 'webhooks_after', v_after::text, 'timed_out', true);
  END IF;
  RETURN public.fn_queue_step_sum(jsonb_build_object('webhooks', v_deleted, 'webhooks_after', v_after::text),
    public.fn_queue_step_rest('sweep_webhooks'::text));
END $$;
COMMENT ON FUNCTION public.fn_webhook_retention_sweep IS
  'Deletes webhook events that are past retention.webhooks_days. Internal.';

-- fn_webhook_event_erase(event, actor, reason, dry_run) → {action, dry_run, event_id, event_type, created_at,
-- deliveries, dead_letters, excerpts, audit_id}: empties the payload of the event, the payload_snapshot of its
-- dead letters and the response_excerpt of its jobs, irrevocably. Neither the result nor the audit row holds the erased
-- content. Refused: not_found; erased (it was erased before); unsettled (a delivery of the event is not finished).
-- Backups, the WAL and the receivers keep their copies.
CREATE OR REPLACE FUNCTION public.fn_webhook_event_erase(p_event_id bigint, p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_target text := 'event:' || COALESCE(p_event_id::text, '(null)');
  v_rule text;
  v_why text;
  v_out jsonb;
BEGIN
  IF NOT v_dry THEN
    -- Locks in the order of a requeue: the dead letters, then the event, which each new saga and dead letter locks too.
    PERFORM 1 FROM public.dead_letters d WHERE d.event_id = p_event_id ORDER BY d.id FOR UPDATE;
    PERFORM 1 FROM public.events e WHERE e.id = p_event_id FOR UPDATE;
  END IF;
  SELECT jsonb_build_object('action', 'erase', 'dry_run', v_dry, 'event_id', e.id, 'event_type', e.event_type,
    'created_at', e.created_at, 'deliveries', count(s.id), 'dead_letters', count(d.id), 'excerpts',
    COALESCE(sum((SELECT count(j.response_excerpt) FROM public.webhook_delivery_jobs j WHERE j.saga_id = s.id)), 0)),
    CASE WHEN x.event_id IS NOT NULL THEN 'erased'
      WHEN bool_or(s.status NOT IN ('Completed', 'DeadLettered')) THEN 'unsettled' END,
    CASE WHEN x.event_id IS NOT NULL THEN format('event %s was erased by %s at %s', e.id, x.erased_by,
        to_char(x.erased_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      ELSE (SELECT format('saga %s of event %s is %s: wait until its delivery ends', u.id, e.id, u.status)
        FROM public.webhook_delivery_sagas u WHERE u.event_id = e.id AND u.status NOT IN ('Completed', 'DeadLettered')
        ORDER BY u.id LIMIT 1) END
  INTO v_out, v_rule, v_why
  FROM public.events e
  LEFT JOIN public.webhook_erasure x ON x.event_id = e.id
  LEFT JOIN public.webhook_delivery_sagas s ON s.event_id = e.id
  LEFT JOIN public.dead_letters d ON d.saga_id = s.id
  WHERE e.id = p_event_id GROUP BY e.id, x.event_id;
  IF v_out IS NULL THEN
    v_rule := 'not_found';
    v_why := 'there is no webhook ' || v_target;
  END IF;
  IF v_rule IS NOT NULL AND v_dry THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true);
  ELSIF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(p_action => 'webhook_event_erase'::text, p_target => v_target,
      p_actor => v_actor, p_reason => v_reason, p_rule => v_rule, p_why => v_why);
  ELSIF v_dry THEN
    RETURN v_out;
  END IF;
  INSERT INTO public.webhook_erasure (event_id, erased_by) VALUES (p_event_id, v_actor);
  UPDATE public.events SET payload = '{}' WHERE id = p_event_id;
  UPDATE public.dead_letters SET payload_snapshot = '{}' WHERE event_id = p_event_id;
  UPDATE public.webhook_delivery_jobs j SET response_excerpt = NULL
  FROM public.webhook_delivery_sagas s
  WHERE s.event_id = p_event_id AND j.saga_id = s.id AND j.response_excerpt IS NOT NULL;
  RETURN v_out || jsonb_build_object('audit_id', public.fn_operator_audit(
    p_action => 'webhook_event_erase'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
    p_filter => NULL::text, p_frozen_count => 1::bigint, p_before => NULL::jsonb,
    p_after => v_out - ARRAY['action', 'dry_run'], p_outcome => 'done'::text));
END $$;
GRANT EXECUTE ON FUNCTION public.fn_webhook_event_erase TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_webhook_event_erase IS
  'Empties the payload of a webhook event wherever it is stored; an exception to R02 §3.1.';
