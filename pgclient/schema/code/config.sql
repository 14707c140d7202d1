-- The configuration table: how flags are read, set and audited, and how they expire. Source: DP1 §8, DP4 §7, DP6 §7.

COMMENT ON TABLE public.dot_config IS
  'Flags and numbers that configure the queue (DP1 §4.2). Change them with fn_dot_config_set: it validates, audits and '
  'can let a value expire. A value that cannot be read counts as the safe one: false, or the default of a number.';
COMMENT ON COLUMN public.dot_config.value IS
  'text; booleans are true and false; any other text of a boolean counts as false';
COMMENT ON COLUMN public.dot_config.updated_by IS
  'the person who set the value, also for a while that is over, or migration';
COMMENT ON TABLE public.dot_config_follows IS
  'Flags that a person set only for a while: they follow when a release changes their default. A flag that nobody has '
  'set (updated_by is migration) follows too.';
COMMENT ON COLUMN public.dot_config_follows.key IS 'the flag';
GRANT SELECT ON public.dot_config, public.dot_config_rule, public.dot_config_revert, public.dot_config_follows TO
  :"queue_viewer", :"workflow_admin", :"dead_letter_operator", :"dot_executor", :"subscription_admin";

COMMENT ON TABLE public.dot_config_rule IS
  'Which values fn_dot_config_set accepts per key. switch: false (or 0) switches a part of the queue off, which the '
  'console shows above everything else.';
COMMENT ON COLUMN public.dot_config_rule.kind IS
  'boolean, integer (lowest to highest), mode: one of choices, schedule: up to 100 waits such as 5s 30s 2m 1h 1d, or '
  'environment: unset, or a name and guarded or open';
COMMENT ON COLUMN public.dot_config_rule.lowest IS
  'the minimum of an integer; a smaller stored value counts as this one';
COMMENT ON COLUMN public.dot_config_rule.highest IS
  'the maximum of an integer; a larger stored value counts as this one';

COMMENT ON TABLE public.dot_config_revert IS
  'Values that expire: at revert_at the key is set back to revert_to, unless it was changed in the meantime.';
COMMENT ON COLUMN public.dot_config_revert.set_value IS 'the key is set back only while it still has this value';
COMMENT ON COLUMN public.dot_config_revert.revert_to IS 'the value that the key is set back to';
COMMENT ON COLUMN public.dot_config_revert.revert_at IS 'when the value expires';

-- fn_cfg_bool(key) → true only for the text 'true'. A missing or unreadable flag is false, the safe value: with false,
-- nothing is sent. Internal.
CREATE OR REPLACE FUNCTION public.fn_cfg_bool(p_key text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN -- not LANGUAGE sql: that would be planned again at every call
  RETURN COALESCE((SELECT c.value = 'true' FROM public.dot_config c WHERE c.key = p_key), false);
END
$fn$;
COMMENT ON FUNCTION public.fn_cfg_bool IS
  'A boolean flag: true only for the text true. Internal.';

-- v_dot_config_number: the numeric flags as all code reads them. A stored number beyond a bound of its rule counts as
-- that bound; an unreadable value is NULL. The check is in a CASE because PostgreSQL would evaluate a WHERE condition
-- first, for every flag. It is no regular expression, because that takes ten times as long.
CREATE OR REPLACE VIEW public.v_dot_config_number AS
SELECT c.key, CASE WHEN length(c.value) BETWEEN 1 AND 9 AND rtrim(c.value, '0123456789') = ''
  THEN least(greatest(c.value::int, r.lowest), r.highest) END AS n
FROM public.dot_config c LEFT JOIN public.dot_config_rule r USING (key);
COMMENT ON VIEW public.v_dot_config_number IS
  'The numeric flags, within the bounds of their rules; NULL if the value is not a whole number.';
COMMENT ON COLUMN public.v_dot_config_number.n IS
  'the number in force: a stored one beyond a bound of its rule counts as that bound';
GRANT SELECT ON public.v_dot_config_number TO
  :"queue_viewer", :"workflow_admin", :"dead_letter_operator", :"dot_executor", :"subscription_admin";

-- fn_cfg_int(key, default) → the number within its bounds, or the default if the value is missing, negative or not a
-- number. Internal.
CREATE OR REPLACE FUNCTION public.fn_cfg_int(p_key text, p_default int) RETURNS int
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT v.n FROM public.v_dot_config_number v WHERE v.key = p_key), p_default);
END
$fn$;
COMMENT ON FUNCTION public.fn_cfg_int IS 'An integer flag within its bounds, else the default given. Internal.';

