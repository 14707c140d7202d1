-- The limits of direct writes: R02 and DP6 grant some roles INSERT or UPDATE on tables. These triggers refuse chosen
-- ids, times other than the server's, and states that the functions of qtop would not produce. They do not check writes
-- by qtop's functions, which run as queue_owner, by members of queue_owner and by superusers: see docs/security.md.

-- fn_direct_identity(column): refuses an id that this session has not just drawn from the sequence of the table.
CREATE OR REPLACE FUNCTION public.fn_direct_identity() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id bigint := (to_jsonb(NEW) ->> TG_ARGV[0])::bigint;
  v_drawn bigint;
BEGIN
  BEGIN
    v_drawn := currval(pg_get_serial_sequence(format('public.%I', TG_TABLE_NAME), TG_ARGV[0]::text)::regclass);
  EXCEPTION WHEN object_not_in_prerequisite_state THEN
    v_drawn := NULL; -- this session has not used the sequence
  END;
  IF v_id IS DISTINCT FROM v_drawn THEN
    RAISE EXCEPTION 'cannot insert % % into %: ids may not be chosen by hand', TG_ARGV[0], v_id, TG_TABLE_NAME
      USING ERRCODE = '42501', HINT = 'leave the column out: the database assigns ids';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_identity IS
  'Trigger function: refuses an id that was not drawn from the sequence.';

CREATE OR REPLACE TRIGGER trg_subscriptions_direct_id BEFORE INSERT ON public.subscriptions FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_identity('id');
CREATE OR REPLACE TRIGGER trg_saga_direct_id BEFORE INSERT ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_identity('id');
CREATE OR REPLACE TRIGGER trg_job_direct_id BEFORE INSERT ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_identity('id');
CREATE OR REPLACE TRIGGER trg_dead_letters_direct_id BEFORE INSERT ON public.dead_letters FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_identity('id');
CREATE OR REPLACE TRIGGER trg_event_subscription_direct_id BEFORE INSERT ON public.event_subscription FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_identity('subscription_id');

