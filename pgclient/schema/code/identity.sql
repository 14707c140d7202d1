-- Copies: a restored dump, a copy made from a template, or a database of a cluster that was upgraded with pg_upgrade. A
-- copy contains the waiting work of its original, and the original does that work too. Therefore nothing is claimed or
-- sent in a copy until an operator adopts it. A promoted standby, a restart and a renamed database keep the system
-- identifier of the cluster and the oid of the database, and are not copies.

COMMENT ON TABLE public.queue_identity IS
  'The identity of this database when migrate up first ran in it, or when qtop adopt last adopted it. One row. If it '
  'differs from what the server reports, this database is a copy (fn_queue_clone_of).';
COMMENT ON COLUMN public.queue_identity.system_identifier IS
  'system identifier of the cluster, from pg_control_system()';
COMMENT ON COLUMN public.queue_identity.database_oid IS 'oid of the database in that cluster';
COMMENT ON COLUMN public.queue_identity.database_name IS
  'only for display: a renamed database is not a copy; NULL = the name of the original is not known';
COMMENT ON COLUMN public.queue_identity.recorded_by IS
  'the login of migrate up, or the person who adopted the database';
COMMENT ON COLUMN public.queue_identity.reason IS 'why the identity was recorded';
GRANT SELECT ON public.queue_identity TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";

