-- Event subscriptions: which recipient reads which events, and the inbox. Source: DP6 §1.4, §3.1, §6, §7.

COMMENT ON TABLE public.event_subscription IS
  'Event subscriptions: which recipient reads which events (DP6 §3.1). NULL means every domain, type or stream; a '
  'muted row counts as absent.';
COMMENT ON COLUMN public.event_subscription.recipient_ref IS 'role:NAME, agency:NAME, user:NAME or agent:NAME';
COMMENT ON COLUMN public.event_subscription.event_domain IS 'NULL = every domain';
COMMENT ON COLUMN public.event_subscription.event_type IS 'NULL = every type';
COMMENT ON COLUMN public.event_subscription.event_stream IS 'NULL = every stream';
COMMENT ON COLUMN public.event_subscription.scope_subject_table IS 'NULL = about any table';
COMMENT ON COLUMN public.event_subscription.scope_filter IS
  'JSON object that safe_payload must contain; {} = any payload';
COMMENT ON COLUMN public.event_subscription.mute IS 'true = the row counts as absent';
GRANT SELECT ON public.event_subscription TO :"queue_viewer", :"dot_executor", :"dead_letter_operator";
GRANT SELECT, INSERT, UPDATE ON public.event_subscription TO :"workflow_admin";

COMMENT ON TABLE public.event_read IS
  'Which recipient has read which event, when and by whose login.';

COMMENT ON TABLE public.event_inbox_position IS
  'Up to where recipients have read their events: a look at an inbox passes what the position covers. The highest '
  'version counts. No row: the inbox is read from its newest event.';
COMMENT ON COLUMN public.event_inbox_position.routed_to IS 'the recipient, or broadcast: the events to everybody';
COMMENT ON COLUMN public.event_inbox_position.read_after IS
  'the recipient has read every event that was routed after this time and not after read_until, except those in unread';
COMMENT ON COLUMN public.event_inbox_position.unread IS 'the events between both times that it may not have read';
GRANT SELECT ON public.event_read, public.event_inbox_position TO :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator";

-- fn_event_resolve_recipients(domain, type, stream, subject table, payload) → (recipient_ref, step): each recipient
-- once, with its lowest step: 1 = type and stream of the subscription equal those of the event, 2 = its type is NULL,
-- 3 = its stream is NULL, 4 = both are NULL. If no subscription matches: one row (broadcast, 5). A subscription with a
-- NULL domain or subject table matches every domain or subject table; a muted subscription matches nothing. While
-- queue.subscription_resolution.enabled is off, every event is broadcast.
CREATE OR REPLACE FUNCTION public.fn_event_resolve_recipients(
  p_event_domain text, p_event_type text, p_event_stream text,
  p_subject_table text DEFAULT NULL, p_safe_payload jsonb DEFAULT '{}')
RETURNS TABLE (recipient_ref text, step int)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF public.fn_cfg_bool('queue.subscription_resolution.enabled') THEN
    RETURN QUERY
    SELECT s.recipient_ref, min(CASE
        WHEN s.event_type IS NOT NULL AND s.event_stream IS NOT NULL THEN 1
        WHEN s.event_stream IS NOT NULL THEN 2
        WHEN s.event_type IS NOT NULL THEN 3 ELSE 4 END)
    FROM public.event_subscription s
    WHERE NOT s.mute
      AND (s.event_domain IS NULL OR s.event_domain = p_event_domain)
      AND (s.event_type IS NULL OR s.event_type = p_event_type)
      AND (s.event_stream IS NULL OR s.event_stream = p_event_stream)
      AND (s.scope_subject_table IS NULL OR s.scope_subject_table = p_subject_table)
      AND COALESCE(p_safe_payload, '{}') @> s.scope_filter
    GROUP BY s.recipient_ref;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  recipient_ref := 'broadcast';
  step := 5;
  RETURN NEXT;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_resolve_recipients TO :"queue_viewer", :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_resolve_recipients IS
  'The recipients of an event, and the step of DP6 §3.2 by which each was found.';

