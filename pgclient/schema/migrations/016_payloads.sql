-- Payloads: masked for those who look, revealed to those who say why; and the
-- letters of events that could not be routed, closed and opened again.
SET LOCAL ROLE queue_owner;

-- fn_payload_raw(kind, id) → the payload as stored; NULL where there is none. kind: event (a webhook event),
-- dead_letter, event_outbox, event_dead_letter (the event that could not be routed), job, job_dead_letter. Internal.
CREATE FUNCTION public.fn_payload_raw(p_kind text, p_id text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
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
      RAISE EXCEPTION 'p_kind must be event, dead_letter, event_outbox, event_dead_letter, job or job_dead_letter' USING ERRCODE = '22023';
    END IF;
  EXCEPTION WHEN invalid_text_representation OR numeric_value_out_of_range THEN
    RAISE EXCEPTION 'p_id does not fit the kind %', p_kind USING ERRCODE = '22023';
  END;
  CASE p_kind
    WHEN 'event' THEN
      SELECT e.payload INTO v_payload FROM public.events e WHERE e.id = v_number;
    WHEN 'dead_letter' THEN
      SELECT d.payload_snapshot INTO v_payload FROM public.dead_letters d WHERE d.id = v_number;
    WHEN 'event_outbox' THEN
      SELECT e.safe_payload INTO v_payload FROM public.event_outbox e WHERE e.id = v_uuid;
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
REVOKE ALL ON FUNCTION public.fn_payload_raw(text, text) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_payload_raw(text, text) IS 'A payload as stored. Internal.';

-- fn_payload_masked(kind, id) → the payload with secrets masked; NULL where there is none. Nothing of it stands in
-- an error: what goes wrong while it is masked is said without it.
CREATE FUNCTION public.fn_payload_masked(p_kind text, p_id text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_payload jsonb := public.fn_payload_raw(p_kind, p_id);
BEGIN
  RETURN public.fn_mask_json(v_payload);
EXCEPTION WHEN OTHERS THEN
  RAISE EXCEPTION 'the payload could not be masked (%)', SQLSTATE USING ERRCODE = '54000';
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_payload_masked(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_payload_masked(text, text) TO queue_viewer, dead_letter_operator, workflow_admin;
COMMENT ON FUNCTION public.fn_payload_masked(text, text) IS 'A payload as a viewer may see it: secrets are masked.';

-- fn_payload_reveal(kind, id, actor, reason) → {payload, audit_id}: the payload as stored. Before it comes the audit row,
-- and before that a line in the server's log, which stays when a caller rolls the row back.
-- refused: not_found.
CREATE FUNCTION public.fn_payload_reveal(p_kind text, p_id text, p_actor text, p_reason text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_payload jsonb := public.fn_payload_raw(p_kind, p_id);
  v_target text := p_kind || ' ' || lower(p_id);
  v_audit bigint;
BEGIN
  IF v_payload IS NULL THEN
    v_audit := public.fn_operator_audit('payload_reveal', v_target, v_actor, v_reason, NULL, NULL, NULL, NULL, 'refused: not_found');
    RETURN jsonb_build_object('refused', true, 'rule', 'not_found', 'reason', 'there is no payload of ' || v_target, 'audit_id', v_audit);
  END IF;
  RAISE LOG 'qtop: payload reveal: % as % of %, because %', quote_literal(v_actor), session_user, quote_literal(v_target), quote_literal(v_reason);
  PERFORM set_config('synchronous_commit', 'on', true); -- a crash must not take the row back either
  v_audit := public.fn_operator_audit('payload_reveal', v_target, v_actor, v_reason, NULL, 1);
  RETURN jsonb_build_object('payload', v_payload, 'audit_id', v_audit);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_payload_reveal(text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_payload_reveal(text, text, text, text) TO dead_letter_operator, workflow_admin;
COMMENT ON FUNCTION public.fn_payload_reveal(text, text, text, text) IS
  'A payload with its secrets, for a reason; the audit row and a line in the server log come first.';

-- fn_iu_route_letter_why(ids) → per id why its letter cannot be closed, NULL where it can. Internal.
CREATE FUNCTION public.fn_iu_route_letter_why(p_ids uuid[]) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $fn$
BEGIN
  RETURN (SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL THEN 'no such dead letter'
      WHEN d.resolved_at IS NOT NULL THEN format('closed as %s by %s at %s', d.resolution, d.resolved_by,
        to_char(d.resolved_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END ORDER BY i.n)
    FROM unnest(p_ids) WITH ORDINALITY AS i (id, n) LEFT JOIN public.iu_route_dead_letter d ON d.dead_letter_id = i.id);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_letter_why(uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION public.fn_iu_route_letter_why(uuid[]) IS 'Who closed each letter of an event and when. Internal.';

-- fn_iu_route_dead_letter_resolve(ids, resolution, note, actor, dry_run): closes open letters without a replay.
CREATE FUNCTION public.fn_iu_route_dead_letter_resolve(p_dead_letter_ids uuid[], p_resolution text, p_note text, p_actor text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_note text := CASE WHEN v_dry THEN p_note ELSE public.fn_operator_reason(p_note) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF p_resolution IS NULL OR p_resolution NOT IN ('abandoned', 'done_otherwise', 'duplicate') THEN
    RAISE EXCEPTION 'p_resolution must be abandoned, done_otherwise or duplicate' USING ERRCODE = '22023';
  END IF;
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  v_why := public.fn_iu_route_letter_why(v_ids);
  IF NOT v_dry THEN
    UPDATE public.iu_route_dead_letter d SET resolution = p_resolution, resolved_at = now(), resolved_by = v_actor, note = v_note
    FROM unnest(v_ids, v_why) AS r (id, why) WHERE d.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_job_answer('resolve', 'iu_route_dead_letter', 'resolved', v_ids, v_why, NULL, v_actor, v_note, v_dry);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_dead_letter_resolve(uuid[], text, text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_resolve(uuid[], text, text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_resolve(uuid[], text, text, text, boolean) IS
  'Closes dead letters of events without a replay: abandoned, done_otherwise or duplicate.';

-- fn_iu_route_dead_letter_reopen(ids, actor, reason, dry_run): takes a resolution back; a replay is not taken back.
CREATE FUNCTION public.fn_iu_route_dead_letter_reopen(p_dead_letter_ids uuid[], p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, false);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_ids uuid[] := public.fn_job_ids(p_dead_letter_ids);
  v_why text[];
BEGIN
  IF NOT v_dry THEN
    PERFORM 1 FROM public.iu_route_dead_letter WHERE dead_letter_id = ANY (v_ids) ORDER BY dead_letter_id FOR NO KEY UPDATE;
  END IF;
  SELECT array_agg(CASE WHEN d.dead_letter_id IS NULL THEN 'no such dead letter' WHEN d.resolved_at IS NULL THEN 'it is open'
      WHEN d.resolution = 'replayed' THEN format('it was replayed by %s', d.resolved_by) END ORDER BY i.n)
  INTO v_why FROM unnest(v_ids) WITH ORDINALITY AS i (id, n) LEFT JOIN public.iu_route_dead_letter d ON d.dead_letter_id = i.id;
  IF NOT v_dry THEN
    UPDATE public.iu_route_dead_letter d SET resolution = NULL, resolved_at = NULL, resolved_by = NULL, note = NULL
    FROM unnest(v_ids, v_why) AS r (id, why) WHERE d.dead_letter_id = r.id AND r.why IS NULL;
  END IF;
  RETURN public.fn_job_answer('reopen', 'iu_route_dead_letter', 'reopened', v_ids, v_why, NULL, v_actor, v_reason, v_dry);
END
$fn$;
REVOKE ALL ON FUNCTION public.fn_iu_route_dead_letter_reopen(uuid[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.fn_iu_route_dead_letter_reopen(uuid[], text, text, boolean) TO dead_letter_operator;
COMMENT ON FUNCTION public.fn_iu_route_dead_letter_reopen(uuid[], text, text, boolean) IS 'Opens closed dead letters of events again.';

RESET ROLE;

---- create above / drop below ----

SET LOCAL ROLE queue_owner;
DROP FUNCTION public.fn_iu_route_dead_letter_reopen(uuid[], text, text, boolean);
DROP FUNCTION public.fn_iu_route_dead_letter_resolve(uuid[], text, text, text, boolean);
DROP FUNCTION public.fn_iu_route_letter_why(uuid[]);
DROP FUNCTION public.fn_payload_reveal(text, text, text, text);
DROP FUNCTION public.fn_payload_masked(text, text);
DROP FUNCTION public.fn_payload_raw(text, text);
RESET ROLE;
