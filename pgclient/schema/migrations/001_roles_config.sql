-- Roles, the configuration table with its setter, the operator audit, and what
-- masks secrets in foreign text.
-- Sources: DP1 §8 (dot_config), DP4 §7, DP6 §7 (off switches).

-- ---------------------------------------------------------------------------
-- Roles. NOLOGIN groups, made if missing, never dropped by the down part:
-- logins of other databases in the cluster may be members.
-- ---------------------------------------------------------------------------
DO $do$
DECLARE
  v_role text;
BEGIN
  FOREACH v_role IN ARRAY ARRAY[
    'queue_owner', 'queue_viewer', 'dot_executor', 'workflow_admin', 'dead_letter_operator',
    'event_ingest_writer', 'router_worker', 'saga_orchestrator', 'webhook_worker',
    'lease_reset_cleaner', 'subscription_admin']
  LOOP
    BEGIN
      IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
        EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', v_role);
      END IF;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
      NULL; -- made by a migration of another database at the same moment
    END;
  END LOOP;

  IF NOT pg_catalog.pg_has_role(current_user, 'queue_owner', 'USAGE') THEN
    EXECUTE pg_catalog.format('GRANT queue_owner TO %I', current_user);
  END IF;

  -- Who looks at a held cursor wants to know which session holds it. Only a
  -- role that owns pg_read_all_stats may hand it on; without it the panes say
  -- what they cannot see.
  BEGIN
    GRANT pg_read_all_stats TO queue_owner, queue_viewer;
  EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'pg_read_all_stats not granted: held cursors will show without their session';
  END;
END
$do$;

GRANT USAGE, CREATE ON SCHEMA public TO queue_owner;
GRANT USAGE ON SCHEMA public TO
  queue_viewer, dot_executor, workflow_admin, dead_letter_operator, event_ingest_writer,
  router_worker, saga_orchestrator, webhook_worker, lease_reset_cleaner, subscription_admin;

SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------
-- The operator audit: append-only for everybody, the owner included.
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_operator_action (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at           timestamptz NOT NULL DEFAULT now(),
  actor        text NOT NULL,
  db_role      text NOT NULL DEFAULT session_user,
  client_addr  inet DEFAULT inet_client_addr(),
  action       text NOT NULL,
  target       text NOT NULL,
  filter       text,
  frozen_count bigint,
  reason       text,
  before       jsonb,
  after        jsonb,
  outcome      text NOT NULL
);
CREATE INDEX ix_queue_operator_action_target ON public.queue_operator_action (target, id DESC);
COMMENT ON TABLE public.queue_operator_action IS
  'Who did what, why, before and after. actor is the person claimed; db_role and client_addr come from the '
  'session. Append-only: every operator function writes its row in its own transaction.';

CREATE FUNCTION public.fn_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused for every role', TG_TABLE_NAME, TG_OP
    USING ERRCODE = '42501', HINT = 'rows of this table never change; correct them by a new row';
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_refuse_change() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_refuse_change() IS
  'Trigger function of append-only tables: refuses UPDATE, DELETE and TRUNCATE, whoever asks.';

CREATE TRIGGER trg_queue_operator_action_immutable
  BEFORE UPDATE OR DELETE ON public.queue_operator_action
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
CREATE TRIGGER trg_queue_operator_action_no_truncate
  BEFORE TRUNCATE ON public.queue_operator_action
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

GRANT SELECT ON public.queue_operator_action TO
  queue_viewer, workflow_admin, dead_letter_operator, subscription_admin;

