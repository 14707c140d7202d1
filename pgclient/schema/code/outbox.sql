-- The event outbox: the checks of new events, and the functions that emit an event. Source: DP4 §3.2.

COMMENT ON TABLE public.event_type_registry IS
  'The event types that may be written. A new type is a decision of the vocabulary owners, not of a producer.';
COMMENT ON COLUMN public.event_type_registry.delivery_lane IS 'immediate or delayed';
COMMENT ON COLUMN public.event_type_registry.worker_name IS 'the route worker that is woken';
COMMENT ON COLUMN public.event_type_registry.active IS 'false = events of the type are refused, as for a missing type';
GRANT SELECT ON public.event_type_registry TO
  :"queue_viewer", :"dot_executor", :"workflow_admin", :"dead_letter_operator", :"event_ingest_writer";

COMMENT ON TABLE public.event_outbox IS
  'Events, append-only, partitioned by month. Readers process them in batches by created_xid (queue_cursor).';
COMMENT ON COLUMN public.event_outbox.event_stream IS 'one of the producer''s streams, such as alert or update';
COMMENT ON COLUMN public.event_outbox.delivery_lane IS 'immediate or delayed';
COMMENT ON COLUMN public.event_outbox.event_subject_ref IS 'key of the row that the event is about, as text';
COMMENT ON COLUMN public.event_outbox.safe_payload IS 'references and small facts, not content; ten keys are refused';
COMMENT ON COLUMN public.event_outbox.occurred_at IS 'set by the producer';
COMMENT ON COLUMN public.event_outbox.created_at IS 'set by the server; decides the partition';
COMMENT ON COLUMN public.event_outbox.created_xid IS
  'the transaction that wrote the event in this database; the event is in the first batch whose snapshot sees it';
GRANT INSERT (id, event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
  event_subject_ref, canonical_address, actor_ref, source_system, correlation_id, payload_classification,
  safe_payload, occurred_at) ON public.event_outbox TO :"event_ingest_writer";
GRANT SELECT (id, event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
  event_subject_ref, canonical_address, actor_ref, source_system, correlation_id, payload_classification,
  occurred_at, created_at, created_xid) ON public.event_outbox TO :"queue_viewer", :"workflow_admin",
    :"dead_letter_operator";

