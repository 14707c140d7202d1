-- What the dead letters of webhooks, jobs and events share: whether they are requeued at all.

-- fn_queue_requeue_off(kind) → why no dead letter of this kind is requeued, and how to switch it on; NULL = it is on.
-- kind is that of a bulk operation: requeue_webhook, replay_job, replay_event. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_requeue_off(p_kind text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT format('requeueing is switched off: %1$s is not true; qtop flag set %1$s true --reason R switches it on', f)
  FROM unnest(CASE p_kind WHEN 'replay_event' THEN '{queue.dlq.replay_enabled,iu_core.routes_master_enabled}'
    ELSE '{queue.dlq.replay_enabled}' END::text[]) WITH ORDINALITY AS x (f, n)
  WHERE NOT public.fn_cfg_bool(f) ORDER BY n LIMIT 1
$fn$;
COMMENT ON FUNCTION public.fn_queue_requeue_off IS
  'Why dead letters of a kind are not requeued now, and the command that switches it on; NULL = they are. Internal.';

-- fn_queue_requeue_refusal(kind, action, how many, actor, reason, dry run) → NULL, or the refusal to requeue
-- dead letters: rule clone, or rule disabled (fn_queue_requeue_off); audited unless it is a dry run. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_requeue_refusal(p_kind text, p_action text, p_count int, p_actor text,
  p_reason text, p_dry_run boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_target text := format('%s dead letters', p_count);
  v_refused jsonb := public.fn_queue_clone_refusal(p_action, v_target, p_actor, p_reason, p_dry_run);
  v_off text := public.fn_queue_requeue_off(p_kind);
  v_audit bigint;
BEGIN
  IF v_refused IS NOT NULL OR v_off IS NULL THEN
    RETURN v_refused;
  END IF;
  IF NOT p_dry_run THEN
    v_audit := public.fn_operator_audit(
      p_action => p_action, p_target => v_target, p_actor => p_actor, p_reason => p_reason, p_filter => NULL::text,
      p_frozen_count => p_count::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb,
      p_outcome => 'refused: disabled'::text);
  END IF;
  RETURN jsonb_build_object('refused', true, 'rule', 'disabled', 'dry_run', p_dry_run, 'audit_id', v_audit, 'reason',
    v_off);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_requeue_refusal IS
  'Refuses to requeue dead letters if this database is a copy or requeueing is switched off. Internal.';
