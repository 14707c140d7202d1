-- pg_cron as the scheduler of ticks: the functions that create, show and remove its cron jobs. Sources: DP1 §4.3,
-- P3D4C1.

COMMENT ON TABLE public.queue_cron_job IS
  'The pg_cron jobs of DP1 §4.3 and P3D4C1, each the tick of one worker. run_as: the login that owns the job; '
  'null = not installed. pg_cron shows a job only to its owner and to superusers; everybody else can see this '
  'table.';
COMMENT ON COLUMN public.queue_cron_job.schedule IS 'a cron expression';
COMMENT ON COLUMN public.queue_cron_job.run_as IS
  'the login that installed the job and as which it runs; NULL = not installed';
GRANT SELECT ON public.queue_cron_job TO :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator";

-- fn_queue_scheduler_lacks() → one line: why the caller cannot use pg_cron in this database and how to change that; ''
-- = the caller can. It runs with the caller's rights, because a cron job belongs to the login that creates it and runs
-- as that login: queue_owner cannot log in.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_lacks() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_load text := format('set shared_preload_libraries = ''pg_cron'' and cron.database_name = %L and restart the '
    'server', current_database());
  v_create text := format('as a superuser: CREATE EXTENSION pg_cron in %I', current_database());
  v_cron_database text;
  v_hidden boolean := false;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_available_extensions WHERE name = 'pg_cron') THEN
    RETURN format('pg_cron is not on this server: install its package (Debian: postgresql-%s-cron), %s; then, %s',
      current_setting('server_version_num')::int / 10000, v_load, v_create);
  END IF;
  BEGIN
    v_cron_database := current_setting('cron.database_name', true);
  EXCEPTION WHEN insufficient_privilege THEN
    v_hidden := true; -- pg_cron is loaded, but this login may not read the name of its database
  END;
  IF v_cron_database IS NULL AND NOT v_hidden THEN
    RETURN format('pg_cron is not loaded: %s; then, %s', v_load, v_create);
  ELSIF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron') THEN
    IF v_cron_database <> current_database() THEN
      RETURN format('pg_cron runs in database %I (cron.database_name), not here: set cron.database_name = %L, '
        'restart, and %s; '
        'or, as a superuser, create the jobs there with cron.schedule_in_database(…, %L)',
        v_cron_database, current_database(), v_create, current_database());
    END IF;
    RETURN format('pg_cron is loaded but not created here: %s (cron.database_name must name it)', v_create);
  ELSIF NOT has_schema_privilege('cron', 'USAGE') THEN
    RETURN format('%I may not use pg_cron: as a superuser, GRANT USAGE ON SCHEMA cron TO %I', current_user,
      current_user);
  ELSIF NOT (SELECT r.rolcanlogin FROM pg_roles r WHERE r.rolname = current_user) THEN
    RETURN format('%I cannot log in, and a cron job runs as the login that created it: connect as the login that is to '
      'own the jobs, without SET ROLE', current_user);
  END IF;
  RETURN '';
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_lacks TO :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator", :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_scheduler_lacks IS
  'Why the caller cannot use pg_cron in this database, with the remedy; empty = it can.';

-- fn_queue_cron_jobs() → one row per cron job of qtop, with the columns that pg_cron shows to the caller. found NULL:
-- unknown, because pg_cron shows a job only to its owner and to superusers.
CREATE OR REPLACE FUNCTION public.fn_queue_cron_jobs() RETURNS TABLE (
  job_name text, worker_name text, schedule text, run_as text, installed_at timestamptz, installed_by text,
  found boolean, active boolean, last_start_at timestamptz, last_status text, last_message text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_cron CONSTANT text := 'cron'; -- the schema may be missing, so static SQL must not name it
  v_superuser boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user);
BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron') THEN
    RETURN QUERY SELECT q.job_name, q.worker_name, q.schedule, q.run_as, q.installed_at, q.installed_by,
      false, NULL::boolean, NULL::timestamptz, NULL::text, NULL::text FROM public.queue_cron_job q ORDER BY q.job_name;
  ELSIF NOT has_schema_privilege('cron', 'USAGE') THEN
    RETURN QUERY SELECT q.job_name, q.worker_name, q.schedule, q.run_as, q.installed_at, q.installed_by,
      NULL::boolean, NULL::boolean, NULL::timestamptz, NULL::text, NULL::text FROM public.queue_cron_job q
        ORDER BY q.job_name;
  ELSE
    RETURN QUERY EXECUTE format($sql$
      SELECT q.job_name, q.worker_name, q.schedule, q.run_as, q.installed_at, q.installed_by,
        CASE WHEN c.jobid IS NOT NULL THEN true WHEN $1 OR q.run_as IS NULL OR q.run_as = current_user THEN false END,
        c.active, d.start_time, d.status, d.return_message
      FROM public.queue_cron_job q
      LEFT JOIN %1$I.job c ON c.jobname = q.job_name AND c.database = current_database()
        AND c.username = COALESCE(q.run_as, current_user)
      LEFT JOIN LATERAL (SELECT r.start_time, r.status, r.return_message FROM %1$I.job_run_details r
        WHERE r.jobid = c.jobid ORDER BY r.runid DESC LIMIT 1) d ON true
      ORDER BY q.job_name $sql$, c_cron) USING v_superuser;
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_cron_jobs TO :"queue_viewer", :"workflow_admin", :"dead_letter_operator",
  :"dot_executor";
COMMENT ON FUNCTION public.fn_queue_cron_jobs IS
  'The pg_cron jobs of the queue, their owner, and how their last run ended, as far as the caller may see.';