-- fn_denied_key(payload) → why the payload is refused, naming the first denied key in it; NULL = no denied key.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_denied_key(p_payload jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN (SELECT format('may not hold the key %s: it carries references, not content', k)
    FROM unnest(ARRAY[:denied_keys]) k WHERE p_payload ? k LIMIT 1);
END
$fn$;
COMMENT ON FUNCTION public.fn_denied_key IS
  'Why a payload is refused that holds a key for content or secrets. Internal.';

-- fn_event_ours(domain, type): true for the event types that only qtop emits. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_ours(p_event_domain text, p_event_type text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN p_event_domain = 'system' AND p_event_type IN ('queue_worker_silent', 'subscription_broadcast_high');
END
$fn$;
COMMENT ON FUNCTION public.fn_event_ours IS 'Whether only qtop emits events of this type.';

-- fn_event_outbox_admit(): trigger of event_outbox that checks new events. While the registry cannot be read, or is
-- locked for over a second, it refuses every event, because it must not guess whether the type is registered.
CREATE OR REPLACE FUNCTION public.fn_event_outbox_admit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $fn$
DECLARE
  v_known boolean;
  v_stream text;
  v_lane text;
  v_bytes int;
BEGIN
  NEW.created_xid := pg_current_xact_id();
  IF current_setting('session_replication_role') = 'replica' THEN
    RETURN NEW; -- the other checks ran in the database where the event was first written
  END IF;
  NEW.created_at := now();
  IF num_nulls(NEW.id, NEW.occurred_at, NEW.safe_payload, NEW.event_severity) > 0 THEN
    -- PostgreSQL's error of a NOT NULL or CHECK would quote the row, with its payload
    RAISE EXCEPTION '% of event_outbox must not be null', CASE WHEN NEW.id IS NULL THEN 'id'
      WHEN NEW.occurred_at IS NULL THEN 'occurred_at' WHEN NEW.safe_payload IS NULL THEN 'safe_payload'
      ELSE 'event_severity' END USING ERRCODE = '23502', HINT = 'write a value, or leave the column out';
  ELSIF jsonb_typeof(NEW.safe_payload) <> 'object' THEN
    RAISE EXCEPTION 'safe_payload must be a JSON object' USING ERRCODE = '23514';
  ELSIF NEW.event_severity NOT IN ('info', 'warning', 'critical') THEN
    RAISE EXCEPTION 'event_severity must be info, warning or critical' USING ERRCODE = '23514';
  END IF;
  v_bytes := octet_length(NEW.safe_payload::text);
  IF v_bytes > 16384 THEN
    PERFORM public.fn_payload_admit('safe_payload'::text, v_bytes);
  END IF;
  BEGIN -- a subtransaction that writes nothing
    SELECT r.event_stream, r.delivery_lane INTO v_stream, v_lane FROM public.event_type_registry r
    WHERE r.event_domain = NEW.event_domain AND r.event_type = NEW.event_type AND r.active;
    v_known := FOUND;
  EXCEPTION WHEN serialization_failure OR deadlock_detected THEN
    RAISE;
  WHEN OTHERS THEN
    RAISE EXCEPTION 'event type %/% cannot be looked up: %', left(NEW.event_domain, 51), left(NEW.event_type, 200),
      SQLERRM USING ERRCODE = '55P03', HINT = 'try again once event_type_registry can be read';
  END;
  IF NOT v_known THEN
    RAISE EXCEPTION 'event type %/% is not registered', left(NEW.event_domain, 51), left(NEW.event_type, 200)
      USING ERRCODE = '23503', HINT = 'a workflow_admin registers it: qtop event-type set DOMAIN/TYPE';
  END IF;
  IF NEW.event_domain = 'system' AND public.fn_event_ours(NEW.event_domain, NEW.event_type) THEN
    -- the call stack is no proof of an event of qtop: it contains the text of the writer's statements
    DELETE FROM public.event_own o WHERE o.id = NEW.id;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'events %/% are emitted by qtop alone', NEW.event_domain, NEW.event_type
        USING ERRCODE = '42501', HINT = 'emit another event type';
    END IF;
  END IF;
  IF NEW.event_stream IS DISTINCT FROM v_stream OR NEW.delivery_lane IS DISTINCT FROM v_lane THEN
    RAISE EXCEPTION 'event type %/% has event_stream % and delivery_lane %, not % and %',
      NEW.event_domain, NEW.event_type, v_stream, v_lane, left(NEW.event_stream, 100), left(NEW.delivery_lane, 20)
      USING ERRCODE = '23514', HINT = 'write the registered values; a workflow_admin changes them: qtop event-type set';
  END IF;
  IF NEW.safe_payload ?| ARRAY[:denied_keys] THEN
    RAISE EXCEPTION 'safe_payload %', public.fn_denied_key(NEW.safe_payload) USING ERRCODE = '23514';
  END IF;
  IF NEW.occurred_at NOT BETWEEN '1970-01-01Z' AND now() + interval '1 day' THEN
    RAISE EXCEPTION 'occurred_at must lie between 1970 and a day from now' USING ERRCODE = '22023';
  END IF;
  IF octet_length(concat(NEW.event_type, NEW.event_stream, NEW.event_subject_table, NEW.event_subject_ref,
    NEW.canonical_address, NEW.actor_ref, NEW.source_system, NEW.correlation_id, NEW.payload_classification)) > 200
  THEN -- all texts together are short, so none of them is too long
    PERFORM public.fn_text_bounds_hold('event_outbox'::text, to_jsonb(NEW) - 'safe_payload'::text, NULL::jsonb,
      ARRAY['event_type 200', 'event_stream 200', 'event_subject_table 200', 'event_subject_ref 500',
        'canonical_address 500', 'actor_ref 200', 'source_system 200', 'correlation_id 200',
        'payload_classification 200']);
  END IF;
  RETURN NEW;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_outbox_admit IS
  'Trigger function: refuses unregistered types, long texts and denied payloads; sets created_at and created_xid. '
  'For rows from logical replication it sets only created_xid.';

CREATE OR REPLACE TRIGGER trg_event_outbox_admit BEFORE INSERT ON public.event_outbox
  FOR EACH ROW EXECUTE FUNCTION public.fn_event_outbox_admit();
CREATE OR REPLACE TRIGGER trg_event_outbox_immutable BEFORE UPDATE OR DELETE ON public.event_outbox
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
CREATE OR REPLACE TRIGGER trg_event_outbox_no_truncate BEFORE TRUNCATE ON public.event_outbox
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();

CREATE OR REPLACE FUNCTION public.fn_event_outbox_count() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id uuid;
  v_direct boolean;
  v_minute text := (extract(epoch FROM date_trunc('minute', now())))::bigint;
BEGIN
  -- The primary key includes the time, so an id chosen by the writer may exist already, and the router would treat the
  -- new event as routed. fn_iu_route_duplicates finds duplicates that are not routed yet.
  BEGIN
    LOCK TABLE public.iu_route_attempt IN ACCESS SHARE MODE NOWAIT;
    SELECT n.id INTO v_id FROM new_rows n
    CROSS JOIN LATERAL (SELECT FROM public.iu_route_attempt a WHERE a.event_id = n.id LIMIT 1) a LIMIT 1;
  EXCEPTION WHEN serialization_failure OR deadlock_detected THEN
    RAISE;
  WHEN OTHERS THEN
    v_id := NULL; -- no event is refused because iu_route_attempt cannot be read
  END;
  IF v_id IS NOT NULL THEN
    RAISE EXCEPTION 'an event with the id % exists already', v_id
      USING ERRCODE = '23505', HINT = 'leave the id out: the database assigns one';
  END IF;
  BEGIN -- does the work of fn_queue_count, which is too slow for every event
    LOCK TABLE public.queue_counter_recent IN ROW EXCLUSIVE MODE NOWAIT;
    SELECT c.relnatts = 6 AND c.relchecks = 0
      AND NOT (c.relhastriggers OR c.relhasrules OR c.relrowsecurity)
      AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid
        AND (i.indkey::text <> '6' OR i.indisunique OR i.indpred IS NOT NULL))
      AND NOT EXISTS (SELECT d.scope, d.k1, d.k2, d.k3, d.n FROM public.queue_counter_recent d WHERE false)
    INTO v_direct FROM pg_class c WHERE c.oid = 'public.queue_counter_recent'::regclass;
  EXCEPTION WHEN OTHERS THEN
    v_direct := false;
  END;
  IF v_direct THEN
    INSERT INTO public.queue_counter_recent (scope, k1, k3, n)
    SELECT 'event_1m', event_domain, v_minute, count(*) FROM new_rows GROUP BY event_domain;
    RETURN NULL;
  END IF;
  PERFORM public.fn_queue_count(array_agg(ARRAY['event_1m', n.event_domain, '', v_minute, n.n::text]))
  FROM (SELECT event_domain, count(*) AS n FROM new_rows GROUP BY event_domain) n;
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_outbox_count IS
  'Trigger function: counts new events per domain and minute; refuses the id of an event that was routed.';

CREATE OR REPLACE TRIGGER trg_event_outbox_count AFTER INSERT ON public.event_outbox
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION public.fn_event_outbox_count();

COMMENT ON TABLE public.event_own IS
  'Passes the id of an event that only qtop emits from fn_event_emit to the trigger of event_outbox.';

-- fn_event_emit(…) → {event_id, event_domain, event_type}. Raises 23503 if the registry refuses the event, and 23514 if
-- its payload is refused. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_emit(
  p_event_domain text, p_event_type text, p_event_stream text, p_delivery_lane text, p_event_severity text,
  p_event_subject_table text, p_event_subject_ref text, p_safe_payload jsonb,
  p_actor_ref text, p_correlation_id text, p_occurred_at timestamptz)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id uuid := gen_random_uuid();
BEGIN
  IF public.fn_event_ours(p_event_domain, p_event_type) THEN
    INSERT INTO public.event_own (id) VALUES (v_id);
  END IF;
  INSERT INTO public.event_outbox
    (id, event_domain, event_type, event_stream, delivery_lane, event_severity, event_subject_table,
     event_subject_ref, safe_payload, actor_ref, correlation_id, occurred_at, source_system)
  VALUES
    (v_id, p_event_domain, p_event_type, p_event_stream, p_delivery_lane, p_event_severity, p_event_subject_table,
     p_event_subject_ref, COALESCE(p_safe_payload, '{}'), p_actor_ref, p_correlation_id,
     COALESCE(p_occurred_at, now()), session_user);
  RETURN jsonb_build_object('event_id', v_id, 'event_domain', p_event_domain, 'event_type', p_event_type);
END
$fn$;
COMMENT ON FUNCTION public.fn_event_emit IS
  'Writes one event into event_outbox. Internal: unlike fn_iu_emit_event it also writes events that only qtop emits.';

-- fn_iu_emit_event(…) → {event_id, event_domain, event_type}; with an idempotency key also created: false = this login
-- emitted the event before, with the same type and key. Raises 23503 = the type is not registered, 23514 = the payload
-- has a denied key, 22023 = a text is too long or missing, 42501 = only qtop emits the type, 23505 = the key was used
-- for other content. No flag stops producers from emitting events.
CREATE OR REPLACE FUNCTION public.fn_iu_emit_event(
  p_event_domain text, p_event_type text, p_event_stream text, p_delivery_lane text, p_event_severity text,
  p_event_subject_table text, p_event_subject_ref text, p_safe_payload jsonb DEFAULT '{}',
  p_actor_ref text DEFAULT NULL, p_correlation_id text DEFAULT NULL, p_occurred_at timestamptz DEFAULT now(),
  p_idempotency_key text DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_id uuid := gen_random_uuid();
  v_first uuid;
  v_hash bytea;
  v_same boolean;
  v_event jsonb;
BEGIN
  IF num_nulls(p_event_domain, p_event_type, p_event_stream, p_delivery_lane, p_event_severity) > 0 THEN
    RAISE EXCEPTION 'p_event_domain, p_event_type, p_event_stream, p_delivery_lane and p_event_severity must not be '
      'null' USING ERRCODE = '22023';
  ELSIF public.fn_event_ours(p_event_domain, p_event_type) THEN
    RAISE EXCEPTION 'events %/% are emitted by qtop alone', p_event_domain, p_event_type
      USING ERRCODE = '42501', HINT = 'emit another event type';
  END IF;
  IF p_idempotency_key IS NOT NULL THEN
    IF length(p_idempotency_key) NOT BETWEEN 1 AND 500 THEN
      RAISE EXCEPTION 'p_idempotency_key must have 1 to 500 characters' USING ERRCODE = '22023';
    END IF;
    PERFORM public.fn_index_fits(ARRAY['p_event_domain', 'p_event_type', 'p_idempotency_key'],
      ARRAY[p_event_domain, p_event_type, p_idempotency_key]);
    v_hash := public.fn_content_hash(jsonb_build_array(p_event_stream, p_delivery_lane, p_event_severity,
      p_event_subject_table, p_event_subject_ref, COALESCE(p_safe_payload, '{}')));
    INSERT INTO public.producer_key AS k (scope, kind, key, target_id, content_hash, status, final_at)
    VALUES (session_user, p_event_domain || '/' || p_event_type, p_idempotency_key, v_id, v_hash, 'emitted', now())
    ON CONFLICT (scope, kind, key) DO UPDATE SET target_id = k.target_id -- locks the row against the sweep of keys
    RETURNING k.target_id, k.content_hash = v_hash INTO v_first, v_same;
    IF NOT v_same THEN
      RAISE EXCEPTION 'idempotency key % was already used for event %, which has other content', p_idempotency_key,
        v_first
        USING ERRCODE = '23505', HINT = 'one key is for one type, stream, lane, severity, subject and payload';
    ELSIF v_first <> v_id THEN
      RETURN jsonb_build_object('event_id', v_first, 'event_domain', p_event_domain, 'event_type', p_event_type,
        'created', false);
    END IF;
  END IF;
  v_event := public.fn_event_emit(
    p_event_domain => p_event_domain, p_event_type => p_event_type, p_event_stream => p_event_stream,
    p_delivery_lane => p_delivery_lane, p_event_severity => p_event_severity,
    p_event_subject_table => p_event_subject_table, p_event_subject_ref => p_event_subject_ref,
    p_safe_payload => p_safe_payload, p_actor_ref => p_actor_ref, p_correlation_id => p_correlation_id,
    p_occurred_at => p_occurred_at);
  IF p_idempotency_key IS NOT NULL THEN
    UPDATE public.producer_key k SET target_id = (v_event ->> 'event_id')::uuid WHERE k.target_id = v_id;
    v_event := v_event || '{"created": true}';
  END IF;
  RETURN v_event;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_iu_emit_event TO :"event_ingest_writer";
COMMENT ON FUNCTION public.fn_iu_emit_event IS
  'Writes one event into event_outbox; the type must be registered and the payload carry references, not content.';