-- fn_direct_saga(): trigger of webhook_delivery_sagas. A new saga must have the values that the router would give it
-- for its event and webhook subscription; a job may start only when the saga is due.
CREATE OR REPLACE FUNCTION public.fn_direct_saga() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_why text;
BEGIN
  NEW.updated_at := now();
  IF TG_OP = 'INSERT' THEN
    NEW.created_at := now();
    NEW.next_attempt_at := now();
    NEW.webhook_id := gen_random_uuid();
    SELECT CASE
      WHEN s.event_type <> e.event_type THEN format('event %s has type %s, subscription %s is for %s', e.id,
        e.event_type, s.id, s.event_type)
      WHEN NOT (s.active AND s.verified) THEN format('subscription %s is not active and verified', s.id)
      WHEN NOT EXISTS (SELECT FROM public.v_webhook_recipient r WHERE (r.event_id, r.subscription_id) = (e.id, s.id))
        THEN format('subscription %s was created after event %s', s.id, e.id)
      WHEN EXISTS (SELECT FROM public.dead_letters d WHERE (d.event_id, d.subscription_id) = (e.id, s.id))
        THEN format('event %s has a dead letter for subscription %s: requeue the dead letter', e.id, s.id)
      WHEN EXISTS (SELECT FROM public.webhook_erasure x WHERE x.event_id = e.id)
        THEN format('event %s was erased', e.id) END
    INTO v_why FROM public.events e JOIN public.subscriptions s ON s.id = NEW.subscription_id
    WHERE e.id = NEW.event_id;
    IF v_why IS NOT NULL THEN
      RAISE EXCEPTION 'cannot insert a saga: %', v_why
        USING ERRCODE = '42501', HINT = 'insert only the event: fn_webhook_router_run makes its sagas (R02)';
    END IF;
  ELSIF NEW.status = 'InProgress' AND OLD.status IN ('Pending', 'PendingRetry') THEN
    SELECT CASE WHEN (OLD.next_attempt_at <= now()) IS NOT TRUE
        THEN format('the saga is due at %s',
          to_char(OLD.next_attempt_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      WHEN g.gate NOT IN ('open', 'half_open') THEN format('its endpoint is %s', g.gate) END
    INTO v_why FROM public.v_webhook_gate g WHERE g.subscription_id = OLD.subscription_id;
    IF v_why IS NOT NULL THEN
      RAISE EXCEPTION 'cannot start a job for saga %: %', OLD.id, v_why
        USING ERRCODE = '42501', HINT = 'fn_saga_orchestrator_run makes the jobs of sagas that are due (R02)';
    END IF;
  ELSIF NEW.next_attempt_at IS DISTINCT FROM OLD.next_attempt_at AND NEW.next_attempt_at IS NOT NULL
    AND NOT NEW.next_attempt_at BETWEEN now() - interval '1 minute' AND now() + interval '366 days' THEN
    RAISE EXCEPTION 'next_attempt_at of saga % must be between now and a year from now', OLD.id
      USING ERRCODE = '22023', HINT = 'fn_saga_orchestrator_run sets it from the retry schedule';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_saga IS
  'Trigger function: checks what a login writes to sagas by hand (R02).';

CREATE OR REPLACE TRIGGER trg_saga_direct BEFORE INSERT OR UPDATE ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_saga();

-- fn_direct_job(): trigger of webhook_delivery_jobs. Every column that follows from the saga must have the saga's
-- value, and a job is settled at the current time.
CREATE OR REPLACE FUNCTION public.fn_direct_job() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF (NEW.took_ms, NEW.controlled, NEW.operation_id) IS DISTINCT FROM (OLD.took_ms, OLD.controlled, OLD.operation_id)
    THEN -- trg_job_guard refuses changes of all other columns
      RAISE EXCEPTION 'took_ms, controlled and operation_id of job % cannot be changed by hand', OLD.id
        USING ERRCODE = '42501', HINT = 'the fn_webhook_job_ functions write them';
    END IF;
    NEW.settled_at := CASE WHEN NEW.settled_at IS NOT NULL THEN now() END;
    RETURN NEW;
  END IF;
  NEW.attempt_at := now();
  NEW.took_ms := NULL;
  NEW.response_excerpt := NULL;
  SELECT s.subscription_id, 1 + COALESCE((SELECT max(j.attempt_no) FROM public.webhook_delivery_jobs j
      WHERE j.saga_id = s.id), 0), b.operation_id, b.operation_id IS NOT NULL OR g.gate = 'half_open'
      OR g.rate_limit_per_second IS NOT NULL OR g.slow_start_rate IS NOT NULL
  INTO NEW.subscription_id, NEW.attempt_no, NEW.operation_id, NEW.controlled
  FROM public.webhook_delivery_sagas s
  JOIN public.v_webhook_gate g ON g.subscription_id = s.subscription_id
  LEFT JOIN public.dead_letter_requeues q ON q.dead_letter_id = s.requeued_from_dead_letter_id
  LEFT JOIN public.webhook_operation_bucket b ON b.operation_id = q.operation_id
  WHERE s.id = NEW.saga_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no saga % for this job', COALESCE(NEW.saga_id::text, 'NULL')
      USING ERRCODE = '23503', HINT = 'write the id of a row of webhook_delivery_sagas';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_job IS
  'Trigger function: checks what a login writes to webhook jobs by hand (R02).';

CREATE OR REPLACE TRIGGER trg_job_direct BEFORE INSERT OR UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_job();

-- fn_direct_saga_agrees(): trigger that runs at commit. A saga must agree with its jobs: it is InProgress exactly while
-- one of its jobs is not settled; otherwise its state follows from its last job.
CREATE OR REPLACE FUNCTION public.fn_direct_saga_agrees() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_saga bigint := (to_jsonb(NEW) ->> TG_ARGV[0])::bigint;
  s public.webhook_delivery_sagas;
  j public.webhook_delivery_jobs;
  v_open bigint;
  v_charged bigint; -- failures that certainly count as attempts; v_failed: all failures, since a 429 may not count
  v_failed bigint;
BEGIN
  SELECT * INTO s FROM public.webhook_delivery_sagas x WHERE x.id = v_saga;
  SELECT count(*) FILTER (WHERE x.settled_at IS NULL),
    count(*) FILTER (WHERE x.settled_at IS NOT NULL AND x.status = 'Failed' AND x.error_code <> 'HTTP_429'),
    count(*) FILTER (WHERE x.settled_at IS NOT NULL AND x.status = 'Failed')
  INTO v_open, v_charged, v_failed FROM public.webhook_delivery_jobs x WHERE x.saga_id = v_saga;
  SELECT * INTO j FROM public.webhook_delivery_jobs x WHERE x.saga_id = v_saga ORDER BY x.attempt_no DESC LIMIT 1;
  IF v_open <> (s.status = 'InProgress')::int OR (CASE s.status
      WHEN 'Completed' THEN j.status IS DISTINCT FROM 'Completed' -- NULL: no job was ever made
      WHEN 'PendingRetry' THEN j.status IS DISTINCT FROM 'Failed'
      WHEN 'DeadLettered' THEN (j.status, j.error_code) IS DISTINCT FROM ('Failed', s.final_error_code)
      ELSE false END) OR s.attempt_count NOT BETWEEN v_charged AND v_failed THEN
    RAISE EXCEPTION 'saga % is % after % attempts, but has % failed jobs, % jobs not settled, and the last job %',
        v_saga, s.status, s.attempt_count, v_failed, v_open,
        COALESCE(concat_ws(' ', j.status, j.error_code), 'none')
      USING ERRCODE = '42501', HINT = 'make or settle a job in the same transaction as its saga (R02)';
  END IF;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_saga_agrees IS
  'Trigger function: a saga and its jobs that a login writes by hand must agree at commit (R02).';

CREATE CONSTRAINT TRIGGER trg_saga_agrees AFTER INSERT OR UPDATE ON public.webhook_delivery_sagas
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_saga_agrees('id');
CREATE CONSTRAINT TRIGGER trg_job_agrees AFTER INSERT OR UPDATE ON public.webhook_delivery_jobs
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_saga_agrees('saga_id');

-- fn_direct_dead_letter(): trigger of dead_letters. failed_at must be the server's time; trg_dead_letter_born compares
-- the other columns with saga and event.
CREATE OR REPLACE FUNCTION public.fn_direct_dead_letter() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  NEW.failed_at := now();
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_dead_letter IS
  'Trigger function: a dead letter that is written by hand gets the server''s time.';

CREATE OR REPLACE TRIGGER trg_dead_letters_direct BEFORE INSERT ON public.dead_letters FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_dead_letter();

-- fn_direct_webhook_subscription(): trigger of subscriptions that refuses invalid values, and a new event type while
-- deliveries of the subscription are under way. A row whose URL does not change keeps one of any form.
CREATE OR REPLACE FUNCTION public.fn_direct_webhook_subscription() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_old public.subscriptions := OLD;
  c_invisible constant text := E'[\\u0001-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f'
    '\\ufeff]';
BEGIN
  IF NEW.callback_url <> v_old.callback_url OR v_old.callback_url IS NULL AND NEW.callback_url IS NOT NULL THEN
    PERFORM public.fn_webhook_url_admit('callback_url'::text, NEW.callback_url::text);
  END IF;
  IF NEW.rate_limit_per_second IS DISTINCT FROM v_old.rate_limit_per_second THEN
    PERFORM public.fn_webhook_rate_admit('rate_limit_per_second'::text, NEW.rate_limit_per_second);
  END IF;
  IF NEW.event_type IS DISTINCT FROM v_old.event_type AND NEW.event_type ~ c_invisible THEN
    RAISE EXCEPTION 'event_type must not contain invisible characters' USING ERRCODE = '22023';
  ELSIF NEW.event_type <> v_old.event_type AND EXISTS (SELECT FROM public.webhook_delivery_sagas s
    WHERE s.subscription_id = v_old.id AND s.status NOT IN ('Completed', 'DeadLettered')) THEN
    RAISE EXCEPTION 'cannot change the event type of webhook subscription %: it has deliveries of % under way',
      v_old.id, v_old.event_type
      USING ERRCODE = '42501', HINT = 'create a subscription for the other type, and set this one to inactive';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_webhook_subscription IS
  'Trigger function: checks what is written to webhook subscriptions by hand.';

CREATE OR REPLACE TRIGGER trg_subscriptions_direct BEFORE INSERT OR UPDATE ON public.subscriptions FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_webhook_subscription();

-- fn_direct_router_offset(): trigger of router_offsets. The offset may only move forward, and not beyond the existing
-- events. Only qtop adopt and the router write the columns restored_…: they record how far the router has gone through
-- the events of a restored copy.
CREATE OR REPLACE FUNCTION public.fn_direct_router_offset() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_old public.router_offsets := OLD;
  v_last bigint := (SELECT COALESCE(max(e.id), 0) FROM public.events e);
BEGIN
  NEW.updated_at := now();
  IF (NEW.last_xid BETWEEN COALESCE(v_old.last_xid, '0') AND pg_snapshot_xmax(pg_current_snapshot())
      AND NEW.last_event_id BETWEEN 0 AND greatest(v_last, v_old.last_event_id)
      AND NEW.max_event_id BETWEEN COALESCE(v_old.max_event_id, 0) AND greatest(v_last, v_old.max_event_id)
      AND NEW.events_seen BETWEEN COALESCE(v_old.events_seen, 0) AND 1000000000000000
      AND NEW.held_rows BETWEEN 0 AND 1000000000000000
      AND COALESCE(NEW.held_since BETWEEN now() - interval '366 days' AND now(), true)
      AND COALESCE(NEW.held_xid <= pg_snapshot_xmax(pg_current_snapshot()), true)
      AND NEW.system_identifier = COALESCE(v_old.system_identifier, (SELECT c.system_identifier
        FROM pg_control_system() c))
      AND (NEW.restored_through_id, NEW.restored_after_id, NEW.restored_xid, NEW.restored_subscription_id)
        IS NOT DISTINCT FROM (v_old.restored_through_id, v_old.restored_after_id, v_old.restored_xid,
          v_old.restored_subscription_id)) IS NOT TRUE THEN
    RAISE EXCEPTION 'the cursor in router_offsets may only move forward, and not beyond the existing events'
      USING ERRCODE = '42501', HINT = 'leave it to fn_webhook_router_run, which moves it';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_router_offset IS
  'Trigger function: checks changes of the router''s offset that a login makes by hand.';

CREATE OR REPLACE TRIGGER trg_router_offsets_direct BEFORE INSERT OR UPDATE ON public.router_offsets FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_router_offset();

-- fn_direct_event_subscription() and fn_direct_job_subscription(): triggers that apply the rules of
-- fn_event_subscription_add and fn_job_subscription_set to new values; values that older releases accepted stay.
CREATE OR REPLACE FUNCTION public.fn_direct_event_subscription() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_old public.event_subscription := OLD;
  c_invisible constant text := E'[\\u0001-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f'
    '\\ufeff]';
BEGIN
  IF NEW.recipient_ref IS DISTINCT FROM v_old.recipient_ref AND (NEW.recipient_ref ~ c_invisible
    OR NEW.recipient_ref ~ '^(role|agency|user|agent):\s') THEN
    RAISE EXCEPTION 'recipient_ref must be role:NAME, agency:NAME, user:NAME or agent:NAME without invisible characters'
      USING ERRCODE = '22023';
  ELSIF NEW.event_domain IS DISTINCT FROM v_old.event_domain AND NEW.event_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'event_domain must match ^[a-z][a-z0-9_]{0,50}$ or be null' USING ERRCODE = '22023';
  ELSIF (NEW.event_type, NEW.event_stream, NEW.scope_subject_table) IS DISTINCT FROM (v_old.event_type,
    v_old.event_stream, v_old.scope_subject_table)
    AND ('' IN (NEW.event_type, NEW.event_stream, NEW.scope_subject_table)
      OR concat(NEW.event_type, NEW.event_stream, NEW.scope_subject_table) ~ c_invisible) THEN
    RAISE EXCEPTION 'event_type, event_stream and scope_subject_table must be null or text of visible characters'
      USING ERRCODE = '22023';
  ELSIF NEW.scope_filter IS DISTINCT FROM v_old.scope_filter AND jsonb_typeof(NEW.scope_filter) <> 'object' THEN
    RAISE EXCEPTION 'scope_filter must be a JSON object' USING ERRCODE = '22023';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_event_subscription IS
  'Trigger function: checks new values of an event subscription, however they are written.';

CREATE OR REPLACE TRIGGER trg_event_subscription_direct BEFORE INSERT OR UPDATE ON public.event_subscription
  FOR EACH ROW EXECUTE FUNCTION public.fn_direct_event_subscription();

CREATE OR REPLACE FUNCTION public.fn_direct_job_subscription() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_old public.job_subscription := OLD;
  c_invisible constant text := E'[\\u0001-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f'
    '\\ufeff]';
BEGIN
  NEW.registered_at := COALESCE(v_old.registered_at, now());
  NEW.updated_at := now();
  IF NEW.subscription_id <> v_old.subscription_id THEN
    RAISE EXCEPTION 'subscription_id of job subscription % cannot be changed: leases refer to it', v_old.subscription_id
      USING ERRCODE = '42501', HINT = 'disable it and insert another one';
  ELSIF NEW.executor_id <> v_old.executor_id AND NEW.executor_id !~ '^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$' THEN
    RAISE EXCEPTION 'executor_id must match ^[A-Za-z0-9][A-Za-z0-9._:@/-]{0,199}$'
      USING ERRCODE = '22023', HINT = 'choose an id of letters, digits and . _ : @ / -';
  ELSIF NEW.max_parallel > 1000000 AND NEW.max_parallel IS DISTINCT FROM v_old.max_parallel THEN
    RAISE EXCEPTION 'max_parallel must be 1 to 1000000' USING ERRCODE = '22023';
  ELSIF (NEW.registered_by, NEW.updated_by) IS DISTINCT FROM (v_old.registered_by, v_old.updated_by)
    AND concat(NEW.registered_by, NEW.updated_by) ~ c_invisible THEN
    RAISE EXCEPTION 'registered_by and updated_by must not contain invisible characters' USING ERRCODE = '22023';
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_job_subscription IS
  'Trigger function: checks what a login writes to job subscriptions by hand.';

CREATE OR REPLACE TRIGGER trg_job_subscription_direct BEFORE INSERT OR UPDATE ON public.job_subscription FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_job_subscription();

-- fn_direct_row(): trigger of every table that a login may write, which refuses what NOT NULL or a CHECK of the table
-- would refuse. PostgreSQL's own error would quote the whole row, with a payload or a URL, to the client and in the
-- server's log. It runs after all other BEFORE triggers of its table, which are in the order of their names. The tables
-- of events have none, because an upgrade that made it would wait for producers and hold them up: event_outbox has
-- fn_event_outbox_admit, and of events PostgreSQL quotes such a row.
CREATE OR REPLACE FUNCTION public.fn_direct_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_table oid := COALESCE(pg_partition_root(TG_RELID)::oid, TG_RELID);
  v_name text := (SELECT c.relname FROM pg_class c WHERE c.oid = v_table);
  v_rule record;
  v_holds boolean;
BEGIN
  FOR v_rule IN
    SELECT a.attname AS col, NULL::name AS con, format('%I IS NOT NULL', a.attname) AS condition FROM pg_attribute a
    WHERE a.attrelid = v_table AND a.attnum > 0 AND a.attnotnull AND a.attgenerated = ''
    UNION ALL
    SELECT NULL, c.conname, pg_get_expr(c.conbin, c.conrelid) FROM pg_constraint c
    WHERE c.conrelid = v_table AND c.contype = 'c'
    ORDER BY 1, 2
  LOOP
    EXECUTE format('SELECT (%s) IS NOT FALSE FROM (SELECT ($1).*) r', v_rule.condition) INTO v_holds USING NEW;
    IF v_holds THEN
      CONTINUE;
    ELSIF v_rule.con IS NULL THEN
      RAISE EXCEPTION '% of % must not be null', v_rule.col, v_name
        USING ERRCODE = '23502', SCHEMA = TG_TABLE_SCHEMA, TABLE = v_name, COLUMN = v_rule.col,
          HINT = 'write a value, or leave the column out where it has a default';
    END IF;
    RAISE EXCEPTION 'a row of % must satisfy: %', v_name,
        regexp_replace(v_rule.condition, '[[:space:]]+'::text, ' '::text, 'g'::text)
      USING ERRCODE = '23514', SCHEMA = TG_TABLE_SCHEMA, TABLE = v_name, CONSTRAINT = v_rule.con,
        HINT = 'change the value of the column';
  END LOOP;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_direct_row IS
  'Trigger function: refuses a row that breaks a rule of its table, by an error that does not quote the row.';

CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.router_offsets FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.webhook_delivery_sagas FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.webhook_delivery_jobs FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT ON public.dead_letters FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.subscriptions FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.event_subscription FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
CREATE OR REPLACE TRIGGER trg_valid_row BEFORE INSERT OR UPDATE ON public.job_subscription FOR EACH ROW
  WHEN (current_user <> :'queue_owner' AND NOT pg_has_role(current_user, :'queue_owner', 'MEMBER'))
  EXECUTE FUNCTION public.fn_direct_row();