-- fn_event_subscription_audit(): trigger that writes an audit row for each row of event_subscription that is written
-- directly. Event subscriptions are muted, never deleted (DP6 §4).
CREATE OR REPLACE FUNCTION public.fn_event_subscription_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  PERFORM public.fn_operator_audit(
    p_action => 'event_subscription_write',
    p_target => 'subscription ' || COALESCE(NEW.subscription_id, OLD.subscription_id), p_actor => session_user::text,
    p_reason => 'written to the table by hand', p_before => CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END,
    p_after => CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END,
    p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
  RETURN NULL;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_subscription_audit IS
  'Trigger function: audits event subscriptions written by hand.';

-- The functions below write as queue_owner and write their audit rows themselves. The call stack is not used to
-- recognise them: it contains the text of statements, which anyone who may write the rows can choose.
CREATE OR REPLACE TRIGGER trg_event_subscription_audit AFTER INSERT OR UPDATE OR DELETE ON public.event_subscription
  FOR EACH ROW WHEN (current_user <> :'queue_owner') EXECUTE FUNCTION public.fn_event_subscription_audit();

-- fn_event_subscription_add(recipient, domain, type, stream, subject table, filter, actor, reason, dry_run) →
-- {subscription_id, after, audit_id}: creates an event subscription; NULL = every domain, type, stream or subject
-- table, {} = every payload. Refused: exists (there is an equal event subscription, perhaps muted).
CREATE OR REPLACE FUNCTION public.fn_event_subscription_add(p_recipient_ref text, p_event_domain text,
  p_event_type text, p_event_stream text,
  p_scope_subject_table text, p_scope_filter jsonb, p_actor text, p_reason text, p_dry_run boolean DEFAULT false)
    RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_filter jsonb := COALESCE(p_scope_filter, '{}');
  v_bad text;
  v_row public.event_subscription;
  v_audit bigint;
BEGIN
  IF COALESCE(p_recipient_ref !~ '^(role|agency|user|agent):[^\s].*$' OR length(p_recipient_ref) > 200, true) THEN
    RAISE EXCEPTION 'p_recipient_ref must be role:NAME, agency:NAME, user:NAME or agent:NAME, 200 characters at most'
      USING ERRCODE = '22023';
  ELSIF p_event_domain !~ '^[a-z][a-z0-9_]{0,50}$' THEN
    RAISE EXCEPTION 'p_event_domain must match ^[a-z][a-z0-9_]{0,50}$ or be null' USING ERRCODE = '22023';
  END IF;
  SELECT x.name INTO v_bad FROM unnest(ARRAY['p_event_type', 'p_event_stream', 'p_scope_subject_table'],
    ARRAY[p_event_type, p_event_stream, p_scope_subject_table]) WITH ORDINALITY x (name, value, n)
  WHERE length(x.value) > 200 OR x.value IS NOT NULL AND public.fn_trimmed(x.value) IS NULL ORDER BY x.n LIMIT 1;
  IF v_bad IS NOT NULL THEN
    RAISE EXCEPTION '% must have 1 to 200 characters or be null', v_bad USING ERRCODE = '22023';
  ELSIF jsonb_typeof(v_filter) <> 'object' OR length(v_filter::text) > 1000 THEN
    RAISE EXCEPTION 'p_scope_filter must be a JSON object of at most 1000 characters' USING ERRCODE = '22023';
  END IF;
  PERFORM public.fn_index_fits(ARRAY['p_recipient_ref', 'p_event_domain', 'p_event_type', 'p_event_stream',
    'p_scope_subject_table', 'p_scope_filter'], ARRAY[p_recipient_ref, p_event_domain, p_event_type, p_event_stream,
    p_scope_subject_table, v_filter::text]);
  SELECT * INTO v_row FROM public.event_subscription s WHERE s.recipient_ref = p_recipient_ref
    AND s.event_domain IS NOT DISTINCT FROM p_event_domain AND s.event_type IS NOT DISTINCT FROM p_event_type
    AND s.event_stream IS NOT DISTINCT FROM p_event_stream
      AND s.scope_subject_table IS NOT DISTINCT FROM p_scope_subject_table
    AND s.scope_filter = v_filter;
  IF NOT FOUND AND NOT v_dry THEN
    INSERT INTO public.event_subscription AS s (recipient_ref, event_domain, event_type, event_stream,
      scope_subject_table, scope_filter)
    VALUES (p_recipient_ref, p_event_domain, p_event_type, p_event_stream, p_scope_subject_table, v_filter)
    ON CONFLICT DO NOTHING RETURNING * INTO v_row;
    IF v_row.subscription_id IS NOT NULL THEN
      v_audit := public.fn_operator_audit(
        p_action => 'event_subscription_add', p_target => 'subscription ' || v_row.subscription_id,
        p_actor => v_actor, p_reason => v_reason, p_after => to_jsonb(v_row),
        p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb,
        p_outcome => 'done'::text);
      PERFORM public.fn_queue_wake('queue_wake_system',
        jsonb_build_object('layer', 'subscription', 'event_domain', 'system',
        'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
      RETURN jsonb_build_object('subscription_id', v_row.subscription_id, 'after', to_jsonb(v_row), 'dry_run', false,
        'audit_id', v_audit);
    END IF;
  ELSIF NOT FOUND THEN
    RETURN jsonb_build_object('subscription_id', NULL, 'dry_run', true, 'audit_id', NULL);
  END IF;
  IF NOT v_dry THEN
    v_audit := public.fn_operator_audit(
      p_action => 'event_subscription_add', p_target => concat_ws(' ', 'subscription', v_row.subscription_id),
      p_actor => v_actor, p_reason => v_reason, p_outcome => 'refused: exists',
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_before => NULL::jsonb, p_after => NULL::jsonb);
  END IF;
  RETURN jsonb_build_object('refused', true, 'rule', 'exists', 'dry_run', v_dry, 'audit_id', v_audit,
    'subscription_id', v_row.subscription_id,
    'reason', CASE WHEN v_row.subscription_id IS NULL
      THEN 'another session has just created the same event subscription; qtop subscriptions lists it'
      ELSE format('the same event subscription exists already, as number %s%s', v_row.subscription_id,
        CASE WHEN v_row.mute THEN ', muted: unmute it' ELSE '' END) END);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_subscription_add TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_subscription_add IS
  'Creates an event subscription: which recipient reads which events (DP6 §3.1).';

-- fn_event_subscription_mute(subscription, mute, actor, reason, dry_run) → {subscription_id, mute, before, audit_id}:
-- mutes or unmutes an event subscription. Refused: not_found; unchanged (it is muted, or unmuted, already: the reason
-- names the person who did that).
CREATE OR REPLACE FUNCTION public.fn_event_subscription_mute(p_subscription_id bigint, p_mute boolean, p_actor text,
  p_reason text,
  p_dry_run boolean DEFAULT false) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_actor text := public.fn_operator_actor(p_actor);
  v_dry boolean := COALESCE(p_dry_run, true);
  v_reason text := CASE WHEN v_dry THEN p_reason ELSE public.fn_operator_reason(p_reason) END;
  v_old public.event_subscription;
  v_rule text;
  v_why text;
  v_by record;
  v_audit bigint;
BEGIN
  IF p_mute IS NULL THEN
    RAISE EXCEPTION 'p_mute must be true or false' USING ERRCODE = '22023';
  END IF;
  SELECT * INTO v_old FROM public.event_subscription s WHERE s.subscription_id = p_subscription_id FOR UPDATE;
  IF NOT FOUND THEN
    v_rule := 'not_found';
    v_why := format('there is no event subscription %s; qtop subscriptions lists them',
      COALESCE(p_subscription_id::text, '(null)'));
  ELSIF v_old.mute = p_mute THEN
    SELECT a.actor, a.at INTO v_by FROM public.queue_operator_action a
    WHERE a.target = 'subscription ' || p_subscription_id AND a.outcome = 'done' ORDER BY a.id DESC LIMIT 1;
    v_rule := 'unchanged';
    v_why := format('event subscription %s is %s%s', p_subscription_id, CASE WHEN p_mute THEN 'already muted'
      ELSE 'not muted' END,
      COALESCE(', last changed by ' || v_by.actor || ' at '
        || to_char(v_by.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), ''));
  END IF;
  IF v_rule IS NOT NULL THEN
    IF v_dry THEN
      RETURN jsonb_build_object('refused', true, 'rule', v_rule, 'reason', v_why, 'dry_run', true, 'audit_id', NULL);
    END IF;
    RETURN public.fn_operator_refused(
      p_action => 'event_subscription_mute'::text, p_target => concat_ws(' ', 'subscription', p_subscription_id),
      p_actor => v_actor, p_reason => v_reason, p_rule => v_rule, p_why => v_why)
      || jsonb_build_object('dry_run', false);
  END IF;
  IF NOT v_dry THEN
    UPDATE public.event_subscription s SET mute = p_mute WHERE s.subscription_id = p_subscription_id;
    v_audit := public.fn_operator_audit(
      p_action => 'event_subscription_mute', p_target => 'subscription ' || p_subscription_id, p_actor => v_actor,
      p_reason => v_reason, p_before => to_jsonb(v_old),
      p_after => to_jsonb(v_old) || jsonb_build_object('mute', p_mute),
      p_filter => NULL::text, p_frozen_count => NULL::bigint, p_outcome => 'done'::text);
    PERFORM public.fn_queue_wake('queue_wake_system',
      jsonb_build_object('layer', 'subscription', 'event_domain', 'system',
      'worker_hint', 'console', 'count', 1, 'occurred_at', clock_timestamp()));
  END IF;
  RETURN jsonb_build_object('subscription_id', p_subscription_id, 'mute', p_mute, 'before', to_jsonb(v_old),
    'dry_run', v_dry, 'audit_id', v_audit);
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_subscription_mute TO :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_subscription_mute IS
  'Mutes or unmutes an event subscription: a muted one counts as absent (DP6 §4).';

-- fn_event_resolve_explain(domain, type, stream, subject table, payload) → every event subscription that matches
-- domain, type and stream, with its step and its outcome: taken (this subscription makes its recipient read the event);
-- better (another subscription of the recipient has an earlier step); muted; subject_table or filter (the scope of the
-- subscription does not match); off (resolution is switched off).
CREATE OR REPLACE FUNCTION public.fn_event_resolve_explain(
  p_event_domain text, p_event_type text, p_event_stream text, p_subject_table text DEFAULT NULL,
    p_safe_payload jsonb DEFAULT '{}')
RETURNS TABLE (step int, subscription_id bigint, recipient_ref text, event_domain text, event_type text,
  event_stream text,
  scope_subject_table text, scope_filter jsonb, outcome text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_on boolean := public.fn_cfg_bool('queue.subscription_resolution.enabled');
BEGIN
  RETURN QUERY
  SELECT x.step, x.subscription_id, x.recipient_ref, x.event_domain, x.event_type, x.event_stream,
    x.scope_subject_table, x.scope_filter,
    CASE WHEN x.result <> 'taken' THEN x.result
      WHEN x.step > min(x.step) FILTER (WHERE x.result = 'taken') OVER (PARTITION BY x.recipient_ref) THEN 'better'
        ELSE 'taken' END
  FROM (
    SELECT s.*, CASE WHEN s.event_type IS NOT NULL AND s.event_stream IS NOT NULL THEN 1
      WHEN s.event_stream IS NOT NULL THEN 2
        WHEN s.event_type IS NOT NULL THEN 3 ELSE 4 END AS step,
      CASE WHEN NOT v_on THEN 'off' WHEN s.mute THEN 'muted'
        WHEN s.scope_subject_table <> p_subject_table OR s.scope_subject_table IS NOT NULL
          AND p_subject_table IS NULL THEN 'subject_table'
        WHEN NOT COALESCE(p_safe_payload, '{}') @> s.scope_filter THEN 'filter' ELSE 'taken' END AS result
    FROM public.event_subscription s
    WHERE (s.event_domain IS NULL OR s.event_domain = p_event_domain)
      AND (s.event_type IS NULL OR s.event_type = p_event_type)
      AND (s.event_stream IS NULL OR s.event_stream = p_event_stream)) x
  ORDER BY x.step, x.recipient_ref, x.subscription_id;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_resolve_explain TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_event_resolve_explain IS
  'Why an event reaches its recipients: each event subscription that may match, with its outcome (DP6 §3.2).';

-- fn_session_acts_as(ref) → whether this login may act as the person or role in a reference such as user:ann. The login
-- must be a member of the role whose name follows the first colon (without a colon: of the role that the whole text
-- names). Internal.
CREATE OR REPLACE FUNCTION public.fn_session_acts_as(p_ref text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN COALESCE((SELECT pg_has_role(session_user, r.oid, 'MEMBER') FROM pg_roles r
    WHERE r.rolname = public.fn_queue_role_name(substr(p_ref, strpos(p_ref, ':') + 1))), false);
END
$fn$;
COMMENT ON FUNCTION public.fn_session_acts_as IS
  'Whether this login is a member of the role that a reference names. Internal.';

-- fn_session_needs(ref) → what makes fn_session_acts_as true: the GRANT, if the role exists. Internal.
CREATE OR REPLACE FUNCTION public.fn_session_needs(p_ref text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_role text := public.fn_queue_role_name(substr(p_ref, strpos(p_ref, ':') + 1));
BEGIN
  RETURN CASE WHEN EXISTS (SELECT FROM pg_roles r WHERE r.rolname = v_role)
    THEN format('GRANT %I TO %I: the login must be a member of that role', v_role, session_user)
    ELSE format('there is no role %s: create it, and make the login a member of it', quote_ident(left(v_role, 63))) END;
END
$fn$;
COMMENT ON FUNCTION public.fn_session_needs IS
  'What a login lacks to act as a recipient or reader: the GRANT of its role. Internal.';

-- fn_event_acts_as(recipient) → whether this login may read and mark events as the recipient: it must be a member of
-- the role whose name follows the colon; every login is a member of itself. If there is no such role, nobody may.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_event_acts_as(p_recipient_ref text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF COALESCE(p_recipient_ref !~ '^(role|agency|user|agent):.+', true) THEN
    RAISE EXCEPTION 'p_recipient_ref must be role:NAME, agency:NAME, user:NAME or agent:NAME' USING ERRCODE = '22023';
  END IF;
  RETURN public.fn_session_acts_as(p_recipient_ref);
END
$fn$;
COMMENT ON FUNCTION public.fn_event_acts_as IS
  'Whether this login may act as a recipient of events. Internal.';

-- The position of an inbox (event_inbox_position). What a recipient has read stays in iu_route_attempt for months, so
-- that a look for unread events would read all of it. A position says of a range of times that everything routed in it
-- has been read, with up to 1,000 exceptions; fn_event_mark_read moves it (fn_event_inbox_advance).
--
-- 1. A position must stay true: no attempt may come into its range later. Therefore an attempt gets its time from the
-- clock after its transaction has locked iu_route_attempt (fn_iu_route_events), and a position ends at the newest
-- attempt that was visible before it was clear that nobody held this lock. What was not visible then is later.
-- 2. If the clock was set back, attempts could come into a range. fn_iu_route_events then deletes the positions that
-- reach the time of its attempts; while a transaction is open that has begun to store one, its attempts instead get a
-- time after the newest attempt of their recipients, so that no reader holds up the router.
-- 3. Positions are inserted, never changed, so that two readers of one recipient do not wait for each other. The
-- highest version counts, but each is true.

-- fn_event_inbox_part(recipient, routed to, unread, limit, after) → events that were routed to the recipient, or events
-- to everybody (routed to: broadcast), after a time, newest first: the unread ones, or all. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_inbox_part(p_recipient_ref text, p_routed_to text, p_unread boolean,
  p_limit int, p_after timestamptz)
RETURNS TABLE (event_id uuid, event_domain text, event_type text, step int, routed_at timestamptz,
  read_at timestamptz)
LANGUAGE plpgsql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $fn$
DECLARE
  v_position public.event_inbox_position;
  v_left int := p_limit;
  v_n int;
BEGIN
  IF p_unread THEN
    SELECT * INTO v_position FROM public.event_inbox_position x
    WHERE x.recipient_ref = p_recipient_ref AND x.routed_to = p_routed_to ORDER BY x.version DESC LIMIT 1;
  END IF;
  RETURN QUERY
  SELECT t.event_id, t.event_domain, t.event_type, t.step, t.attempted_at, r.read_at
  FROM public.iu_route_attempt t
  LEFT JOIN public.event_read r ON r.event_id = t.event_id AND r.recipient_ref = p_recipient_ref
  WHERE t.recipient_ref = p_routed_to AND t.attempted_at > greatest(v_position.read_until, p_after)
    AND (r.event_id IS NULL OR NOT p_unread)
  ORDER BY t.attempted_at DESC LIMIT v_left;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  v_left := v_left - v_n;
  IF v_left = 0 OR v_position.version IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT t.event_id, t.event_domain, t.event_type, t.step, t.attempted_at, NULL::timestamptz
  FROM unnest(v_position.unread) u (id)
  JOIN public.iu_route_attempt t ON t.event_id = u.id AND t.recipient_ref = p_routed_to
    AND t.attempted_at > p_after AND t.attempted_at <= v_position.read_until
  WHERE NOT EXISTS (SELECT FROM public.event_read r WHERE r.event_id = u.id AND r.recipient_ref = p_recipient_ref)
  ORDER BY t.attempted_at DESC LIMIT v_left;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  v_left := v_left - v_n;
  IF v_left = 0 OR v_position.read_after <= p_after THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT t.event_id, t.event_domain, t.event_type, t.step, t.attempted_at, NULL::timestamptz
  FROM public.iu_route_attempt t
  WHERE t.recipient_ref = p_routed_to AND t.attempted_at <= v_position.read_after AND t.attempted_at > p_after
    AND NOT EXISTS (SELECT FROM public.event_read r
      WHERE r.event_id = t.event_id AND r.recipient_ref = p_recipient_ref)
  ORDER BY t.attempted_at DESC LIMIT v_left;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_inbox_part IS
  'The newest events of an inbox that were routed to its recipient, or to everybody. Internal.';

-- fn_event_inbox_advance(recipient): moves the positions of the inbox if 1,000 attempts are newer than the position, or
-- if older ones are not covered and fewer than 500 exceptions are unread. One call passes at most 20,000 attempts of
-- each kind, so that none takes long; the next one continues. While another session writes attempts, a position
-- stays as it is. Internal.
CREATE OR REPLACE FUNCTION public.fn_event_inbox_advance(p_recipient_ref text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off AS $fn$
DECLARE
  c_unread CONSTANT int := 1000;
  c_passed CONSTANT int := 20000;
  v_routed_to text;
  v_old public.event_inbox_position;
  v_new public.event_inbox_position;
  v_after timestamptz;
  v_ids uuid[];
  v_times timestamptz[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RETURN; -- this transaction does not see the attempts that were committed after it began
  END IF;
  FOREACH v_routed_to IN ARRAY ARRAY[p_recipient_ref, 'broadcast'] LOOP
    SELECT * INTO v_old FROM public.event_inbox_position x
    WHERE x.recipient_ref = p_recipient_ref AND x.routed_to = v_routed_to ORDER BY x.version DESC LIMIT 1;
    IF NOT FOUND THEN
      v_old.read_until := '-infinity';
      v_old.read_after := '-infinity';
    END IF;
    PERFORM FROM public.iu_route_attempt t
    WHERE t.recipient_ref = v_routed_to AND t.attempted_at > v_old.read_until
    ORDER BY t.attempted_at DESC OFFSET c_unread - 1 LIMIT 1;
    CONTINUE WHEN NOT FOUND AND (v_old.read_after = '-infinity' OR (SELECT count(*) FROM unnest(v_old.unread) u (id)
      WHERE NOT EXISTS (SELECT FROM public.event_read r
        WHERE r.event_id = u.id AND r.recipient_ref = p_recipient_ref)) >= c_unread / 2);

    LOCK TABLE public.event_inbox_position IN ROW EXCLUSIVE MODE; -- before the newest attempt is read
    SELECT t.attempted_at INTO v_new.read_until FROM public.iu_route_attempt t
    WHERE t.recipient_ref = v_routed_to ORDER BY t.attempted_at DESC LIMIT 1;
    CONTINUE WHEN NOT FOUND OR v_new.read_until > clock_timestamp() -- the clock was set back
      OR EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'relation'
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.relation = 'public.iu_route_attempt'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted
        AND l.pid IS DISTINCT FROM pg_backend_pid());

    SELECT t.attempted_at INTO v_after FROM public.iu_route_attempt t
    WHERE t.recipient_ref = v_routed_to AND t.attempted_at > v_old.read_until
    ORDER BY t.attempted_at DESC OFFSET c_passed LIMIT 1;
    IF NOT FOUND THEN
      SELECT t.attempted_at INTO v_after FROM public.iu_route_attempt t
      WHERE t.recipient_ref = v_routed_to AND t.attempted_at <= v_old.read_after
      ORDER BY t.attempted_at DESC OFFSET c_passed LIMIT 1;
    END IF;
    v_after := COALESCE(v_after, '-infinity');
    -- one statement, as events that are routed meanwhile would displace exceptions
    SELECT array_agg(u.event_id ORDER BY u.n), array_agg(u.routed_at ORDER BY u.n) INTO v_ids, v_times
    FROM public.fn_event_inbox_part(p_recipient_ref, v_routed_to, true, c_unread + 1, v_after)
      WITH ORDINALITY u (event_id, event_domain, event_type, step, routed_at, read_at, n);
    v_new.read_after := greatest(v_after, v_times[c_unread + 1]);
    CONTINUE WHEN v_new.read_after >= v_new.read_until
      OR (v_new.read_after, v_new.read_until) = (v_old.read_after, v_old.read_until);
    INSERT INTO public.event_inbox_position (recipient_ref, routed_to, read_after, read_until, unread)
    SELECT p_recipient_ref, v_routed_to, v_new.read_after, v_new.read_until, ARRAY(
      SELECT u.id FROM unnest(v_ids, v_times) u (id, at)
      WHERE u.at > v_new.read_after AND u.at <= v_new.read_until)
    RETURNING version INTO v_new.version;
    DELETE FROM public.event_inbox_position x WHERE x.recipient_ref = p_recipient_ref AND x.routed_to = v_routed_to
      AND x.version = ANY (ARRAY(SELECT o.version FROM public.event_inbox_position o
        WHERE o.recipient_ref = p_recipient_ref AND o.routed_to = v_routed_to AND o.version < v_new.version
        FOR UPDATE SKIP LOCKED));
  END LOOP;
END
$fn$;
COMMENT ON FUNCTION public.fn_event_inbox_advance IS
  'Moves the positions of an inbox past what its recipient has read. Internal.';

-- fn_event_inbox(recipient, unread, limit) → events that were routed to the recipient or broadcast, newest first, with
-- secrets masked. Raises 42501 if this login may not act as the recipient.
CREATE OR REPLACE FUNCTION public.fn_event_inbox(p_recipient_ref text, p_unread boolean DEFAULT true,
  p_limit int DEFAULT 100)
RETURNS TABLE (event_id uuid, event_domain text, event_type text, event_stream text, event_severity text,
  event_subject_table text,
  event_subject_ref text, safe_payload jsonb, occurred_at timestamptz, step int, routed_at timestamptz,
    read_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $fn$
BEGIN
  IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'p_limit must be 1 to 1000' USING ERRCODE = '22023';
  ELSIF NOT public.fn_event_acts_as(p_recipient_ref) THEN
    RAISE EXCEPTION 'login % may not read the events of recipient %', session_user, left(p_recipient_ref, 200)
      USING ERRCODE = '42501', HINT = public.fn_session_needs(p_recipient_ref);
  END IF;
  RETURN QUERY
  SELECT e.id, e.event_domain, e.event_type, e.event_stream, e.event_severity, e.event_subject_table,
    e.event_subject_ref,
    public.fn_mask_json(e.safe_payload, 0), e.occurred_at, a.step, a.routed_at, a.read_at
  FROM (
    SELECT u.* FROM unnest(ARRAY[p_recipient_ref, 'broadcast']) w (ref)
    CROSS JOIN LATERAL public.fn_event_inbox_part(p_recipient_ref, w.ref, COALESCE(p_unread, true), p_limit,
      '-infinity'::timestamptz) u
    ORDER BY u.routed_at DESC LIMIT p_limit) a
  JOIN public.event_outbox e ON (e.id, e.event_domain, e.event_type) = (a.event_id, a.event_domain, a.event_type)
    AND NOT EXISTS (SELECT FROM public.iu_route_dead_letter d -- another event with the id, which was not routed
      WHERE d.event_id = e.id AND d.failure_code = 'ROUTE_DUPLICATE_ID'
        AND public.fn_iu_route_dead_letter_of(d, e.event_domain, e.created_at))
  ORDER BY a.routed_at DESC, e.occurred_at DESC, e.id;
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_inbox TO :"queue_viewer", :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_inbox IS
  'The events of a recipient, for logins that may act as it (DP6 §1.4).';

-- fn_event_mark_read(events, recipient) → {results: [{id, outcome: read|already|refused, why}]}. The whole call is
-- refused with not_recipient if this login may not act as the recipient; an event with not_resolved, if it was neither
-- routed to the recipient nor broadcast.
CREATE OR REPLACE FUNCTION public.fn_event_mark_read(p_event_ids uuid[], p_recipient_ref text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_results jsonb;
BEGIN
  IF COALESCE(cardinality(p_event_ids), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'p_event_ids must have 1 to 1000 ids' USING ERRCODE = '22023';
  ELSIF NOT public.fn_event_acts_as(p_recipient_ref) THEN
    PERFORM public.fn_operator_audit(
      p_action => 'event_mark_read'::text, p_target => left(p_recipient_ref, 200), p_actor => session_user::text,
      p_reason => NULL::text, p_filter => NULL::text, p_frozen_count => cardinality(p_event_ids)::bigint,
      p_before => NULL::jsonb, p_after => NULL::jsonb, p_outcome => 'refused: not_recipient'::text);
    RETURN jsonb_build_object('refused', true, 'rule', 'not_recipient', 'reason',
      format('login %s may not mark the events of recipient %s as read: ', session_user, left(p_recipient_ref, 200))
        || public.fn_session_needs(p_recipient_ref));
  END IF;
  WITH asked AS (
    SELECT DISTINCT i.id FROM unnest(p_event_ids) i (id) WHERE i.id IS NOT NULL
  ), resolved AS (
    SELECT DISTINCT a.id FROM asked a JOIN public.iu_route_attempt t ON t.event_id = a.id
      AND t.recipient_ref IN (p_recipient_ref, 'broadcast')
  ), marked AS (
    INSERT INTO public.event_read (event_id, recipient_ref) SELECT r.id, p_recipient_ref FROM resolved r ORDER BY 1
    ON CONFLICT DO NOTHING RETURNING event_id
  )
  SELECT jsonb_agg(jsonb_build_object('id', a.id, 'outcome', CASE WHEN m.event_id IS NOT NULL THEN 'read'
    WHEN r.id IS NOT NULL THEN 'already' ELSE 'refused' END,
    'why', CASE WHEN r.id IS NULL THEN 'not_resolved: the event was not routed to ' || p_recipient_ref ELSE '' END)
      ORDER BY a.id) INTO v_results
  FROM asked a LEFT JOIN resolved r ON r.id = a.id LEFT JOIN marked m ON m.event_id = a.id;
  PERFORM public.fn_event_inbox_advance(p_recipient_ref);
  RETURN jsonb_build_object('results', COALESCE(v_results, '[]'));
END
$fn$;
GRANT EXECUTE ON FUNCTION public.fn_event_mark_read TO :"queue_viewer", :"dot_executor", :"workflow_admin";
COMMENT ON FUNCTION public.fn_event_mark_read IS
  'Marks events that were routed to a recipient as read by it (DP6 §1.4).';
