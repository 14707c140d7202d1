-- Webhook subscriptions: add, switch on or off, change the secret, limit the rate, verify. Source: R02 §2.

-- fn_webhook_url_admit(name, url): raises 22023 for a callback URL to which no host would send, without any part of it:
-- tokens and passwords are in such texts too, and the column endpoint would show those of a text that has no form of a
-- URL. Rows of releases that accepted it keep it. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_url_admit(p_name text, p_url text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
DECLARE
  c_byte CONSTANT text := '(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
  v_place text[] := regexp_match(lower(p_url COLLATE "C"), '^https?://(\[[^]]*\]|[^/?#:]*)(?::0*([0-9]*))?');
  v_host text := v_place[1];
  v_good boolean;
BEGIN
  IF (p_url ~* '^https?://[^/?#[:space:]]' AND length(p_url) <= 2048) IS NOT TRUE THEN
    RAISE EXCEPTION '% must be an http or https URL of at most 2048 characters', p_name USING ERRCODE = '22023';
  ELSIF p_url ~ '[^!-~]'
    OR p_url !~* '^https?://(?:[^][/?#@:\\[:space:]]+|\[[0-9a-f:.]+\])(?::[0-9]*)?(?:[/?#]|$)' THEN
    RAISE EXCEPTION '% must be printable ASCII, without a user or password: sign with a secret instead', p_name
      USING ERRCODE = '22023', HINT = 'write https://HOST or https://HOST:PORT, then the path';
  END IF;
  -- The rest is as in workerhost/sender/url.go. An address in any other form, such as 127.1, is no name either.
  IF v_host ~ '^\[' THEN
    BEGIN
      v_good := family(btrim(v_host, '[]')::inet) = 6;
    EXCEPTION WHEN invalid_text_representation THEN
      v_good := false;
    END;
  ELSE
    v_good := v_host ~ ('^' || c_byte || '(?:\.' || c_byte || '){3}$')
      OR v_host ~ '^(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?$' AND length(rtrim(v_host, '.')) <= 253
        AND v_host !~ '(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$';
  END IF;
  IF NOT v_good THEN
    RAISE EXCEPTION '% has a host that is neither a DNS name nor an IP address in its usual form', p_name
      USING ERRCODE = '22023', HINT = 'such as hooks.example.com, 192.0.2.1 or [2001:db8::1]';
  ELSIF p_url ~ '^[^/]*//[^/?#]*:0+(?:[/?#]|$)' OR NULLIF(v_place[2], '')::numeric > 65535 THEN
    RAISE EXCEPTION '% has a port that is not one of 1 to 65535', p_name USING ERRCODE = '22023';
  ELSIF substring(p_url FROM '^[^?#]*') ~ '%(?![0-9A-Fa-f]{2})' OR substring(p_url FROM '#.*$') ~ '%(?![0-9A-Fa-f]{2})'
  THEN
    RAISE EXCEPTION '% has a %% sign without two hexadecimal digits behind it', p_name USING ERRCODE = '22023',
      HINT = 'write %25 for the sign itself';
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_webhook_url_admit IS
  'Refuses a callback URL to which no host would send. Internal.';

-- fn_webhook_rate_admit(name, rate): raises 22023 for a rate limit that is no number from 0.00001 to 1000000 requests
-- per second. NULL = no limit. Rows of releases that accepted a smaller one keep it. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_rate_admit(p_name text, p_rate double precision) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_rate NOT BETWEEN 0.00001 AND 1000000 THEN -- NaN is greater than every number
    RAISE EXCEPTION '% must be from 0.00001 (about one request a day) to 1000000, or NULL = no limit; it is %',
      p_name, p_rate USING ERRCODE = '22023', HINT = 'to send nothing, disable the webhook subscription';
  END IF;
END $$;
COMMENT ON FUNCTION public.fn_webhook_rate_admit IS
  'Refuses a rate limit that is too small, too great or no number. Internal.';

-- fn_webhook_subscription_add(event types, callback_url, secret_ref, unsigned, actor, reason, dry_run) → {added,
-- callback_url (masked), results, audit_id}; results per event type: {id: the type, outcome, new_id: the subscription}.
-- Adds one active and verified subscription per event type; it gets the events that are written from now on. Deliveries
-- are signed with the secret that hosts know under the name secret_ref; without secret_ref the caller must pass
-- unsigned = true. Refused: unsigned (neither was passed), exists (an active subscription sends this type to this URL
-- already). Raises 22023 for an invalid argument.
CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_add(p_event_types text[], p_callback_url text,
  p_secret_ref text, p_unsigned boolean, p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $$
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
  END IF;
  PERFORM public.fn_webhook_url_admit('p_callback_url'::text, p_callback_url);
  IF p_secret_ref !~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$' OR p_secret_ref ~* '^whsec_' THEN
    RAISE EXCEPTION 'p_secret_ref must be the name under which hosts know a secret, not the secret'
      USING ERRCODE = '22023', HINT = 'write a ref of delivery.secrets in the configuration of the hosts';
  ELSIF p_secret_ref IS NOT NULL AND p_unsigned THEN
    RAISE EXCEPTION 'p_secret_ref names a secret, but p_unsigned says that nothing is signed'
      USING ERRCODE = '22023', HINT = 'give one of them';
  END IF;
  IF NOT v_dry THEN -- if two sessions add the same subscription at once, the second one sees the row of the first
    PERFORM public.fn_queue_lease_wait('subscriptions'::text);
  END IF;
  IF p_secret_ref IS NULL AND p_unsigned IS NOT TRUE THEN
    v_rule := 'unsigned';
    v_why := 'without a signature the receiver cannot know who sends: name a secret (--secret), or say --unsigned';
  ELSE
    SELECT 'exists', format('webhook subscription %s sends %s to this URL already', s.id, s.event_type)
    INTO v_rule, v_why
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
    'callback_url', public.fn_mask_url(p_callback_url), 'results', v_results, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_add IS
  'Adds active and verified webhook subscriptions, one per event type; refused: unsigned, exists.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_subscription_add TO :"subscription_admin";

-- fn_webhook_subscription_activate(subscription, active, actor, reason, dry_run) → {subscription_id, event_type,
-- callback_url (masked), active, waiting, audit_id}: switches a webhook subscription off or on. While it is off, it
-- gets no deliveries of new events, and its waiting deliveries are not sent; no attempt is counted. Refused: not_found,
-- unchanged (active has this value already), exists (another active subscription sends its type to its URL).
CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_activate(p_subscription_id bigint, p_active boolean,
  p_actor text, p_reason text, p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_action text := CASE WHEN p_active THEN 'webhook_subscription_enable' ELSE 'webhook_subscription_disable' END;
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_row public.subscriptions;
  v_other bigint;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_subscription_id IS NULL OR p_active IS NULL THEN
    RAISE EXCEPTION 'p_subscription_id and p_active must not be null' USING ERRCODE = '22023';
  END IF;
  IF p_active AND NOT v_dry THEN -- as in fn_webhook_subscription_add
    PERFORM public.fn_queue_lease_wait('subscriptions'::text);
  END IF;
  SELECT s.* INTO v_row FROM public.subscriptions s WHERE s.id = p_subscription_id FOR NO KEY UPDATE;
  IF v_row.id IS NULL THEN
    v_rule := 'not_found';
    v_why := format('there is no webhook subscription %s; qtop webhooks lists them', p_subscription_id);
  ELSIF v_row.active = p_active THEN
    v_rule := 'unchanged';
    v_why := format('webhook subscription %s is %s already', v_row.id,
      CASE WHEN p_active THEN 'enabled' ELSE 'disabled' END);
  ELSIF p_active THEN
    SELECT s.id INTO v_other FROM public.subscriptions s WHERE s.event_type = v_row.event_type
      AND s.callback_url = v_row.callback_url AND s.active AND s.id <> v_row.id ORDER BY s.id LIMIT 1;
    IF v_other IS NOT NULL THEN
      v_rule := 'exists';
      v_why := format('webhook subscription %s sends %s to the same URL already: disable that one first', v_other,
        v_row.event_type);
    END IF;
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => v_action, p_target => v_target, p_actor => v_actor, p_reason => v_reason, p_rule => v_rule,
      p_why => v_why);
  END IF;
  IF NOT v_dry THEN
    UPDATE public.subscriptions SET active = p_active WHERE id = v_row.id;
    v_audit := public.fn_operator_audit(
      p_action => v_action, p_target => v_target, p_actor => v_actor, p_reason => v_reason, p_filter => NULL::text,
      p_frozen_count => 1::bigint, p_before => jsonb_build_object('active', v_row.active),
      p_after => jsonb_build_object('active', p_active), p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('subscription_id', v_row.id, 'event_type', v_row.event_type,
    'callback_url', public.fn_mask_url(v_row.callback_url::text), 'active', p_active, 'dry_run', v_dry,
    'waiting', (SELECT COALESCE(sum(b.waiting), 0) FROM public.v_webhook_backlog b
      WHERE b.subscription_id = v_row.id),
    'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_activate IS
  'Switches a webhook subscription off or on; refused: not_found, unchanged, exists.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_subscription_activate TO :"subscription_admin";

-- v_webhook_host_secrets: the live hosts that send webhooks, and per host the names of the secrets with which it can
-- sign now; NULL = the host does not report them: its release does not, or they are too many.
CREATE OR REPLACE VIEW public.v_webhook_host_secrets AS
SELECT q.host_id, q.version, CASE jsonb_typeof(q.progress #> '{webhook_worker,secrets}') WHEN 'array'
    THEN ARRAY(SELECT jsonb_array_elements_text(q.progress #> '{webhook_worker,secrets}')) END AS secret_refs
FROM public.queue_host q
WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
  AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND 'webhook_worker' = ANY (q.loops);
COMMENT ON VIEW public.v_webhook_host_secrets IS
  'Live hosts that send webhooks, with the names of the secrets with which each can sign; never a secret.';
GRANT SELECT ON public.v_webhook_host_secrets TO :"queue_viewer", :"dot_executor", :"dead_letter_operator",
  :"workflow_admin", :"subscription_admin";

-- fn_webhook_secret_rotate(subscription, secret_ref, actor, reason, dry_run, expected secret_ref) → {subscription_id,
-- event_type, callback_url (masked), before, after, hosts, audit_id}: signs the deliveries of a webhook subscription
-- with another secret from now on, including waiting ones. Raises 22023 for an invalid name. Refused: not_found;
-- unchanged (it has this secret); changed (its secret is not the expected one; '' expects no secret, NULL does not
-- check); no_host (no live host sends webhooks, so the secret may be unknown to all); hosts (a live host cannot sign
-- with it).
CREATE OR REPLACE FUNCTION public.fn_webhook_secret_rotate(p_subscription_id bigint, p_secret_ref text,
  p_actor text, p_reason text, p_dry_run boolean DEFAULT false, p_expect text DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_row public.subscriptions;
  v_hosts text[];
  v_without text;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_subscription_id IS NULL THEN
    RAISE EXCEPTION 'p_subscription_id must not be null' USING ERRCODE = '22023';
  ELSIF (p_secret_ref ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$' AND p_secret_ref !~* '^whsec_') IS NOT TRUE THEN
    RAISE EXCEPTION 'p_secret_ref must be the name under which hosts know a secret, not the secret'
      USING ERRCODE = '22023', HINT = 'write a ref of delivery.secrets in the configuration of the hosts';
  END IF;
  SELECT s.* INTO v_row FROM public.subscriptions s WHERE s.id = p_subscription_id FOR NO KEY UPDATE;
  SELECT array_agg(h.host_id ORDER BY h.host_id), string_agg(CASE
      WHEN h.secret_refs IS NULL THEN format('host %s (qtop %s) does not report its secrets', h.host_id, h.version)
      WHEN p_secret_ref <> ALL (h.secret_refs) THEN format('host %s cannot sign with %s', h.host_id, p_secret_ref)
    END, ', ' ORDER BY h.host_id)
  INTO v_hosts, v_without FROM public.v_webhook_host_secrets h;
  IF v_row.id IS NULL THEN
    v_rule := 'not_found';
    v_why := format('there is no webhook subscription %s; qtop webhooks lists them', p_subscription_id);
  ELSIF v_row.secret_ref = p_secret_ref THEN
    v_rule := 'unchanged';
    v_why := format('webhook subscription %s is signed with %s already', v_row.id, p_secret_ref);
  ELSIF p_expect <> COALESCE(v_row.secret_ref, '') THEN
    v_rule := 'changed';
    v_why := format('the secret of webhook subscription %s is %s now: look at it, then repeat', v_row.id,
      COALESCE(v_row.secret_ref, 'none'));
  ELSIF v_hosts IS NULL THEN
    v_rule := 'no_host';
    v_why := 'no live host sends webhooks, so no host confirms that it has the secret: start one (qtop worker)';
  ELSIF v_without IS NOT NULL THEN
    v_rule := 'hosts';
    v_why := left(v_without, 400) || ': give every host the secret (delivery.secrets) first';
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => 'webhook_secret_rotate'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_rule => v_rule, p_why => v_why);
  END IF;
  IF NOT v_dry THEN
    UPDATE public.subscriptions SET secret_ref = p_secret_ref WHERE id = v_row.id;
    v_audit := public.fn_operator_audit(
      p_action => 'webhook_secret_rotate'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_filter => NULL::text, p_frozen_count => 1::bigint,
      p_before => jsonb_build_object('secret_ref', v_row.secret_ref),
      p_after => jsonb_build_object('secret_ref', p_secret_ref, 'hosts', to_jsonb(v_hosts)), p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('subscription_id', v_row.id, 'event_type', v_row.event_type,
    'callback_url', public.fn_mask_url(v_row.callback_url::text), 'before', v_row.secret_ref, 'after', p_secret_ref,
    'hosts', to_jsonb(v_hosts), 'dry_run', v_dry, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_secret_rotate IS
  'Sets the secret of a webhook subscription once all live hosts can sign with it; refused: not_found, unchanged, '
  'changed, no_host, hosts.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_secret_rotate TO :"subscription_admin";

-- fn_webhook_rate_limit_set(subscription, requests per second, actor, reason, dry_run, expected limit) →
-- {subscription_id, event_type, callback_url (masked), before, after, waiting, audit_id}: limits the requests of all
-- hosts to a webhook subscription, new deliveries and requeued ones together; NULL = no limit. The next claim of each
-- host applies it, also to waiting deliveries. Raises 22023 for an invalid limit. Refused: not_found; unchanged (it has
-- this limit); changed (its limit is not the expected one; 0 expects none, NULL does not check).
CREATE OR REPLACE FUNCTION public.fn_webhook_rate_limit_set(p_subscription_id bigint, p_per_second double precision,
  p_actor text, p_reason text, p_dry_run boolean DEFAULT false, p_expect double precision DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_row public.subscriptions;
  v_limit text;
  v_rule text;
  v_why text;
  v_audit bigint;
BEGIN
  IF p_subscription_id IS NULL THEN
    RAISE EXCEPTION 'p_subscription_id must not be null' USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_webhook_rate_admit('p_per_second'::text, p_per_second);
  SELECT s.* INTO v_row FROM public.subscriptions s WHERE s.id = p_subscription_id FOR NO KEY UPDATE;
  v_limit := COALESCE('the limit ' || v_row.rate_limit_per_second::numeric::text || '/s', 'no limit');
  IF v_row.id IS NULL THEN
    v_rule := 'not_found';
    v_why := format('there is no webhook subscription %s; qtop webhooks lists them', p_subscription_id);
  ELSIF v_row.rate_limit_per_second IS NOT DISTINCT FROM p_per_second THEN
    v_rule := 'unchanged';
    v_why := format('webhook subscription %s has %s already', v_row.id, v_limit);
  ELSIF p_expect <> COALESCE(v_row.rate_limit_per_second, 0) THEN
    v_rule := 'changed';
    v_why := format('webhook subscription %s has %s now: look at it, then repeat', v_row.id, v_limit);
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => 'webhook_rate_limit_set'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_rule => v_rule, p_why => v_why);
  END IF;
  IF NOT v_dry THEN
    UPDATE public.subscriptions SET rate_limit_per_second = p_per_second WHERE id = v_row.id;
    v_audit := public.fn_operator_audit(
      p_action => 'webhook_rate_limit_set'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_filter => NULL::text, p_frozen_count => 1::bigint,
      p_before => jsonb_build_object('rate_limit_per_second', v_row.rate_limit_per_second),
      p_after => jsonb_build_object('rate_limit_per_second', p_per_second), p_outcome => 'done'::text);
  END IF;
  RETURN jsonb_build_object('subscription_id', v_row.id, 'event_type', v_row.event_type,
    'callback_url', public.fn_mask_url(v_row.callback_url::text), 'before', v_row.rate_limit_per_second,
    'after', p_per_second, 'dry_run', v_dry,
    'waiting', (SELECT COALESCE(sum(b.waiting), 0) FROM public.v_webhook_backlog b
      WHERE b.subscription_id = v_row.id),
    'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_webhook_rate_limit_set IS
  'Sets or lifts the rate limit of a webhook subscription, over all hosts; refused: not_found, unchanged, changed.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_rate_limit_set TO :"subscription_admin";

-- fn_webhook_subscription_verified(subscription, delivered, answer, signed, actor, reason, expected updated_at) →
-- {subscription_id, verified, audit_id}: records the answer, such as HTTP_204 or TIMEOUT, to a signed test request that
-- the caller sent to the URL of a webhook subscription. A 2xx answer makes the subscription verified: from then on it
-- gets deliveries. Refused: not_found; changed (the subscription was changed after the caller read its URL); answer (no
-- 2xx: nothing is changed).
CREATE OR REPLACE FUNCTION public.fn_webhook_subscription_verified(p_subscription_id bigint, p_delivered boolean,
  p_answer text, p_signed boolean, p_actor text, p_reason text, p_expect timestamptz) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_answer text := left(COALESCE(public.fn_trimmed(p_answer), 'no answer'), 300);
  v_row public.subscriptions;
  v_rule text;
  v_why text;
BEGIN
  IF p_subscription_id IS NULL OR p_delivered IS NULL OR p_expect IS NULL THEN
    RAISE EXCEPTION 'p_subscription_id, p_delivered and p_expect must not be null' USING ERRCODE = '22023';
  END IF;
  SELECT s.* INTO v_row FROM public.subscriptions s WHERE s.id = p_subscription_id FOR NO KEY UPDATE;
  IF v_row.id IS NULL THEN
    v_rule := 'not_found';
    v_why := format('there is no webhook subscription %s; qtop webhooks lists them', p_subscription_id);
  ELSIF v_row.updated_at <> p_expect THEN
    v_rule := 'changed';
    v_why := format('webhook subscription %s was changed since the request was sent: verify it again', v_row.id);
  ELSIF NOT p_delivered THEN
    v_rule := 'answer';
    v_why := 'the receiver did not answer with a status of 200 to 299, so nothing was changed: ' || v_answer;
  END IF;
  IF v_rule IS NOT NULL THEN
    RETURN public.fn_operator_refused(
      p_action => 'webhook_subscription_verify'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_rule => v_rule, p_why => v_why);
  END IF;
  UPDATE public.subscriptions SET verified = true WHERE id = v_row.id AND NOT verified;
  RETURN jsonb_build_object('subscription_id', v_row.id, 'verified', true, 'audit_id', public.fn_operator_audit(
    p_action => 'webhook_subscription_verify'::text, p_target => v_target, p_actor => v_actor, p_reason => v_reason,
    p_filter => NULL::text, p_frozen_count => 1::bigint, p_before => jsonb_build_object('verified', v_row.verified),
    p_after => jsonb_build_object('verified', true, 'answer', v_answer, 'signed', p_signed),
    p_outcome => 'done'::text));
END $$;
COMMENT ON FUNCTION public.fn_webhook_subscription_verified IS
  'Records the answer to a test request to a webhook subscription; a 2xx makes it verified. Refused: not_found, '
  'changed, answer.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_subscription_verified TO :"subscription_admin";
