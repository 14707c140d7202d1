-- The operator audit, and the triggers that refuse changes of append-only tables.

COMMENT ON TABLE public.queue_operator_action IS
  'The operator audit: who did what and why, with the values before and after. actor is the name that the caller gave; '
  'db_role and client_addr come from the session. Append-only: every operator function writes its row in its own '
  'transaction.';
COMMENT ON COLUMN public.queue_operator_action.actor IS
  'the person that the caller named; the database cannot verify it';
COMMENT ON COLUMN public.queue_operator_action.db_role IS 'session_user, which the caller cannot forge';
COMMENT ON COLUMN public.queue_operator_action.client_addr IS 'address of the client; NULL = a local socket';
COMMENT ON COLUMN public.queue_operator_action.filter IS
  'the filter that the caller says the rows were selected with: not verified, the database receives only ids';
COMMENT ON COLUMN public.queue_operator_action.claimed IS
  'what the caller''s program says about who runs it: loginuid, os_user, sudo_user, ssh_connection; not verified';
COMMENT ON COLUMN public.queue_operator_action.frozen_count IS
  'number of rows that were selected, that the action was about; after and outcome say how many were changed';
COMMENT ON COLUMN public.queue_operator_action.before IS 'the values before the action';
COMMENT ON COLUMN public.queue_operator_action.after IS 'the values after the action';
COMMENT ON COLUMN public.queue_operator_action.operation_id IS
  'the bulk operation that acted or that was acted on; NULL = none, or a row of an earlier release';
COMMENT ON COLUMN public.queue_operator_action.batch IS
  'number of this batch of the operation among those with the same action; NULL = not a batch';
COMMENT ON COLUMN public.queue_operator_action.batch_items IS 'items of this batch and of those before it';
COMMENT ON COLUMN public.queue_operator_action.outcome IS
  'done; asked: a signal to a session, which the caller sends after this row is committed; failed: it was tried; or '
  'refused, with the rule';
GRANT SELECT ON public.queue_operator_action TO
  :"queue_viewer", :"workflow_admin", :"dead_letter_operator", :"subscription_admin";

CREATE OR REPLACE FUNCTION public.fn_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RAISE EXCEPTION '% of table % is refused for every role: the table is append-only', TG_OP, TG_TABLE_NAME
    USING ERRCODE = '42501', HINT = 'insert a new row that corrects the old one';
END
$fn$;
COMMENT ON FUNCTION public.fn_refuse_change IS
  'Trigger function of append-only tables: refuses UPDATE, DELETE and TRUNCATE, for every role.';

CREATE OR REPLACE TRIGGER trg_queue_operator_action_immutable
  BEFORE UPDATE OR DELETE ON public.queue_operator_action
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
ALTER TABLE public.queue_operator_action ENABLE ALWAYS TRIGGER trg_queue_operator_action_immutable;
CREATE OR REPLACE TRIGGER trg_queue_operator_action_no_truncate
  BEFORE TRUNCATE ON public.queue_operator_action
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();
ALTER TABLE public.queue_operator_action ENABLE ALWAYS TRIGGER trg_queue_operator_action_no_truncate;

