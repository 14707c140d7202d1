-- Which roles may enqueue jobs for an executor kind. A workflow_admin sets them. Source: DP6 §1.4.

-- fn_executor_producer_set(kind, role, allowed, actor, reason, dry_run) → {executor_kind, before, after, audit_id}:
-- names a role whose members may enqueue for the kind, or removes it. before and after are the roles named for the
-- kind. While no role is named, every role that may enqueue may do so. refused: role (it does not exist), unchanged.
CREATE OR REPLACE FUNCTION public.fn_executor_producer_set(p_executor_kind text, p_producer_role text,
  p_allowed boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_target text := concat(left(p_executor_kind, 60), ' ', left(p_producer_role, 63));
  v_before text[];
  v_after text[];
  v_rule text;
  v_audit bigint;
BEGIN
  IF p_executor_kind IS NULL OR p_executor_kind NOT IN (:executor_kinds) THEN
    RAISE EXCEPTION 'p_executor_kind must be %', public.fn_words(ARRAY[:executor_kinds], 'or') USING ERRCODE = '22023';
  ELSIF COALESCE(p_producer_role, '') = '' OR p_allowed IS NULL THEN
    RAISE EXCEPTION 'p_producer_role and p_allowed are needed' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM public.fn_queue_lease_wait('executor_producer'::text);
  END IF;
  v_before := ARRAY(SELECT p.producer_role FROM public.executor_producer p
    WHERE p.executor_kind = p_executor_kind ORDER BY p.producer_role);
  v_after := ARRAY(SELECT DISTINCT r FROM unnest(CASE WHEN p_allowed THEN v_before || p_producer_role
    ELSE array_remove(v_before, p_producer_role) END) r ORDER BY r);
  -- a role that was dropped can be removed, but not added
  v_rule := CASE
    WHEN p_allowed AND NOT EXISTS (SELECT FROM pg_roles r
      WHERE r.rolname = public.fn_queue_role_name(p_producer_role)) THEN 'role'
    WHEN v_before = v_after THEN 'unchanged' END;
  IF v_rule IS NULL AND NOT v_dry THEN
    IF p_allowed THEN
      INSERT INTO public.executor_producer (executor_kind, producer_role) VALUES (p_executor_kind, p_producer_role);
    ELSE
      DELETE FROM public.executor_producer p
      WHERE p.executor_kind = p_executor_kind AND p.producer_role = p_producer_role;
    END IF;
  END IF;
  IF NOT v_dry THEN
    v_audit := public.fn_operator_audit(
      p_action => 'executor_producer_set'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_before => jsonb_build_object('roles', v_before), p_after => CASE WHEN v_rule IS NULL
        THEN jsonb_build_object('roles', v_after) END, p_outcome => COALESCE('refused: ' || v_rule, 'done'),
      p_filter => NULL::text, p_frozen_count => NULL::bigint);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'dry_run', v_dry, 'audit_id', v_audit, 'reason',
      CASE v_rule WHEN 'role' THEN format('there is no role %s in this cluster',
        left(public.fn_queue_role_name(p_producer_role), 63))
      ELSE format('role %s is %s the producers of executor kind %s already', left(p_producer_role, 63),
        CASE WHEN p_allowed THEN 'among' ELSE 'not among' END, p_executor_kind) END);
  END IF;
  RETURN jsonb_build_object('executor_kind', p_executor_kind, 'dry_run', v_dry, 'before', v_before, 'after', v_after,
    'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_executor_producer_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_executor_producer_set IS
  'Names a role whose members may enqueue for an executor kind, or removes it (DP6 §1.4).';