-- fn_operator_actor(name) → the trimmed name; 22023 when it says nothing.
CREATE FUNCTION public.fn_operator_actor(p_actor text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF COALESCE(btrim(p_actor), '') = '' OR length(p_actor) > 200 THEN
    RAISE EXCEPTION 'p_actor must name a person, with 1 to 200 characters' USING ERRCODE = '22023';
  END IF;
  RETURN btrim(p_actor);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_operator_actor(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_operator_actor(text) IS 'Checks and trims the person an operator function acts for.';

-- fn_operator_reason(text) → the trimmed reason; 22023 when it says nothing.
CREATE FUNCTION public.fn_operator_reason(p_reason text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF COALESCE(btrim(p_reason), '') = '' OR length(p_reason) > 2000 THEN
    RAISE EXCEPTION 'a reason is needed, with 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  RETURN btrim(p_reason);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_operator_reason(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_operator_reason(text) IS 'Checks and trims the reason given to an operator function.';

-- fn_operator_audit(…) → id of the audit row. Internal: db_role and client_addr
-- are read from the session, so that nobody can write them.
CREATE FUNCTION public.fn_operator_audit(
  p_action text, p_target text, p_actor text, p_reason text,
  p_filter text DEFAULT NULL, p_frozen_count bigint DEFAULT NULL,
  p_before jsonb DEFAULT NULL, p_after jsonb DEFAULT NULL, p_outcome text DEFAULT 'done')
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_id bigint;
BEGIN
  INSERT INTO public.queue_operator_action
    (actor, action, target, filter, frozen_count, reason, before, after, outcome)
  VALUES
    (p_actor, p_action, p_target, p_filter, p_frozen_count, p_reason, p_before, p_after, p_outcome)
  RETURNING id INTO v_id;
  RETURN v_id;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_operator_audit(text, text, text, text, text, bigint, jsonb, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_operator_audit(text, text, text, text, text, bigint, jsonb, jsonb, text) IS
  'Writes one operator audit row in the caller''s transaction. Internal.';

-- ---------------------------------------------------------------------------
-- Configuration
-- ---------------------------------------------------------------------------
CREATE TABLE public.dot_config (
  key         text PRIMARY KEY,
  value       text NOT NULL,
  description text NOT NULL DEFAULT '',
  updated_at  timestamptz NOT NULL DEFAULT now(),
  updated_by  text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE public.dot_config IS
  'Flags and numbers that steer the queue (DP1 §4.2). Change them with fn_dot_config_set: it validates, '
  'audits and can give a value an expiry. An unreadable value counts as the safe side.';

CREATE TABLE public.dot_config_rule (
  key           text PRIMARY KEY,
  kind          text NOT NULL CHECK (kind IN ('boolean', 'integer', 'mode')),
  default_value text NOT NULL,
  choices       text[],
  switch        boolean NOT NULL DEFAULT false
);
COMMENT ON TABLE public.dot_config_rule IS
  'What fn_dot_config_set admits per key. switch: at false (or 0) something of the queue is switched off, '
  'which the console shows above everything else.';

CREATE TABLE public.dot_config_revert (
  key        text PRIMARY KEY,
  set_value  text NOT NULL,
  set_at     timestamptz NOT NULL,
  revert_to  text NOT NULL,
  revert_at  timestamptz NOT NULL,
  set_by     text NOT NULL,
  reason     text NOT NULL
);
COMMENT ON TABLE public.dot_config_revert IS
  'Values that expire: at revert_at the key goes back to revert_to, unless somebody changed it since.';

INSERT INTO public.dot_config_rule (key, kind, default_value, choices, switch)
SELECT 'queue.tick.' || w || '.interval_seconds', 'integer', s::text, NULL, true
FROM (VALUES
  ('iu_outbound_default', 60), ('staging_outbound', 60), ('job_queue_default', 30),
  ('stale_heartbeat_check', 120), ('staging_cleanup_sweep', 3600), ('lease_reaper', 60),
  ('iu_notification_worker', 120), ('webhook_router', 5), ('saga_orchestrator', 5), ('webhook_worker', 1),
  ('lease_reset_cleaner', 30), ('metrics_sampler', 60), ('counter_compactor', 1),
  ('bulk_operation_runner', 1), ('config_expiry', 30), ('retention_sweep', 3600)) AS t (w, s);

INSERT INTO public.dot_config_rule (key, kind, default_value, choices, switch) VALUES
  ('queue.heartbeat.stale_threshold_seconds', 'integer', '300', NULL, false),
  ('queue.notify.bridge_enabled', 'boolean', 'false', NULL, false),
  ('queue.scheduler.mode', 'mode', 'external', ARRAY['external', 'pg_cron', 'hybrid'], false),
  ('queue.subscription_resolution.enabled', 'boolean', 'true', NULL, true),
  ('queue.subscription_resolution.broadcast_warn_percent', 'integer', '5', NULL, false),
  ('queue.job_substrate.enabled', 'boolean', 'true', NULL, true),
  ('queue.dlq.replay_enabled', 'boolean', 'true', NULL, true),
  ('queue.lease.duration_seconds', 'integer', '300', NULL, false),
  ('queue.lease.reaper_enabled', 'boolean', 'true', NULL, true),
  ('queue.retry.backoff_base_seconds', 'integer', '10', NULL, false),
  ('queue.retry.backoff_cap_seconds', 'integer', '3600', NULL, false),
  ('queue.retry.max_attempts_default', 'integer', '5', NULL, false),
  ('iu_core.routes_master_enabled', 'boolean', 'true', NULL, true),
  ('iu_core.route_worker_enabled', 'boolean', 'true', NULL, true),
  ('notification.debounce_seconds', 'integer', '90', NULL, false),
  ('notification.batch_piece_threshold', 'integer', '2', NULL, false),
  ('webhook.worker.enabled', 'boolean', 'true', NULL, true),
  ('webhook.max_attempts', 'integer', '5', NULL, false),
  ('webhook.backoff_base_seconds', 'integer', '30', NULL, false),
  ('webhook.backoff_cap_seconds', 'integer', '3600', NULL, false),
  ('webhook.lease_seconds', 'integer', '60', NULL, false),
  ('webhook.timeout_seconds', 'integer', '30', NULL, false),
  ('webhook.circuit_failures', 'integer', '10', NULL, false),
  ('webhook.circuit_open_seconds', 'integer', '30', NULL, false),
  ('retention.events_days', 'integer', '90', NULL, false),
  ('retention.jobs_days', 'integer', '90', NULL, false),
  ('retention.dead_letters_days', 'integer', '365', NULL, false),
  ('retention.staging_days', 'integer', '15', NULL, false),
  ('retention.samples_days', 'integer', '30', NULL, false);

INSERT INTO public.dot_config (key, value, description, updated_by)
SELECT r.key, r.default_value, COALESCE(d.description, 'how often the ' || split_part(r.key, '.', 3)
       || ' tick runs, in seconds; 0 = off'), 'migration'
FROM public.dot_config_rule r
LEFT JOIN (VALUES
  ('queue.heartbeat.stale_threshold_seconds', 'a row registered without a threshold gets this one; from 1000000 on the stale check emits nothing'),
  ('queue.notify.bridge_enabled', 'NOTIFY wakes listeners at once; off = everything runs by polling. Each notifying commit takes a cluster-wide lock'),
  ('queue.scheduler.mode', 'who ticks: external (worker hosts), pg_cron, or hybrid (both)'),
  ('queue.subscription_resolution.enabled', 'off = every event goes to broadcast'),
  ('queue.subscription_resolution.broadcast_warn_percent', 'a broadcast share above this raises an alert, in percent'),
  ('queue.job_substrate.enabled', 'off = no job is claimed'),
  ('queue.dlq.replay_enabled', 'off = nothing is requeued or replayed'),
  ('queue.lease.duration_seconds', 'how long a job lease lasts, in seconds'),
  ('queue.lease.reaper_enabled', 'off = expired job leases are not taken back'),
  ('queue.retry.backoff_base_seconds', 'first wait before a job is tried again, in seconds; doubles per attempt'),
  ('queue.retry.backoff_cap_seconds', 'longest wait before a job is tried again, in seconds'),
  ('queue.retry.max_attempts_default', 'tries of a job that names no number of its own'),
  ('iu_core.routes_master_enabled', 'off = no event is routed'),
  ('iu_core.route_worker_enabled', 'off = the event route workers do not run'),
  ('notification.debounce_seconds', 'how long staged notifications wait for more, in seconds; clamped to 60-300'),
  ('notification.batch_piece_threshold', 'pieces from which notifications are grouped; clamped to 2-50'),
  ('webhook.worker.enabled', 'off = no webhook is routed or sent'),
  ('webhook.max_attempts', 'tries of a webhook whose subscription names no number of its own'),
  ('webhook.backoff_base_seconds', 'first wait before a webhook is tried again, in seconds; doubles per attempt'),
  ('webhook.backoff_cap_seconds', 'longest wait before a webhook is tried again, in seconds'),
  ('webhook.lease_seconds', 'how long a webhook job lease lasts, in seconds; at least the timeout + 10'),
  ('webhook.timeout_seconds', 'a webhook request ends after this, in seconds'),
  ('webhook.circuit_failures', 'failures in a row that open the circuit of an endpoint; 0 = never'),
  ('webhook.circuit_open_seconds', 'how long an open circuit waits before it probes, in seconds'),
  ('retention.events_days', 'routed events are kept this long, in days'),
  ('retention.jobs_days', 'finished jobs are kept this long, in days'),
  ('retention.dead_letters_days', 'resolved job and route dead letters are kept this long, in days'),
  ('retention.staging_days', 'processed staged notifications are kept this long, in days'),
  ('retention.samples_days', 'metric samples are kept this long, in days')) AS d (key, description) USING (key);

-- fn_cfg_bool(key) → true only for the text 'true'; missing or unreadable is
-- false, the side on which nothing is sent. Internal.
CREATE FUNCTION public.fn_cfg_bool(p_key text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN -- not SQL: that would be planned anew at every call
  RETURN COALESCE((SELECT c.value = 'true' FROM public.dot_config c WHERE c.key = p_key), false);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_cfg_bool(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_cfg_bool(text) IS 'A boolean flag; anything but the text true is false. Internal.';

-- fn_cfg_int(key, default) → the whole number ≥ 0, or the default where the
-- value is missing, negative or unreadable. Internal.
CREATE FUNCTION public.fn_cfg_int(p_key text, p_default int) RETURNS int
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT CASE WHEN c.value ~ '^[0-9]{1,9}$' THEN c.value::int END FROM public.dot_config c WHERE c.key = p_key), p_default);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_cfg_int(text, int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_cfg_int(text, int) IS 'An integer flag ≥ 0, else the default given. Internal.';

-- fn_cfg_readable(key, value) → whether the value fits the key's kind.
CREATE FUNCTION public.fn_cfg_readable(p_key text, p_value text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
  SELECT COALESCE((
    SELECT CASE r.kind
      WHEN 'boolean' THEN p_value IN ('true', 'false')
      WHEN 'integer' THEN p_value ~ '^[0-9]{1,9}$'
      ELSE p_value = ANY (r.choices) END
    FROM public.dot_config_rule r WHERE r.key = p_key), true)
$fn$;
REVOKE ALL ON FUNCTION public.fn_cfg_readable(text, text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_cfg_readable(text, text) IS 'Whether a value fits the kind of its key. Internal.';

-- A write of a row, by whichever way, stamps who and when; one that did not
-- come through fn_dot_config_set or its expiry is audited here, and cancels a
-- pending revert as a set does. Which way it came is read from the call stack: a
-- setting could be made by whoever writes. By whole signatures: the words around
-- them are in the language of the server.
CREATE FUNCTION public.fn_dot_config_stamp() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  IF strpos(v_stack, 'fn_dot_config_set(text,text,text,text,timestamp with time zone,timestamp with time zone)') > 0
    OR strpos(v_stack, 'fn_dot_config_expire()') > 0 THEN
    RETURN NEW;
  END IF;
  NEW.updated_at := clock_timestamp();
  NEW.updated_by := session_user;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_stamp() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_dot_config_stamp() IS 'Trigger function: stamps who wrote a dot_config row by hand, and when.';

CREATE FUNCTION public.fn_dot_config_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  IF strpos(v_stack, 'fn_dot_config_set(text,text,text,text,timestamp with time zone,timestamp with time zone)') > 0
    OR strpos(v_stack, 'fn_dot_config_expire()') > 0 THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    PERFORM public.fn_operator_audit('flag_set', '(all flags)', session_user, 'table truncated by hand');
    DELETE FROM public.dot_config_revert;
    RETURN NULL;
  END IF;
  PERFORM public.fn_operator_audit(
    'flag_set', COALESCE(NEW.key, OLD.key), session_user, 'written to the table by hand', NULL, NULL,
    CASE WHEN TG_OP <> 'INSERT' THEN jsonb_build_object('value', OLD.value) END,
    CASE WHEN TG_OP <> 'DELETE' THEN jsonb_build_object('value', NEW.value) END);
  DELETE FROM public.dot_config_revert WHERE key IN (OLD.key, NEW.key);
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_audit() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_dot_config_audit() IS 'Trigger function: audits dot_config rows written by hand.';

CREATE TRIGGER trg_dot_config_stamp BEFORE INSERT OR UPDATE ON public.dot_config
  FOR EACH ROW EXECUTE FUNCTION public.fn_dot_config_stamp();
CREATE TRIGGER trg_dot_config_audit AFTER INSERT OR UPDATE OR DELETE ON public.dot_config
  FOR EACH ROW EXECUTE FUNCTION public.fn_dot_config_audit();
CREATE TRIGGER trg_dot_config_audit_truncate AFTER TRUNCATE ON public.dot_config
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_dot_config_audit();

-- fn_dot_config_conflict(key, value) → '' when the value may stand with the
-- others, else what it breaks. Internal.
CREATE FUNCTION public.fn_dot_config_conflict(p_key text, p_value text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_interval int := public.fn_cfg_int('queue.tick.stale_heartbeat_check.interval_seconds', 120);
  v_threshold int := public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300);
  v_lease int := public.fn_cfg_int('webhook.lease_seconds', 60);
  v_timeout int := public.fn_cfg_int('webhook.timeout_seconds', 30);
BEGIN
  CASE p_key
    WHEN 'queue.tick.stale_heartbeat_check.interval_seconds' THEN v_interval := p_value::int;
    WHEN 'queue.heartbeat.stale_threshold_seconds' THEN v_threshold := p_value::int;
    WHEN 'webhook.lease_seconds' THEN v_lease := p_value::int;
    WHEN 'webhook.timeout_seconds' THEN v_timeout := p_value::int;
    WHEN 'queue.lease.duration_seconds' THEN
      RETURN CASE WHEN p_value::int = 0 THEN 'queue.lease.duration_seconds must be at least 1, else a lease is lost as it is given' ELSE '' END;
    WHEN 'queue.retry.max_attempts_default' THEN
      RETURN CASE WHEN p_value::int NOT BETWEEN 1 AND 1000 THEN 'queue.retry.max_attempts_default must be 1 to 1000, as of every job' ELSE '' END;
    ELSE RETURN '';
  END CASE;
  IF p_key LIKE 'queue.%' AND v_interval * 2 >= v_threshold THEN
    RETURN format('the stale check (every %s s) must run more than twice per stale threshold (%s s): '
      'choose an interval below %s s', v_interval, v_threshold, (v_threshold + 1) / 2);
  END IF;
  IF p_key LIKE 'webhook.%' AND v_lease < v_timeout + 10 THEN
    RETURN format('webhook.lease_seconds (%s) must be at least webhook.timeout_seconds (%s) + 10, '
      'else a request outlives its lease', v_lease, v_timeout);
  END IF;
  IF p_key = 'webhook.timeout_seconds' AND v_timeout = 0 THEN
    RETURN 'webhook.timeout_seconds must be at least 1';
  END IF;
  RETURN '';
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_conflict(text, text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_dot_config_conflict(text, text) IS
  'Why a value cannot stand beside the other flags; empty when it can. Internal.';

-- fn_dot_config_refusal(key, value, expires_at, expected_updated_at) → (rule, reason): what fn_dot_config_set would refuse
-- now, NULL where it would not; previews ask the same. Takes no locks.
CREATE FUNCTION public.fn_dot_config_refusal(p_key text, p_value text, p_expires_at timestamptz DEFAULT NULL,
  p_expected_updated_at timestamptz DEFAULT NULL, OUT rule text, OUT reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_rule public.dot_config_rule;
  v_row public.dot_config;
BEGIN
  SELECT * INTO v_row FROM public.dot_config WHERE key = p_key;
  SELECT * INTO v_rule FROM public.dot_config_rule WHERE key = p_key;
  IF v_rule.key IS NULL THEN
    rule := 'unknown_key';
    reason := format('there is no flag %s; see dot_config', left(p_key, 100));
  ELSIF NOT public.fn_cfg_readable(p_key, p_value) THEN
    rule := 'invalid_value';
    reason := format('%s takes %s, not "%s"', p_key,
      CASE v_rule.kind WHEN 'boolean' THEN 'true or false' WHEN 'integer' THEN 'a whole number from 0 to 999999999'
        ELSE array_to_string(v_rule.choices, ', ') END, left(p_value, 100));
  ELSIF p_expires_at <= clock_timestamp() THEN
    rule := 'expiry_in_the_past';
    reason := 'the expiry must lie in the future';
  ELSIF p_expires_at > clock_timestamp() + interval '366 days' THEN
    rule := 'expiry_too_far';
    reason := 'the expiry must lie within a year; leave it out for a value that stays';
  ELSIF p_expires_at IS NOT NULL AND p_key = 'queue.tick.config_expiry.interval_seconds' AND p_value ~ '^0+$' THEN
    rule := 'conflict';
    reason := 'while config_expiry is off nothing goes back by itself, nor would this: leave the expiry out';
  ELSIF v_row.updated_at > p_expected_updated_at THEN
    rule := 'changed';
    reason := format('%s was changed to "%s" by %s at %s', p_key, v_row.value, v_row.updated_by,
      to_char(v_row.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'));
  ELSIF public.fn_dot_config_conflict(p_key, p_value) <> '' THEN
    rule := 'conflict';
    reason := public.fn_dot_config_conflict(p_key, p_value);
  ELSIF v_row.value = p_value AND p_expires_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM public.dot_config_revert WHERE key = p_key) THEN
    rule := 'unchanged';
    reason := format('%s is "%s" already', p_key, p_value);
  END IF;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_refusal(text, text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_refusal(text, text, timestamptz, timestamptz) TO workflow_admin;
COMMENT ON FUNCTION public.fn_dot_config_refusal(text, text, timestamptz, timestamptz) IS
  'Why a change of a flag would be refused; NULL where it would not.';

-- fn_dot_config_set(key, value, actor, reason, expires_at, expected_updated_at)
-- → {key, before, after, updated_at, reverts_at, audit_id}, or a refusal:
-- unknown_key, invalid_value, conflict, changed (who, when), unchanged,
-- expiry_in_the_past, expiry_too_far. A later set cancels a pending revert.
CREATE FUNCTION public.fn_dot_config_set(
  p_key text, p_value text, p_actor text, p_reason text,
  p_expires_at timestamptz DEFAULT NULL, p_expected_updated_at timestamptz DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_rule public.dot_config_rule;
  v_row public.dot_config;
  v_pending public.dot_config_revert;
  v_at timestamptz;
  c_coupled CONSTANT text[] := ARRAY['queue.tick.stale_heartbeat_check.interval_seconds',
    'queue.heartbeat.stale_threshold_seconds', 'webhook.lease_seconds', 'webhook.timeout_seconds'];
  v_refusal text;
  v_code text;
  v_audit bigint;
BEGIN
  IF p_key IS NULL OR p_value IS NULL THEN
    RAISE EXCEPTION 'p_key and p_value are needed' USING ERRCODE = '22023';
  END IF;
  -- Rows that check each other are locked together, in key order.
  PERFORM 1 FROM public.dot_config
  WHERE key = p_key OR (p_key = ANY (c_coupled) AND key = ANY (c_coupled)) ORDER BY key FOR UPDATE;
  SELECT * INTO v_row FROM public.dot_config WHERE key = p_key;
  SELECT * INTO v_rule FROM public.dot_config_rule WHERE key = p_key;

  SELECT r.rule, r.reason INTO v_code, v_refusal FROM public.fn_dot_config_refusal(p_key, p_value, p_expires_at, p_expected_updated_at) r;
  IF v_code IS NOT NULL THEN
    v_audit := public.fn_operator_audit('flag_set', left(p_key, 200), v_actor, v_reason, NULL, NULL,
      jsonb_build_object('value', v_row.value), jsonb_build_object('value', left(p_value, 200)), 'refused: ' || v_code);
    RETURN jsonb_build_object('refused', true, 'rule', v_code, 'reason', v_refusal, 'audit_id', v_audit,
      'updated_by', v_row.updated_by, 'updated_at', v_row.updated_at, 'value', v_row.value);
  END IF;

  v_at := clock_timestamp();
  INSERT INTO public.dot_config AS c (key, value, updated_at, updated_by) VALUES (p_key, p_value, v_at, v_actor)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at, updated_by = excluded.updated_by;

  -- Over a value that is itself to expire, the one to go back to stays what it was.
  DELETE FROM public.dot_config_revert WHERE key = p_key RETURNING * INTO v_pending;
  IF p_expires_at IS NOT NULL THEN
    INSERT INTO public.dot_config_revert (key, set_value, set_at, revert_to, revert_at, set_by, reason)
    VALUES (p_key, p_value, v_at, COALESCE(CASE WHEN v_pending.set_at = v_row.updated_at THEN v_pending.revert_to END,
      v_row.value, v_rule.default_value), p_expires_at, v_actor, v_reason);
  END IF;

  v_audit := public.fn_operator_audit('flag_set', p_key, v_actor, v_reason, NULL, NULL,
    jsonb_build_object('value', v_row.value),
    jsonb_build_object('value', p_value, 'reverts_at', p_expires_at));
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'config', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', v_at));
  RETURN jsonb_build_object('key', p_key, 'before', v_row.value, 'after', p_value, 'updated_at', v_at,
    'reverts_at', p_expires_at, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_set(text, text, text, text, timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_set(text, text, text, text, timestamptz, timestamptz) TO workflow_admin;
COMMENT ON FUNCTION public.fn_dot_config_set(text, text, text, text, timestamptz, timestamptz) IS
  'Changes a flag: validates by key, compares updated_at with what the caller saw, audits before and after, '
  'and with p_expires_at remembers what to go back to. Refusals: unknown_key, invalid_value, '
  'conflict, changed, unchanged, expiry_in_the_past, expiry_too_far.';

-- fn_dot_config_expire() → {reverted, dropped, held}: the config_expiry tick. A
-- revert acts only on the value that the expiring set left. One that would break
-- the flags that stand now is held: it stays, shown as overdue.
CREATE FUNCTION public.fn_dot_config_expire() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_key text;
  v_due public.dot_config_revert;
  v_row public.dot_config;
  v_reverted int := 0;
  v_dropped int := 0;
  v_held int := 0;
BEGIN
  FOR v_key IN SELECT r.key FROM public.dot_config_revert r WHERE r.revert_at <= clock_timestamp() ORDER BY r.key LOOP
    -- The flag's row first, as fn_dot_config_set does; one that is being set now is not due any more.
    SELECT * INTO v_row FROM public.dot_config WHERE key = v_key FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    SELECT * INTO v_due FROM public.dot_config_revert WHERE key = v_key AND revert_at <= clock_timestamp();
    CONTINUE WHEN NOT FOUND;
    IF v_row.value <> v_due.set_value OR v_row.updated_at <> v_due.set_at THEN
      v_dropped := v_dropped + 1;
    ELSIF (CASE WHEN public.fn_cfg_readable(v_key, v_due.revert_to)
        THEN public.fn_dot_config_conflict(v_key, v_due.revert_to) <> '' ELSE false END) THEN
      v_held := v_held + 1;
      CONTINUE;
    ELSE
      UPDATE public.dot_config SET value = v_due.revert_to, updated_at = clock_timestamp(), updated_by = v_due.set_by
      WHERE key = v_key;
      PERFORM public.fn_operator_audit('flag_revert', v_key, v_due.set_by,
        'expired: ' || v_due.reason, NULL, NULL,
        jsonb_build_object('value', v_due.set_value), jsonb_build_object('value', v_due.revert_to));
      v_reverted := v_reverted + 1;
    END IF;
    DELETE FROM public.dot_config_revert WHERE key = v_key;
  END LOOP;
  IF v_reverted > 0 THEN
    PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'config', 'event_domain', 'system',
      'worker_hint', 'console', 'count', v_reverted, 'occurred_at', clock_timestamp()));
  END IF;
  RETURN jsonb_build_object('reverted', v_reverted, 'dropped', v_dropped, 'held', v_held);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_dot_config_expire() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_expire() TO dot_executor;
COMMENT ON FUNCTION public.fn_dot_config_expire() IS
  'Tick config_expiry: takes expired flag values back, and leaves alone what somebody changed since.';

GRANT SELECT ON public.dot_config, public.dot_config_rule, public.dot_config_revert TO
  queue_viewer, workflow_admin, dead_letter_operator, dot_executor, subscription_admin;

-- ---------------------------------------------------------------------------
-- Delta counters: statement triggers append, the counter_compactor tick folds,
-- readers add both. Counts on screen never scan a queue table.
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_counter (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL,
  PRIMARY KEY (scope, k1, k2, k3)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE public.queue_counter_delta (
  scope text NOT NULL,
  k1    text NOT NULL DEFAULT '',
  k2    text NOT NULL DEFAULT '',
  k3    text NOT NULL DEFAULT '',
  n     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE public.queue_counter IS 'Folded counts by scope; k3 of the scopes ending in m is the epoch of the bucket.';
COMMENT ON TABLE public.queue_counter_delta IS 'Counts not folded yet, one row per statement and key.';
CREATE VIEW public.v_queue_counter_part AS
  SELECT scope, k1, k2, k3, n FROM public.queue_counter
  UNION ALL SELECT scope, k1, k2, k3, n FROM public.queue_counter_delta;
COMMENT ON VIEW public.v_queue_counter_part IS 'What v_queue_counter adds up: for who sums over keys anyway.';
CREATE VIEW public.v_queue_counter AS
  SELECT scope, k1, k2, k3, sum(n)::bigint AS n FROM public.v_queue_counter_part GROUP BY scope, k1, k2, k3;
COMMENT ON VIEW public.v_queue_counter IS 'Exact counts: folded ones plus the deltas since.';
GRANT SELECT ON public.queue_counter, public.queue_counter_delta, public.v_queue_counter_part, public.v_queue_counter TO queue_viewer;

-- fn_queue_counter_compact() → {folded, pruned}: the counter_compactor tick.
CREATE FUNCTION public.fn_queue_counter_compact() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_folded bigint;
  v_pruned bigint;
BEGIN
  WITH gone AS (
    DELETE FROM public.queue_counter_delta RETURNING scope, k1, k2, k3, n
  ), sums AS (
    SELECT scope, k1, k2, k3, sum(n) AS n, count(*) AS c FROM gone GROUP BY scope, k1, k2, k3
  ), put AS (
    INSERT INTO public.queue_counter AS q (scope, k1, k2, k3, n)
    SELECT scope, k1, k2, k3, n FROM sums WHERE n <> 0 ORDER BY scope, k1, k2, k3
    ON CONFLICT (scope, k1, k2, k3) DO UPDATE SET n = q.n + excluded.n
  )
  SELECT COALESCE(sum(c), 0) INTO v_folded FROM sums;
  DELETE FROM public.queue_counter
  WHERE scope ~ '_[0-9]+m$' AND k3 ~ '^[0-9]+$' AND k3::bigint < extract(epoch FROM now())::bigint - 7200;
  GET DIAGNOSTICS v_pruned = ROW_COUNT;
  RETURN jsonb_build_object('folded', v_folded, 'pruned', v_pruned);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_counter_compact() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_counter_compact() TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_counter_compact() IS
  'Tick counter_compactor: folds counter deltas and drops time buckets older than two hours.';

-- ---------------------------------------------------------------------------
-- Secrets in foreign text. One set of rules for payloads and for what programs
-- say (last_error, response_excerpt): over-masking is the safe side.
-- ---------------------------------------------------------------------------
-- fn_mask_names(left) → the regular expression, whatever the case, of a name that
-- speaks of a secret, to its end. Short words count only where they stand alone,
-- left being what may stand before them, so that author, tokenizer, discard and
-- shipping pass. No lookaround: it would cost a hundred times the rest. Internal.
CREATE FUNCTION public.fn_mask_names(p_left text DEFAULT '(?:^|[^a-z])') RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  c_tail CONSTANT text := '[a-z0-9_.\[\]%-]*';
BEGIN
  RETURN '(?:secret(?:[b-z0-9_.\[\]%-]' || c_tail || ')?|token(?:(?:i[^sz\s:=]|[a-hj-z0-9_.\[\]%-])' || c_tail || ')?'
    '|(?:passw|pass[^a-z0-9]?(?:phrase|code|key)|pwd|credential|authori[sz]ation|cookie|bearer|jwt|[cx]srf'
    '|signature|mnemonic|seed[^a-z0-9]?phrase|(?:recovery|backup)[^a-z0-9]?(?:code|phrase|key)|mat[^a-z0-9]?khau'
    '|(?:api|access|private|sign|signing|encrypt|encryption|master|auth|shared|ssh|gpg|pgp|hmac|account|storage)[^a-z0-9]?key'
    '|sess(?:ion)?[^a-z0-9]?(?:id|key|data)|card[^a-z0-9]?n(?:o|r|um)|(?:credit|debit)[^a-z0-9]?card)' || c_tail
    || '|' || p_left || '(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|iban|pin|otp|totp|mfa|sid)s?(?:[0-9_.\[\]%-]' || c_tail || ')?)';
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_names(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_names(text) IS 'The names that speak of a secret, as a regular expression. Internal.';

-- fn_mask_fold(text) → the text as a reader takes it: full-width and accented
-- letters and look-alikes as ASCII, without what has no width. Internal.
CREATE FUNCTION public.fn_mask_fold(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF getdatabaseencoding() <> 'UTF8' THEN
    RETURN p_text; -- normalize() knows UTF-8 alone
  END IF;
  RETURN translate(regexp_replace(normalize(p_text, NFKD), '[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f'
    '\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]', '', 'g'),
    'аеорсухіѕјкмтвнԁһոʋѵԝɡıοαενρτυικαςσАЕОРСУХІЅЈКМТВНΑΕΟΡΤΥΙΚΜΝΒΗΧ', 'aeopcyxisjkmtbhdhnvvwgioaevptuikacsAEOPCYXISJKMTBHAEOPTYIKMNBHX');
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_fold(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_fold(text) IS 'A text with look-alike letters as ASCII, without what has no width. Internal.';

-- fn_mask_decode(text) → the text with percent, JSON and HTML escapes of ASCII
-- taken back once. Internal.
CREATE FUNCTION public.fn_mask_decode(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_hex text;
  v_char text;
BEGIN
  -- what escapes the escapes comes last
  FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x
    WHERE strpos(lower(p_text), '%' || h) > 0 ORDER BY h = '25' LOOP
    v_char := chr(('x' || v_hex)::bit(8)::int);
    v_text := replace(replace(v_text, '%' || v_hex, v_char), '%' || upper(v_hex), v_char);
  END LOOP;
  IF strpos(v_text, '\u00') > 0 OR strpos(v_text, '\x') > 0 THEN
    FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x ORDER BY h = '5c' LOOP
      v_char := chr(('x' || v_hex)::bit(8)::int);
      v_text := replace(replace(v_text, '\u00' || v_hex, v_char), '\x' || v_hex, v_char);
      v_text := replace(replace(v_text, '\u00' || upper(v_hex), v_char), '\x' || upper(v_hex), v_char);
    END LOOP;
  END IF;
  IF v_text ~ '&(?:quot|apos|lt|gt|amp|#)' THEN
    v_text := regexp_replace(regexp_replace(v_text, '&(?:quot|#34|#x22);', '"', 'gi'), '&(?:apos|#39|#x27);', '''', 'gi');
    v_text := replace(replace(replace(v_text, '&lt;', '<'), '&gt;', '>'), '&amp;', '&');
  END IF;
  RETURN v_text;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_decode(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_decode(text) IS 'A text with its percent, JSON and HTML escapes taken back once. Internal.';

-- fn_mask_maybe(text) → false: nothing in the text, also when it is JSON, can be a
-- secret. Most of a payload is told so at once; true says nothing. Internal.
CREATE FUNCTION public.fn_mask_maybe(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  c_shapes CONSTANT text := 'eyJ|A[KS]IA|k_(?:live|test)_|whsec|gh[a-z]_|github_pat|gl[a-z]+-|xox|xapp|AIza|sk-|SG\.|npm_|ya29|shp[a-z]+_|dop_v1|AGE-SEC'
    '|://[^\s"]*@|slack\.com|[Bb][Aa][Ss][Ii][Cc] |[Dd][Ii][Gg][Ee][Ss][Tt] |PRIVATE KEY'
    '|(?:^|[^a-z])(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|iban|pin|otp|totp|mfa|sid)s?(?:$|[^a-z])'
    '|(?:Auth|Oauth2?|OAuth2?|Pass|Private|Session|Sig|Hmac|Ssn|Card|Cvv2?|Cvc2?|Iban|Pin|Otp|Totp|Mfa|Sid)s?(?:$|[^a-z])'
    '|AUTH|PASS|PRIVATE|SESSION|SIG|HMAC|SSN|CARD|CV[VC]|IBAN|PIN|OTP|MFA|SID';
  v_text text := p_text;
  v_next text;
BEGIN
  IF v_text ~ '[^ -~]' THEN
    v_text := regexp_replace(public.fn_mask_fold(v_text), '[\u0001-\u001f\u007f-\u009f]', '', 'g');
  END IF;
  IF v_text ~ '[%\\&]' THEN
    FOR v_round IN 1..4 LOOP
      v_next := public.fn_mask_decode(v_text);
      WHILE strpos(v_next, '\\') > 0 LOOP
        v_next := replace(v_next, '\\', '\');
      END LOOP;
      EXIT WHEN v_next = v_text;
      v_text := v_next;
    END LOOP;
    IF v_text ~* '\\u[0-9a-f]{4}' THEN -- a letter beyond ASCII, as JSON writes it: fn_mask_fold has not seen it
      RETURN true;
    END IF;
    v_text := replace(v_text, '\', '');
  END IF;
  RETURN v_text ~ c_shapes OR v_text ~* public.fn_mask_names('[0-9]');
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_maybe(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_maybe(text) IS 'Whether a text may hold a secret. Internal.';

-- fn_mask_named(name) → whether the name speaks of a secret, however it is
-- cased, escaped or disguised. Internal.
CREATE FUNCTION public.fn_mask_named(p_name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_name text := p_name;
BEGIN
  IF v_name ~ '[^ -~]' THEN
    v_name := regexp_replace(public.fn_mask_fold(v_name), '[\u0001-\u001f\u007f-\u009f]', '', 'g');
  END IF;
  IF v_name ~ '[%\\&]' THEN
    v_name := public.fn_mask_decode(v_name);
  END IF;
  v_name := regexp_replace(v_name, '([a-z0-9])([A-Z])', '\1_\2', 'g');
  RETURN regexp_replace(v_name, '[^A-Za-z0-9]+', '_', 'g') || '=' ~* (public.fn_mask_names() || '=');
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_named(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_named(text) IS 'Whether a name speaks of a secret. Internal.';

-- fn_mask_words(text) → the text with what looks like a secret masked: keys in
-- the forms that vendors give them, authorisation schemes, secrets in URLs, and
-- the value behind a name in forms, headers, XML, command lines and JSON that was
-- cut. A masked text passes unchanged. Internal.
CREATE FUNCTION public.fn_mask_words(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  c_shape CONSTANT text := '(^|[^A-Za-z0-9])(?:eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+|A[KS]IA[A-Z0-9]{12,}|[sr]k_(?:live|test)_[A-Za-z0-9]{6,}'
    '|whsec_[A-Za-z0-9+/=_-]{6,}|gh[a-z]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,}|gl[a-z]{2,4}-[A-Za-z0-9_-]{16,}'
    '|xox[a-z]-[A-Za-z0-9-]{6,}|xapp-[A-Za-z0-9-]{6,}|AIza[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{16,}|SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}'
    '|npm_[A-Za-z0-9]{20,}|ya29\.[A-Za-z0-9_-]{10,}|shp[a-z]{2}_[A-Za-z0-9]{10,}|dop_v1_[a-f0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{10,})';
  -- a value: a quoted one to the quote that ends it, also where quotes are escaped;
  -- a list or an object to its end; else to what parts values
  c_value CONSTANT text := '(?:"(?:[^"\\]|\\.)*(?:"|$)|\\+"(?:[^"]|"+\s*[^\s,}\])&;"\\])*(?:"|$)|''(?:[^''\\]|\\.)*(?:''|$)'
    '|\[[^\]]*(?:\]|$)|\{[^}]*(?:\}|$)|[^&;,\s"''](?:[^&;,\s"'']|,[^&;,\s"''])*)';
  v_text text := p_text;
BEGIN
  v_text := regexp_replace(v_text, c_shape, '\1•••', 'g');
  IF v_text ~ 'PRIVATE KEY' THEN
    v_text := regexp_replace(v_text, '-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY.*?(?:-----END[A-Z0-9 ]*-----|$)', '•••', 'g');
  END IF;
  IF v_text ~ '://[^\s]*@' THEN
    -- user:password@, where the password may itself hold / and @; a port is none
    v_text := regexp_replace(v_text, '(://[^/@:\s]*:)(?:[^@\s"<>0-9][^@\s"<>]*|\d+[^@\s"<>0-9/?#][^@\s"<>]*|\d*)@(?:[^@\s"<>]*@)*', '\1•••@', 'g');
    v_text := regexp_replace(v_text, '(://)[^/@:\s"<>]+@', '\1•••@', 'g');
  END IF;
  IF v_text ~* 'hooks\.slack\.com/|basic|digest' THEN
    v_text := regexp_replace(v_text, '(hooks\.slack\.com/(?:services|workflows|triggers)/)[a-z0-9/_-]+', '\1•••', 'gi');
    v_text := regexp_replace(v_text, '(\m(?:[Bb][Aa][Ss][Ii][Cc]|[Dd][Ii][Gg][Ee][Ss][Tt])\s+)[A-Za-z0-9+/_-]+[A-Z0-9=+/][A-Za-z0-9+/=_-]{4,}', '\1•••', 'g');
  END IF;
  IF v_text !~* public.fn_mask_names() THEN
    RETURN v_text;
  END IF;
  v_text := regexp_replace(v_text, '(\m(?:bearer|apikey)\s+)[A-Za-z0-9._~+/=-]{6,}', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:authori[sz]ation|cookie)["'']?\s*:\s*)[^"''\\\s][^\r\n]*', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:passphrase|mnemonic|seed phrase)\s*[:=]\s*)[^"''\\\s][^\r\n&;,]*', '\1•••', 'gi');
  IF v_text ~ '<' THEN -- <password kind="x">…</password>
    v_text := regexp_replace(v_text, '(<[a-z0-9_:.-]*' || public.fn_mask_names('') || '(?:\s[^<>]*)?>)\s*(?:<!\[CDATA\[[^\]]*\]\]>|[^<]+)', '\1•••', 'gi');
  END IF;
  IF v_text ~ '--' THEN -- --password …
    v_text := regexp_replace(v_text, '(--[a-z0-9-]*' || public.fn_mask_names('') || '\s+)[^\s"''-][^\s"'']*', '\1•••', 'gi');
  END IF;
  IF v_text ~ 'name' THEN -- a part of a multipart form; "name": "password", "value": … where it was cut
    v_text := regexp_replace(v_text, '(name=\\*"[^"]*' || public.fn_mask_names('') || '"\s*\n\s*)[^\s][^\r\n]*', '\1•••', 'gi');
    v_text := regexp_replace(v_text, '("(?:name|key|field|header|param)\\*"\s*:\s*\\*"[^"]*' || public.fn_mask_names('')
      || '\\*"\s*,\s*\\*"[a-z_]*val[a-z_]*\\*"\s*:\s*)' || c_value, '\1•••', 'gi');
  END IF;
  -- name=…, name: …, name => …
  RETURN regexp_replace(v_text, '(' || public.fn_mask_names() || '\\*["'']?\]?\s*[:=]{1,2}>?\s*)' || c_value, '\1•••', 'gi');
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_words(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_words(text) IS 'A text with what looks like a secret masked. Internal.';

-- fn_mask_text(text, depth) → the text with its secrets masked; one that is JSON
-- is masked as such. What only shows once escapes are taken back, or disguised
-- letters read as meant, makes the text come back in that form. Internal.
CREATE FUNCTION public.fn_mask_text(p_text text, p_depth int DEFAULT 0) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_other text;
  v_masked text;
BEGIN
  IF NOT public.fn_mask_maybe(v_text) THEN
    RETURN v_text;
  END IF;
  IF p_depth > 64 THEN
    RETURN '[masked: nested too deep]';
  END IF;
  IF v_text ~ '^\s*[\[{"]' THEN
    BEGIN
      RETURN public.fn_mask_json(v_text::jsonb, p_depth + 1)::text;
    EXCEPTION WHEN OTHERS THEN
      NULL; -- not JSON after all, or JSON that jsonb does not take
    END;
  END IF;
  IF length(v_text) > 100000 THEN -- one second of work where it is full of them
    RETURN format('[masked: a text of %s characters that may hold secrets]', length(v_text));
  END IF;
  v_text := public.fn_mask_words(v_text);
  IF v_text ~ '[^\u0001-\u007f]' THEN
    v_other := public.fn_mask_fold(v_text);
    v_masked := public.fn_mask_words(v_other);
    IF v_masked <> v_other THEN
      v_text := v_masked;
    END IF;
  END IF;
  IF v_text ~ '%[2-7][0-9A-Fa-f]|\\(?:u00|x)[2-7]|&(?:quot|apos|lt|#)' THEN
    v_other := public.fn_mask_decode(v_text);
    v_masked := public.fn_mask_text(v_other, p_depth + 16);
    IF v_masked <> v_other THEN
      v_text := v_masked;
    END IF;
  END IF;
  RETURN v_text;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_text(text, int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_text(text, int) IS 'A text with its secrets masked. Internal.';

-- fn_mask_json(value, depth) → the value with its secrets masked: members whose
-- name speaks of one, the value of {name, value} pairs, the element behind a name
-- in a list, and all strings as texts. null, true and false tell nothing and stay;
-- so do numbers whose name says that they count or measure. Internal.
CREATE FUNCTION public.fn_mask_json(p_value jsonb, p_depth int DEFAULT 0) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  c_dots CONSTANT jsonb := '"•••"'::jsonb;
  c_telling CONSTANT text[] := ARRAY['name', 'key', 'field', 'header', 'param', 'parameter', 'label', 'property', 'attribute', 'variable', 'id', 'k', 'n', 'type', 'kind'];
  c_counts CONSTANT text := '(?<![a-z])(?:count|num|total|size|length|len|limit|max|min|ttl|timeout|age|index|version|used|remaining|attempts'
    '|seconds|ms|prompt|completion|input|output)s?(?![a-z])|expir';
  -- a number under these is the secret itself, whatever else the name says, unless it counts them or tells their length
  c_number CONSTANT text := '(?<![a-z])(?:card|cvv|cvc|pin|otp|ssn|iban|pass[a-z]*)(?![a-z])';
  c_of CONSTANT text := '(?<![a-z])(?:count|total|size|length|len|limit|ttl|timeout|age|attempts|remaining|used|seconds)s?(?![a-z])|expir';
  v_pair boolean;
BEGIN
  IF p_depth > 64 THEN
    RETURN '"[masked: nested too deep]"'::jsonb;
  END IF;
  IF p_depth = 0 AND NOT public.fn_mask_maybe(p_value::text) THEN
    RETURN p_value;
  END IF;
  CASE jsonb_typeof(p_value)
    WHEN 'object' THEN
      v_pair := EXISTS (SELECT 1 FROM jsonb_each(p_value) e WHERE jsonb_typeof(e.value) = 'string' AND length(e.key) < 10
        AND lower(e.key) = ANY (c_telling) AND length(e.value #>> '{}') <= 100 AND public.fn_mask_named(e.value #>> '{}'));
      RETURN (SELECT COALESCE(jsonb_object_agg(CASE WHEN e.key ~ '[^A-Za-z_-]' THEN public.fn_mask_words(e.key) ELSE e.key END,
        CASE
          WHEN jsonb_typeof(e.value) IN ('null', 'boolean') OR e.value IN ('""', '[]', '{}') THEN e.value
          WHEN v_pair AND (e.key ~* 'val|content|data|text|default|raw|string' OR e.key IN ('v', 'V')) THEN c_dots
          WHEN NOT public.fn_mask_maybe(e.key || ' ' || e.value::text) THEN e.value
          WHEN public.fn_mask_named(e.key) AND NOT (jsonb_typeof(e.value) = 'number'
            AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_counts
            AND NOT (regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_number
              AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') !~* c_of)) THEN c_dots
          WHEN jsonb_typeof(e.value) = 'number' THEN e.value
          ELSE public.fn_mask_json(e.value, p_depth + 1) END), '{}') FROM jsonb_each(p_value) e);
    WHEN 'array' THEN
      IF EXISTS (SELECT 1 FROM jsonb_array_elements(p_value) e WHERE jsonb_typeof(e) = 'string' AND e #>> '{}' ~ '-----BEGIN [A-Z0-9 ]*PRIVATE KEY') THEN
        RETURN jsonb_build_array(c_dots); -- the lines of a key
      END IF;
      RETURN (SELECT COALESCE(jsonb_agg(CASE
          WHEN jsonb_typeof(x.value) IN ('null', 'boolean') THEN x.value
          WHEN x.named THEN c_dots
          WHEN jsonb_typeof(x.value) = 'number' OR NOT public.fn_mask_maybe(x.value::text) THEN x.value
          ELSE public.fn_mask_json(x.value, p_depth + 1) END ORDER BY x.n), '[]')
        FROM (SELECT e.value, e.n, lag(CASE WHEN jsonb_typeof(e.value) = 'string' AND length(e.value #>> '{}') <= 60
            THEN public.fn_mask_named(e.value #>> '{}') ELSE false END) OVER (ORDER BY e.n) AS named
          FROM jsonb_array_elements(p_value) WITH ORDINALITY e (value, n)) x);
    WHEN 'string' THEN
      RETURN to_jsonb(public.fn_mask_text(p_value #>> '{}', p_depth));
    ELSE
      RETURN p_value;
  END CASE;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_json(jsonb, int) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_json(jsonb, int) IS 'A payload with its secrets masked. Internal.';

-- fn_mask_said(text) → what a program said, with its secrets masked. Never raises:
-- a report must not fail for what it says. Internal.
CREATE FUNCTION public.fn_mask_said(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN public.fn_mask_text(p_text);
EXCEPTION WHEN OTHERS THEN
  RETURN '[masked: it could not be searched for secrets]';
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_mask_said(text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_mask_said(text) IS 'What a program said, with its secrets masked. Internal.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_mask_said(text);
DROP FUNCTION public.fn_mask_json(jsonb, int);
DROP FUNCTION public.fn_mask_text(text, int);
DROP FUNCTION public.fn_mask_words(text);
DROP FUNCTION public.fn_mask_named(text);
DROP FUNCTION public.fn_mask_maybe(text);
DROP FUNCTION public.fn_mask_decode(text);
DROP FUNCTION public.fn_mask_fold(text);
DROP FUNCTION public.fn_mask_names(text);
DROP FUNCTION public.fn_queue_counter_compact();
DROP VIEW public.v_queue_counter;
DROP VIEW public.v_queue_counter_part;
DROP TABLE public.queue_counter_delta;
DROP TABLE public.queue_counter;
DROP FUNCTION public.fn_dot_config_expire();
DROP FUNCTION public.fn_dot_config_set(text, text, text, text, timestamptz, timestamptz);
DROP FUNCTION public.fn_dot_config_refusal(text, text, timestamptz, timestamptz);
DROP FUNCTION public.fn_dot_config_conflict(text, text);
DROP TABLE public.dot_config_revert;
DROP TABLE public.dot_config;
DROP FUNCTION public.fn_dot_config_audit();
DROP FUNCTION public.fn_dot_config_stamp();
DROP FUNCTION public.fn_cfg_readable(text, text);
DROP FUNCTION public.fn_cfg_int(text, int);
DROP FUNCTION public.fn_cfg_bool(text);
DROP TABLE public.dot_config_rule;
DROP FUNCTION public.fn_operator_audit(text, text, text, text, text, bigint, jsonb, jsonb, text);
DROP FUNCTION public.fn_operator_reason(text);
DROP FUNCTION public.fn_operator_actor(text);
DROP TABLE public.queue_operator_action;
DROP FUNCTION public.fn_refuse_change();
RESET ROLE;
