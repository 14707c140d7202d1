-- Job subscriptions: what executors may claim. Source: DP6 §3.3.

COMMENT ON TABLE public.job_subscription IS
  'What an executor may claim (DP6 §3.3). NULL means every kind or domain; the most specific enabled row governs a '
  'job: the kind counts more than the domain.';
COMMENT ON COLUMN public.job_subscription.job_kind IS 'NULL = every kind';
COMMENT ON COLUMN public.job_subscription.event_domain IS 'NULL = every domain';
COMMENT ON COLUMN public.job_subscription.priority_floor IS 'claims jobs of this priority and above';
COMMENT ON COLUMN public.job_subscription.max_parallel IS 'most jobs leased at once';
GRANT INSERT, UPDATE ON public.job_subscription TO :"workflow_admin";

CREATE OR REPLACE FUNCTION public.fn_job_subscription_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM public.fn_operator_audit(
    p_action => 'job_subscription_write', p_target => COALESCE(NEW.executor_id, OLD.executor_id),
    p_actor => session_user::text, p_reason => 'written to the table by hand',
    p_before => CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END,
    p_after => CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END,
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  RETURN NULL;
END $$;
COMMENT ON FUNCTION public.fn_job_subscription_audit IS
  'Trigger: audits direct writes to job_subscription.';

CREATE OR REPLACE TRIGGER trg_job_subscription_audit AFTER INSERT OR UPDATE OR DELETE ON public.job_subscription
  FOR EACH ROW WHEN (current_user <> :'queue_owner') EXECUTE FUNCTION public.fn_job_subscription_audit();

 -- the functions write their own audit rows

-- fn_job_subscription_set(executor, kind, domain, floor, parallel, enabled, notes, actor, reason, dry_run) →
-- {subscription_id, created, before, after, audit_id}: creates or changes the executor's job subscription to that kind
-- and domain (NULL = all). Refused: not_found (no such executor); gone (the executor was deregistered); tick_worker
-- (the id is that of a tick worker). An executor cannot give itself a job subscription (DP6 §6).
CREATE OR REPLACE FUNCTION public.fn_job_subscription_set(p_executor_id text, p_job_kind text, p_event_domain text,
  p_priority_floor int,
  p_max_parallel int, p_enabled boolean, p_notes text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
    RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_executor public.queue_heartbeat;
  v_old public.job_subscription;
  v_new public.job_subscription;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_priority_floor IS NULL OR p_priority_floor NOT BETWEEN -32768 AND 32767 THEN
    RAISE EXCEPTION 'p_priority_floor must be -32768 to 32767' USING ERRCODE = '22023';
  ELSIF (p_max_parallel BETWEEN 1 AND 1000000) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_max_parallel must be 1 to 1000000' USING ERRCODE = '22023';
  ELSIF p_enabled IS NULL THEN
    RAISE EXCEPTION 'p_enabled must be true or false' USING ERRCODE = '22023';
  ELSIF p_job_kind !~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' THEN
    RAISE EXCEPTION 'p_job_kind must match ^[A-Za-z][A-Za-z0-9_.:-]{0,99}$ or be null' USING ERRCODE = '22023';
  ELSIF p_event_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$ or be null' USING ERRCODE = '22023';
  END IF;
  -- locked, so that of two sessions that create the same job subscription the second sees the row of the first
  SELECT * INTO v_executor FROM public.queue_heartbeat WHERE executor_id = p_executor_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('no executor %s is registered; qtop executors lists them', left(COALESCE(p_executor_id, ''), 200));
  ELSIF v_executor.deregistered_at IS NOT NULL THEN
    v_rule := 'gone';
    v_why := format('executor %s was deregistered by %s: first register it again with qtop executor register',
      p_executor_id, v_executor.deregistered_by);
  ELSIF v_executor.tick_worker THEN
    v_rule := 'tick_worker';
    v_why := format('%s is a tick worker, which claims no jobs: name an executor', p_executor_id);
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true, 'audit_id', NULL);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => 'job_subscription_set'::text, p_target => left(COALESCE(p_executor_id, ''), 200),
      p_actor => v_actor, p_reason => v_reason, p_rule => v_rule, p_why => v_why)
      || jsonb_build_object('dry_run', false);
  END IF;
  SELECT * INTO v_old FROM public.job_subscription s WHERE s.executor_id = p_executor_id
    AND s.job_kind IS NOT DISTINCT FROM p_job_kind AND s.event_domain IS NOT DISTINCT FROM p_event_domain
    FOR NO KEY UPDATE; -- it may be written by hand, too
  IF v_dry THEN
    v_new := v_old;
    v_new.executor_id := p_executor_id;
    v_new.executor_kind := v_executor.executor_kind;
    v_new.job_kind := p_job_kind;
    v_new.event_domain := p_event_domain;
    v_new.priority_floor := p_priority_floor;
    v_new.max_parallel := p_max_parallel;
    v_new.enabled := p_enabled;
    v_new.notes := p_notes;
  ELSE
    INSERT INTO public.job_subscription AS s (executor_id, executor_kind, job_kind, event_domain, priority_floor,
      max_parallel,
      enabled, notes, registered_by, updated_by)
    VALUES (p_executor_id, v_executor.executor_kind, p_job_kind, p_event_domain, p_priority_floor, p_max_parallel,
      p_enabled, p_notes, v_actor, v_actor)
    ON CONFLICT (executor_id, job_kind, event_domain) DO UPDATE SET executor_kind = excluded.executor_kind,
      priority_floor = excluded.priority_floor, max_parallel = excluded.max_parallel, enabled = excluded.enabled,
      notes = excluded.notes, updated_by = excluded.updated_by, updated_at = now()
    RETURNING * INTO v_new;
    v_audit := public.fn_operator_audit(
      p_action => 'job_subscription_set', p_target => p_executor_id, p_actor => v_actor, p_reason => v_reason,
      p_before => CASE WHEN v_old.subscription_id IS NOT NULL THEN to_jsonb(v_old) END, p_after => to_jsonb(v_new),
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
    PERFORM public.fn_queue_wake('queue_wake_' || COALESCE(p_event_domain, 'system'),
      jsonb_build_object('layer', 'subscription',
      'event_domain', COALESCE(p_event_domain, 'system'), 'worker_hint', 'job_executor', 'count', 1, 'occurred_at',
        clock_timestamp()));
  END IF;
  RETURN jsonb_build_object('subscription_id', v_new.subscription_id, 'created', v_old.subscription_id IS NULL,
    'dry_run', v_dry,
    'before', CASE WHEN v_old.subscription_id IS NOT NULL THEN to_jsonb(v_old)
      END, 'after', to_jsonb(v_new), 'audit_id', v_audit);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_subscription_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_job_subscription_set IS
  'Creates or changes a job subscription: what an executor may claim (DP6 §3.3).';

CREATE OR REPLACE VIEW public.v_executor_subscription_health AS
SELECT js.executor_id, count(*) AS rules, max(js.enabled::int) AS any_enabled
FROM public.job_subscription js GROUP BY js.executor_id;
COMMENT ON VIEW public.v_executor_subscription_health IS
  'Per executor: how many job subscriptions it has and whether any is enabled (DP6 §8).';
GRANT SELECT ON public.v_executor_subscription_health TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON COLUMN public.v_executor_subscription_health.rules IS 'how many job subscriptions the executor has';
COMMENT ON COLUMN public.v_executor_subscription_health.any_enabled IS '1 when at least one is enabled, else 0';