-- fn_cfg_rule(key) → the rule (kind, default, bounds) of a flag; no row if there is no such flag. A retry schedule can
-- also be set for one job kind or one webhook subscription, in a separate flag: the key, a dot, and the kind or id.
-- Until that flag is set, its value is "default". Internal.
CREATE OR REPLACE FUNCTION public.fn_cfg_rule(p_key text) RETURNS SETOF public.dot_config_rule
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT p_key, r.kind, CASE WHEN r.key = p_key THEN r.default_value ELSE 'default' END, r.choices, r.switch, r.lowest,
    r.highest
  FROM public.dot_config_rule r
  WHERE r.key = p_key OR (r.kind = 'schedule' AND starts_with(p_key, r.key || '.') AND CASE r.key
    WHEN 'webhook.retry_schedule' THEN EXISTS (SELECT FROM public.subscriptions s
      WHERE s.id::text = substr(p_key, length(r.key) + 2))
    ELSE substr(p_key, length(r.key) + 2) ~ '^[A-Za-z][A-Za-z0-9_.:-]{0,99}$' END)
  ORDER BY r.key = p_key DESC LIMIT 1
$fn$;
COMMENT ON FUNCTION public.fn_cfg_rule IS
  'The rule of a flag, also of a schedule for one job kind or one webhook subscription. Internal.';

-- fn_retry_wait(key, name, n) → how long to wait after attempt n: wait number n of the schedule in flag KEY.NAME, or,
-- if it has none, in flag KEY, or of the default; the last wait of the schedule repeats; ± 20 % at random. Internal.
CREATE OR REPLACE FUNCTION public.fn_retry_wait(p_key text, p_own text, p_try int) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_waits text[];
BEGIN
  SELECT string_to_array(c.value, ' ') INTO v_waits FROM public.dot_config c
  WHERE c.key IN (p_key || '.' || p_own, p_key) AND c.value <> 'default' AND public.fn_cfg_readable(c.key, c.value)
  ORDER BY length(c.key) DESC LIMIT 1;
  IF v_waits IS NULL THEN
    SELECT string_to_array(r.default_value, ' ') INTO v_waits FROM public.dot_config_rule r WHERE r.key = p_key;
  END IF;
  RETURN v_waits[least(greatest(p_try, 1), cardinality(v_waits))]::interval * (0.8 + 0.4 * random());
END
$fn$;
COMMENT ON FUNCTION public.fn_retry_wait IS
  'How long to wait after attempt n, by the schedule of a flag, ± 20 %. Internal.';

-- fn_cfg_readable(key, value) → whether the value fits the kind and bounds of its key; true for a key without a rule.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_cfg_readable(p_key text, p_value text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
  SELECT COALESCE((
    SELECT CASE r.kind
      WHEN 'boolean' THEN p_value IN ('true', 'false')
      WHEN 'integer' THEN CASE WHEN p_value ~ '^[0-9]{1,9}$'
        THEN p_value::int BETWEEN COALESCE(r.lowest, 0) AND COALESCE(r.highest, 999999999) ELSE false END
      WHEN 'schedule' THEN p_value ~ '^[0-9]{1,6}[smhd]( [0-9]{1,6}[smhd]){0,99}$'
        OR (p_value = 'default' AND r.default_value = 'default')
      WHEN 'environment' THEN p_value = 'unset' OR p_value ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,39} (guarded|open)$'
      ELSE p_value = ANY (r.choices) END
    FROM public.fn_cfg_rule(p_key) r), true)
$fn$;
COMMENT ON FUNCTION public.fn_cfg_readable IS 'Whether a value fits the kind and the bounds of its key. Internal.';

