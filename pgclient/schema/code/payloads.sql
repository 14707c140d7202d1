-- Payloads: masked for viewers, revealed in full to operators who give a reason.

-- fn_payload_fits(payload) → whether the payload can be returned as text: about 64 MiB at most. A number takes a few
-- bytes in jsonb, whatever its exponent, but up to 150 kB as text: a row with nine thousand such numbers would make
-- every claim of that row fail.
CREATE OR REPLACE FUNCTION public.fn_payload_fits(p_payload jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_most CONSTANT bigint := 67108864;
BEGIN
  IF p_payload IS NULL THEN
    RETURN true;
  END IF;
  RETURN pg_column_size(jsonb_build_array(p_payload)) <= v_most -- the uncompressed size
    AND COALESCE((SELECT sum(scale(n.v::numeric) + CASE WHEN abs(n.v::numeric) > 1e308 THEN 131072 ELSE 0 END)
      FROM jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "number")') AS n (v)), 0) <= v_most;
END
$fn$;
COMMENT ON FUNCTION public.fn_payload_fits IS 'Whether a payload can be returned as text: about 64 MiB at most.';
GRANT EXECUTE ON FUNCTION public.fn_payload_fits TO :"dot_executor", :"webhook_worker";

-- fn_job_payload(job, token, most) → bytes: the length of the payload of a leased job as text; payload: the text itself
-- if it has at most `most` bytes. It is for the host that holds the lease and is about to run the job, so that a host
-- keeps only a few long payloads of a claim in memory at a time. Both are NULL if the payload cannot be returned
-- (fn_payload_fits). No row: the job is no longer leased with the token. Raises 42501 as the result functions do.
CREATE OR REPLACE FUNCTION public.fn_job_payload(p_job_id uuid, p_lease_token uuid, p_most bigint)
RETURNS TABLE (bytes bigint, payload text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
#variable_conflict use_column
DECLARE
  v_owner text;
  v_text text;
BEGIN
  SELECT h.owner_role INTO v_owner FROM public.job_lease l
  JOIN public.queue_heartbeat h ON h.executor_id = l.lease_owner WHERE l.lease_token = p_lease_token;
  IF NOT public.fn_executor_member(v_owner) THEN
    RAISE EXCEPTION 'job % belongs to an executor of role %, and login % is not a member of it', p_job_id, v_owner,
      session_user USING ERRCODE = '42501', HINT = format('GRANT %I TO %I', v_owner, session_user);
  END IF;
  SELECT CASE WHEN public.fn_payload_fits(q.payload) THEN q.payload::text END INTO v_text
  FROM public.job_queue q WHERE q.job_id = p_job_id AND q.lease_token = p_lease_token;
  IF FOUND THEN
    RETURN QUERY SELECT octet_length(v_text)::bigint, CASE WHEN octet_length(v_text) <= p_most THEN v_text END;
  END IF;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_job_payload TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_payload IS
  'The payload of a leased job as text, for the host that works on it.';

-- fn_job_payload_damage(payload) → the error with which PostgreSQL refuses to read a payload that is damaged on disk;
-- NULL = it can be read. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_payload_damage(p_payload jsonb) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM jsonb_typeof(p_payload); -- reads all of it
  RETURN NULL;
EXCEPTION WHEN data_corrupted OR io_error OR undefined_file THEN
  RETURN SQLERRM;
END
$fn$;
COMMENT ON FUNCTION public.fn_job_payload_damage IS
  'The error with which a damaged payload is read; NULL = it can be read. Internal.';

-- fn_payload_max() → the most bytes that a payload may have as text: flag queue.payload.max_bytes. It never waits for a
-- lock, because producers call it: if the flag cannot be read at once, the default applies. Internal.
CREATE OR REPLACE FUNCTION public.fn_payload_max() RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1ms' AS $fn$
BEGIN -- a subtransaction that writes nothing
  RETURN COALESCE((SELECT m.n FROM public.v_dot_config_number m WHERE m.key = 'queue.payload.max_bytes'), 262144);
EXCEPTION WHEN OTHERS THEN
  RETURN 262144;
END
$fn$;
COMMENT ON FUNCTION public.fn_payload_max IS
  'The most bytes that a payload may have as text; read without waiting. Internal.';

-- fn_payload_admit(name, bytes): raises 22023 if a new payload is too long as text. Triggers call it only above 16384
-- bytes, because the flag cannot be set lower. Internal.
CREATE OR REPLACE FUNCTION public.fn_payload_admit(p_name text, p_bytes int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_most int := public.fn_payload_max();
BEGIN
  IF p_bytes > v_most THEN
    RAISE EXCEPTION '% has % bytes as text, more than % (queue.payload.max_bytes)', p_name, p_bytes, v_most
      USING ERRCODE = '22023', HINT = 'store the content where the receiver can read it and pass a reference';
  END IF;
END
$fn$;
COMMENT ON FUNCTION public.fn_payload_admit IS
  'Refuses a payload whose text is longer than queue.payload.max_bytes. Internal.';

-- fn_payload_raw(kind, id) → the payload as stored; NULL = no such payload. kind: event (a webhook event), dead_letter
-- (of a webhook), event_outbox (of several events with the id the one that was routed), event_dead_letter (the event
-- that could not be routed), job, job_dead_letter. Internal.
CREATE OR REPLACE FUNCTION public.fn_payload_raw(p_kind text, p_id text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_payload jsonb;
  v_number bigint;
  v_uuid uuid;
BEGIN
  BEGIN
    IF p_kind IN ('event', 'dead_letter') THEN
      v_number := p_id::bigint;
    ELSIF p_kind IN ('event_outbox', 'event_dead_letter', 'job', 'job_dead_letter') THEN
      v_uuid := p_id::uuid;
    ELSE
      RAISE EXCEPTION 'p_kind must be event, dead_letter, event_outbox, event_dead_letter, job or job_dead_letter'
        USING ERRCODE = '22023';
    END IF;
    IF p_id IS NULL THEN
      RAISE invalid_text_representation;
    END IF;
  EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range THEN
    RAISE EXCEPTION 'p_id % is not the id of a payload of kind %', quote_nullable(left(p_id, 60)), p_kind
      USING ERRCODE = '22023', HINT = 'event and dead_letter have numbers, the other kinds UUIDs';
  END;
  CASE p_kind
    WHEN 'event' THEN
      SELECT e.payload INTO v_payload FROM public.events e WHERE e.id = v_number;
    WHEN 'dead_letter' THEN
      SELECT d.payload_snapshot INTO v_payload FROM public.dead_letters d WHERE d.id = v_number;
    WHEN 'event_outbox' THEN
      SELECT e.safe_payload INTO v_payload FROM public.event_outbox e WHERE e.id = v_uuid
      ORDER BY EXISTS (SELECT FROM public.iu_route_dead_letter d WHERE d.event_id = e.id
          AND d.failure_code = 'ROUTE_DUPLICATE_ID'
          AND public.fn_iu_route_dead_letter_of(d, e.event_domain, e.created_at)),
        NOT EXISTS (SELECT FROM public.iu_route_attempt a
          WHERE (a.event_id, a.event_domain, a.event_type) = (e.id, e.event_domain, e.event_type)), e.created_at
      LIMIT 1;
    WHEN 'event_dead_letter' THEN
      SELECT d.event_snapshot INTO v_payload FROM public.iu_route_dead_letter d WHERE d.dead_letter_id = v_uuid;
    WHEN 'job' THEN
      SELECT j.payload INTO v_payload FROM public.v_job j WHERE j.job_id = v_uuid;
    ELSE
      SELECT d.payload INTO v_payload FROM public.job_dead_letter d WHERE d.dead_letter_id = v_uuid;
  END CASE;
  RETURN v_payload;
END
$fn$;
COMMENT ON FUNCTION public.fn_payload_raw IS 'A payload as stored. Internal.';

-- fn_payload_masked(kind, id) → the payload with secrets masked; NULL = no such payload. Errors of the masking never
-- quote the payload.
CREATE OR REPLACE FUNCTION public.fn_payload_masked(p_kind text, p_id text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_payload jsonb := public.fn_payload_raw(p_kind, p_id);
BEGIN
  RETURN public.fn_mask_json(v_payload, 0);
EXCEPTION WHEN OTHERS THEN
  RAISE EXCEPTION 'the secrets in the payload of % % could not be masked (SQLSTATE %), so it is not shown', p_kind,
    left(p_id, 60), SQLSTATE USING ERRCODE = '54000', HINT = 'fn_payload_reveal returns it unmasked, with an audit row';
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_payload_masked TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin";
COMMENT ON FUNCTION public.fn_payload_masked IS
  'A payload as a viewer may see it: secrets are masked.';

-- fn_payload_reveal(kind, id, actor, reason) → {payload, audit_id}: the payload as stored. First it writes a line in
-- the server log, which remains if the caller rolls back, and then the audit row. refused: not_found (no such payload).
CREATE OR REPLACE FUNCTION public.fn_payload_reveal(p_kind text, p_id text, p_actor text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_payload jsonb := public.fn_payload_raw(p_kind, p_id);
  v_target text := p_kind || ' ' || CASE WHEN p_kind IN ('event', 'dead_letter') THEN p_id::bigint::text
    ELSE p_id::uuid::text END; -- the row's id in one form, whatever was typed: fn_payload_raw has admitted it
  v_audit bigint;
BEGIN
  IF v_payload IS NULL THEN
    v_audit := public.fn_operator_audit(
      p_action => 'payload_reveal', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_outcome => 'refused: not_found',
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb);
    RETURN jsonb_build_object('refused', true, 'rule', 'not_found', 'reason', 'there is no payload of '
      || v_target || ': it never existed, or retention removed it', 'audit_id', v_audit);
  END IF;
  RAISE LOG 'qtop: payload reveal: % as % of %, because %', quote_literal(v_actor), session_user,
    quote_literal(v_target), quote_literal(v_reason);
  PERFORM set_config('synchronous_commit', 'on', true); -- the audit row must survive a crash
  v_audit := public.fn_operator_audit(
    p_action => 'payload_reveal', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
    p_frozen_count => 1::bigint,
    p_filter => NULL::text, p_before => NULL::jsonb, p_after => NULL::jsonb, p_outcome => 'done'::text);
  RETURN jsonb_build_object('payload', v_payload, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_payload_reveal TO :"dead_letter_operator", :"workflow_admin";
COMMENT ON FUNCTION public.fn_payload_reveal IS
  'A payload with its secrets, for a reason; first writes an audit row and a line in the server log.';
