-- Claiming jobs. Source: DP6 §3.3. Lock order of all functions that change jobs:
--   1. job subscriptions, 2. leases, 3. jobs; within each kind in the order of their ids.
-- The job queue and the leases may be full of dead rows, which an old snapshot keeps, while the statistics of the
-- planner say that the tables are empty. A join by id could then read all dead rows. Statements therefore find the
-- jobs or leases of a list by = ANY alone, or look up each row (LATERAL with OFFSET 0, which the planner does not turn
-- into another join). A join by id and = ANY together, or a second list that is compared row by row, would take the
-- square of the length of the list. A second list is therefore hashed: IN (SELECT unnest(…)), within OR, CASE or
-- IS TRUE, so that it does not become a join. Values that belong to the ids of a list are looked up in a jsonb object,
-- which no row carries (a scalar subselect reads it): a row that is joined, sorted or updated copies what it carries.
-- A leased job is changed only while the row of its lease is locked. Jobs without a lease are locked in the order of
-- job_id, or skipped.

COMMENT ON TYPE public.job_claim_lane IS 'A queue lane (kind × domain) during fn_job_claim. Internal.';

-- fn_job_refusal(executor) → why this session cannot claim as the executor; NULL = it may claim.
CREATE OR REPLACE FUNCTION public.fn_job_refusal(p_executor_id text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_executor public.queue_heartbeat;
  v_clone text := public.fn_queue_clone_of();
BEGIN
  IF v_clone IS NOT NULL THEN
    RETURN v_clone;
  ELSIF NOT public.fn_cfg_bool('queue.job_substrate.enabled') THEN
    RETURN 'jobs are switched off: queue.job_substrate.enabled is not true';
  END IF;
  SELECT * INTO v_executor FROM public.queue_heartbeat WHERE executor_id = p_executor_id;
  IF NOT FOUND THEN
    RETURN format('no executor %s is registered', left(COALESCE(p_executor_id, '(null)'), 200));
  ELSIF v_executor.deregistered_at IS NOT NULL THEN
    RETURN format('executor %s was deregistered by %s', p_executor_id, v_executor.deregistered_by);
  ELSIF NOT public.fn_executor_member(v_executor.owner_role) THEN
    RETURN format('executor %s belongs to role %s, and login %s is not a member', p_executor_id,
      v_executor.owner_role, session_user);
  ELSIF NOT EXISTS (SELECT 1 FROM public.job_subscription s WHERE s.executor_id = p_executor_id AND s.enabled) THEN
    RETURN format('executor %s has no enabled job subscription', p_executor_id);
  ELSIF NOT EXISTS (SELECT 1 FROM public.job_subscription s
      WHERE s.executor_id = p_executor_id AND s.enabled AND s.executor_kind = v_executor.executor_kind) THEN
    RETURN format('executor %s is of kind %s, but its enabled job subscriptions are of another', p_executor_id,
      v_executor.executor_kind);
  END IF;
  RETURN NULL;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_refusal TO :"dot_executor", :"queue_viewer", :"workflow_admin",
  :"dead_letter_operator";
COMMENT ON FUNCTION public.fn_job_refusal IS
  'Why fn_job_claim returns no jobs to this session as that executor; null if it may claim.';

-- fn_job_lane_rule(executor, domain, kind) → the job subscription of the executor that applies to the queue lane: the
-- most specific enabled one, where a kind counts more than a domain. Those of the time when the executor was registered
-- with another executor kind do not count. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lane_rule(p_executor_id text, p_event_domain text, p_job_kind text)
RETURNS SETOF public.job_subscription
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT s.* FROM public.job_subscription s
  JOIN public.queue_heartbeat h ON h.executor_id = s.executor_id AND h.executor_kind = s.executor_kind
  WHERE s.executor_id = p_executor_id AND s.enabled
    AND (s.job_kind IS NULL OR s.job_kind = p_job_kind) AND (s.event_domain IS NULL OR s.event_domain = p_event_domain)
  ORDER BY s.job_kind IS NULL, s.event_domain IS NULL LIMIT 1
$$;
COMMENT ON FUNCTION public.fn_job_lane_rule IS
  'The job subscription of an executor that applies to a queue lane (DP6 §3.3). Internal.';

-- fn_job_lane_head(lane, below, refuse) → the highest priority below `below` at which the lane has a claimable job that
-- comes after the key of the lane and is due from lane.due on; NULL = no such job. The key (after_priority, after_time,
-- after_id) is the job at which the caller stopped. Rows before the key at its priority are not read, so that dead
-- index entries there, which an old snapshot keeps, cost nothing. At other priorities the entries before lane.due are
-- skipped without reading their rows. Jobs that the claim refuses are passed over. Internal.
CREATE OR REPLACE FUNCTION public.fn_job_lane_head(p_lane public.job_claim_lane, p_below bigint, p_refuse text)
  RETURNS int
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_head int;
BEGIN
  SELECT q.priority INTO v_head FROM public.job_queue q
  WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
    AND q.priority >= p_lane.floor AND q.priority > p_lane.after_priority AND q.priority < p_below
    AND q.process_after >= p_lane.due
    AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
    AND (p_refuse IS NULL OR q.lost_leases = 0
      OR p_refuse = 'last_lease' AND q.lost_leases = 1 AND q.attempts + 1 < q.max_attempts)
  ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1;
  IF v_head IS NOT NULL THEN
    RETURN v_head;
  END IF;
  IF p_lane.after_priority >= p_lane.floor AND p_lane.after_priority < p_below THEN
    SELECT q.priority INTO v_head FROM public.job_queue q
    WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
      AND q.priority = p_lane.after_priority AND (q.process_after, q.job_id) > (p_lane.after_time, p_lane.after_id)
      AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
      AND (p_refuse IS NULL OR q.lost_leases = 0
        OR p_refuse = 'last_lease' AND q.lost_leases = 1 AND q.attempts + 1 < q.max_attempts)
    ORDER BY q.process_after, q.job_id LIMIT 1;
    IF v_head IS NOT NULL THEN
      RETURN v_head;
    END IF;
  END IF;
  SELECT q.priority INTO v_head FROM public.job_queue q
  WHERE q.event_domain = p_lane.event_domain AND q.job_kind = p_lane.job_kind AND q.ready
    AND q.priority >= p_lane.floor AND q.priority < least(p_below, p_lane.after_priority)
    AND q.process_after >= p_lane.due
    AND q.status IN ('queued', 'retry_waiting') AND q.executor = p_lane.executor
    AND (p_refuse IS NULL OR q.lost_leases = 0
      OR p_refuse = 'last_lease' AND q.lost_leases = 1 AND q.attempts + 1 < q.max_attempts)
  ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1;
  RETURN v_head;
END $$;
COMMENT ON FUNCTION public.fn_job_lane_head IS
  'The priority of the next claimable job of a queue lane. Internal.';

-- fn_job_claim(executor, kinds, limit, after) → the leased jobs, highest priority first, then oldest first; no rows if
-- the claim is refused (fn_job_refusal returns why).
--   kinds   only these job kinds; NULL = all
--   limit   the most jobs to claim, 1 to 10000; queue lanes whose next jobs have the same priority share this number
--   after   {"<domain>/<kind>": [priority, process_after, job_id]}, the job at which this worker stopped in each queue
--           lane; NULL = read every queue lane from its start. With "refuse": "lost_lease" the claim passes over jobs
--           that have lost a lease, with "last_lease" only over those that the next lost lease makes dead letters. They
--           keep their place. A host claims so while it runs a job that has lost a lease.
-- The claim first locks the job subscriptions that apply, so that concurrent claims do not exceed max_parallel. If due
-- jobs have very many different priorities, a call may return fewer jobs than exist. Commit before working on the jobs:
-- a lease is valid only when it is committed.
CREATE OR REPLACE FUNCTION public.fn_job_claim(p_executor_id text, p_kinds text[] DEFAULT NULL,
  p_limit int DEFAULT 1, p_after jsonb DEFAULT NULL)
RETURNS SETOF public.job_queue
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_lanes public.job_claim_lane[]; -- the queue lanes that may have work
  v_lane public.job_claim_lane;
  v_refuse text;
  v_watermarks boolean; -- true: each lane is read from its watermark
  v_lease_secs int;
  v_until timestamptz;
  -- several lanes may have one job subscription: only the first of them has its free slots (room) and its lease token
  v_subscription_ids uuid[];       -- per lane with work: its subscription
  v_heads int[];                   -- per lane: the priority of its next job
  v_subscription record;
  v_key jsonb;
  v_first int;
  v_remaining int := p_limit;
  v_top int;
  v_next int;
  v_top_lanes int[];               -- the lanes whose next job has the highest priority …
  v_times timestamptz[];           -- … and up to which job each has been read
  v_ids uuid[];
  v_i int;
  v_time timestamptz;
  v_id uuid;
  v_n int;
  v_got int;
  v_tids tid[];
  v_picked tid[] := ARRAY[]::tid[];
  v_tokens uuid[] := ARRAY[]::uuid[];
  v_governing uuid[] := ARRAY[]::uuid[];
BEGIN
  IF (p_limit BETWEEN 1 AND 10000 AND COALESCE(jsonb_typeof(p_after), 'object') = 'object'
    AND current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')) IS NOT TRUE THEN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
      RAISE EXCEPTION 'p_limit must be 1 to 10000, not %', p_limit USING ERRCODE = '22023';
    ELSIF jsonb_typeof(p_after) <> 'object' THEN
      RAISE EXCEPTION 'p_after must be a JSON object: "domain/kind": [priority, process_after, job_id]'
        USING ERRCODE = '22023';
    END IF;
    -- an old snapshot would not show the leases that concurrent claims have committed
    RAISE EXCEPTION 'fn_job_claim needs a transaction with isolation level READ COMMITTED' USING ERRCODE = '25001';
  END IF;
  -- A claim without work locks and writes nothing. If fn_job_refusal would refuse the executor, there are no lanes, or
  -- the claim ends after them. Starting and ending a statement costs more here than running it: the usual case is
  -- therefore a separate, smaller statement.
  v_watermarks := (SELECT x.version FROM public.job_watermark_state x ORDER BY x.version DESC LIMIT 1) IS NOT NULL
    AND public.fn_job_watermark_valid();
  IF p_after IS NULL AND NOT v_watermarks THEN
    v_lanes := ARRAY(
      SELECT ROW(l.event_domain, l.job_kind, r.subscription_id, r.priority_floor, 0, gen_random_uuid(), n.head,
        h.executor_kind, h.owner_role, NULL, 2147483647, '-infinity', '00000000-0000-0000-0000-000000000000',
        '-infinity')::public.job_claim_lane
      FROM public.queue_heartbeat h
      CROSS JOIN (SELECT DISTINCT o.event_domain, o.job_kind FROM public.job_lane o WHERE p_kinds IS NULL
        OR o.job_kind = ANY (p_kinds)) l
      CROSS JOIN LATERAL ( -- inlined fn_job_lane_rule, which would be one call per lane
        SELECT s.subscription_id, s.priority_floor FROM public.job_subscription s
        WHERE s.executor_id = p_executor_id AND s.enabled AND s.executor_kind = h.executor_kind
          AND (s.job_kind IS NULL OR s.job_kind = l.job_kind)
            AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
        ORDER BY s.job_kind, s.event_domain LIMIT 1) r
      CROSS JOIN LATERAL (
        SELECT q.priority AS head FROM public.job_queue q
        WHERE q.event_domain = l.event_domain AND q.job_kind = l.job_kind
          AND q.ready AND q.priority >= r.priority_floor
          AND q.status IN ('queued', 'retry_waiting') AND q.executor = h.executor_kind
        ORDER BY q.priority DESC, q.process_after, q.job_id LIMIT 1) n
      WHERE h.executor_id = p_executor_id AND h.deregistered_at IS NULL);
  ELSE
    v_lanes := ARRAY(
      SELECT ROW(l.event_domain, l.job_kind, r.subscription_id, r.priority_floor, 0, gen_random_uuid(), NULL,
        h.executor_kind, h.owner_role, NULL, COALESCE(f.priority, 2147483647), COALESCE(f.due, '-infinity'),
        '00000000-0000-0000-0000-000000000000', COALESCE(f.due, '-infinity'))::public.job_claim_lane
      FROM public.queue_heartbeat h
      CROSS JOIN (SELECT DISTINCT o.event_domain, o.job_kind FROM public.job_lane o WHERE p_kinds IS NULL
        OR o.job_kind = ANY (p_kinds)) l
      CROSS JOIN LATERAL (
        SELECT s.subscription_id, s.priority_floor FROM public.job_subscription s
        WHERE s.executor_id = p_executor_id AND s.enabled AND s.executor_kind = h.executor_kind
          AND (s.job_kind IS NULL OR s.job_kind = l.job_kind)
            AND (s.event_domain IS NULL OR s.event_domain = l.event_domain)
        ORDER BY s.job_kind, s.event_domain LIMIT 1) r
      LEFT JOIN LATERAL (
        SELECT w.priority, least(w.due, (SELECT min(b.due) FROM public.job_watermark_below b
          WHERE b.event_domain = l.event_domain AND b.job_kind = l.job_kind)) AS due
        FROM public.job_watermark w WHERE v_watermarks AND w.event_domain = l.event_domain AND w.job_kind = l.job_kind
        ORDER BY w.version DESC LIMIT 1) f ON true
      WHERE h.executor_id = p_executor_id AND h.deregistered_at IS NULL);
  END IF;
  v_lane := v_lanes[1];
  IF v_lane IS NULL OR v_lane.owner_role IS NOT NULL AND NOT COALESCE(pg_has_role(session_user,
      to_regrole(quote_ident(v_lane.owner_role))::oid, 'MEMBER'), false) THEN -- inlined fn_executor_member
    RETURN;
  END IF;
  -- Lock the subscriptions before counting their leases, so that no claim exceeds max_parallel. A subscription that has
  -- changed since it was read yields no jobs in this call.
  IF p_after IS NULL AND NOT v_watermarks AND cardinality(v_lanes) = 1 THEN
    -- one statement also reads what the other case below reads before it locks
    SELECT s.max_parallel, (SELECT CASE WHEN length(d.value) BETWEEN 1 AND 9 AND rtrim(d.value, '0123456789') = ''
        THEN least(greatest(d.value::int, 1), 86400) END -- inlined v_dot_config_number with the bounds of the rule
      FROM public.dot_config d WHERE d.key = 'queue.lease.duration_seconds')
    INTO v_lane.room, v_lease_secs FROM public.job_subscription s
    WHERE s.subscription_id = v_lane.subscription_id AND s.enabled AND s.executor_kind = v_lane.executor
      AND s.executor_id = p_executor_id AND s.priority_floor = v_lane.floor
      AND (s.job_kind IS NULL OR s.job_kind = v_lane.job_kind)
        AND (s.event_domain IS NULL OR s.event_domain = v_lane.event_domain)
      AND EXISTS (SELECT FROM public.dot_config c WHERE c.key = 'queue.job_substrate.enabled' AND c.value = 'true')
      AND EXISTS (SELECT FROM public.queue_identity i -- inlined fn_queue_clone_of
        WHERE i.database_oid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND i.system_identifier = (pg_control_system()).system_identifier)
    FOR UPDATE;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    v_until := clock_timestamp() + make_interval(secs => COALESCE(v_lease_secs, 300));
    SELECT array_agg(x.tid), array_agg(x.job_id) INTO v_tids, v_ids FROM (
      SELECT w.ctid AS tid, w.job_id FROM public.job_queue w
      WHERE w.event_domain = v_lane.event_domain AND w.job_kind = v_lane.job_kind AND w.ready
        AND w.priority BETWEEN v_lane.floor AND v_lane.head AND w.status IN ('queued', 'retry_waiting')
          AND w.executor = v_lane.executor
      ORDER BY w.priority DESC, w.process_after, w.job_id
      LIMIT greatest(0, least(p_limit, v_lane.room - (SELECT COALESCE(sum(l.live), 0) FROM public.job_lease l
        WHERE l.subscription_id = v_lane.subscription_id)))
      FOR UPDATE SKIP LOCKED) x; -- the rows are locked, so that their ctid cannot change
    IF v_tids IS NULL THEN
      RETURN;
    END IF;
    INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
    VALUES (v_lane.token, p_executor_id, v_lane.subscription_id, v_until, v_ids, cardinality(v_ids));
    IF cardinality(v_ids) = 1 THEN -- a smaller statement: it needs no order
      RETURN QUERY
      UPDATE public.job_queue q SET status = 'leased', lease_owner = p_executor_id, lease_until = v_until,
        lease_token = v_lane.token, picked_at = clock_timestamp(), updated_at = now()
      WHERE q.ctid = v_tids[1] RETURNING q.*;
      RETURN;
    END IF;
    RETURN QUERY
    WITH claimed AS (
      UPDATE public.job_queue q SET status = 'leased', lease_owner = p_executor_id, lease_until = v_until,
        lease_token = v_lane.token, picked_at = clock_timestamp(), updated_at = now()
      WHERE q.ctid = ANY (v_tids) RETURNING q.*
    )
    SELECT * FROM claimed c ORDER BY c.priority DESC, c.process_after, c.job_id;
    RETURN;
  END IF;

  SELECT (SELECT d.n FROM public.v_dot_config_number d WHERE d.key = 'queue.lease.duration_seconds') INTO v_lease_secs
  FROM public.dot_config c WHERE c.key = 'queue.job_substrate.enabled' AND c.value = 'true'
    AND EXISTS (SELECT FROM public.queue_identity i -- inlined fn_queue_clone_of
      WHERE i.database_oid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND i.system_identifier = (pg_control_system()).system_identifier);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  v_until := clock_timestamp() + make_interval(secs => COALESCE(v_lease_secs, 300));

  v_refuse := p_after ->> 'refuse';
  IF v_refuse NOT IN ('last_lease', 'lost_lease') THEN
    RAISE EXCEPTION 'p_after: refuse must be last_lease or lost_lease, not %', left(v_refuse, 200)
      USING ERRCODE = '22023';
  END IF;
  FOR i IN 1..cardinality(v_lanes) LOOP
    v_lane := v_lanes[i];
    v_key := p_after -> (v_lane.event_domain || '/' || v_lane.job_kind);
    IF v_key <> 'null' THEN
      BEGIN
        IF jsonb_typeof(v_key) <> 'array' THEN
          RAISE data_exception;
        END IF;
        v_lane.after_priority := COALESCE((v_key ->> 0)::int, v_lane.after_priority);
        v_lane.after_time := COALESCE((v_key ->> 1)::timestamptz, v_lane.after_time);
        v_lane.after_id := COALESCE((v_key ->> 2)::uuid, v_lane.after_id);
      EXCEPTION WHEN data_exception THEN
        RAISE EXCEPTION 'p_after: the entry "%/%" must be [priority, process_after, job_id] of the last job that was '
          'claimed there, not %', v_lane.event_domain, v_lane.job_kind, left(v_key::text, 200)
          USING ERRCODE = '22023', HINT = 'leave the entry out to read the queue lane from its start';
      END;
      v_lanes[i] := v_lane;
    END IF;
    v_heads[i] := CASE WHEN p_after IS NULL AND NOT v_watermarks THEN v_lane.head
      ELSE public.fn_job_lane_head(v_lane, 2147483648::bigint, v_refuse) END;
    v_subscription_ids[i] := CASE WHEN v_heads[i] IS NOT NULL THEN v_lane.subscription_id END;
  END LOOP;
  FOR v_subscription IN
    SELECT s.subscription_id, s.job_kind, s.event_domain, s.priority_floor, s.max_parallel
      FROM public.job_subscription s
    WHERE s.subscription_id = ANY (v_subscription_ids) AND s.enabled AND s.executor_kind = v_lane.executor
      AND s.executor_id = p_executor_id
    ORDER BY s.subscription_id FOR UPDATE
  LOOP
    v_first := array_position(v_subscription_ids, v_subscription.subscription_id);
    IF v_lanes[v_first].floor = v_subscription.priority_floor AND NOT EXISTS (SELECT FROM unnest(v_lanes) l
      WHERE l.subscription_id = v_subscription.subscription_id
        AND (l.job_kind <> v_subscription.job_kind OR l.event_domain <> v_subscription.event_domain)) THEN
      v_lanes[v_first].room := greatest(v_subscription.max_parallel - COALESCE(CASE WHEN v_watermarks
        THEN public.fn_job_leased(v_subscription.subscription_id, (v_subscription.max_parallel - p_limit)::bigint)
        ELSE (SELECT sum(l.live) FROM public.job_lease l
          WHERE l.subscription_id = v_subscription.subscription_id) END, 0), 0);
    END IF;
  END LOOP;

  -- Each round selects and locks jobs of the lanes whose next job has the highest priority; after the last round all
  -- selected jobs are claimed in one statement.
  FOR v_round IN 1..64 LOOP
    v_next := (SELECT max(h) FROM unnest(v_heads) h);
    EXIT WHEN v_next IS NULL OR v_remaining = 0;
    IF v_next IS DISTINCT FROM v_top THEN
      v_top := v_next;
      v_times := ARRAY[]::timestamptz[];
    END IF;
    v_top_lanes := ARRAY(SELECT x.i FROM unnest(v_heads) WITH ORDINALITY AS x (h, i) WHERE x.h = v_top ORDER BY x.i);
    FOR k IN 1..cardinality(v_top_lanes) LOOP
      EXIT WHEN v_remaining = 0;
      v_i := v_top_lanes[k];
      CONTINUE WHEN v_heads[v_i] IS NULL; -- its subscription has reached max_parallel in this round
      v_lane := v_lanes[v_i];
      v_first := array_position(v_subscription_ids, v_lane.subscription_id);
      v_lane.room := v_lanes[v_first].room;
      v_n := (v_remaining + cardinality(v_top_lanes) - k) / (cardinality(v_top_lanes) - k + 1);
      IF v_times[v_i] IS NULL THEN
        v_times[v_i] := CASE WHEN v_lane.after_priority = v_top THEN v_lane.after_time ELSE v_lane.due END;
        v_ids[v_i] := CASE WHEN v_lane.after_priority = v_top THEN v_lane.after_id
          ELSE '00000000-0000-0000-0000-000000000000' END;
      END IF;
      SELECT array_agg(x.tid), max(x.process_after), (array_agg(x.job_id))[count(*)] INTO v_tids, v_time, v_id FROM (
        SELECT w.ctid AS tid, w.process_after, w.job_id FROM public.job_queue w
        WHERE w.event_domain = v_lane.event_domain AND w.job_kind = v_lane.job_kind AND w.ready AND w.priority = v_top
          AND (w.process_after, w.job_id) > (v_times[v_i], v_ids[v_i])
          AND w.status IN ('queued', 'retry_waiting') AND w.executor = v_lane.executor
          AND (v_refuse IS NULL OR w.lost_leases = 0
            OR v_refuse = 'last_lease' AND w.lost_leases = 1 AND w.attempts + 1 < w.max_attempts)
        ORDER BY w.process_after, w.job_id LIMIT least(v_n, v_lane.room) FOR UPDATE SKIP LOCKED) x;
      v_got := COALESCE(cardinality(v_tids), 0);
      v_remaining := v_remaining - v_got;
      v_lanes[v_first].room := v_lane.room - v_got;
      IF v_got > 0 THEN
        v_times[v_i] := v_time;
        v_ids[v_i] := v_id;
        v_picked := v_picked || v_tids;
        v_tokens := v_tokens || array_fill(v_lanes[v_first].token, ARRAY[v_got]);
        v_governing := v_governing || array_fill(v_lane.subscription_id, ARRAY[v_got]);
      END IF;
      IF v_got = v_lane.room THEN
        FOR i IN v_first..cardinality(v_subscription_ids) LOOP
          IF v_subscription_ids[i] = v_lane.subscription_id THEN
            v_heads[i] := NULL;
          END IF;
        END LOOP;
      ELSIF v_got < v_n THEN
        v_heads[v_i] := public.fn_job_lane_head(v_lane, v_top::bigint, v_refuse);
      END IF;
    END LOOP;
  END LOOP;

  IF v_remaining = p_limit THEN
    RETURN;
  END IF;
  RETURN QUERY
  WITH claimed AS (
    UPDATE public.job_queue q SET status = 'leased', lease_owner = p_executor_id, lease_until = v_until,
      lease_token = g.token, picked_at = clock_timestamp(), updated_at = now()
    FROM unnest(v_picked, v_tokens) AS g (tid, token) WHERE q.ctid = g.tid RETURNING q.*
  ), leased AS (
    INSERT INTO public.job_lease (lease_token, lease_owner, subscription_id, lease_until, job_ids, live)
    SELECT c.lease_token, p_executor_id, g.subscription_id, v_until, array_agg(c.job_id), count(*)::int
    FROM claimed c JOIN (SELECT DISTINCT x.token, x.subscription_id
      FROM unnest(v_tokens, v_governing) AS x (token, subscription_id)) g
      ON g.token = c.lease_token
    GROUP BY 1, 3
  )
  SELECT * FROM claimed c ORDER BY c.priority DESC, c.process_after, c.job_id;
END $$;
GRANT EXECUTE ON FUNCTION public.fn_job_claim TO :"dot_executor";
COMMENT ON FUNCTION public.fn_job_claim IS
  'Leases jobs to a registered executor, by its job subscriptions (DP6 §3.3). Commit before working on them.';
