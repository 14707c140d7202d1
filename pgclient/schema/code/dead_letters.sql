-- Whether failed work is requeued at all: dead letters of webhooks, jobs and events, and staged notifications.

-- fn_queue_requeue_off(kind) → why nothing of this kind is requeued, and how to switch it on; NULL = it is on. kind is
-- that of a bulk operation (requeue_webhook, replay_job, replay_event, resolve) or requeue_notification. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_requeue_off(p_kind text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT format('requeueing is switched off: %1$s is not true; qtop flag set %1$s true --reason R switches it on', f)
  FROM unnest(CASE WHEN p_kind IN ('requeue_webhook', 'replay_job') THEN '{queue.dlq.replay_enabled}'
    WHEN p_kind = 'replay_event' THEN '{queue.dlq.replay_enabled,iu_core.routes_master_enabled}'
    ELSE '{}' END::text[]) WITH ORDINALITY AS x (f, n)
  WHERE NOT public.fn_cfg_bool(f) ORDER BY n LIMIT 1
$fn$;
COMMENT ON FUNCTION public.fn_queue_requeue_off IS
  'Why nothing of a kind is requeued now, and the command that switches it on; NULL = it is. Internal.';

-- fn_queue_requeue_refusal(kind, action, target, actor, reason, dry run) → NULL, or the refusal to requeue: rule clone,
-- or rule disabled (fn_queue_requeue_off); audited unless it is a dry run. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_requeue_refusal(p_kind text, p_action text, p_target text, p_actor text,
  p_reason text, p_dry_run boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_clone text := public.fn_queue_clone_of();
  v_why text := COALESCE(v_clone, public.fn_queue_requeue_off(p_kind));
  v_rule text := CASE WHEN v_clone IS NULL THEN 'disabled' ELSE 'clone' END;
BEGIN
  IF v_why IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN jsonb_build_object('dry_run', p_dry_run) || CASE WHEN p_dry_run
    THEN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'audit_id', NULL::bigint)
    ELSE public.fn_operator_refused(p_action => p_action, p_target => p_target, p_actor => p_actor,
      p_reason => p_reason, p_rule => v_rule, p_why => v_why) END;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_requeue_refusal IS
  'Refuses to requeue if this database is a copy or requeueing is switched off. Internal.';
