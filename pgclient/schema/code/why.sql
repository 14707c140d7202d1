-- Why a queue waits: the ordered chain of conditions that can block it.

-- fn_why_link(link, state, text, detail, keys, do) → one link of the chain: one condition. state: blocks (no work of
-- the queue moves until it is fixed), slows (some of the work waits), clear. keys: console keys that lead to the screen
-- where it can be fixed; do: a command line that fixes it. Internal.
-- fn_why_flag(key) → the link of a switch. fn_why_host(loop) → the link of a loop: a live host or pg_cron runs it.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_why_link(p_link text, p_state text, p_text text, p_detail text, p_keys text,
  p_do text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN jsonb_build_object('link', p_link, 'state', p_state, 'text', p_text, 'detail', COALESCE(p_detail, ''),
    'keys', CASE WHEN p_state = 'clear' THEN '' ELSE p_keys END, 'do', CASE WHEN p_state = 'clear' THEN '' ELSE p_do
      END);
END $$;
COMMENT ON FUNCTION public.fn_why_link IS 'One link of the chain of fn_queue_why. Internal.';

CREATE OR REPLACE FUNCTION public.fn_why_flag(p_key text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_on boolean := public.fn_cfg_bool(p_key);
  v_detail text;
BEGIN
  IF NOT v_on THEN
    SELECT format('%s by %s since %s', c.value, c.updated_by,
      to_char(c.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'))
      || COALESCE(', back at ' || to_char(r.revert_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), '')
    INTO v_detail FROM public.dot_config c LEFT JOIN public.dot_config_revert r USING (key) WHERE c.key = p_key;
  END IF;
  RETURN public.fn_why_link(
    p_link => 'flag', p_state => CASE WHEN v_on THEN 'clear' ELSE 'blocks' END,
    p_text => p_key || CASE WHEN v_on THEN ' is on' ELSE ' is off' END, p_detail => v_detail, p_keys => 'gf E',
    p_do => 'qtop flag set ' || p_key || ' true --reason R');
END $$;
COMMENT ON FUNCTION public.fn_why_flag IS
  'The link of a switch, in the chain of fn_queue_why. Internal.';

CREATE OR REPLACE FUNCTION public.fn_why_host(p_loop text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_who text := COALESCE((SELECT string_agg(q.host_id, ', ' ORDER BY q.host_id) FROM public.queue_host q
    WHERE q.stopped_at IS NULL AND q.last_seen_at > now() - interval '15 seconds'
      AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND p_loop = ANY (q.loops)),
    (SELECT 'pg_cron' FROM public.v_cron_loop c WHERE c.loop = p_loop));
BEGIN
  RETURN public.fn_why_link(
    p_link => 'host', p_state => CASE WHEN v_who IS NULL THEN 'blocks' ELSE 'clear' END,
    p_text => CASE WHEN v_who IS NULL THEN 'no live host runs ' || p_loop ELSE p_loop || ' runs' END,
    p_detail => left(v_who, 200), p_keys => 'gw S', p_do => 'qtop worker --loops ' || p_loop);
END $$;
COMMENT ON FUNCTION public.fn_why_host IS
  'The link of a loop that a live host or pg_cron must run, in the chain of fn_queue_why. Internal.';

-- fn_why_webhook(endpoint) → the links in the chain of fn_queue_why for the deliveries that wait for an endpoint.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_why_webhook(p_endpoint text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  -- a delivery needs the ticks of the orchestrator, and no host claims while webhook_worker is paused
  v_paused boolean := public.fn_cfg_int('queue.tick.saga_orchestrator.interval_seconds', 5) > 0
    AND public.fn_cfg_int('queue.tick.webhook_worker.interval_seconds', 1) = 0;
  v_schedule text := format('queue.tick.%s.interval_seconds',
    CASE WHEN v_paused THEN 'webhook_worker' ELSE 'saga_orchestrator' END);
  v_interval int := public.fn_cfg_int(v_schedule, 5);
  v_subs bigint[];      -- webhook subscriptions with waiting work, most first; if there are none, all of the endpoint
  v_waiting bigint;
  v_oldest timestamptz;
  v_next timestamptz;
  v_in_flight bigint;
  v_who text;
  v_all int;
  v_gate record;
  v_fault record;
  v_slow public.webhook_slow_start;
  v_links jsonb;
BEGIN
  SELECT array_agg(b.subscription_id ORDER BY b.waiting DESC, b.subscription_id), sum(b.waiting), min(b.oldest_at)
  INTO v_subs, v_waiting, v_oldest
  FROM public.v_webhook_backlog b WHERE b.endpoint = p_endpoint;
  v_subs := COALESCE(v_subs, (SELECT array_agg(s.id) FROM public.subscriptions s WHERE s.endpoint = p_endpoint));
  v_all := cardinality(v_subs);
  SELECT min(g.next_attempt_at) INTO v_next FROM unnest(v_subs) u (sub) CROSS JOIN LATERAL (
    SELECT s.next_attempt_at FROM public.webhook_delivery_sagas s
    WHERE s.status IN ('Pending', 'PendingRetry') AND s.subscription_id = u.sub ORDER BY s.next_attempt_at LIMIT 1) g;
  SELECT count(*) INTO v_in_flight FROM public.webhook_delivery_jobs j WHERE j.status = 'Leased'
    AND j.subscription_id = ANY (v_subs);
  SELECT count(*) FILTER (WHERE g.gate IN ('inactive', 'unverified')) AS unsubscribed, max(g.gate)
    FILTER (WHERE g.gate IN ('inactive', 'unverified')) AS gate,
    count(*) FILTER (WHERE g.gate = 'suspended' AND g.suspended_reason <> 'circuit') AS suspended,
    max(g.suspended_reason) FILTER (WHERE g.gate = 'suspended') AS reason,
    count(*) FILTER (WHERE g.gate = 'suspended' AND g.suspended_reason = 'circuit') AS broken,
    count(*) FILTER (WHERE g.gate = 'half_open') AS probing, count(*) FILTER (WHERE g.gate <> 'open') AS shut,
    string_agg(format('%s: %s by %s since %s%s%s', g.subscription_id, g.suspended_reason, g.suspended_by,
        to_char(g.suspended_since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
        COALESCE(to_char(g.suspended_until AT TIME ZONE 'UTC', '" until "YYYY-MM-DD HH24:MI:SS"Z"'), ''),
        ', "' || left(g.suspended_note, 200) || '"'), '; ' ORDER BY g.subscription_id)
      FILTER (WHERE g.gate IN ('suspended', 'half_open')) AS who,
    string_agg(format('%s: %s', g.subscription_id, CASE WHEN g.gate = 'suspended' AND g.suspended_reason = 'circuit'
      THEN 'circuit open' WHEN g.gate = 'half_open' THEN 'circuit half open' ELSE g.gate END), ', '
        ORDER BY g.subscription_id) AS gates,
    min(g.subscription_id) FILTER (WHERE g.gate IN ('suspended', 'half_open')) AS first_shut,
    min(g.subscription_id) FILTER (WHERE g.gate = 'suspended' AND g.suspended_reason <> 'circuit') AS first_suspended,
    min(g.subscription_id) FILTER (WHERE g.gate = 'half_open' OR g.gate = 'suspended'
      AND g.suspended_reason = 'circuit') AS first_broken,
    min(g.subscription_id) FILTER (WHERE g.gate = 'inactive') AS first_inactive,
    min(g.subscription_id) FILTER (WHERE g.gate = 'unverified') AS first_unverified,
    bool_and(g.rate_limit_per_second IS NOT NULL) AS limited, sum(g.rate_limit_per_second) AS rate
  INTO v_gate FROM public.v_webhook_gate g WHERE g.subscription_id = ANY (v_subs);

  v_links := jsonb_build_array(public.fn_why_flag('webhook.worker.enabled'),
    public.fn_why_link(
      p_link => 'schedule', p_state => CASE WHEN v_interval = 0 THEN 'blocks' ELSE 'clear' END,
      p_text => v_schedule || ' is ' || v_interval, p_detail => NULL, p_keys => 'gf E',
      p_do => format('qtop flag set %s %s --reason R', v_schedule, CASE WHEN v_paused THEN 1 ELSE 5 END)),
    public.fn_why_link(
      p_link => 'subscription',
      p_state => CASE v_gate.unsubscribed WHEN v_all THEN 'blocks' WHEN 0 THEN 'clear' ELSE 'slows' END,
      p_text => CASE v_gate.unsubscribed WHEN v_all THEN 'subscription ' || v_gate.gate WHEN 0
        THEN 'active and verified' ELSE v_gate.unsubscribed || ' of ' || v_all
        || ' subscriptions are inactive or unverified' END,
      p_detail => NULL, p_keys => '',
      p_do => CASE WHEN v_gate.first_unverified IS NULL
        THEN format('qtop webhook enable %s --reason R', v_gate.first_inactive)
        ELSE format('qtop webhook verify %s --reason R', v_gate.first_unverified) END),
    public.fn_why_link(
      p_link => 'suspension',
      p_state => CASE v_gate.suspended WHEN v_all THEN 'blocks' WHEN 0 THEN 'clear' ELSE 'slows' END,
      p_text => CASE v_gate.suspended WHEN v_all THEN 'endpoint suspended: ' || v_gate.reason WHEN 0
        THEN 'not suspended' ELSE v_gate.suspended || ' of ' || v_all || ' subscriptions are suspended' END,
      p_detail => CASE WHEN v_gate.suspended > 0 THEN left(v_gate.who, 400) END, p_keys => '7 D',
      p_do => format('qtop endpoint resume %s --reason R', v_gate.first_suspended)),
    public.fn_why_link(
      p_link => 'circuit',
      p_state => CASE WHEN v_gate.broken = v_all THEN 'blocks' WHEN v_gate.probing = v_all THEN 'blocks'
        WHEN v_gate.broken + v_gate.probing = 0 THEN 'clear' ELSE 'slows' END,
      p_text => CASE WHEN v_gate.broken = v_all THEN 'circuit open' WHEN v_gate.probing = v_all
        THEN 'circuit half open: one probe at a time' WHEN v_gate.broken + v_gate.probing = 0 THEN 'circuit closed'
        ELSE v_gate.broken + v_gate.probing || ' of ' || v_all || ' circuits are open' END,
      p_detail => CASE WHEN v_gate.broken + v_gate.probing > 0 THEN left(v_gate.who, 400) END, p_keys => '7 D',
      p_do => format('qtop endpoint resume %s --reason R', v_gate.first_broken)));
  IF v_gate.shut = v_all AND NOT v_links @> '[{"state": "blocks"}]' THEN
    v_links := v_links || public.fn_why_link(
      p_link => 'gates', p_state => 'blocks', p_text => 'no subscription of the endpoint may send now',
      p_detail => left(v_gate.gates, 400), p_keys => '7 D',
      p_do => format('qtop endpoint resume %s --reason R', v_gate.first_shut));
  END IF;
  v_links := v_links || public.fn_why_link(
    p_link => 'parallel', p_state => 'clear', p_text => v_in_flight || ' in flight',
    p_detail => 'each host sends at most delivery.per_endpoint requests at once', p_keys => '', p_do => '')
    || public.fn_why_host('webhook_worker') || public.fn_why_host('saga_orchestrator');
  -- a host that cannot sign is replaced by other hosts: the condition blocks only if no live host can sign
  SELECT count(*) AS n, count(*) FILTER (WHERE s.hosts >= h.n) AS nowhere, min(s.what) AS what, min(s.remedy) AS remedy,
    left(string_agg(format('subscription %s: %s', s.subscription_id, s.who), '; ' ORDER BY s.subscription_id), 400)
      AS detail
  INTO v_fault
  FROM (SELECT f.subscription_id, count(DISTINCT f.host_id) AS hosts, min(f.what) AS what, min(f.remedy) AS remedy,
      string_agg(f.host_id || ': ' || f.what, ', ' ORDER BY f.host_id) AS who
    FROM public.v_signing_fault f WHERE f.subscription_id = ANY (v_subs) GROUP BY f.subscription_id) s
  CROSS JOIN (SELECT count(*) AS n FROM public.queue_host q WHERE q.stopped_at IS NULL
    AND q.last_seen_at > now() - interval '15 seconds'
      AND q.last_seen_at <= clock_timestamp() + interval '5 seconds' AND 'webhook_worker' = ANY (q.loops)) h;
  v_links := v_links || public.fn_why_link(
    p_link => 'signing'::text,
    p_state => CASE WHEN v_fault.n = 0 THEN 'clear' WHEN v_fault.nowhere = v_all THEN 'blocks' ELSE 'slows' END,
    p_text => CASE WHEN v_fault.n = 0 THEN 'every live host can sign' WHEN v_fault.nowhere = v_all
      THEN 'no live host can sign: ' || v_fault.what ELSE 'not every live host can sign: ' || v_fault.what END,
    p_detail => v_fault.detail::text, p_keys => ''::text, p_do => v_fault.remedy::text);
  IF v_waiting > 0 THEN
    v_links := v_links || public.fn_why_link(
      p_link => 'due', p_state => CASE WHEN v_oldest IS NULL AND v_next IS NOT NULL THEN 'blocks' ELSE 'clear' END,
      p_text => CASE WHEN v_oldest IS NOT NULL THEN 'deliveries are due' WHEN v_next IS NOT NULL
        THEN 'all due later: backing off'
        ELSE 'all in flight' END,
      p_detail => CASE WHEN v_oldest IS NULL THEN 'the next at '
        || to_char(v_next AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') END,
      p_keys => '', p_do => '')
      || public.fn_why_link(
        p_link => 'rate',
        p_state => CASE WHEN v_gate.limited AND v_waiting > 2 * v_gate.rate THEN 'slows' ELSE 'clear' END,
        p_text => CASE WHEN v_gate.limited THEN 'rate limit ' || v_gate.rate || '/s' ELSE 'no rate limit' END,
        p_detail => NULL, p_keys => '7 M',
        p_do => format('qtop webhook limit %s --per-second N --reason R', v_subs[1]));
    SELECT w.* INTO v_slow FROM public.webhook_slow_start w
    WHERE w.endpoint = p_endpoint AND public.fn_cfg_bool('webhook.slow_start.enabled');
    v_links := v_links || public.fn_why_link(
      p_link => 'slow start'::text,
      p_state => CASE WHEN v_slow.endpoint IS NULL THEN 'clear' ELSE 'slows' END,
      p_text => COALESCE('slow start: ' || round(v_slow.rate::numeric, 1) || '/s', 'no slow start'),
      p_detail => 'since ' || to_char(v_slow.began_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')
        || COALESCE(': ' || v_slow.why, ''), p_keys => 'gf E'::text,
      p_do => 'qtop flag set webhook.slow_start.enabled false --reason R'::text);
    SELECT left(string_agg(format('operation %s is paused', o.operation_id), ', ' ORDER BY o.operation_id), 400)
    INTO v_who FROM public.queue_bulk_operation o WHERE o.state = ANY ('{planned,running,paused}'::text[])
      AND o.state = 'paused' AND EXISTS (SELECT FROM public.webhook_delivery_jobs j
        WHERE CASE j.status WHEN 'Pending' THEN true ELSE false END -- as idx_job_operation has it: migration 055
          AND j.operation_id = o.operation_id AND j.subscription_id = ANY (v_subs));
    v_links := v_links || public.fn_why_link(
      p_link => 'operation'::text, p_state => CASE WHEN v_who IS NULL THEN 'clear' ELSE 'slows' END,
      p_text => COALESCE(v_who, 'no paused operation'), p_detail => NULL::text, p_keys => '6 P'::text,
      p_do => 'qtop ops resume OPERATION'::text);
  END IF;
  RETURN jsonb_build_object('waiting', COALESCE(v_waiting, 0), 'oldest_at', v_oldest, 'links', v_links);
END $$;
COMMENT ON FUNCTION public.fn_why_webhook IS 'The chain of what can block an endpoint. Internal.';

-- fn_why_job(kind, domain) → the links of a queue lane. Internal.
CREATE OR REPLACE FUNCTION public.fn_why_job(p_kind text, p_domain text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  b record;
  r record;
  v_waiting bigint;
  v_late boolean := public.fn_job_due_late();
  -- switched off: a job that becomes due cannot be claimed
  v_off boolean := v_late AND public.fn_cfg_int('queue.tick.job_queue_default.interval_seconds', 30) = 0;
  v_who text;
  v_lowest int;
  v_highest int;
  v_never bigint; -- jobs of a release that allowed process_after beyond year 9999
BEGIN
  SELECT * INTO b FROM public.fn_job_backlog() x WHERE x.job_kind = p_kind AND x.event_domain = p_domain;
  v_waiting := COALESCE(b.queued + b.retry_waiting, 0);
  SELECT count(*) AS n, COALESCE(bool_and(x.absent <> ''), false) AS all_absent,
    CASE WHEN min(x.absent) = max(x.absent) THEN min(x.absent) ELSE 'silent or stopped' END AS absent,
    count(*) FILTER (WHERE x.absent = 'silent') AS silent, count(*) FILTER (WHERE x.absent = 'stopped') AS stopped,
    count(*) FILTER (WHERE x.kinds IS NOT NULL AND p_kind <> ALL (x.kinds)) AS without,
    COALESCE(left(string_agg(x.executor_id, ', ' ORDER BY x.executor_id), 200), '') AS who,
    min(x.executor_id) FILTER (WHERE x.absent <> '') AS first_absent,
    -- of the executors that live:
    COALESCE(bool_and(x.room <= 0) FILTER (WHERE x.absent = ''), false) AS no_room,
    min(x.priority_floor) FILTER (WHERE x.absent = '') AS floor,
    COALESCE(bool_and(x.kinds IS NOT NULL AND p_kind <> ALL (x.kinds)) FILTER (WHERE x.absent = ''), false)
      AS unhandled,
    left(string_agg(x.executor_id, ', ' ORDER BY x.executor_id) FILTER (WHERE x.absent = ''), 200) AS alive,
    min(x.executor_id) FILTER (WHERE x.absent = '') AS first,
    -- the job subscription that governs the lane for the first of them
    (array_agg(concat(' --kind ' || x.job_kind, ' --domain ' || x.event_domain) ORDER BY x.executor_id)
      FILTER (WHERE x.absent = ''))[1] AS rule
  INTO r FROM (
    SELECT DISTINCT ON (s.executor_id) s.*, k.kinds,
      CASE WHEN h.state IN ('silent', 'stopped') THEN h.state ELSE '' END AS absent,
      s.max_parallel - COALESCE((SELECT sum(l.live) FROM public.job_lease l
        WHERE l.subscription_id = s.subscription_id), 0) AS room
    FROM public.job_subscription s
    JOIN public.queue_heartbeat e ON e.executor_id = s.executor_id AND e.executor_kind = s.executor_kind
    JOIN public.v_queue_watch h ON h.executor_id = s.executor_id AND h.state <> 'deregistered'
    LEFT JOIN public.v_job_handlers k ON k.executor_id = s.executor_id
    WHERE s.enabled AND (s.job_kind IS NULL OR s.job_kind = p_kind)
      AND (s.event_domain IS NULL OR s.event_domain = p_domain)
      AND (b.executor IS NULL OR s.executor_kind = b.executor)
    ORDER BY s.executor_id, s.job_kind IS NULL, s.event_domain IS NULL) x;
  v_who := NULLIF(r.who, '');
  SELECT q.priority INTO v_lowest FROM public.job_queue q
  WHERE q.event_domain = p_domain AND q.job_kind = p_kind AND q.ready AND q.status IN ('queued', 'retry_waiting')
    AND q.executor = b.executor
  ORDER BY q.priority, q.process_after DESC, q.job_id DESC LIMIT 1;
  SELECT q.priority INTO v_highest FROM public.job_queue q
  WHERE q.event_domain = p_domain AND q.job_kind = p_kind AND q.ready AND q.status IN ('queued', 'retry_waiting')
    AND q.executor = b.executor
  ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1;

  SELECT count(*) INTO v_never FROM public.job_queue q WHERE NOT q.ready AND q.process_after > '9999-12-31Z'
    AND q.event_domain = p_domain AND q.job_kind = p_kind;

  RETURN jsonb_build_object('waiting', v_waiting, 'oldest_at', b.oldest_at, 'links', jsonb_build_array(
    public.fn_why_flag('queue.job_substrate.enabled'),
    public.fn_why_link(
      p_link => 'executor', p_state => CASE WHEN r.n = 0 THEN 'blocks' ELSE 'clear' END,
      p_text => CASE WHEN r.n = 0 THEN 'no ' || COALESCE(b.executor || ' ', '') || 'executor subscribes to it'
        ELSE r.n || ' subscribed' END,
      p_detail => v_who, p_keys => '4 E',
      p_do => format('qtop executor subscribe ID --kind %s --domain %s --parallel N --reason R', p_kind, p_domain)),
    public.fn_why_link(
      p_link => 'silence',
      p_state => CASE WHEN r.all_absent THEN 'blocks' WHEN r.silent + r.stopped > 0 THEN 'slows' ELSE 'clear' END,
      p_text => CASE WHEN r.all_absent THEN format('every subscribed executor is %s: %s', r.absent, r.who)
        WHEN r.silent > 0 AND r.stopped > 0
          THEN format('%s of %s executors are silent, %s have stopped', r.silent, r.n, r.stopped)
        WHEN r.silent > 0 THEN format('%s of %s executors are silent', r.silent, r.n)
        WHEN r.stopped > 0 THEN format('%s of %s executors have stopped', r.stopped, r.n)
        ELSE 'no subscribed executor is silent' END,
      p_detail => NULL, p_keys => '',
      p_do => format('start the program of executor %s; if it is a host of qtop, with its handlers: '
        'qtop worker --executor %s --loops job_executor', r.first_absent, r.first_absent)),
    public.fn_why_link(
      p_link => 'handler',
      p_state => CASE WHEN r.unhandled THEN 'blocks' WHEN r.without > 0 THEN 'slows' ELSE 'clear' END,
      p_text => CASE WHEN r.unhandled THEN 'no live host has a handler for it' WHEN r.without > 0 THEN r.without
        || ' of ' || r.n || ' executors have no handler for it'
        ELSE 'no subscribed executor lacks a handler for it' END,
      p_detail => NULL, p_keys => '',
      p_do => format('bind %s under handlers in the configuration of a worker host', p_kind)),
    public.fn_why_link(
      p_link => 'due', p_state => CASE WHEN v_waiting > 0 AND b.oldest_at IS NULL THEN 'blocks'
        WHEN v_never > 0 THEN 'slows' ELSE 'clear' END,
      p_text => CASE WHEN v_waiting > 0 AND b.oldest_at IS NULL AND v_off
          THEN 'queue.tick.job_queue_default.interval_seconds is 0'
        WHEN v_waiting > 0 AND b.oldest_at IS NULL AND v_late
          THEN 'job_queue_default does not run: jobs that become due cannot be claimed'
        WHEN v_never > 0
        THEN format('%s of %s waiting jobs are never due: their process_after is infinity or beyond the year 9999',
          v_never, v_waiting)
        WHEN v_waiting = 0 THEN 'no job waits' WHEN b.oldest_at IS NOT NULL THEN 'jobs are due'
          ELSE 'all due later' END,
      p_detail => CASE WHEN v_off THEN 'jobs that become due cannot be claimed' END,
      p_keys => CASE WHEN v_off THEN 'gf E' WHEN v_late THEN 'gw S' ELSE '' END,
      p_do => CASE WHEN v_off THEN 'qtop flag set queue.tick.job_queue_default.interval_seconds 30 --reason R'
        WHEN v_late THEN 'qtop worker --loops job_queue_default'
        WHEN v_never > 0 THEN 'qtop job cancel ID --reason R, then enqueue the jobs again with a time' ELSE '' END),
    public.fn_why_link(
      p_link => 'parallel', p_state => CASE WHEN r.no_room THEN 'blocks' ELSE 'clear' END,
      p_text => CASE WHEN r.no_room THEN 'parallel limit reached: ' || r.alive
        ELSE COALESCE(b.leased + b.in_progress, 0) || ' at work' END,
      p_detail => NULL, p_keys => '4 E',
      p_do => format('qtop executor subscribe %s%s --parallel N --reason R', r.first, r.rule)),
    public.fn_why_link(
      p_link => 'floor',
      p_state => CASE WHEN v_highest < r.floor THEN 'blocks' WHEN v_lowest < r.floor THEN 'slows' ELSE 'clear' END,
      p_text => CASE WHEN v_lowest < r.floor
        THEN format('priority floor %s of %s: waiting jobs have %s', r.floor, r.alive,
        concat_ws(' to ', v_lowest, NULLIF(v_highest, v_lowest))) ELSE 'no job waits below the priority floor' END,
      p_detail => NULL, p_keys => '4 E',
      p_do => format('qtop executor subscribe %s%s --floor N --reason R', r.first, r.rule))));
END $$;
COMMENT ON FUNCTION public.fn_why_job IS 'The chain of what can block a queue lane. Internal.';

-- fn_why_events(domain) → the links of events in the outbox; NULL = of webhook events. Internal.
CREATE OR REPLACE FUNCTION public.fn_why_events(p_domain text) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_worker text := CASE WHEN p_domain IS NULL THEN 'webhook_router' WHEN p_domain = 'staging' THEN 'staging_outbound'
    ELSE 'iu_outbound_default' END;
  v_interval int := public.fn_cfg_int('queue.tick.' || v_worker || '.interval_seconds', 60);
  v_waiting bigint;
  v_oldest timestamptz;
  v_who text;
  v_end text; -- how to end the transaction that has held events for the longest time
  v_route public.iu_outbound_route;
  v_silent timestamptz; -- since when the worker is silent; NULL = not silent
  v_links jsonb;
BEGIN
  IF p_domain IS NULL THEN
    SELECT w.waiting, w.oldest_at INTO v_waiting, v_oldest FROM public.fn_webhook_unrouted() w;
    v_links := jsonb_build_array(public.fn_why_flag('webhook.worker.enabled'));
  ELSE
    SELECT b.waiting, b.oldest_at INTO v_waiting, v_oldest FROM public.fn_iu_route_backlog() b
    WHERE b.event_domain = p_domain;
    SELECT * INTO v_route FROM public.iu_outbound_route r WHERE r.event_domain = p_domain;
    v_links := jsonb_build_array(public.fn_why_flag('iu_core.route_worker_enabled'),
      public.fn_why_flag('iu_core.routes_master_enabled'),
      public.fn_why_link(
        p_link => 'route', p_state => CASE WHEN v_route.enabled THEN 'clear' ELSE 'blocks' END,
        p_text => 'the route of ' || p_domain || CASE WHEN v_route.enabled THEN ' is enabled' ELSE ' is disabled' END,
        p_detail => CASE WHEN NOT v_route.enabled
          THEN format('by %s since %s', v_route.updated_by,
          to_char(v_route.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')) END,
        p_keys => '', p_do => format('qtop route set %s --enabled=true --reason R', p_domain)));
  END IF;
  SELECT string_agg(concat_ws(' ', 'pid ' || w.pid, w.usename, w.program || ',', 'open since '
    || to_char(w.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')), '; ' ORDER BY w.xact_start),
    (array_agg(CASE WHEN w.pid IS NULL THEN 'its owner ends it: COMMIT PREPARED or ROLLBACK PREPARED'
      ELSE 'let its client end it, or: qtop session terminate ' || w.pid || ' --reason R' END ORDER BY w.xact_start))[1]
  INTO v_who, v_end
  FROM public.fn_routing_held() w WHERE (w.event_domain IS NULL) = (p_domain IS NOT NULL);
  SELECT h.last_beat_at INTO v_silent FROM public.v_queue_watch h WHERE h.executor_id = v_worker
    AND h.state = 'silent';
  v_links := v_links || public.fn_why_link(
    p_link => 'schedule', p_state => CASE WHEN v_interval = 0 THEN 'blocks' ELSE 'clear' END,
    p_text => format('queue.tick.%s.interval_seconds is %s', v_worker, v_interval), p_detail => NULL,
    p_keys => 'gf E',
    p_do => format('qtop flag set queue.tick.%s.interval_seconds %s --reason R', v_worker, CASE
      WHEN p_domain IS NULL THEN 5 ELSE 60 END))
    || public.fn_why_link(
      p_link => 'held', p_state => CASE WHEN v_who IS NULL THEN 'clear' ELSE 'slows' END,
      p_text => CASE WHEN v_who IS NULL THEN 'no transaction has held its events for over a minute'
        ELSE 'held by an open transaction, which delays only its own events' END,
      p_detail => v_who, p_keys => CASE WHEN v_end LIKE 'its owner%' THEN '' ELSE 'gl X' END,
      p_do => COALESCE(v_end, 'let its client end it'))
    || public.fn_why_host(v_worker)
    || public.fn_why_link(
      p_link => 'silence', p_state => CASE WHEN v_silent IS NULL THEN 'clear' ELSE 'blocks' END,
      p_text => CASE WHEN v_silent IS NULL THEN v_worker || ' is not silent' ELSE v_worker || ' is silent' END,
      p_detail => 'last beat ' || to_char(v_silent AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'),
      p_keys => 'gw S', p_do => 'qtop worker --loops ' || v_worker);
  RETURN jsonb_build_object('waiting', least(v_waiting, 10000), 'waiting_bound', v_waiting > 10000, 'oldest_at',
    v_oldest, 'links', v_links);
END $$;
COMMENT ON FUNCTION public.fn_why_events IS
  'The chain of what can block the routing of events. Internal.';

-- fn_queue_why(queue) → {queue, source, waiting, waiting_bound, oldest_at, age_seconds, why, links: [{link, state,
-- text, detail, keys, do}]}. queue: a name as in the Overview: 'webhook ENDPOINT', 'webhook events', 'events DOMAIN',
-- 'job KIND' or 'job KIND in DOMAIN'; or only an endpoint, subscription number, kind or domain, if only one queue has
-- it. why = the first link that blocks, else the first that slows, '' = neither. Refused: not_found; ambiguous (several
-- queues have it).
CREATE OR REPLACE FUNCTION public.fn_queue_why(p_queue text) RETURNS jsonb
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
  v_name text := public.fn_trimmed(p_queue);
  v_found record;
  v_n int;
  v_all text;
  v_out jsonb;
  v_clone text := public.fn_queue_clone_of();
BEGIN
  IF v_name IS NULL OR length(v_name) > 500 THEN
    RAISE EXCEPTION 'p_queue must name a queue, in 1 to 500 characters' USING ERRCODE = '22023';
  END IF;
  WITH known AS (
    SELECT 'webhook events' AS queue, 'events' AS source, NULL AS subject, NULL AS domain,
      ARRAY['webhook events', 'webhook_router'] AS names
    UNION ALL SELECT 'webhook ' || s.endpoint, 'webhook', s.endpoint, NULL,
      ARRAY['webhook ' || s.endpoint, s.endpoint] || array_agg(s.id::text)
      || array_agg('subscription ' || s.id) FROM public.subscriptions s GROUP BY s.endpoint
    UNION ALL SELECT 'events ' || d.event_domain, 'events', d.event_domain, d.event_domain,
      ARRAY['events ' || d.event_domain, d.event_domain]
      FROM (SELECT DISTINCT r.event_domain FROM public.event_type_registry r) d
    UNION ALL SELECT format('job %s in %s', l.job_kind, l.event_domain), 'job', l.job_kind, l.event_domain,
      ARRAY[format('job %s in %s', l.job_kind, l.event_domain), format('%s in %s', l.job_kind, l.event_domain),
        'job ' || l.job_kind, l.job_kind]
      FROM (SELECT DISTINCT l.job_kind, l.event_domain FROM public.job_lane l) l
  ), hit AS (SELECT k.*, array_position(k.names, v_name) AS place FROM known k WHERE v_name = ANY (k.names))
  SELECT h.queue, h.source, h.subject, h.domain, count(*) OVER () AS n, string_agg(h.queue, ', ') OVER () AS others
    INTO v_found
  FROM (SELECT * FROM hit ORDER BY place, queue LIMIT 20) h WHERE h.place = (SELECT min(place) FROM hit) LIMIT 1;
  v_n := COALESCE(v_found.n, 0);
  v_all := v_found.others;
  IF v_n = 0 THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'not_found', 'reason',
      format('there is no queue %s (a webhook endpoint or subscription, an event domain or a job kind)', v_name));
  ELSIF v_n > 1 THEN
    RETURN jsonb_build_object('refused', true, 'rule', 'ambiguous', 'reason',
      format('several queues are called %s: %s; name one of them', v_name, left(v_all, 500)));
  END IF;
  v_out := CASE v_found.source WHEN 'webhook' THEN public.fn_why_webhook(v_found.subject)
    WHEN 'job' THEN public.fn_why_job(v_found.subject, v_found.domain) ELSE public.fn_why_events(v_found.domain) END;
  IF v_clone IS NOT NULL THEN
    v_out := v_out || jsonb_build_object('links', jsonb_build_array(public.fn_why_link(
      p_link => 'clone'::text, p_state => 'blocks'::text, p_text => v_clone, p_detail => NULL::text,
      p_keys => '1 Y'::text, p_do => 'qtop adopt --waiting keep|suspend|cancel --reason R'::text))
      || (v_out -> 'links'));
  END IF;
  RETURN jsonb_build_object('waiting_bound', false) || v_out
    || jsonb_build_object('queue', v_found.queue, 'source', v_found.source,
    'age_seconds', COALESCE(floor(public.fn_age((v_out ->> 'oldest_at')::timestamptz))::bigint, 0),
    'why', CASE WHEN (v_out ->> 'waiting')::bigint = 0 THEN '' ELSE COALESCE(
      (SELECT l.value ->> 'text' FROM jsonb_array_elements(v_out -> 'links') WITH ORDINALITY AS l (value, n)
        WHERE l.value ->> 'state' = 'blocks' ORDER BY l.n LIMIT 1),
      (SELECT l.value ->> 'text' FROM jsonb_array_elements(v_out -> 'links') WITH ORDINALITY AS l (value, n)
        WHERE l.value ->> 'state' = 'slows' ORDER BY l.n LIMIT 1), '') END);
END $$;
GRANT EXECUTE ON FUNCTION public.fn_queue_why TO :"queue_viewer", :"dot_executor", :"workflow_admin",
  :"dead_letter_operator", :"subscription_admin";
COMMENT ON FUNCTION public.fn_queue_why IS
  'Why a queue waits: every link that could block it, in order, with its remedy.';