-- fn_words(list, conjunction) → the list as an English phrase: a, b and c. Internal.
CREATE OR REPLACE FUNCTION public.fn_words(p_list text[], p_conjunction text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
BEGIN
  RETURN regexp_replace(array_to_string(p_list, ', '), ', ([^,]*)$', ' ' || p_conjunction || ' \1');
END
$fn$;
COMMENT ON FUNCTION public.fn_words IS 'A list as an English phrase: a, b and c. Internal.';

-- fn_trimmed(text) → the text without spaces, tabs and line breaks at both ends; NULL = nothing is left. Internal.
CREATE OR REPLACE FUNCTION public.fn_trimmed(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN NULLIF(btrim(p_text, E' \t\n\x0b\f\r'), '');
END
$fn$;
COMMENT ON FUNCTION public.fn_trimmed IS
  'A text without spaces, tabs and line breaks at both ends; null if nothing is left. Internal.';

-- fn_operator_actor(name) → the trimmed name of a person; raises 22023 unless it has 1 to 200 characters.
CREATE OR REPLACE FUNCTION public.fn_operator_actor(p_actor text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_trimmed(p_actor);
BEGIN
  IF v_actor IS NULL OR length(p_actor) > 200 THEN
    RAISE EXCEPTION 'p_actor must name a person, with 1 to 200 characters' USING ERRCODE = '22023';
  END IF;
  RETURN v_actor;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_actor IS
  'Checks and trims the name of the person for whom an operator function acts.';

-- fn_operator_reason(text) → the trimmed reason; raises 22023 unless it has 1 to 2000 characters.
CREATE OR REPLACE FUNCTION public.fn_operator_reason(p_reason text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_reason text := public.fn_trimmed(p_reason);
BEGIN
  IF v_reason IS NULL OR length(p_reason) > 2000 THEN
    RAISE EXCEPTION 'a reason is needed, with 1 to 2000 characters'
      USING ERRCODE = '22023', HINT = 'say why in p_reason, or with --reason of qtop';
  END IF;
  RETURN v_reason;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_reason IS
  'Checks and trims the reason given to an operator function.';

-- fn_operator_origin() → the keys listed below from the setting qtop.origin, in which the program of this session
-- describes the person who runs it. Each value is masked and cut to 200 characters; NULL = no such key. Never raises.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_operator_origin() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := COALESCE(current_setting('qtop.origin', true), '');
  v_claims jsonb;
BEGIN
  IF v_text = '' THEN
    RETURN NULL;
  ELSIF octet_length(v_text) > 2000 THEN
    RETURN jsonb_build_object('unreadable', true);
  END IF;
  BEGIN
    v_claims := v_text::jsonb;
    RETURN (SELECT jsonb_object_agg(k.name, left(public.fn_mask_said(v_claims ->> k.name), 200))
      FROM unnest(ARRAY['loginuid', 'os_user', 'sudo_user', 'ssh_connection']) AS k (name)
      WHERE v_claims ->> k.name <> '');
  EXCEPTION WHEN data_exception THEN
    RETURN jsonb_build_object('unreadable', true);
  END;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_origin IS
  'What the program of this session says about who runs it, not verified. Internal.';

-- fn_operator_audit(…) → id of the new audit row. db_role and client_addr are read from the session, so that no caller
-- can forge them. The filter is stored as the caller passes it, unchecked. At most 100 refusals of one login are
-- recorded per minute, so that no login can fill the table: the hundredth row notes that further refusals are not
-- recorded, and for each of these the function returns NULL. Batches of operations neither count nor are left out.
--   operation  the bulk operation that acts, or on which a person acts. Only functions that no login may call pass this
--              argument, so that nobody can hide an action among the batches of an operation. A row whose action does
--              not begin with bulk_ is a batch of the operation. Batches are numbered from 1 per action, with the sum
--              of all items so far, so that the last batch alone gives the total. The caller has locked the operation.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_operator_audit(
  p_action text, p_target text, p_actor text, p_reason text,
  p_filter text DEFAULT NULL, p_frozen_count bigint DEFAULT NULL,
  p_before jsonb DEFAULT NULL, p_after jsonb DEFAULT NULL, p_outcome text DEFAULT 'done',
  p_operation_id bigint DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_refusals CONSTANT int := 100;
  v_is_batch boolean := p_operation_id IS NOT NULL AND p_action NOT LIKE 'bulk\_%';
  v_refused bigint := 0;
  v_batch bigint;
  v_items bigint;
  v_id bigint;
BEGIN
  IF p_outcome LIKE 'refused%' AND NOT v_is_batch THEN
    SELECT count(*) INTO v_refused FROM (SELECT a.at, a.db_role, a.outcome, a.batch FROM public.queue_operator_action a
      ORDER BY a.id DESC LIMIT 3 * c_refusals) r
    WHERE r.db_role = session_user AND r.outcome LIKE 'refused%' AND r.batch IS NULL
      AND r.at BETWEEN now() - interval '1 minute' AND clock_timestamp() + interval '5 seconds';
    IF v_refused >= c_refusals THEN
      RETURN NULL;
    END IF;
  END IF;
  IF v_is_batch THEN
    SELECT a.batch, a.batch_items INTO v_batch, v_items FROM public.queue_operator_action a
    WHERE a.operation_id = p_operation_id AND a.action = p_action AND a.batch IS NOT NULL ORDER BY a.id DESC LIMIT 1;
    v_batch := COALESCE(v_batch, 0) + 1;
    v_items := COALESCE(v_items, 0) + COALESCE(p_frozen_count, 0);
  END IF;
  INSERT INTO public.queue_operator_action
    (actor, action, target, filter, frozen_count, reason, before, after, outcome, claimed, operation_id, batch,
      batch_items)
  VALUES
    (p_actor, p_action, p_target, 'claimed: ' || p_filter, p_frozen_count, p_reason, p_before, p_after,
      p_outcome || CASE WHEN v_refused = c_refusals - 1
        THEN '; further refusals of this login are not recorded for a minute' ELSE '' END,
      public.fn_operator_origin(), p_operation_id, v_batch, v_items)
  RETURNING id INTO v_id;
  RETURN v_id;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_audit IS
  'Writes one operator audit row in the caller''s transaction. Internal.';

-- fn_operator_refused(action, target, actor, reason, rule, why) → {refused, rule, reason, audit_id}: the result of an
-- operator function that refuses an action; it writes the audit row of the refusal. Internal.
CREATE OR REPLACE FUNCTION public.fn_operator_refused(p_action text, p_target text, p_actor text, p_reason text,
  p_rule text, p_why text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN jsonb_build_object('refused', true, 'rule', p_rule, 'reason', p_why, 'audit_id', public.fn_operator_audit(
    p_action => p_action, p_target => p_target, p_actor => p_actor, p_reason => p_reason, p_filter => NULL::text,
    p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb,
    p_outcome => 'refused: ' || p_rule));
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_refused IS
  'Writes the audit row of a refusal and returns what the operator function answers. Internal.';

-- fn_operator_changed(action, target, actor, reason) → {refused, rule, reason, audit_id}: writes the audit row of an
-- action that the program refuses, because what it is about was changed since the preview. It takes only the actions
-- that the program compares itself; of all others the function of the action compares and writes the row.
CREATE OR REPLACE FUNCTION public.fn_operator_changed(p_action text, p_target text, p_actor text, p_reason text)
  RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_actions CONSTANT text[] := ARRAY['ack', 'bulk_plan', 'bulk_rate', 'bulk_resume', 'bulk_run', 'consumer_set',
    'environment_set', 'event_type_set', 'executor_owner', 'executor_producer_set', 'job_subscription_set',
    'route_set'];
BEGIN
  IF (p_action = ANY (c_actions)) IS NOT TRUE THEN
    RAISE EXCEPTION 'p_action must be %', public.fn_words(c_actions, 'or') USING ERRCODE = '22023';
  END IF;
  RETURN public.fn_operator_refused(
    p_action => p_action, p_target => left(COALESCE(p_target, ''), 300), p_actor => public.fn_operator_actor(p_actor),
    p_reason => public.fn_operator_reason(p_reason), p_rule => 'changed'::text,
    p_why => 'it was changed since the preview'::text);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_operator_changed TO :"workflow_admin", :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_operator_changed IS
  'Writes the audit row of an action that is refused because of a change since its preview.';