-- fn_queue_scheduler_claim(install, login, actor, reason, outcome per job) → {audit_id}: records the owner of the cron
-- jobs and writes the audit row. Only fn_queue_scheduler_install and fn_queue_scheduler_remove may call it. These two
-- run with the caller's rights, because pg_cron creates a job for its caller and shows it to no other role. Therefore
-- workflow_admin may call this function too, and it checks that the next line of the call stack is one of the two. The
-- text before the signature in such a line is in the language of the server, and the same in both lines.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_claim(
  p_install boolean, p_run_as text, p_actor text, p_reason text, p_outcomes jsonb, p_outcome text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_allowed text := CASE WHEN p_install THEN 'fn_queue_scheduler_install' ELSE 'fn_queue_scheduler_remove' END;
  v_stack text;
  v_function text;
  v_caller text;
  v_before jsonb;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  v_function := rtrim(split_part(v_stack, 'public', 1), '"');
  v_caller := split_part(v_stack, E'\n', 2);
  IF NOT (starts_with(v_caller, format('%spublic.%s(text,text,boolean)', v_function, v_allowed))
    -- with quotes if quote_all_identifiers is on
    OR starts_with(v_caller, format('%s"public"."%s"("text","text",boolean)', v_function, v_allowed))) THEN
    RAISE EXCEPTION 'fn_queue_scheduler_claim only records what % did: call % instead', v_allowed,
      v_allowed USING ERRCODE = '42501';
  END IF;
  SELECT jsonb_build_object('run_as', max(q.run_as), 'jobs', count(q.run_as)) INTO v_before
    FROM public.queue_cron_job q;
  IF p_outcome = 'done' THEN
    UPDATE public.queue_cron_job SET run_as = CASE WHEN p_install THEN p_run_as END,
      installed_at = CASE WHEN p_install THEN clock_timestamp() END, installed_by = CASE WHEN p_install
        THEN public.fn_operator_actor(p_actor) END;
    PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'config', 'event_domain', 'system',
      'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  END IF;
  RETURN public.fn_operator_audit(
    p_action => CASE WHEN p_install THEN 'scheduler_install' ELSE 'scheduler_remove' END, p_target => 'pg_cron',
    p_actor => public.fn_operator_actor(p_actor), p_reason => public.fn_operator_reason(p_reason),
    p_before => v_before,
    p_after => jsonb_build_object('run_as', CASE WHEN p_install THEN p_run_as END, 'jobs', p_outcomes),
    p_outcome => p_outcome, p_filter => NULL::text, p_frozen_count => NULL::bigint);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_claim TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_scheduler_claim IS
  'Records the owner of the cron jobs, and writes the audit row of installing or removing them.';

-- fn_queue_scheduler_wait() waits for other sessions that install or remove cron jobs. SECURITY DEFINER: install and
-- remove run with the caller's rights, which do not allow them to lock a lease.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_wait() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_queue_lease_wait('cron_jobs'::text);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_wait TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_scheduler_wait IS 'Waits for other sessions that install or remove cron jobs.';

-- fn_queue_scheduler_install(actor, reason, dry run) → {results: [{id, outcome: created|changed|kept}], run_as, mode,
-- audit_id}. Refused: no_pg_cron (this login cannot use pg_cron here); not_yours (another login has installed the
-- jobs); name_taken (a cron job of another database has the name). Each job is one call of
-- fn_queue_tick_request(worker, 'pg_cron') as the caller. A second call changes only jobs that differ.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_install(p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_cron CONSTANT text := 'cron';
  v_dry boolean := COALESCE(p_dry_run, true);
  v_rule text;
  v_why text := public.fn_queue_scheduler_lacks();
  v_job public.queue_cron_job;
  v_command text;
  v_is jsonb;
  v_outcome text;
  v_results jsonb := '[]'::jsonb;
  v_audit bigint;
BEGIN
  PERFORM public.fn_queue_scheduler_wait(); -- two admins may install at once
  IF v_why <> '' THEN
    v_rule := 'no_pg_cron';
  ELSE
    SELECT q.* INTO v_job FROM public.queue_cron_job q WHERE q.run_as <> current_user LIMIT 1;
    IF FOUND THEN
      v_rule := 'not_yours';
      v_why := format('the cron jobs of this database run as %s, installed at %s by %s: first run qtop scheduler '
        'remove as that login or as a superuser', v_job.run_as,
        to_char(v_job.installed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), v_job.installed_by);
    END IF;
  END IF;
  IF v_rule IS NULL THEN
    FOR v_job IN SELECT q.* FROM public.queue_cron_job q ORDER BY q.job_name LOOP
      v_command := format(
        'SELECT public.fn_queue_tick_request(%L::pg_catalog.text, ''pg_cron''::pg_catalog.text)', v_job.worker_name);
      EXECUTE format('SELECT to_jsonb(c) FROM %I.job c WHERE c.jobname = $1 AND c.username = current_user', c_cron)
        INTO v_is USING v_job.job_name;
      IF v_is ->> 'database' <> current_database() THEN
        v_rule := 'name_taken';
        v_why := format('login %s already has a cron job named %s, for database %s: unschedule that one, or use '
          'another login',
          current_user, v_job.job_name, v_is ->> 'database');
        EXIT;
      END IF;
      v_outcome := CASE WHEN v_is IS NULL THEN 'created'
        WHEN v_is @> jsonb_build_object('schedule', v_job.schedule, 'command', v_command, 'active', true) THEN 'kept'
          ELSE 'changed' END;
      v_results := v_results || jsonb_build_object('id', v_job.job_name, 'outcome',
        CASE WHEN v_dry AND v_outcome <> 'kept' THEN 'would_' || left(v_outcome, -1) ELSE v_outcome END);
      CONTINUE WHEN v_dry OR v_outcome = 'kept';
      IF v_outcome = 'changed' THEN -- create it again: cron.schedule would not enable a disabled job
        EXECUTE format('SELECT %I.unschedule($1)', c_cron) USING (v_is ->> 'jobid')::bigint;
      END IF;
      EXECUTE format('SELECT %I.schedule($1, $2, $3)', c_cron) USING v_job.job_name, v_job.schedule, v_command;
    END LOOP;
  END IF;
  IF NOT v_dry THEN
    v_audit := public.fn_queue_scheduler_claim(
      p_install => true, p_run_as => current_user::text, p_actor => p_actor, p_reason => p_reason,
      p_outcomes => v_results, p_outcome => COALESCE('refused: ' || v_rule, 'done'));
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'audit_id', v_audit);
  END IF;
  RETURN jsonb_build_object('results', v_results, 'run_as', current_user, 'audit_id', v_audit,
    'mode', (SELECT value FROM public.dot_config WHERE key = 'queue.scheduler.mode'));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_install TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_scheduler_install IS
  'Creates the six pg_cron jobs (DP1 §4.3 and iu-notification-worker), which run as the caller. Refusals: no_pg_cron, '
  'not_yours, name_taken.';

-- fn_queue_scheduler_remove(actor, reason, dry run) → {results: [{id, outcome: removed|absent}], audit_id}. Refused:
-- not_yours (another login owns the jobs), no_pg_cron. A superuser can remove the jobs of any owner.
CREATE OR REPLACE FUNCTION public.fn_queue_scheduler_remove(p_actor text, p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_cron CONSTANT text := 'cron'; -- the schema may be missing, so static SQL must not name it
  v_dry boolean := COALESCE(p_dry_run, true);
  v_superuser boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user);
  v_installed boolean := EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron');
  v_rule text;
  v_why text;
  v_job public.queue_cron_job;
  v_ids bigint[];
  v_id bigint;
  v_results jsonb := '[]'::jsonb;
  v_audit bigint;
BEGIN
  PERFORM public.fn_queue_scheduler_wait();
  SELECT q.* INTO v_job FROM public.queue_cron_job q WHERE q.run_as <> current_user LIMIT 1;
  IF v_installed AND NOT has_schema_privilege('cron', 'USAGE') THEN
    v_rule := 'no_pg_cron';
    v_why := public.fn_queue_scheduler_lacks();
  ELSIF FOUND AND v_installed AND NOT v_superuser THEN
    v_rule := 'not_yours';
    v_why := format('the cron jobs run as %s: remove them as that login or as a superuser', v_job.run_as);
  ELSE
    FOR v_job IN SELECT q.* FROM public.queue_cron_job q ORDER BY q.job_name LOOP
      v_ids := NULL;
      IF v_installed THEN
        EXECUTE format('SELECT array_agg(jobid ORDER BY jobid) FROM %I.job WHERE jobname = $1 AND database = '
          'current_database()', c_cron)
          INTO v_ids USING v_job.job_name;
      END IF;
      v_results := v_results || jsonb_build_object('id', v_job.job_name, 'outcome',
        CASE WHEN v_ids IS NULL THEN 'absent' WHEN v_dry THEN 'would_remove' ELSE 'removed' END);
      CONTINUE WHEN v_dry OR v_ids IS NULL;
      FOREACH v_id IN ARRAY v_ids LOOP
        EXECUTE format('SELECT %I.unschedule($1)', c_cron) USING v_id;
      END LOOP;
    END LOOP;
  END IF;
  IF NOT v_dry THEN
    v_audit := public.fn_queue_scheduler_claim(
      p_install => false, p_run_as => current_user::text, p_actor => p_actor, p_reason => p_reason,
      p_outcomes => v_results, p_outcome => COALESCE('refused: ' || v_rule, 'done'));
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'audit_id', v_audit);
  END IF;
  RETURN jsonb_build_object('results', v_results, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_queue_scheduler_remove TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_queue_scheduler_remove IS
  'Unschedules the pg_cron jobs of the queue in this database. Refusals: not_yours, no_pg_cron.';