-- fn_queue_clone_of() → NULL, or one line that names the original of this copy and the command to run. Every function
-- that hands out work or sends calls it first, at each call; fn_job_claim contains the same condition. It reads the
-- system identifier from the control file each time, because a user could change any value that a session caches. A
-- missing row counts as a copy. Internal.
CREATE OR REPLACE FUNCTION public.fn_queue_clone_of() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_recorded public.queue_identity;
BEGIN
  SELECT * INTO v_recorded FROM public.queue_identity;
  IF v_recorded.database_oid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND v_recorded.system_identifier = (SELECT s.system_identifier FROM pg_control_system() s) THEN
    RETURN NULL;
  END IF;
  RETURN format('CLONE OF %s: run qtop adopt --waiting keep|suspend|cancel --reason R; until then nothing is '
    'claimed or sent here (after pg_upgrade or a move by logical replication it is needed once)',
    COALESCE(v_recorded.database_name || format(' (recorded %s)',
      to_char(v_recorded.recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
      'a database whose name is not recorded'));
END
$fn$;
COMMENT ON FUNCTION public.fn_queue_clone_of IS
  'What this database is a copy of, and what to do; null if it is not a copy. Internal.';

-- fn_queue_adopt(waiting, database, actor, reason, dry_run, environment, guard) → {waiting, database, was, jobs,
-- jobs_leased, webhooks, endpoints, operations, cancelled, suspended, paused, switched_off: [flag], audit_id}: makes a
-- copy an independent database. database: its name, typed by the operator as a confirmation (a dry run accepts NULL).
-- waiting: what happens to the work that came with the copy:
--   keep     all of it continues here.
--   suspend  none of it continues: every endpoint is suspended, running bulk operations are paused, and the flags
--            queue.job_substrate.enabled and iu_core.routes_master_enabled are switched off for good.
--   cancel   every job is cancelled, including those that hosts of the original hold; endpoints, bulk operations and
--            iu_core.routes_master_enabled as for suspend (waiting events would create jobs).
-- environment and guard: the new value of queue.environment; required if that flag still names the original.
-- The counts of a dry run are those that the adoption would have. If two adoptions run at once, one adopts and the
-- other is refused. Refused: no_clone (the database is not a copy); name (database is not its name); environment (the
-- flag still names the original's environment, and no new one is given).
CREATE OR REPLACE FUNCTION public.fn_queue_adopt(p_waiting text, p_database text, p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false, p_environment text DEFAULT NULL, p_guard text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_clone text;
  v_original text := (SELECT c.value FROM public.dot_config c WHERE c.key = 'queue.environment');
  v_environment text;
  v_before public.queue_identity;
  v_after public.queue_identity;
  v_rule text;
  v_why text;
  v_out jsonb;
  v_flags text[] := CASE p_waiting WHEN 'suspend'
    THEN ARRAY['queue.job_substrate.enabled', 'iu_core.routes_master_enabled']
    WHEN 'cancel' THEN ARRAY['iu_core.routes_master_enabled'] ELSE ARRAY[]::text[] END;
  v_flag text;
  v_ids uuid[];
  v_operation bigint;
  v_operations bigint[] := ARRAY[]::bigint[];
  v_cancelled bigint := 0;
  v_suspended bigint := 0;
BEGIN
  IF p_waiting IS NULL OR p_waiting NOT IN ('keep', 'suspend', 'cancel') THEN
    RAISE EXCEPTION 'p_waiting must be keep, suspend or cancel' USING ERRCODE = '22023',
      HINT = 'of the work copied from the original, keep runs it here, suspend holds it back, cancel cancels the jobs';
  END IF;
  IF p_environment IS NOT NULL OR p_guard IS NOT NULL THEN
    v_environment := public.fn_queue_environment_value(p_environment => p_environment, p_guard => p_guard);
  END IF;
  IF NOT v_dry THEN
    LOCK TABLE public.queue_identity IN SHARE ROW EXCLUSIVE MODE;
  END IF;
  v_clone := public.fn_queue_clone_of();
  SELECT * INTO v_before FROM public.queue_identity;
  IF v_clone IS NULL THEN
    v_rule := 'no_clone';
    v_why := format('database %s is not a clone, so there is nothing to adopt: %s recorded its identity at %s',
      current_database(),
      v_before.recorded_by, to_char(v_before.recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'));
  ELSIF p_database IS DISTINCT FROM current_database() AND NOT (v_dry AND p_database IS NULL) THEN
    v_rule := 'name';
    v_why := format('the name of this database is %s, not %s', current_database(),
      COALESCE(left(p_database, 100), '(none)'));
  ELSIF v_environment IS NULL AND v_original <> 'unset' THEN
    v_rule := 'environment';
    v_why := format('this copy still has the environment of its original, %s: set a new one with --environment NAME '
      '--guard guarded|open', v_original);
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', v_dry, 'audit_id',
      CASE WHEN NOT v_dry THEN public.fn_operator_audit(
        p_action => 'adopt'::text, p_target => 'database ' || current_database(), p_actor => v_actor,
        p_reason => v_reason, p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => to_jsonb(v_before),
        p_after => NULL::jsonb, p_outcome => 'refused: ' || v_rule) END);
  END IF;

  -- a flag that is off for a while would switch itself on again
  v_flags := ARRAY(SELECT f FROM unnest(v_flags) f WHERE public.fn_cfg_bool(f)
    OR EXISTS (SELECT FROM public.dot_config_revert r WHERE r.key = f) ORDER BY f);
  IF p_waiting <> 'keep' THEN
    v_operations := ARRAY(SELECT o.operation_id FROM public.queue_bulk_operation o WHERE o.state = 'running'
      ORDER BY o.operation_id);
    SELECT count(*) INTO v_suspended FROM public.subscriptions s
    LEFT JOIN public.webhook_endpoint_suspensions x ON x.subscription_id = s.id
    WHERE x.subscription_id IS NULL OR x.reason = 'circuit' OR x.until IS NOT NULL;
  END IF;
  v_out := jsonb_build_object('action', 'adopt', 'dry_run', v_dry, 'waiting', p_waiting, 'database',
    current_database(), 'was', v_clone, 'environment', COALESCE(v_environment, v_original),
    'jobs', (SELECT count(*) FROM public.job_queue q WHERE q.status NOT IN ('leased', 'in_progress')),
    'jobs_leased', (SELECT count(*) FROM public.job_queue q WHERE q.status IN ('leased', 'in_progress')),
    'webhooks', (SELECT COALESCE(sum(c.n), 0) FROM public.v_queue_counter c
      WHERE c.scope = 'saga' AND c.k2 IN ('Pending', 'PendingRetry', 'InProgress')),
    'endpoints', (SELECT count(*) FROM public.subscriptions),
    'operations', (SELECT count(*) FROM public.queue_bulk_operation o WHERE o.state = 'running'));
  IF v_dry THEN
    RETURN v_out || jsonb_build_object('suspended', v_suspended, 'paused', cardinality(v_operations), 'switched_off',
      to_jsonb(v_flags), 'cancelled', CASE WHEN p_waiting = 'cancel'
      THEN (v_out ->> 'jobs')::bigint + (v_out ->> 'jobs_leased')::bigint ELSE 0 END);
  END IF;

  FOREACH v_operation IN ARRAY v_operations LOOP
    PERFORM public.fn_queue_bulk_turn(v_operation, 'pause'::text, '{running}'::text[], 'paused'::text, v_actor);
  END LOOP;
  IF p_waiting = 'cancel' THEN
    -- Only hosts of the original hold leases in a copy.
    PERFORM 1 FROM public.job_lease l ORDER BY l.lease_token FOR UPDATE;
    LOOP
      v_ids := ARRAY(SELECT q.job_id FROM public.job_queue q ORDER BY q.job_id LIMIT 10000 FOR UPDATE);
      EXIT WHEN v_ids = '{}';
      PERFORM public.fn_job_finish(v_ids, NULL::uuid[], 'cancelled'::text);
      v_cancelled := v_cancelled + cardinality(v_ids);
    END LOOP;
  END IF;
  IF p_waiting <> 'keep' THEN
    PERFORM 1 FROM public.webhook_endpoint_state t ORDER BY t.subscription_id FOR UPDATE;
    INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, since, until, by, note)
    SELECT s.id, 'operator', clock_timestamp(), NULL, v_actor, v_reason FROM public.subscriptions s ORDER BY s.id
    ON CONFLICT (subscription_id) DO UPDATE SET reason = EXCLUDED.reason, since = EXCLUDED.since, until = NULL,
      by = EXCLUDED.by, note = EXCLUDED.note, probe_job_id = NULL, probe_until = NULL
    WHERE x.reason = 'circuit' OR x.until IS NOT NULL;
    GET DIAGNOSTICS v_suspended = ROW_COUNT;
  END IF;
  FOREACH v_flag IN ARRAY v_flags LOOP
    PERFORM public.fn_dot_config_set(
      p_key => v_flag, p_value => 'false'::text, p_actor => v_actor, p_reason => v_reason,
      p_expires_at => NULL::timestamptz, p_expected_updated_at => NULL::timestamptz);
  END LOOP;
  PERFORM public.fn_routing_restart(false);
  DELETE FROM public.queue_identity;
  INSERT INTO public.queue_identity (system_identifier, database_oid, database_name, recorded_by, reason)
  SELECT s.system_identifier, d.oid, d.datname, v_actor, v_reason
  FROM pg_control_system() s JOIN pg_database d ON d.datname = current_database()
  RETURNING * INTO v_after;
  IF v_environment IS NOT NULL AND v_environment IS DISTINCT FROM v_original THEN
    PERFORM public.fn_queue_environment_put(p_value => v_environment, p_actor => v_actor, p_reason => v_reason);
  END IF;
  PERFORM public.fn_webhook_slow_start_begin(NULL::bigint[], 'the database was adopted'::text, true);
  v_out := v_out || jsonb_build_object('suspended', v_suspended, 'paused', cardinality(v_operations), 'switched_off',
    to_jsonb(v_flags), 'cancelled', v_cancelled);
  RETURN v_out || jsonb_build_object('audit_id', public.fn_operator_audit(
    p_action => 'adopt'::text, p_target => 'database ' || current_database(), p_actor => v_actor,
    p_reason => v_reason, p_filter => NULL::text, p_frozen_count => (v_cancelled + v_suspended)::bigint,
    p_before => to_jsonb(v_before), p_after => to_jsonb(v_after) || (v_out - ARRAY['action', 'dry_run', 'was']),
    p_outcome => 'done'::text));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_adopt TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_adopt IS
  'Makes a copy an independent database and decides what happens to the work that came with it.';
