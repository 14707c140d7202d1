-- The environment of this database: flag queue.environment has the name of the environment and its guard ("prod-eu
-- guarded", "staging open"), or is "unset". In a guarded database an operator must type the name to confirm any change.
-- A profile of the console can guard a database whose flag is open, but cannot remove the guard of a guarded database.

-- fn_queue_environment_value(name, guard) → the value of the flag; raises 22023 for an invalid name or guard. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_environment_value(p_environment text, p_guard text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_value text := p_environment || ' ' || p_guard;
BEGIN
  IF (p_guard IN ('guarded', 'open')) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_guard must be guarded or open' USING ERRCODE = '22023';
  ELSIF v_value IS NULL OR NOT public.fn_cfg_readable('queue.environment'::text, v_value) THEN
    RAISE EXCEPTION 'p_environment must have 1 to 40 letters, digits and . _ -, the first a letter or a digit'
      USING ERRCODE = '22023';
  END IF;
  RETURN v_value;
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_environment_value IS
  'The value of queue.environment for a name and a guard. Internal.';

-- fn_queue_environment_lowers(before, after) → whether a change of the flag removes the guard or changes the name of a
-- guarded database. A value that cannot be read counts as guarded. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_environment_lowers(p_before text, p_after text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN p_before IS DISTINCT FROM p_after AND COALESCE(p_before, 'unset') <> 'unset' AND p_before !~ ' open$';
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_environment_lowers IS
  'Whether a change of queue.environment removes the guard or changes the name of a guarded database. Internal.';

-- fn_queue_environment_put(value, actor, reason) → audit id: writes the flag queue.environment and its audit row.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_environment_put(p_value text, p_actor text, p_reason text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_before text;
BEGIN
  SELECT c.value INTO v_before FROM public.dot_config c WHERE c.key = 'queue.environment' FOR UPDATE;
  INSERT INTO public.dot_config AS c (key, value, updated_at, updated_by)
  VALUES ('queue.environment', p_value, clock_timestamp(), p_actor)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,
    updated_by = excluded.updated_by;
  RETURN public.fn_operator_audit(
    p_action => 'environment_set'::text, p_target => 'queue.environment'::text, p_actor => p_actor,
    p_reason => p_reason, p_filter => NULL::text, p_frozen_count => NULL::bigint,
    p_before => jsonb_build_object('value', v_before), p_after => jsonb_build_object('value', p_value),
    p_outcome => 'done'::text);
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_environment_put IS 'Writes queue.environment and its audit row. Internal.';

-- fn_queue_environment_set(name, guard, confirm, actor, reason, dry_run) → {before, after, confirm, audit_id}: sets the
-- name and the guard (guarded or open). To remove the guard or change the name of a guarded database, confirm must be
-- the current name; a dry run accepts NULL and returns the name to type as confirm. Refused: unchanged (the flag has
-- this value); name (confirm is not the current name).
CREATE OR REPLACE FUNCTION public.fn_queue_environment_set(p_environment text, p_guard text, p_confirm text,
  p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_after text := public.fn_queue_environment_value(p_environment => p_environment, p_guard => p_guard);
  v_before text;
  v_name text;
  v_rule text;
  v_why text;
BEGIN
  IF v_dry THEN
    SELECT c.value INTO v_before FROM public.dot_config c WHERE c.key = 'queue.environment';
  ELSE
    SELECT c.value INTO v_before FROM public.dot_config c WHERE c.key = 'queue.environment' FOR UPDATE;
  END IF;
  IF public.fn_queue_environment_lowers(p_before => v_before, p_after => v_after) THEN
    v_name := regexp_replace(v_before, ' guarded$', '');
  END IF;
  IF v_before = v_after THEN
    v_rule := 'unchanged';
    v_why := format('queue.environment is already "%s"', v_after);
  ELSIF v_name IS NOT NULL AND p_confirm IS DISTINCT FROM v_name AND NOT (v_dry AND p_confirm IS NULL) THEN
    v_rule := 'name';
    v_why := format('this database is guarded: confirm with the name of its environment, %s, not %s', v_name,
      COALESCE(left(p_confirm, 100), '(none)'));
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', v_dry, 'audit_id',
      CASE WHEN NOT v_dry THEN public.fn_operator_audit(
        p_action => 'environment_set'::text, p_target => 'queue.environment'::text, p_actor => v_actor,
        p_reason => v_reason, p_filter => NULL::text, p_frozen_count => NULL::bigint,
        p_before => jsonb_build_object('value', v_before), p_after => jsonb_build_object('value', v_after),
        p_outcome => 'refused: ' || v_rule) END);
  END IF;
  RETURN jsonb_build_object('dry_run', v_dry, 'before', v_before, 'after', v_after, 'confirm', v_name, 'audit_id',
    CASE WHEN NOT v_dry THEN public.fn_queue_environment_put(p_value => v_after, p_actor => v_actor,
      p_reason => v_reason) END);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_environment_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_environment_set IS
  'Sets the name of the environment of this database and whether it is guarded. Removing the guard or changing the '
  'name of a guarded database must be confirmed with its current name.';
