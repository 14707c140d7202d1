-- Webhook endpoints: suspend, resume, backlog and success rates.

-- fn_webhook_target(subscription) → the name of a webhook subscription in the audit: its number and the host to which
-- it delivers; only the number if there is no such subscription. Internal.
CREATE OR REPLACE FUNCTION public.fn_webhook_target(p_subscription_id bigint) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN concat('webhook subscription ', COALESCE(p_subscription_id::text, '(null)'),
    (SELECT ' (' || left(public.fn_mask_url(s.endpoint::text), 200) || ')' FROM public.subscriptions s
    WHERE s.id = p_subscription_id));
END $$;
COMMENT ON FUNCTION public.fn_webhook_target IS
  'The name of a webhook subscription in the audit: its number and the host to which it delivers. Internal.';

-- fn_endpoint_suspend(subscription, actor, reason, for): suspends sending to a webhook subscription for that interval;
-- `for` NULL: until it is resumed. A suspension replaces an open circuit. Refused: suspended (suspended already, by an
-- operator, after a 410 answer or after long failures).
-- fn_endpoint_resume(subscription, actor, reason, expected): ends any suspension and resets the failure counts.
-- Refused: changed (the current suspension did not begin at expected).
CREATE OR REPLACE FUNCTION public.fn_endpoint_suspend(p_subscription_id bigint, p_actor text, p_reason text,
  p_for interval DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_before public.webhook_endpoint_suspensions;
  v_after public.webhook_endpoint_suspensions;
  v_audit bigint;
BEGIN
  -- ten years of the calendar: as intervals, '3650 days' > '10 years'
  IF p_for <= interval '0' OR p_for > interval '11 years' OR now() + p_for > now() + interval '10 years' THEN
    RAISE EXCEPTION 'p_for must be an interval above 0 and up to 10 years, or null for no end'
      USING ERRCODE = '22023';
  END IF;
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no webhook subscription %', COALESCE(p_subscription_id::text, 'null')
      USING ERRCODE = '22023', HINT = 'qtop webhooks lists them';
  END IF;
  SELECT * INTO v_before FROM public.webhook_endpoint_suspensions WHERE subscription_id = p_subscription_id;
  IF v_before.reason IN ('410', 'failing', 'operator') AND COALESCE(v_before.until > clock_timestamp(), true) THEN
    v_audit := public.fn_operator_audit(
      p_action => 'endpoint_suspend', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_before => to_jsonb(v_before), p_outcome => 'refused: suspended',
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_after => NULL::jsonb);
    RETURN jsonb_build_object('refused', true, 'rule', 'suspended', 'audit_id', v_audit,
      'reason', format('webhook subscription %s is suspended already (%s) by %s since %s', p_subscription_id,
        v_before.reason, v_before."by",
        to_char(v_before.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  INSERT INTO public.webhook_endpoint_suspensions AS x (subscription_id, reason, since, until, by, note)
  VALUES (p_subscription_id, 'operator', clock_timestamp(), clock_timestamp() + p_for, v_actor, v_reason)
  ON CONFLICT (subscription_id) DO UPDATE SET reason = EXCLUDED.reason, since = EXCLUDED.since,
    until = EXCLUDED.until, by = EXCLUDED.by, note = EXCLUDED.note, probe_job_id = NULL, probe_until = NULL
  RETURNING x.* INTO v_after;
  v_audit := public.fn_operator_audit(
    p_action => 'endpoint_suspend', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
    p_before => to_jsonb(v_before), p_after => to_jsonb(v_after),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  RETURN jsonb_build_object('action', 'endpoint_suspend', 'subscription_id', p_subscription_id,
    'since', v_after.since, 'until', v_after.until, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_endpoint_suspend IS
  'Stops sending to one webhook subscription; its sagas wait and use no attempt.';
GRANT EXECUTE ON FUNCTION public.fn_endpoint_suspend TO :"dead_letter_operator";

CREATE OR REPLACE FUNCTION public.fn_endpoint_resume(p_subscription_id bigint, p_actor text, p_reason text,
  p_expected_since timestamptz DEFAULT NULL) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_reason text := public.fn_operator_reason(p_reason);
  v_target text := public.fn_webhook_target(p_subscription_id);
  v_before public.webhook_endpoint_suspensions;
  v_audit bigint;
BEGIN
  PERFORM 1 FROM public.webhook_endpoint_state WHERE subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no webhook subscription %', COALESCE(p_subscription_id::text, 'null')
      USING ERRCODE = '22023', HINT = 'qtop webhooks lists them';
  END IF;
  SELECT * INTO v_before FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = p_subscription_id;
  IF v_before.since <> p_expected_since THEN
    v_audit := public.fn_operator_audit(
      p_action => 'endpoint_resume', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
      p_before => to_jsonb(v_before), p_outcome => 'refused: changed',
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_after => NULL::jsonb);
    RETURN jsonb_build_object('refused', true, 'rule', 'changed', 'audit_id', v_audit,
      'reason', format('webhook subscription %s was suspended again (%s) by %s at %s: look at it, then repeat',
        p_subscription_id, v_before.reason, v_before."by",
        to_char(v_before.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')));
  END IF;
  DELETE FROM public.webhook_endpoint_suspensions x WHERE x.subscription_id = p_subscription_id
  RETURNING x.* INTO v_before;
  IF NOT FOUND THEN
    RETURN public.fn_operator_refused(p_action => 'endpoint_resume'::text, p_target => v_target, p_actor => v_actor,
      p_reason => v_reason, p_rule => 'not_suspended'::text,
      p_why => format('webhook subscription %s is not suspended', p_subscription_id));
  END IF;
  UPDATE public.webhook_endpoint_state SET consecutive_failures = 0, failing_since = NULL
  WHERE subscription_id = p_subscription_id;
  UPDATE public.queue_alert_ack SET cleared_at = clock_timestamp(), cleared_reason = 'resumed'
  WHERE subject = 'failing:' || p_subscription_id AND cleared_at IS NULL;
  v_audit := public.fn_operator_audit(
    p_action => 'endpoint_resume', p_target => v_target, p_actor => v_actor, p_reason => v_reason,
    p_before => to_jsonb(v_before),
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_after => NULL::jsonb, p_outcome => 'done'::text);
  RETURN jsonb_build_object('action', 'endpoint_resume', 'subscription_id', p_subscription_id,
    'was', v_before.reason, 'audit_id', v_audit);
END $$;
COMMENT ON FUNCTION public.fn_endpoint_resume IS
  'Ends the suspension or closes the circuit of one webhook subscription; waiting deliveries are due at once.';
GRANT EXECUTE ON FUNCTION public.fn_endpoint_resume TO :"dead_letter_operator";

-- v_webhook_backlog: waiting deliveries per webhook subscription, from counters and the ends of two indexes. oldest_at:
-- when the oldest due work became due, including work whose expired lease has not been reset yet; NULL = no work is
-- due.
CREATE OR REPLACE VIEW public.v_webhook_backlog AS
WITH waiting AS MATERIALIZED (
  SELECT c.k1::bigint AS subscription_id, sum(c.n)::bigint AS n FROM public.v_queue_counter c
  WHERE c.scope = 'saga' AND c.k2 IN ('Pending', 'PendingRetry', 'InProgress')
  GROUP BY c.k1 HAVING sum(c.n) > 0
), lost AS MATERIALIZED (
  SELECT j.subscription_id, min(j.attempt_at) AS due_at FROM public.webhook_delivery_jobs j
  WHERE j.status = 'Leased' AND j.lease_until < now() GROUP BY j.subscription_id
)
SELECT w.subscription_id, s.endpoint, w.n AS waiting, least(
  (SELECT g.next_attempt_at FROM (SELECT g.next_attempt_at FROM public.webhook_delivery_sagas g
      WHERE g.status IN ('Pending', 'PendingRetry') AND g.subscription_id = w.subscription_id
      ORDER BY g.next_attempt_at LIMIT 1) g WHERE g.next_attempt_at <= now()),
  (SELECT j.attempt_at FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Pending' AND NOT j.controlled AND j.subscription_id = w.subscription_id
    ORDER BY j.id LIMIT 1),
  (SELECT j.attempt_at FROM public.webhook_delivery_jobs j
    WHERE j.status = 'Pending' AND j.controlled AND j.subscription_id = w.subscription_id
    ORDER BY j.id LIMIT 1), l.due_at) AS oldest_at
FROM waiting w JOIN public.subscriptions s ON s.id = w.subscription_id
LEFT JOIN lost l ON l.subscription_id = w.subscription_id;
COMMENT ON VIEW public.v_webhook_backlog IS
  'Deliveries waiting per webhook subscription and since when the oldest is due; reads only counters and indexes.';
COMMENT ON COLUMN public.v_webhook_backlog.oldest_at IS
  'when the oldest due delivery became due; NULL = none is due';
GRANT SELECT ON public.v_webhook_backlog, public.v_webhook_endpoint
  TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin", :"subscription_admin";

CREATE OR REPLACE FUNCTION public.fn_webhook_backlog()
RETURNS TABLE (subscription_id bigint, endpoint text, waiting bigint, oldest_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT b.subscription_id, b.endpoint, b.waiting, b.oldest_at FROM public.v_webhook_backlog b
$$;
COMMENT ON FUNCTION public.fn_webhook_backlog IS
  'The rows of v_webhook_backlog, for roles that may read v_queue_health but not the webhook tables. Internal.';

-- fn_webhook_url(subscription) → its callback URL without the parts that may be secret: credentials, query, fragment,
-- and parts of its path that are not plain words. NULL = there is no such webhook subscription.
CREATE OR REPLACE FUNCTION public.fn_webhook_url(p_subscription_id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT public.fn_mask_url(s.callback_url::text) FROM public.subscriptions s WHERE s.id = p_subscription_id
$$;
COMMENT ON FUNCTION public.fn_webhook_url IS
  'The callback URL of a webhook subscription without parts that may be secret.';
GRANT EXECUTE ON FUNCTION public.fn_webhook_url
  TO :"queue_viewer", :"dead_letter_operator", :"workflow_admin", :"subscription_admin";

-- v_webhook_endpoint: one row per webhook subscription for the console; it scans no history.
CREATE OR REPLACE VIEW public.v_webhook_endpoint AS
WITH dead AS MATERIALIZED (
  SELECT c.k2::bigint AS subscription_id, sum(c.n)::bigint AS n FROM public.v_queue_counter c
  WHERE c.scope = 'dead_webhook' GROUP BY c.k2 HAVING sum(c.n) > 0
)
SELECT s.id AS subscription_id, s.event_type,
  public.fn_webhook_url(s.id)::varchar(2048) AS callback_url, s.endpoint, s.active, s.verified,
  s.secret_ref IS NULL AS unsigned, s.max_attempts, s.rate_limit_per_second, g.gate,
  COALESCE(b.waiting, 0) AS waiting, b.oldest_at AS oldest_waiting_at, COALESCE(d.n, 0) AS dead_open,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_reason END AS suspended_reason,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_since END AS suspended_since,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_until END AS suspended_until,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_by END AS suspended_by,
  t.consecutive_failures, t.last_success_at, t.last_failure_at, t.last_failure_code,
  s.created_at, s.updated_at, g.slow_start_rate,
  CASE WHEN g.gate IN ('suspended', 'half_open') THEN g.suspended_note END AS suspended_note
FROM public.subscriptions s
JOIN public.v_webhook_gate g ON g.subscription_id = s.id
LEFT JOIN public.webhook_endpoint_state t ON t.subscription_id = s.id
LEFT JOIN public.v_webhook_backlog b ON b.subscription_id = s.id
LEFT JOIN dead d ON d.subscription_id = s.id;
COMMENT ON VIEW public.v_webhook_endpoint IS
  'Each webhook subscription with its gate, its waiting deliveries and dead letters, and its latest results.';
COMMENT ON COLUMN public.v_webhook_endpoint.gate IS
  'open, half_open (one attempt after a circuit was open), suspended, inactive or unverified';
COMMENT ON COLUMN public.v_webhook_endpoint.callback_url IS 'without parts that may be secret: see fn_webhook_url';
COMMENT ON COLUMN public.v_webhook_endpoint.unsigned IS 'true = it names no secret: deliveries carry no signature';
COMMENT ON COLUMN public.v_webhook_endpoint.rate_limit_per_second IS 'NULL = none';
