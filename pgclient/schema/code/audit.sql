-- The operator audit, and what refuses changes of append-only tables.

COMMENT ON TABLE public.queue_operator_action IS
  'Who did what, why, before and after. actor is the person claimed; db_role and client_addr come from the session. '
  'Append-only: every operator function writes its row in its own transaction.';
COMMENT ON COLUMN public.queue_operator_action.actor IS 'the person claimed; the database cannot know better';
COMMENT ON COLUMN public.queue_operator_action.db_role IS 'session_user, which nobody can set';
COMMENT ON COLUMN public.queue_operator_action.client_addr IS 'NULL = a local socket';
COMMENT ON COLUMN public.queue_operator_action.filter IS
  'the words that the caller says the selection was made with: claimed, the database is given ids';
COMMENT ON COLUMN public.queue_operator_action.claimed IS
  'what the caller''s program says about who runs it: loginuid, os_user, sudo_user, ssh_connection; not proven';
COMMENT ON COLUMN public.queue_operator_action.frozen_count IS 'rows it was about';
COMMENT ON COLUMN public.queue_operator_action.before IS 'what was there';
COMMENT ON COLUMN public.queue_operator_action.after IS 'what is there now';
COMMENT ON COLUMN public.queue_operator_action.outcome IS 'done, or refused and the rule';
GRANT SELECT ON public.queue_operator_action TO
  :"queue_viewer", :"workflow_admin", :"dead_letter_operator", :"subscription_admin";

CREATE OR REPLACE FUNCTION public.fn_refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused for every role', TG_TABLE_NAME, TG_OP
    USING ERRCODE = '42501', HINT = 'rows of this table never change; correct them by a new row';
END
$fn$;
COMMENT ON FUNCTION public.fn_refuse_change IS
  'Trigger function of append-only tables: refuses UPDATE, DELETE and TRUNCATE, whoever asks.';

CREATE OR REPLACE TRIGGER trg_queue_operator_action_immutable
  BEFORE UPDATE OR DELETE ON public.queue_operator_action
  FOR EACH ROW EXECUTE FUNCTION public.fn_refuse_change();
ALTER TABLE public.queue_operator_action ENABLE ALWAYS TRIGGER trg_queue_operator_action_immutable;
CREATE OR REPLACE TRIGGER trg_queue_operator_action_no_truncate
  BEFORE TRUNCATE ON public.queue_operator_action
  FOR EACH STATEMENT EXECUTE FUNCTION public.fn_refuse_change();
ALTER TABLE public.queue_operator_action ENABLE ALWAYS TRIGGER trg_queue_operator_action_no_truncate;

-- fn_words(list, conjunction) → the list as a sentence has it: a, b and c. Internal.
CREATE OR REPLACE FUNCTION public.fn_words(p_list text[], p_conjunction text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN regexp_replace(array_to_string(p_list, ', '), ', ([^,]*)$', ' ' || p_conjunction || ' \1');
END
$fn$;
COMMENT ON FUNCTION public.fn_words IS 'A list as a sentence has it: a, b and c. Internal.';

-- fn_operator_actor(name) → the trimmed name; 22023 when it says nothing.
CREATE OR REPLACE FUNCTION public.fn_operator_actor(p_actor text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF COALESCE(btrim(p_actor), '') = '' OR length(p_actor) > 200 THEN
    RAISE EXCEPTION 'p_actor must name a person, with 1 to 200 characters' USING ERRCODE = '22023';
  END IF;
  RETURN btrim(p_actor);
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_actor IS
  'Checks and trims the person an operator function acts for.';

-- fn_operator_reason(text) → the trimmed reason; 22023 when it says nothing.
CREATE OR REPLACE FUNCTION public.fn_operator_reason(p_reason text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF COALESCE(btrim(p_reason), '') = '' OR length(p_reason) > 2000 THEN
    RAISE EXCEPTION 'a reason is needed, with 1 to 2000 characters' USING ERRCODE = '22023';
  END IF;
  RETURN btrim(p_reason);
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_reason IS
  'Checks and trims the reason given to an operator function.';

-- fn_operator_origin() → what the program of this session claims about who runs it, from the setting qtop.origin: known
-- keys alone, each masked and cut; NULL = nothing. Never raises. Internal.
CREATE OR REPLACE FUNCTION public.fn_operator_origin() RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := COALESCE(current_setting('qtop.origin', true), '');
  v_said jsonb;
BEGIN
  IF v_text = '' THEN
    RETURN NULL;
  ELSIF octet_length(v_text) > 2000 THEN
    RETURN jsonb_build_object('unreadable', true);
  END IF;
  BEGIN
    v_said := v_text::jsonb;
    RETURN (SELECT jsonb_object_agg(k.name, left(public.fn_mask_said(v_said ->> k.name), 200))
      FROM unnest(ARRAY['loginuid', 'os_user', 'sudo_user', 'ssh_connection']) AS k (name)
      WHERE v_said ->> k.name <> '');
  EXCEPTION WHEN data_exception THEN
    RETURN jsonb_build_object('unreadable', true);
  END;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_origin IS
  'What the program of this session claims about who runs it. Internal.';

-- fn_operator_audit(…) → id of the audit row. Internal: db_role and client_addr
-- are read from the session, so that nobody can write them. A filter is the
-- caller's word and is kept as such. Of refusals one login leaves at most 100 a
-- minute, so that nobody fills the table: the last of them says so, and what comes
-- behind it has no row and no id.
CREATE OR REPLACE FUNCTION public.fn_operator_audit(
  p_action text, p_target text, p_actor text, p_reason text,
  p_filter text DEFAULT NULL, p_frozen_count bigint DEFAULT NULL,
  p_before jsonb DEFAULT NULL, p_after jsonb DEFAULT NULL, p_outcome text DEFAULT 'done')
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_refusals CONSTANT int := 100;
  v_refused bigint := 0;
  v_id bigint;
BEGIN
  IF p_outcome LIKE 'refused%' THEN
    SELECT count(*) INTO v_refused FROM (SELECT a.at, a.db_role, a.outcome FROM public.queue_operator_action a
      ORDER BY a.id DESC LIMIT 3 * c_refusals) r
    WHERE r.db_role = session_user AND r.outcome LIKE 'refused%' AND r.at > now() - interval '1 minute';
    IF v_refused >= c_refusals THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO public.queue_operator_action
    (actor, action, target, filter, frozen_count, reason, before, after, outcome, claimed)
  VALUES
    (p_actor, p_action, p_target, 'claimed: ' || p_filter, p_frozen_count, p_reason, p_before, p_after,
      p_outcome || CASE WHEN v_refused = c_refusals - 1
        THEN '; further refusals of this login are not recorded for a minute' ELSE '' END,
      public.fn_operator_origin())
  RETURNING id INTO v_id;
  RETURN v_id;
END
$fn$;
COMMENT ON FUNCTION public.fn_operator_audit IS
  'Writes one operator audit row in the caller''s transaction. Internal.';

-- fn_operator_refused(action, target, actor, reason, rule, why) → {refused, rule, reason, audit_id}: the answer of an
-- operator function that refuses, with its audit row. Internal.
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
  'The answer of an operator function that refuses, with its audit row. Internal.';