-- fn_dot_config_seed(key, kind, default, description, switch, choices): declares a flag. An existing flag keeps its
-- value, unless the value is the default of the previous release and nobody has chosen it: nobody has set it, or only
-- for a while (dot_config_follows). Such a flag that will revert to that default reverts to the new one. Only seeds.sql
-- calls it for a flag that exists.
CREATE OR REPLACE FUNCTION public.fn_dot_config_seed(
  p_key text, p_kind text, p_default text, p_description text,
  p_switch boolean DEFAULT false, p_choices text[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  -- Not ON CONFLICT, which would wait for a lock on an existing row.
  INSERT INTO public.dot_config_rule (key, kind, default_value, choices, switch)
  SELECT p_key, p_kind, p_default, p_choices, p_switch
  WHERE NOT EXISTS (SELECT FROM public.dot_config_rule WHERE key = p_key);
  UPDATE public.dot_config c SET value = p_default, updated_at = clock_timestamp(), updated_by = 'migration'
  FROM public.dot_config_rule r
  WHERE c.key = p_key AND r.key = p_key AND r.default_value <> p_default AND c.value = r.default_value
    AND (c.updated_by = 'migration' OR EXISTS (SELECT FROM public.dot_config_follows f WHERE f.key = p_key))
    AND NOT EXISTS (SELECT FROM public.dot_config_revert v WHERE v.key = p_key);
  IF FOUND THEN
    DELETE FROM public.dot_config_follows WHERE key = p_key;
  END IF;
  UPDATE public.dot_config_revert v SET revert_to = p_default
  FROM public.dot_config_rule r
  WHERE v.key = p_key AND r.key = p_key AND r.default_value <> p_default AND v.revert_to = r.default_value
    AND EXISTS (SELECT FROM public.dot_config_follows f WHERE f.key = p_key);
  UPDATE public.dot_config_rule SET kind = p_kind, default_value = p_default, choices = p_choices, switch = p_switch
  WHERE key = p_key
    AND (kind, default_value, choices, switch) IS DISTINCT FROM (p_kind, p_default, p_choices, p_switch);
  UPDATE public.dot_config c SET description = p_description
  FROM (SELECT d.key FROM public.dot_config d WHERE d.key = p_key AND d.description <> p_description
    FOR NO KEY UPDATE SKIP LOCKED) f -- a row that is locked keeps its text until the next migrate up
  WHERE c.key = f.key;
  INSERT INTO public.dot_config (key, value, description, updated_by)
  SELECT p_key, p_default, p_description, 'migration'
  WHERE NOT EXISTS (SELECT FROM public.dot_config WHERE key = p_key);
END
$fn$;
COMMENT ON FUNCTION public.fn_dot_config_seed IS
  'Declares a flag with its kind, default and description. For seeds.';

-- fn_dot_config_stamp(), fn_dot_config_audit(): triggers for writes of dot_config rows. fn_dot_config_set, the expiry
-- and the seeds stamp and audit their writes themselves; fn_queue_clock_move changes no value. The triggers stamp (who
-- and when) and audit every other write, and cancel a pending revert. They recognise the writing function by the call
-- stack, because any writer could forge a session setting. They search it for whole signatures: the words around a
-- signature are in the server's language.
CREATE OR REPLACE FUNCTION public.fn_dot_config_stamp() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  v_stack := replace(v_stack, '"', ''); -- the quotes are there if quote_all_identifiers is on
  IF strpos(v_stack, 'fn_dot_config_set(text,text,text,text,timestamp with time zone,timestamp with time zone)') > 0
    OR strpos(v_stack, 'fn_dot_config_expire()') > 0
    OR strpos(v_stack, 'fn_dot_config_seed(text,text,text,text,boolean,text[])') > 0
    OR strpos(v_stack, 'fn_dot_config_waits(text,text,text,text,text)') > 0
    OR strpos(v_stack, 'fn_queue_environment_put(text,text,text)') > 0
    OR strpos(v_stack, 'fn_queue_clock_move(interval,timestamp with time zone)') > 0 THEN
    RETURN NEW;
  END IF;
  NEW.updated_at := clock_timestamp();
  NEW.updated_by := session_user;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_dot_config_stamp IS
  'Trigger function: stamps who wrote a dot_config row by hand, and when.';

CREATE OR REPLACE FUNCTION public.fn_dot_config_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_stack text;
BEGIN
  GET DIAGNOSTICS v_stack = PG_CONTEXT;
  v_stack := replace(v_stack, '"', ''); -- the quotes are there if quote_all_identifiers is on
  IF strpos(v_stack, 'fn_dot_config_set(text,text,text,text,timestamp with time zone,timestamp with time zone)') > 0
    OR strpos(v_stack, 'fn_dot_config_expire()') > 0
    OR strpos(v_stack, 'fn_dot_config_seed(text,text,text,text,boolean,text[])') > 0
    OR strpos(v_stack, 'fn_dot_config_waits(text,text,text,text,text)') > 0
    OR strpos(v_stack, 'fn_queue_environment_put(text,text,text)') > 0
    OR strpos(v_stack, 'fn_queue_clock_move(interval,timestamp with time zone)') > 0 THEN
    RETURN NULL;
  END IF;
  IF TG_OP = 'TRUNCATE' THEN
    PERFORM public.fn_operator_audit(p_action => 'flag_set', p_target => '(all flags)', p_actor => session_user::text,
      p_reason => 'table truncated by hand', p_filter => NULL::text, p_frozen_count => NULL::bigint,
      p_before => NULL::jsonb, p_after => NULL::jsonb, p_outcome => 'done'::text);
    DELETE FROM public.dot_config_revert;
    DELETE FROM public.dot_config_follows;
    RETURN NULL;
  END IF;
  PERFORM public.fn_operator_audit(
    p_action => 'flag_set', p_target => COALESCE(NEW.key, OLD.key), p_actor => session_user::text,
    p_reason => 'written to the table by hand',
    p_before => CASE WHEN TG_OP <> 'INSERT' THEN jsonb_build_object('value', OLD.value) END,
    p_after => CASE WHEN TG_OP <> 'DELETE' THEN jsonb_build_object('value', NEW.value) END,
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  DELETE FROM public.dot_config_revert WHERE key IN (OLD.key, NEW.key);
  DELETE FROM public.dot_config_follows WHERE key IN (OLD.key, NEW.key);
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_dot_config_audit IS
  'Trigger function: audits dot_config rows written by hand.';

CREATE OR REPLACE TRIGGER trg_dot_config_stamp BEFORE INSERT OR UPDATE ON public.dot_config
  FOR EACH ROW EXECUTE FUNCTION public.fn_dot_config_stamp();
CREATE OR REPLACE TRIGGER trg_dot_config_audit AFTER INSERT OR UPDATE OR DELETE ON public.dot_config
  FOR EACH ROW EXECUTE FUNCTION public.fn_dot_config_audit();
CREATE OR REPLACE TRIGGER trg_dot_config_audit_truncate AFTER TRUNCATE ON public.dot_config
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_dot_config_audit();

-- fn_dot_config_conflict(key, value) → '' if the value is compatible with the other flags, else why it is not.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_dot_config_conflict(p_key text, p_value text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_interval int := public.fn_cfg_int('queue.tick.stale_heartbeat_check.interval_seconds', 120);
  v_threshold int := public.fn_cfg_int('queue.heartbeat.stale_threshold_seconds', 300);
  v_lease int := public.fn_cfg_int('webhook.lease_seconds', 60);
  v_timeout int := public.fn_cfg_int('webhook.timeout_seconds', 30);
BEGIN
  IF p_key = 'queue.scheduler.mode' AND p_value = 'pg_cron'
    AND NOT (EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron')
      AND EXISTS (SELECT FROM public.queue_cron_job q WHERE q.run_as IS NOT NULL))
    -- cron jobs that a superuser created in another database are visible only by their ticks
    AND NOT EXISTS (SELECT FROM public.queue_tick_worker w WHERE w.cron_job AND w.last_result ->> 'source' = 'pg_cron'
      AND w.last_run_at BETWEEN now() - interval '1 hour' AND clock_timestamp() + interval '5 seconds') THEN
    RETURN CASE WHEN EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron')
      THEN 'no cron job of the queue is installed: run qtop scheduler install first'
      ELSE 'pg_cron is not installed in this database: no tick worker that has a cron job would run. If pg_cron '
        'ticks from another database, choose hybrid until its first ticks have arrived' END;
  END IF;
  CASE p_key
    WHEN 'queue.tick.stale_heartbeat_check.interval_seconds' THEN v_interval := p_value::int;
    WHEN 'queue.heartbeat.stale_threshold_seconds' THEN v_threshold := p_value::int;
    WHEN 'webhook.lease_seconds' THEN v_lease := p_value::int;
    WHEN 'webhook.timeout_seconds' THEN v_timeout := p_value::int;
    ELSE RETURN '';
  END CASE;
  IF p_key LIKE 'queue.%' AND v_interval * 2 >= v_threshold THEN
    RETURN format('queue.tick.stale_heartbeat_check.interval_seconds (%s) must be less than half of '
      'queue.heartbeat.stale_threshold_seconds (%s): choose ', v_interval, v_threshold)
      || CASE p_key WHEN 'queue.heartbeat.stale_threshold_seconds' THEN format('a threshold above %s s', 2 * v_interval)
      ELSE format('an interval of at most %s s', (v_threshold - 1) / 2) END;
  END IF;
  IF p_key LIKE 'webhook.%' AND v_lease < v_timeout + 10 THEN
    RETURN format('webhook.lease_seconds (%s) must be at least webhook.timeout_seconds (%s) + 10, '
      'or a request could outlive its lease', v_lease, v_timeout);
  END IF;
  RETURN '';
END
$fn$;
COMMENT ON FUNCTION public.fn_dot_config_conflict IS
  'Why a value is not compatible with the other flags; empty if it is. Internal.';

-- fn_dot_config_refusal(key, value, expires_at, expected_updated_at) → (rule, reason): why fn_dot_config_set would
-- refuse this change now; both NULL = it would accept the change. Previews call it too. Takes no locks.
CREATE OR REPLACE FUNCTION public.fn_dot_config_refusal(p_key text, p_value text, p_expires_at timestamptz DEFAULT NULL,
  p_expected_updated_at timestamptz DEFAULT NULL, OUT rule text, OUT reason text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_rule public.dot_config_rule;
  v_row public.dot_config;
BEGIN
  SELECT * INTO v_row FROM public.dot_config WHERE key = p_key;
  SELECT * INTO v_rule FROM public.fn_cfg_rule(p_key);
  IF v_rule.key IS NULL THEN
    rule := 'unknown_key';
    reason := format('there is no flag %s; qtop flags lists them', left(p_key, 100));
  ELSIF NOT public.fn_cfg_readable(p_key, p_value) THEN
    rule := 'invalid_value';
    reason := format('%s takes %s, not "%s"', p_key,
      CASE v_rule.kind WHEN 'boolean' THEN 'true or false'
        WHEN 'integer' THEN format('a whole number from %s to %s', COALESCE(v_rule.lowest, 0),
          COALESCE(v_rule.highest, 999999999))
        WHEN 'schedule' THEN 'up to 100 waits as 5s 30s 2m 1h 1d'
          || CASE v_rule.default_value WHEN 'default' THEN ', or default' ELSE '' END
        WHEN 'environment' THEN 'a name and guarded or open, as in "prod-eu guarded", or unset'
        ELSE array_to_string(v_rule.choices, ', ') END, left(p_value, 100));
  ELSIF v_rule.kind = 'environment' AND p_expires_at IS NOT NULL THEN
    rule := 'conflict';
    reason := 'the environment of a database cannot expire: leave the expiry out';
  ELSIF v_rule.kind = 'environment' AND public.fn_queue_environment_lowers(p_before => v_row.value, p_after => p_value)
  THEN
    rule := 'confirm';
    reason := format('this database is guarded (%s), so fn_dot_config_set may not change its environment: use qtop '
      'environment set NAME --guard guarded|open --confirm NAME', v_row.value);
  ELSIF p_expires_at <= clock_timestamp() THEN
    rule := 'expiry_in_the_past';
    reason := 'the expiry must be in the future';
  ELSIF p_expires_at > clock_timestamp() + interval '366 days' THEN
    rule := 'expiry_too_far';
    reason := 'the expiry must be within a year; leave it out for a value that does not expire';
  ELSIF p_expires_at IS NOT NULL AND p_key = 'queue.tick.config_expiry.interval_seconds' AND p_value ~ '^0+$' THEN
    rule := 'conflict';
    reason := 'an interval of 0 switches off the tick worker config_expiry, which ends values: it could not end this '
      'one; leave the expiry out';
  ELSIF v_row.updated_at > p_expected_updated_at
    -- the clock of the server may have gone back; a time long ago may be one that the program cannot represent
    OR v_row.updated_at < p_expected_updated_at AND v_row.updated_at > clock_timestamp() - interval '1 year' THEN
    rule := 'changed';
    reason := format('%s was changed to "%s" by %s at %s: look at it, then repeat', p_key, v_row.value,
      v_row.updated_by,
      to_char(v_row.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'));
  ELSIF public.fn_dot_config_conflict(p_key, p_value) <> '' THEN
    rule := 'conflict';
    reason := public.fn_dot_config_conflict(p_key, p_value);
  ELSIF v_row.value = p_value AND p_expires_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM public.dot_config_revert WHERE key = p_key) THEN
    rule := 'unchanged';
    reason := format('%s is already "%s"', p_key, p_value);
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_refusal TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_dot_config_refusal IS
  'Why a change of a flag would be refused; NULL if it would not.';

-- fn_dot_config_set(key, value, actor, reason, expires_at, expected_updated_at) → {key, before, after, updated_at,
-- reverts_at, audit_id}, or a refusal: unknown_key; invalid_value; conflict (with another flag); changed (the flag was
-- changed since expected_updated_at: by whom and when); unchanged (the flag has this value); expiry_in_the_past;
-- expiry_too_far; confirm (a guarded database needs a confirmation). A later set cancels a pending revert.
CREATE OR REPLACE FUNCTION public.fn_dot_config_set(
  p_key text, p_value text, p_actor text, p_reason text,
  p_expires_at timestamptz DEFAULT NULL, p_expected_updated_at timestamptz DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
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
    RAISE EXCEPTION 'p_key and p_value must not be null' USING ERRCODE = '22023';
  END IF;
  -- Flags that are validated against each other are locked together, in key order; so is the flag of all kinds or
  -- subscriptions, because a schedule for one has no row at first.
  PERFORM 1 FROM public.dot_config
  WHERE key = p_key OR starts_with(p_key, key || '.') OR (p_key = ANY (c_coupled) AND key = ANY (c_coupled))
  ORDER BY key FOR UPDATE;
  SELECT * INTO v_row FROM public.dot_config WHERE key = p_key;
  SELECT * INTO v_rule FROM public.fn_cfg_rule(p_key);

  SELECT r.rule, r.reason INTO v_code, v_refusal
    FROM public.fn_dot_config_refusal(p_key, p_value, p_expires_at, p_expected_updated_at) r;
  IF v_code IS NOT NULL THEN
    v_audit := public.fn_operator_audit(
      p_action => 'flag_set', p_target => left(p_key, 200), p_actor => v_actor, p_reason => v_reason,
      p_before => jsonb_build_object('value', v_row.value),
      p_after => jsonb_build_object('value', left(p_value, 200)), p_outcome => 'refused: ' || v_code,
      p_filter => NULL::text, p_frozen_count => NULL::bigint);
    RETURN jsonb_build_object('refused', true, 'rule', v_code, 'reason', v_refusal, 'audit_id', v_audit,
      'updated_by', v_row.updated_by, 'updated_at', v_row.updated_at, 'value', v_row.value);
  END IF;

  IF v_row.key IS NULL AND v_rule.default_value = 'default' THEN
    PERFORM public.fn_dot_config_seed(p_key => p_key, p_kind => v_rule.kind, p_default => v_rule.default_value,
      p_description => (SELECT c.description FROM public.dot_config c WHERE starts_with(p_key, c.key || '.')
        ORDER BY length(c.key) DESC LIMIT 1) || '; only for this one',
      p_switch => v_rule.switch, p_choices => v_rule.choices);
  END IF;
  v_at := clock_timestamp();
  INSERT INTO public.dot_config AS c (key, value, updated_at, updated_by) VALUES (p_key, p_value, v_at, v_actor)
  ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,
    updated_by = excluded.updated_by;
  IF p_expires_at IS NULL THEN
    DELETE FROM public.dot_config_follows WHERE key = p_key;
  ELSIF COALESCE(v_row.updated_by, 'migration') = 'migration' THEN
    INSERT INTO public.dot_config_follows (key) VALUES (p_key) ON CONFLICT DO NOTHING;
  END IF;

  -- If the current value is itself temporary, revert_to does not change.
  DELETE FROM public.dot_config_revert WHERE key = p_key RETURNING * INTO v_pending;
  IF p_expires_at IS NOT NULL THEN
    INSERT INTO public.dot_config_revert (key, set_value, set_at, revert_to, revert_at, set_by, reason)
    VALUES (p_key, p_value, v_at, COALESCE(CASE WHEN v_pending.set_at = v_row.updated_at THEN v_pending.revert_to END,
      v_row.value, v_rule.default_value), p_expires_at, v_actor, v_reason);
  END IF;

  v_audit := public.fn_operator_audit(
    p_action => 'flag_set', p_target => p_key, p_actor => v_actor, p_reason => v_reason,
    p_before => jsonb_build_object('value', v_row.value),
    p_after => jsonb_build_object('value', p_value, 'reverts_at', p_expires_at),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  PERFORM public.fn_queue_wake('queue_wake_system', jsonb_build_object('layer', 'config', 'event_domain', 'system',
    'worker_hint', 'console', 'count', 1, 'occurred_at', v_at));
  RETURN jsonb_build_object('key', p_key, 'before', v_row.value, 'after', p_value, 'updated_at', v_at,
    'reverts_at', p_expires_at, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_set TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_dot_config_set IS
  'Changes a flag: validates the value by its key, compares updated_at with what the caller saw, audits before and '
  'after, and with p_expires_at stores the value to set back. Refusals: unknown_key, invalid_value, conflict, changed, '
  'unchanged, expiry_in_the_past, expiry_too_far, confirm.';

-- fn_dot_config_expire() → {reverted, dropped, held}: tick worker config_expiry. A flag reverts only if it still has
-- the value that was set with the expiry; otherwise the revert is dropped. A revert that would conflict with other
-- flags is held: it stays pending and is shown as overdue.
CREATE OR REPLACE FUNCTION public.fn_dot_config_expire() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN '{"reverted": 0, "dropped": 0, "held": 0}'::jsonb || public.fn_queue_step('config_expire'::text, 10000);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_dot_config_expire TO :"dot_executor";
COMMENT ON FUNCTION public.fn_dot_config_expire IS
  'Tick config_expiry: sets expired flags back, except those that were changed in the meantime.';

CREATE OR REPLACE FUNCTION public.fn_step_config_expire(p_limit int, p_only text[], p_except text[]) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_key text;
  v_due public.dot_config_revert;
  v_row public.dot_config;
  v_reverted int := 0;
  v_dropped int := 0;
  v_held int := 0;
BEGIN
  FOR v_key IN
    SELECT r.key FROM public.dot_config_revert r WHERE r.revert_at <= clock_timestamp()
      AND (p_only IS NULL OR r.key = ANY (p_only)) AND r.key <> ALL (p_except)
    ORDER BY r.key
  LOOP
    -- Lock the flag's row first, as fn_dot_config_set does; a locked flag is being set right now and is no longer due.
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
      PERFORM public.fn_operator_audit(
        p_action => 'flag_revert', p_target => v_key, p_actor => v_due.set_by,
        p_reason => 'expired: ' || v_due.reason, p_before => jsonb_build_object('value', v_due.set_value),
        p_after => jsonb_build_object('value', v_due.revert_to),
        p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
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
COMMENT ON FUNCTION public.fn_step_config_expire IS
  'Step config_expire (see fn_queue_step): sets expired flags back. Internal.';

CREATE OR REPLACE FUNCTION public.fn_step_config_expire_targets(p_limit int, p_except text[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN ARRAY(SELECT r.key FROM public.dot_config_revert r
    WHERE r.revert_at <= clock_timestamp() AND r.key <> ALL (p_except) ORDER BY r.key LIMIT p_limit);
END
$fn$;
COMMENT ON FUNCTION public.fn_step_config_expire_targets IS
  'Targets of the step config_expire: flags whose value has expired. Internal.';
