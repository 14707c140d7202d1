-- The registry of event types: a workflow_admin registers a type with its stream and lane. Source: DP4 §3.5.

-- fn_event_type_set(domain, type, stream, lane, worker, active, description, actor, reason, dry_run) → {event_domain,
-- event_type, created, before, after, audit_id}: registers an event type or changes it; NULL keeps the current value.
-- From then on every event of the type must have this stream and lane; events of an inactive type are refused. Refused:
-- ours (types that only qtop emits), not_found (a new type without a stream or a lane), worker (one that does not
-- route the domain: the signals of its events would wake the wrong route worker).
CREATE OR REPLACE FUNCTION public.fn_event_type_set(p_event_domain text, p_event_type text, p_event_stream text,
  p_delivery_lane text, p_worker_name text, p_active boolean, p_description text, p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_target text := concat(left(p_event_domain, 51), '/', left(p_event_type, 200));
  v_old public.event_type_registry;
  v_new public.event_type_registry;
  v_there boolean;
  v_worker text := COALESCE(
    (SELECT o.worker_name FROM public.iu_outbound_route o WHERE o.event_domain = p_event_domain),
    CASE p_event_domain WHEN 'staging' THEN 'staging_outbound' ELSE 'iu_outbound_default' END);
  v_rule text;
  v_audit bigint;
BEGIN
  IF COALESCE(p_event_domain, '') !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$' USING ERRCODE = '22023';
  ELSIF COALESCE(p_event_type, '') !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_event_type must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_event_stream !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_event_stream must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' USING ERRCODE = '22023';
  ELSIF p_delivery_lane NOT IN ('immediate', 'delayed') THEN
    RAISE EXCEPTION 'p_delivery_lane must be immediate or delayed' USING ERRCODE = '22023';
  ELSIF p_worker_name NOT IN ('iu_outbound_default', 'staging_outbound') THEN
    RAISE EXCEPTION 'p_worker_name must be iu_outbound_default or staging_outbound' USING ERRCODE = '22023';
  ELSIF length(p_description) > 500 THEN
    RAISE EXCEPTION 'p_description must have at most 500 characters' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN -- if two sessions register the same type at once, the second one sees the row of the first
    PERFORM public.fn_queue_lease_wait('event_type_registry'::text);
  END IF;
  SELECT * INTO v_old FROM public.event_type_registry r
  WHERE (r.event_domain, r.event_type) = (p_event_domain, p_event_type);
  v_there := FOUND;
  v_new := v_old;
  v_new.event_domain := p_event_domain;
  v_new.event_type := p_event_type;
  v_new.event_stream := COALESCE(p_event_stream, v_old.event_stream);
  v_new.delivery_lane := COALESCE(p_delivery_lane, v_old.delivery_lane);
  v_new.worker_name := COALESCE(p_worker_name, v_old.worker_name);
  v_new.active := COALESCE(p_active, v_old.active, true);
  v_new.description := COALESCE(p_description, v_old.description, '');
  v_rule := CASE WHEN public.fn_event_ours(p_event_domain, p_event_type) THEN 'ours'
    WHEN num_nulls(v_new.event_stream, v_new.delivery_lane) > 0 THEN 'not_found'
    WHEN p_worker_name <> v_worker THEN 'worker' END;
  IF v_rule IS NOT NULL THEN
    IF NOT v_dry THEN
      v_audit := public.fn_operator_audit(
        p_action => 'event_type_set'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
        p_outcome => 'refused: ' || v_rule,
        p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb);
    END IF;
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'dry_run', v_dry, 'audit_id', v_audit, 'reason',
      CASE v_rule WHEN 'ours' THEN format('event type %s is emitted only by qtop and cannot be changed', v_target)
      WHEN 'worker' THEN format('%s routes the events of domain %s, not %s', v_worker, p_event_domain, p_worker_name)
      ELSE format('event type %s is not registered: a new one needs a stream and a delivery lane', v_target) END);
  END IF;
  IF NOT v_dry THEN
    INSERT INTO public.event_type_registry VALUES (v_new.*)
    ON CONFLICT (event_domain, event_type) DO UPDATE SET event_stream = excluded.event_stream,
      delivery_lane = excluded.delivery_lane, worker_name = excluded.worker_name, active = excluded.active,
      description = excluded.description;
    v_audit := public.fn_operator_audit(
      p_action => 'event_type_set'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_before => CASE WHEN v_there THEN to_jsonb(v_old) END, p_after => to_jsonb(v_new),
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('event_domain', p_event_domain, 'event_type', p_event_type, 'created', NOT v_there,
    'dry_run', v_dry, 'before', CASE WHEN v_there THEN to_jsonb(v_old) END, 'after', to_jsonb(v_new),
    'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_type_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_type_set IS
  'Registers an event type, or changes its stream, lane, route worker, description or whether it is active.';
