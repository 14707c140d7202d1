-- Webhooks: adding webhook subscriptions. Source: R02 §2.

-- fn_webhook_subscription_add(event types, callback_url, secret_ref, unsigned, actor, reason, dry_run) → {added,
-- results, audit_id}; results per event type: {id: the type, outcome, new_id: the subscription}. Adds one active and
-- verified subscription per event type, which gets events from now on. Deliveries are signed with the secret that hosts
-- know as secret_ref; without one the caller must pass unsigned. Refused: unsigned (neither was passed), exists (an
-- active subscription sends this type to this URL already). Raises 22023 for an invalid argument.
CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_add(p_event_types text[], p_callback_url text,
  p_secret_ref text, p_unsigned boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_types text[] := ARRAY(SELECT DISTINCT t FROM unnest(p_event_types) t ORDER BY t);
  v_target text := 'webhook ' || public.fn_mask_url(p_callback_url);
  v_rule text;
  v_why text;
  v_results jsonb;
  v_audit bigint;
BEGIN
  IF (cardinality(v_types) BETWEEN 1 AND 100) IS NOT TRUE
    OR EXISTS (SELECT FROM unnest(v_types) t WHERE (length(t) BETWEEN 1 AND 100) IS NOT TRUE) THEN
    RAISE EXCEPTION 'p_event_types must hold 1 to 100 event types of 1 to 100 characters' USING ERRCODE = '22023';
  ELSIF (p_callback_url ~* '^https?://[^/?#[:space:]]+[^[:space:]]*$' AND length(p_callback_url) <= 2048) IS NOT TRUE
  THEN
    RAISE EXCEPTION 'p_callback_url must be an http or https URL of at most 2048 characters' USING ERRCODE = '22023';
  ELSIF p_callback_url ~ '[^!-~]' OR p_callback_url ~ '^[^/]*//[^/?#]*[@\\]' THEN -- hosts refuse to send to these
    RAISE EXCEPTION 'p_callback_url must be printable ASCII, without a user or password: sign with a secret instead'
      USING ERRCODE = '22023';
  ELSIF p_secret_ref !~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$' OR p_secret_ref ~* '^whsec_' THEN
    RAISE EXCEPTION 'p_secret_ref must be the name under which hosts know a secret, not the secret'
      USING ERRCODE = '22023';
  ELSIF p_secret_ref IS NOT NULL AND p_unsigned THEN
    RAISE EXCEPTION 'p_secret_ref and p_unsigned exclude each other' USING ERRCODE = '22023';
  END IF;
  IF p_secret_ref IS NULL AND p_unsigned IS NOT TRUE THEN
    v_rule := 'unsigned';
    v_why := 'without a signature the receiver cannot know who sends: name a secret, or say that it is unsigned';
  ELSE
    SELECT 'exists', format('subscription %s sends %s there already', s.id, s.event_type) INTO v_rule, v_why
    FROM public.subscriptions s
    WHERE s.event_type = ANY (v_types) AND s.callback_url = p_callback_url AND s.active ORDER BY s.id LIMIT 1;
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => 'webhook_subscription_add'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_rule => v_rule, p_why => v_why);
  END IF;
  IF v_dry THEN
    SELECT jsonb_agg(jsonb_build_object('id', t, 'outcome', 'would_add') ORDER BY t) INTO v_results
    FROM unnest(v_types) t;
  ELSE
    WITH made AS (
      INSERT INTO public.subscriptions (event_type, callback_url, active, verified, secret_ref)
      SELECT t, p_callback_url, true, true, p_secret_ref FROM unnest(v_types) t ORDER BY t RETURNING id, event_type)
    SELECT jsonb_agg(jsonb_build_object('id', m.event_type, 'outcome', 'added', 'new_id', m.id) ORDER BY m.event_type)
    INTO v_results FROM made m;
    v_audit := public.fn_operator_audit(
      p_action => 'webhook_subscription_add'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_filter => NULL::text, p_frozen_count => cardinality(v_types)::bigint, p_before => NULL::jsonb,
      p_after => jsonb_build_object('subscriptions', v_results, 'secret_ref', p_secret_ref), p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('added', CASE WHEN v_dry THEN 0 ELSE cardinality(v_types) END, 'dry_run', v_dry,
    'results', v_results, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_add IS
  'Adds active and verified webhook subscriptions, one per event type; refused: unsigned, exists.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_subscription_add TO :"subscription_admin";
