-- The event outbox, its type registry, and the NOTIFY wake bridge.
-- Sources: DP4 §3.2 and §3.5, DP1 §4.1 layer 2; names by DP4.

SET LOCAL ROLE queue_owner;

-- ---------------------------------------------------------------------------
-- Registry
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_type_registry (
  event_domain  text NOT NULL CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  event_type    text NOT NULL CHECK (event_type <> ''),
  event_stream  text NOT NULL,
  delivery_lane text NOT NULL CHECK (delivery_lane IN ('immediate', 'delayed')),
  worker_name   text,
  active        boolean NOT NULL DEFAULT true,
  description   text NOT NULL DEFAULT '',
  PRIMARY KEY (event_domain, event_type)
);
COMMENT ON TABLE public.event_type_registry IS
  'The event types that may be written. A new type is a decision of the vocabulary owners, not of a producer.';
INSERT INTO public.event_type_registry (event_domain, event_type, event_stream, delivery_lane, worker_name, description) VALUES
  ('system', 'queue_worker_silent', 'alert', 'immediate', 'iu_outbound_default', 'an executor has been silent beyond its threshold (DP4 §3.5)'),
  ('system', 'subscription_broadcast_high', 'alert', 'immediate', 'iu_outbound_default', 'too many events reach nobody in particular (DP6 §3.2)');
GRANT SELECT ON public.event_type_registry TO
  queue_viewer, dot_executor, workflow_admin, dead_letter_operator, event_ingest_writer;

-- ---------------------------------------------------------------------------
-- Wake bridge. PostgreSQL is the source of truth; a NOTIFY only wakes.
-- ---------------------------------------------------------------------------
-- fn_queue_notify_enabled() → the flag queue.notify.bridge_enabled.
CREATE FUNCTION public.fn_queue_notify_enabled() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT c.value = 'true' FROM public.dot_config c WHERE c.key = 'queue.notify.bridge_enabled'), false);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_notify_enabled() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_notify_enabled() TO
  queue_viewer, dot_executor, workflow_admin, event_ingest_writer, router_worker, saga_orchestrator, webhook_worker;
COMMENT ON FUNCTION public.fn_queue_notify_enabled() IS 'Whether the wake bridge is on (DP4 §3.2).';

-- fn_queue_wake(channel, payload): one signal, or none: the bridge is off, the
-- writer rings a doorbell itself (qtop.doorbell=on), the notification queue is
-- over half full, or the payload is too long. Never raises: an aid must not
-- cost a business row. Internal.
CREATE FUNCTION public.fn_queue_wake(p_channel text, p_payload jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on'
    OR NOT public.fn_queue_notify_enabled()
    OR pg_notification_queue_usage() > 0.5
    OR octet_length(p_channel) > 63
    OR octet_length(p_payload::text) > 7900 THEN
    RETURN;
  END IF;
  PERFORM pg_notify(p_channel, p_payload::text);
EXCEPTION WHEN OTHERS THEN
  RETURN;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_wake(text, jsonb) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_wake(text, jsonb) IS 'Sends one wake signal when the bridge is on; never raises. Internal.';

-- fn_queue_doorbell(domain) → {rung}: what a writer that silenced the triggers
-- calls after its own commit, at most once per domain per 5 ms and process.
CREATE FUNCTION public.fn_queue_doorbell(p_domain text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  IF (p_domain ~ '^[a-z][a-z0-9_]*$' AND length(p_domain) <= 51) IS NOT TRUE THEN -- {0,50} costs ten times what * does
    RAISE EXCEPTION 'p_domain must match ^[a-z][a-z0-9_]{0,50}$' USING ERRCODE = '22023';
  END IF;
  PERFORM pg_notify('queue_wake_' || p_domain, jsonb_build_object(
    'layer', 'doorbell', 'event_domain', p_domain, 'worker_hint', '', 'count', 0,
    'occurred_at', clock_timestamp())::text)
  FROM public.dot_config c
  WHERE c.key = 'queue.notify.bridge_enabled' AND c.value = 'true' AND pg_notification_queue_usage() <= 0.5;
  RETURN jsonb_build_object('rung', FOUND);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_doorbell(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_doorbell(text) TO
  event_ingest_writer, dot_executor, router_worker, saga_orchestrator, webhook_worker;
COMMENT ON FUNCTION public.fn_queue_doorbell(text) IS
  'Wakes the listeners of a domain after the caller''s commit, when the bridge is on.';

-- ---------------------------------------------------------------------------
-- Outbox
-- ---------------------------------------------------------------------------
CREATE TABLE public.event_outbox (
  id                     uuid NOT NULL DEFAULT gen_random_uuid(),
  event_domain           text NOT NULL CHECK (event_domain ~ '^[a-z][a-z0-9_]{0,50}$'),
  event_type             text NOT NULL,
  event_stream           text NOT NULL,
  delivery_lane          text NOT NULL CHECK (delivery_lane IN ('immediate', 'delayed')),
  event_severity         text NOT NULL DEFAULT 'info' CHECK (event_severity IN ('info', 'warning', 'critical')),
  event_subject_table    text,
  event_subject_ref      text,
  canonical_address      text,
  actor_ref              text,
  source_system          text,
  correlation_id         text,
  payload_classification text,
  safe_payload           jsonb NOT NULL DEFAULT '{}'
    CONSTRAINT chk_event_outbox_safe_payload CHECK (jsonb_typeof(safe_payload) = 'object' AND NOT safe_payload ?| ARRAY[
      'body', 'content', 'raw', 'vector', 'embedding', 'secret', 'token', 'password', 'ssn', 'personal_data']),
  occurred_at            timestamptz NOT NULL DEFAULT now(),
  created_at             timestamptz NOT NULL DEFAULT now(),
  created_xid            xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX ix_event_outbox_cursor ON public.event_outbox (event_domain, created_xid, id);
CREATE INDEX ix_event_outbox_created ON public.event_outbox (created_at);
COMMENT ON TABLE public.event_outbox IS
  'Events, append-only, partitioned by month. created_xid lets a cursor pass only what is surely committed.';

CREATE FUNCTION public.fn_event_outbox_admit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  NEW.created_at := now();
  NEW.created_xid := pg_current_xact_id();
  PERFORM 1 FROM public.event_type_registry r
  WHERE r.event_domain = NEW.event_domain AND r.event_type = NEW.event_type AND r.active;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'event type %/% is not registered', NEW.event_domain, NEW.event_type
      USING ERRCODE = '23503', HINT = 'register it in event_type_registry first';
  END IF;
  RETURN NEW;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_outbox_admit() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_outbox_admit() IS
  'Trigger function: refuses unregistered event types; created_at and created_xid are not the writer''s to choose.';
CREATE TRIGGER trg_event_outbox_admit BEFORE INSERT ON public.event_outbox
  FOR EACH ROW EXECUTE FUNCTION public.fn_event_outbox_admit();
CREATE TRIGGER trg_event_outbox_immutable BEFORE UPDATE OR DELETE ON public.event_outbox
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
CREATE TRIGGER trg_event_outbox_no_truncate BEFORE TRUNCATE ON public.event_outbox
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

CREATE FUNCTION public.fn_event_outbox_count() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  INSERT INTO public.queue_counter_delta (scope, k1, k3, n)
  SELECT 'event_1m', event_domain, (extract(epoch FROM date_trunc('minute', now())))::bigint::text, count(*)
  FROM new_rows GROUP BY event_domain;
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_event_outbox_count() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_event_outbox_count() IS 'Trigger function: counts new events per domain and minute.';
CREATE TRIGGER trg_event_outbox_count AFTER INSERT ON public.event_outbox
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_event_outbox_count();

-- One signal per channel and statement (a row trigger costs two thirds of the
-- producers' throughput); the definer function reads the flag, for a WHEN
-- clause would run with the writer's rights.
CREATE FUNCTION public.fn_queue_wake_notify_event_outbox() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_row record;
BEGIN
  IF current_setting('qtop.doorbell', true) = 'on' OR NOT public.fn_queue_notify_enabled() THEN
    RETURN NULL;
  END IF;
  FOR v_row IN
    SELECT DISTINCT ON (n.event_domain) n.*, count(*) OVER (PARTITION BY n.event_domain) AS n_rows, r.worker_name
    FROM new_rows n
    LEFT JOIN public.event_type_registry r ON r.event_domain = n.event_domain AND r.event_type = n.event_type
    ORDER BY n.event_domain, n.occurred_at DESC
  LOOP
    PERFORM public.fn_queue_wake('queue_wake_' || v_row.event_domain, jsonb_build_object(
      'layer', 'event', 'event_id', v_row.id, 'event_domain', v_row.event_domain,
      'event_type', left(v_row.event_type, 200), 'lane', v_row.delivery_lane, 'occurred_at', v_row.occurred_at,
      'worker_hint', v_row.worker_name, 'count', v_row.n_rows));
  END LOOP;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_wake_notify_event_outbox() FROM PUBLIC;
COMMENT ON FUNCTION public.fn_queue_wake_notify_event_outbox() IS
  'Trigger function: wakes the listeners of each domain a statement wrote to, when the bridge is on (DP4 §3.2).';
CREATE TRIGGER trg_event_outbox_wake_notify AFTER INSERT ON public.event_outbox
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_queue_wake_notify_event_outbox();

GRANT INSERT (id, event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
  event_subject_ref, canonical_address, actor_ref, source_system, correlation_id, payload_classification,
  safe_payload, occurred_at) ON public.event_outbox TO event_ingest_writer;
GRANT SELECT (id, event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
  event_subject_ref, canonical_address, actor_ref, source_system, correlation_id, payload_classification,
  occurred_at, created_at, created_xid) ON public.event_outbox TO queue_viewer, workflow_admin, dead_letter_operator;

-- fn_iu_emit_event(…) → {event_id, event_domain, event_type}. Raises for what
-- the registry or the payload rules refuse.
CREATE FUNCTION public.fn_iu_emit_event(
  p_event_domain text, p_event_type text, p_event_stream text, p_delivery_lane text, p_event_severity text,
  p_event_subject_table text, p_event_subject_ref text, p_safe_payload jsonb DEFAULT '{}',
  p_actor_ref text DEFAULT NULL, p_correlation_id text DEFAULT NULL, p_occurred_at timestamptz DEFAULT now())
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_id uuid;
BEGIN
  INSERT INTO public.event_outbox
    (event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
     event_subject_ref, safe_payload, actor_ref, correlation_id, occurred_at, source_system)
  VALUES
    (p_event_domain, p_event_type, p_event_stream, p_delivery_lane, p_event_severity, p_event_subject_table,
     p_event_subject_ref, COALESCE(p_safe_payload, '{}'), p_actor_ref, p_correlation_id,
     COALESCE(p_occurred_at, now()), session_user)
  RETURNING id INTO v_id;
  RETURN jsonb_build_object('event_id', v_id, 'event_domain', p_event_domain, 'event_type', p_event_type);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_emit_event(text, text, text, text, text, text, text, jsonb, text, text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_emit_event(text, text, text, text, text, text, text, jsonb, text, text, timestamptz)
  TO event_ingest_writer;
COMMENT ON FUNCTION public.fn_iu_emit_event(text, text, text, text, text, text, text, jsonb, text, text, timestamptz) IS
  'Writes one event into event_outbox; the type must be registered and the payload carry references, not content.';

-- ---------------------------------------------------------------------------
-- Partitions
-- ---------------------------------------------------------------------------
CREATE TABLE public.queue_partitioned (
  parent      text PRIMARY KEY,
  time_column text NOT NULL,
  step        text NOT NULL CHECK (step IN ('day', 'month')),
  ahead       interval NOT NULL
);
COMMENT ON TABLE public.queue_partitioned IS
  'The tables that are partitioned by time: by which column, in which steps (UTC), how far ahead leaves are made.';
INSERT INTO public.queue_partitioned VALUES ('event_outbox', 'created_at', 'month', '6 months');
GRANT SELECT ON public.queue_partitioned TO queue_viewer, dot_executor, workflow_admin;

-- fn_queue_partitions_ensure() → {created, moved}: the leaves from the current step
-- to as far ahead as the table asks, each with its own TRUNCATE guard (a TRUNCATE
-- of a leaf passes the parent's trigger), and a default that catches the rest.
-- Rows that the default caught get a leaf of their own step and move into it.
CREATE FUNCTION public.fn_queue_partitions_ensure() RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_plan public.queue_partitioned;
  v_default text;
  v_start timestamp;
  v_name text;
  v_from timestamptz;
  v_to timestamptz;
  v_rows bigint;
  v_created int := 0;
  v_moved bigint := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('qtop.partitions'));
  FOR v_plan IN SELECT * FROM public.queue_partitioned ORDER BY parent LOOP
    v_default := v_plan.parent || '_default';
    IF to_regclass('public.' || v_default) IS NULL THEN
      EXECUTE format('CREATE TABLE public.%I PARTITION OF public.%I DEFAULT', v_default, v_plan.parent);
      EXECUTE format('COMMENT ON TABLE public.%I IS %L', v_default,
        format('Rows of %s in a %s without a partition; should be empty.', v_plan.parent, v_plan.step));
      EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change()',
        'trg_' || v_default || '_no_truncate', v_default);
      v_created := v_created + 1;
    END IF;
    FOR v_start IN EXECUTE format(
      'SELECT generate_series(date_trunc($1, now() AT TIME ZONE ''UTC''), date_trunc($1, now() AT TIME ZONE ''UTC'') + $2, $3) '
      'UNION SELECT date_trunc($1, d.%I AT TIME ZONE ''UTC'') FROM public.%I d WHERE isfinite(d.%1$I) ORDER BY 1',
      v_plan.time_column, v_default) USING v_plan.step, v_plan.ahead, ('1 ' || v_plan.step)::interval
    LOOP
      v_name := v_plan.parent || to_char(v_start, CASE v_plan.step WHEN 'day' THEN '_YYYY_MM_DD' ELSE '_YYYY_MM' END);
      CONTINUE WHEN to_regclass('public.' || v_name) IS NOT NULL;
      v_from := v_start AT TIME ZONE 'UTC';
      v_to := (v_start + ('1 ' || v_plan.step)::interval) AT TIME ZONE 'UTC';
      EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name, v_plan.parent);
      EXECUTE format('COMMENT ON TABLE public.%I IS %L', v_name,
        format('Rows of %s of %s (UTC).', v_plan.parent, to_char(v_start, CASE v_plan.step WHEN 'day' THEN 'YYYY-MM-DD' ELSE 'YYYY-MM' END)));
      EXECUTE format('SELECT count(*) FROM public.%I d WHERE d.%I >= $1 AND d.%2$I < $2', v_default, v_plan.time_column)
        INTO v_rows USING v_from, v_to;
      IF v_rows > 0 THEN
        -- Apart from its parent the default has no row triggers: moving a row changes nothing of it.
        EXECUTE format('ALTER TABLE public.%I DETACH PARTITION public.%I', v_plan.parent, v_default);
        EXECUTE format('WITH gone AS (DELETE FROM public.%I d WHERE d.%I >= $1 AND d.%2$I < $2 RETURNING *) '
          'INSERT INTO public.%3$I SELECT * FROM gone', v_default, v_plan.time_column, v_name) USING v_from, v_to;
        v_moved := v_moved + v_rows;
        EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I DEFAULT', v_plan.parent, v_default);
      END IF;
      EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
        v_plan.parent, v_name, v_from, v_to);
      EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON public.%I FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change()',
        'trg_' || v_name || '_no_truncate', v_name);
      v_created := v_created + 1;
    END LOOP;
  END LOOP;
  RETURN jsonb_build_object('created', v_created, 'moved', v_moved);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_queue_partitions_ensure() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_queue_partitions_ensure() TO dot_executor;
COMMENT ON FUNCTION public.fn_queue_partitions_ensure() IS
  'Makes the partitions of the time to come. Called by migrate up, retention_sweep and doctor.';
SELECT public.fn_queue_partitions_ensure();

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_queue_partitions_ensure();
DROP TABLE public.queue_partitioned;
DROP FUNCTION public.fn_iu_emit_event(text, text, text, text, text, text, text, jsonb, text, text, timestamptz);
DROP TABLE public.event_outbox;
DROP FUNCTION public.fn_queue_wake_notify_event_outbox();
DROP FUNCTION public.fn_event_outbox_count();
DROP FUNCTION public.fn_event_outbox_admit();
DROP FUNCTION public.fn_queue_doorbell(text);
DROP FUNCTION public.fn_queue_wake(text, jsonb);
DROP FUNCTION public.fn_queue_notify_enabled();
DROP TABLE public.event_type_registry;
RESET ROLE;
